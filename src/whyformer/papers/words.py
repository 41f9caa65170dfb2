"""The highest words of each class, and those that two classes share, as the Decoded paper's word figures have them."""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from whyformer.errors import BadInput
from whyformer.evaluation.word_table import TokenTable, tables_of
from whyformer.papers.recipe import Kind
from whyformer.papers.reproduced import Part, method_label
from whyformer.results.word_table import TOP

WORD_FIELDS = ("name", "column", "row", "class", "place", "word", "score")
NAMED = 12  # words of each class that are printed
SHOWN_AT = (1, 2, 5, 10, 20, 30, 40, 50)  # k of the curve that are printed

Lines = list[tuple[str, ...]]


class Shared(NamedTuple):
    """The words that two classes have in common, those with the highest scores of both first."""

    row: str
    classes: tuple[str, str]
    words: tuple[str, ...]


def word_tables(part: Part) -> dict[str, TokenTable]:
    """The words of each class, by the rows of a column that were measured; none if no text could be explained."""
    if part.table is None:
        return {}
    try:
        by_method = tables_of(part.table)
    except BadInput:  # every text was refused, and the numbers say so
        return {}
    labels = {row.label: method_label(row.method) for row in part.rows}
    return {row: by_method[method] for row, method in labels.items() if method in by_method}


def compared_tables(part: Part) -> dict[str, TokenTable]:
    """Those of several classes, which can be compared."""
    return {row: table for row, table in word_tables(part).items() if len(table.totals) > 1}


def shared_words(part: Part, k: int = TOP) -> Iterator[Shared]:
    """For every row and pair of classes the words that both have among their top k."""
    for row, table in word_tables(part).items():
        named = zip(sorted(table.totals), table.classes, strict=True)
        for (one, first), (other, second) in combinations(named, 2):
            yield Shared(row, (first, second), table.shared(one, other, k))


def shared_curves(part: Part, kind: Kind) -> dict[str, dict[int, float]]:
    """Of each row how many of the top 1 … 50 words two classes share: percent, or counts as a mean over the pairs."""
    return {
        row: {k: share * (100 if kind == "shares" else k) for k, share in table.overlaps().items()}
        for row, table in compared_tables(part).items()
    }


def curve_grid(part: Part, kind: Kind) -> tuple[tuple[str, ...], Lines]:
    """Some points of the curves as a table."""
    curves = shared_curves(part, kind).items()
    lines = [(row, *(f"{curve[k]:.2f}" for k in SHOWN_AT)) for row, curve in curves]
    return ("row", *(f"top {k}" for k in SHOWN_AT)), lines


def class_words(part: Part) -> tuple[tuple[str, ...], Lines]:
    """The highest words of each class, for every row."""
    lines: Lines = []
    for row, table in word_tables(part).items():
        for index, name in zip(sorted(table.totals), table.classes, strict=True):
            count = table.texts[index]
            highest = ", ".join(word for word, score in table.top(NAMED, index) if score > 0)
            lines.append((row, f"{name} ({count:,} {'text' if count == 1 else 'texts'})", highest))
    return ("row", "class", "highest words"), lines


def word_lines(name: str, part: Part) -> Iterator[tuple[object, ...]]:
    """One line for each of the top 50 words of each row and class, in the order of `WORD_FIELDS`."""
    for row, table in word_tables(part).items():
        for index, label in zip(sorted(table.totals), table.classes, strict=True):
            for place, (word, score) in enumerate(table.top(TOP, index), 1):
                yield name, part.column.label, row, label, place, word, score
