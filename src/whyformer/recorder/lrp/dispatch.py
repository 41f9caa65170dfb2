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
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Governed = tuple[str, Callable[..., Tensor], tuple[Tensor, ...], tuple[Any, ...]]
Call = Callable[..., Any]


def flows(value: Any) -> bool:
    """Whether a value is a tensor in the graph."""
    return isinstance(value, Tensor) and value.requires_grad


def _linear(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    named = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    x, weight, bias = named["input"], named["weight"], named.get("bias")
    if not flows(x) or flows(weight) or flows(bias):
        return None
    return "linear", lambda x: func(x, weight, bias), (x,), (weight, bias)


def _addmm(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 3 or not flows(args[1]) or flows(args[0]) or flows(args[2]):
        return None
    bias, x, weight = args
    return "linear", lambda x: func(bias, x, weight), (x,), (weight.T, bias)


def _matmul(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
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


def _einsum(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
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


def _convolution(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
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


def _experts(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
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


def _add(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 2:
        return None
    if not all(map(flows, args)):
        return _one("add_constant")(func, args, kwargs)
    return "add", func, args, ()


def _one(kind: str) -> Callable[..., Governed | None]:
    """One differentiable operand, wherever it stands."""

    def look(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
        flowing = [n for n, a in enumerate(args) if flows(a)]
        if len(flowing) != 1 or any(flows(v) for v in kwargs.values()):
            return None
        place = flowing[0]
        return kind, lambda x: func(*args[:place], x, *args[place + 1 :], **kwargs), (args[place],), ()

    return look


def _softmax(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if not args or not flows(args[0]):
        return None
    dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    return "softmax", lambda x: func(x, *args[1:], **kwargs), (args[0],), (dim,)


def _norm(names: tuple[str, ...], epsilon: float | None) -> Callable[..., Governed | None]:
    def look(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
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


def _product(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
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


def _quotient(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 2 or not flows(args[0]):
        return None
    if not flows(args[1]):
        return _one("scaling")(func, args, kwargs)
    if _is_one_number(args[1], args[0]):
        return "scaled", lambda number, x: func(x, number), (args[1], args[0]), ()
    return None


def _shifted(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
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


def _sum(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """A sum or mean over some dimensions; the rule needs that of the sizes."""
    return _averaged(func, args, kwargs) if len(args) > 1 or kwargs.keys() & {"dim", "axis"} else None


def _averaged(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """Averages over windows likewise."""
    if not args or not flows(args[0]):
        return None
    sizes = func(args[0].detach().abs(), *args[1:], **kwargs)
    return "sum", lambda x: func(x, *args[1:], **kwargs), (args[0],), (sizes,)


def _index_add(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
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
