"""The numbers of a column as curves and bars."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import stdev
from typing import TYPE_CHECKING, NamedTuple

from whyformer.results.evaluation import TableCell
from whyformer_papers.reproduce.recipe import RecipeMetric
from whyformer_papers.reproduce.result import Part, ReproducedNumber, method_label, metric_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADE = 0.6  # how strong all the colours between the ends of intervals are together
FEW = 4  # curves: the names of more stand beside the axes, so that they cover none


class Point(NamedTuple):
    """A point of a row's curve: a mean with its interval, or a mean over runs with their standard deviation."""

    at: float
    cell: TableCell
    spread: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """From where to where its shadow reaches; NaN where it has none."""
        if self.spread is None:
            return self.cell.low, self.cell.high
        return self.cell.mean - self.spread, self.cell.mean + self.spread


def curve_points(part: Part, measure: RecipeMetric) -> dict[str, list[Point]]:
    """The curve of each row by one measure; of a row of several runs their mean."""
    table, metric = part.tables.get(measure.protocol), metric_label(measure.metric)
    if table is None or metric not in table.metrics:
        return {}
    curves = {}
    for row in part.rows:
        methods = [method for method in map(method_label, row.seeded()[0]) if method in table.methods]
        runs = [cells for method in methods if (cells := table.curve_cells(method, metric))]
        if runs:
            curves[row.label] = [_joined(points, measure.scale) for points in zip(*runs, strict=True)]
    return curves


def _joined(points: Sequence[tuple[float, TableCell]], scale: float) -> Point:
    """One point of several runs, in the unit of the paper."""
    at, first = points[0]
    if len(points) == 1:
        return Point(at, replace(first, mean=scale * first.mean, low=scale * first.low, high=scale * first.high))
    means = [scale * cell.mean for _, cell in points]
    mean = TableCell(math.fsum(means) / len(means), math.nan, math.nan, min(cell.n for _, cell in points))
    return Point(at, mean, stdev(means))


def draw_over_rows(axes: "Axes", part: Part, measure: RecipeMetric, over: str) -> None:
    """A curve through the numbers of several rows, for each of their readings, named as the first row has it.

    Rows that are not points of the curve are dashed lines, in the colour of the same reading.
    """
    for number, by_row in enumerate(_by_reading(part, measure)):
        points = [(row.at, by_row[row.label]) for row in part.rows if row.at is not None and row.label in by_row]
        numbers = [entry.mean for _, entry in points]
        colour = f"C{number}"
        if points:
            places, spreads = [at for at, _ in points], [entry.spread or 0.0 for _, entry in points]
            axes.plot(places, numbers, marker=".", color=colour, label=points[0][1].method)
            _shadow(axes, places, [(n - s, n + s) for n, s in zip(numbers, spreads, strict=True)], colour, SHADE / FEW)
        for entry in (by_row[row.label] for row in part.rows if row.at is None and row.label in by_row):
            axes.axhline(entry.mean, color=colour, linestyle="--", linewidth=1, label=entry.method)
    _titled(axes, part, measure, over, "± one standard deviation over the runs")


def _shadow(
    axes: "Axes", places: Sequence[float], ends: Sequence[tuple[float, float]], colour: str, strength: float
) -> None:
    """The area between the ends, if they are apart anywhere."""
    lows, highs = zip(*ends, strict=True)
    if any(low < high for low, high in ends):
        axes.fill_between(places, lows, highs, color=colour, alpha=strength, linewidth=0)


def _by_reading(part: Part, measure: RecipeMetric) -> list[dict[str, ReproducedNumber]]:
    """The entries of one measure by row: those of the first readings, then those of the second ones, …."""
    readings: list[dict[str, ReproducedNumber]] = []
    for row in part.rows:
        for number, entry in enumerate(e for e in part.entries if (e.row, e.measure) == (row.label, measure.label)):
            if number == len(readings):
                readings.append({})
            if entry.measured:
                readings[number][row.label] = entry
    return readings


def draw_curves(axes: "Axes", part: Part, measure: RecipeMetric) -> None:
    """The curves that the metric has, one for each row."""
    curves = curve_points(part, measure)
    for number, (label, points) in enumerate(curves.items()):
        at, colour = [point.at for point in points], f"C{number % 10}"
        style = ("-", "--", ":")[number // 10 % 3]
        axes.plot(at, [point.cell.mean for point in points], label=label, color=colour, linestyle=style)
        _shadow(axes, at, [point.ends for point in points], colour, SHADE / max(FEW, len(curves)))
    every = [point for points in curves.values() for point in points]
    over = "share of the units" if max((point.at for point in every), default=0) <= 1 else "k"
    of_runs = [label for label, points in curves.items() if points[0].spread is not None]
    runs = f"; of {', '.join(of_runs)} ± one standard deviation over the runs" if of_runs else ""
    _titled(axes, part, measure, over, f"95 % intervals over the texts{runs}")


def _titled(axes: "Axes", part: Part, measure: RecipeMetric, over: str, shadows: str) -> None:
    """The names of the axes and of the curves, and what is shaded, if anything is."""
    axes.set_title(f"{part.column.label}: {measure.label}", loc="left", fontsize=10)
    axes.set_ylabel(f"{'higher' if measure.higher_is_better else 'lower'} is better")
    axes.set_xlabel(f"{over}\nshaded: {shadows}".replace("; ", ";\n") if axes.collections else over)
    axes.grid(alpha=0.3)
    names = axes.get_legend_handles_labels()[1]
    if len(names) > FEW:
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    elif names:
        axes.legend(fontsize=8)


def draw_bars(axes: "Axes", part: Part, measure: RecipeMetric) -> None:
    """A bar for each row, the published number as a stroke, and what is attainable as a dotted line."""
    entries = [entry for entry in part.entries if entry.measure == measure.label and entry.measured]
    shown = [entry for entry in entries if entry.main]
    rows = [entry.row for entry in shown]
    axes.barh(range(len(shown)), [entry.mean for entry in shown])
    for place, entry in enumerate(shown):
        if entry.published:
            axes.plot([entry.published.value], [place], "k|", markersize=14)
    axes.set_yticks(range(len(shown)), rows)
    for entry in entries:
        if entry.row not in rows:
            axes.axvline(entry.mean, color="black", linestyle=":", label=entry.row)
            axes.legend(fontsize=8)
    axes.invert_yaxis()
    marked = " (published: |)" if any(entry.published for entry in shown) else ""
    axes.set_title(f"{part.column.label}: {measure.label}{marked}", loc="left", fontsize=10)
