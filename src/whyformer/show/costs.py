"""Time and memory of methods, for the terminal, Markdown and spreadsheets."""

from rich.console import Group
from rich.table import Table as Lines

from whyformer.models.memory import in_words
from whyformer.progress import duration
from whyformer.results.cost import BACKWARD, STOCK, Cost, CostTableData
from whyformer.show.grid import NONE, Grid, Words, one_line, pipes, plain_grid, unmarked
from whyformer.show.grid import as_csv as grid_csv
from whyformer.show.terminal import Text, terminal_width, to_text

RATIO = "÷ f+b"


def in_time(seconds: float) -> str:
    """Format a time: `3.2 ms`, `1.4 s`, `5 min`."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 90 else duration(seconds)


def grid(table: CostTableData, units: int) -> Grid:
    """Return a row for each pass of the stock model and each method, at one number of units."""
    plain = next((cost for cost in table.costs if (cost.name, cost.units) == (BACKWARD, units)), None)
    costs = [cost for cost in table.costs if cost.units == units]
    head, rows = (title(table, units), "time", RATIO, "memory", RATIO), [_row(cost, plain) for cost in costs]
    remarks = [_remark(table, cost) for cost in costs]
    if not any(remarks):
        return plain_grid(head, rows)
    return plain_grid((*head, ""), [(*row, remark) for row, remark in zip(rows, remarks, strict=True)])


def _row(cost: Cost, plain: Cost | None) -> tuple[str, ...]:
    """Format time and memory, each with its ratio to a plain forward and backward pass."""
    if cost.seconds is None:
        return cost.name, NONE, "", NONE, ""
    time_ratio = f"{cost.seconds / plain.seconds:.2f}" if plain and plain.seconds else ""
    if cost.memory is None:
        return cost.name, in_time(cost.seconds), time_ratio, NONE, ""
    memory_ratio = f"{cost.memory / plain.memory:.2f}" if plain and plain.memory else ""
    return cost.name, in_time(cost.seconds), time_ratio, in_words(cost.memory), memory_ratio


def _remark(table: CostTableData, cost: Cost) -> str:
    """Say why a method was not measured."""
    limit = f" of {table.seconds:g} s" if cost.missing == "time limit" else ""
    return f"not measured: {cost.missing}{limit}" if cost.missing else ""


def title(table: CostTableData, units: int) -> str:
    """Describe the size of the inputs."""
    size = f"an image of {units:,} units" if table.of_images else f"{units:,} token{'' if units == 1 else 's'}"
    return size if table.batch == 1 else f"{table.batch:,} × {size}"


def heading(table: CostTableData) -> str:
    """Describe the model and the device."""
    about = table.about
    threads = about.get("threads")
    where = f"{about.get('dtype')} on {about.get('device')}"
    where += "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'}"
    free = [] if table.free is None else [f"{in_words(table.free)} free"]
    return one_line(" · ".join([str(about.get("model")), str(about.get("class")), where, *free]))


def footer(table: CostTableData) -> list[str]:
    """Return the notes below the numbers."""
    reasons = dict.fromkeys(f"{cost.name}: {cost.reason}" for cost in table.costs if cost.reason)
    note = (
        "time: the fastest of a few runs; memory: the peak of tensors above the loaded model; f+b: forward + backward"
    )
    return [one_line(line) for line in (note, *reasons)]


def as_text(table: CostTableData) -> str:
    """Return the model, a table for each number of units, and the notes, for a terminal."""
    width = terminal_width(otherwise=160)
    parts: list[Text | Lines] = [Text(heading(table), "bold")]
    for units in table.units:
        parts += [Text(""), _boxed(grid(table, units))]
    parts += [Text(""), *(Text(note, "dim") for note in footer(table))]
    return to_text(Group(*parts), width).rstrip("\n")


def _boxed(rows: Grid) -> Lines:
    """Align names left and numbers right."""
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
    """Return a table for each number of units, then the notes as a list."""
    tables = []
    for units in table.units:
        rows = grid(table, units)
        written = [[unmarked(cell.text) for cell in row] for row in rows.rows]
        tables.append(pipes([list(map(unmarked, rows.head)), *written], aligned=True))
    notes = "\n".join(f"- {unmarked(note)}" for note in (heading(table), *footer(table)))
    return "\n\n".join([*tables, notes]) + "\n"


def as_csv(table: CostTableData) -> str:
    """Return one line for each row and number of units, with every digit."""
    head = ("name", "units", "batch", "seconds", "bytes", "missing", "reason")
    return grid_csv(Grid(head, [_numbers(table, cost) for cost in table.costs]))


def _numbers(table: CostTableData, cost: Cost) -> tuple[Words, ...]:
    numbers = (cost.units, table.batch, cost.seconds, cost.memory)
    cells = [Words("") if number is None else Words(str(number), number=number) for number in numbers]
    return (Words(cost.name), *cells, Words(cost.missing), Words(one_line(cost.reason)))
