"""Explanations of many texts: the data of each, what their table says, and how they are saved.

In a journal, the text, units and prediction of a row are kept once, and the scores once for each method. So they can be
drawn again without the model.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

import numpy as np

from whyformer.arrays import FloatArray
from whyformer.errors import BadInput, UnsupportedModel
from whyformer.inputs.batch import NO_ANSWER, TextInput
from whyformer.inputs.units import Span, Unit
from whyformer.methods.method import Scores
from whyformer.results.checked import Effect
from whyformer.results.explanation import ComparisonData, ExplanationData, plain_label, plain_unit
from whyformer.results.saved import EXPLANATION, SCHEMA, SCHEMA_VERSION
from whyformer.results.shortcuts import ScoredWord, scored_words
from whyformer.storage.files import parsed_json, path_of, read
from whyformer.storage.schema import (
    Form,
    Format,
    Misfit,
    both,
    count,
    every,
    fields,
    flag,
    index,
    must,
    named,
    optional,
    plain,
    text,
    whole,
)
from whyformer.tasks.targets import Predicted
from whyformer.tasks.task import Explains

C = TypeVar("C", bound=ComparisonData[Any])
KEPT = "(scores)"  # stands where a record has the label of a metric, and is the name of none
KEPT_VERSION = 1
NUMBERS = "<f4"  # scores, in base64
DIGITS = 6  # of what the model said


def row_facts(example: TextInput, predicted: Predicted, labels: Sequence[str]) -> dict[str, Any]:
    """What is kept of a row, whatever the methods; the labels of all rows stand elsewhere."""
    outputs = plain_label(predicted)
    if list(outputs["labels"]) == list(labels):
        del outputs["labels"]
    facts: dict[str, Any] = {
        "version": KEPT_VERSION,
        "texts": list(example.texts),
        "units": [_unit_facts(unit) for unit in example.units],
        "prediction": _rounded(outputs),
    }
    if unknown := [place for place, unit in enumerate(example.units) if unit.unknown]:
        facts["unknown"] = unknown
    if example.dropped and not example.counted:
        facts["dropped_at_least"] = True
    if example.window is not None:
        facts["window"] = {"number": example.window.number, "count": example.window.count}
    return facts


def gold_answer(answer: Span | None, unanswered: bool, texts: Sequence[str]) -> str | None:
    """The text of the answer that people gave, if they were asked."""
    if answer is not None:
        return texts[1][slice(*answer)]
    return NO_ANSWER if unanswered else None


def score_facts(scores: Scores, row: int, units: int, explains: Explains = "logit") -> dict[str, Any]:
    """The facts that are kept of a method's explanation of a row: scores, what they explain, how they are read."""
    numbers = scores.total[row, :units].double().cpu().numpy()
    with np.errstate(over="ignore"):
        packed = numbers.astype(NUMBERS)
    if not np.isfinite(packed).all():
        raise UnsupportedModel(f"scores of up to {np.abs(numbers).max():.3g} are too large to be kept")
    facts: dict[str, Any] = {"scores": base64.b64encode(packed.tobytes()).decode(), "signed": bool(scores.signed)}
    if explains != "logit":
        facts["explains"] = explains
    if scores.ranks:
        facts["ranks"] = True
    if scores.signs is not None:
        facts["signs"] = scores.signs[row, :units].cpu().tolist()
    return facts


