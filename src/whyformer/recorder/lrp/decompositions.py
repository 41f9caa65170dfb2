"""Functions that a model calls as one and that are seen as the steps they consist of."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from whyformer.recorder.attention import attend
from whyformer.recorder.lrp.dispatch import GOVERNABLE

FUSED = "scaled_dot_product_attention"


def is_in_place(name: str) -> bool:
    """Whether a function of this name changes its first operand."""
    return name in IN_PLACE or (name.endswith("_") and not name.endswith("__"))


def steps_of(name: str) -> Callable[..., Tensor] | None:
    """The function of this name, written out; None if it is not."""
    if name not in WRITTEN_OUT and is_in_place(name) and name[:-1] in GOVERNABLE and hasattr(torch, name[:-1]):
        return _in_place_of(getattr(torch, name[:-1]))
    return WRITTEN_OUT.get(name)


def is_hidden(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    """Whether a call changes numbers where the graph shows only that they are moved.

    That is a change in place of a view, or a sum in the places of an index.
    """
    if not isinstance(result, Tensor) or not result.requires_grad:
        return False
    if name.startswith("index_put"):
        return bool(kwargs.get("accumulate")) or any(a is True for a in args[3:])
    return is_in_place(name) and name not in (*MOVING_IN_PLACE, *IN_PLACE) and result._base is not None


def _scaled_added(summand: Any, other: Any, *, alpha: float = 1) -> Any:
    """`add` with a factor."""
    return summand + (other if alpha == 1 else other * alpha)


def _subtracted(minuend: Any, subtrahend: Any, *, alpha: float = 1) -> Any:
    """`sub`: a sum with the negative."""
    return minuend + (-subtrahend if alpha == 1 else subtrahend * -alpha)


def _subtracted_from(subtrahend: Any, minuend: Any) -> Any:
    """`rsub`: a sum with the negative of its first operand."""
    return minuend + -subtrahend


def _indices_added(changed: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """`index_add`: a sum with rows that were added to nothing."""
    rows = source if alpha == 1 else source * alpha
    return changed + torch.zeros_like(changed).detach().index_add(dim, index, rows)


def _added_product(added: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`baddbmm`: a bias and a scaled matrix product."""
    return (batch1 @ batch2) * alpha + added * beta


def _normalized(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """`normalize`: a vector over one number, its length."""
    length: Tensor = torch.linalg.vector_norm(x, p, dim, keepdim=True)
    return x / length.clamp_min(eps)


def _in_place_of(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """A function whose result is copied to where its first operand was."""
    return lambda changed, *args, **kwargs: changed.copy_(function(changed.clone(), *args, **kwargs))


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """What `torch.nn.MultiheadAttention` computes for [units, batch, width]; `NotImplemented` with rare options."""
    rare = (bias_k, bias_v, static_k, static_v)
    if query.dim() != 3 or add_zero_attn or (training and dropout_p) or any(option is not None for option in rare):
        return NotImplemented
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        assert in_proj_weight is not None
        weights = in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (
        torch.nn.functional.linear(x, weight, bias).unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )  # [batch, heads, units, width]
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    for mask in _masks(attn_mask, key_padding_mask, scores):
        scores = scores + mask
    probabilities = scores.softmax(-1)
    context = (probabilities @ v).permute(2, 0, 1, 3).flatten(2)
    output = torch.nn.functional.linear(context, out_proj_weight, out_proj_bias)
    if not need_weights:
        return output, None
    return output, probabilities.mean(1) if average_attn_weights else probabilities


def _masks(attended: Tensor | None, padding: Tensor | None, scores: Tensor) -> list[Tensor]:
    """Masks of torch's multi-head attention as summands of the scores: of queries and keys, and of padding."""
    masks = []
    if attended is not None:
        masks.append(attended if attended.dim() == 2 else attended.view(scores.shape))
    if padding is not None:
        masks.append(padding[:, None, None])
    zeros = torch.zeros((), dtype=scores.dtype, device=scores.device)
    return [zeros.masked_fill(m, float("-inf")) if m.dtype == torch.bool else m.to(scores.dtype) for m in masks]


MULTI_HEAD = "multi_head_attention_forward"
MOVING_IN_PLACE = frozenset(
    {"copy_", "masked_fill_", "fill_", "zero_", "index_copy_", "index_fill_", "index_put_", "squeeze_", "unsqueeze_"}
    | {"detach_", "requires_grad_", "resize_", "t_", "transpose_", "view_"}
)
IN_PLACE = frozenset({"__iadd__", "__isub__", "__imul__", "__itruediv__", "__setitem__"})

WRITTEN_OUT: dict[str, Callable[..., Tensor]] = {
    FUSED: lambda *args, **kwargs: attend(*args, **kwargs)[0],
    "baddbmm": _added_product,
    "normalize": _normalized,
    **dict.fromkeys(("add_", "__iadd__"), _in_place_of(torch.add)),
    **dict.fromkeys(("sub_", "__isub__"), _in_place_of(torch.sub)),
    **dict.fromkeys(("mul_", "__imul__"), _in_place_of(torch.mul)),
    **dict.fromkeys(("div_", "__itruediv__"), _in_place_of(torch.div)),
    "add": _scaled_added,
    **dict.fromkeys(("sub", "__sub__", "subtract"), _subtracted),
    **dict.fromkeys(("rsub", "__rsub__"), _subtracted_from),
    "index_add": _indices_added,
    "index_add_": _in_place_of(torch.index_add),
}
