"""Head masks: which attention heads are kept, and the statistics that say why (Mask-LRP)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.arrays import BoolArray, FloatArray, IntArray
from whyformer.errors import BadInput, BadOption, nearest
from whyformer.storage.files import write
from whyformer.storage.schema import (
    Format,
    both,
    count,
    every,
    fields,
    named,
    number,
    offset,
    optional,
    plain,
    text,
    whole,
)

RELATIONS = ("nsubj", "dobj", "amod", "advmod")
Direction = Literal["dependent_to_head", "head_to_dependent"]
DIRECTIONS: tuple[Direction, ...] = ("dependent_to_head", "head_to_dependent")


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

    offsets: IntArray
    offset_hits: IntArray
    queries: int
    hits: IntArray
    arcs: tuple[Mapping[int, int], ...]
    sentences: int

    @property
    def frequency(self) -> FloatArray:
        """The share of queries whose strongest attention lies at the best offset, [layers, heads]."""
        return self.offset_hits / max(1, self.queries)

    @property
    def arc_counts(self) -> IntArray:
        """How many arcs of each relation were asked about, [relations]."""
        return np.array([sum(offsets.values()) for offsets in self.arcs], dtype=np.int64)

    @property
    def best_guess(self) -> FloatArray:
        """`max_i λ_k^i`: the share of a relation's arcs that have its most frequent offset, [relations]."""
        return np.array([max(offsets.values(), default=0) for offsets in self.arcs]) / np.maximum(1, self.arc_counts)

    @property
    def alphas(self) -> FloatArray:
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


SCHEMA = "whyformer/head-mask"
SCHEMA_VERSION = 1
POSITIONAL, SYNTACTIC = 0.8, 0.1  # the thresholds of the paper

DirectionChoice = Literal["either", "dependent_to_head", "head_to_dependent"]
DIRECTION_CHOICES: tuple[DirectionChoice, ...] = ("either", *DIRECTIONS)


@dataclass(frozen=True)
class Thresholds:
    """How often a positional head hits one offset, and by how much a syntactic one beats the best fixed offset."""

    positional: float = POSITIONAL
    syntactic: float = SYNTACTIC

    def __post_init__(self) -> None:
        if not (0 <= self.positional <= 1 and 0 <= self.syntactic <= 1):
            raise BadOption(f"thresholds are shares, in 0 … 1; found {self.positional} and {self.syntactic}")


