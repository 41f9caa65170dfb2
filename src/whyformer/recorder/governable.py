"""Which functions of torch a rule can govern, and as which kind of site.

Each entry looks at a call and says: the kind, the call on its differentiable operands, these operands, and the
constants that the rule needs. None leaves the call as it is.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

Governed = tuple[str, Callable[..., Tensor], tuple[Tensor, ...], tuple[Any, ...]]


def _flows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _linear(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    named = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    x, weight, bias = named["input"], named["weight"], named.get("bias")
    if not _flows(x) or _flows(weight):
        return None
    return "linear", lambda x: func(x, weight, bias), (x,), (weight, bias)


def _addmm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    if kwargs or len(args) != 3 or not _flows(args[1]) or _flows(args[0]) or _flows(args[2]):
        return None
    bias, x, weight = args
    return "linear", lambda x: func(bias, x, weight), (x,), (weight.T, bias)


def _both(kind: str) -> Callable[..., Governed | None]:
    def look(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
        if kwargs or len(args) != 2 or not all(map(_flows, args)):
            return None
        return kind, func, args, ()

    return look


def _one(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """One differentiable operand, first or second."""
    flowing = [n for n, a in enumerate(args) if _flows(a)]
    if len(flowing) != 1 or any(_flows(v) for v in kwargs.values()):
        return None
    place = flowing[0]
    return "unchanged", lambda x: func(*args[:place], x, *args[place + 1 :], **kwargs), (args[place],), ()


def _quotient(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """By a constant."""
    return _one(func, args, kwargs) if _flows(args[0]) else None


def _product(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """By a constant, or of two factors that both depend on the input."""
    return _both("product")(func, args, kwargs) or _one(func, args, kwargs)


def _sum(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Governed | None:
    """A sum or mean over some dimensions; the rule needs that of the sizes."""
    if not _flows(args[0]) or (len(args) < 2 and "dim" not in kwargs):
        return None
    sizes = func(args[0].detach().abs(), *args[1:], **kwargs)
    return "sum", lambda x: func(x, *args[1:], **kwargs), (args[0],), (sizes,)


GOVERNABLE: dict[str, Callable[..., Governed | None]] = {
    "linear": _linear,
    "addmm": _addmm,
    **dict.fromkeys(("matmul", "__matmul__", "bmm"), _both("matmul")),
    **dict.fromkeys(("add", "__add__", "__radd__"), _both("add")),
    **dict.fromkeys(("softmax", "layer_norm", "gelu", "tanh", "relu", "silu", "sigmoid"), _one),
    **dict.fromkeys(("div", "__truediv__"), _quotient),
    **dict.fromkeys(("neg", "__neg__"), _one),
    **dict.fromkeys(("sum", "mean"), _sum),
    **dict.fromkeys(("mul", "__mul__", "__rmul__"), _product),
}
