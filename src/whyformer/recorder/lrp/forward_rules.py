"""Rules that act while a model runs, so that torch's own backward pass is that of a rule book.

A book that carries a gradient changes what flows back in four ways: a factor is held constant, two factors get half
each, an activation passes `f(x) / x`, the denominator of a norm is a constant. All four can be put in as the model
runs: operands are detached, go through an identity whose gradient is scaled, or meet a function with a backward pass of
its own. There are no hooks then, nothing is kept that the model's own backward pass would not keep, and attention may
stay inside its kernel: what the kernel's backward pass sends to query, key and value is scaled.

Sites and their rules (`lrp.sites`, `lrp.rules`) compute the same for every book; tests compare the two. A probe notes
the gradient at attention maps that a book holds constant, and at biases.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from whyformer.errors import UnsupportedModel
from whyformer.recorder.lrp import rules
from whyformer.recorder.lrp.rule_sets import Book, BySite
from whyformer.recorder.lrp.sites import Finish, Rule, Site, node_of_result

BiasTerms = tuple[str, Tensor]  # where a bias is added, and its products with the gradient there, summed over width
Tap = Callable[[Tensor, Tensor], Tensor]  # what is made of an attention map and its gradient, [batch, heads, …]
WITH_BIAS = ("linear", "norm")  # kinds of sites whose last constant is a bias, or None
RuleCall = Callable[..., Tensor]
RuleStep = Callable[[RuleCall, tuple[Tensor, ...], tuple[Any, ...]], Tensor]


class NotWhileRunning(UnsupportedModel):
    """A model does something that a book's rules cannot follow while it runs; the sites of a run can, or refuse it."""


class _Scaled(torch.autograd.Function):
    """The same numbers, and a gradient that is scaled."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


class _Ratio(torch.autograd.Function):
    """An activation, with `f(x) / x` in place of its derivative; only that ratio is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: RuleCall) -> Tensor:
        result = call(x)
        precise = torch.promote_types(x.dtype, torch.float32)  # the stabiliser is nothing in float16
        ratio = result.to(precise) / (x.to(precise) + rules.RATIO_STABILISER)
        ctx.save_for_backward(ratio.to(x.dtype))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.saved_tensors[0], None


