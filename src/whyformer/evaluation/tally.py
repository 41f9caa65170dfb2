"""Tallying: a model's words by predicted class, over a data set, for several methods from one forward pass each."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import whyformer.methods  # noqa: F401  (registers the methods)
from whyformer.datasets import Data, Dataset, opened
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.engines import engine_named
from whyformer.evaluation.plan import Plan, Settings
from whyformer.evaluation.word_table import TokenTable
from whyformer.methods.default import methods_for
from whyformer.metrics.idf import Idf
from whyformer.metrics.overlap import Counting, WordSums
from whyformer.metrics.registry import metric_named
from whyformer.metrics.specs import MetricSpec
from whyformer.models.limits import limits_of
from whyformer.models.loading import Subject
from whyformer.progress import report
from whyformer.registry.specs import Written
from whyformer.results.records import Chunk
from whyformer.results.word_table import METRIC, WORDS_EACH
from whyformer.tasks.task import TASKS

OWN, NONE, CORPUS = "data", "none", "corpus:"  # what an idf may be called, beside the path of a file


def token_tables(
    subject: Subject,
    data: Dataset | Data,
    methods: Written = "auto",
    *,
    idf: Idf | None = None,
    counting: Counting = WORDS_EACH,
    rows_at_once: int | None = None,
    engine: str = "local",
    workers: int | None = None,
    **options: Any,
) -> dict[str, TokenTable]:
    """The words of each predicted class with their scores, summed over a data set, by method.

    The methods share one forward pass of each batch. A few rows are held at a time, and the sums. Words are weighted by
    the bundled table by default, or by an `idf`. With another `counting`, tokens are summed, or each distinct word of a
    text once. A label that the data may have is ignored. Options are those of
    `open_dataset`. What is done is reported after each few rows (see `whyformer.progress`). Ctrl-C ends it: the tables
    are of the rows that were done until then, and their provenance says `interrupted`. The table of a method that
    refuses texts is of the others, and its provenance says why.
    """
    _check(subject, rows_at_once)
    texts = _only_texts(data, **options)
    weights = Idf.bundled() if idf is None else idf
    settings = Settings.of(texts)
    metric = MetricSpec(metric_named(METRIC), counting._asdict())
    plan = Plan(subject, methods_for(subject, methods), (metric,), settings, weights)
    ranges = list(texts.chunks(rows_at_once or limits_of(subject.device.type).texts))
    tally = _Tally()
    try:
        pending = plan.chunks(texts, ranges, labels=False)
        for done, chunk in enumerate(engine_named(engine)(plan, pending, workers), 1):
            tally.add(chunk)
            report(done, len(ranges))
    except KeyboardInterrupt:
        if not tally.sums:
            raise
        tally.interrupted = True
    about = {**subject.provenance, "fingerprint": subject.fingerprint, "data": texts.name, "digest": texts.digest}
    about |= {"idf": weights.source, **counting.provenance}
    return tally.tables([spec.label for spec in plan.methods], subject.labels, about)


def idf_called(written: str | None, data: Dataset) -> Idf:
    """Word frequencies as they are named on the command line.

    None for the bundled table; `data`: counted in the data itself; `corpus:DATA`: counted in the texts
    of another data set; `none`: every word weighs 1; or the path of a table, see `Idf.read`.
    """
    if written is None:
        return Idf.bundled()
    if written == NONE:
        return Idf({}, "nothing")
    if written == OWN:
        return Idf.of(_texts(_only_texts(data)), "their frequency in the data")
    if written.startswith(CORPUS):
        corpus = _only_texts(written.removeprefix(CORPUS), on_error="skip")
        return Idf.of(_texts(corpus), f"their frequency in {corpus.name}")
    return Idf.read(written)


def _only_texts(data: Dataset | Data, **options: Any) -> Dataset:
    """A data set, opened unless it is open, of which the texts alone are looked at."""
    whole = opened(data, **options)
    if whole.choice.keep:  # rows are chosen by their labels
        return whole
    columns = replace(whole.columns, label=None, rationale=None, evidences=(), answers=None)
    return Dataset(whole.source, columns, name=whole.name, choice=whole.choice, on_error=whole.on_error)


def _texts(data: Dataset) -> Iterator[str]:
    return (example.text if isinstance(example.text, str) else " ".join(example.text) for example in data)


def _check(subject: Subject, rows_at_once: int | None) -> None:
    if subject.task != "classes":
        does = TASKS[subject.task].does
        raise BadInput(f"words are summed by predicted class, and this model {does}: a classifier is needed")
    if len(subject.labels) == 1:
        raise BadInput("words are summed by predicted class, and this model has one output: a classifier is needed")
    if rows_at_once is not None and rows_at_once < 1:
        raise BadOption(f"rows_at_once={rows_at_once}: at least 1 is needed")


class _Tally:
    """The sums of each method, as chunks come in, and what was left out."""

    def __init__(self) -> None:
        self.sums: defaultdict[str, WordSums] = defaultdict(WordSums)
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.skipped: dict[int, str] = {}
        self.rows = self.cut = 0
        self.interrupted = False

    def add(self, chunk: Chunk) -> None:
        for record in chunk.records:
            if record.refused is not None:
                self.refused[record.method][record.refused] += 1
            else:
                self.sums[record.method].add(record.detail)
        self.skipped |= chunk.skipped
        self.rows += len(chunk.examples)
        self.cut += sum(bool(example.get("dropped")) for example in chunk.examples)

    def tables(self, names: list[str], labels: tuple[str, ...], about: dict[str, Any]) -> dict[str, TokenTable]:
        if not self.sums:
            reasons = [f"{name}: {reason}" for name in names for reason in self.refused[name]]
            reasons += [f"row {row}: {reason}" for row, reason in sorted(self.skipped.items())]
            reason = reasons[0] if reasons else "it has no rows"
            raise BadInput(f"there is no text to sum up: {reason} (of {about['data']})")
        about |= {"rows": self.rows, "cut": self.cut, "skipped": len(self.skipped), "interrupted": self.interrupted}
        if self.skipped:
            row, reason = min(self.skipped.items())
            about["first_skipped"] = f"row {row}: {reason}"
        tables = {}
        for name in (name for name in names if name in self.sums):
            sums, provenance = self.sums[name], {**about, "refused": dict(self.refused[name])}
            tables[name] = TokenTable(sums.totals, labels, name, dict(sums.texts), provenance)
        return tables
