"""What the tests of an evaluation share: seeded texts in files, chunks measured by hand, and a model asked in loops."""

import csv
import itertools
import math
import random
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import cases, families
from whyformer.datasets import Example
from whyformer.evaluation.chunk import measured_chunk
from whyformer.evaluation.evaluate import Table, evaluate
from whyformer.evaluation.journal import Journal
from whyformer.evaluation.plan import EvaluationPlan, EvaluationSettings
from whyformer.methods.method import METHODS, method, method_specs
from whyformer.metrics.metric import METRICS, metric_specs
from whyformer.models.load import Subject, subject_of
from whyformer.perturb import Outcomes, hide_named
from whyformer.prediction import Prediction
from whyformer.results.evaluation import Chunk, Record
from whyformer.show.tables import grid
from whyformer.tolerance import ROUNDING

WORDS = ["the", "a", "film", "fine", "bad", "is", "acting", "actors", "not", "like", "and", "all", "it"]
TABLES = ("table.md", "table.csv", "table.tex")
JOURNAL = "journal.jsonl"
FRACTION = re.compile("-?[0-9]+[.][0-9]+(?:e[+-]?[0-9]+)?|-?[0-9]+e-[0-9]+")
CHECKSUM = re.compile('"checksum":"[0-9a-f]+"')
FALL, CHANGE = "comprehensiveness(fractions=0.5)", "log_odds(fractions=0.5)"  # without a curve: no picture is drawn

Found = dict[tuple[int, str, str], Record]  # by row, method and metric


@contextmanager
def own_registry() -> Iterator[None]:
    """What is registered within it is forgotten behind it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(METHODS, "known", dict(METHODS))
        patched.setattr(METRICS, "known", dict(METRICS))
        yield


def registered(function: Any, *, class_specific: bool = False) -> None:
    """A method of the test's own."""
    method(family="test", signed=True, class_specific=class_specific, paper="–")(function)


def in_order(prediction: Prediction) -> torch.Tensor:
    """The first unit first: scores for methods of which only the calls matter."""
    length = prediction.padding.shape[1]
    return -torch.arange(length, dtype=torch.float64).expand(prediction.padding.shape)


def leave_one_out(prediction: Prediction) -> torch.Tensor:
    """How far the probability of the explained class falls without each unit."""
    outcomes = Outcomes(prediction.model)
    scores = torch.zeros(prediction.padding.shape, dtype=torch.float64)
    classes = prediction.trace.logits.shape[-1]
    for example, (row, target) in enumerate(zip(prediction.inputs, prediction.target.tolist(), strict=True)):
        without = [row.without([place], hide_named("delete")) for place in range(len(row))]
        said = outcomes.of([row, *without], classes)[:, target]
        scores[example, : len(row)] = said[0] - said[1:]
    return scores


@cache
def answering() -> Subject:
    """A tiny model that answers questions."""
    own = cases.wordpiece()
    torch.manual_seed(3)
    config = families.CONFIGS["bert"]()
    config.vocab_size, config.max_position_embeddings = len(own), 128
    model = hf.BertForQuestionAnswering(config).double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return subject_of(model, own)


def texts(count: int, seed: int = 0, longest: int = 12) -> list[str]:
    stream = random.Random(seed)
    return [" ".join(stream.choices(WORDS, k=stream.randint(2, longest))) for _ in range(count)]