@dataclass(frozen=True)
class KeptExample(Generic[C]):
    """A text of a data set explained by several methods towards what the model said of it.

    `gold` is the name of its label, or the gold answer; `right` whether the model said that label, None without one.
    `columns` has the other columns of its row.
    """

    row: int
    gold: str | None
    right: bool | None
    explanations: C
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KeptRow:
    """A row as it was kept: the facts of the example and of the run, as the journal has them."""

    facts: Mapping[str, Any]
    run: Mapping[str, Any]
    source: str  # the file, for errors

    def __post_init__(self) -> None:
        try:
            _ROW(self.facts)
        except Misfit as misfit:
            raise self._damaged(misfit) from misfit

    @property
    def row(self) -> int:
        """Its number, counted from 0."""
        number: int = self.facts["row"]
        return number

    @property
    def gold(self) -> str | None:
        """The name of its gold label, or the gold answer."""
        index, labels = self.facts.get("gold"), self._labels
        if index is None:
            answer: str | None = self.facts["kept"].get("answer")
            return answer
        return labels[index] if index < len(labels) else str(index)

    @property
    def right(self) -> bool | None:
        """Whether the model said the gold label; None if there is none."""
        return None if self.facts.get("gold") is None else self.facts["gold"] == self.facts.get("predicted")

    @property
    def _labels(self) -> list[str]:
        labels: list[str] = self.run.get("about", {}).get("labels", [])
        return labels

    def explanation(self, method: str, scores: Any) -> dict[str, Any]:
        """The explanation by a method, in the format of saved ones, to be checked by that."""
        numbers, units = self._numbers(method, scores), map(plain_unit, self._units)
        outputs = {"labels": self._labels, **self.facts["kept"]["prediction"]}
        target = {"index": outputs.get("index"), "name": outputs.get("label"), "span": outputs.get("span")}
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "method": method,
            "options": {},
            "signed": scores["signed"],
            "ranks": scores.get("ranks", False),
            "signs": scores.get("signs"),
            "seen": [],
            "texts": self.facts["kept"]["texts"],
            "prediction": outputs,
            "target": {name: fact for name, fact in target.items() if name != "span" or fact is not None},
            "versus": None,
            **({"explains": scores["explains"]} if "explains" in scores else {}),
            "units": [{**unit, "score": float(score)} for unit, score in zip(units, numbers, strict=True)],
            "layers": None,
            "diagnostics": self._diagnostics(),
            "provenance": self._provenance(),
        }

    def words(self, method: str, scores: Any) -> tuple[ScoredWord, ...]:
        """The words with their scores by a method."""
        numbers = self._numbers(method, scores)
        return scored_words(self._units, self.facts["kept"]["texts"], numbers, scores.get("ranks", False))

    def _numbers(self, method: str, scores: Any) -> FloatArray:
        try:
            _SCORES(scores)
            numbers = np.frombuffer(_decoded(scores["scores"]), dtype=NUMBERS).astype(np.float64)
            units = len(self.facts["kept"]["units"])
            must(len(numbers) == units, f"has {len(numbers)} numbers for {units} units", "scores")
        except Misfit as misfit:
            raise self._damaged(misfit, f", {method}") from misfit
        return numbers

    @property
    def _units(self) -> list[Unit]:
        kept = self.facts["kept"]
        unknown = set(kept.get("unknown", ()))
        return [_unit(entry, kept["texts"], place in unknown) for place, entry in enumerate(kept["units"])]

    def _diagnostics(self) -> dict[str, Any]:
        kept = self.facts["kept"]
        told = {name: kept[name] for name in ("dropped_at_least", "window", "windows") if name in kept}
        return told | ({"dropped_tokens": self.facts["dropped"]} if self.facts.get("dropped") else {})

    def _provenance(self) -> dict[str, Any]:
        about, packages = self.run.get("about", {}), ("whyformer", "torch", "transformers")
        origin = {"model": about.get("model"), "revision": about.get("revision"), "device": self.run.get("device")}
        versions = {name: self.run[name] for name in packages if name in self.run}
        return {name: fact for name, fact in origin.items() if fact is not None} | {"packages": versions}

    def _damaged(self, misfit: Misfit, of: str = "") -> BadInput:
        advice = "put back a copy of the file, or keep the scores in another folder"
        return BadInput(
            f"{self.source}: what is kept of row {self.facts.get('row')}{of} is damaged, {misfit}: {advice}"
        )


def _unit_facts(unit: Unit) -> list[Any] | str:
    """A unit in few letters: where it stands, or its text if that is not known; a special token in brackets."""
    if unit.special:
        return [unit.text]
    if unit.span is None:
        return unit.text
    return [*unit.span] if not unit.part else [*unit.span, unit.part]


def _unit(entry: Any, texts: Sequence[str], unknown: bool) -> Unit:
    """The unit that `_unit_facts` described; where it stands is checked with the explanation."""
    if isinstance(entry, str):
        return Unit(entry, unknown=unknown)
    if len(entry) == 1:
        return Unit(entry[0], special=True, unknown=unknown)
    start, end, part = (*entry, 0)[:3]
    return Unit(texts[part][start:end] if part < len(texts) else "", "token", (start, end), part, unknown=unknown)


def _rounded(facts: Any) -> Any:
    """Plain data with fractions of few digits."""
    if isinstance(facts, Mapping):
        return {name: _rounded(fact) for name, fact in facts.items()}
    if isinstance(facts, (list, tuple)):
        return [_rounded(fact) for fact in facts]
    return float(f"{facts:.{DIGITS}g}") if isinstance(facts, float) else facts


def _decoded(written: str) -> bytes:
    try:
        content = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Misfit("is not base64", "scores") from error
    must(len(content) % np.dtype(NUMBERS).itemsize == 0, "ends within a number", "scores")
    return content


