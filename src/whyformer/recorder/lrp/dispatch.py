"""Which functions of torch a rule can govern, and as which kind of site.

Each entry looks at a call and says: the kind, the call on its differentiable operands, these operands, and the
constants that the rule needs. None leaves the call as it is.

| kind | what it is | operands, then constants |
|---|---|---|
| `linear` | `x Wᵀ + b` | x; W, b |
| `linear_map` | a product with another constant: a matrix on either side, a convolution, experts | x; M, the map |
| `attend` | attention probabilities times values | A, V |
| `matmul` | a product of two matrices that both depend on the input | two |
| `product` | an elementwise product likewise | two |
| `gated` | an elementwise product with the result of an activation | gate, other |
| `scaled` | a product or quotient with one number for a whole vector: a norm's, a router's | number, other |
| `add` | a sum of two | two |
| `add_constant` | a sum with a constant: positions, a mask, a bias | x |
| `sum` | a sum or mean over a dimension, or over windows | x; the same of its sizes |
| `norm`, `activation`, `exponential`, `softmax` | | x; for a norm its dimensions, weight, ε, whether it centres, bias |
| `scaling` | a product or quotient with a constant, a change of sign | |

Functions that a model calls as one and that are seen as the steps they consist of.

Gates: which factor of a product is the result of an activation.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.recorder.attention import attend

Governed = tuple[str, Callable[..., Tensor], tuple[Tensor, ...], tuple[Any, ...]]
OperationCall = Callable[..., Any]


def flows(value: Any) -> bool:
    """Whether a value is a tensor in the graph."""
    return isinstance(value, Tensor) and value.requires_grad


def _linear(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    named = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    x, weight, bias = named["input"], named["weight"], named.get("bias")
    if not flows(x) or flows(weight) or flows(bias):
        return None
    return "linear", lambda x: func(x, weight, bias), (x,), (weight, bias)


def _addmm(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 3 or not flows(args[1]) or flows(args[0]) or flows(args[2]):
        return None
    bias, x, weight = args
    return "linear", lambda x: func(bias, x, weight), (x,), (weight.T, bias)


def _matmul(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 2 or not any(map(flows, args)):
        return None
    left, right = args
    if flows(left) and flows(right):
        return "matmul", func, args, ()
    if flows(left) and right.dim() == 2:
        return "linear", lambda x: func(x, right), (left,), (right.mT, None)
    if flows(left):
        return "linear_map", lambda x: func(x, right), (left,), (right, func)
    return "linear_map", lambda x: func(left, x), (right,), (left, lambda x, matrix: func(matrix, x))


def _einsum(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    if len(operands) != 2 or not isinstance(equation, str):
        return None
    left, right = operands
    if flows(left) and flows(right):
        return "matmul", lambda a, b: func(equation, a, b), (left, right), ()
    if flows(left):
        return "linear_map", lambda x: func(equation, x, right), (left,), (right, lambda x, m: func(equation, x, m))
    if flows(right):
        return "linear_map", lambda x: func(equation, left, x), (right,), (left, lambda x, m: func(equation, m, x))
    return None


def _convolution(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    named = dict(zip(("input", "weight", "bias", "stride", "padding", "dilation", "groups"), args, strict=False))
    named |= kwargs
    x, weight, bias = named.pop("input"), named.pop("weight"), named.pop("bias", None)
    if not flows(x) or flows(weight):
        return None
    return (
        "linear_map",
        lambda x: func(x, weight, bias, **named),
        (x,),
        (weight, lambda x, m: func(x, m, None, **named)),
    )


def _experts(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """Rows sorted by expert, each group with its expert's matrix."""
    if len(args) < 2 or not flows(args[0]) or flows(args[1]):
        return None
    x, weight, *rest = args
    bias = kwargs.get("bias")
    plain = {k: v for k, v in kwargs.items() if k != "bias"}
    with_bias = {} if bias is None else {"bias": bias}
    return (
        "linear_map",
        lambda x: func(x, weight, *rest, **plain, **with_bias),
        (x,),
        (weight, lambda x, m: func(x, m, *rest, **plain)),
    )


