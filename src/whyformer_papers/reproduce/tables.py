"""Tables of numbers, and curves and bars of them: methods that are measured on data, beside what was published."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyformer.datasets import Dataset
from whyformer.errors import BadInput, WhyformerError
from whyformer.evaluation.evaluate import Results, Table, evaluate
from whyformer.evaluation.journal import Journal
from whyformer.show.grid import NONE, Grid, Words, plain_grid
from whyformer_papers.reproduce.plots import Point, curve_points, draw_bars, draw_curves, draw_over_rows
from whyformer_papers.reproduce.recipe import LeftOutRow, RecipeMetric, RecipeRow, Reproduction
from whyformer_papers.reproduce.result import Part, ReadyColumn, Reproduced, ReproducedNumber, entries_of, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIELDS = (
    *("name", "column", "row", "method", "measure", "ours", "low", "high", "spread", "n", "left_out", "refused"),
    *("published", "published_spread", "difference"),
)
MOST_POINTS = 11  # of a curve that are printed
FEW = 4  # measures: where there are more, intervals are in the CSV only


@dataclass(frozen=True, kw_only=True)
class TableRecipe(Reproduction):
    """A table of numbers: rows of methods, measured on the data of each column."""

    def _can_show(self, waiting: Mapping[str, str]) -> bool:
        return super()._can_show(waiting) and any(measure.label not in waiting for measure in self.measures)

    def run_column(self, column: ReadyColumn) -> Part:
        """Evaluate the rows on the column's data."""
        rows, settings = self.rows_of(column.column), column.settings
        methods = [method for row in rows for reading in row.seeded(settings.seeds) for method in reading]
        tables: dict[str | None, Table] = {}
        measures = self.measures_of(column.column)
        for protocol in dict.fromkeys(measure.protocol for measure in measures):
            metrics = [measure.metric for measure in measures if measure.protocol == protocol]
            metrics += [row.metric for row in rows if row.metric]
            tables[protocol] = _measured(column, methods, metrics, protocol)
        entries = entries_of(self, column.column, tables, settings.seeds)
        departures = [_counted(column, entries), *_fewer_runs(rows, settings.seeds)]
        departures += [_machine(next(iter(tables.values())))] if settings.measured else []
        return column.part(self, departures, tables=tables, entries=entries)

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """Our numbers beside the published ones."""
        if not part.entries:
            return []
        measures = [m for m in self.ready_measures if any(e.measure == m.label for e in part.entries)]
        published = {entry.measure for entry in part.entries if entry.published}
        titles = ["row", "here"]
        for m in measures:
            titles.append(f"{m.label} {'↑' if m.higher_is_better else '↓'}")
            titles += ["published", "difference"] if m.label in published else []
        return [Grid(tuple(titles), list(_rows(part, measures, published, reproduced.waiting)))]

    def csv_lines(self, reproduced: Reproduced) -> Iterator[Sequence[object]]:
        """One line for each number."""
        yield FIELDS
        for entry in reproduced.entries:
            yield self.name, entry.column, entry.row, entry.method, entry.measure, *_numbers(entry)


