"""A table as it is printed anywhere: in Markdown, and in boxes on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import RenderableType

NONE = "–"


class Words(NamedTuple):
    """What stands in a cell, and whether it stands out."""

    text: str
    bold: bool = False


class Grid(NamedTuple):
    """Titles and rows of cells."""

    head: tuple[str, ...]
    rows: list[tuple[Words, ...]]


def plain_grid(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> Grid:
    """A grid in which no cell stands out."""
    return Grid(head, [tuple(Words(cell) for cell in line) for line in lines])


def as_markdown(grid: Grid) -> str:
    """The grid with pipes between its cells."""
    lines = [grid.head, ("---",) * len(grid.head)]
    lines += [tuple(f"**{_escaped(c.text)}**" if c.bold else _escaped(c.text) for c in row) for row in grid.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def boxed(grid: Grid) -> "RenderableType":
    """The grid for a terminal."""
    from rich.table import Table

    from whyformer.show.terminal import Text

    table = Table(*grid.head, box=None, pad_edge=False, padding=(0, 2, 1 if not grid.rows else 0, 0))
    for row in grid.rows:
        table.add_row(*(Text(cell.text, "bold" if cell.bold else "") for cell in row))
    table.add_row()
    return table


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def _escaped(cell: str) -> str:
    return one_line(cell).replace("|", r"\|")
