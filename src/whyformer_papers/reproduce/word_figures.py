"""Figures of words: the highest ones of each class, and those that two classes share (the Decoded paper)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from whyformer.errors import BadInput
from whyformer.show.grid import NONE, Grid, plain_grid
from whyformer_papers.reproduce.result import Part, Reproduced, method_label
from whyformer_papers.reproduce.tables import FIELDS, TableRecipe
from whyformer_papers.words.clouds import wordcloud_class
from whyformer_papers.words.overlap import Counting
from whyformer_papers.words.table import TOP, WordTable, tables_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTED = Counting("token", once=True)  # as the paper counts, whatever else is measured
WORD_FIELDS = ("name", "column", "row", "class", "place", "word", "score")
NAMED = 12  # words of each class that are printed
SHOWN_AT = (1, 2, 5, 10, 20, 30, 40, 50)  # k of the curve that are printed

WordLines = list[tuple[str, ...]]


class Shared(NamedTuple):
    """The words that two classes have in common, those with the highest scores of both first."""

    row: str
    classes: tuple[str, str]
    words: tuple[str, ...]
    indices: tuple[int, int]


def word_tables(part: Part) -> dict[str, WordTable]:
    """The tokens of each class, by the rows of a column that were measured; none if no text could be explained."""
    if part.table is None:
        return {}
    try:
        by_method = tables_of(part.table, COUNTED)
    except BadInput:  # every text was refused, and the numbers say so
        return {}
    labels = {row.label: method_label(row.method) for row in part.rows}
    return {row: by_method[method] for row, method in labels.items() if method in by_method}


def compared_tables(part: Part) -> dict[str, WordTable]:
    """The tables that have several classes, which can be compared."""
    return {row: table for row, table in word_tables(part).items() if len(table.totals) > 1}


def shared_words(part: Part, k: int = TOP) -> Iterator[Shared]:
    """For every row and pair of classes the words that both have among their top k."""
    for row, table in word_tables(part).items():
        named = zip(sorted(table.totals), table.classes, strict=True)
        for (one, first), (other, second) in combinations(named, 2):
            yield Shared(row, (first, second), table.shared(one, other, k), (one, other))


@dataclass(frozen=True, kw_only=True)
class SharedWordTable(TableRecipe):
    """How many words two classes share, and which.

    `printed` has the tokens that the paper prints, by the labels of row and column and the indices of two classes.
    """

    printed: Mapping[tuple[str, str, tuple[int, int]], str] = field(default_factory=lambda: MappingProxyType({}))

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """The numbers, then the words."""
        label = part.column.label
        lines = [
            (
                s.row,
                " – ".join(s.classes),
                ", ".join(s.words) or NONE,
                self.printed.get((s.row, label, s.indices), NONE),
            )
            for s in shared_words(part)
        ]
        words = plain_grid(("row", "classes", "shared tokens", "published"), lines)
        return [*super().grids(reproduced, part), words]


@dataclass(frozen=True, kw_only=True)
class OverlapFigure(TableRecipe):
    """Curves of the words that two classes share among their top k: how many (`counts`), or which percentage."""

    counts: ClassVar[bool]

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """The numbers, then some points of the curves."""
        lines = [(row, *(f"{curve[k]:.2f}" for k in SHOWN_AT)) for row, curve in self.curves(part).items()]
        points = plain_grid(("row", *(f"top {k}" for k in SHOWN_AT)), lines)
        return [*super().grids(reproduced, part), points]

    def csv_lines(self, reproduced: Reproduced) -> Iterator[Sequence[object]]:
        """The numbers, then the points of the curves that are not among them."""
        yield from super().csv_lines(reproduced)
        known = {(entry.column, entry.row, entry.measure) for entry in reproduced.entries}
        for part in reproduced.parts:
            methods = {entry.row: entry.method for entry in part.entries}
            for row, curve in self.curves(part).items():
                for k, value in curve.items():
                    if (part.column.label, row, f"top {k}") not in known:
                        start = [self.name, part.column.label, row, methods[row], f"top {k}", value]
                        yield [*start, *[None] * (len(FIELDS) - len(start))]

    def curves(self, part: Part) -> dict[str, dict[int, float]]:
        """The curve of each row over the top 1 … 50 words, a mean over the pairs of classes."""
        return {
            row: {k: share * (k if self.counts else 100) for k, share in table.overlaps().items()}
            for row, table in compared_tables(part).items()
        }

    def column_drawing(self, part: Part) -> "Figure | None":
        """A curve of counts for each pair of classes, or a curve of shares for each row, if there are words."""
        from whyformer_papers.words.curves import overlap_figure, shared_figure

        tables = compared_tables(part)
        if not tables:
            return None
        figure = shared_figure(tables) if self.counts else overlap_figure(tables)
        figure.suptitle(part.column.label, x=0.01, ha="left", fontsize=11)
        return figure


@dataclass(frozen=True, kw_only=True)
class ShareFigure(OverlapFigure):
    """The shared words in percent."""

    counts: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class CountFigure(OverlapFigure):
    """How many words are shared."""

    counts: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class CloudFigure(TableRecipe):
    """The highest words of each class, as clouds."""

    def check_drawing(self) -> None:
        """Raise if there is no package that draws clouds."""
        wordcloud_class()

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """The numbers, then the highest words of each class."""
        lines: WordLines = []
        for row, table in word_tables(part).items():
            for index, name in zip(sorted(table.totals), table.classes, strict=True):
                count = table.texts[index]
                highest = ", ".join(word for word, score in table.top(NAMED, index) if score > 0)
                lines.append((row, f"{name} ({count:,} {'text' if count == 1 else 'texts'})", highest))
        return [*super().grids(reproduced, part), plain_grid(("row", "class", "highest tokens"), lines)]

    def csv_lines(self, reproduced: Reproduced) -> Iterator[Sequence[object]]:
        """One line for each of the top 50 words of each row and class."""
        yield WORD_FIELDS
        for part in reproduced.parts:
            for row, table in word_tables(part).items():
                for index, label in zip(sorted(table.totals), table.classes, strict=True):
                    for place, (word, score) in enumerate(table.top(TOP, index), 1):
                        yield self.name, part.column.label, row, label, place, word, score

    def column_drawing(self, part: Part) -> "Figure | None":
        """A cloud for each row and class, if there are words."""
        from whyformer_papers.words.clouds import clouds_figure

        tables = word_tables(part)
        return clouds_figure(tables) if tables else None
