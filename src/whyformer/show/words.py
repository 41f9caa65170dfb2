"""Tables of words for the terminal and as Markdown."""

from itertools import combinations, zip_longest

from rich.cells import cell_len, set_cell_size

from whyformer.escapes import visible
from whyformer.results.word_table import LINES, TOP, TokenTableData
from whyformer.show.grid import pipes, unmarked


def as_text(table: TokenTableData, k: int = TOP, lines: int = LINES) -> str:
    """The highest words of each class side by side, then the words among the top k that two classes share."""
    rows = [tuple(map(visible, row)) for row in (_headings(table), *_rows(table, lines))]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    padded = [map(set_cell_size, row, widths) for row in rows]
    shared = [
        f"{one} and {other} share {len(words)}: {' '.join(words)}"
        for (one, other), words in _shared(table, k).items()
        if words
    ]
    parts = [*_headline(table, k), "", *("   ".join(row).rstrip() for row in padded), "", *shared]
    return visible("\n".join(parts).rstrip())


def as_markdown(table: TokenTableData, k: int = TOP, lines: int = LINES) -> str:
    """The same as two Markdown tables."""
    rows = [[str(place), *map(unmarked, row)] for place, row in enumerate(_rows(table, lines), 1)]
    parts = ["  \n".join(map(unmarked, _headline(table, k))), pipes([["", *map(unmarked, _headings(table))], *rows])]
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
