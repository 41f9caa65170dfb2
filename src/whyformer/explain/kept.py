"""The explained texts of an evaluation that kept its scores, as they are given to people."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from whyformer.errors import BadInput, BadOption, shown
from whyformer.evaluation.journal import Journal
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.results.kept import KEPT, KeptExample, KeptRow
from whyformer.results.records import Record
from whyformer.results.saved import EXPLANATION

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
