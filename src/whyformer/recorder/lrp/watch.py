"""What a backward pass sees on its way: the gradient at attention maps that a book holds constant, and at biases."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from whyformer.recorder.lrp import rules
from whyformer.recorder.lrp.books import Book, BySite
from whyformer.recorder.lrp.running import WITH_BIAS, BiasTerms
from whyformer.recorder.lrp.sites import Finish, Rule, Site

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
