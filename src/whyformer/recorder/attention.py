"""Attention, wherever a model computes it: inside torch's fused kernel, or step by step in the model's own code."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whyformer.number_checks import is_far

AttentionStep = Callable[[str, Callable[..., Tensor], tuple[Tensor, ...]], Tensor]  # kind of site, function, operands


@dataclass(frozen=True)
class Attention:
    """One attention map and the values that it weighs, both in the graph; None where attention stays in its kernel."""

    probabilities: Tensor | None  # [batch, heads, queries, keys]
    values: Tensor | None  # [batch, heads, keys, width]
    size: tuple[int, int]  # queries, keys
    folded: bool = False  # whether heads and examples were found in one dimension, and taken apart as examples first

    def without_maps(self) -> "Attention":
        """The same, as of attention that stays in its kernel."""
        return replace(self, probabilities=None, values=None)


def plain(kind: str, function: Callable[..., Tensor], operands: tuple[Tensor, ...]) -> Tensor:
    """A step that is nothing but a call."""
    return function(*operands)


def plain_map(attention: Tensor) -> Tensor:
    """A map that meets its values as it is."""
    return attention


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    step: AttentionStep = plain,
    enter: Callable[[Tensor], Tensor] = plain_map,
) -> tuple[Tensor, Attention]:
    """What `scaled_dot_product_attention` computes, with its probabilities in the open.

    The parameters are those of torch's function; dropout is left out, because a recorded model is in eval mode. Each
    step that a rule can govern is computed by `step`, and the map goes through `enter` before it meets its values.
    """
    folded = query.dim() == 3
    if folded:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        attn_mask = attn_mask.unsqueeze(1) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
    if enable_gqa:
        key, value = (_shared(t, query.shape[1] // t.shape[1]) for t in (key, value))
    if value.shape[1] < query.shape[1]:  # one head for all queries
        key, value = (t.expand(-1, query.shape[1], -1, -1) for t in (key, value))
    precise = torch.promote_types(query.dtype, torch.float32)  # the fused kernel keeps its scores in float32 too
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = step("matmul", lambda q, k: (q * factor) @ k.mT, (query.to(precise), key.to(precise)))
    if is_causal:
        queries, keys = scores.shape[-2:]
        attn_mask = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril()
    probabilities = enter(_masked_softmax(scores, attn_mask, step, sighted=is_causal).to(query.dtype))
    context = step("attend", torch.matmul, (probabilities, value))
    size = (probabilities.shape[-2], probabilities.shape[-1])
    return (context.squeeze(1) if folded else context), Attention(probabilities, value, size)


def _shared(heads: Tensor, times: int) -> Tensor:
    """Each head repeated, for the query heads that share it."""
    batch, count, units, width = heads.shape
    return heads[:, :, None].expand(batch, count, times, units, width).reshape(batch, count * times, units, width)


def _masked_softmax(scores: Tensor, mask: Tensor | None, step: AttentionStep, *, sighted: bool = False) -> Tensor:
    """Softmax over the keys; a query that may look nowhere gets zeros, and no NaN gradient.

    With `sighted`, every query is known to see a key.
    """
    if mask is None:
        return step("softmax", _softmax, (scores,))
    blocked = ~mask if mask.dtype == torch.bool else mask == float("-inf")
    blind = None if sighted else blocked.all(-1, keepdim=True)
    if blind is not None and not is_far(blind) and not bool(blind.any()):
        blind = None
    if mask.dtype == torch.bool:
        scores = scores.masked_fill(blocked if blind is None else blocked & ~blind, float("-inf"))
    elif mask.requires_grad:
        scores = step("add", torch.add, (scores, mask if blind is None else mask.masked_fill(blind, 0)))
    else:
        seen = mask if blind is None else mask.masked_fill(blind, 0)
        scores = step("add_constant", lambda s: s + seen, (scores,))
    probabilities = step("softmax", _softmax, (scores,))
    return probabilities if blind is None else probabilities.masked_fill(blind, 0)


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


class SoftmaxLineage:
    """Follows the result of each softmax to the matrix product that makes it attention.

    A model that does not call torch's fused kernel writes `softmax(…) @ values`, with casts, dropout, reshapes or the
    removal of a sink column in between. A softmax that never meets a matrix product (a router's, say) is no attention.
    One that weighs numbers in an elementwise product is their gate, unless it is that of chosen ones, as a router's.
    """

    CASTS = frozenset({"to", "type_as", "type", "float", "half", "bfloat16", "double"})
    SHAPES = frozenset({"contiguous", "clone", "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"})
    CHANGES = frozenset({"dropout", "__getitem__", "masked_fill", "nan_to_num", "mul", "__mul__", "__rmul__", "where"})
    KEPT_BY = CASTS | SHAPES | CHANGES
    MOVES = frozenset({"transpose", "permute", "swapaxes", "movedim"})
    MEETS_VALUES_IN = frozenset({"matmul", "__matmul__", "bmm"})

    def __init__(self, batch: int):
        self.batch = batch
        self.lines: dict[int, tuple[Tensor, ...]] = {}  # id of the newest -> the softmax and what became of it
        self.routed: set[int] = set()  # ids of those softmaxes that are taken of chosen numbers
        self.moved: dict[int, Tensor] = {}  # id -> a softmax whose dimensions changed their places

    def saw(self, name: str, operands: tuple[Any, ...], result: Any) -> None:
        """A function was called."""
        if name == "softmax" and result.requires_grad and result.dim() >= 2:
            self.lines[id(result)] = (result,)
            if _is_choice(operands[0]):
                self.routed.add(id(result))
        elif self.lines:
            self._follow(name, operands, result)

    def _follow(self, name: str, operands: tuple[Any, ...], result: Any) -> None:
        """If a function only passes a softmax on, its result is followed too."""
        line = next((self.lines[id(o)] for o in operands if id(o) in self.lines), None)
        if isinstance(result, Tensor) and name in self.MOVES and operands and self.knows(operands[0]):
            self.moved[id(result)] = result
        if line is None or not isinstance(result, Tensor) or id(result) in self.lines:
            return
        others = (o for o in operands if isinstance(o, Tensor) and o is not line[-1])
        if name in self.CASTS or (name in self.KEPT_BY and not any(o.requires_grad for o in others)):
            self.lines[id(result)] = (*line, result)

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor is a softmax, changed and moved as it may be."""
        return id(tensor) in self.lines or id(tensor) in self.moved

    def weighs(self, tensor: Tensor) -> bool:
        """Whether a tensor is a softmax whose product with other numbers weighs them: not a router's."""
        line = self.lines.get(id(tensor))
        return line is not None and id(line[0]) not in self.routed

    def meet(self, left: Tensor, right: Tensor) -> tuple[Tensor, Attention] | None:
        """`left @ right` is about to be computed: is it attention? Gives the left side to use, and the attention."""
        line = self.lines.get(id(left))
        if line is None or left.dim() < 3 or left.dim() != right.dim() or not right.requires_grad:
            return None
        whole = next((t for t in reversed(line) if t.dim() == 4 and t.shape[0] == self.batch), None)
        folded = whole is None
        if whole is None:  # heads folded into the batch, and never unfolded
            whole = left.reshape(self.batch, -1, *left.shape[-2:])
            left = whole.reshape(left.shape)
        size = (whole.shape[-2], whole.shape[-1])
        return left, Attention(whole, right.reshape(self.batch, -1, *right.shape[-2:]), size, folded)


def _is_choice(scores: Tensor) -> bool:
    """Whether numbers are the best of others, or picked by an index, and at most cast or reshaped since."""
    node = scores.grad_fn
    while node is not None and node.name().startswith(("ToCopy", "View", "Unsqueeze", "Squeeze", "Alias", "Clone")):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(("Topk", "Sort", "Gather"))
