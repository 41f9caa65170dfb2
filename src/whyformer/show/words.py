"""Tables of words for the terminal and as Markdown."""

from collections.abc import Sequence
from itertools import combinations, zip_longest

from rich.cells import cell_len, set_cell_size

from whyformer.escapes import visible
from whyformer.results.word_table import LINES, TOP, TokenTableData
from whyformer.show import shortcuts as leant
from whyformer.show.grid import pipes, unmarked


def as_text(table: TokenTableData, k: int = TOP, lines: int = LINES) -> str:
    """The words that the model leans on; those of each class side by side; those of the top k that classes share."""
    columns = _aligned([_headings(table), *_rows(table, lines)])
    shared = [
        f"{one} and {other} share {len(words)}: {' '.join(words)}"
        for (one, other), words in _shared(table, k).items()
        if words
    ]
    parts = [*_leaning_lines(table, lines), *_headline(table, k), "", *columns, "", *shared]
    return visible("\n".join(parts).rstrip())


def _aligned(rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> list[str]:
    """Rows in columns; those whose head is one of `numbers` stand at the right."""
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    right = [head in numbers for head in shown[0]]
    return ["   ".join(map(_padded, row, widths, right)).rstrip() for row in shown]


def _padded(cell: str, width: int, right: bool) -> str:
    return " " * (width - cell_len(cell)) + cell if right else set_cell_size(cell, width)


def _leaning_lines(table: TokenTableData, lines: int) -> list[str]:
    """The words that the model leans on, if they were counted."""
    if table.leaning is None or not table.leaning.words:
        return []
    rows = leant.rows_for_people(table, table.leaning, lines)
    columns = _aligned(rows, ("texts", "strongest", "share"))
    return [*leant.title(table, table.leaning), "", *columns, "", *leant.key(table.leaning), ""]


def as_markdown(table: TokenTableData, k: int = TOP, lines: int = LINES) -> str:
    """The same as Markdown tables."""
    rows = [[str(place), *map(unmarked, row)] for place, row in enumerate(_rows(table, lines), 1)]
    parts = ["  \n".join(map(unmarked, _headline(table, k))), pipes([["", *map(unmarked, _headings(table))], *rows])]
    if table.leaning is not None and table.leaning.words:
        leaning = [list(map(unmarked, row)) for row in leant.rows_for_people(table, table.leaning, lines)]
        above = map(
            "  \n".join, (map(unmarked, of) for of in (leant.title(table, table.leaning), leant.key(table.leaning)))
        )
        parts = [next(above), pipes(leaning), next(above), *parts]
    if pairs := _shared(table, k):
        rows = [[unmarked(", ".join(p)), str(len(words)), unmarked(" ".join(words))] for p, words in pairs.items()]
        parts.append(pipes([["classes", f"shared of the top {k}", "words"], *rows]))
    return "\n\n".join(parts) + "\n"


def _headline(table: TokenTableData, k: int) -> list[str]:
    finding = "one class only, so there is nothing to compare"
    if len(table.classes) > 1:
        finding = f"two classes share {100 * table.overlap(k):.1f} % of their top {k} words"
    about = [str(table.provenance[name]) for name in ("model", "data") if table.provenance.get(name)]
    about += [f"words weighted by {table.provenance['idf']}"] if table.provenance.get("idf") else []
    return [f"{table.method}: {finding}", *([" · ".join(about)] if about else [])]


def _headings(table: TokenTableData) -> list[str]:
    counts = [table.texts[index] for index in sorted(table.totals)]
    return [f"{name} ({n:,} {'text' if n == 1 else 'texts'})" for name, n in zip(table.classes, counts, strict=True)]


def _rows(table: TokenTableData, lines: int) -> list[tuple[str, ...]]:
    columns = [[f"{word} {score:.3g}" for word, score in table.top(lines, index)] for index in sorted(table.totals)]
    return list(zip_longest(*columns, fillvalue=""))


def _shared(table: TokenTableData, k: int) -> dict[tuple[str, str], tuple[str, ...]]:
    names = dict(zip(sorted(table.totals), table.classes, strict=True))
    return {(names[one], names[other]): table.shared(one, other, k) for one, other in combinations(names, 2)}
