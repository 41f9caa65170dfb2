"""Explanations as matplotlib figures, for reports."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from whyformer.escapes import literal
from whyformer.inputs.units import Unit
from whyformer.results.explanation import Array, ComparisonData, ExplanationData
from whyformer.show.colours import Scale, common_peak, largest, strengths, two_sided
from whyformer.show.comparing import model_of, under_headlines
from whyformer.show.drawings import Drawing
from whyformer.show.images import image_figure
from whyformer.show.layout import (
    called,
    headline,
    in_answer,
    layer_rows,
    percent,
    picture_in,
    prepared,
    question,
    shown_places,
)
from whyformer.show.pictures import tiled
from whyformer.show.scales import DIVERGING, SEQUENTIAL, colour_bar

COLUMN, ROW = 0.45, 0.32  # inches of a cell
BAR = 0.16  # inches, how wide a colour bar is
VISIBLE = 0.1  # of the peak: from here on a colour is seen
Rows = Sequence[tuple[str, ExplanationData]]  # with their names
OWN_SCALES = "each row on its own scale: at its right, the largest score"


def figure(
    result: ExplanationData | ComparisonData[Any],
    scale: Scale | None = None,
    tokens: bool = False,
    layers: bool = False,
) -> Figure:
    """A heatmap with one row for each method (AttCAT's Figure 5b); where headlines differ, a heatmap under each.

    With `layers`, an explanation that has layers gets a row for each (Figure 4), and one for their sum. Layers share a
    scale, which a colour bar shows; methods have different units, so each has its own. `scale` chooses. An image is
    drawn by `image_figure`. Words that were checked have what the model predicts without them.
    """
    result = prepared(result, tokens)
    if picture_in(result) is not None:
        return image_figure(result, scale)
    usual: Scale = "shared" if isinstance(result, ExplanationData) else "row"
    if isinstance(result, ExplanationData):
        panels = [layer_rows(result)] if layers else [[(called(result), result)]]
    else:
        panels = [[(called(e), e) for e in group] for group in under_headlines(result)]
    return _heatmaps(panels, common_peak([e for rows in panels for _, e in rows], scale or usual))


def _heatmaps(panels: Sequence[Rows], peak: float | None) -> Figure:
    """A heatmap for each headline, one below the other."""
    widest = max(len(shown_places(rows[-1][1])) for rows in panels)
    heights = [len(rows) for rows in panels]
    peak = peak if sum(heights) > 1 else None  # a single row has its own scale
    size = (2.8 + COLUMN * widest, 1.6 * len(panels) + ROW * sum(heights))
    drawn = Drawing(figsize=size, layout="constrained")
    every = drawn.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, rows in zip(every[:, 0], panels, strict=True):
        _heatmap(drawn, axes, rows, peak)
        if len(panels) > 1:
            axes.set_title(literal(f"{axes.get_title('left')} · {model_of(rows[0][1])}"), loc="left", fontsize=10)
    return drawn


def _heatmap(drawn: Figure, axes: Axes, rows: Rows, peak: float | None) -> None:
    """The rows, all by one peak, or each by its own."""
    explanation = rows[-1][1]
    shown = shown_places(explanation)
    units = [explanation.units[i] for i in shown]
    strong = [(strengths(e, peak)[shown], two_sided(e)) for _, e in rows]
    pixels = np.stack([(DIVERGING((r + 1) / 2) if signed else SEQUENTIAL(r))[:, :3] for r, signed in strong])
    axes.imshow(pixels, aspect="auto", interpolation="nearest")
    names = [literal(unit.text) for unit in units]
    names = _with_effects(explanation, shown, names) if len(rows) == 1 else names
    axes.set_xticks(range(len(units)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(rows)), [literal(name) for name, _ in rows])
    tiled(axes, len(units), len(rows))
    _minus_signs(axes, strong)
    _divided(axes, explanation, units, len(rows))
    if peak is None:
        _own_peaks(axes, [e for _, e in rows], len(units))
    elif peak > 0:
        _colour_bars(drawn, axes, {signed for _, signed in strong}, peak, len(rows))
    title = f"{headline(explanation.prediction)} — {question(explanation)}"
    axes.set_title(literal(title), loc="left", fontsize=10)


def _with_effects(explanation: ExplanationData, shown: Sequence[int], names: Sequence[str]) -> list[str]:
    """The names of units, with what the model says without those that were checked."""
    checked, told = explanation.checked, []
    for place, name in zip(shown, names, strict=True):
        effect = None if checked is None else checked.of(place)
        share = None if effect is None else effect.probability
        told.append(name if share is None else f"{name}  → {percent(share)}")
    return told


def _minus_signs(axes: Axes, rows: Sequence[tuple[Array, bool]]) -> None:
    """A minus on what speaks against the target, for who does not see the colour."""
    for row, (strength, signed) in enumerate(rows):
        for column in np.flatnonzero(strength < -VISIBLE) if signed else ():
            axes.text(float(column), row, "−", ha="center", va="center", fontsize=9)


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
