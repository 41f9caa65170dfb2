"""Reproduced as text: Markdown, CSV, and tables for a terminal."""

import math
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from whyformer.papers.examples import strongest
from whyformer.papers.head_counts import (
    HEAD_FIELDS,
    POSITION_FIELDS,
    head_lines,
    heads_by_block,
    position_lines,
    positions_by_relation,
)
from whyformer.papers.recipe import EXAMPLES, MASKS, Measure
from whyformer.papers.reproduced import Entry, Part, Reproduced, settled
from whyformer.papers.words import (
    WORD_FIELDS,
    class_words,
    curve_grid,
    shared_curves,
    shared_words,
    word_lines,
)
from whyformer.show.layout import headline
from whyformer.storage.spreadsheets import comma_separated

if TYPE_CHECKING:
    from rich.console import RenderableType

NONE = "–"
FIELDS = (
    *("name", "column", "row", "method", "measure", "ours", "low", "high", "spread", "n", "left_out", "refused"),
    *("published", "published_spread", "difference"),
)
FEW = 4  # measures: where there are more, intervals are in the CSV only
UNITS = ("name", "column", "text", "row", "unit", "score")


class Words(NamedTuple):
    """What stands in a cell, and whether it stands out."""

    text: str
    bold: bool = False


class Grid(NamedTuple):
    """A table as it is printed anywhere."""

    head: tuple[str, ...]
    rows: list[tuple[Words, ...]]


def markdown(reproduced: Reproduced, pictures: Sequence[str] = ()) -> str:
    """Ours beside the published numbers, how far they agree, and every departure, as Markdown."""
    recipe = reproduced.recipe
    said = [f"# {recipe.name}", f"{recipe.paper}. {recipe.title}."]
    said += [f"![{recipe.title}]({picture})" for picture in pictures]
    for part in reproduced.parts:
        said.append(f"## {part.column.label}")
        for comparison in part.examples:
            said += [f"> {_one_line(' / '.join(comparison[0].texts))}", headline(comparison[0].prediction)]
            said.append(_pipes(_grid(("row", "strongest"), [*strongest(comparison), *comparison.refused])))
        said += [_pipes(grid) for grid in grids(reproduced, part)]
    if reproduced.agreements:
        said += ["## Agreement", _pipes(agreement(reproduced))]
    said += ["## Departures and notes", "\n".join(f"* {_one_line(line)}" for line in reproduced.footer)]
    return "\n\n".join(said) + "\n"


def text(reproduced: Reproduced) -> str:
    """The same for a terminal, with colours if it has some."""
    from whyformer.show.terminal import Text, comparison_text, terminal_width, to_text

    width = terminal_width(otherwise=200)
    recipe = reproduced.recipe
    shown: list[RenderableType] = [Text(f"{recipe.name} · {recipe.paper}", "bold"), Text(f"{recipe.title}\n")]
    for part in reproduced.parts:
        shown.append(Text(f"{part.column.label} · {part.model}", "bold"))
        shown += [comparison_text(c.explanations, c.refused).append("\n") for c in part.examples]
        shown += [_boxed(grid) for grid in grids(reproduced, part)]
    if reproduced.agreements:
        shown += [Text("Agreement", "bold"), _boxed(agreement(reproduced))]
    shown += [Text(f"· {line}", "dim") for line in reproduced.footer]
    parts = [to_text(one, width) + ("\n" if isinstance(one, Text) else "") for one in shown]
    return "\n".join(line.rstrip() for line in "".join(parts).split("\n")).rstrip("\n")


def csv(reproduced: Reproduced) -> str:
    """One line for each number, with every digit; of a figure of texts, heads or words, one for each of these."""
    return comma_separated(_lines(reproduced))


def _lines(reproduced: Reproduced) -> Iterator[Sequence[object]]:
    recipe = reproduced.recipe
    if recipe.kind in EXAMPLES:
        yield UNITS
        yield from _scores(reproduced)
    elif recipe.kind in MASKS:
        fields, lines = (HEAD_FIELDS, head_lines) if recipe.kind == "heads" else (POSITION_FIELDS, position_lines)
        yield fields
        for part in reproduced.parts:
            if part.mask is not None:
                yield from lines(recipe.name, part.column.label, part.mask)
    elif recipe.kind == "clouds":
        yield WORD_FIELDS
        for part in reproduced.parts:
            yield from word_lines(recipe.name, part)
    else:
        yield FIELDS
        yield from (_values(recipe.name, entry) for entry in reproduced.entries)
        yield from _curve_values(reproduced)


def _scores(reproduced: Reproduced) -> Iterator[tuple[object, ...]]:
    for part in reproduced.parts:
        for number, comparison in enumerate(part.examples):
            for explanation in comparison:
                for unit, score in zip(explanation.units, explanation.scores, strict=True):
                    name = reproduced.recipe.name
                    yield name, part.column.label, number, explanation.method, unit.text, float(score)


def _values(name: str, entry: Entry) -> list[object]:
    ours, published = entry.ours, entry.published
    numbers = (
        [ours.mean, ours.low, ours.high, entry.spread, ours.n, ours.left_out, ours.refused] if ours else [None] * 7
    )
    numbers += [*published] if published else [None, None]
    found = [None if isinstance(n, float) and math.isnan(n) else n for n in [*numbers, entry.difference]]
    return [name, entry.column, entry.row, entry.method, entry.measure, *found]


