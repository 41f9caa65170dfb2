"""Explanations in a terminal, with colors or without; images are drawn as half-blocks or in shades of characters."""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import rich.text
from PIL import Image
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.style import Style
from rich.text import Text

from whyformer.escapes import visible
from whyformer.inputs.images import score_grid
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.results.trust import TrustData
from whyformer.show.colors import FAINT, Scale, as_hex, common_peak, hue, ink, on_white, strengths, two_sided, written
from whyformer.show.layout import (
    AGREEMENT,
    CUT,
    MARKS,
    UNKNOWN,
    called,
    facts_of_rows,
    gauge,
    gauge_key,
    gauge_title,
    headline,
    marked,
    model_of,
    note,
    numeral,
    origin,
    percent,
    picture_in,
    pieces,
    question,
    reason_heads,
    reasons,
    scale_note,
    shares,
    steps_line,
    together_lines,
    trust_numbers,
    trusts,
    under_headlines,
    unit_name,
)
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


BAR = 20  # characters
GAUGE = 40  # characters
LINE = 88  # characters of a sentence
STRONG = 0.3  # of the peak: from here on units have a background
ENDLESS = 10_000  # characters of a line where nobody looks at it
COLOURLESS = ("dumb", "unknown")  # what terminals without colours call themselves
ANSWER = Style(underline=True)
CUT_TEXT = 60  # characters that are shown of what the model did not read


