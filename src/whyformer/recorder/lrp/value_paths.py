"""Value paths: how what attention gathered gets from the values to the output of its block."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import Node

from whyformer.errors import UnsupportedModel
from whyformer.models.errors import named_failures
from whyformer.recorder.lrp.rule_sets import moves
from whyformer.recorder.lrp.sites import Site, nodes_below
from whyformer.recorder.trace import Trace

SAME = 1e-3  # of the peak; the same numbers by another way, in float32


@dataclass(frozen=True)
class ValuePath:
    """The block of one attention map, as the sum that its output is.

    Unit `j` adds `per_unit_i · Σ_h A_hij · weight_h · v_hj` to the output at unit `i`, and `own_i` where `j = i`: the
    residual. What remains of the output are biases. A norm, before or after the residual is added, is linear once its
    denominator is fixed: the denominator is in `per_unit`, centring and a factor per channel are in `weight` and `own`.
    """

    own: Tensor  # [batch, units, width]
    weight: Tensor  # [width, heads, head width]
    output: Tensor  # [batch, units, width]
    per_unit: Tensor  # [batch, units]


def value_paths(trace: Trace) -> Iterator[ValuePath]:
    """The value path of each layer, in at least float32; `UnsupportedModel` where attention's output takes another way.

    Each is made when it is asked for: of a large model, the weights of all layers in float32 are never held at once.
    """
    consumers = _consumers(trace.sites)
    attends = [site for site in trace.sites if site.kind == "attend"]
    if len(attends) != len(trace.attention) + trace.pooling:
        raise UnsupportedModel("the values behind some attention map were not seen, so there is no value path")
    for site, values, states in zip(attends, trace.values, trace.hidden, strict=False):
        with named_failures("the model"):
            path = _path(site, values, states.detach(), consumers)
        yield path


def _path(attend: Site, values: Tensor, states: Tensor, consumers: dict[Node, list[tuple[Site, int]]]) -> ValuePath:
    heads, _, width = values.shape[1:]
    projection = _next(attend, consumers, "linear")
    weight = projection.operands[1]
    if weight.shape != (states.shape[-1], heads * width):
        raise _none(attend, f"its output projection is {tuple(weight.shape)}")
    split = weight.view(states.shape[-1], heads, width)
    addition, position = _addition(projection, consumers)
    gathered, residual = addition.operands[position], addition.operands[1 - position]
    factors = _factors(_laid_out(projection.value, gathered), gathered, attend)
    after = [site for site, _ in consumers[addition.node]]
    if len(after) != 1 or after[0].kind not in ("norm", "norm_module"):
        parallel = [s for s in after if s.kind == "add" and any(_same(o, states) for o in s.operands)]
        if not _same(residual, states) and not parallel:
            raise _none(attend, "it is not added to its layer's input")
        return _without_norm(states, split, states + gathered, factors)
    if factors is not None:
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


def _factors(before: Tensor, after: Tensor, attend: Site) -> tuple[Tensor, Tensor] | None:
    """What the projected values are multiplied by before they are added: a number per unit and one per channel."""
    if _same(after, before):
        return None
    ratio = after / torch.where(before == 0, 1, before)
    per_unit = ratio.median(-1, keepdim=True).values
    per_unit = torch.where(per_unit == 0, 1, per_unit)  # padding that attends nowhere
    there = before.ne(0).all(-1)
    per_channel = (ratio / per_unit)[there].median(0).values
    if not _same(before * per_unit * per_channel, after):
        raise _none(attend, "its output is changed before it is added to the states")
    return per_unit[..., 0], per_channel


def _without_norm(states: Tensor, weight: Tensor, output: Tensor, factors: tuple[Tensor, Tensor] | None) -> ValuePath:
    """The path of a block whose sum no norm follows; a norm or multiplier may come before the sum."""
    states, weight, output = _precise(states), _precise(weight), _precise(output)
    if factors is None:
        return ValuePath(states, weight, output, states.new_ones(states.shape[:-1]))
    per_unit, per_channel = map(_precise, factors)
    return ValuePath(states, weight * per_channel[:, None, None], output, per_unit)


def _with_norm(norm: Site, states: Tensor, weight: Tensor) -> ValuePath:
    """The path of a block whose sum goes through a norm."""
    x, dimensions, scale, eps, centred, _ = norm.operands
    x, states, weight = _precise(x), _precise(states), _precise(weight)
    squares = x.var(dimensions, correction=0, keepdim=True) if centred else x.square().mean(dimensions, keepdim=True)
    inverse = (squares + eps).rsqrt()
    if centred:
        states, weight = states - states.mean(-1, keepdim=True), weight - weight.mean(0)
    if scale is not None:
        scale = _precise(scale)
        states, weight = states * scale, weight * scale[:, None, None]
    return ValuePath(states * inverse, weight, _precise(norm.value), inverse[..., 0])


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


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
