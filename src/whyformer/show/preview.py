"""Explained images in a terminal: half-blocks in colour, or shades of characters where there are no colours."""

from collections.abc import Sequence

import numpy as np
from PIL import Image
from rich.cells import set_cell_size
from rich.style import Style
from rich.text import Text

from whyformer.escapes import visible
from whyformer.inputs.images import score_grid
from whyformer.results.explanation import ExplanationData
from whyformer.show.colours import FAINT, as_hex, strengths, two_sided
from whyformer.show.layout import called, numeral
from whyformer.show.overlay import Frame, blended, picture_of, regions

HALF = "▀"  # the upper half in the colour of the letters, the lower in that of the background
WIDEST, TALLEST = 64, 26  # characters and lines of a picture
TILE = 30  # characters of one among several
GAP = 2  # characters between them
LITTLE, FOR, AGAINST = "·", "░▒▓█", "-=%#"
NUMBER = Style(color="#000000", bgcolor="#ffffff", bold=True)


def preview(explanation: ExplanationData, coloured: bool, width: int, peak: float | None = None) -> Text:
    """The picture under its heat, at most so many characters wide; without colours, the heat and what it means."""
    lines = _lines(explanation, coloured, min(width, WIDEST), peak)
    if not explanation.texts:  # otherwise no list below has the numbers
        _write_numbers(lines, regions(explanation) if coloured else _seen_regions(explanation))
    text = Text("\n").join(lines)
    return text if coloured else text.append(f"\n{key([explanation])}")


def previews(explanations: Sequence[ExplanationData], peak: float | None, coloured: bool, width: int) -> Text:
    """The pictures of several methods side by side, as many as fit, with their names above them."""
    wide = min(width, TILE)
    blocks = [_block(e, _lines(e, coloured, wide, peak), wide) for e in explanations]
    fit = max(1, (width + GAP) // (wide + GAP))
    rows = [blocks[place : place + fit] for place in range(0, len(blocks), fit)]
    lines = [[Text(" " * GAP).join(parts) for parts in zip(*row, strict=True)] for row in rows]
    text = Text("\n\n").join(Text("\n").join(row) for row in lines)
    return text if coloured else text.append(f"\n\n{key(explanations)}")


def key(explanations: Sequence[ExplanationData]) -> str:
    """What the characters mean that stand for heat."""
    kinds = {two_sided(e) for e in explanations}
    plain = "matters" if kinds == {False} else "for" if kinds == {True} else "for, or matters"
    return "  ".join([f"{FOR} {plain}", *([f"{AGAINST} against"] if True in kinds else []), f"{LITTLE} little"])


def _block(explanation: ExplanationData, lines: Sequence[Text], width: int) -> list[Text]:
    """A picture with its name above it, all lines of one width."""
    for line in lines:
        line.pad_right(width - line.cell_len)
    return [Text(set_cell_size(visible(called(explanation)), width), "bold"), *lines]


def _lines(explanation: ExplanationData, coloured: bool, width: int, peak: float | None) -> list[Text]:
    return _half_blocks(explanation, width, peak) if coloured else _shades(explanation, width, peak)


def _write_numbers(lines: list[Text], frames: Sequence[Frame]) -> None:
    """Write the number of each region on its center. Where two overlap, the stronger region keeps its number."""
    for number, (left, top, right, bottom) in reversed(list(enumerate(frames))):
        place = int((top + bottom) / 2 * len(lines))
        line, mark = lines[place], numeral(number)
        start = max(0, int(((left + right) * len(line) - len(mark)) / 2))
        before, _, after = line.divide([start, start + len(mark)])
        lines[place] = Text.assemble(before, (mark, NUMBER), after)


def _seen_regions(explanation: ExplanationData) -> list[Frame]:
    """The regions that were checked, in fractions of what the model saw."""
    left, top, right, bottom = picture_of(explanation).region
    wide, high = right - left, bottom - top
    return [
        ((a - left) / wide, (b - top) / high, (c - left) / wide, (d - top) / high)
        for a, b, c, d in regions(explanation)
    ]


def _half_blocks(explanation: ExplanationData, width: int, peak: float | None) -> list[Text]:
    """Each character is two pixels, one above the other."""
    image = Image.fromarray(blended(explanation, peak))
    columns, lines = _fitted(image.width / image.height, width, TALLEST)
    pixels = np.asarray(image.resize((columns, 2 * lines), Image.Resampling.BOX)).tolist()
    return [
        Text.assemble(*((HALF, Style(color=as_hex(a), bgcolor=as_hex(b))) for a, b in zip(above, below, strict=True)))
        for above, below in zip(pixels[::2], pixels[1::2], strict=True)
    ]


def _shades(explanation: ExplanationData, width: int, peak: float | None) -> list[Text]:
    """Of what the model saw, a character for the score in each place; a patch is two of them wide if there is room."""
    picture = picture_of(explanation)
    grid = score_grid(explanation.units, strengths(explanation, peak if explanation.pixels is None else None))
    left, top, right, bottom = picture.region
    across, down = (right - left) * picture.pixels.shape[1], (bottom - top) * picture.pixels.shape[0]
    columns, lines = _fitted(across / down, min(width, 2 * grid.shape[1]), TALLEST)
    shrunk = Image.fromarray(grid.astype(np.float32)).resize((columns, lines), Image.Resampling.BOX)
    return [Text("".join(map(_shade, line))) for line in np.asarray(shrunk).tolist()]


def _shade(strength: float) -> str:
    if abs(strength) < FAINT:
        return LITTLE
    shades = FOR if strength > 0 else AGAINST
    return shades[min(len(shades) - 1, int(len(shades) * abs(strength)))]


def _fitted(wide: float, columns: int, lines: int) -> tuple[int, int]:
    """Columns and lines of a picture that is so many times as wide as high; characters are twice as high as wide."""
    columns = max(1, min(columns, round(2 * lines * wide)))
    return columns, max(1, min(lines, round(columns / wide / 2)))
