"""Reproduced as pictures: curves and bars of numbers, heads, and words."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whyformer.papers.recipe import MASKS, Measure, Row
from whyformer.papers.reproduced import Entry, Part, Reproduced, method_label, metric_label
from whyformer.papers.words import compared_tables, word_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[tuple[float, ...], tuple[float, ...]]  # where it is taken, and the numbers there


def drawing(reproduced: Reproduced) -> "Figure | None":
    """The curves or bars of a figure, a row of pictures for each column; None for a table."""
    from matplotlib.figure import Figure

    recipe, measures = reproduced.recipe, reproduced.recipe.ready_measures
    if recipe.kind not in ("curves", "bars"):
        return None
    wide, high = len(measures), len(reproduced.parts)
    figure = Figure(figsize=(6.4 * wide, 4.2 * high), layout="constrained")
    rows = figure.subplots(high, wide, squeeze=False)
    for axes, part in zip(rows, reproduced.parts, strict=True):
        for own, measure in zip(axes, measures, strict=True):
            if recipe.kind == "bars":
                _bars(own, part, measure)
            elif recipe.over:
                _over_rows(own, part, measure, recipe.over)
            else:
                _lines(own, part, dict(_curves(part, measure)), measure)
    return figure


def column_drawing(reproduced: Reproduced, part: Part) -> "Figure | None":
    """The picture of one column: of its heads or its words; None for any other kind."""
    return word_drawing(reproduced, part) or mask_drawing(reproduced, part)


def word_drawing(reproduced: Reproduced, part: Part) -> "Figure | None":
    """Word clouds, or curves of the words that classes share; None for any other kind, and where there are no words."""
    kind = reproduced.recipe.kind
    if kind == "clouds" and (tables := word_tables(part)):
        from whyformer.show.clouds import clouds_figure

        return clouds_figure(tables)
    if kind in ("shares", "counts") and (tables := compared_tables(part)):
        from whyformer.show.overlaps import overlap_figure, shared_figure

        figure = overlap_figure(tables) if kind == "shares" else shared_figure(tables)
        figure.suptitle(part.column.label, x=0.01, ha="left", fontsize=11)
        return figure
    return None


def mask_drawing(reproduced: Reproduced, part: Part) -> "Figure | None":
    """The grid of heads, or the relative positions, of a column's head mask; None for any other kind."""
    from whyformer.show.heads import heads_figure, positions_figure

    if part.mask is None or reproduced.recipe.kind not in MASKS:
        return None
    corpus = part.mask.provenance.get("corpus", {})
    other = corpus.get("treebank") or corpus.get("data", part.column.data)
    name = part.column.label if other == part.column.data else f"{part.column.label}, heads of {other}"
    if reproduced.recipe.kind == "positions":
        figure = positions_figure(part.mask)
        figure.suptitle(f"{name}: {figure.get_suptitle()}", x=0.01, ha="left", fontsize=11)
        return figure
    figure = heads_figure(part.mask)
    (axes,) = figure.axes
    axes.set_title(f"{name}: {axes.get_title(loc='left')}", loc="left", fontsize=10)
    return figure


def _curves(part: Part, measure: Measure) -> Iterator[tuple[str, Curve]]:
    """The curve of each row by one measure."""
    for row in part.rows:
        found = [curve for curve in _of_runs(part, row, measure) if curve]
        if found:
            points = zip(*(values for _, values in found), strict=True)
            yield row.label, (found[0][0], tuple(measure.scale * math.fsum(own) / len(found) for own in points))


def _of_runs(part: Part, row: Row, measure: Measure) -> Iterator[Curve | None]:
    table, metric = part.table, metric_label(measure.metric)
    for method in map(method_label, row.seeded()[0]):
        if table is not None and method in table.methods and metric in table.metrics:
            yield table.curve(method, metric)


def _over_rows(axes: "Axes", part: Part, measure: Measure, over: str) -> None:
    """A curve through the numbers of several rows, for each of their readings, named as the first row has it.

    Rows that are no points of the curve are dashed lines, in the colour of the same reading.
    """
    for number, own in enumerate(_by_reading(part, measure)):
        points = [(row.at, own[row.label]) for row in part.rows if row.at is not None and row.label in own]
        numbers = [entry.ours.mean for _, entry in points if entry.ours]
        colour = f"C{number}"
        if points:
            axes.plot([at for at, _ in points], numbers, marker=".", color=colour, label=points[0][1].method)
        for entry in (own[row.label] for row in part.rows if row.at is None and row.label in own):
            assert entry.ours is not None
            axes.axhline(entry.ours.mean, color=colour, linestyle="--", linewidth=1, label=entry.method)
    _titled(axes, part, measure, over)


def _by_reading(part: Part, measure: Measure) -> list[dict[str, Entry]]:
    """The entries of one measure by row: those of the first readings, then those of the second ones, …."""
    found: list[dict[str, Entry]] = []
    for row in part.rows:
        for number, entry in enumerate(e for e in part.entries if (e.row, e.measure) == (row.label, measure.label)):
            if number == len(found):
                found.append({})
            if entry.measured:
                found[number][row.label] = entry
    return found


def _lines(axes: "Axes", part: Part, curves: dict[str, Curve], measure: Measure) -> None:
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
