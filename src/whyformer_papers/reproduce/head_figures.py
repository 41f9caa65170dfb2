"""Figures of head masks: the heads of each block, and where dependents stand (Mask-LRP, Figures 5 and 1)."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from whyformer.inputs.batch import Text
from whyformer.methods.head_mask import RELATIONS, HeadMask
from whyformer.show.grid import NONE, Grid, plain_grid
from whyformer_papers.heads.figures import heads_figure, positions_figure
from whyformer_papers.reproduce.masks import is_parsed
from whyformer_papers.reproduce.recipe import RecipeColumn, Reproduction
from whyformer_papers.reproduce.result import Part, ReadyColumn, Reproduced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HeadLines = list[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class HeadMaskFigure(Reproduction):
    """A figure of the head mask of each column."""

    shows_masks: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]]

    def _can_show(self, waiting: Mapping[str, str]) -> bool:
        return True

    def reads_data(self, column: RecipeColumn, texts: Sequence[Text], *, searched: bool) -> bool:
        """Only where the mask is taken from the data."""
        return searched

    def run_column(self, column: ReadyColumn) -> Part:
        """The head mask is all that is shown."""
        return column.part(self)

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """The mask in numbers."""
        return [] if part.mask is None else [plain_grid(*self.counts(part.mask))]

    def csv_lines(self, reproduced: Reproduced) -> Iterator[Sequence[object]]:
        """The mask in every detail."""
        yield self.fields
        for part in reproduced.parts:
            if part.mask is not None:
                yield from self.lines(part.column.label, part.mask)

    def column_drawing(self, part: Part) -> "Figure | None":
        """The mask as a picture, under the name of the column and of what the heads were counted in."""
        if part.mask is None:
            return None
        corpus = part.mask.provenance.get("corpus", {})
        source = corpus.get("treebank") or corpus.get("data", part.column.data)
        same = source == part.column.data
        return self.draw(part.mask, part.column.label if same else f"{part.column.label}, heads of {source}")

    @abstractmethod
    def counts(self, mask: HeadMask) -> tuple[tuple[str, ...], HeadLines]:
        """The titles and lines of the printed table."""

    @abstractmethod
    def lines(self, column: str, mask: HeadMask) -> Iterator[tuple[object, ...]]:
        """The lines of a spreadsheet, in the order of `fields`."""

    @abstractmethod
    def draw(self, mask: HeadMask, name: str) -> "Figure":
        """The picture, with the name in its title."""


@dataclass(frozen=True, kw_only=True)
class HeadGridFigure(HeadMaskFigure):
    """Which heads of each block are kept, positional or syntactic."""

    fields: ClassVar[tuple[str, ...]] = (
        *("name", "column", "block", "head", "kept", "positional", "offset", "frequency", "syntactic"),
        *(f"alpha_{relation}" for relation in RELATIONS),
    )

    def counts(self, mask: HeadMask) -> tuple[tuple[str, ...], HeadLines]:
        """How many heads of each block, from 0 on, are kept and of each kind; and the mean block of each kind."""
        flags = {"kept": mask.kept}
        if mask.statistics is not None:
            flags["positional"] = mask.positional
        if is_parsed(mask):
            flags |= {"syntactic": mask.syntactic, **mask.by_relation}
        counts = np.stack([marked.sum(1) for marked in flags.values()], 1)  # [layers, kinds]
        lines = [(str(block), *map(str, numbers)) for block, numbers in enumerate(counts)]
        lines.append(("all", *map(str, counts.sum(0))))
        means = [f"{np.nonzero(marked)[0].mean():.2f}" if marked.any() else NONE for marked in flags.values()]
        return ("block", *flags), [*lines, ("mean block", *means)]

    def lines(self, column: str, mask: HeadMask) -> Iterator[tuple[object, ...]]:
        """One line for each head."""
        for block, head in np.ndindex(mask.shape):
            yield self.name, column, block, head, int(mask.kept[block, head]), *_facts(mask, block, head)

    def draw(self, mask: HeadMask, name: str) -> "Figure":
        """The grid of heads."""
        figure = heads_figure(mask)
        (axes,) = figure.axes
        axes.set_title(f"{name}: {axes.get_title(loc='left')}", loc="left", fontsize=10)
        return figure


@dataclass(frozen=True, kw_only=True)
class PositionFigure(HeadMaskFigure):
    """Where dependents stand from their heads, for each relation."""

    needs_parse: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("name", "column", "relation", "offset", "arcs", "share")

    def counts(self, mask: HeadMask) -> tuple[tuple[str, ...], HeadLines]:
        """The arcs of each relation, how many dependents stand before their head, and the most frequent place."""
        assert mask.statistics is not None
        lines: HeadLines = []
        for relation, arcs in zip(RELATIONS, mask.statistics.arcs, strict=True):
            total = sum(arcs.values())
            if not total:
                lines.append((relation, "0", NONE, NONE, NONE))
                continue
            before = sum(count for offset, count in arcs.items() if offset < 0)
            best = max(arcs, key=lambda offset: (arcs[offset], -abs(offset)))
            lines.append((relation, f"{total:,}", f"{before / total:.1%}", f"{best:+d}", f"{arcs[best] / total:.1%}"))
        return ("relation", "arcs", "before the head", "most frequent place", "share there (max λ)"), lines

    def lines(self, column: str, mask: HeadMask) -> Iterator[tuple[object, ...]]:
        """One line for each relation and place."""
        assert mask.statistics is not None
        for relation, arcs in zip(RELATIONS, mask.statistics.arcs, strict=True):
            for offset, count in sorted(arcs.items()):
                yield self.name, column, relation, offset, count, count / sum(arcs.values())

    def draw(self, mask: HeadMask, name: str) -> "Figure":
        """The shares of relative positions."""
        figure = positions_figure(mask)
        figure.suptitle(f"{name}: {figure.get_suptitle()}", x=0.01, ha="left", fontsize=11)
        return figure


def _facts(mask: HeadMask, block: int, head: int) -> tuple[object, ...]:
    if mask.statistics is None:
        return (None,) * (4 + len(RELATIONS))
    offset, frequency = int(mask.statistics.offsets[block, head]), float(mask.statistics.frequency[block, head])
    positional = (int(mask.positional[block, head]), offset, frequency)
    if not is_parsed(mask):
        return (*positional, *(None,) * (1 + len(RELATIONS)))
    relations = " ".join(relation for relation, marked in mask.by_relation.items() if marked[block, head])
    return *positional, relations, *mask.alpha[block, head].tolist()
