"""Reproduced as pictures: curves and bars of numbers, and explained texts."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from whyformer.reproduce.recipe import Measure, Row
from whyformer.reproduce.reproduced import Entry, Part, Reproduced, method_label, metric_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[tuple[float, ...], tuple[float, ...]]  # where it is taken, and the numbers there


def drawing(reproduced: Reproduced) -> "Figure | None":
    """The curves or bars of a figure, a row of pictures for each column; None for a table."""
    from matplotlib.figure import Figure

    kind, measures = reproduced.recipe.kind, reproduced.recipe.ready_measures
    if kind not in ("curves", "bars"):
        return None
    over = kind == "curves" and all(measure.at is not None for measure in measures)
    wide = 1 if over else len(measures)
    high = len(reproduced.parts)
    figure = Figure(figsize=(6.4 * wide, 4.2 * high), layout="constrained")
    rows = figure.subplots(high, wide, squeeze=False)
    for axes, part in zip(rows, reproduced.parts, strict=True):
        if over:
            _lines(axes[0], part, dict(_over_measures(reproduced, part, measures)), measures[0], "k")
            _dots(axes[0], part, measures)
            continue
        for own, measure in zip(axes, measures, strict=True):
            if kind == "curves":
                _lines(own, part, dict(_curves(reproduced, part, measure)), measure, measure.label)
            else:
                _bars(own, part, measure)
    return figure


def _curves(reproduced: Reproduced, part: Part, measure: Measure) -> Iterator[tuple[str, Curve]]:
    """The curve of each row by one measure."""
    for row in reproduced.recipe.rows_of(part.column):
        found = [curve for curve in _of_runs(part, row, measure) if curve]
        if found:
            points = zip(*(values for _, values in found), strict=True)
            yield row.label, (found[0][0], tuple(measure.scale * math.fsum(own) / len(found) for own in points))


def _of_runs(part: Part, row: Row, measure: Measure) -> Iterator[Curve | None]:
    table, metric = part.table, metric_label(measure.metric)
    for method in map(method_label, row.seeded()):
        if table is not None and method in table.methods and metric in table.metrics:
            yield table.curve(method, metric)


def _over_measures(reproduced: Reproduced, part: Part, measures: Sequence[Measure]) -> Iterator[tuple[str, Curve]]:
    """A curve through the numbers of each row by several measures."""
    by_measure = {(e.row, e.measure): e.ours for e in part.entries if e.main and e.measured}
    for row in reproduced.recipe.rows_of(part.column):
        cells = [(m.at, by_measure.get((row.label, m.label))) for m in measures]
        points = [(at, cell.mean) for at, cell in cells if cell is not None and at is not None]
        if points:
            yield row.label, (tuple(at for at, _ in points), tuple(value for _, value in points))


def _lines(axes: "Axes", part: Part, curves: dict[str, Curve], measure: Measure, name: str) -> None:
    for number, (label, (at, values)) in enumerate(curves.items()):
        axes.plot(at, values, label=label, color=f"C{number % 10}", linestyle=("-", "--", ":")[number // 10 % 3])
    axes.set_title(f"{part.column.label}: {name}", loc="left", fontsize=10)
    better = "higher" if measure.higher_is_better else "lower"
    axes.set_ylabel(f"{better} is better")
    places = [place for at, _ in curves.values() for place in at]
    axes.set_xlabel("share of the units" if max(places, default=0) <= 1 else "k")
    axes.grid(alpha=0.3)
    if curves:
        axes.legend(fontsize=8)


def _dots(axes: "Axes", part: Part, measures: Sequence[Measure]) -> None:
    """The published numbers on the curve."""
    places = {measure.label: measure.at for measure in measures if measure.at is not None}
    colours = {str(line.get_label()): line.get_color() for line in axes.get_lines()}
    for entry in part.entries:
        if entry.main and entry.published and entry.row in colours:
            axes.plot([places[entry.measure]], [entry.published.value], "o", color=colours[entry.row])


def _bars(axes: "Axes", part: Part, measure: Measure) -> None:
    found: list[Entry] = [e for e in part.entries if e.measure == measure.label and e.main and e.measured]
    means = [entry.ours.mean for entry in found if entry.ours]
    axes.barh(range(len(found)), means)
    for place, entry in enumerate(found):
        if entry.published:
            axes.plot([entry.published.value], [place], "k|", markersize=14)
    axes.set_yticks(range(len(found)), [entry.row for entry in found])
    for reference in (
        e for e in part.entries if e.measure == measure.label and e.row not in {own.row for own in found}
    ):
        if reference.ours and reference.measured:
            axes.axvline(reference.ours.mean, color="black", linestyle=":", label=reference.row)
            axes.legend(fontsize=8)
    axes.invert_yaxis()
    marked = " (published: |)" if any(entry.published for entry in found) else ""
    axes.set_title(f"{part.column.label}: {measure.label}{marked}", loc="left", fontsize=10)