@dataclass(frozen=True, kw_only=True)
class CurveFigure(TableRecipe):
    """Curves: those of a metric, or through the numbers of several rows; `over` is what changes along these."""

    over: str = ""

    def points(self, part: Part, measure: RecipeMetric) -> dict[str, list[Point]]:
        """The points of the curve of each row; none where the rows are the points."""
        return {} if self.over else curve_points(part, measure)

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """The numbers, then some points of the curves."""
        curves = [(measure, self.points(part, measure)) for measure in self.ready_measures]
        return [*super().grids(reproduced, part), *(_point_grid(m, by_row) for m, by_row in curves if by_row)]

    def csv_lines(self, reproduced: Reproduced) -> Iterator[Sequence[object]]:
        """The numbers, then the points of the curves."""
        yield from super().csv_lines(reproduced)
        for part in reproduced.parts:
            for measure in self.ready_measures:
                methods = {e.row: e.method for e in reversed(part.entries) if e.measure == measure.label}
                for row, points in self.points(part, measure).items():
                    for point in points:
                        name = f"{measure.label} at {point.at:.4g}"
                        entry = ReproducedNumber(
                            part.column.label, row, methods[row], name, point.cell, None, spread=point.spread
                        )
                        yield self.name, entry.column, entry.row, entry.method, entry.measure, *_numbers(entry)

    def drawing(self, reproduced: Reproduced) -> "Figure | None":
        """A row of pictures for each column, a picture for each measure."""
        from whyformer.show.figures import NotebookFigure

        measures = self.ready_measures
        wide, high = len(measures), len(reproduced.parts)
        figure = NotebookFigure(figsize=(6.4 * wide, 4.2 * high), layout="constrained")
        for axes, part in zip(figure.subplots(high, wide, squeeze=False), reproduced.parts, strict=True):
            for place, measure in zip(axes, measures, strict=True):
                self._draw(place, part, measure)
        return figure

    def _draw(self, axes: "Axes", part: Part, measure: RecipeMetric) -> None:
        if self.over:
            draw_over_rows(axes, part, measure, self.over)
        else:
            draw_curves(axes, part, measure)


@dataclass(frozen=True, kw_only=True)
class BarFigure(CurveFigure):
    """A bar for each row."""

    def points(self, part: Part, measure: RecipeMetric) -> dict[str, list[Point]]:
        """None: bars are no curves."""
        return {}

    def _draw(self, axes: "Axes", part: Part, measure: RecipeMetric) -> None:
        draw_bars(axes, part, measure)


def _measured(column: ReadyColumn, methods: list[str], metrics: list[str], protocol: str | None) -> Table:
    """What `evaluate` gives; a protocol has a journal of its own, below that of the column."""
    settings, folder = column.settings, column.folder
    how: dict[str, Any] = {"out": folder, "engine": settings.engine, "workers": settings.workers}
    if protocol is not None:
        how |= {"protocol": protocol, "out": None if folder is None else folder / f"protocol-{protocol}"}
    if column.subject.task == "answer":
        how |= {"window_size": settings.window_size, "overlap": settings.overlap}
    assert column.opened.data is not None
    if settings.measured:
        return _as_measured(column, column.opened.data, how["out"])
    try:
        return evaluate(column.subject, column.opened.data, methods=methods, metrics=metrics, **how)
    except WhyformerError as error:
        raise type(error)(f"{column.column.label}: {error}") from error


def _as_measured(column: ReadyColumn, data: Dataset, folder: Path) -> Table:
    """What the journal of a column holds, if it is of the same model and data; the machine may be another."""
    try:
        journal = Journal.read(folder)
    except BadInput as error:
        raise LeftOutRow(f"it was not measured ({error})") from error
    for name, asked in (("model", column.subject.fingerprint), ("data", data.digest)):
        if journal.run.get(name) != asked:
            raise LeftOutRow(f"{folder} was measured with another {name} than {column.opened.model} on {data.name}")
    return Results.of(journal.chunks(), journal.run).table()


def _machine(table: Table) -> str:
    """On what a table was measured."""
    packages = ", ".join(f"{name} {table.run[name]}" for name in ("torch", "transformers") if name in table.run)
    return f"measured before, on {table.run.get('device', 'a device that is not known')} with {packages}"