def _placed(entry: Any) -> None:
    """A unit as `_unit_facts` describes it."""
    if isinstance(entry, str):
        return
    every(plain, at_least=1)(entry)
    must(len(entry) <= 3, f"has {len(entry)} entries, not 1 to 3")
    if len(entry) == 1:
        text(entry[0])
    else:
        every(count)(entry)


_WINDOW = fields({"number": count, "count": count})
_TEXT = fields(
    {
        "version": whole(KEPT_VERSION, KEPT_VERSION + 1),
        "texts": every(text),
        "units": every(_placed),
        "prediction": fields({}),
    },
    {"unknown": every(count), "answer": optional(text), "window": _WINDOW, "windows": count, "dropped_at_least": flag},
)
_ROW: Form = fields({"row": count, "kept": _TEXT}, {"gold": optional(count), "predicted": count, "dropped": count})
_SCORES: Form = both(fields({"scores": text, "signed": flag}), plain)


E = TypeVar("E", bound=ExplanationData)
EXPLANATIONS_SCHEMA, EXPLANATIONS_VERSION = "whyformer/explanations", 1
LINES = (".jsonl", ".ndjson")  # endings of files with an explanation in each line
REASONS = 3  # words of each text that the table names

_OF_ROW = {"row": count, "label": optional(text), "columns": named(plain)}
EXPLANATIONS = Format(
    "saved list of explanations",
    EXPLANATIONS_SCHEMA,
    EXPLANATIONS_VERSION,
    (fields({"explanations": every(fields({}, _OF_ROW)), "skipped": named(text, index)}),),
)
_LINE = fields({}, {**_OF_ROW, "skipped": text})


class Reason(NamedTuple):
    """A word that matters; where it was asked, what the model says without it."""

    text: str
    score: float
    effect: float | None = None  # by how much the log-odds fall without it, or the output where it has no probability
    probabilities: tuple[float, float] | None = None  # of the target, with it and without it
    contradicts: bool = False  # the effect has the other sign than the score


def reasons(explanation: ExplanationData, most: int = REASONS) -> tuple[Reason, ...]:
    """The strongest words of a text, with what was seen without them; of an image, the regions that were checked."""
    if explanation.image is not None:
        regions = () if explanation.checked is None else explanation.checked.effects[:most]
        return tuple(_reason(explanation, region.text, region.score, region) for region in regions)
    shown, listed = explanation.for_people(), []
    places = {id(unit): place for place, unit in enumerate(shown.units)}
    for word in shown.strongest(most):
        effect = None if shown.checked is None else shown.checked.of(places[id(word.unit)])
        listed.append(_reason(shown, word.text, word.score, effect))
    return tuple(listed)


def _reason(explanation: ExplanationData, text: str, score: float, effect: Effect | None) -> Reason:
    if effect is None or explanation.checked is None:
        return Reason(text, score)
    probabilities = explanation.checked.probabilities(effect, explanation.versus is not None)
    return Reason(text, score, effect.effect, probabilities, explanation.checked.agrees(effect) is False)


def together(explanation: ExplanationData) -> tuple[Reason, ...]:
    """The checked words for the output, hidden at once, and those against it."""
    effects = () if explanation.checked is None else explanation.checked.together
    return tuple(_reason(explanation, together_name(explanation, each), each.score, each) for each in effects)


def together_name(explanation: ExplanationData, effect: Effect) -> str:
    """The name of words or regions that are hidden at once: `all 3 checked words for it`."""
    checked = explanation.checked
    assert checked is not None
    count = sum(set(one.units) <= set(effect.units) for one in checked.effects)
    what = "checked region" if explanation.image is not None else "checked word"
    side = f" {'for' if effect.score > 0 else 'against'} it" if checked.signed else ""
    return (f"both {what}s" if count == 2 else f"all {count} {what}s") + side


def verdict(label: str | None, predicted: Predicted) -> bool | None:
    """Whether the model says the label of the data; None where there is none, or where the model cannot say it."""
    return label == predicted.label if label is not None and label in predicted.labels else None


class TableRow(NamedTuple):
    """What the table says of one explanation."""

    row: int
    texts: tuple[str, ...]
    method: str
    prediction: str
    probability: float | None
    label: str | None
    right: bool | None
    reasons: tuple[Reason, ...]
    columns: Mapping[str, Any]
    what: Literal["text", "image"] = "text"
    together: tuple[Reason, ...] = ()
    explained: str = ""  # the output that is explained, if it is not the predicted one alone


def other_output(explanation: ExplanationData) -> str:
    """The name of the explained output if it is not the predicted one, or is set against another; else empty."""
    target, versus, said = explanation.target, explanation.versus, explanation.prediction
    if versus is not None:
        return f"{target.name} rather than {versus.name}"
    return "" if (target.index, target.span) == (said.index, said.span) else target.name


