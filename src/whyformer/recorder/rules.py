"""One small function per relevance rule.

A rule gets a site and the relevance of its result. It returns what the function's own backward pass is to be given in
place of a gradient, and a function that turns what that pass sends to operand number `position` into the operand's
relevance. So `S W`, which most rules need, is computed by torch's own backward.
"""

import torch
from torch import Tensor

from whyformer.recorder.sites import Finish, Site

STABILISER = 1e-9


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """`a / (b + 1e-9)`, and 0 where `b` is 0."""
    stabilised = denominator + STABILISER
    return torch.div(numerator, stabilised, out=stabilised).masked_fill_(denominator == 0, 0)


def unchanged(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Softmax, norms, activations, multiplication by a constant: relevance passes as it is."""
    return relevance, lambda position, sent: relevance.sum_to_size(sent.shape)


def linear_positive(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Chefer et al. 2021, Eq. 5: in proportion to the positive products, `Z = x⁺W⁺ + x⁻W⁻`, the bias left out.

    `Z = (xW + |x||W|) / 2`, and `xW` is the result without its bias.
    """
    x, weight, bias = site.operands
    rows = _rows_with(relevance)
    sizes, strengths = x[rows].abs(), weight.abs()
    positive = (site.value[rows] - (0 if bias is None else bias)).add_(sizes @ strengths.T).div_(2)
    some = divide(relevance[rows], positive)
    by_size = _in_rows(rows, sizes.mul_(some @ strengths), x)
    return _in_rows(rows, some, relevance), lambda position, sent: by_size.addcmul_(x, sent).div_(2)


def _rows_with(relevance: Tensor) -> tuple[Tensor, ...] | slice:
    """The rows of [..., width] that hold any relevance, or all if they are many.

    Above the last attention only the rows that the head reads do, and the others need no products.
    """
    present = relevance.any(-1)
    return present.nonzero(as_tuple=True) if int(present.sum()) * 2 < present.numel() else slice(None)


def _in_rows(rows: tuple[Tensor, ...] | slice, values: Tensor, whole: Tensor) -> Tensor:
    """Values in their rows of a tensor like `whole`, and 0 in the others."""
    return values if isinstance(rows, slice) else torch.zeros_like(whole).index_put_(rows, values)


def linear_two_sided(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """The original LRP: the products of positive inputs and those of negative ones, each with a sum of its own."""
    x, weight, _ = site.operands
    total = torch.zeros_like(x)
    for part, side in ((x.clamp(min=0), weight.clamp(min=0)), (x.clamp(max=0), weight.clamp(max=0))):
        total += part * (divide(relevance, part @ side.T) @ side)
    return relevance, lambda position, sent: total


def linear_excitatory(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Chefer et al. 2021, Eq. 4: positive inputs times positive weights alone."""
    x, weight, _ = site.operands
    part, side = x.clamp(min=0), weight.clamp(min=0)
    return relevance, lambda position, sent: part * (divide(relevance, part @ side.T) @ side)


def matmul_halved(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Each factor in proportion to the products, and half of it each, because either would get the whole."""
    shares = divide(relevance, site.value)
    return shares, lambda position, sent: site.operands[position] * sent / 2


def product_halved(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """A gate: either factor would get the whole, so each gets half."""
    return relevance, lambda position, sent: (relevance / 2).sum_to_size(sent.shape)


def sum_by_size(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Pooling over positions: in proportion to sizes, so that nothing explodes where summands cancel."""
    x, sizes = site.operands
    return divide(relevance, sizes), lambda position, sent: x.abs() * sent


def add(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Each summand in proportion to its value."""
    shares = divide(relevance, site.value)
    return shares, lambda position, sent: (site.operands[position] * shares).sum_to_size(sent.shape)


def add_normalised(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Chefer et al. 2021, the normalisation after Eq. 9: no summand may get more than there is.

    Each summand's relevance is rescaled to `|ΣR_a| / (|ΣR_a| + |ΣR_b|) · ΣR`; the sums are per example.
    """
    shares = divide(relevance, site.value)
    parts = [operand * shares for operand in site.operands]
    sums = [site.per_example(part) for part in parts]
    whole, size = site.per_example(relevance), sums[0].abs() + sums[1].abs()
    parts = [p * divide(divide(s.abs(), size) * whole, s) for p, s in zip(parts, sums, strict=True)]
    return shares, lambda position, sent: parts[position].sum_to_size(sent.shape)