def _add(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 2:
        return None
    if not all(map(flows, args)):
        return _one("add_constant")(func, args, kwargs)
    return "add", func, args, ()


def _one(kind: str) -> Callable[..., Governed | None]:
    """One differentiable operand, wherever it stands."""

    def look(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
        flowing = [n for n, a in enumerate(args) if flows(a)]
        if len(flowing) != 1 or any(flows(v) for v in kwargs.values()):
            return None
        place = flowing[0]
        return kind, lambda x: func(*args[:place], x, *args[place + 1 :], **kwargs), (args[place],), ()

    return look


def _softmax(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if not args or not flows(args[0]):
        return None
    dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    return "softmax", lambda x: func(x, *args[1:], **kwargs), (args[0],), (dim,)


def _norm(names: tuple[str, ...], epsilon: float | None) -> Callable[..., Governed | None]:
    def look(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
        named = dict(zip(names, args, strict=False)) | kwargs
        x = named.pop("input")
        if not flows(x) or any(map(flows, named.values())):
            return None
        eps = named.get("eps", epsilon)
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        dimensions = tuple(range(-len(named["normalized_shape"]), 0))
        constants = (dimensions, named.get("weight"), eps, "bias" in names, named.get("bias"))
        return "norm", lambda x: func(x, **named), (x,), constants

    return look


def _product(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 2:
        return None
    if not all(map(flows, args)):
        return _one("scaling")(func, args, kwargs)
    left, right = args
    if _is_one_number(left, right):
        return "scaled", func, (left, right), ()
    if _is_one_number(right, left):
        return "scaled", lambda number, x: func(x, number), (right, left), ()
    return "product", func, args, ()


def _quotient(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 2 or not flows(args[0]):
        return None
    if not flows(args[1]):
        return _one("scaling")(func, args, kwargs)
    if _is_one_number(args[1], args[0]):
        return "scaled", lambda number, x: func(x, number), (args[1], args[0]), ()
    return None


def _shifted(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """A vector less its own maximum, as before a softmax; other differences are written out as sums."""
    if kwargs or len(args) != 2 or not all(map(flows, args)) or not _is_one_number(args[1], args[0]):
        return None
    node = args[1].grad_fn
    while node is not None and node.name().startswith(("Unsqueeze", "View")):
        node = node.next_functions[0][0]
    if node is None or not node.name().startswith(("MaxBackward", "AmaxBackward")):
        return None
    return "scaled", lambda number, x: func(x, number), (args[1], args[0]), ()


def _is_one_number(factor: Tensor, other: Tensor) -> bool:
    """One number for each vector of the other."""
    return other.dim() > 0 and other.shape[-1] > 1 and (factor.dim() == 0 or factor.shape[-1] == 1)


def _sum(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """A sum or mean over some dimensions; the rule needs that of the sizes."""
    return _averaged(func, args, kwargs) if len(args) > 1 or kwargs.keys() & {"dim", "axis"} else None


def _averaged(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """Averages over windows likewise."""
    if not args or not flows(args[0]):
        return None
    sizes = func(args[0].detach().abs(), *args[1:], **kwargs)
    return "sum", lambda x: func(x, *args[1:], **kwargs), (args[0],), (sizes,)


def _index_add(func: OperationCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """Rows added up in their places, to nothing else."""
    if kwargs or len(args) != 4 or flows(args[0]) or not flows(args[3]):
        return None
    nothing, dim, index, rows = args
    sizes = func(nothing, dim, index, rows.detach().abs())
    return "sum", lambda x: func(nothing, dim, index, x), (rows,), (sizes,)


_ACTIVATIONS = (
    *("gelu", "tanh", "relu", "silu", "sigmoid", "clamp", "hardtanh", "leaky_relu", "elu", "softplus", "mish"),
    *("hardswish", "hardsigmoid"),
    "erf",
)

GOVERNABLE: dict[str, Callable[..., Governed | None]] = {
    "linear": _linear,
    "addmm": _addmm,
    "einsum": _einsum,
    "layer_norm": _norm(("input", "normalized_shape", "weight", "bias", "eps"), 1e-5),
    "rms_norm": _norm(("input", "normalized_shape", "weight", "eps"), None),
    "softmax": _softmax,
    "index_add": _index_add,
    **dict.fromkeys(("sub", "__sub__"), _shifted),
    **dict.fromkeys(("conv1d", "conv2d"), _convolution),
    **dict.fromkeys(("grouped_mm", "_grouped_mm"), _experts),
    **dict.fromkeys(("matmul", "__matmul__", "bmm", "mm"), _matmul),
    **dict.fromkeys(("add", "__add__", "__radd__"), _add),
    **dict.fromkeys(_ACTIVATIONS, _one("activation")),
    "exp": _one("exponential"),
    **dict.fromkeys(("neg", "__neg__"), _one("scaling")),
    **dict.fromkeys(("sum", "mean"), _sum),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d"), _averaged),
    **dict.fromkeys(("mul", "__mul__", "__rmul__", "multiply"), _product),
    **dict.fromkeys(("div", "__truediv__", "true_divide"), _quotient),
}


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


@dataclass(frozen=True)
class Origin:
    """What a tensor was before an activation and constants changed it, number by number."""

    result: "weakref.ref[Tensor]"
    of: "weakref.ref[Tensor]"
    activated: bool


class Gates:
    """Follows numbers through activations and constants to the products in which they are gates."""

    def __init__(self) -> None:
        self._origins: dict[int, Origin] = {}

    def changed(self, operand: Tensor, result: Tensor, *, activated: bool = False) -> None:
        """A number went through an activation, or was multiplied by or added to a constant, or moved."""
        before = self._origin(operand)
        self._origins[id(result)] = Origin(weakref.ref(result), before.of, activated or before.activated)

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor is followed."""
        return id(tensor) in self._origins

    def seen(
        self, call: Callable[..., Tensor], operands: tuple[Tensor, ...]
    ) -> tuple[str, Callable[..., Tensor], tuple[Tensor, ...]]:
        """The kind of a product, with the gate first if there is one.

        A number gated by itself, as in `x sigmoid(x)`, is an activation written out: the gate is held constant.
        """
        left, right = (self._origin(operand) for operand in operands)
        if left.activated == right.activated:
            return "product", call, operands
        if right.activated:
            call, operands = swapped(call), operands[::-1]
        return "scaled" if left.of() is right.of() is not None else "gated", call, operands

    def _origin(self, tensor: Tensor) -> Origin:
        origin = self._origins.get(id(tensor))
        itself = weakref.ref(tensor)
        return origin if origin is not None and origin.result() is tensor else Origin(itself, itself, False)


def swapped(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function of two operands, with its operands the other way round."""
    return lambda first, second: function(second, first)