def _curve_values(reproduced: Reproduced) -> Iterator[list[object]]:
    """The points of curves over k that are no numbers of the table."""
    if reproduced.recipe.kind not in ("shares", "counts"):
        return
    known = {(entry.column, entry.row, entry.measure): entry for entry in reproduced.entries}
    for part in reproduced.parts:
        methods = {entry.row: entry.method for entry in part.entries}
        for row, curve in shared_curves(part, reproduced.recipe.kind).items():
            for k, value in curve.items():
                if (part.column.label, row, f"top {k}") not in known:
                    start = [reproduced.recipe.name, part.column.label, row, methods[row], f"top {k}", value]
                    yield [*start, *[None] * (len(FIELDS) - len(start))]


def grids(reproduced: Reproduced, part: Part) -> list[Grid]:
    """The tables of one column."""
    measures = [m for m in reproduced.recipe.ready_measures if any(e.measure == m.label for e in part.entries)]
    found = []
    if part.entries:
        published = {entry.measure for entry in part.entries if entry.published}
        titles = ["row", "here"]
        for m in measures:
            titles.append(f"{m.label} {'↑' if m.higher_is_better else '↓'}")
            titles += ["published", "difference"] if m.label in published else []
        found.append(Grid(tuple(titles), list(_rows(part, measures, published, reproduced.waiting))))
    if part.mask is not None and reproduced.recipe.kind in MASKS:
        counts = heads_by_block if reproduced.recipe.kind == "heads" else positions_by_relation
        found.append(_grid(*counts(part.mask)))
    if reproduced.recipe.kind == "words":
        lines = [(s.row, " – ".join(s.classes), ", ".join(s.words) or NONE) for s in shared_words(part)]
        found.append(_grid(("row", "classes", "shared words"), lines))
    if reproduced.recipe.kind in ("shares", "counts"):
        found.append(_grid(*curve_grid(part, reproduced.recipe.kind)))
    if reproduced.recipe.kind == "clouds":
        found.append(_grid(*class_words(part)))
    return found


def agreement(reproduced: Reproduced) -> Grid:
    """How far our order of the methods is the published one."""
    head = ("column", "measure", "rows", "rank correlation", "our best", "published best of these")
    lines = [
        (a.column, a.measure, str(a.rows), _number(a.correlation, 2), *map(", ".join, (a.our_best, a.their_best)))
        for a in reproduced.agreements
    ]
    return _grid(head, lines)


def _rows(
    part: Part, measures: Sequence[Measure], published: Container[str], waiting: Container[str]
) -> Iterator[tuple[Words, ...]]:
    by_reading: dict[tuple[str, str], dict[str, Entry]] = {}
    for entry in part.entries:
        by_reading.setdefault((entry.row, entry.method), {})[entry.measure] = entry
    best = {measure.label: _best(part, measure) for measure in measures}
    last = ""
    for (row, method), entries in by_reading.items():
        absent = "waits" if row in waiting else "left out"
        cells = [Words("" if row == last else row), Words(method or absent)]
        for measure in measures:
            entry = entries[measure.label]
            own, theirs = best[measure.label]
            digits = 2 if measure.scale != 1 else 3
            cells.append(Words(_ours(entry, digits, interval=len(measures) <= FEW), entry is own))
            if measure.label in published:
                best_of_all = entry.published is not None and entry.published == theirs and row != last
                cells.append(Words(_published(entry, digits) if row != last else NONE, best_of_all))
                cells.append(Words(_number(entry.difference, digits, sign=True)))
        last = row
        yield tuple(cells)


def _best(part: Part, measure: Measure) -> tuple[Entry | None, object]:
    """Our best entry, and the best published number."""
    sign = 1 if measure.higher_is_better else -1
    own = [e for e in part.entries if e.measure == measure.label and e.main]
    measured = [e for e in own if e.measured and e.ours]
    published = [e.published for e in own if e.published]
    ours = max(measured, key=lambda e: sign * settled(e.ours.mean), default=None)  # type: ignore[union-attr]
    return ours, max(published, key=lambda number: sign * number.value, default=None)


def _ours(entry: Entry, digits: int, *, interval: bool) -> str:
    cell = entry.ours
    if cell is None:
        return NONE
    refused = f" ({cell.refused} refused)" if cell.refused else ""
    if not entry.measured:
        return f"{NONE}{refused}"
    spread = "" if entry.spread is None else f" ± {entry.spread:.{digits}f}"
    bounds = f" [{cell.low:.{digits}f}, {cell.high:.{digits}f}]" if interval and not math.isnan(cell.low) else ""
    return f"{cell.mean:.{digits}f}{spread}{bounds}{refused}"


def _published(entry: Entry, digits: int) -> str:
    if entry.published is None:
        return NONE
    value, spread = entry.published
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def _number(value: float | None, digits: int, *, sign: bool = False) -> str:
    return NONE if value is None else f"{value:{'+' if sign else ''}.{digits}f}"


def _grid(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> Grid:
    return Grid(head, [tuple(Words(cell) for cell in line) for line in lines])


def _pipes(grid: Grid) -> str:
    lines = [grid.head, ("---",) * len(grid.head)]
    lines += [tuple(f"**{_escaped(c.text)}**" if c.bold else _escaped(c.text) for c in row) for row in grid.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _boxed(grid: Grid) -> "RenderableType":
    from rich.table import Table

    from whyformer.show.terminal import Text

    table = Table(*grid.head, box=None, pad_edge=False, padding=(0, 2, 1 if not grid.rows else 0, 0))
    for row in grid.rows:
        table.add_row(*(Text(cell.text, "bold" if cell.bold else "") for cell in row))
    table.add_row()
    return table


def _escaped(cell: str) -> str:
    return _one_line(cell).replace("|", r"\|")


def _one_line(said: str) -> str:
    return " ".join(said.split())