def table_rows(examples: Iterable[KeptExample[Any]]) -> Iterator[TableRow]:
    """A row for each explanation of each example."""
    for example in examples:
        for e in example.explanations:
            said = e.prediction
            facts = (e.method, said.label, said.probability, example.gold, example.right, reasons(e))
            texts = e.texts if e.image is None or e.image.name is None else (e.image.name, *e.texts)
            what: Literal["text", "image"] = "text" if e.image is None else "image"
            yield TableRow(example.row, texts, *facts, example.columns, what, together(e), other_output(e))


@dataclass(frozen=True, eq=False)
class ExplanationsData(Sequence[E]):
    """What `Explanations` are made of, which says what the fields mean."""

    explanations: tuple[E, ...]
    rows: tuple[int, ...] = ()
    labels: tuple[str | None, ...] = ()
    skipped: tuple[tuple[int, str], ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        number = len(self.explanations)
        rows, labels = self.rows or tuple(range(number)), self.labels or (None,) * number
        if {len(rows), len(labels)} - {number}:
            raise BadInput(f"{len(rows)} rows and {len(labels)} labels for {number} explanations: give one for each")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "columns", self.columns or ({},) * number)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return self.explanations[place]
        return self._at(range(len(self))[place])

    def _at(self, places: Iterable[int]) -> Self:
        """Those at some places."""
        kept = list(places)
        names = ("explanations", "rows", "labels", "columns")
        return replace(self, **{name: tuple(getattr(self, name)[n] for n in kept) for name in names}, skipped=())

    def __len__(self) -> int:
        return len(self.explanations)

    def __iter__(self) -> Iterator[E]:
        return iter(self.explanations)

    @property
    def wrong(self) -> Self:
        """Those where the model says another label than the data."""
        return self._at(place for place, one in enumerate(self.examples()) if one.right is False)

    def examples(self) -> Iterator[KeptExample[ComparisonData[E]]]:
        """Each with its row and its label, as pages and tables take them."""
        for e, row, label, columns in zip(self.explanations, self.rows, self.labels, self.columns, strict=True):
            yield KeptExample(row, label, verdict(label, e.prediction), ComparisonData((e,)), columns)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Plain data of each explanation with its row and label, as JSON lines have them; then the rows left out."""
        for e, row, label, columns in zip(self.explanations, self.rows, self.labels, self.columns, strict=True):
            yield saved_line(e, row, label, columns)
        for row, reason in self.skipped:
            yield {"row": row, "skipped": reason}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `save` writes it."""
        explained = [line for line in self.lines() if "skipped" not in line]
        skipped = {str(row): reason for row, reason in self.skipped}
        return {
            "schema": EXPLANATIONS_SCHEMA,
            "schema_version": EXPLANATIONS_VERSION,
            "explanations": explained,
            "skipped": skipped,
        }


def saved_line(
    explanation: ExplanationData, row: int, label: str | None, columns: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """An explanation as plain data, with its row, the label of that, and its other columns."""
    more = {"columns": dict(columns)} if columns else {}
    return {**explanation.to_dict(), "row": row, "label": label, **more}


def read_lines(path: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a file of explanations holds, one after the other, each with where it stands; JSON, or JSON lines."""
    if path_of(path).suffix.casefold() not in LINES:
        saved = EXPLANATIONS.read(path)
        for place, line in enumerate(saved["explanations"]):
            yield f"{path}, explanation {place}", line
        for row, reason in saved["skipped"].items():
            yield str(path), {"row": int(row), "skipped": reason}
        return
    for number, written in enumerate(read(path, "saved list of explanations").split("\n"), 1):
        if not written.strip():
            continue
        try:
            line = parsed_json(written)
            _LINE(line)
        except ValueError as error:
            raise BadInput(f"{str(path)!r}, line {number}: not as explanations are saved, {error}") from error
        yield f"{path}, line {number}", line


def collected(cls: type[Any], kind: type[E], lines: Iterable[tuple[str, Mapping[str, Any]]]) -> Any:
    """The explanations of saved lines, each checked, as a list of that class."""
    explained: list[E] = []
    rows: list[int] = []
    labels: list[str | None] = []
    skipped: list[tuple[int, str]] = []
    columns: list[Mapping[str, Any]] = []
    for source, line in lines:
        if "skipped" in line:
            skipped.append((line["row"], line["skipped"]))
            continue
        explained.append(kind._of(EXPLANATION.checked(line, source)))
        rows.append(line.get("row", len(rows)))
        labels.append(line.get("label"))
        columns.append(line.get("columns", {}))
    return cls(tuple(explained), tuple(rows), tuple(labels), tuple(skipped), tuple(columns))
