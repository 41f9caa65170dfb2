"""Counting where attention falls, text by text."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from whyformer.arrays import IntArray
from whyformer.methods.head_mask import RELATIONS, HeadStatistics


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of some texts; those of more texts are their sum.

    `offsets` [layers, heads, 2 reach + 1] counts the offsets from -reach to reach.
    """

    offsets: IntArray
    hits: IntArray  # [directions, layers, heads, relations]
    arcs: tuple[Counter[int], ...] = field(default_factory=lambda: tuple(Counter() for _ in RELATIONS))
    queries: int = 0
    sentences: int = 0
    truncated: int = 0  # texts of which some tokens did not fit into the window
    lost: int = 0  # arcs that could not be asked about

    def __add__(self, other: "Tally") -> "Tally":
        """All fields added up."""
        reach = max(self._reach, other._reach)
        return replace(
            self,
            offsets=self._widened(reach) + other._widened(reach),
            hits=self.hits + other.hits,
            arcs=tuple(a + b for a, b in zip(self.arcs, other.arcs, strict=True)),
            queries=self.queries + other.queries,
            sentences=self.sentences + other.sentences,
            truncated=self.truncated + other.truncated,
            lost=self.lost + other.lost,
        )

    @property
    def _reach(self) -> int:
        return int(self.offsets.shape[-1]) // 2

    def _widened(self, reach: int) -> IntArray:
        more = reach - self._reach
        return np.pad(self.offsets, ((0, 0), (0, 0), (more, more)))

    def statistics(self) -> HeadStatistics:
        """Each head's best offset: the most frequent but 0; of several the nearest, the one before the query first."""
        near = sorted((i for i in range(-self._reach, self._reach + 1) if i), key=lambda i: (abs(i), i))
        best = np.zeros(self.offsets.shape[:2], dtype=np.int64)
        hits = np.zeros_like(best)
        if near:
            counted = self.offsets[:, :, [i + self._reach for i in near]]
            hits = counted.max(-1)
            best = np.where(hits > 0, np.array(near)[counted.argmax(-1)], 0)
        return HeadStatistics(best, hits, self.queries, self.hits, tuple(map(dict, self.arcs)), self.sentences)
