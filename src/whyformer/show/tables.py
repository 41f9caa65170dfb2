"""Tables of evaluations and of costs, for terminals, pages, Markdown, CSV and LaTeX."""

import io
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

import numpy as np
import rich.text
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.style import Style
from rich.table import Table as Lines

from whyformer.methods.method import METHODS, MethodSpec, method_specs
from whyformer.models.memory import in_words
from whyformer.perturb import LONGEST_SEARCH
from whyformer.progress import duration
from whyformer.results.cost import BACKWARD, STOCK, Cost, CostTableData
from whyformer.results.evaluation import (
    CEILING,
    REFERENCES,
    RESAMPLED_CORPORA,
    SAME,
    SMALL,
    TOO_FEW,
    Aggregate,
    Difference,
    TableCell,
    TableData,
    ranked,
)
from whyformer.show.colors import FOR, as_hex
from whyformer.show.grid import LATEX, NONE, Grid, Words, in_latex, one_line, pipes, plain_grid, tabular, unmarked
from whyformer.show.grid import as_csv as grid_csv
from whyformer.show.html import STYLE
from whyformer.show.terminal import SafeText, terminal_width, to_text
from whyformer.storage.files import comma_separated

FIRST_FEW = 5
BEST = Style(bold=True, color=as_hex(FOR))
ARROWS = {True: "↑", False: "↓", None: ""}
DIFFERENCES = "Paired differences to the best of each metric"
NUMBERS_STYLE = """
.why.wide{max-width:none}.why .numbers{font-variant-numeric:tabular-nums}.why ul{padding-left:1.2em;margin:.8em 0 0}
.why .numbers td,.why .numbers th{text-align:right;white-space:nowrap;padding:.2em .8em}
.why .numbers tr>:first-child{text-align:left;position:sticky;left:0;background:var(--card)}
.why .numbers thead th{border-bottom:1px solid var(--line)}.why .numbers i{font-style:normal;color:var(--soft)}
.why .numbers .ref>*{color:var(--soft);font-style:italic}.why .numbers tbody th,.why .numbers i{font-weight:normal}
"""


@dataclass(frozen=True)
class TableEntry:
    """What stands in one place of a table: a number, its interval, and whether it is the best or tied with the best."""

    number: str = NONE
    interval: str = ""
    best: bool = False
    tied: bool = False

    def written(self, bold: str) -> str:
        """As text, with the number in the form `bold` where it is the best."""
        number = bold.format(self.number) if self.best else self.number
        return f"{'≈ ' if self.tied else ''}{number} {self.interval}".rstrip()


@dataclass(frozen=True)
class TableColumn:
    """One entry for each method. The title is a metric's label, `n` or `share`; the note has an arrow and a count."""

    metric: str
    title: str
    note: str
    entries: tuple[TableEntry, ...]


def grid(table: TableData) -> list[TableColumn]:
    """Means with intervals; the number of rows where it differs; the share of the attainable where there is one."""
    columns = []
    for metric in table.metrics:
        best, tied = table.best(metric), table.tied(metric)
        cells = [table[method, metric] for method in table.methods]
        entries = tuple(_entry(c, m == best, m in tied) for m, c in zip(table.methods, cells, strict=True))
        counts = sorted({cell.n for cell in cells if cell and cell.n})
        note = _arrow(table, metric) + (f" (n = {counts[0]})" if len(counts) == 1 else "")
        columns.append(TableColumn(metric, metric, note, entries))
        if len(counts) > 1:
            numbers = tuple(TableEntry(str(cell.n) if cell else NONE) for cell in cells)
            columns.append(TableColumn(metric, "n", "", numbers))
        shares = [table.share(method, metric) for method in table.methods]
        if any(shares):
            columns.append(TableColumn(metric, "share", "", tuple(map(_entry, shares))))
    return columns