class SafeText(rich.text.Text):
    """Rich's text, in which characters that would steer the terminal are shown."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(visible(text), style, **options)

    def append(self, text: rich.text.Text | str, style: str | Style | None = None) -> "SafeText":
        """Add text, shown as it is safe to."""
        super().append(visible(text) if isinstance(text, str) else text, style)
        return self


def to_text(shown: RenderableType, width: int | None = None) -> str:
    """What `print` shows: with colours if standard output is a terminal that has some, and NO_COLOR is not set."""
    coloured = has_colours()
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        force_terminal=coloured,
        color_system="truecolor" if coloured else None,
        width=width or terminal_width(),
        highlight=False,
        emoji=False,
        markup=False,
    )
    console.print(shown, end="", soft_wrap=isinstance(shown, rich.text.Text))
    return buffer.getvalue()


def has_colours() -> bool:
    """Whether standard output is a terminal on which colours are wanted."""
    colourless = os.environ.get("NO_COLOR") or os.environ.get("TERM", "").casefold() in COLOURLESS
    return _is_terminal() and not colourless


def terminal_width(otherwise: int = ENDLESS) -> int:
    """The columns of the terminal, or else of a file."""
    return shutil.get_terminal_size().columns if _is_terminal() else otherwise


def _columns() -> int:
    """The columns that a picture may have."""
    return terminal_width(otherwise=LINE)


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def explanation_text(explanation: ExplanationData, count: int = 6) -> SafeText:
    """The prediction, the coloured text, and the strongest units with bars."""
    text = _heading(explanation, {two_sided(explanation)})
    text.append(f"{origin(explanation)}\n", "dim")
    text.append("\n")
    if explanation.image is not None:
        text.append_text(preview(explanation, has_colours(), _columns()))
        text.append("\n\n" if explanation.texts else "")
    text.append_text(coloured_runs(explanation))
    text.append("\n\n").append_text(_bars(explanation, count))
    if steps := steps_line(explanation):
        text.append(f"\n  {steps}", "dim")
    if explanation.trusted is not None:
        text.append("\n\n").append_text(trust_text(explanation.trusted))
    if warning := note(explanation):
        text.append(f"\n! {warning}", "bold")
    return text


def comparison_text(explanations: ComparisonData[Any], count: int = 3, scale: Scale | None = None) -> SafeText:
    """The prediction, then for each method the coloured text and its strongest units; each by default on its scale.

    Where models or what they say differ, each stands under its own headline.
    """
    peak, groups = common_peak(explanations, scale or "row"), under_headlines(explanations)
    width = max(len(called(e)) for e in explanations)
    text = SafeText()
    for number, group in enumerate(groups, 1):
        text.append("\n" if text else "").append_text(_above_rows(group, peak, alone=len(groups) == 1))
        for explanation, fact in zip(group, facts_of_rows(group), strict=True):
            text.append(f"{called(explanation):<{width}}  ", "bold")
            text.append_text(_row(explanation, fact, peak, count, f"\n{'':<{width}}  ")).append("\n")
            if explanation.trusted is not None:
                text.append(f"{'':<{width}}  {_gauge(explanation.trusted, trusts(group))}")
                text.append(f"  {trust_numbers(explanation.trusted)}\n")
        for name, reason in explanations.refused if number == len(groups) else ():
            text.append(f"{name:<{width}}  {reason}\n", "dim")
        for trust in trusts(group)[:1]:
            text.append(f"\ntrust: {gauge_title(trust)}\n")
            text.append(f"  {gauge_key(trust, 'each method')}\n", "dim")
    text.rstrip()
    return text


def _above_rows(group: Sequence[ExplanationData], peak: float | None, alone: bool) -> SafeText:
    """What stands above the rows of one headline; the model only where there are several."""
    pictures = picture_in(group) is not None
    text = _heading(group[0], {two_sided(e) for e in group})
    text.append("" if alone else f"{model_of(group[0])}\n", "dim")
    notes = [scale_note(peak, "picture" if pictures else "row"), *([AGREEMENT] if len(group) > 1 else [])]
    text.append("; ".join(notes) + "\n\n", "dim")
    if pictures:
        text.append_text(previews(group, peak, has_colours(), _columns())).append("\n\n")
    return text


def _row(explanation: ExplanationData, fact: str, peak: float | None, count: int, line: str) -> SafeText:
    """The coloured text of one method, then on a new `line` its strongest units."""
    top = explanation.strongest(count if explanation.image is None else min(count, 2))
    strongest = [f"{unit_name(explanation, unit)} {written(explanation, unit.score, 3)}" for unit in top]
    text = SafeText()
    for number, part in enumerate(coloured_runs(explanation, peak).split("\n")):
        text.append(line if number else "").append(part)
    text.append(line if text else "")
    return text.append("  ".join(strongest) + (f"  ({fact})" if fact else ""), "dim")


def coloured_runs(explanation: ExplanationData, peak: float | None = None) -> SafeText:
    """The text with each unit that matters coloured, and the explained answer underlined."""
    strength, signed = strengths(explanation, peak), two_sided(explanation)
    text = SafeText()
    for piece, position, answer, cut in pieces(explanation):
        if cut:
            text.append(f"{CUT} {textwrap.shorten(piece, CUT_TEXT, placeholder=' …')} ", "dim")
            continue
        style = None if position is None else _style(float(strength[position]), signed)
        text.append(piece, ANSWER + style if answer else style)
        if position is not None and explanation.units[position].unknown:
            text.append(UNKNOWN, "dim")
    return text


def _style(strength: float, signed: bool) -> Style | None:
    """Coloured letters for weak units, a coloured background for strong ones: both read on light and on dark."""
    if abs(strength) < FAINT:
        return None
    slanted = signed and strength < 0  # a second sign for who does not see the colour
    if abs(strength) < STRONG:
        return Style(color=as_hex(hue(strength, signed)), italic=slanted or None)
    weight = 0.5 + 0.5 * (abs(strength) - STRONG) / (1 - STRONG)
    background = on_white(weight if strength > 0 else -weight, signed)
    return Style(color=as_hex(ink(background)), bgcolor=as_hex(background), italic=slanted or None)


def _heading(explanation: ExplanationData, kinds: set[bool]) -> SafeText:
    prediction = explanation.prediction
    text = SafeText()
    text.append(headline(prediction), "bold")
    rest = [f"  {name} {percent(p)}" for i, name, p in shares(prediction) if i != prediction.index][:4]
    text.append("".join(rest), "dim")
    text.append(f"\n{question(explanation)}  ", "bold")
    if True in kinds:
        text.append(" + for ", _style(1, signed=True))
        text.append(" ")
        text.append(" - against ", _style(-1, signed=True))
    if False in kinds:
        text.append(" matters ", _style(1, signed=False))
    if mark := marked(explanation):
        text.append(" ").append(mark, ANSWER)
    text.append("\n")
    return text


def _bars(explanation: ExplanationData, count: int) -> rich.text.Text:
    """The strongest words with bars, and what the model says without them."""
    top = reasons(explanation, count)
    peak = max((abs(reason.score) for reason in top), default=0) or 1
    width = max((cell_len(visible(reason.text)) for reason in top), default=0)
    wide = max((len(reason.change) for reason in top), default=0)
    scores, outputs = reason_heads(explanation)
    lines = [SafeText(f"  {'':<{width + BAR + 4}}{scores:<9}  {outputs}".rstrip(), "dim")] if top else []
    for reason in top:
        length = round(BAR * abs(reason.score) / peak)
        line = SafeText(f"  {set_cell_size(visible(reason.text), width)}  ")
        line.append("█" * length, Style(color=as_hex(reason.colour)))
        line.append(f"{'':<{BAR - length}}  {written(explanation, reason.score):<9}")
        line.append(f"  {reason.change:<{wide}}", "bold").append(f"  {reason.remark}")
        line.rstrip()
        lines.append(line)
    for name, change, remark in together_lines(explanation):
        line = SafeText(f"  {name:<{width + BAR + 13}}  ").append(f"{change:<{wide}}", "bold").append(f"  {remark}")
        line.rstrip()
        lines.append(line)
    return SafeText("\n").join(lines)


def trust_text(trust: TrustData) -> SafeText:
    """The sentence, the gauge, and the numbers behind it."""
    text = SafeText(textwrap.fill(f"trust: {trust.sentence}", LINE, subsequent_indent="  "))
    text.append(f"\n  {_gauge(trust, [trust])}  {trust_numbers(trust)}\n")
    key = f"{gauge_title(trust)}: {gauge_key(trust)}"
    text.append(textwrap.fill(key, LINE, initial_indent="  ", subsequent_indent="  "), "dim")
    return text


def _gauge(trust: TrustData, among: Sequence[TrustData]) -> str:
    """The orders on a line; where two have the same place, this one is shown, or else the best."""
    spread, *places = gauge(trust, among)
    low, high = (round(end * (GAUGE - 1)) for end in spread)
    line = ["─"] * GAUGE
    line[low : high + 1] = MARKS.spread * (high + 1 - low)
    for mark, place in zip(MARKS[1:], places, strict=True):
        if place is not None:
            line[round(place * (GAUGE - 1))] = mark
    return "".join(line)
