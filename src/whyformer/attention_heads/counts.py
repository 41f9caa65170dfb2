"""What is counted about the heads of a model, and what follows from the counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whyformer.errors import BadInput

RELATIONS = ("nsubj", "dobj", "amod", "advmod")
Direction = Literal["dependent_to_head", "head_to_dependent"]
DIRECTIONS: tuple[Direction, ...] = ("dependent_to_head", "head_to_dependent")

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Where the strongest attention of each head falls, in counts.

    | name | shape |
    |---|---|
    | `offsets` | [layers, heads]: the most frequent offset of the key from its query in tokens, 0 left out |
    | `offset_hits` | [layers, heads]: for how many of the `queries` it is the key's |
    | `hits` | [directions, layers, heads, relations]: for how many arcs the strongest attention finds the other word |
    | `arcs` | for each relation: offset of the dependent from its head in words → number of arcs |
    """

    offsets: Counts
    offset_hits: Counts
    queries: int
    hits: Counts
    arcs: tuple[Mapping[int, int], ...]
    sentences: int

    @property
    def frequency(self) -> Shares:
        """The share of queries whose strongest attention lies at the best offset, [layers, heads]."""
        return self.offset_hits / max(1, self.queries)

    @property
    def arc_counts(self) -> Counts:
        """How many arcs of each relation were asked about, [relations]."""
        return np.array([sum(offsets.values()) for offsets in self.arcs], dtype=np.int64)

    @property
    def best_guess(self) -> Shares:
        """`max_i λ_k^i`: the share of a relation's arcs that have its most frequent offset, [relations]."""
        return np.array([max(offsets.values(), default=0) for offsets in self.arcs]) / np.maximum(1, self.arc_counts)

    @property
    def alphas(self) -> Shares:
        """`α_k`: the share of arcs whose other word is found, [directions, layers, heads, relations]."""
        return self.hits / np.maximum(1, self.arc_counts)

    def to_data(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "sentences": self.sentences,
            "queries": self.queries,
            "offsets": self.offsets.tolist(),
            "offset_hits": self.offset_hits.tolist(),
            "relations": {
                relation: {
                    "arcs": {str(offset): count for offset, count in sorted(self.arcs[k].items())},
                    **{direction: self.hits[d, :, :, k].tolist() for d, direction in enumerate(DIRECTIONS)},
                }
                for k, relation in enumerate(RELATIONS)
            },
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "HeadStatistics":
        """From what `to_data` gave."""
        relations = [data["relations"][relation] for relation in RELATIONS]
        hits = [np.stack([np.array(r[direction], dtype=np.int64) for r in relations], -1) for direction in DIRECTIONS]
        arcs = tuple({int(offset): int(count) for offset, count in r["arcs"].items()} for r in relations)
        offsets, offset_hits = (np.array(data[name], dtype=np.int64) for name in ("offsets", "offset_hits"))
        if offsets.ndim != 2 or offset_hits.shape != offsets.shape or hits[0].shape[:2] != offsets.shape:
            raise BadInput(f"head statistics of shapes {offsets.shape}, {offset_hits.shape} and {hits[0].shape[:2]}")
        return cls(offsets, offset_hits, int(data["queries"]), np.stack(hits), arcs, int(data["sentences"]))