def differences(table: TableData) -> list[TableColumn]:
    """Of each method, references aside, by how much its mean is above that of the best."""
    columns = []
    methods = _ordinary(table)
    for metric in table.metrics:
        best, tied = table.best(metric), table.tied(metric)
        if best and len(methods) > 1:
            others = {m: _entry(table.compare(metric, m, best), False, m in tied, "+") for m in methods if m != best}
            entries = tuple(others.get(method, TableEntry("best", best=True)) for method in methods)
            columns.append(TableColumn(metric, metric, _arrow(table, metric), entries))
    return columns


def _entry(cell: TableCell | Difference | None, best: bool = False, tied: bool = False, sign: str = "") -> TableEntry:
    if cell is None or math.isnan(cell.mean):
        return TableEntry()
    mean, low, high = (f"{number:{sign}z.3f}" for number in (cell.mean, cell.low, cell.high))
    return TableEntry(mean, "" if math.isnan(cell.low) else f"[{low}, {high}]", best, tied)


def _arrow(table: TableData, metric: str) -> str:
    return ARROWS[table.facts.get(metric, {}).get("higher_is_better")]


def _ordinary(table: TableData) -> list[str]:
    return [method for method in table.methods if method not in REFERENCES]


def legend(columns: Sequence[TableColumn], best: str = "best in bold") -> str:
    """What the marks in a table mean."""
    marks = ["↑ higher is better, ↓ lower is better", best]
    if any(entry.tied for column in columns for entry in column.entries):
        marks.append("≈: not reliably worse than the best, on the rows that both have")
    if any(column.title == "share" for column in columns):
        marks.append("share: (method - chance) / (ceiling - chance), over the rows that have all three")
    return "; ".join(marks)


def footer(table: TableData) -> list[str]:
    """What a reader must know beside the numbers, in sentences."""
    about = table.run.get("about", table.run)
    run = [f"{name}: {about[name]}" for name in ("model", "revision", "data") if about.get(name)]
    counted = [_examples(table), *_cut(table), *_skipped(table), *_refused(table), *_left_out(table), *_ceilings(table)]
    counted += [*_quantities(table), *_samples(table)]
    return [one_line(text) for text in (*run, *counted, *_small(table), _intervals(table))]


def _quantities(table: TableData) -> Iterator[str]:
    """A line that names the methods which explain log-odds, if there are any."""
    if table.run.get("versus") is not None or "explains" in table.run:
        return
    has_log_odds = table.run.get("about", {}).get("log_odds", False)
    methods = [label for label, spec in _specs(table) if spec.quantity == "log_odds"]
    if has_log_odds and methods:
        yield f"{', '.join(methods)}: the log-odds of the predicted class are explained; elsewhere its logit"


def _samples(table: TableData) -> Iterator[str]:
    """How many samples methods draw, where their labels do not say it."""
    for label, spec in _specs(table):
        option = spec.of.options.get("samples")
        if option is not None and "samples" not in spec.options:
            yield f"{label}: samples={option.default}{' (ten per unit, at least 200)' * (option.default == 'auto')}"


def _specs(table: TableData) -> Iterator[tuple[str, MethodSpec]]:
    """The methods of a table that are registered, by their labels."""
    for label in table.methods:
        if label.partition("(")[0] in METHODS.known:
            yield label, method_specs([label])[0]


def _small(table: TableData) -> Iterator[str]:
    """Which numbers come from a small sample."""
    samples = ((1, TOO_FEW, "too few rows to rely on any number"), (TOO_FEW, SMALL, "a small sample"))
    for least, few, remark in samples:
        counts = {metric: {n for n in _counts(table, metric) if least <= n < few} for metric in table.metrics}
        metrics = [metric for metric, small in counts.items() if small]
        if metrics:
            rows = sorted(set().union(*counts.values()))
            many = str(rows[0]) if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"
            yield f"{', '.join(metrics)}, n = {many}: {remark}"