def written(path: Path, rows: Sequence[Sequence[Any]], columns: Sequence[str] = ("text", "label")) -> Path:
    """A CSV file of these rows."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def data(folder: Path, count: int = 12, seed: int = 0, name: str = "texts.csv") -> Path:
    """A CSV file of seeded texts and labels."""
    stream = random.Random(seed)
    return written(folder / name, [(text, stream.randrange(3)) for text in texts(count, seed)])


def measuring(
    methods: str = "attcat", metrics: str = "aopc", of: Subject | None = None, **settings: Any
) -> EvaluationPlan:
    own = cases.subject() if of is None else of
    return EvaluationPlan(own, method_specs(methods), metric_specs(metrics), EvaluationSettings(**settings))


def examples(given: Iterable[Any], labels: Sequence[int | str | None] = (), first: int = 0) -> list[Example]:
    said = itertools.chain(labels, itertools.repeat(None))
    return [Example(row, text, label) for row, (text, label) in enumerate(zip(given, said), first)]  # noqa: B905


def chunk_of(of: EvaluationPlan, rows: Sequence[Example], known: Container[str] = frozenset()) -> Chunk:
    """Some examples, measured as one chunk."""
    return measured_chunk(of, of.pending(rows[0].row, rows[-1].row + 1, rows, {}, known))


def found(chunks: Chunk | Iterable[Chunk]) -> Found:
    every = [chunks] if isinstance(chunks, Chunk) else list(chunks)
    records = [record for chunk in every for record in chunk.records]
    by_place = {(record.row, record.method, record.metric): record for record in records}
    assert len(by_place) == len(records)
    return by_place


def values(chunks: Chunk | Iterable[Chunk]) -> dict[tuple[int, str, str], float | None]:
    return {place: record.value for place, record in found(chunks).items()}


def run(path: Path, out: Path | None, methods: str, metrics: str = f"{FALL},{CHANGE}", **options: Any) -> Table:
    """An evaluation of the tiny classifier, four rows at a time."""
    chosen: dict[str, Any] = {"rows_per_chunk": 4, "progress": False, "of": cases.subject()} | options
    return evaluate(chosen.pop("of"), path, methods, metrics, out=out, **chosen)


def journalled(folder: Path) -> list[Chunk]:
    return list(Journal.read(folder).chunks())


def printed(table: Table) -> dict[tuple[str, str], list[str]]:
    """What is printed of each method and metric, whatever their order."""
    rows: dict[tuple[str, str], list[str]] = {}
    for column in grid(table):
        for name, entry in zip(table.methods, column.entries, strict=True):
            rows.setdefault((name, column.metric), []).append(f"{column.note} {entry}")
    return rows


def files(folder: Path) -> dict[str, str]:
    """The journal and the tables of a folder."""
    return {name: (folder / name).read_text(encoding="utf-8") for name in (JOURNAL, *TABLES)}


def alike(found: object, expected: object, dtype: torch.dtype = torch.float64) -> bool:
    """Whether two texts, or what prints as such, are the same but for the rounding of the fractions in them."""
    (words, numbers), (others, wanted) = (_parts(str(one)) for one in (found, expected))
    return words == others and numbers == pytest.approx(wanted, rel=ROUNDING[dtype], abs=ROUNDING[dtype])


def _parts(text: str) -> tuple[list[str], list[float]]:
    """A text without its fractions and checksums, and the fractions."""
    return FRACTION.split(CHECKSUM.sub("", text)), [float(one) for one in FRACTION.findall(text)]


class Literal:
    """What a classifier says of one text without some of its tokens, one forward pass at a time, nothing batched."""

    def __init__(self, own: Subject, text: Any):
        self.own = own
        given = (text,) if isinstance(text, str) else text
        inputs = dict(own.tokenizer(*given, return_tensors="pt", return_special_tokens_mask=True))
        special = inputs.pop("special_tokens_mask")[0].tolist()
        self.inputs: dict[str, torch.Tensor] = inputs
        self.rankable = [place for place, flag in enumerate(special) if not flag]
        self._known: dict[tuple[frozenset[int], str], list[float]] = {}
        self._scores: dict[tuple[Any, ...], list[float]] = {}
        self.predicted = max(range(len(self.said())), key=lambda index: self.said()[index])

    def said(self, gone: Iterable[int] = (), hide: str = "delete") -> list[float]:
        """The probabilities of all classes."""
        key = (frozenset(gone), hide)
        if key not in self._known:
            self._known[key] = self._said(*key)
        return self._known[key]

    def _said(self, gone: frozenset[int], hide: str) -> list[float]:
        inputs = {name: tensor.clone() for name, tensor in self.inputs.items()}
        if hide == "delete":
            kept = [place for place in range(inputs["input_ids"].shape[1]) if place not in gone]
            inputs = {name: tensor[:, kept] for name, tensor in inputs.items()}
        else:
            assert hide == "pad_attended"
            for place in gone:
                inputs["input_ids"][0, place] = self.own.tokenizer.pad_token_id
        with torch.no_grad():
            logits = self.own.model(**inputs).logits[0].tolist()
        if self.own.model.config.problem_type == "multi_label_classification":
            return [1 / (1 + math.exp(-logit)) for logit in logits]
        powers = [math.exp(logit) for logit in logits]
        return [power / sum(powers) for power in powers]

    def scores(self, name: str, target: int | None = None, **options: Any) -> list[float]:
        key = (name, self.predicted if target is None else target, *sorted(options.items()))
        if key not in self._scores:
            found = whyformer.attribute(self.own.model, self.inputs, name, target=key[1], **options)
            self._scores[key] = found[0].tolist()
        return self._scores[key]

    def order(self, name: str, target: int | None = None, **options: Any) -> list[int]:
        """The places of the units, highest score first, by picking the best of those left."""
        scores, left, order = self.scores(name, target, **options), list(self.rankable), []
        while left:
            best = left[0]
            for place in left:
                if scores[place] > scores[best]:
                    best = place
            order.append(best)
            left.remove(best)
        return order

    def aopc(self, order: Sequence[int], target: int | None = None) -> float:
        of = self.predicted if target is None else target
        drops = [self.said()[of] - self.said(order[: self._nearest(step)])[of] for step in range(11)]
        return sum(drops) / 11

    def log_odds(self, order: Sequence[int]) -> float:
        whole = self.said()[self.predicted]
        logs = []
        for step in range(11):
            after = self.said(order[: self._nearest(step)], "pad_attended")[self.predicted]
            logs.append(math.log(after / whole))
        return sum(logs) / 11

    def comprehensiveness(self, order: Sequence[int]) -> float:
        whole, drops = self.said()[self.predicted], []
        for percent in (1, 5, 10, 20, 50):
            count = -(-percent * len(order) // 100)
            drops.append(whole - self.said(order[:count])[self.predicted])
        return sum(drops) / 5

    def greedy(self) -> list[int]:
        """The order that deletes, one at a time, the unit whose deletion lowers the probability most."""
        order: list[int] = []
        while len(order) < len(self.rankable):
            left = [place for place in self.rankable if place not in order]
            order.append(min(left, key=lambda place: self.said([*order, place])[self.predicted]))
        return order

    def _nearest(self, tenths: int) -> int:
        """The nearest count to so many tenths of the units, half up."""
        return (2 * tenths * len(self.rankable) + 10) // 20
