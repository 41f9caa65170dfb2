"""Tables of words for the terminal and as Markdown."""

from itertools import combinations, zip_longest

from whyformer.escapes import visible
from whyformer.show.grid import pipes, unmarked
from whyformer.show.shortcuts import aligned
from whyformer_papers.words.table import LINES, TOP, WordTable


def as_text(table: WordTable, k: int = TOP, lines: int = LINES) -> str:
    """The words of each class side by side, and those of the top k that classes share."""
    columns = aligned([_headings(table), *_rows(table, lines)])
    shared = [
        f"{one} and {other} share {len(words)}: {' '.join(words)}"
        for (one, other), words in _shared(table, k).items()
        if words
    ]
    parts = [*_headline(table, k), "", *columns, "", *shared]
    return visible("\n".join(parts).rstrip())


def as_markdown(table: WordTable, k: int = TOP, lines: int = LINES) -> str:
    """The same as Markdown tables."""
    rows = [[str(place), *map(unmarked, row)] for place, row in enumerate(_rows(table, lines), 1)]
    parts = ["  \n".join(map(unmarked, _headline(table, k))), pipes([["", *map(unmarked, _headings(table))], *rows])]
    if pairs := _shared(table, k):
        rows = [[unmarked(", ".join(p)), str(len(words)), unmarked(" ".join(words))] for p, words in pairs.items()]
        parts.append(pipes([["classes", f"shared of the top {k}", "words"], *rows]))
    return "\n\n".join(parts) + "\n"


def _headline(table: WordTable, k: int) -> list[str]:
    finding = "one class only, so there is nothing to compare"
    if len(table.classes) > 1:
        finding = f"two classes share {100 * table.overlap(k):.1f} % of their top {k} words"
    about = [str(table.provenance[name]) for name in ("model", "data") if table.provenance.get(name)]
    about += [f"words weighted by {table.provenance['idf']}"] if table.provenance.get("idf") else []
    return [f"{table.method}: {finding}", *([" · ".join(about)] if about else [])]


def _headings(table: WordTable) -> list[str]:
    counts = [table.texts[index] for index in sorted(table.totals)]
    return [f"{name} ({n:,} {'text' if n == 1 else 'texts'})" for name, n in zip(table.classes, counts, strict=True)]


def _rows(table: WordTable, lines: int) -> list[tuple[str, ...]]:
    columns = [[f"{word} {score:.3g}" for word, score in table.top(lines, index)] for index in sorted(table.totals)]
    return list(zip_longest(*columns, fillvalue=""))


def _shared(table: WordTable, k: int) -> dict[tuple[str, str], tuple[str, ...]]:
    names = dict(zip(sorted(table.totals), table.classes, strict=True))
    return {(names[one], names[other]): table.shared(one, other, k) for one, other in combinations(names, 2)}