class _HeldNorm(torch.autograd.Function):
    """A norm whose denominator is a constant in its backward pass (Ali et al. 2022, Eq. 6); that alone is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: RuleCall, constants: tuple[Any, ...]) -> Tensor:
        dimensions, weight, eps, centred, bias = constants
        ctx.dimensions = dimensions if centred else ()
        if centred and len(dimensions) == 1:
            result, _, inverse = torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)
        else:
            precise = x.to(torch.promote_types(x.dtype, torch.float32))
            square = precise.square().mean(dimensions, keepdim=True)
            spread = precise.var(dimensions, correction=0, keepdim=True) if centred else square
            result, inverse = call(x), (spread + eps).rsqrt()
        ctx.save_for_backward(inverse, weight)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        inverse, weight = ctx.saved_tensors
        weighted = gradient if weight is None else gradient * weight
        if ctx.dimensions:
            weighted = weighted - weighted.mean(ctx.dimensions, keepdim=True)
        return (weighted * inverse).to(gradient.dtype), None, None


class _TappedProduct(torch.autograd.Function):
    """A map times its values; in the backward pass, what they send to the map is looked at, and a share passed on."""

    @staticmethod
    def forward(
        ctx: Any, attention: Tensor, values: Tensor, note: Callable[[Tensor, Tensor], None], shares: Any
    ) -> Tensor:
        ctx.save_for_backward(attention, values)
        ctx.note, ctx.shares = note, shares
        return attention @ values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        (attention, values), (map_share, value_share) = ctx.saved_tensors, ctx.shares
        at_map = gradient @ values.mT
        ctx.note(attention, at_map)
        at_values = attention.mT @ gradient * value_share
        return (at_map * map_share if map_share else None), at_values, None, None


def scaled(x: Tensor, factor: float) -> Tensor:
    """The same numbers, and a gradient that is scaled."""
    if not x.requires_grad or factor == 1:
        return x
    return _Scaled.apply(x, factor) if factor else x.detach()  # type: ignore[no-untyped-call]


def _halved(call: RuleCall, operands: tuple[Tensor, ...], constants: tuple[Any, ...]) -> Tensor:
    return call(*(scaled(operand, 0.5) for operand in operands))


def _first_held(call: RuleCall, operands: tuple[Tensor, ...], constants: tuple[Any, ...]) -> Tensor:
    return call(operands[0].detach(), *operands[1:])


def _ratio(call: RuleCall, operands: tuple[Tensor, ...], constants: tuple[Any, ...]) -> Tensor:
    return _Ratio.apply(operands[0], call)  # type: ignore[no-any-return, no-untyped-call]


def _norm_held(call: RuleCall, operands: tuple[Tensor, ...], constants: tuple[Any, ...]) -> Tensor:
    return _HeldNorm.apply(operands[0], call, constants)  # type: ignore[no-any-return, no-untyped-call]


_STEPS: dict[Rule, RuleStep] = {
    rules.halved: _halved,
    rules.first_held: _first_held,
    rules.ratio: _ratio,
    rules.norm_held: _norm_held,
}
_SHARES: dict[Rule | None, tuple[float, float]] = {  # of what a product's backward pass sends to its two factors
    rules.halved: (0.5, 0.5),
    rules.first_held: (0.0, 1.0),
    None: (1.0, 1.0),
}


def acts_while_running(book: Book) -> bool:
    """Whether all rules of a book can be put in while a model runs."""
    plain = all(rule is None or rule == "inside" or rule in _STEPS for rule in book.rules.values())
    products = (book.rules.get("attend"), book.rules.get("matmul"))
    fused = not any(isinstance(rule, BySite) or rule not in _SHARES for rule in products)
    return book.carries == "gradient" and plain and fused


class Running:
    """A book's rules in one run of a model.

    `signature` tells what was called: names of functions, and kinds of sites. Two runs that have the same one have
    graphs of the same form. With `noting`, the sites themselves are there, without their values, for a look at the
    whole graph.
    """

    def __init__(self, book: Book, batch: int, *, noting: bool = False, biases: bool = False, tap: Tap | None = None):
        self.book, self.batch, self.noting, self.tap = book, batch, noting, tap
        self.at_maps: dict[int, Tensor] = {}  # what a tap made of each map in the last backward pass
        self._maps = itertools.count()
        self.at_biases: list[BiasTerms] | None = [] if biases else None  # of the last backward pass
        self.signature: list[str] = []
        self.sites: list[Site] = []
        self._steps: Mapping[str, RuleStep] = {
            kind: _STEPS[rule]  # type: ignore[index]
            for kind, rule in book.rules.items()
            if rule is not None and rule != "inside"
        }
        self._map_share, self._value_share = _SHARES[book.rules.get("attend")]  # type: ignore[index]
        self._score_share = self._map_share * _SHARES[book.rules.get("matmul")][0]  # type: ignore[index]
        self._entered: dict[int, tuple[Tensor, Tensor]] = {}  # maps that are variables, by id, with what they were

    def step(
        self,
        kind: str,
        call: RuleCall,
        operands: tuple[Tensor, ...],
        constants: tuple[Any, ...],
        path: str,
    ) -> Tensor:
        """Call a function, so that its gradient is the book's."""
        self.signature.append(kind)
        if kind == "attend" and self.tap is not None:
            result = self._tapped(*operands)
        elif kind == "attend" and id(operands[0]) in self._entered:
            result = call(operands[0], scaled(operands[1], self._value_share))
        else:
            step = self._steps.get(kind)
            result = call(*operands) if step is None else step(call, operands, constants)
        if self.at_biases is not None and kind in WITH_BIAS and constants[-1] is not None and result.requires_grad:
            # at the node: a hook of the tensor would be called for a result that the pass ends at, too
            node_of_result(result).register_prehook(partial(self._at_bias, path, constants[-1], result.shape))
        if self.noting:
            self._note(kind, tuple(self._entered.get(id(x), (x, x))[1] for x in operands), result, path)
        return result

    def _tapped(self, attention: Tensor, values: Tensor) -> Tensor:
        alike = attention.dim() == values.dim() == 4 and attention.shape[:2] == values.shape[:2]
        if not alike or len(attention) != self.batch:
            raise NotWhileRunning("an attention map is not [batch, heads, queries, keys] where it meets its values")
        note, shares = partial(self._note_map, next(self._maps)), (self._map_share, self._value_share)
        held = attention if self._map_share else attention.detach()
        return _TappedProduct.apply(held, values, note, shares)  # type: ignore[no-any-return, no-untyped-call]

    def _note_map(self, number: int, attention: Tensor, gradient: Tensor) -> None:
        assert self.tap is not None
        self.at_maps[number] = self.tap(attention, gradient)

    def entered(self, attention: Tensor) -> Tensor:
        """An attention map as it meets its values: a variable of its own, whose gradient is what they send to it."""
        if self._map_share:
            entering = scaled(attention, self._map_share)
        else:
            entering = attention.detach().requires_grad_(attention.requires_grad)
        self._entered[id(entering)] = entering, attention
        return entering

    def fused(self, call: RuleCall, query: Tensor, key: Tensor, value: Tensor, mask: Any, path: str) -> Tensor:
        """Attention inside its kernel: what that sends to query and key, to the values and to a mask is scaled."""
        self.signature.append("fused")
        shares = (self._score_share, self._score_share, self._value_share, self._map_share)
        operands = tuple(zip((query, key, value, mask), shares, strict=True))
        result = call(*(scaled(x, share) if isinstance(x, Tensor) else x for x, share in operands))
        if self.noting:
            flowing = tuple(x for x, share in operands if isinstance(x, Tensor) and share)
            self._note("add", flowing, result, path)  # a kind that every such book covers
        return result

    def _at_bias(self, path: str, bias: Tensor, shape: torch.Size, gradients: tuple[Tensor, ...]) -> None:
        assert self.at_biases is not None
        if gradients[0] is not None and gradients[0].numel():  # an adapter may be given no example
            self.at_biases.append((path, (gradients[0].reshape(shape) * bias).sum(-1)))

    def _note(self, kind: str, operands: tuple[Tensor, ...], result: Tensor, path: str) -> None:
        with torch._C.DisableTorchFunction():  # whoever notes is not seen
            if result.grad_fn is not None:
                sources = tuple(_node_of(operand) for operand in operands)
                self.sites.append(Site(kind, (), None, sources, node_of_result(result), path, self.batch))


