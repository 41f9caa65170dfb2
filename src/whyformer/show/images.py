"""Explained images as matplotlib figures: the picture beside its heat, and grids of methods, classes and pictures."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from whyformer.errors import BadInput
from whyformer.escapes import literal
from whyformer.inputs.images import Pixels
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.show.colours import Scale, common_peak, largest, two_sided
from whyformer.show.comparing import row_names, under_headlines
from whyformer.show.drawings import Drawing
from whyformer.show.layout import called, headline, named, numeral, question, reasons
from whyformer.show.overlay import Frame, blended, enlarged, picture_of, regions
from whyformer.show.scales import colour_bar

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
    drawn = Drawing(figsize=(wide, high), layout="compressed")
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
