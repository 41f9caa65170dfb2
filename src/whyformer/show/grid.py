"""Tables of text, whatever is in them: as Markdown, CSV, LaTeX, and in columns on a terminal."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from whyformer.storage.files import comma_separated

if TYPE_CHECKING:
    from rich.console import RenderableType

NONE = "–"
NAMED = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
SIGNS = {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "≈": r"$\approx$", "[": "{[}"} | {c: rf"\{c}" for c in "&%$#_{}"}
LATEX = str.maketrans(SIGNS | {c: rf"\text{name}{{}}" for c, name in NAMED.items()})


class Words(NamedTuple):
    """What stands in a cell, and whether it stands out; a number is written with every digit where there is room."""

    text: str
    bold: bool = False
    number: float | None = None


class Grid(NamedTuple):
    """Titles and rows of cells."""

    head: tuple[str, ...]
    rows: list[tuple[Words, ...]]


def plain_grid(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> Grid:
    """A grid in which no cell stands out."""
    return Grid(head, [tuple(Words(cell) for cell in line) for line in lines])


def as_markdown(grid: Grid) -> str:
    """The grid with pipes between its cells."""
    rows = [[f"**{unmarked(c.text)}**" if c.bold else unmarked(c.text) for c in row] for row in grid.rows]
    return pipes([list(map(unmarked, grid.head)), *rows])


def pipes(rows: Sequence[Sequence[str]], *, aligned: bool = False) -> str:
    """Markdown that was escaped as a table, the first row for its head; if aligned, the first column to the left."""
    rule: Sequence[str] = ["---"] * len(rows[0])
    if aligned:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
        rows = [[t.rjust(w) if n else t.ljust(w) for n, (t, w) in enumerate(zip(r, widths, strict=True))] for r in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))


def as_csv(grid: Grid) -> str:
    """The grid for spreadsheets."""
    rows = [[cell.text if cell.number is None else cell.number for cell in row] for row in grid.rows]
    return comma_separated([grid.head, *rows])


def as_latex(grid: Grid) -> str:
    """The grid as a tabular for the package booktabs."""
    rows = [[rf"\textbf{{{in_latex(c.text)}}}" if c.bold else in_latex(c.text) for c in row] for row in grid.rows]
    return tabular([list(map(in_latex, grid.head)), *rows])


def tabular(rows: Sequence[Sequence[str]], above: int = 0) -> str:
    """LaTeX that was escaped as a table, the first row for its head; a line stands below the next `above` rows."""
    head, *written = [" & ".join(row) + r" \\" for row in rows]
    if 0 < above < len(written):
        written.insert(above, r"\midrule")
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}", r"\toprule", head, r"\midrule", *written]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def boxed(grid: Grid) -> "RenderableType":
    """The grid for a terminal."""
    from rich.table import Table

    from whyformer.show.terminal import SafeText

    table = Table(*grid.head, box=None, pad_edge=False, padding=(0, 2, 1 if not grid.rows else 0, 0))
    for row in grid.rows:
        table.add_row(*(SafeText(cell.text, "bold" if cell.bold else "") for cell in row))
    table.add_row()
    return table


def one_line(text: str) -> str:
    """On one line, with characters that no file can hold (of names that are not UTF-8) as they are escaped."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())


def unmarked(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    return re.sub(r"([\\`*<>\[\]|~#&]|(?<!\w)_|_(?!\w))", r"\\\1", one_line(text))


def in_latex(text: str) -> str:
    """Text on one line that LaTeX shows as it is."""
    return one_line(text).translate(LATEX)
