"""Value paths: how what attention gathered gets from the values to the output of its block."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from whyformer.errors import UnsupportedModel
from whyformer.models.failures import named_failures
from whyformer.recorder.lrp.books import moves
from whyformer.recorder.lrp.sites import Site, nodes_below
from whyformer.recorder.trace import Trace

SAME = 1e-3  # of the peak; the same numbers by another way, in float32


@dataclass(frozen=True)
class ValuePath:
    """The block of one attention map: `output = norm(states + inner · (attention · values · weight + bias))`.

    `inner` are the factors of a norm or multiplier before the sum, if there is one. Without a norm after the sum
    (pre-norm blocks) `scale` is None. Otherwise the norm is linear once its denominator is fixed: centre each vector
    where `centred`, then multiply by `scale`.
    """

    states: Tensor  # [batch, units, width]: what the block adds to
    weight: Tensor  # [width, heads, head width]
    output: Tensor  # [batch, units, width]
    inner: Tensor | None = None  # [batch, units, width]
    scale: Tensor | None = None  # [batch, units, width]
    centred: bool = False

    def precise(self) -> "ValuePath":
        """The path in at least float32."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        precise: dict[str, Any] = {n: t.to(torch.promote_types(t.dtype, torch.float32)) for n, t in tensors.items()}
        return replace(self, **precise)


def value_paths(trace: Trace) -> list[ValuePath]:
    """The value path of each layer; `UnsupportedModel` where attention's output takes another way."""
    consumers = _consumers(trace.sites)
    attends = [site for site in trace.sites if site.kind == "attend"]
    if len(attends) != len(trace.attention) + trace.pooling:
        raise UnsupportedModel("the values behind some attention map were not seen, so there is no value path")
    layers = zip(attends, trace.values, trace.hidden, strict=False)
    with named_failures("the model"):
        return [_path(site, values, states.detach(), consumers).precise() for site, values, states in layers]


def _path(attend: Site, values: Tensor, states: Tensor, consumers: dict[Node, list[tuple[Site, int]]]) -> ValuePath:
    heads, _, width = values.shape[1:]
    projection = _next(attend, consumers, "linear")
    weight = projection.operands[1]
    if weight.shape != (states.shape[-1], heads * width):
        raise _none(attend, f"its output projection is {tuple(weight.shape)}")
    split = weight.view(states.shape[-1], heads, width)
    addition, position = _addition(projection, consumers)
    gathered, residual = addition.operands[position], addition.operands[1 - position]
    inner = _scale(_laid_out(projection.value, gathered), gathered, attend)
    after = [site for site, _ in consumers[addition.node]]
    if len(after) != 1 or after[0].kind not in ("norm", "norm_module"):
        parallel = [s for s in after if s.kind == "add" and any(_same(o, states) for o in s.operands)]
        if not _same(residual, states) and not parallel:
            raise _none(attend, "it is not added to its layer's input")
        return ValuePath(states, split, states + gathered, inner)
    if inner is not None:
        raise _none(attend, "it is scaled or normalised before and after it is added to the states")
    if not _same(residual, states):
        raise _none(attend, "it is not added to its layer's input")
    if after[0].kind == "norm_module":
        raise _none(attend, "the norm after it is written by hand")
    return _with_norm(after[0], states, split)


def _addition(projection: Site, consumers: dict[Node, list[tuple[Site, int]]]) -> tuple[Site, int]:
    """Where the projected values are added to the states, and as which operand; a norm or factor may come before."""
    site = projection
    for _ in range(3):
        following = consumers[site.node]
        if len(following) == 1 and following[0][0].kind == "add":
            return following[0]
        if len(following) != 1 or following[0][0].kind not in ("scaling", "norm_module"):
            break
        site = following[0][0]
    kinds = ", ".join(sorted({s.kind for s, _ in consumers[site.node]})) or "nothing"
    raise _none(projection, f"after {site.kind} comes {kinds}, not a sum")


