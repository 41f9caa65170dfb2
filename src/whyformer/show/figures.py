"""Explanations as matplotlib figures, for reports."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from whyformer.escapes import literal
from whyformer.inputs.units import Unit
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.show.colours import Scale, common_peak, largest, strengths, two_sided
from whyformer.show.images import image_figure
from whyformer.show.layout import called, headline, in_answer, layer_rows, picture_in, question, shown_places
from whyformer.show.pictures import tiled
from whyformer.show.scales import DIVERGING, SEQUENTIAL, colour_bar

COLUMN, ROW = 0.45, 0.32  # inches of a cell
BAR = 0.16  # inches, how wide a colour bar is
OWN_SCALES = "each row on its own scale: at its right, the largest score"


def figure(result: ExplanationData | ComparisonData[Any], scale: Scale | None = None) -> Figure:
    """A heatmap with one row for each method (AttCAT's Figure 5b).

    Of one explanation that has layers there is a row for each layer (Figure 4), and one for their sum. Layers share a
    scale, which a colour bar shows; methods have different units, so each has its own. `scale` chooses. Of an image
    there are pictures, as `image_figure` draws them.
    """
    if picture_in(result) is not None:
        return image_figure(result, scale)
    usual: Scale = "shared" if isinstance(result, ExplanationData) else "row"
    rows = layer_rows(result) if isinstance(result, ExplanationData) else [(called(e), e) for e in result]
    return _heatmap(rows, common_peak([e for _, e in rows], scale or usual))


def _heatmap(rows: Sequence[tuple[str, ExplanationData]], peak: float | None) -> Figure:
    """The rows, all by one peak, or each by its own."""
    explanation = rows[-1][1]
    shown = shown_places(explanation)
    units = [explanation.units[i] for i in shown]
    drawn = Figure(figsize=(2.8 + COLUMN * len(units), 1.6 + ROW * len(rows)), layout="constrained")
    axes = drawn.subplots()
    strong = [(strengths(e, peak)[shown], two_sided(e)) for _, e in rows]
    pixels = np.stack([(DIVERGING((r + 1) / 2) if signed else SEQUENTIAL(r))[:, :3] for r, signed in strong])
    axes.imshow(pixels, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(units)), [literal(unit.text) for unit in units], rotation=45, ha="right")
    axes.set_yticks(range(len(rows)), [literal(name) for name, _ in rows])
    tiled(axes, len(units), len(rows))
    _divided(axes, explanation, units, len(rows))
    if len(rows) == 1 or peak is None:
        _own_peaks(axes, [e for _, e in rows], len(units))
    elif peak > 0:
        _colour_bars(drawn, axes, {signed for _, signed in strong}, peak, len(rows))
    title = f"{headline(explanation.prediction)} — {question(explanation)}"
    axes.set_title(literal(title), loc="left", fontsize=10)
    return drawn


def _divided(axes: Axes, explanation: ExplanationData, units: Sequence[Unit], rows: int) -> None:
    """A line between the two texts of a pair, and a frame around the answer."""
    for place in np.flatnonzero(np.diff([unit.part or 0 for unit in units])):
        axes.axvline(place + 0.5, color="black", linewidth=1)
    answer = [n for n, unit in enumerate(units) if in_answer(explanation, unit.part, unit.span)]
    if answer:
        corner, width = (answer[0] - 0.5, -0.5), answer[-1] - answer[0] + 1
        axes.add_patch(Rectangle(corner, width, rows, fill=False, edgecolor="black", linewidth=2, clip_on=False))


def _own_peaks(axes: Axes, explanations: Sequence[ExplanationData], columns: int) -> None:
    """The largest score of each row at its right."""
    for row, explanation in enumerate(explanations):
        axes.text(columns - 0.4, row, f"{largest(explanation):.3g}", va="center", fontsize=8, color="#666666")
    if len(explanations) > 1:
        axes.set_xlabel(OWN_SCALES, loc="left", fontsize=8, color="#666666")


def _colour_bars(drawn: Figure, axes: Axes, kinds: set[bool], peak: float, rows: int) -> None:
    """What the colours mean, in numbers: a bar for those of both sides, and one for plain importance."""
    high = ROW * rows
    wide = COLUMN * (axes.get_xlim()[1] - axes.get_xlim()[0])
    for signed in sorted(kinds):
        place = {"fraction": min(0.15, 1.5 * BAR / wide), "pad": 0.01, "aspect": high / BAR}
        colour_bar(drawn, axes, signed, peak, 5 if rows > 5 else 3, **place)