def _point_grid(measure: RecipeMetric, curves: Mapping[str, list[Point]]) -> Grid:
    """The curves of one measure, at no more points than a line has room for."""
    digits, lines = 2 if measure.scale != 1 else 3, []
    for row, points in curves.items():
        shown = points[:: -(-len(points) // MOST_POINTS)]
        lines.append((row, *(_spread_number(point.cell.mean, point.spread, digits) for point in shown)))
    return plain_grid((f"{measure.label} at", *(f"{point.at:.4g}" for point in shown)), lines)


def _counted(column: ReadyColumn, entries: Sequence[ReproducedNumber]) -> str:
    """How many texts were measured, beside how many the paper has."""
    limit, texts = column.settings.limit_of(column.column), column.column.texts
    cells = [entry.ours for entry in entries if entry.ours]
    measured = max((cell.n for cell in cells), default=0)
    left_out = max((cell.left_out for cell in cells if cell.n == measured), default=0)
    limited = f" (at most {limit} were asked for)" if limit is not None else ""
    without = f", {left_out:,} left out by the metric" if left_out else ""
    theirs = f"; the paper has {texts:,}" if texts else ""
    what = "images" if column.subject.takes_images else "texts"
    return f"{measured:,} {what} were measured{limited}{without}{theirs}"


def _fewer_runs(rows: Sequence[RecipeRow], seeds: int | None) -> list[str]:
    """Which random rows were run less often than in the paper."""
    by_runs: dict[tuple[int, int], list[str]] = {}
    for row in rows:
        done = len(row.seeded(seeds)[0])
        if done < row.runs:
            by_runs.setdefault((done, row.runs), []).append(row.label)
    return [
        f"{', '.join(labels)} {'is the mean' if len(labels) == 1 else 'are means'} of {done} "
        f"{'run' if done == 1 else 'runs'}, not {asked}"
        for (done, asked), labels in by_runs.items()
    ]


def _numbers(entry: ReproducedNumber) -> list[float | None]:
    """The last columns of a spreadsheet, as `FIELDS` has them from `ours` on."""
    ours = entry.ours
    counted = (
        [ours.mean, ours.low, ours.high, entry.spread, ours.n, ours.left_out, ours.refused] if ours else [None] * 7
    )
    numbers = [*counted, *(entry.published or (None, None)), entry.difference]
    return [None if number is None or math.isnan(number) else number for number in numbers]


def _rows(
    part: Part, measures: Sequence[RecipeMetric], published: Container[str], waiting: Container[str]
) -> Iterator[tuple[Words, ...]]:
    by_reading: dict[tuple[str, str], dict[str, ReproducedNumber]] = {}
    for entry in part.entries:
        by_reading.setdefault((entry.row, entry.method), {})[entry.measure] = entry
    best = {measure.label: _best(part, measure) for measure in measures}
    last = ""
    for (row, method), entries in by_reading.items():
        absent = "waits" if row in waiting else "left out"
        cells = [Words("" if row == last else row), Words(method or absent)]
        for measure in measures:
            entry = entries[measure.label]
            our_best, their_best = best[measure.label]
            digits = 2 if measure.scale != 1 else 3
            cells.append(Words(_ours(entry, digits, interval=len(measures) <= FEW), entry is our_best))
            if measure.label in published:
                number = entry.published if row != last else None
                written = NONE if number is None else _spread_number(*number, digits)
                cells.append(Words(written, number is not None and number == their_best))
                cells.append(Words(optional_number(entry.difference, digits, sign=True)))
        last = row
        yield tuple(cells)


def _best(part: Part, measure: RecipeMetric) -> tuple[ReproducedNumber | None, object]:
    """Our best entry, and the best published number."""
    sign = 1 if measure.higher_is_better else -1
    entries = [e for e in part.entries if e.measure == measure.label and e.main]
    published = [e.published for e in entries if e.published]
    ours = max((e for e in entries if e.measured), key=lambda e: sign * settled(e.mean), default=None)
    return ours, max(published, key=lambda number: sign * number.value, default=None)


def _ours(entry: ReproducedNumber, digits: int, *, interval: bool) -> str:
    cell = entry.ours
    if cell is None:
        return NONE
    refused = f" ({cell.refused} refused)" if cell.refused else ""
    if not entry.measured:
        return f"{NONE}{refused}"
    bounds = f" [{cell.low:.{digits}f}, {cell.high:.{digits}f}]" if interval and not math.isnan(cell.low) else ""
    return f"{_spread_number(cell.mean, entry.spread, digits)}{bounds}{refused}"


def _spread_number(value: float, spread: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def optional_number(value: float | None, digits: int, *, sign: bool = False) -> str:
    """A number with this many digits, or a dash."""
    return NONE if value is None else f"{value:{'+' if sign else ''}.{digits}f}"
