"""One small function per relevance rule.

A rule gets a site and the relevance of its result. It returns what the function's own backward pass is to be given in
place of a gradient, and a function that turns what that pass sends to operand number `position` into the operand's
relevance. So `S W`, which most rules need, is computed by torch's own backward.

The rules in the second half carry a modified gradient `g` instead, whose product with a value is the value's relevance.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from whyformer.number_checks import is_far
from whyformer.recorder.lrp.sites import Finish, Site

STABILISER = 1e-9
EPSILON = 1e-6
SMALL_EPSILON = 1e-8
RATIO_STABILISER = 1e-10
NARROW = 32  # with fewer inputs it happens that no product is positive
_SCRATCH = threading.local()


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """`a / (b + 1e-9)`, and 0 where `b` is 0."""
    stabilised = denominator + STABILISER
    return torch.div(numerator, stabilised, out=stabilised).masked_fill_(denominator == 0, 0)


def derivative(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """The function's own backward pass, as where a book has None."""
    return relevance, lambda position, sent: sent


def unchanged(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Softmax, norms, activations, multiplication by a constant: relevance passes as it is."""
    return relevance, lambda position, sent: relevance.sum_to_size(sent.shape)


def scaled(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """One number for a whole vector (a norm's, a router's, a gate's) is held constant; the vector gets everything."""
    return relevance, lambda position, sent: relevance.sum_to_size(sent.shape) if position else torch.zeros_like(sent)


def linear_positive(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Chefer et al. 2021, Eq. 5: in proportion to the positive products, `Z = x⁺W⁺ + x⁻W⁻`, the bias left out.

    `2 Z = xW + |x||W|`, and `xW` is the result without its bias; so there are two products here and one in the
    function's own backward pass. The stabiliser comes with the bias.
    """
    x, weight, bias = site.operands
    if x.shape[-1] < NARROW:
        return map_positive(replace(site, operands=(x, weight, nn.functional.linear)), relevance)
    rows = _rows_with(relevance) if site.last else slice(None)
    sizes, strengths = x[rows].abs(), absolute(weight)
    constant = x.new_full((len(weight),), 2 * STABILISER)
    constant = constant if bias is None else constant - bias
    twice = nn.functional.linear(sizes, strengths, constant).add_(site.value[rows])
    shares = _divided(relevance[rows], twice, 2 * STABILISER)
    by_size = _in_rows(rows, sizes.mul_(shares @ strengths), x)
    return _in_rows(rows, shares, relevance), lambda position, sent: by_size.addcmul_(x, sent)


def _divided(numerator: Tensor, stabilised: Tensor, nothing: float) -> Tensor:
    """The quotient, in the place of the denominator; 0 where that is nothing but the stabiliser."""
    none = stabilised <= nothing
    if is_far(stabilised) or bool(none.any()):
        return torch.div(numerator, stabilised, out=stabilised).masked_fill_(none, 0)
    return torch.div(numerator, stabilised, out=stabilised)


def absolute(weight: Tensor) -> Tensor:
    """`|W|`, in memory that is used again and again on a CPU: fresh memory costs as much as a matrix product."""
    if is_far(weight):
        return weight.abs()
    place: dict[tuple[torch.Size, torch.dtype], Tensor] | None = getattr(_SCRATCH, "place", None)
    if place is None:
        return weight.abs()
    key = weight.shape, weight.dtype
    if key not in place:
        place[key] = torch.empty_like(weight, memory_format=torch.contiguous_format)
    return torch.abs(weight, out=place[key])


@contextmanager
def scratch() -> Iterator[None]:
    """Within it, this thread's rules may use memory again."""
    _SCRATCH.place = {}
    try:
        yield
    finally:
        _SCRATCH.place = None


def _rows_with(relevance: Tensor) -> tuple[Tensor, ...] | slice:
    """The rows of [..., width] that hold any relevance, or all if they are many.

    Above the last attention only the rows that the head reads do, and the others need no products.
    """
    if is_far(relevance):  # to wait for it would cost more than the products
        return slice(None)
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


def map_positive(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """`linear_positive` for any product with a constant.

    Such a product may have so few terms that none is positive; there, in proportion to the sizes of the terms.
    """
    x, matrix, product = site.operands
    sizes = product(x.abs(), matrix.abs())
    positive = (product(x, matrix) + sizes) / 2
    none = positive <= 8 * torch.finfo(x.dtype).eps * sizes
    shares = divide(relevance, positive).masked_fill_(none, 0)
    instead = divide(relevance, sizes).masked_fill_(~none, 0)
    by_size = x.abs() * _sent_back(product, matrix.abs(), x, shares / 2 + instead)
    return shares, lambda position, sent: by_size + x * sent / 2


def map_two_sided(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """`linear_two_sided` for any product with a constant."""
    x, matrix, product = site.operands
    total = torch.zeros_like(x)
    for part, side in ((x.clamp(min=0), matrix.clamp(min=0)), (x.clamp(max=0), matrix.clamp(max=0))):
        total += part * _sent_back(product, side, x, divide(relevance, product(part, side)))
    return relevance, lambda position, sent: total


def map_excitatory(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """`linear_excitatory` for any product with a constant."""
    x, matrix, product = site.operands
    part, side = x.clamp(min=0), matrix.clamp(min=0)
    shares = divide(relevance, product(part, side))
    return relevance, lambda position, sent: part * _sent_back(product, side, x, shares)


def linear_gamma(site: Site, relevance: Tensor, *, gamma: float) -> tuple[Tensor, Finish]:
    """`map_gamma` for a linear layer."""
    x, weight, _ = site.operands
    return map_gamma(replace(site, operands=(x, weight, nn.functional.linear)), relevance, gamma=gamma)


def map_gamma(site: Site, relevance: Tensor, *, gamma: float) -> tuple[Tensor, Finish]:
    """The γ rule (Montavon et al. 2019) for inputs of either sign (Andéol et al. 2021), the bias left out.

    The terms that have the sign of their sum `z` count 1 + γ times: `(1 + γ/2) xw + γ/2 sign(z) |x||w|`.
    """
    x, matrix, product = site.operands
    plain = product(x, matrix)
    agreeing = plain + plain.sign() * product(x.abs(), matrix.abs())  # twice the terms that have the sign of the sum
    denominator = plain + gamma / 2 * agreeing
    shares = (relevance / denominator).masked_fill(plain == 0, 0)
    by_size = x.abs() * _sent_back(product, matrix.abs(), x, shares * plain.sign())
    return shares, lambda position, sent: (1 + gamma / 2) * x * sent + gamma / 2 * by_size


def _sent_back(product: Callable[[Tensor, Tensor], Tensor], matrix: Tensor, x: Tensor, shares: Tensor) -> Tensor:
    """The transpose of the linear map `product(x, matrix)`, applied to `shares`."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(product(leaf, matrix), leaf, shares)[0]


def pixels(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """The z^B rule (Montavon et al. 2017) for what looks at pixels: each between its image's lowest and highest."""
    x, weight, product = site.operands
    low = x.flatten(1).amin(1).view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    high = x.flatten(1).amax(1).view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    positive, negative = weight.clamp(min=0), weight.clamp(max=0)
    shares = divide(relevance, product(x, weight) - product(low, positive) - product(high, negative))
    lows = low * _sent_back(product, positive, x, shares)
    highs = high * _sent_back(product, negative, x, shares)
    return shares, lambda position, sent: x * sent - lows - highs


def matmul_halved(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Each factor in proportion to the products, and half of it each, because either would get the whole."""
    shares = divide(relevance, site.value).div_(2)
    return shares, lambda position, sent: site.operands[position] * sent


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
    sums = torch.stack([site.per_example(part) for part in parts])
    sizes = sums.abs()
    factors = divide(divide(sizes, sizes.sum(0).expand_as(sizes)) * site.per_example(relevance), sums)
    for part, factor in zip(parts, factors, strict=True):
        part.mul_(factor)
    return shares, lambda position, sent: parts[position].sum_to_size(sent.shape)


def epsilon(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """The ε rule (Bach et al. 2015, Eq. 58): in proportion to what each number adds; biases take their share."""
    return relevance / (site.value + SMALL_EPSILON), lambda position, sent: site.operands[position] * sent


def epsilon_signed(site: Site, relevance: Tensor, *, stabiliser: float) -> tuple[Tensor, Finish]:
    """The ε rule with a stabiliser that may be large: it has the sign of the result, so that the two never cancel."""
    sized = torch.where(site.value < 0, -stabiliser, stabiliser)
    shares = (relevance / (site.value + sized)).masked_fill(site.value == 0, 0)
    return shares, lambda position, sent: site.operands[position] * sent


def add_epsilon(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """The ε rule for a sum of two."""
    shares = relevance / (site.value + SMALL_EPSILON)
    return shares, lambda position, sent: (site.operands[position] * shares).sum_to_size(sent.shape)


def matmul_epsilon(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """The ε rule for a product of two matrices, half of it each (Achtibat et al. 2024, Proposition 3.3)."""
    shares = relevance / (2 * site.value + SMALL_EPSILON)
    return shares, lambda position, sent: site.operands[position] * sent


def softmax_taylor(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """Softmax by its Taylor expansion (Achtibat et al. 2024, Proposition 3.1): `x (R - p ΣR)`."""
    x, *dim = site.operands
    x = x.masked_fill(x.isneginf(), 0)
    change = relevance - site.value * relevance.sum(dim[0] if dim else -1, keepdim=True)
    return relevance, lambda position, sent: x * change


def norm_epsilon(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
    """The ε rule for a norm whose denominator is a constant."""
    shares = relevance / (site.value + EPSILON)
    _, finish = norm_held(site, shares)
    return shares, lambda position, sent: site.operands[0] * finish(position, sent)


def halved(site: Site, gradient: Tensor) -> tuple[Tensor, Finish]:
    """AttnLRP (Achtibat et al. 2024, Eq. 13): a product of two passes half to either factor."""
    return gradient, lambda position, sent: sent / 2


def first_held(site: Site, gradient: Tensor) -> tuple[Tensor, Finish]:
    """CP-LRP (Ali et al. 2022): attention probabilities, gates and scaling numbers are constants."""
    return gradient, lambda position, sent: sent if position else torch.zeros_like(sent)


def ratio(site: Site, gradient: Tensor) -> tuple[Tensor, Finish]:
    """An activation's derivative is replaced by `f(x) / x`, so that relevance passes it unchanged."""
    return gradient, lambda position, sent: gradient * site.value / (site.operands[0] + RATIO_STABILISER)


def linear_gamma_gradient(site: Site, gradient: Tensor, *, gamma: float) -> tuple[Tensor, Finish]:
    """`map_gamma_gradient` for a linear layer."""
    x, weight, bias = site.operands
    strengths = absolute(weight)
    sizes = nn.functional.linear(x.abs(), strengths, None if bias is None else bias.abs())
    shares = _agreeing_shares(site.value, gradient, sizes, gamma)
    by_sign = x.sign() * ((shares * site.value.sign()) @ strengths)
    return shares, lambda position, sent: (1 + gamma / 2) * sent + gamma / 2 * by_sign


def map_gamma_gradient(site: Site, gradient: Tensor, *, gamma: float) -> tuple[Tensor, Finish]:
    """The γ rule for a modified gradient: of `map_gamma`, with the bias as one more term, the relevance per input.

    `R_x / x` has no division by x: `(1 + γ/2) Σ s w + γ/2 sign(x) Σ s sign(z) |w|`, with
    `s = g |z| / ((1 + γ/2) |z| + γ/2 (Σ |x||w| + |b|))`. Without γ it is the derivative.
    """
    x, matrix, product = site.operands
    bias = site.value - product(x, matrix)
    shares = _agreeing_shares(site.value, gradient, product(x.abs(), matrix.abs()) + bias.abs(), gamma)
    by_sign = x.sign() * _sent_back(product, matrix.abs(), x, shares * site.value.sign())
    return shares, lambda position, sent: (1 + gamma / 2) * sent + gamma / 2 * by_sign


def _agreeing_shares(result: Tensor, gradient: Tensor, sizes: Tensor, gamma: float) -> Tensor:
    """The gradient over the sum in which terms that have its sign count 1 + γ times; 0 for a sum of nothing."""
    size = result.abs()
    counted = (1 + gamma / 2) * size + gamma / 2 * sizes
    return (gradient * size / counted).masked_fill_(counted == 0, 0)


def norm_held(site: Site, gradient: Tensor) -> tuple[Tensor, Finish]:
    """A norm whose denominator is a constant (Ali et al. 2022, Eq. 6)."""
    x, dimensions, weight, eps, centred, _ = site.operands
    weighted = gradient if weight is None else gradient * weight
    if centred:
        inverse = (x.var(dimensions, correction=0, keepdim=True) + eps).rsqrt()
        weighted = weighted - weighted.mean(dimensions, keepdim=True)
    else:
        inverse = (x.square().mean(dimensions, keepdim=True) + eps).rsqrt()
    return gradient, lambda position, sent: weighted * inverse
