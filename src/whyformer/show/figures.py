"""Explanations as matplotlib figures: texts, images with their heat maps, and grids of several."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from whyformer.arrays import FloatArray
from whyformer.errors import BadInput
from whyformer.escapes import literal
from whyformer.inputs.images import Pixels
from whyformer.inputs.units import Unit
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.show.colors import AGAINST, FOR, IMPORTANCE, Scale, as_hex, common_peak, largest, strengths, two_sided
from whyformer.show.layout import (
    called,
    headline,
    in_answer,
    layer_rows,
    model_of,
    named,
    numeral,
    percent,
    picture_in,
    prepared,
    question,
    reasons,
    row_names,
    shown_places,
    under_headlines,
)
from whyformer.show.overlay import Frame, blended, enlarged, picture_of, regions
from whyformer.show.pictures import DPI, figure_bytes, tiled

ON_SCREEN = 96  # pixels of an inch


class NotebookFigure(Figure):
    """A matplotlib figure that notebooks show as it is, also where nobody asked for `%matplotlib inline`."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture, and how large it is shown: sharper than the screen has to be."""
        width, height = (round(inches * ON_SCREEN) for inches in self.get_size_inches())
        return figure_bytes(self, "png", DPI), {"width": width, "height": height}


DIVERGING = LinearSegmentedColormap.from_list("whyformer", [as_hex(AGAINST), "#ffffff", as_hex(FOR)])
SEQUENTIAL = LinearSegmentedColormap.from_list("whyformer-importance", ["#ffffff", as_hex(IMPORTANCE)])


def colour_bar(drawn: Figure, axes: Any, signed: bool, peak: float, ticks: int = 3, **place: Any) -> None:
    """What the colours mean, in numbers: those of both sides, or of plain importance."""
    lowest, colours = (-peak, DIVERGING) if signed else (0.0, SEQUENTIAL)
    bar = drawn.colorbar(ScalarMappable(Normalize(lowest, peak), colours), ax=axes, **place)
    numbers = np.linspace(lowest, peak, ticks)
    bar.set_ticks(numbers.tolist(), labels=[f"{number:.3g}" for number in numbers])
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


SIDE = 3.6  # inches of the width of a picture that stands alone
TILE = 1.8  # inches of one among many
TALLEST = 1.6  # widths
COLUMNS = 5  # pictures in a row of a comparison
INPUT = "input"
SOFT = "#666666"


class Tile(NamedTuple):
    """A picture of a grid, with what stands above it, below it and at its left."""

    pixels: Pixels
    title: str = ""
    caption: str = ""
    beside: str = ""
    frames: Sequence[Frame] = ()  # numbered, in fractions of the picture

    @property
    def tall(self) -> float:
        """Its height, in widths."""
        height, width, _ = self.pixels.shape
        return min(TALLEST, float(height / width))


def image_figure(result: ExplanationData | ComparisonData[Any], scale: Scale | None = None) -> Figure:
    """The input beside its heat with a colour bar; of a comparison one picture for each method, on its own scale."""
    if isinstance(result, ExplanationData):
        heat = Tile(blended(result), called(result), _changes(result), frames=regions(result))
        tiles = [Tile(_input(result), INPUT), heat]
        drawn = _drawn([tiles], SIDE, [result], common_peak([result], "shared"))
    else:
        peak = common_peak(result, scale or "row")
        tiles = [Tile(_input(result[0]), INPUT)]
        names = zip(row_names(result), result, strict=True)
        tiles += [Tile(blended(e, peak), name.replace(" · ", "\n"), _caption(e, peak)) for name, e in names]
        rows = [tiles[place : place + COLUMNS] for place in range(0, len(tiles), COLUMNS)]
        drawn = _drawn(rows, TILE, result, peak)
    headed = [result] if isinstance(result, ExplanationData) else [group[0] for group in under_headlines(result)]
    name = picture_of(headed[0]).name
    title = "\n".join(f"{headline(e.prediction)} — {question(e)}" for e in headed) + (f"\n{name}" if name else "")
    drawn.suptitle(literal(title), x=0.01, ha="left", fontsize=10)
    return drawn


def image_grid(rows: Sequence[Sequence[ExplanationData]], scale: Scale = "row") -> Figure:
    """Explanations of images in rows and columns, behind the input of each row.

    A row for each image and a column for each method is Figure 2 of Chefer et al. 2021, a row for each method and a
    column for each class their Figure 3. Each picture has its own scale unless `scale` is "shared".
    """
    every = list(chain.from_iterable(rows))
    if not every or len({len(row) for row in rows}) > 1:
        raise BadInput(f"a grid needs rows of the same length; found {[len(row) for row in rows]}")
    peak, names = common_peak(every, scale), _Names(rows)
    new = [not number or not _same_picture(row[0], rows[number - 1][0]) for number, row in enumerate(rows)]
    tiles: list[list[Tile | None]] = []
    for number, row in enumerate(rows):
        beside, heat = names.beside(number), [Tile(blended(e, peak)) for e in row]
        heat = [tile._replace(title=names.above(number, place)) for place, tile in enumerate(heat)]
        if all(new):
            tiles.append([Tile(_input(row[0]), "" if number else INPUT, beside=beside), *heat])
        else:
            first = Tile(_input(row[0]), "" if number else INPUT) if new[number] else None
            tiles.append([first, heat[0]._replace(beside=beside), *heat[1:]])
    return _drawn(tiles, TILE, every, peak)