def _intervals(table: TableData) -> str:
    """How the numbers in brackets were found."""
    resampled = [metric for metric in table.metrics if table.is_resampled(metric)]
    if not resampled:
        return f"{', '.join(table.metrics)}: no interval, since rows that are drawn again have fewer distinct texts"
    corpora = [metric for metric in resampled if table.facts.get(metric, {}).get("level") == "corpus"]
    counts = {n for metric in resampled if metric not in corpora for n in _counts(table, metric)}
    student = f"of fewer than {SMALL} rows by Student's t, of zeros and ones by Wilson's"
    few = [student] if min(counts, default=SMALL) < SMALL else []
    many = any(n >= SMALL for n in counts) or any(_counts(table, metric) for metric in corpora) or not few
    capped = corpora and table.resamples > RESAMPLED_CORPORA
    fewer = f" ({RESAMPLED_CORPORA} for {', '.join(corpora)})" if capped else ""
    drawn = [f"the percentiles of {table.resamples} resamples of the rows, seed {table.seed}{fewer}"] if many else []
    return f"in brackets: 95 % intervals, {'; '.join(drawn + few)}"


def _counts(table: TableData, metric: str) -> set[int]:
    cells = (table[method, metric] for method in table.methods)
    return {cell.n for cell in cells if cell and cell.n}


def _examples(table: TableData) -> str:
    known = [right for right in table.right.values() if right is not None]
    if not known:
        return _many(len(table.right), "example")
    of = "them" if len(known) == len(table.right) else f"the {len(known)} with a gold label"
    accuracy = f"{sum(known)} of {of} ({100 * sum(known) / len(known):.1f} %)"
    return f"{_many(len(table.right), 'example')}; the model is right on {accuracy}"


def _cut(table: TableData) -> Iterator[str]:
    if table.dropped:
        yield f"{_many(table.dropped, 'text')} cut at the model's window"


def _skipped(table: TableData) -> Iterator[str]:
    if table.skipped:
        told = [f"row {row}: {reason}" for row, reason in sorted(table.skipped.items())[:FIRST_FEW]]
        told += [f"and {len(table.skipped) - FIRST_FEW} more"] if len(table.skipped) > FIRST_FEW else []
        yield f"{_many(len(table.skipped), 'row')} skipped (counted from 0): {'; '.join(told)}"


def _refused(table: TableData) -> Iterator[str]:
    for method in table.methods:
        by_metric = [series.refused for (name, _), series in table.series.items() if name == method]
        reasons: Counter[str] = sum(map(Counter, by_metric), Counter())
        if reasons:
            rows = max(sum(refused.values()) for refused in by_metric)
            often = max(sorted(reasons), key=lambda reason: reasons[reason])
            yield f"{method} refused {_many(rows, 'row')}{', most often' if len(reasons) > 1 else ''}: {often}"


def _left_out(table: TableData) -> Iterator[str]:
    for metric in table.metrics:
        counts = {s.left_out for (m, label), s in table.series.items() if label == metric and m not in REFERENCES}
        if any(counts):
            yield f"{metric} leaves out {'up to ' if len(counts) > 1 else ''}{_many(max(counts), 'row')}"


def _ceilings(table: TableData) -> Iterator[str]:
    alike: dict[str, list[str]] = defaultdict(list)
    for metric in table.metrics:
        rows = [s.rows for (m, label), s in table.series.items() if label == metric and m not in REFERENCES]
        if rows and (ceiling := table.series.get((CEILING, metric))):
            every = np.unique(np.concatenate(rows))
            missing = len(np.setdiff1d(every, ceiling.rows))
            alike[f"{missing} of {_many(len(every), 'row')} have no ceiling" if missing else ""].append(metric)
    for sentence, metrics in alike.items():
        why = f"longer than {LONGEST_SEARCH} units, or not searched"
        told = f"{sentence} by {', '.join(metrics)} ({why}) and are left out of every share"
        yield told if sentence else f"every row has a ceiling by {', '.join(metrics)}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def as_markdown(table: TableData) -> str:
    """The table, the paired differences to the best, then what a reader must know, as a list."""
    columns = grid(table)
    parts = [_pipes(table.methods, columns)]
    if compared := differences(table):
        parts += [f"{DIFFERENCES}:", _pipes(_ordinary(table), compared)]
    parts.append("\n".join(f"- {unmarked(note)}" for note in (legend(columns), *footer(table))))
    return "\n\n".join(parts) + "\n"


