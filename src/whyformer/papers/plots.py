"""The numbers of a column as curves and bars."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whyformer.papers.recipe import Measure
from whyformer.papers.result import Entry, Part, method_label, metric_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = tuple[tuple[float, ...], tuple[float, ...]]  # where it is taken, and the numbers there


def _curves(part: Part, measure: Measure) -> Iterator[tuple[str, Curve]]:
    """The curve of each row by one measure, a mean over its runs."""
    table, metric = part.tables.get(measure.protocol), metric_label(measure.metric)
    if table is None or metric not in table.metrics:
        return
    for row in part.rows:
        methods = [method for method in map(method_label, row.seeded()[0]) if method in table.methods]
        runs = [curve for method in methods if (curve := table.curve(method, metric))]
        if runs:
            points = zip(*(values for _, values in runs), strict=True)
            yield row.label, (runs[0][0], tuple(measure.scale * math.fsum(values) / len(runs) for values in points))


def draw_over_rows(axes: "Axes", part: Part, measure: Measure, over: str) -> None:
    """A curve through the numbers of several rows, for each of their readings, named as the first row has it.

    Rows that are not points of the curve are dashed lines, in the colour of the same reading.
    """
    for number, by_row in enumerate(_by_reading(part, measure)):
        points = [(row.at, by_row[row.label]) for row in part.rows if row.at is not None and row.label in by_row]
        numbers = [entry.mean for _, entry in points]
        colour = f"C{number}"
        if points:
            axes.plot([at for at, _ in points], numbers, marker=".", color=colour, label=points[0][1].method)
        for entry in (by_row[row.label] for row in part.rows if row.at is None and row.label in by_row):
            axes.axhline(entry.mean, color=colour, linestyle="--", linewidth=1, label=entry.method)
    _titled(axes, part, measure, over)


def _by_reading(part: Part, measure: Measure) -> list[dict[str, Entry]]:
    """The entries of one measure by row: those of the first readings, then those of the second ones, …."""
    readings: list[dict[str, Entry]] = []
    for row in part.rows:
        for number, entry in enumerate(e for e in part.entries if (e.row, e.measure) == (row.label, measure.label)):
            if number == len(readings):
                readings.append({})
            if entry.measured:
                readings[number][row.label] = entry
    return readings


def draw_curves(axes: "Axes", part: Part, measure: Measure) -> None:
    """The curves that the metric has, one for each row."""
    curves = dict(_curves(part, measure))
    for number, (label, (at, values)) in enumerate(curves.items()):
        axes.plot(at, values, label=label, color=f"C{number % 10}", linestyle=("-", "--", ":")[number // 10 % 3])
    places = [place for at, _ in curves.values() for place in at]
    _titled(axes, part, measure, "share of the units" if max(places, default=0) <= 1 else "k")


def _titled(axes: "Axes", part: Part, measure: Measure, over: str) -> None:
    axes.set_title(f"{part.column.label}: {measure.label}", loc="left", fontsize=10)
    axes.set_ylabel(f"{'higher' if measure.higher_is_better else 'lower'} is better")
    axes.set_xlabel(over)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8)


def draw_bars(axes: "Axes", part: Part, measure: Measure) -> None:
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
