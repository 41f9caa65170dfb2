"""Explanations of a data set, in a folder that can be resumed.

A journal keeps each explanation once its batch is done. The page and the table are made from it at the end.
`kept_examples` reads the explained texts of an evaluation that kept its scores.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from whyformer.datasets import Dataset, Example
from whyformer.errors import BadInput, BadOption, TruncationWarning, shown
from whyformer.evaluation.journal import Journal
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.explain.inputs import gold_name, without_bad
from whyformer.inputs.batch import DROPPED, warn_of_truncated
from whyformer.methods.method import MethodSpec
from whyformer.models.load import Subject
from whyformer.progress import counting, report
from whyformer.results.evaluation import Chunk, Record
from whyformer.results.explanations import KEPT, KeptExample, KeptRow, TableRow, saved_line, table_rows, verdict
from whyformer.results.saved import EXPLANATION
from whyformer.show.lists import Index, rows_csv
from whyformer.storage.files import write

KIND = "explanations"  # what the facts of the journal say that it holds
EXPLAINED = "(explanation)"  # stands where a record has the label of a metric, and is the name of none
PAGE, TABLE = "index.html", "table.csv"

ExplainedRows = list[
    Comparison
]  # of one text: one for each output that is explained, with an explanation by each method
ExplainRows = Callable[[Sequence[Example]], list[ExplainedRows]]


@dataclass(frozen=True)
class FolderOfExplanations:
    """What is to be explained in a folder: `explain` does it, and `asked` is what else determines its results."""

    subject: Subject
    data: Dataset
    methods: tuple[MethodSpec, ...]
    explain: ExplainRows
    asked: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 16

    @property
    def run(self) -> dict[str, Any]:
        """What determines all that the journal holds, and `about`: what people call it."""
        subject = self.subject
        about: dict[str, Any] = {"model": subject.name, "revision": subject.revision, "data": self.data.name}
        about |= {"labels": list(subject.labels)}
        facts: dict[str, Any] = {"kind": KIND, "model": subject.fingerprint, "device": subject.device.type}
        facts |= {**subject.provenance["packages"], "data": self.data.digest}
        asked = {name: value if value is None else str(value) for name, value in self.asked.items()}
        return {**facts, "methods": [method.facts for method in self.methods], "asked": asked, "about": about}

    def fill(self, folder: str | Path) -> None:
        """Explain the rows that the folder does not hold yet."""
        with Journal.open(folder, self.run) as journal:
            done = {row for chunk in journal.chunks() for row in _rows(chunk)}
            ranges = list(self.data.chunks(self.batch_size))
            explained: set[int] = set()
            dropped: dict[int, int] = {}
            with counting(self.data.name, ranges[-1][1] - ranges[0][0] if ranges else 0):
                for number, (start, stop) in enumerate(ranges):
                    examples = [one for one in self.data.rows(start, stop) if one.row not in done]
                    bad = {b.row: b.reason for b in self.data.skipped if start <= b.row < stop and b.row not in done}
                    if examples or bad:
                        report(number, len(ranges))  # what was done before tells nothing about how fast it is
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore", TruncationWarning)  # there is one warning, at the end
                            chunk = self._chunk(start, stop, examples, bad)
                        journal.append(chunk)
                        explained.update(one.row for one in examples)
                        dropped |= _dropped(chunk)
            self.data.warn_of_labels()
            warn_of_truncated(dropped, len(explained))

    def _chunk(self, start: int, stop: int, examples: Sequence[Example], skipped: dict[int, str]) -> Chunk:
        bad: dict[int, str] | None = {} if self.data.on_error == "skip" else None
        try:
            explained = without_bad(self._numbered, examples, 0, bad)
        except BadInput as error:
            advice = "--on-error skip leaves such rows out"
            raise BadInput(f"{self.data.name}, rows from {start} on: {error}; {advice}") from error
        skipped |= {examples[place].row: reason for place, reason in (bad or {}).items()}
        labels = self.subject.labels
        read = [e for e in examples if e.row not in skipped]
        told = [{"row": e.row, "label": gold_name(e, labels), "columns": dict(e.meta)} for e in read]
        records = [record for row, outputs in explained for record in _records(row, outputs)]
        return Chunk(start, stop, tuple(records), examples=tuple(told), skipped=skipped)

    def _numbered(self, examples: Sequence[Example], first: int) -> list[tuple[int, ExplainedRows]]:
        rows = [example.row for example in examples]
        return list(zip(rows, self.explain(examples), strict=True)) if rows else []


def _dropped(chunk: Chunk) -> dict[int, int]:
    """How many tokens of each text did not fit, by row."""
    details = [(record.row, record.detail["diagnostics"]) for record in chunk.records if record.detail]
    return {row: diagnostics[DROPPED] for row, diagnostics in details if DROPPED in diagnostics}


def _rows(chunk: Chunk) -> Iterator[int]:
    yield from (facts["row"] for facts in chunk.examples)
    yield from chunk.skipped


def _records(row: int, outputs: ExplainedRows) -> Iterator[Record]:
    for number, comparison in enumerate(outputs):
        for place, e in enumerate(comparison):
            yield Record(f"{row}/{number}/{place}", row, e.method, EXPLAINED, None, detail=saved_line(e, row, None))
        for name, reason in comparison.refused:
            yield Record(f"{row}/{number}/{name}", row, name, EXPLAINED, None, refused=reason)


def explained_examples(folder: str | Path) -> Iterator[KeptExample[Comparison]]:
    """What a folder holds, as it was explained, one after the other; few are in memory at a time."""
    journal = Journal.read(folder)
    if journal.run.get("kind") != KIND:
        raise BadInput(f"{folder} holds no explanations, but an evaluation: `whyformer report` shows it")
    for chunk in journal.chunks():
        of_row = {facts["row"]: facts for facts in chunk.examples}
        for (row, _), records in groupby(chunk.records, key=lambda record: record.key.split("/")[:2]):
            several = list(records)
            made = [_explanation(r, f"{journal.path}, row {row}") for r in several if r.refused is None]
            refused = tuple((r.method, r.refused) for r in several if r.refused is not None)
            facts = of_row.get(int(row), {})
            label = facts.get("label")
            right = verdict(label, made[0].prediction) if made else None
            yield KeptExample(int(row), label, right, Comparison(tuple(made), refused), facts.get("columns", {}))


def _explanation(record: Record, source: str) -> Explanation:
    return Explanation._of(EXPLANATION.checked(record.detail, source))


def folder_lines(folder: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The explanations of a folder as saved lines, then the rows that were left out."""
    for example in explained_examples(folder):
        for e in example.explanations:
            yield str(folder), saved_line(e, example.row, example.gold, example.columns)
    for row, reason in left_out(folder).items():
        yield str(folder), {"row": row, "skipped": reason}