def _pipes(methods: Sequence[str], columns: Sequence[TableColumn]) -> str:
    heads = [f"{_code(c.title) if c.title == c.metric else c.title} {c.note}".rstrip() for c in columns]
    names = [f"*{method}*" if method in REFERENCES else _code(method) for method in methods]
    rows = [[name, *(c.entries[n].written("**{}**") for c in columns)] for n, name in enumerate(names)]
    return pipes([["method", *heads], *rows], aligned=True)


def _code(label: str) -> str:
    before, after = ("`` ", " ``") if "`" in label else ("`", "`")
    return before + one_line(label).replace("|", r"\|") + after


def _bounds(measured: TableCell | Difference | None) -> list[float | None]:
    """The mean and the ends of its interval, those that there are."""
    numbers = (measured.mean, measured.low, measured.high) if measured else (math.nan,) * 3
    return [None if math.isnan(number) else number for number in numbers]


def curves_csv(table: TableData) -> str:
    """One line for each point of the curves, with every digit; empty where nothing has more than one point."""
    lines: list[list[object]] = [["method", "metric", "at", "mean", "low", "high", "n"]]
    for metric in table.metrics:
        for method in table.methods:
            points = table.curve_cells(method, metric)
            lines += [[method, metric, at, *_bounds(cell), cell.n] for at, cell in points if len(points) > 1]
    return comma_separated(lines) if len(lines) > 1 else ""


def as_csv(table: TableData) -> str:
    """One line for each method and metric that were measured together, with every digit."""
    more = [f"{name}{end}" for name in ("share", "difference_to_best") for end in ("", "_low", "_high")]
    lines: list[list[object]] = [["method", "metric", "mean", "low", "high", "n", "left_out", "refused", *more]]
    for metric in table.metrics:
        best = table.best(metric)
        for method in table.methods:
            if cell := table[method, metric]:
                other = table.compare(metric, method, best) if best else None
                counted = [*_bounds(cell), cell.n, cell.left_out, cell.refused]
                lines.append([method, metric, *counted, *_bounds(table.share(method, metric)), *_bounds(other)])
    return comma_separated(lines)


def as_latex(table: TableData) -> str:
    """A tabular for the package booktabs; what a reader must know stands above it as comments."""

    def entry(shown: TableEntry) -> str:
        text = shown.written(r"\textbf{{{}}}").replace("-", "$-$").replace("–", "--")
        return text.replace("≈", "≈".translate(LATEX))

    columns = grid(table)
    notes = "".join(f"% {note}\n" for note in (legend(columns), *footer(table)))
    rows = [["method", *(f"{c.title} {c.note}".rstrip().translate(LATEX) for c in columns)]]
    rows += [[in_latex(m), *(entry(c.entries[n]) for c in columns)] for n, m in enumerate(table.methods)]
    return notes + tabular(rows, len(_ordinary(table)))


def as_html(table: TableData) -> str:
    """A fragment of a page, for notebooks."""
    columns = grid(table)
    notes = "".join(f"<li>{escape(note)}</li>" for note in (legend(columns), *footer(table)))
    shown = _rows(table.methods, columns)
    if compared := differences(table):
        shown += f"<details><summary>{DIFFERENCES}</summary>{_rows(_ordinary(table), compared)}</details>"
    shown += f'<ul class="soft">{notes}</ul>'
    return f'<style>{STYLE}{NUMBERS_STYLE}</style><section class="why wide">{shown}</section>'


def _rows(methods: Sequence[str], columns: Sequence[TableColumn]) -> str:
    def entry(shown: TableEntry) -> str:
        number = f"<b>{shown.number}</b>" if shown.best else shown.number
        return f"<td>{'≈ ' if shown.tied else ''}{number} <i>{shown.interval}</i></td>"

    heads = "".join(f"<th>{escape(c.title)} <i>{c.note}</i></th>" for c in columns)
    body = []
    for place, method in enumerate(methods):
        kind = ' class="ref"' if method in REFERENCES else ""
        cells = "".join(entry(column.entries[place]) for column in columns)
        body.append(f"<tr{kind}><th>{escape(method)}</th>{cells}</tr>")
    head = f"<thead><tr><th>method</th>{heads}</tr></thead>"
    return f'<div class="scroll"><table class="numbers">{head}<tbody>{"".join(body)}</tbody></table></div>'