def _laid_out(projected: Tensor, gathered: Tensor) -> Tensor:
    """The projected values as they are added: flat or not, or turned from [units, batch, width]."""
    plain = projected.view_as(gathered)
    if projected.dim() < 3 or _same(plain, gathered):
        return plain
    turned = projected.transpose(0, 1)
    return turned if _same(turned, gathered) else plain


def _scale(before: Tensor, after: Tensor, attend: Site) -> Tensor | None:
    """The factors between the projected values and what is added: none, or a number per unit times one per channel."""
    if _same(after, before):
        return None
    ratio = after / torch.where(before == 0, 1, before)
    per_unit = ratio.median(-1, keepdim=True).values
    per_unit = torch.where(per_unit == 0, 1, per_unit)  # padding that attends nowhere
    there = before.ne(0).all(-1)
    per_channel = (ratio / per_unit)[there].median(0).values
    if not _same(before * per_unit * per_channel, after):
        raise _none(attend, "its output is changed before it is added to the states")
    return per_unit * per_channel


def _with_norm(norm: Site, states: Tensor, weight: Tensor) -> ValuePath:
    x, dimensions, scale, eps, centred, _ = norm.operands
    squares = x.var(dimensions, correction=0, keepdim=True) if centred else x.square().mean(dimensions, keepdim=True)
    inverse = (squares + eps).rsqrt()
    scales = (inverse if scale is None else inverse * scale).expand_as(x)
    return ValuePath(states, weight, norm.value, None, scales, centred)


def _next(site: Site, consumers: dict[Node, list[tuple[Site, int]]], kind: str) -> Site:
    following = [s for s, _ in consumers[site.node]]
    kinds = {s.kind for s in following}
    if kinds != {kind}:
        raise _none(site, f"after {site.kind} comes {', '.join(sorted(kinds)) or 'nothing'}, not {kind}")
    if len(following) > 1:
        raise _none(
            site, f"after {site.kind} come {len(following)} of {kind}, not one: merge adapters such as LoRA first"
        )
    return following[0]


def _none(site: Site, reason: str) -> UnsupportedModel:
    return UnsupportedModel(f"the attention in {site.path} has no plain value path: {reason}")


def _same(one: Tensor, other: Tensor) -> bool:
    allowed = max(SAME, 8 * torch.finfo(other.dtype).eps)
    return one.shape == other.shape and bool((one - other).abs().max() <= allowed * other.abs().max())


def _consumers(sites: Sequence[Site]) -> dict[Node, list[tuple[Site, int]]]:
    """For the node of each site: which sites take its result, and as which operand."""
    nodes = {site.node for site in sites}
    consumers: dict[Node, list[tuple[Site, int]]] = defaultdict(list)
    for site in sites:
        for position, source in enumerate(site.sources):
            if source is not None:
                for node in _makers(source, nodes):
                    consumers[node].append((site, position))
    return consumers


def _makers(source: Node, nodes: set[Node]) -> set[Node]:
    """The sites whose results arrive at a node, through functions that only move numbers."""
    passed = nodes_below([source], through=lambda node: node not in nodes and (moves(node) or node is source))
    return nodes.intersection(passed)


def rows_at_once(units: int, width: int, batch: int, budget: int = 2**24) -> int:
    """How many queries to decompose at a time so that their parts hold at most `budget` numbers."""
    return max(1, budget // max(1, batch * units * width))


def parts(path: ValuePath, attention: Tensor, values: Tensor, rows: slice) -> Tensor:
    """What each unit adds to the block's output at some queries, [batch, queries, units, width]."""
    projected = torch.einsum("bhkd,whd->bhkw", values, path.weight)
    added = torch.einsum("bhqk,bhkw->bqkw", attention[:, :, rows], projected)
    if path.inner is not None:
        added = added * path.inner[:, rows, None]
    queries = torch.arange(attention.shape[-2], device=added.device)[rows]
    added[:, torch.arange(len(queries), device=added.device), queries] += path.states[:, rows]
    if path.scale is None:
        return added
    if path.centred:
        added = added - added.mean(-1, keepdim=True)
    return added * path.scale[:, rows, None]
