"""The torch function mode under which a model is run."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whyformer.recorder.attention import Attention, SoftmaxLineage, attend


class Recorder(TorchFunctionMode):
    """Sees every torch function that the model calls.

    * Parameters are read as constants, so that the graph reaches from the outputs to the embeddings and no further,
      and no `requires_grad` flag of the model is touched.
    * The input embeddings become the leaf of the graph.
    * Fused attention is computed step by step; attention in the model's own code is recognised.
    """

    def __init__(
        self,
        embedding: Tensor | None,
        batch: int,
        edit: Callable[[Tensor], Tensor] | None,
        on_attention: Callable[[int], None],
    ):
        super().__init__()
        self.embedding = embedding
        self.edit = edit
        self.on_attention = on_attention
        self.embeddings: Tensor | None = None
        self.attentions: list[Attention] = []
        self.lineage = SoftmaxLineage(batch)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if name == "__get__":
            return func(*args, **kwargs)
        if func is F.embedding:
            return self._embed(func, args, kwargs)
        args = tuple(map(_constant, args))
        if kwargs:
            kwargs = {k: _constant(v) for k, v in kwargs.items()}
        if func is F.scaled_dot_product_attention:
            return self._attend(args, kwargs)
        if name in SoftmaxLineage.MEETS_VALUES_IN:
            args = self._meet(args)
        result = func(*args, **kwargs)
        if name == "softmax":
            self.lineage.start(result)
        elif self.lineage.lines:
            self.lineage.follow(name, args, result)
        return result

    def _embed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        weight = args[1] if len(args) > 1 else kwargs["weight"]
        result: Tensor = func(*args, **kwargs).detach()
        if weight is self.embedding and self.embeddings is None:
            self.embeddings = result = (self.edit(result) if self.edit else result).requires_grad_()
        return result

    def _attend(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        context, attention = attend(*args, **kwargs)
        self._see(attention)
        return context

    def _meet(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        met = self.lineage.meet(*args[:2]) if len(args) > 1 else None
        if met is None:
            return args
        self._see(met[1])
        return (met[0], *args[1:])

    def _see(self, attention: Attention) -> None:
        if attention.probabilities.requires_grad:
            self.on_attention(len(self.attentions))
            self.attentions.append(attention)


def _constant(argument: Any) -> Any:
    """The argument with parameters, also inside a list or tuple, detached."""
    kind = type(argument)
    if kind is Tensor or kind is int or argument is None:  # most are, and the next question is a slow one
        return argument
    if isinstance(argument, nn.Parameter):
        return argument.detach()
    if kind in (list, tuple) and any(isinstance(a, nn.Parameter) for a in argument):
        return kind(_constant(a) for a in argument)
    return argument


def finite(tensor: Tensor) -> bool:
    """Whether every entry is a number."""
    return bool(torch.isfinite(tensor).all())
