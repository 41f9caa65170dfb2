"""Shortcuts: the words that a model relies on over a data set, and what it says once they are deleted.

All methods share one forward pass of each batch.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

import whyformer.methods  # noqa: F401  (registers the methods)
from whyformer.datasets import Data, Dataset, label_index, opened
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.executors import engine_named
from whyformer.evaluation.plan import EvaluationPlan, EvaluationSettings, PendingChunk
from whyformer.inputs.batch import TextInput, encode
from whyformer.inputs.input import Fillers, TensorInput
from whyformer.methods.default import methods_for
from whyformer.models.load import Subject
from whyformer.perturb import Outcomes, hide_named
from whyformer.progress import listening, report
from whyformer.registry.options import validated
from whyformer.registry.specs import Written
from whyformer.results.evaluation import Chunk, Record
from whyformer.results.explanations import KEPT, KeptRow
from whyformer.results.shortcuts import (
    EXAMPLES,
    PARTS,
    REPORT,
    REPORTS,
    SCHEMA_OF_SEVERAL,
    SCHEMA_VERSION,
    ExplainedText,
    ShortcutCounter,
    ShortcutReportData,
    ShortcutWord,
    WordEffect,
)
from whyformer.show.render import Renderable, text_of
from whyformer.show.shortcuts import LINES
from whyformer.storage.files import read_json, write
from whyformer.tasks.task import TASKS

DELETE = hide_named("delete")
ReportOf = TypeVar("ReportOf", bound=ShortcutReportData)


class DeletionProbe(NamedTuple):
    """A text with and without a word, and the class that the model says of it."""

    word: ShortcutWord
    predicted: int
    whole: TensorInput
    without: TensorInput


class Change(NamedTuple):
    """What happened to the probability of the class, and how far its log-odds fell."""

    before: float
    after: float
    log_odds: float


def checked_words(subject: Subject, report: ReportOf, sides: Sequence[str], texts: int) -> ReportOf:
    """With the effect of deleting each word, wherever it stands on its side, from so many of the texts that hold it."""
    questions = list(_questions(subject, report, sides, texts))
    if not questions:
        return report
    engine = Outcomes(subject.model)
    asked = [one for question in questions for one in (question.whole, question.without)]
    with listening(None):  # whoever counts texts is not told of these
        logits = engine.logits(asked, len(subject.labels))
    shares = engine.task.probabilities(logits)
    assert shares is not None  # the engine refuses models without probabilities
    changes: defaultdict[tuple[str | None, str], list[Change]] = defaultdict(list)
    for place, (word, predicted, *_) in enumerate(questions):
        two = slice(2 * place, 2 * place + 2)
        before, after = shares[two, predicted].tolist()
        with_it, without = engine.task.log_odds(logits[two], torch.tensor(predicted)).tolist()
        changes[word.side, word.word].append(Change(before, after, with_it - without))
    return report.with_effects({key: _mean(measured) for key, measured in changes.items()})


def _questions(
    subject: Subject, report: ShortcutReportData, sides: Sequence[str], texts: int
) -> Iterator[DeletionProbe]:
    fillers = Fillers.of(subject.model, subject.tokenizer)
    inputs: dict[int, TextInput] = {}
    for word in report.words:
        for row in [row for row in word.rows if row in report.examples][:texts]:
            text = report.examples[row]
            if row not in inputs:
                inputs[row] = _input(subject, text, fillers)
            places = _places(inputs[row], word, sides)
            yield DeletionProbe(word, text.predicted, inputs[row], inputs[row].without(places, DELETE))


def _input(subject: Subject, text: ExplainedText, fillers: Fillers) -> TextInput:
    """The text as the model takes it, as those are written of which something is deleted."""
    whole = encode(subject, text.texts[0] if len(text.texts) == 1 else (text.texts[0], text.texts[1]))
    attended = {"attention_mask": np.ones(len(whole), dtype=np.int64)}
    return replace(whole, tensors={**whole.tensors, **attended}, fillers=fillers)


def _places(whole: TextInput, word: ShortcutWord, sides: Sequence[str]) -> list[int]:
    """Where the tokens of a word stand, on its side."""
    part = None if word.side is None else list(sides).index(word.side)
    same = (at for unit, at in whole.words if unit.text.lower() == word.word and part in (None, unit.part))
    return [place for places in same for place in places]


def _mean(changes: Sequence[Change]) -> WordEffect:
    before, after, odds = (math.fsum(column) / len(changes) for column in zip(*changes, strict=True))
    return WordEffect(len(changes), before, after, odds)


CHECK = 5  # texts, of those that hold a word, from which it is deleted
MOST_CHECKED = 100


@dataclass(frozen=True, kw_only=True)
class ShortcutReport(Renderable, ShortcutReportData):
    """The words that a model relies on over many texts, the ones that it relies on most first, by one method.

    A word is what `units.join_words` calls one, lower-cased: a run of letters and digits, or a punctuation mark or
    sign. Special tokens are no words. `texts` counts the texts of each predicted class, by its index in `labels`, and
    `golds` those of each gold label, where they are known. `examples` has texts that hold the words, by row. With
    `wrong`, the texts are those alone of which the model says another class than their label.
    """

    @classmethod
    @validated
    def load(cls, path: str | Path) -> "ShortcutReport":
        """Read what `save` wrote as JSON."""
        reports = load_reports(path)
        if len(reports) != 1:
            raise BadInput(
                f"{str(path)!r} holds {len(reports)} reports ({', '.join(reports)}): read it with load_reports"
            )
        return next(iter(reports.values()))

    @validated
    def to_markdown(self, lines: int = LINES) -> str:
        """The words as a table."""
        return text_of(self, "markdown", lines=lines)

    @validated
    def to_text(self, lines: int = LINES) -> str:
        """The same for a terminal."""
        return text_of(self, "text", lines=lines)


def save_reports(reports: Mapping[str, ShortcutReport], path: str | Path) -> Path:
    """Write the reports of several methods to one JSON file."""
    several = [one.to_dict() for one in reports.values()]
    data = {"schema": SCHEMA_OF_SEVERAL, "version": SCHEMA_VERSION, "reports": several}
    return write(path, json.dumps(data, ensure_ascii=False, indent=1))


def load_reports(path: str | Path) -> dict[str, ShortcutReport]:
    """Read what `save_reports` or `ShortcutReport.save` wrote, by method."""
    data = read_json(path, REPORT.kind)
    if isinstance(data, dict) and data.get("schema") == SCHEMA_OF_SEVERAL:
        several = REPORTS.checked(data, path)["reports"]
    else:
        several = [REPORT.checked(data, path)]
    return {one.method: one for one in map(ShortcutReport.of_checked, several)}


def shortcuts(
    subject: Subject,
    data: Dataset | Data,
    methods: Written = "auto",
    *,
    wrong: bool = False,
    check: int = CHECK,
    rows_at_once: int | None = None,
    engine: str = "local",
    workers: int | None = None,
    **options: Any,
) -> dict[str, ShortcutReport]:
    """The words that a model relies on, counted over a data set, by method.

    The methods share one forward pass of each batch. A few rows are held at a time, some as examples, and the counts.
    Labels are read where the data has them, and are those of the model; `wrong` counts the texts alone of which the
    model says another class. Each word is deleted from `check` texts that hold it, to see what the model says then; 0
    leaves that out. Options are those of `open_dataset`. What is done is reported after each few rows (see
    `whyformer.progress`). Ctrl-C ends it: the reports are of the rows that were done until then, and their provenance
    says `interrupted`. The report of a method that refuses texts is of the others, and its provenance says why.
    """
    check_model(subject, rows_at_once)
    if not 0 <= check <= MOST_CHECKED:
        raise BadOption(
            f"check={check}: a word is deleted from 0 (it is not checked) to {MOST_CHECKED} texts that hold it"
        )
    whole = opened(data, **options)
    texts, golds = only_texts(whole), _Golds(whole, subject.labels, wrong)
    plan = EvaluationPlan(subject, methods_for(subject, methods), (), EvaluationSettings.of(texts, keep_scores=True))
    ranges = list(texts.chunks(rows_at_once or plan.rows_at_once(texts, engine)))
    sides = texts.columns.text if len(texts.columns.text) == len(PARTS) else PARTS
    tally = _Tally(golds, sides, max(check, EXAMPLES), wrong)
    try:
        pending = golds.noted(plan.chunks(texts, ranges, labels=False))
        for done, chunk in enumerate(engine_named(engine)(plan, pending, workers), 1):
            tally.add(chunk)
            report(done, len(ranges))
    except KeyboardInterrupt:
        if not tally.counters:
            raise
        tally.interrupted = True
    about = {**subject.provenance, "fingerprint": subject.fingerprint, "data": texts.name, "digest": texts.digest}
    reports = tally.reports([spec.label for spec in plan.methods], subject.labels, {**about, **golds.provenance})
    return reports if not check or tally.interrupted else _checked(subject, reports, sides, check)


def _checked(
    subject: Subject, reports: dict[str, ShortcutReport], sides: Sequence[str], check: int
) -> dict[str, ShortcutReport]:
    """The reports with the effects of their words; Ctrl-C leaves out what is missing."""
    done = dict(reports)
    try:
        for method, one in reports.items():
            done[method] = checked_words(subject, one, sides, check)
    except KeyboardInterrupt:
        return {m: replace(one, provenance={**one.provenance, "interrupted": True}) for m, one in done.items()}
    return done


def only_texts(data: Dataset | Data, **options: Any) -> Dataset:
    """A data set, opened unless it is open, of which the texts alone are looked at."""
    whole = opened(data, **options)
    if whole.choice.keep:  # rows are chosen by their labels
        return whole
    columns = replace(whole.columns, label=None, rationale=None, evidences=(), answers=None)
    return Dataset(whole.source, columns, name=whole.name, choice=whole.choice, on_error=whole.on_error)


def check_model(subject: Subject, rows_at_once: int | None) -> None:
    """Raise if words cannot be counted by the class that a model predicts."""
    if subject.task != "classes":
        does = TASKS[subject.task].does
        raise BadInput(f"words are counted by predicted class, and this model {does}: a classifier is needed")
    if len(subject.labels) == 1:
        raise BadInput("words are counted by predicted class, and this model has one output: a classifier is needed")
    if rows_at_once is not None and rows_at_once < 1:
        raise BadOption(f"rows_at_once={rows_at_once}: at least 1 is needed")


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
        columns = replace(only_texts(data).columns, label=data.columns.label)
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
    """The counts of each method, as chunks come in, and what was left out."""

    def __init__(self, golds: _Golds, sides: Sequence[str], examples: int, wrong: bool) -> None:
        self.golds, self.wrong = golds, wrong
        self.counters = defaultdict[str, ShortcutCounter](
            lambda: ShortcutCounter(sides, wrong=wrong, examples=examples)
        )
        self.left_out = LeftOut()
        self.interrupted = False

    def add(self, chunk: Chunk) -> None:
        rows = {facts["row"]: {**facts, "gold": self.golds.of(facts["row"])} for facts in chunk.examples}
        for record in self.left_out.rest(chunk):
            self._count(record, rows[record.row])

    def _count(self, record: Record, facts: Mapping[str, Any]) -> None:
        assert record.metric == KEPT
        kept = KeptRow(facts, {}, "this run")
        words, signed = kept.words(record.method, record.detail), record.detail["signed"]
        texts, gold = tuple(facts["kept"]["texts"]), facts["gold"]
        explained = ExplainedText(
            kept.row, texts, words, facts["predicted"], facts["probability"], gold=gold, signed=signed
        )
        self.counters[record.method].add(explained)

    def reports(self, names: list[str], labels: tuple[str, ...], about: dict[str, Any]) -> dict[str, ShortcutReport]:
        counted = [name for name in names if name in self.counters and self.counters[name].texts]
        if not counted:
            raise BadInput(f"there is no text to count words in: {self._reason(names)} (of {about['data']})")
        about |= {**self.left_out.provenance, "interrupted": self.interrupted}
        return {
            name: self.counters[name].report(
                ShortcutReport, name, labels, {**about, "refused": dict(self.left_out.refused[name])}
            )
            for name in counted
        }

    def _reason(self, names: list[str]) -> str:
        """Why there is nothing to count."""
        if self.wrong and self.left_out.rows and self.counters:
            if self.golds.known:
                return f"the model is right on all {self.golds.known} texts that have a label"
            first = self.golds.provenance["first_unlabelled"]
            return f"none of the {self.left_out.rows} texts has a label of the model's ({first})"
        return self.left_out.reason(names)


class LeftOut:
    """Which rows were skipped, cut or refused, as chunks come in."""

    def __init__(self) -> None:
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.skipped: dict[int, str] = {}
        self.rows = self.cut = 0

    def rest(self, chunk: Chunk) -> Iterator[Record]:
        """The records that were not refused; the others are counted, once for a row and a method."""
        refused = set()
        for record in chunk.records:
            if record.refused is None:
                yield record
            elif (record.row, record.method) not in refused:
                refused.add((record.row, record.method))
                self.refused[record.method][record.refused] += 1
        self.skipped |= chunk.skipped
        self.rows += len(chunk.examples)
        self.cut += sum(bool(example.get("dropped")) for example in chunk.examples)

    @property
    def provenance(self) -> dict[str, Any]:
        """How many rows there were, were cut and were skipped."""
        about: dict[str, Any] = {"rows": self.rows, "cut": self.cut, "skipped": len(self.skipped)}
        if self.skipped:
            row, reason = min(self.skipped.items())
            about["first_skipped"] = f"row {row}: {reason}"
        return about

    def reason(self, names: list[str]) -> str:
        """Why nothing is left."""
        reasons = [f"{name}: {reason}" for name in names for reason in self.refused[name]]
        reasons += [f"row {row}: {reason}" for row, reason in sorted(self.skipped.items())]
        return reasons[0] if reasons else "it has no rows"
