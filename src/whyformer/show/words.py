"""Tables of words for the terminal and as Markdown."""

import unicodedata
from itertools import combinations, zip_longest

from whyformer.escapes import visible
from whyformer.results.word_table import TokenTable


def as_text(table: TokenTable, k: int, lines: int) -> str:
    """The highest words of each class side by side, then the words among the top k that two classes share."""
    rows = [tuple(map(visible, row)) for row in (_headings(table), *_rows(table, lines))]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    padded = [[cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)] for row in rows]
    shared = [
        f"{one} and {other} share {len(words)}: {' '.join(words)}"
        for (one, other), words in _shared(table, k).items()
        if words
    ]
    found = [*_headline(table, k), "", *("   ".join(row).rstrip() for row in padded), "", *shared]
    return visible("\n".join(found).rstrip())


def as_markdown(table: TokenTable, k: int, lines: int) -> str:
    """The same as two Markdown tables."""
    rows = [["", *map(_escaped, _headings(table))], ["---"] * (len(table.classes) + 1)]
    rows += [[str(place), *map(_escaped, row)] for place, row in enumerate(_rows(table, lines), 1)]
    if pairs := _shared(table, k):
        rows += [[], ["classes", f"shared of the top {k}", "words"], ["---"] * 3]
        rows += [[_escaped(", ".join(p)), str(len(words)), _escaped(" ".join(words))] for p, words in pairs.items()]
    found = [
        "  \n".join(map(_escaped, _headline(table, k))),
        "",
        *("| " + " | ".join(row) + " |" if row else "" for row in rows),
    ]
    return "\n".join([*found, ""])


def _headline(table: TokenTable, k: int) -> list[str]:
    said = "one class only, so there is nothing to compare"
    if len(table.classes) > 1:
        said = f"two classes share {100 * table.overlap(k):.1f} % of their top {k} words"
    about = [str(table.provenance[name]) for name in ("model", "data") if table.provenance.get(name)]
    about += [f"words weighted by {table.provenance['idf']}"] if table.provenance.get("idf") else []
    return [f"{table.method}: {said}", *([" · ".join(about)] if about else [])]


def _headings(table: TokenTable) -> list[str]:
    counts = [table.texts[index] for index in sorted(table.totals)]
    return [f"{name} ({n:,} {'text' if n == 1 else 'texts'})" for name, n in zip(table.classes, counts, strict=True)]


def _rows(table: TokenTable, lines: int) -> list[tuple[str, ...]]:
    found = [[f"{word} {score:.3g}" for word, score in table.top(lines, index)] for index in sorted(table.totals)]
    return list(zip_longest(*found, fillvalue=""))


def _shared(table: TokenTable, k: int) -> dict[tuple[str, str], tuple[str, ...]]:
    names = dict(zip(sorted(table.totals), table.classes, strict=True))
    return {(names[one], names[other]): table.shared(one, other, k) for one, other in combinations(names, 2)}


def _escaped(text: str) -> str:
    """Markdown shows these characters as they are."""
    return "".join(f"\\{character}" if character in "\\`*_|<>[]#" else character for character in text)


def _width(text: str) -> int:
    """How many columns a text takes in a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)