class _Names:
    """What stands above the columns of a grid and beside its rows: what they share, and not all explanations do."""

    def __init__(self, rows: Sequence[Sequence[ExplanationData]]):
        self.rows, self.columns = rows, list(zip(*rows, strict=True))
        every = list(chain.from_iterable(rows))
        self.telling = [part for part in (called, _target) if len(set(map(part, every))) > 1]

    def beside(self, row: int) -> str:
        """What all of a row share."""
        return "\n".join(part(self.rows[row][0]) for part in self.telling if _shared(part, self.rows[row]))

    def above(self, row: int, column: int) -> str:
        """What all of a column share, at its top; and whatever neither the row nor the column tells."""
        of_column = {part: _shared(part, self.columns[column]) for part in self.telling}
        told = [part for part in self.telling if (row == 0 if of_column[part] else not _shared(part, self.rows[row]))]
        return "\n".join(part(self.rows[row][column]) for part in told)


def _target(explanation: ExplanationData) -> str:
    return named(explanation.target)


def _shared(part: Callable[[ExplanationData], str], group: Sequence[ExplanationData]) -> bool:
    return len(set(map(part, group))) == 1


def _input(explanation: ExplanationData) -> Pixels:
    return enlarged(picture_of(explanation).pixels)


def _changes(explanation: ExplanationData) -> str:
    """What the model says without each region that was checked."""
    checked = [] if explanation.checked is None or explanation.texts else reasons(explanation, 0)
    return "   ".join(f"{reason.text.split()[0]} {reason.change}" for reason in checked)


def _caption(explanation: ExplanationData, peak: float | None) -> str:
    return f"up to {largest(explanation):.3g}" if peak is None else ""


def _same_picture(one: ExplanationData, other: ExplanationData) -> bool:
    return np.array_equal(picture_of(one).pixels, picture_of(other).pixels)


def _drawn(
    rows: Sequence[Sequence[Tile | None]], side: float, shown: Sequence[ExplanationData], peak: float | None
) -> Figure:
    """The tiles, `side` inches wide; with a peak that all share, the colours in numbers at the right."""
    heights = [max(tile.tall for tile in row if tile is not None) for row in rows]
    columns, line = max(map(len, rows)), 0.25  # inches of a line of text
    tiles = [tile for tile in chain.from_iterable(rows) if tile is not None]
    texts = sum(any(tile.title for tile in row if tile) + any(tile.caption for tile in row if tile) for row in rows)
    wide = side * columns + line * any(tile.beside for tile in tiles) + (0.0 if peak is None else 3 * line)
    high = side * sum(heights) + line * (texts + 1) + 0.08 * len(rows)
    drawn = NotebookFigure(figsize=(wide, high), layout="compressed")
    axes = drawn.subplots(len(rows), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    for place, cell in np.ndenumerate(axes):
        row = rows[place[0]]
        cell.set(xticks=[], yticks=[])
        cell.spines[:].set_visible(False)
        if place[1] < len(row) and (tile := row[place[1]]) is not None:
            _draw(cell, tile)
    if peak:
        for signed in sorted({two_sided(e) for e in shown}):
            colour_bar(drawn, axes, signed, peak, fraction=0.03, pad=0.01, aspect=24)
    return drawn


def _draw(axes: Any, tile: Tile) -> None:
    """One picture without a frame around it; regions in it have one, with a number."""
    axes.imshow(tile.pixels, interpolation="bilinear")
    height, width, _ = tile.pixels.shape
    for number, (left, top, right, bottom) in enumerate(tile.frames):
        corner = left * width - 0.5, top * height - 0.5
        sides = (right - left) * width, (bottom - top) * height
        axes.add_patch(Rectangle(corner, *sides, fill=False, edgecolor="black", linewidth=2))
        axes.add_patch(Rectangle(corner, *sides, fill=False, edgecolor="white", linewidth=1))
        name = axes.text(corner[0] + 0.02 * width, corner[1] + 0.02 * height, numeral(number), va="top", fontsize=9)
        name.set(color="white", path_effects=[withStroke(linewidth=2, foreground="black")])
    axes.set_title(literal(tile.title), fontsize=9)
    axes.set_xlabel(tile.caption, fontsize=7, color=SOFT, labelpad=2)
    axes.set_ylabel(literal(tile.beside), fontsize=9)


COLUMN, ROW = 0.45, 0.32  # inches of a cell
BAR = 0.16  # inches, how wide a colour bar is
VISIBLE = 0.1  # of the peak: from here on a colour is seen
FigureRows = Sequence[tuple[str, ExplanationData]]  # with their names
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


def _heatmaps(panels: Sequence[FigureRows], peak: float | None) -> Figure:
    """A heatmap for each headline, one below the other."""
    widest = max(len(shown_places(rows[-1][1])) for rows in panels)
    heights = [len(rows) for rows in panels]
    peak = peak if sum(heights) > 1 else None  # a single row has its own scale
    size = (2.8 + COLUMN * widest, 1.6 * len(panels) + ROW * sum(heights))
    drawn = NotebookFigure(figsize=size, layout="constrained")
    every = drawn.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, rows in zip(every[:, 0], panels, strict=True):
        _heatmap(drawn, axes, rows, peak)
        if len(panels) > 1:
            axes.set_title(literal(f"{axes.get_title('left')} · {model_of(rows[0][1])}"), loc="left", fontsize=10)
    return drawn


def _heatmap(drawn: Figure, axes: Axes, rows: FigureRows, peak: float | None) -> None:
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


def _minus_signs(axes: Axes, rows: Sequence[tuple[FloatArray, bool]]) -> None:
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