def _node_of(tensor: Tensor) -> Node | None:
    return get_gradient_edge(tensor).node if tensor.requires_grad else None


WATCHED = ("attend", *WITH_BIAS)


class Watch:
    """Notes of one pass, which is the same with and without it."""

    def __init__(self) -> None:
        self.biases: list[BiasTerms] = []
        self._sent: dict[int, list[tuple[Node, Tensor]]] = defaultdict(
            list
        )  # to each layer's map, and where it arrives

    def over(self, book: Book, layer_of: Mapping[Node, int]) -> Book:
        """The book, with notes taken at the products of some layers' attention, and wherever a bias is added."""

        def watched(site: Site) -> Rule | Literal["inside"]:
            rule = book.ruling(site) or rules.derivative
            return rule if rule == "inside" else lambda site, gradient: self._noted(site, gradient, rule, layer_of)

        kinds = dict.fromkeys((kind for kind in WATCHED if kind in book.rules), BySite(watched))
        return replace(book, rules={**book.rules, **kinds})

    def _noted(self, site: Site, gradient: Tensor, rule: Rule, layer_of: Mapping[Node, int]) -> tuple[Tensor, Finish]:
        sent, finish = rule(site, gradient)
        layer, bias = layer_of.get(site.node), None if site.kind == "attend" else site.operands[-1]
        if bias is not None and gradient.numel():  # an adapter may be given no example
            self.biases.append((site.path, (gradient * bias).sum(-1)))
        if layer is None:
            return sent, finish

        def leave(position: int, back: Tensor) -> Tensor:
            source = site.sources[position]
            if position == 0 and source is not None:
                self._sent[layer].append((source, back))
            return finish(position, back)

        return sent, leave

    def at_map(self, layer: int, attention: Tensor) -> Tensor:
        """What was sent to a layer's map, [batch, heads, queries, keys]: moved from where it met its values."""
        total = torch.zeros_like(attention)
        for source, sent in self._sent[layer]:
            (moved,) = torch.autograd.grad(GradientEdge(source, 0), attention, sent, retain_graph=True)
            total += moved
        return total
