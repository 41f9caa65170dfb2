"""Relevance and gradients at attention maps, one layer at a time, so that the maps of all heads and layers are never
held at once.

Where all that flows from the logits to a layer flows through the states between it and the next, a backward pass can be
taken in parts: from the logits to the last state, then through one layer after the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from whyformer.errors import BadOption
from whyformer.models.errors import named_failures
from whyformer.recorder.lrp.rule_sets import Book, check_closed
from whyformer.recorder.lrp.rules import scratch
from whyformer.recorder.lrp.sites import Site, governed, nodes_below
from whyformer.recorder.trace import Trace, check_start, differentiating
from whyformer.tasks.targets import Target


@dataclass(frozen=True)
class AtMap:
    """What arrives at a layer's map: relevance under a book, and the gradient.

    `state` is the relevance at what enters the layer above it, `absorbed` what parameters took on the way from there.
    """

    layer: int
    relevance: Tensor
    gradient: Tensor
    state: Tensor
    absorbed: tuple[Tensor, ...]


def parts_of(trace: Trace, sites: Sequence[Site]) -> list[list[Site]] | None:
    """The sites above the last state, then those of each layer, last layer first; None if layers are passed by."""
    states = [get_gradient_edge(state).node for state in trace.hidden]
    maps = [get_gradient_edge(attention).node for attention in trace.attention]
    marked, parts = {*states, *maps}, []
    start: Node | None = trace.logits.grad_fn
    for layer in range(len(maps), -1, -1):
        stop = states[layer]
        between = set(nodes_below([start], through=lambda node, stop=stop: node is not stop))  # type: ignore[misc]
        allowed = {start, stop} if layer == len(maps) else {start, stop, maps[layer]}
        if stop not in between or not between & marked <= allowed:
            return None
        parts.append([site for site in sites if site.node in between])
        start = stop
    return parts


def in_turn(trace: Trace, book: Book, target: Target = None, versus: Target = None) -> Iterator[AtMap] | None:
    """What arrives at each layer's map, last layer first; None for a model that cannot be taken apart so.

    The sum over the layers is that of `relevance` and `gradient` at all maps, of one output.
    """
    if not trace.sites:
        raise BadOption("this trace was recorded with relevance=False")
    check_start(book, None if versus is None else trace.outputs.against(versus))
    starts = list(trace.starts(target, versus))
    check_closed(trace.logits, (*trace.attention, trace.hidden[1]), trace.sites, book)
    parts = parts_of(trace, book.opened(trace.sites_for(book))) if len(starts) == 1 else None
    return None if parts is None else _through(trace, book, parts, starts[0])


@differentiating()
def _step(
    trace: Trace, book: Book, sites: Sequence[Site], of: tuple[Tensor, ...], upper: tuple[Tensor, Tensor, Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Relevance and gradients at tensors, from what arrived at those above them."""
    above, relevance, gradient = upper
    how = {"retain_graph": True, "allow_unused": True}
    with trace.lock, named_failures("the model"), scratch():
        with governed(sites, book.rule_of):
            relevances = torch.autograd.grad(above, of, relevance, **how)
        gradients = torch.autograd.grad(above, of[:2], gradient, **how)
    filled = [torch.zeros_like(t) if r is None else r for t, r in zip(of, relevances, strict=True)]
    return filled, [torch.zeros_like(t) if g is None else g for t, g in zip(of, gradients, strict=False)]


def _through(trace: Trace, book: Book, parts: list[list[Site]], start: Tensor) -> Iterator[AtMap]:
    value = start * trace.logits.detach() if book.starts_from == "value" else start
    last = trace.hidden[-1]
    relevances, gradients = _step(trace, book, parts[0], (last, *trace.absorbers), (trace.logits, value, start))
    taken = relevances[1:]
    upper = (last, relevances[0], gradients[0])
    for layer in range(len(trace.attention) - 1, -1, -1):
        state, absorbed = upper[1], tuple(taken)
        of = (trace.attention[layer], trace.hidden[layer], *trace.absorbers)
        relevances, gradients = _step(trace, book, parts[len(parts) - 1 - layer], of, upper)
        yield AtMap(layer, relevances[0], gradients[0], state, absorbed)
        upper = (trace.hidden[layer], relevances[1], gradients[1])
        taken = [before + more for before, more in zip(taken, relevances[2:], strict=True)]
        del relevances, gradients