@dataclass(frozen=True, eq=False, repr=False)
class HeadMask:
    """Which heads are kept, [layers, heads], with the statistics that say why, if there are any.

    `kept` may be given as an array, a tensor or nested lists of zeros and ones.
    """

    kept: BoolArray
    statistics: HeadStatistics | None = None
    direction: DirectionChoice = "either"
    thresholds: Thresholds = Thresholds()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = self.kept.detach().cpu().double().numpy() if isinstance(self.kept, Tensor) else np.array(self.kept)
        if values.ndim != 2 or not values.size or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
            raise BadInput(
                f"a head mask is zeros and ones [layers, heads]; found {values.dtype} of shape {values.shape}"
            )
        if self.statistics is not None and self.statistics.offsets.shape != values.shape:
            raise BadInput(f"a head mask {values.shape} with statistics of heads {self.statistics.offsets.shape}")
        if self.direction not in DIRECTION_CHOICES:
            raise BadOption(f"direction {self.direction!r} is not known; {nearest(self.direction, DIRECTION_CHOICES)}")
        kept = values.astype(bool)
        kept.setflags(write=False)
        object.__setattr__(self, "kept", kept)

    @classmethod
    def of(
        cls,
        statistics: HeadStatistics,
        *,
        direction: DirectionChoice = "either",
        thresholds: Thresholds = Thresholds(),
        provenance: Mapping[str, Any] | None = None,
    ) -> "HeadMask":
        """`M_synt ∪ M_pos`: the heads that are positional or syntactic."""
        none = np.zeros(statistics.offsets.shape, dtype=bool)
        return cls(none, statistics, direction, thresholds, provenance or {}).union

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads."""
        layers, heads = self.kept.shape
        return layers, heads

    @property
    def rate(self) -> float:
        """The share of heads that are kept."""
        return float(self.kept.mean())

    @property
    def digest(self) -> str:
        """A hash of which heads are kept, and of nothing else."""
        return hashlib.blake2b(json.dumps(self.kept.tolist()).encode(), digest_size=16).hexdigest()

    def tensor(self, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None) -> Tensor:
        """Ones for the heads that are kept, zeros for the others, [layers, heads]."""
        return torch.tensor(self.kept, dtype=dtype, device=device)

    @property
    def alpha(self) -> FloatArray:
        """`α_k` in the direction that was asked for, or the larger of both, [layers, heads, relations]."""
        return np.asarray(np.take_along_axis(self._known.alphas, self.chosen[None], 0)[0])

    @property
    def chosen(self) -> NDArray[np.int64]:
        """Which of `DIRECTIONS` `alpha` is of, [layers, heads, relations]; of two that are equal the first."""
        alphas = self._known.alphas
        if self.direction == "either":
            return np.asarray(alphas.argmax(0))
        return np.full(alphas.shape[1:], DIRECTIONS.index(self.direction))

    @property
    def positional(self) -> BoolArray:
        """Heads whose strongest attention lies at one offset, for more queries than the threshold says."""
        return np.asarray(self._known.frequency > self.thresholds.positional)

    @property
    def syntactic(self) -> BoolArray:
        """Heads that find the words of some relation."""
        return np.asarray(np.any(list(self.by_relation.values()), axis=0))

    @property
    def by_relation(self) -> dict[str, BoolArray]:
        """For each relation the heads that find its words more often than the best fixed offset would."""
        needed = self._known.best_guess + self.thresholds.syntactic
        above = (self.alpha > needed) & (self._known.arc_counts > 0)
        return {relation: above[:, :, k] for k, relation in enumerate(RELATIONS)}

    @property
    def union(self) -> "HeadMask":
        """The mask that keeps what is positional or syntactic."""
        return replace(self, kept=self.positional | self.syntactic)

    def only(self, kind: str) -> "HeadMask":
        """The mask that keeps one kind of heads: "positional", "syntactic", or those of one relation."""
        kinds = ("positional", "syntactic", *RELATIONS)
        if kind not in kinds:
            raise BadOption(f"there are no {kind!r} heads; {nearest(kind, kinds)}")
        if kind != "positional" and not self._known.arc_counts.any():
            raise BadInput("these statistics come from texts without a parse: they know no syntactic heads")
        kept = self.by_relation[kind] if kind in RELATIONS else getattr(self, kind)
        return self._made(kept, {"only": kind})

    def random(self, seed: int) -> "HeadMask":
        """A mask that keeps as many heads, drawn at random."""
        kept = np.zeros(self.kept.size, dtype=bool)
        kept[np.random.default_rng(seed).permutation(kept.size)[: int(self.kept.sum())]] = True
        return self._made(kept.reshape(self.kept.shape), {"random": {"seed": seed}})

    def corrupted(self, rate: float, seed: int) -> "HeadMask":
        """The mask with this share of its zeros switched on; with one seed a higher rate only adds to a lower one."""
        if not 0 <= rate <= 1:
            raise BadOption(f"a rate of corruption lies in 0 … 1; found {rate}")
        zeros = np.flatnonzero(~self.kept)
        count = int(np.floor(rate * len(zeros) + 0.5))
        kept = self.kept.copy().reshape(-1)
        kept[np.random.default_rng(seed).permutation(zeros)[:count]] = True
        return self._made(kept.reshape(self.kept.shape), {"corrupted": {"rate": rate, "seed": seed}})

    def save(self, path: str | Path) -> Path:
        """Write the mask as JSON."""
        content = {
            "schema": SCHEMA,
            "version": SCHEMA_VERSION,
            "kept": self.kept.astype(int).tolist(),
            "direction": self.direction,
            "thresholds": {"positional": self.thresholds.positional, "syntactic": self.thresholds.syntactic},
            "statistics": None if self.statistics is None else self.statistics.to_data(),
            "provenance": dict(self.provenance),
        }
        return write(path, _compact(content))

    @classmethod
    def load(cls, path: str | Path) -> "HeadMask":
        """Read a mask that `save` wrote."""
        content = MASK.read(path)
        try:
            counts, shares = content["statistics"], content["thresholds"]
            statistics = None if counts is None else HeadStatistics.from_data(counts)
            thresholds = Thresholds(float(shares["positional"]), float(shares["syntactic"]))
            return cls(content["kept"], statistics, content["direction"], thresholds, content["provenance"])
        except ValueError as error:  # rows of different lengths
            raise BadInput(f"the head mask {str(path)!r} is damaged or not complete: {error}") from error

    def __repr__(self) -> str:
        summary = f"{' × '.join(map(str, self.shape))} heads, {self.kept.sum()} kept ({self.rate:.0%})"
        if self.statistics is not None:
            relations = ", ".join(f"{relation} {heads.sum()}" for relation, heads in self.by_relation.items())
            summary += f"; {self.positional.sum()} positional, {self.syntactic.sum()} syntactic ({relations})"
        return f"HeadMask({summary})"

    @property
    def _known(self) -> HeadStatistics:
        if self.statistics is None:
            raise BadInput("this head mask has no statistics: make one with `whyformer heads`")
        return self.statistics

    def _made(self, kept: BoolArray, how: dict[str, Any]) -> "HeadMask":
        """A mask made from this one; its provenance says how."""
        made = [*self.provenance.get("made", ()), how]
        return replace(self, kept=kept, provenance={**self.provenance, "made": made})


def _compact(content: Mapping[str, Any]) -> str:
    """JSON with a line for each entry."""
    lines = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


_PER_HEAD = every(every(count))
_RELATION = fields({"arcs": named(count, offset), **dict.fromkeys(DIRECTIONS, _PER_HEAD)})
_STATISTICS = fields(
    {
        "sentences": count,
        "queries": count,
        "offsets": every(every(whole())),
        "offset_hits": _PER_HEAD,
        "relations": fields(dict.fromkeys(RELATIONS, _RELATION)),
    }
)
_MASK = fields(
    {
        "kept": every(every(number())),
        "direction": text,
        "thresholds": fields({"positional": number(), "syntactic": number()}),
        "statistics": optional(_STATISTICS),
        "provenance": both(plain, fields({}, {"corpus": named(plain), "sentences": count, "made": every(plain)})),
    }
)
MASK = Format("head mask", SCHEMA, SCHEMA_VERSION, (_MASK,), "version", "`whyformer heads` makes one")