def left_out(folder: str | Path) -> dict[int, str]:
    """The rows of a folder that were left out, and why."""
    return {row: reason for chunk in Journal.read(folder).chunks() for row, reason in chunk.skipped.items()}


def write_index(folder: str | Path) -> list[TableRow]:
    """Write the page and the table of what a folder holds; the rows of the table."""
    index = Index()
    rows: list[TableRow] = []
    journal = Journal.read(folder)
    with counting(PAGE, len(journal)):
        for number, example in enumerate(explained_examples(folder)):
            report(number, len(journal))
            words = tuple(e.for_people() for e in example.explanations)
            example = replace(example, explanations=Comparison(words, example.explanations.refused))
            index.add(example)
            rows += table_rows([example])
    rows.sort(key=lambda row: row.row)
    write(Path(folder) / PAGE, index.page(journal.run["about"]))
    write(Path(folder) / TABLE, rows_csv(rows))
    return rows


Which = int | Literal["all", "wrong"]
AGAIN = "run `whyformer evaluate … --keep-scores --out FOLDER` (evaluate(…, keep_scores=True, out=FOLDER))"


def kept_examples(folder: str | Path, which: Which = "all") -> Iterator[KeptExample[Comparison]]:
    """The explained texts in the folder of an evaluation with `keep_scores=True`, in order of their rows.

    `which`: all of them, the first so many, or those where the model is wrong. The model is not needed.
    """
    check_which(which)
    journal = Journal.read(folder)
    rows, methods = _collected(journal, _chosen_rows(journal, which))
    for row in sorted(rows):
        yield rows[row].example(methods)


def check_which(which: Any) -> None:
    """Raise if this says nothing about which texts are meant."""
    number = isinstance(which, int) and not isinstance(which, bool)
    if which not in ("all", "wrong") and not (number and which >= 1):
        raise BadOption(f"examples are 'all', 'wrong', or a number of at least 1; found {shown(which)}")


def _chosen_rows(journal: Journal, which: Which) -> set[int]:
    """The numbers of the rows that are meant: few enough to be held, however long the texts are."""
    verdicts: dict[int, bool | None] = {}
    for chunk in journal.chunks():
        kept = {record.row for record in chunk.records if record.metric == KEPT}
        for facts in chunk.examples:
            if facts["row"] in kept and "kept" in facts:
                verdicts[facts["row"]] = KeptRow(facts, journal.run, str(journal.path)).right
    if not verdicts:
        raise BadInput(f"there are no scores in {journal.path.parent}: {AGAIN}, and what is missing is computed")
    if isinstance(which, int):
        return set(sorted(verdicts)[:which])
    if which == "all":
        return set(verdicts)
    if all(right is None for right in verdicts.values()):
        raise BadInput(f"no text in {journal.path.parent} has a gold label: ask for 'all', or for a number of them")
    wrong = {row for row, right in verdicts.items() if right is False}
    if not wrong:
        raise BadInput(f"the model is wrong on none of the {len(verdicts)} texts in {journal.path.parent}")
    return wrong


@dataclass
class _Row:
    """A row as its records come in."""

    kept: KeptRow
    records: dict[str, Record]

    def example(self, methods: list[str]) -> KeptExample[Comparison]:
        there = [self.records[method] for method in methods if method in self.records]
        explained = tuple(self._explanation(record) for record in there if record.refused is None)
        refused = tuple((record.method, record.refused) for record in there if record.refused is not None)
        return KeptExample(self.kept.row, self.kept.gold, self.kept.right, Comparison(explained, refused))

    def _explanation(self, record: Record) -> Explanation:
        data = self.kept.explanation(record.method, record.detail)
        source = f"{self.kept.source}, row {record.row}"
        return Explanation._of(EXPLANATION.checked(data, source))


def _collected(journal: Journal, chosen: set[int]) -> tuple[dict[int, _Row], list[str]]:
    """The rows with what was kept of them, and the methods in the order in which they were asked for."""
    rows: dict[int, _Row] = {}
    methods: dict[str, None] = {}
    for chunk in journal.chunks():
        for facts in chunk.examples:
            if facts["row"] in chosen and "kept" in facts:
                rows.setdefault(facts["row"], _Row(KeptRow(facts, journal.run, str(journal.path)), {}))
        for record in chunk.records:
            if record.metric == KEPT and record.row in chosen:
                methods.setdefault(record.method)
                rows[record.row].records[record.method] = record
    return rows, list(methods)
