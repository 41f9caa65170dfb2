"""Reproduced: our numbers beside the published ones, how far they agree, and how the run departs from the paper's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from whyformer.evaluation.evaluate import Table
from whyformer.explain.explanation import Comparison
from whyformer.methods.head_mask import HeadMask
from whyformer.methods.method import method_specs
from whyformer.metrics.metric import metric_specs
from whyformer.models.load import Subject
from whyformer.results.evaluation import TableCell
from whyformer_papers.reproduce.published import Number
from whyformer_papers.reproduce.recipe import RecipeColumn, RecipeMetric, RecipeRow, Reproduction
from whyformer_papers.reproduce.sources import Opened, ReproductionSettings


@dataclass(frozen=True)
class ReproducedNumber:
    """One number: a row of the paper's table by one reading of its method, in one column, by one measure.

    `main` marks the first reading of a row, by which the order of the rows is compared. A row that waits has no method.
    `spread` is over the runs of a row that has several.
    """

    column: str
    row: str
    method: str
    measure: str
    ours: TableCell | None
    published: Number | None
    main: bool = True
    spread: float | None = None

    @property
    def mean(self) -> float:
        """Our number; NaN if there is none."""
        return self.ours.mean if self.ours else math.nan

    @property
    def measured(self) -> bool:
        """Whether there is a number of ours."""
        return not math.isnan(self.mean)

    @property
    def difference(self) -> float | None:
        """Ours less the published number."""
        return self.mean - self.published.value if self.measured and self.published else None


@dataclass(frozen=True)
class RankAgreement:
    """How far the order of the methods agrees: Spearman's correlation, and the best rows, several where they are equal.

    Over the rows that have both numbers; no correlation of fewer than three, or of equal numbers.
    """

    column: str
    measure: str
    rows: int
    correlation: float | None
    our_best: tuple[str, ...]
    their_best: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """One column as it was run: the model that was used, the numbers, the examples of a figure, the departures.

    `tables` are by protocol, which most have none of. `rows` are those that were run, with what the column puts into
    them; `mask` is its head mask.
    """

    column: RecipeColumn
    model: str
    tables: Mapping[str | None, Table] = field(default_factory=dict)
    entries: tuple[ReproducedNumber, ...] = ()
    examples: tuple[Comparison, ...] = ()
    departures: tuple[str, ...] = ()
    rows: tuple[RecipeRow, ...] = ()
    mask: HeadMask | None = None

    @property
    def table(self) -> Table | None:
        """The first of the tables, if something was measured."""
        return next(iter(self.tables.values()), None)


@dataclass(frozen=True, eq=False)
class ReadyColumn:
    """A column that is ready to be run: its model is loaded, its data is open, and its head mask is known.

    `folder` is for its journal, `departures` are those known so far.
    """

    opened: Opened
    subject: Subject
    mask: HeadMask | None
    folder: Path | None
    departures: tuple[str, ...]
    settings: ReproductionSettings

    @property
    def column(self) -> RecipeColumn:
        """The column of the recipe."""
        return self.opened.column

    def part(self, recipe: Reproduction, departures: Sequence[str] = (), **shown: Any) -> Part:
        """What was run of the column; `shown` are the fields of `Part` that this kind of recipe fills."""
        every = (*self.departures, *departures)
        rows = recipe.rows_of(self.column)
        return Part(self.column, self.subject.name, departures=every, rows=rows, mask=self.mask, **shown)


@dataclass(frozen=True, eq=False)
class Reproduced:
    """A table or figure of a paper, done again.

    `left_out` says of columns, and `waiting` of rows and measures, why they are not there.
    """

    recipe: Reproduction
    parts: tuple[Part, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> tuple[ReproducedNumber, ...]:
        """The numbers of all columns."""
        return tuple(entry for part in self.parts for entry in part.entries)

    @property
    def agreements(self) -> tuple[RankAgreement, ...]:
        """How far our order of the methods is the published one, for each column and measure with published numbers."""
        every = [_agreement(p.column, m, p.entries) for p in self.parts for m in self.recipe.measures_of(p.column)]
        return tuple(agreement for agreement in every if agreement.rows)

    @property
    def footer(self) -> list[str]:
        """What was left out, what waits, how the run departs from the paper, and the recipe's own notes."""
        left_out = [f"{label} is left out: {reason}" for label, reason in self.left_out.items()]
        waiting = [f"{label} waits for {sentence}" for label, sentence in self.waiting.items()]
        by_line: dict[str, list[str]] = {}
        for part in self.parts:
            below = [line for table in part.tables.values() for line in table.footer]
            own_lines = [line for line in below if not line.startswith(("model: ", "data: "))]  # departures have those
            for line in (*part.departures, *own_lines):
                by_line.setdefault(line, []).append(part.column.label)
        of_columns = [f"{', '.join(dict.fromkeys(labels))}: {line}" for line, labels in by_line.items()]
        return [*left_out, *waiting, *of_columns, *self.recipe.notes]

    def __str__(self) -> str:
        from whyformer_papers.reproduce.output import text

        return text(self)


