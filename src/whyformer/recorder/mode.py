"""The torch function mode under which a model is run."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whyformer.recorder.attention import Attention, SoftmaxLineage, attend
from whyformer.recorder.calls import Calls
from whyformer.recorder.governable import GOVERNABLE
from whyformer.recorder.sites import Site, make_site


class Recorder(TorchFunctionMode):
    """Sees every torch function that the model calls.

    * Parameters are read as constants, so that the graph reaches from the outputs to the embeddings and no further,
      and no `requires_grad` flag of the model is touched.
    * The input embeddings become the leaf of the graph.
    * Fused attention is computed step by step; attention in the model's own code is recognised.
    * For relevance, calls that a rule can govern become sites.
    """

    def __init__(
        self,
        embedding_weight: Tensor | None,
        batch: int,
        edit: Callable[[Tensor], Tensor] | None,
        calls: Calls,
        relevance: bool,
    ):
        super().__init__()
        self.relevance = relevance
        self.batch = batch
        self.calls = calls
        self.sites: list[Site] = []
        self.embedding_weight = embedding_weight
        self.edit = edit
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
        if self.sites and (name in IN_PLACE or (name.endswith("_") and not name.endswith("__"))):
            self.sites = [site.kept_from(args[0]) for site in self.sites]
        if self.relevance and kwargs.get("inplace"):
            return self._in_place(func, args, kwargs)
        written_out = WRITTEN_OUT.get(name) if self.relevance or name == FUSED else None
        if written_out is not None and any(
            isinstance(a, Tensor) and a.requires_grad for a in (*args, *kwargs.values())
        ):
            with self:  # its steps are seen one by one, as those of a model that writes them out
                return written_out(*args, **kwargs)
        if name in SoftmaxLineage.MEETS_VALUES_IN:
            args = self._meet(args)
        result = self._call(name, func, args, kwargs) if self.relevance else func(*args, **kwargs)
        if name == "softmax":
            self.lineage.start(result)
        elif self.lineage.lines:
            self.lineage.follow(name, args, result)
        return result

    def _embed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        weight = args[1] if len(args) > 1 else kwargs["weight"]
        result: Tensor = func(*args, **kwargs).detach()
        if weight is self.embedding_weight and self.embeddings is None:
            self.embeddings = (self.edit(result) if self.edit else result).requires_grad_()
            return self.embeddings.clone()  # a model may go on in place, which torch forbids on a leaf
        return result

    def _in_place(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """An activation in place, as one that is not and a copy."""
        self.sites = [site.kept_from(args[0]) for site in self.sites]
        with self:
            changed = func(args[0].clone(), *args[1:], **{**kwargs, "inplace": False})
        copied: Tensor = args[0].copy_(changed)
        return copied

    def _call(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function, as a site if a rule can govern it."""
        governable = GOVERNABLE.get(name)
        found = governable(func, args, kwargs) if governable else None
        if found is None:
            return func(*args, **kwargs)
        kind, call, operands, constants = found
        result, site = make_site(kind, call, operands, self.calls.path, self.batch, constants)
        if site is not None:
            self.sites.append(site)
        return result

    def _meet(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        met = self.lineage.meet(*args[:2]) if len(args) > 1 else None
        if met is None:
            return args
        self._see(met[1])
        return (met[0], *args[1:])

    def _see(self, attention: Attention) -> None:
        if attention.probabilities.requires_grad:
            self.calls.attention_seen(len(self.attentions))
            self.attentions.append(attention)


def _added_product(added: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`baddbmm`: a bias and a scaled matrix product."""
    return (batch1 @ batch2) * alpha + added * beta


def _added_in_place(changed: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """`add_`: a sum, copied to where its first summand was."""
    return changed.copy_(changed.clone() + (other if alpha == 1 else other * alpha))


FUSED = "scaled_dot_product_attention"
IN_PLACE = frozenset({"__iadd__", "__isub__", "__imul__", "__itruediv__", "__setitem__"})

WRITTEN_OUT: dict[str, Callable[..., Tensor]] = {
    FUSED: lambda *args, **kwargs: attend(*args, **kwargs)[0],
    "baddbmm": _added_product,
    "add_": _added_in_place,
    "__iadd__": _added_in_place,
}


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
