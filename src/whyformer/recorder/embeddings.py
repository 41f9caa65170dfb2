"""The token embeddings as the leaf of the graph, however a model looks its tokens up."""

from collections.abc import Callable

import torch
from torch import Tensor


class TokenEmbeddings:
    """Watches the lookups of embeddings while a model runs.

    The first one of the given tokens becomes `leaf`, [batch, units, width]: also where the model lays it out with the
    units first, or with more padding. A later lookup of the same tokens, as a decoder's that starts one position later,
    gives the same leaf, so that a token's gradient is that of all its uses.
    """

    def __init__(self, weight: Tensor | None, ids: Tensor | None, edit: Callable[[Tensor], Tensor] | None):
        self.weight = weight
        self.ids = ids
        self.edit = edit
        self.leaf: Tensor | None = None

    def looked_up(self, weight: Tensor, ids: Tensor, result: Tensor) -> Tensor:
        """What a lookup gives to the model."""
        if self.weight is None and _same(ids, self.ids):
            self.weight = weight  # the model does not say which are its input embeddings
        if weight is not self.weight:
            return result
        return self._first(ids, result) if self.leaf is None else self._again(ids, result)

    def _first(self, ids: Tensor, result: Tensor) -> Tensor:
        if self.ids is not None and not _same(ids, self.ids):
            units = self.ids.shape[1]
            if _same(ids, self.ids.T):
                return self._made(result.transpose(0, 1)).transpose(0, 1).clone()
            if ids.dim() == 2 and ids.shape[1] > units and torch.equal(ids[:, :units], self.ids):
                return torch.cat((self._made(result[:, :units]), result[:, units:]), 1)
        return self._made(result).clone()  # a model may go on in place, which torch forbids on a leaf

    def _made(self, values: Tensor) -> Tensor:
        self.leaf = (self.edit(values) if self.edit else values).contiguous().requires_grad_()
        return self.leaf

    def _again(self, ids: Tensor, result: Tensor) -> Tensor:
        assert self.leaf is not None
        if _same(ids, self.ids):
            return self.leaf.clone()
        if self.ids is not None and ids.shape == self.ids.shape and torch.equal(ids[:, 1:], self.ids[:, :-1]):
            return torch.cat((result[:, :1], self.leaf[:, :-1]), 1)
        return result


def _same(ids: Tensor, others: Tensor | None) -> bool:
    """Whether two hold the same tokens; of the same memory it is known without a look, for which a GPU would wait."""
    if others is None or ids.shape != others.shape:
        return False
    in_one_place = ids.data_ptr() == others.data_ptr() and ids.stride() == others.stride() and ids.dtype == others.dtype
    return in_one_place or torch.equal(ids, others)