def as_text(table: TableData) -> str:
    """What `print` shows; if the table is wider than the terminal, the metrics stand below one another."""
    width = terminal_width()
    columns = grid(table)
    parts = [_printed(_lines(table.methods, columns))]
    if max(map(len, parts[0].plain.split("\n"))) > width:
        groups = groupby(columns, key=lambda column: column.metric)
        parts = [_printed(_lines(table.methods, list(of_metric))) for _, of_metric in groups]
    return to_text(
        SafeText("\n\n").join([*parts, SafeText("\n".join((legend(columns, "* best"), *footer(table))), "dim")])
    )


def _printed(lines: Lines) -> rich.text.Text:
    segments = Console(width=10_000, file=io.StringIO()).render(lines)
    rows = SafeText.assemble(*((segment.text, segment.style or "") for segment in segments)).split("\n")
    for row in rows:
        row.rstrip()
    return SafeText("\n").join(row for row in rows if row)


def _lines(methods: Sequence[str], columns: Sequence[TableColumn]) -> Lines:
    lines = Lines(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    lines.add_column("method", no_wrap=True)
    for column in columns:
        lines.add_column(SafeText(f"{column.title} {column.note}".rstrip()), justify="right", no_wrap=True)
    for place, method in enumerate(methods):
        entries = [_styled(column.entries[place]) for column in columns]
        lines.add_row(SafeText(method), *entries, style="dim" if method in REFERENCES else "")
    return lines


def _styled(entry: TableEntry) -> SafeText:
    text = SafeText("≈ " if entry.tied else "* " if entry.best else "")
    text.append(entry.number, BEST if entry.best else "")
    return text.append(f" {entry.interval}".rstrip(), "dim")


def live(results: Aggregate) -> Group:
    """The means so far, to be looked at while a run goes on."""
    means = results.means()
    methods = sorted(dict.fromkeys(method for method, _ in means), key=lambda method: method in REFERENCES)
    columns = []
    for metric in dict.fromkeys(metric for _, metric in means):
        higher = results.facts.get(metric, {}).get("higher_is_better")
        current = {method: means[method, metric] for method in methods if (method, metric) in means}
        rounding = SAME * sum(map(abs, current.values())) / len(current)
        compared = {method: mean for method, mean in current.items() if method not in REFERENCES}
        best = ranked(compared, higher is not False, rounding)[:1]
        shown = {method: TableEntry(f"{value:z.3f}", best=method in best) for method, value in current.items()}
        columns.append(
            TableColumn(metric, metric, ARROWS[higher], tuple(shown.get(method, TableEntry()) for method in methods))
        )
    return Group(_lines(methods, columns), SafeText(f"means of {_many(len(results.right), 'example')} so far", "dim"))


RATIO = "÷ f+b"


def in_time(seconds: float) -> str:
    """Format a time: `3.2 ms`, `1.4 s`, `5 min`."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 90 else duration(seconds)


def cost_grid(table: CostTableData, units: int) -> Grid:
    """Return a row for each pass of the stock model and each method, at one number of units."""
    plain = next((cost for cost in table.costs if (cost.name, cost.units) == (BACKWARD, units)), None)
    costs = [cost for cost in table.costs if cost.units == units]
    head, rows = (cost_title(table, units), "time", RATIO, "memory", RATIO), [_cost_row(cost, plain) for cost in costs]
    remarks = [_cost_remark(table, cost) for cost in costs]
    if not any(remarks):
        return plain_grid(head, rows)
    return plain_grid((*head, ""), [(*row, remark) for row, remark in zip(rows, remarks, strict=True)])


def _cost_row(cost: Cost, plain: Cost | None) -> tuple[str, ...]:
    """Format time and memory, each with its ratio to a plain forward and backward pass."""
    if cost.seconds is None:
        return cost.name, NONE, "", NONE, ""
    time_ratio = f"{cost.seconds / plain.seconds:.2f}" if plain and plain.seconds else ""
    if cost.memory is None:
        return cost.name, in_time(cost.seconds), time_ratio, NONE, ""
    memory_ratio = f"{cost.memory / plain.memory:.2f}" if plain and plain.memory else ""
    return cost.name, in_time(cost.seconds), time_ratio, in_words(cost.memory), memory_ratio


def _cost_remark(table: CostTableData, cost: Cost) -> str:
    """Say why a method was not measured."""
    limit = f" of {table.seconds:g} s" if cost.missing == "time limit" else ""
    return f"not measured: {cost.missing}{limit}" if cost.missing else ""


def cost_title(table: CostTableData, units: int) -> str:
    """Describe the size of the inputs."""
    size = f"an image of {units:,} units" if table.of_images else f"{units:,} token{'' if units == 1 else 's'}"
    return size if table.batch == 1 else f"{table.batch:,} × {size}"


def cost_heading(table: CostTableData) -> str:
    """Describe the model and the device."""
    about = table.about
    threads = about.get("threads")
    where = f"{about.get('dtype')} on {about.get('device')}"
    where += "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'}"
    free = [] if table.free is None else [f"{in_words(table.free)} free"]
    return one_line(" · ".join([str(about.get("model")), str(about.get("class")), where, *free]))


def cost_footer(table: CostTableData) -> list[str]:
    """Return the notes below the numbers."""
    reasons = dict.fromkeys(f"{cost.name}: {cost.reason}" for cost in table.costs if cost.reason)
    note = (
        "time: the fastest of a few runs; memory: the peak of tensors above the loaded model; f+b: forward + backward"
    )
    return [one_line(line) for line in (note, *reasons)]


def cost_text(table: CostTableData) -> str:
    """Return the model, a table for each number of units, and the notes, for a terminal."""
    width = terminal_width(otherwise=160)
    parts: list[SafeText | Lines] = [SafeText(cost_heading(table), "bold")]
    for units in table.units:
        parts += [SafeText(""), _boxed_costs(cost_grid(table, units))]
    parts += [SafeText(""), *(SafeText(note, "dim") for note in cost_footer(table))]
    return to_text(Group(*parts), width).rstrip("\n")


def _boxed_costs(rows: Grid) -> Lines:
    """Align names left and numbers right."""
    lines = Lines(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    for number, name in enumerate(rows.head):
        lines.add_column(
            SafeText(name), justify="right" if name and number else "left", no_wrap=bool(number), overflow="fold"
        )
    for row in rows.rows:
        style = "dim" if row[0].text in STOCK else ""
        lines.add_row(*(SafeText(cell.text, style) for cell in row))
    return lines


def cost_markdown(table: CostTableData) -> str:
    """Return a table for each number of units, then the notes as a list."""
    tables = []
    for units in table.units:
        rows = cost_grid(table, units)
        written = [[unmarked(cell.text) for cell in row] for row in rows.rows]
        tables.append(pipes([list(map(unmarked, rows.head)), *written], aligned=True))
    notes = "\n".join(f"- {unmarked(note)}" for note in (cost_heading(table), *cost_footer(table)))
    return "\n\n".join([*tables, notes]) + "\n"


def cost_csv(table: CostTableData) -> str:
    """Return one line for each row and number of units, with every digit."""
    head = ("name", "units", "batch", "seconds", "bytes", "missing", "reason")
    return grid_csv(Grid(head, [_cost_numbers(table, cost) for cost in table.costs]))


def _cost_numbers(table: CostTableData, cost: Cost) -> tuple[Words, ...]:
    numbers = (cost.units, table.batch, cost.seconds, cost.memory)
    cells = [Words("") if number is None else Words(str(number), number=number) for number in numbers]
    return (Words(cost.name), *cells, Words(cost.missing), Words(one_line(cost.reason)))