def method_label(written: str) -> str:
    """A method as a table has it."""
    return method_specs([written])[0].label


def _shown(written: str) -> str:
    """A method as it is shown: head masks and LM heads by the names of their files or folders alone."""
    (spec,) = method_specs([written])
    named = {name: Path(value) for name, value in spec.options.items() if name in ("head_mask", "lm_head") and value}
    files = {name: path.name for name, path in named.items() if path.exists()}
    return replace(spec, options={**spec.options, **files}).label


def metric_label(written: str) -> str:
    """A metric as a table has it."""
    return metric_specs([written])[0].label


def entries_of(
    recipe: Reproduction, column: RecipeColumn, tables: Mapping[str | None, Table], seeds: int | None = None
) -> tuple[ReproducedNumber, ...]:
    """The numbers of one column, beside the published ones; rows that wait have the published ones alone."""
    waiting, entries = recipe.waiting, []
    for row in recipe.rows_in(column):
        for measure in recipe.measures_of(column):
            published = recipe.published.get((row.label, column.label, measure.beside or measure.label))
            if row.label in waiting:
                entries.append(ReproducedNumber(column.label, row.label, "", measure.label, None, published))
            else:
                entries += _entries(column, row, measure, tables[measure.protocol], seeds, published)
    return tuple(entries)


def _entries(
    column: RecipeColumn,
    row: RecipeRow,
    measure: RecipeMetric,
    table: Table,
    seeds: int | None,
    published: Number | None,
) -> list[ReproducedNumber]:
    metric, entries = row.metric or measure.metric, []
    for number, methods in enumerate(row.seeded(seeds)):
        main = number == 0 and not row.metric
        cells = [_cell(table, method, metric, measure.scale) for method in methods]
        averaged = row.runs > 1 and "{seed}" in (row.method, *row.also)[number]
        ours, spread = _mean(cells) if averaged else (cells[0], None)
        name = f"{_shown(methods[0])}, mean of {len(cells)}" if averaged else _shown(methods[0])
        name = name if number else row.metric or name
        entries.append(ReproducedNumber(column.label, row.label, name, measure.label, ours, published, main, spread))
    return entries


def _cell(table: Table, method: str, metric: str, scale: float) -> TableCell | None:
    labels = method_label(method), metric_label(metric)
    if labels[0] not in table.methods or labels[1] not in table.metrics:
        return None  # every text was left out
    cell = table[labels]
    return cell and replace(cell, mean=scale * cell.mean, low=scale * cell.low, high=scale * cell.high)


def _mean(cells: list[TableCell | None]) -> tuple[TableCell | None, float | None]:
    """The mean over runs, with their standard deviation in place of an interval."""
    measured = [cell for cell in cells if cell is not None and not math.isnan(cell.mean)]
    if not measured:
        return None, None
    means = [cell.mean for cell in measured]
    spread = stdev(means) if len(means) > 1 else None
    return replace(measured[0], mean=fmean(means), low=math.nan, high=math.nan), spread


def _agreement(column: RecipeColumn, measure: RecipeMetric, entries: tuple[ReproducedNumber, ...]) -> RankAgreement:
    pairs = {
        entry.row: (settled(entry.mean), entry.published.value)
        for entry in entries
        if entry.main and entry.measure == measure.label and entry.measured and entry.published
    }
    pick = max if measure.higher_is_better else min
    ours, theirs = ({row: numbers[which] for row, numbers in pairs.items()} for which in (0, 1))
    best = [tuple(row for row in by_row if by_row[row] == pick(by_row.values())) for by_row in (ours, theirs)]
    return RankAgreement(column.label, measure.label, len(pairs), _spearman(list(pairs.values())), *best)


def settled(mean: float) -> float:
    """A mean with the digits that do not depend on rounding: equal ones are equal in every run."""
    return float(f"{mean:.5g}")


def _spearman(pairs: list[tuple[float, float]]) -> float | None:
    from scipy.stats import spearmanr

    ours, theirs = [mean for mean, _ in pairs], [number for _, number in pairs]
    if len(pairs) < 3 or len(set(ours)) == 1 or len(set(theirs)) == 1:
        return None
    return float(spearmanr(ours, theirs).statistic)
