"""Tallying: a model's words by predicted class, over a data set, for several methods from one forward pass each."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import whyformer.methods  # noqa: F401  (registers the methods)
from whyformer.datasets import Data, Dataset, label_index, opened
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.engines import engine_named
from whyformer.evaluation.plan import PendingChunk, Plan, Settings
from whyformer.evaluation.word_effects import checked_words
from whyformer.evaluation.word_table import TokenTable
from whyformer.methods.default import methods_for
from whyformer.metrics.idf import Idf
from whyformer.metrics.overlap import Counting, WordSums
from whyformer.metrics.registry import metric_named
from whyformer.metrics.specs import MetricSpec
from whyformer.models.loading import Subject
from whyformer.progress import report
from whyformer.registry.specs import Written
from whyformer.results.kept import KEPT, KeptRow
from whyformer.results.records import Chunk, Record
from whyformer.results.shortcuts import EXAMPLES, PARTS, ExplainedText, LeaningSums
from whyformer.results.word_table import METRIC, WORDS_EACH
from whyformer.tasks.task import TASKS

CHECK = 5  # texts, of those that hold a word, from which it is deleted
MOST_CHECKED = 100
OWN, NONE, CORPUS = "data", "none", "corpus:"  # what an idf may be called, beside the path of a file


def token_tables(
    subject: Subject,
    data: Dataset | Data,
    methods: Written = "auto",
    *,
    idf: Idf | None = None,
    counting: Counting = WORDS_EACH,
    wrong: bool = False,
    check: int = CHECK,
    rows_at_once: int | None = None,
    engine: str = "local",
    workers: int | None = None,
    **options: Any,
) -> dict[str, TokenTable]:
    """The words of each predicted class with their scores, summed over a data set, by method.

    The methods share one forward pass of each batch. A few rows are held at a time, some as examples, and the sums. In
    the sums words are weighted by the bundled table by default, or by an `idf`. With another `counting`, tokens are
    summed, or each distinct word of a text once. Labels are read where the data has them, and are those of the model;
    `wrong` counts the texts alone of which the model says another class. `leaning` has the words that the model leans
    on: each is deleted from `check` texts that hold it, to see what the model says then; 0 leaves that out. Options
    are those of `open_dataset`. What is done is reported after each few rows (see `whyformer.progress`). Ctrl-C ends
    it: the tables are of the rows that were done until then, and their provenance says `interrupted`. The table of a
    method that refuses texts is of the others, and its provenance says why.
    """
    _check(subject, rows_at_once, check)
    whole = opened(data, **options)
    texts, golds = _only_texts(whole), _Golds(whole, subject.labels, wrong)
    weights = Idf.bundled() if idf is None else idf
    metric = MetricSpec(metric_named(METRIC), counting._asdict())
    specs = methods_for(subject, methods)
    plan = Plan(subject, specs, (metric,), Settings.of(texts, keep_scores=True), weights)
    ranges = list(texts.chunks(rows_at_once or plan.rows_at_once(texts, engine)))
    sides = texts.columns.text if len(texts.columns.text) == len(PARTS) else PARTS
    tally = _Tally(golds, sides, max(check, EXAMPLES), wrong)
    try:
        pending = golds.noted(plan.chunks(texts, ranges, labels=False))
        for done, chunk in enumerate(engine_named(engine)(plan, pending, workers), 1):
            tally.add(chunk)
            report(done, len(ranges))
    except KeyboardInterrupt:
        if not tally.sums:
            raise
        tally.interrupted = True
    about = {**subject.provenance, "fingerprint": subject.fingerprint, "data": texts.name, "digest": texts.digest}
    about |= {"idf": weights.source, **counting.provenance, **golds.provenance}
    tables = tally.tables([spec.label for spec in plan.methods], subject.labels, about)
    return tables if not check or tally.interrupted else _checked(subject, tables, sides, check)


def _checked(
    subject: Subject, tables: dict[str, TokenTable], sides: Sequence[str], check: int
) -> dict[str, TokenTable]:
    """The tables with the effects of their words; Ctrl-C leaves out what is missing."""
    done = dict(tables)
    try:
        for method, table in tables.items():
            assert table.leaning is not None
            done[method] = replace(table, leaning=checked_words(subject, table.leaning, sides, check))
    except KeyboardInterrupt:
        return {m: replace(table, provenance={**table.provenance, "interrupted": True}) for m, table in done.items()}
    return done


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


def _check(subject: Subject, rows_at_once: int | None, check: int) -> None:
    if subject.task != "classes":
        does = TASKS[subject.task].does
        raise BadInput(f"words are summed by predicted class, and this model {does}: a classifier is needed")
    if len(subject.labels) == 1:
        raise BadInput("words are summed by predicted class, and this model has one output: a classifier is needed")
    if rows_at_once is not None and rows_at_once < 1:
        raise BadOption(f"rows_at_once={rows_at_once}: at least 1 is needed")
    if not 0 <= check <= MOST_CHECKED:
        raise BadOption(
            f"check={check}: a word is deleted from 0 (it is not checked) to {MOST_CHECKED} texts that hold it"
        )


class _Golds:
    """The gold label of each row as an index of the model's, where there is one; read beside the texts.

    A label that is missing, or none of the model's, does not matter to the words; it is counted.
    """

    def __init__(self, data: Dataset, labels: tuple[str, ...], wrong: bool) -> None:
        if wrong and data.columns.label is None:
            raise BadInput(
                f"wrong predictions are those that are not the gold label, and {data.name} has no column of labels "
                "that is known by its name: name it, with columns={'label': …} (--label)"
            )
        self.labels, self.by_row = labels, dict[int, int]()
        self.known = self.unknown = 0
        self.first: str | None = None  # of the rows without a label, and why
        columns = replace(_only_texts(data).columns, label=data.columns.label)
        self.data = Dataset(data.source, columns, name=data.name, choice=data.choice, on_error="skip")

    def noted(self, pending: Iterable[PendingChunk]) -> Iterator[PendingChunk]:
        """The chunks as they come; the labels of their rows are there from then on."""
        for chunk in pending:
            if self.data.columns.label is not None:
                self._read(chunk)
            yield chunk

    def _read(self, chunk: PendingChunk) -> None:
        labels = {example.row: example.label for example in self.data.rows(chunk.start, chunk.stop)}
        for row in (item.row for item in chunk.items):
            try:
                label = labels.get(row)
                if label is None:
                    raise BadInput(self._missing(row))
                self.by_row[row] = label_index(label, self.labels)
            except BadInput as error:
                self.first = self.first or f"row {row}: {error}"

    def _missing(self, row: int) -> str:
        if self.first is not None:
            return ""  # nobody asks why
        return next((bad.reason for bad in self.data.skipped if bad.row == row), "it has no label")

    def of(self, row: int) -> int | None:
        """The label of a row, which is asked for once."""
        label = self.by_row.pop(row, None)
        self.known += label is not None
        self.unknown += label is None
        return label

    @property
    def provenance(self) -> dict[str, Any]:
        """How many texts have a label, and why others have none."""
        if self.data.columns.label is None:
            return {}
        first = {"first_unlabelled": self.first} if self.unknown else {}
        return {"labelled": self.known, "unlabelled": self.unknown, **first}


class _Tally:
    """The sums of each method, as chunks come in, and what was left out."""

    def __init__(self, golds: _Golds, sides: Sequence[str], examples: int, wrong: bool) -> None:
        self.golds, self.wrong = golds, wrong
        self.sums: defaultdict[str, WordSums] = defaultdict(WordSums)
        self.leaning = defaultdict[str, LeaningSums](lambda: LeaningSums(sides, wrong=wrong, examples=examples))
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.skipped: dict[int, str] = {}
        self.rows = self.cut = 0
        self.interrupted = False

    def add(self, chunk: Chunk) -> None:
        rows = {facts["row"]: {**facts, "gold": self.golds.of(facts["row"])} for facts in chunk.examples}
        refused = set()
        for record in chunk.records:
            if record.refused is None:
                self._count(record, rows[record.row])
            elif (record.row, record.method) not in refused:  # its sums, or its scores, or both
                refused.add((record.row, record.method))
                self.refused[record.method][record.refused] += 1
        self.skipped |= chunk.skipped
        self.rows += len(chunk.examples)
        self.cut += sum(bool(example.get("dropped")) for example in chunk.examples)

    def _count(self, record: Record, facts: Mapping[str, Any]) -> None:
        if record.metric == KEPT:
            kept = KeptRow(facts, {}, "this run")
            words, signed = kept.words(record.method, record.detail), record.detail["signed"]
            texts, gold = tuple(facts["kept"]["texts"]), facts["gold"]
            explained = ExplainedText(
                kept.row, texts, words, facts["predicted"], facts["probability"], gold=gold, signed=signed
            )
            self.leaning[record.method].add(explained)
        elif not self.wrong or facts["gold"] not in (None, facts["predicted"]):
            self.sums[record.method].add(record.detail)

    def tables(self, names: list[str], labels: tuple[str, ...], about: dict[str, Any]) -> dict[str, TokenTable]:
        if not self.sums:
            raise BadInput(f"there is no text to sum up: {self._reason(names)} (of {about['data']})")
        about |= {"rows": self.rows, "cut": self.cut, "skipped": len(self.skipped), "interrupted": self.interrupted}
        if self.skipped:
            row, reason = min(self.skipped.items())
            about["first_skipped"] = f"row {row}: {reason}"
        tables = {}
        for name in (name for name in names if name in self.sums):
            sums, provenance = self.sums[name], {**about, "refused": dict(self.refused[name])}
            leaning = self.leaning[name].leaning()
            tables[name] = TokenTable(sums.totals, labels, name, dict(sums.texts), provenance, leaning)
        return tables

    def _reason(self, names: list[str]) -> str:
        """Why there is nothing to sum up."""
        reasons = [f"{name}: {reason}" for name in names for reason in self.refused[name]]
        reasons += [f"row {row}: {reason}" for row, reason in sorted(self.skipped.items())]
        if self.wrong and self.rows and not reasons:
            if self.golds.known:
                return f"the model is right on all {self.golds.known} texts that have a label"
            first = self.golds.provenance["first_unlabelled"]
            return f"none of the {self.rows} texts has a label of the model's ({first})"
        return reasons[0] if reasons else "it has no rows"
