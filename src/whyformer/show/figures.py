"""Explanations as matplotlib figures, for reports."""

from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from whyformer.escapes import literal
from whyformer.results.explanation import Array, ComparisonData, ExplanationData
from whyformer.show.colours import AGAINST, FOR, IMPORTANCE, as_hex, scaled, strengths, two_sided
from whyformer.show.layout import called, headline, in_answer, question, shown_places
from whyformer.show.pictures import tiled

DIVERGING = LinearSegmentedColormap.from_list("whyformer", [as_hex(AGAINST), "#ffffff", as_hex(FOR)])
SEQUENTIAL = LinearSegmentedColormap.from_list("whyformer-importance", ["#ffffff", as_hex(IMPORTANCE)])


def figure(result: ExplanationData | ComparisonData[Any]) -> Figure:
    """A heatmap with one row for each method (AttCAT's Figure 5b), each on its own scale.

    Of one explanation that has layers there is a row for each layer (Figure 4), and one for their sum.
    """
    if isinstance(result, ComparisonData):
        shown = shown_places(result[0])
        return _heatmap(result[0], [(called(e), strengths(e)[shown], two_sided(e)) for e in result])
    shown = shown_places(result)
    rows = [("sum" if result.layers is not None else called(result), strengths(result)[shown])]
    if result.layers is not None:
        rows = [(f"layer {n}", scaled(layer[shown])) for n, layer in enumerate(result.layers)] + rows
    return _heatmap(result, [(name, row, two_sided(result)) for name, row in rows])


def _heatmap(explanation: ExplanationData, rows: list[tuple[str, Array, bool]]) -> Figure:
    units = [explanation.units[i] for i in shown_places(explanation)]
    names = [unit.text for unit in units]
    drawn = Figure(figsize=(2 + 0.45 * len(names), 1.6 + 0.32 * len(rows)), layout="constrained")
    axes = drawn.subplots()
    pixels = np.stack([(DIVERGING((r + 1) / 2) if signed else SEQUENTIAL(r))[:, :3] for _, r, signed in rows])
    axes.imshow(pixels, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(names)), [literal(name) for name in names], rotation=45, ha="right")
    axes.set_yticks(range(len(rows)), [literal(name) for name, _, _ in rows])
    tiled(axes, len(names), len(rows))
    for place in np.flatnonzero(np.diff([unit.part or 0 for unit in units])):  # between the two texts of a pair
        axes.axvline(place + 0.5, color="black", linewidth=1)
    answer = [n for n, unit in enumerate(units) if in_answer(explanation, unit.part, unit.span)]
    if answer:
        corner, width = (answer[0] - 0.5, -0.5), answer[-1] - answer[0] + 1
        axes.add_patch(Rectangle(corner, width, len(rows), fill=False, edgecolor="black", linewidth=2, clip_on=False))
    title = f"{headline(explanation.prediction)} — {question(explanation)}"
    axes.set_title(literal(title), loc="left", fontsize=10)
    return drawn
