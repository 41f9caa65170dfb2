"""What methods cost, for the terminal, Markdown and spreadsheets."""

from collections.abc import Iterator

from rich.console import Group
from rich.table import Table as Lines

from whyformer.errors import listed
from whyformer.models.memory import in_words
from whyformer.progress import duration
from whyformer.results.cost import BACKWARD, STOCK, Cost, CostTableData
from whyformer.show.grid import NONE, Grid, Words, one_line, pipes, plain_grid, unmarked
from whyformer.show.grid import as_csv as grid_csv
from whyformer.show.terminal import Text, terminal_width, to_text

SIGNS = {"measured": "", "extrapolated": "≈ ", "at most": "≤ "}
RATIO = "÷ f+b"


def in_time(seconds: float) -> str:
    """A time for people: `3.2 ms`, `1.4 s`, `5 min`."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 90 else duration(seconds)


def grid(table: CostTableData, units: int) -> Grid:
    """A row for each pass of the stock model and each method, at one number of units."""
    plain = next((cost for cost in table.costs if (cost.name, cost.units) == (BACKWARD, units)), None)
    costs = [cost for cost in table.costs if cost.units == units]
    head, rows = (title(table, units), "time", RATIO, "memory", RATIO), [_row(cost, plain) for cost in costs]
    too_large = [table.fits(cost) is False for cost in costs]
    if not any(too_large):
        return plain_grid(head, rows)
    remarks = ["more than is free" if large else "" for large in too_large]
    return plain_grid((*head, ""), [(*row, remark) for row, remark in zip(rows, remarks, strict=True)])


def _row(cost: Cost, plain: Cost | None) -> tuple[str, ...]:
    sign = SIGNS[cost.basis]
    memory = NONE if cost.memory is None else f"{sign}{in_words(cost.memory)}"
    return cost.name, f"{sign}{in_time(cost.seconds)}", *_ratios(cost, plain, memory)


def _ratios(cost: Cost, plain: Cost | None, memory: str) -> tuple[str, str, str]:
    """The memory between the ratios of time and of memory to the plain pass; bounds have none."""
    if plain is None or "at most" in (cost.basis, plain.basis):
        return "", memory, ""
    of_memory = f"{cost.memory / plain.memory:.2f}" if cost.memory is not None and plain.memory else ""
    return f"{cost.seconds / plain.seconds:.2f}", memory, of_memory


def title(table: CostTableData, units: int) -> str:
    """How large the inputs are."""
    size = f"an image of {units:,} units" if table.of_images else f"{units:,} token{'' if units == 1 else 's'}"
    return size if table.batch == 1 else f"{table.batch:,} × {size}"


def heading(table: CostTableData) -> str:
    """The model and the machine."""
    about = table.about
    threads = about.get("threads")
    where = f"{about.get('dtype')} on {about.get('device')}"
    where += "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'}"
    free = [] if table.free is None else [f"{in_words(table.free)} free"]
    return one_line(" · ".join([str(about.get("model")), str(about.get("class")), where, *free]))


def footer(table: CostTableData) -> list[str]:
    """What a reader must know beside the numbers, in sentences."""
    notes = [
        "time: the quickest of a few runs; memory: the peak of tensors, above the loaded model; f+b: forward + backward"
    ]
    return [one_line(note) for note in (*notes, *_extrapolated(table), *_refused(table))]


def _extrapolated(table: CostTableData) -> Iterator[str]:
    """How the costs that were not measured are known."""
    by_lengths: dict[tuple[int, ...], list[str]] = {}
    for name, lengths in dict.fromkeys((c.name, c.lengths) for c in table.costs if c.basis == "extrapolated"):
        by_lengths.setdefault(lengths, []).append(name)
    if by_lengths:
        usual, *others = sorted(by_lengths, key=lambda lengths: -len(by_lengths[lengths]))
        sources = [f"from {listed(usual)} tokens", *(f"{listed(by_lengths[n])} from {listed(n)}" for n in others)]
        yield f"≈: extrapolated by a + b·n + c·n² {'; '.join(sources)}"
    bounded = list(dict.fromkeys(cost.name for cost in table.costs if cost.basis == "at most"))
    if bounded:
        yield (
            f"≤: at most so much, if it grows no faster than the square of the length: {table.seconds:g} s (--seconds) "
            f"were enough for one or two lengths of {listed(bounded)}"
        )


def _refused(table: CostTableData) -> Iterator[str]:
    for name, reason in table.refused:
        yield f"{name} refuses this model: {reason}"


def as_text(table: CostTableData) -> str:
    """For the terminal: the model, a table for each number of units, and the notes."""
    width = terminal_width(otherwise=160)
    parts: list[Text | Lines] = [Text(heading(table), "bold")]
    for units in table.units:
        parts += [Text(""), _boxed(grid(table, units))]
    parts += [Text(""), *(Text(note, "dim") for note in footer(table))]
    return to_text(Group(*parts), width).rstrip("\n")


def _boxed(rows: Grid) -> Lines:
    """Names to the left, numbers to the right."""
    lines = Lines(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    for number, name in enumerate(rows.head):
        lines.add_column(
            Text(name), justify="right" if name and number else "left", no_wrap=bool(number), overflow="fold"
        )
    for row in rows.rows:
        style = "dim" if row[0].text in STOCK else ""
        lines.add_row(*(Text(cell.text, style) for cell in row))
    return lines


def as_markdown(table: CostTableData) -> str:
    """A table for each number of units, then the notes as a list."""
    tables = []
    for units in table.units:
        rows = grid(table, units)
        written = [[unmarked(cell.text) for cell in row] for row in rows.rows]
        tables.append(pipes([list(map(unmarked, rows.head)), *written], aligned=True))
    notes = "\n".join(f"- {unmarked(note)}" for note in (heading(table), *footer(table)))
    return "\n\n".join([*tables, notes]) + "\n"


def as_csv(table: CostTableData) -> str:
    """One line for each row and number of units, with every digit."""
    head = ("name", "units", "batch", "seconds", "bytes", "basis", "lengths", "fits")
    return grid_csv(Grid(head, [_numbers(table, cost) for cost in table.costs]))


def _numbers(table: CostTableData, cost: Cost) -> tuple[Words, ...]:
    fits = table.fits(cost)
    memory = Words("") if cost.memory is None else Words(str(cost.memory), number=cost.memory)
    sizes = [Words(str(number), number=number) for number in (cost.units, table.batch)]
    texts = [cost.basis, " ".join(map(str, cost.lengths)), "" if fits is None else str(fits).casefold()]
    return (Words(cost.name), *sizes, Words(str(cost.seconds), number=cost.seconds), memory, *map(Words, texts))
