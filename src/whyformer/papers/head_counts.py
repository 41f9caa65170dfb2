"""The heads of a mask and the arcs of its parse in numbers: tables and lines for Figures 1 and 5 of Mask-LRP."""

from collections.abc import Iterator

import numpy as np

from whyformer.attention_heads import RELATIONS, HeadMask
from whyformer.papers.masks import is_parsed

NONE = "–"
HEAD_FIELDS = (
    *("name", "column", "block", "head", "kept", "positional", "offset", "frequency", "syntactic"),
    *(f"alpha_{relation}" for relation in RELATIONS),
)
POSITION_FIELDS = ("name", "column", "relation", "offset", "arcs", "share")

Lines = list[tuple[str, ...]]


def heads_by_block(mask: HeadMask) -> tuple[tuple[str, ...], Lines]:
    """How many heads of each block are kept, positional, and syntactic by relation; and the mean block of each kind.

    Blocks are counted from 0, the first one.
    """
    flags = {"kept": mask.kept}
    if mask.statistics is not None:
        flags["positional"] = mask.positional
    if is_parsed(mask):
        flags |= {"syntactic": mask.syntactic, **mask.by_relation}
    counts = np.stack([found.sum(1) for found in flags.values()], 1)  # [layers, kinds]
    lines = [(str(block), *map(str, counts[block].tolist())) for block in range(len(counts))]
    lines.append(("all", *map(str, counts.sum(0).tolist())))
    means = [f"{np.nonzero(found)[0].mean():.2f}" if found.any() else NONE for found in flags.values()]
    return ("block", *flags), [*lines, ("mean block", *means)]


def positions_by_relation(mask: HeadMask) -> tuple[tuple[str, ...], Lines]:
    """Of each relation the number of arcs, how many dependents stand before their head, and the most frequent place."""
    assert mask.statistics is not None
    lines: Lines = []
    for relation, found in zip(RELATIONS, mask.statistics.arcs, strict=True):
        total = sum(found.values())
        if not total:
            lines.append((relation, "0", NONE, NONE, NONE))
            continue
        before = sum(count for offset, count in found.items() if offset < 0)
        best = max(found, key=lambda offset: (found[offset], -abs(offset)))
        lines.append((relation, f"{total:,}", f"{before / total:.1%}", f"{best:+d}", f"{found[best] / total:.1%}"))
    return ("relation", "arcs", "before the head", "most frequent place", "share there (max λ)"), lines


def head_lines(name: str, column: str, mask: HeadMask) -> Iterator[tuple[object, ...]]:
    """One line for each head, in the order of `HEAD_FIELDS`."""
    for block, head in np.ndindex(mask.shape):
        yield name, column, block, head, int(mask.kept[block, head]), *_found(mask, block, head)


def _found(mask: HeadMask, block: int, head: int) -> tuple[object, ...]:
    if mask.statistics is None:
        return (None,) * (4 + len(RELATIONS))
    offset, frequency = int(mask.statistics.offsets[block, head]), float(mask.statistics.frequency[block, head])
    positional = (int(mask.positional[block, head]), offset, frequency)
    if not is_parsed(mask):
        return (*positional, *(None,) * (1 + len(RELATIONS)))
    relations = " ".join(relation for relation, found in mask.by_relation.items() if found[block, head])
    return *positional, relations, *mask.alpha[block, head].tolist()


def position_lines(name: str, column: str, mask: HeadMask) -> Iterator[tuple[object, ...]]:
    """One line for each relation and place, in the order of `POSITION_FIELDS`."""
    assert mask.statistics is not None
    for relation, found in zip(RELATIONS, mask.statistics.arcs, strict=True):
        for offset, count in sorted(found.items()):
            yield name, column, relation, offset, count, count / sum(found.values())
