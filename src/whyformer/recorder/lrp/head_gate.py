"""A gate that lets relevance into attention through some heads alone (Mask-LRP, Song et al. 2024, §4.3)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import UnsupportedModel
from whyformer.recorder.lrp.rules import divide
from whyformer.recorder.lrp.sites import Site

LARGE = 10  # a factor above it is reported


@dataclass(frozen=True)
class Entered:
    """What a gate did in one block."""

    layer: int
    sums: Tensor  # [kinds, batch]: of the relevance of kept heads
    factors: Tensor  # [kinds, batch]
    lost: Tensor  # [batch]: how much less passed than arrived
    closed: Tensor  # [batch]: whether nothing passed


class HeadGate:
    """What lets relevance into each block's `A · V` through some heads alone, and remembers what it did.

    `weights` are those of the heads, [kinds, layers, heads]. Where it is `rescaled`, the relevance of the heads of
    kind k gets the factor `sign(ΣR_k) · ΣR / |Σ_k ΣR_k|`; of one kind alone that is `ΣR / ΣR_k`.
    """

    def __init__(self, weights: Tensor, *, rescaled: bool):
        self.weights = weights
        self.rescaled = rescaled
        self.entered: list[Entered] = []
        self._maps: dict[int, Tensor] = {}

    def __call__(self, layer: int, site: Site, relevance: Tensor) -> Tensor:
        """What passes on of the relevance that arrives at a layer's product of attention and values."""
        by_head = site.by_head(relevance)
        weights = self.weights[:, layer].to(by_head)  # [kinds, heads]
        if by_head.shape[1] != weights.shape[1]:
            raise UnsupportedModel(
                f"the values of layer {layer} ({site.path}) come in {by_head.shape[1]} heads, its attention in "
                f"{weights.shape[1]}: no head of it can be masked"
            )
        if not self.rescaled:
            self._score(layer, site, relevance)
        arrived = by_head.sum((2, 3))  # [batch, heads]
        sums = weights @ arrived.T
        open_wide = len(weights) == 1 and bool((weights == 1).all())
        factors = self._factors(sums, arrived.sum(1)) if self.rescaled and not open_wide else torch.ones_like(sums)
        shares = factors.T @ weights  # [batch, heads]
        lost = (arrived * (1 - shares)).sum(1)
        self.entered.append(Entered(layer, sums, factors, lost, (shares == 0).all(1)))
        return relevance if open_wide else (by_head * shares[:, :, None, None]).reshape(relevance.shape)

    @staticmethod
    def _factors(sums: Tensor, total: Tensor) -> Tensor:
        """[kinds, batch]; 0 where nothing of an example's relevance is in kept heads."""
        kept = sums.sum(0).abs()
        return torch.where(kept == 0, 0, sums.sign() * total / kept.masked_fill(kept == 0, 1))

    def _score(self, layer: int, site: Site, relevance: Tensor) -> None:
        """Remember the relevance of the whole map, as the matrix product gives it to one factor alone."""
        attention, values = site.operands
        scores = site.by_head(attention * (divide(relevance, site.value) @ values.mT))
        self._maps[layer] = self._maps[layer] + scores if layer in self._maps else scores

    def maps(self, attention: tuple[Tensor, ...]) -> list[Tensor]:
        """The unmasked relevance of each layer's map, zeros where none arrived."""
        maps = [self._maps.get(layer, torch.zeros_like(a)).to(a.dtype) for layer, a in enumerate(attention)]
        for layer, (one, other) in enumerate(zip(maps, attention, strict=True)):
            if one.shape != other.shape:
                raise UnsupportedModel(
                    f"the attention of layer {layer} has the shape {tuple(other.shape)}, and {tuple(one.shape)} where "
                    "it meets its values: its relevance has no place in the map; use variant='paper'"
                )
        return maps

    def lost_above(self, layer: int) -> Tensor:
        """How much of each example's relevance did not pass in the layers above this one, [batch]."""
        none = torch.zeros_like(self.entered[0].lost)
        return torch.stack([none, *(e.lost for e in self.entered if e.layer > layer)]).sum(0)

    @property
    def report(self) -> dict[str, Any]:
        """How many heads each layer keeps; for each example what was lost, and in how many blocks what is odd."""
        odd = {
            "closed_blocks": [e.closed for e in self.entered],
            "negative_factors": [(e.factors < 0).any(0) for e in self.entered],
            "factors_above_10": [(e.factors.abs() > LARGE).any(0) for e in self.entered],
            "opposite_signs": [(e.sums > 0).any(0) & (e.sums < 0).any(0) for e in self.entered],
        }
        counts = {name: torch.stack(blocks).sum(0) for name, blocks in odd.items()}
        return {"kept": self.weights.any(0).sum(1).tolist(), "lost": self.lost_above(-1), **counts}
