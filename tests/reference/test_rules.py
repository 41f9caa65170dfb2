"""Each relevance rule once more, with loops, and broken rules that must be caught."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whyformer
from whyformer.recorder.lrp import rules
from whyformer.recorder.lrp.sites import Finish, Rule, Site, governed, make_site

BATCH, ROWS, IN, OUT = 2, 3, 4, 5
STABILIZED = 1e-6  # the rules divide by sums plus 1e-9 or 1e-8
WIDE = 40  # more inputs than a narrow linear map has
Exchange = tuple[Tensor, Finish]


def numbers(*shape: int, seed: int = 0, small: float = 1.0) -> Tensor:
    """Random numbers; the last example's may be small, so that the stabilisers are seen."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    drawn[-1] *= small
    return drawn


def places(tensor: Tensor) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, tensor.shape))


def share(part: float, whole: float) -> float:
    return 0.0 if whole == 0 else part / (whole + 1e-9)


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    """Of the peak of each example; where no product is positive, rounding is divided by a stabiliser."""
    pairs = list(zip(found, expected, strict=True))
    assert all(f.shape == e.shape for f, e in pairs)
    return all(bool((_peaks(f - e) <= 1e-7 * _peaks(e)).all()) for f, e in pairs)


def _peaks(values: Tensor) -> Tensor:
    return values.flatten(1).abs().amax(1)


@dataclass(frozen=True)
class Case:
    """A function with its operands, and the relevance of its result."""

    kind: str
    function: Callable[..., Tensor]
    operands: tuple[Tensor, ...]
    sent: Tensor
    constants: tuple[Any, ...] = ()
    last: bool = False  # after the last attention, where many rows have no relevance

    def by(self, rule: Rule) -> list[Tensor]:
        """What a relevance pass gives the operands."""
        leaves = [o.clone().requires_grad_() for o in self.operands]
        result, site = make_site(self.kind, self.function, leaves, "test", BATCH, self.constants)
        assert site is not None
        with governed([replace(site, last=self.last)], lambda _: rule):
            return list(torch.autograd.grad(result, leaves, self.sent))


Literal = Callable[[Case], list[Tensor]]
Parts = Callable[[float, float], list[float]]


# Products with a constant: `parts` splits a product into what has a denominator of its own.


def positive_products(x: float, w: float) -> list[float]:
    return [max(x, 0) * max(w, 0) + min(x, 0) * min(w, 0)]


def two_sided(x: float, w: float) -> list[float]:
    return [max(x, 0) * max(w, 0), min(x, 0) * min(w, 0)]


def excitatory(x: float, w: float) -> list[float]:
    return [max(x, 0) * max(w, 0)]


def by_products(parts: Parts, by_size: bool = False) -> Literal:
    """With `by_size`, in proportion to the sizes of the products where none is positive."""

    def literal(case: Case) -> list[Tensor]:
        x, weight = case.operands[0], case.constants[0]
        weight = weight.T if case.kind == "linear" else weight  # [in, out], or [batch, in, out]
        weight = weight.expand(BATCH, *weight.shape[-2:])
        result = torch.zeros_like(x)
        for b, n, o in places(case.sent):
            products = [(float(x[b, n, i]), float(weight[b, i, o])) for i in range(x.shape[-1])]
            split = [parts(*product) for product in products]
            if by_size and not any(map(any, split)):
                split = [[abs(x * w)] for x, w in products]
            for i in range(x.shape[-1]):
                for part, column in zip(split[i], zip(*split, strict=True), strict=True):
                    result[b, n, i] += part * share(float(case.sent[b, n, o]), sum(column))
        return [result]

    return literal


def linear_case(small: float, bias: Tensor | None, sent: Tensor) -> Case:
    weight = numbers(OUT, IN, seed=1)
    x = numbers(BATCH, ROWS, IN, small=small)
    return Case("linear", lambda x: F.linear(x, weight, bias), (x,), sent, (weight, bias))


def map_case(product: Callable[[Tensor, Tensor], Tensor]) -> Case:
    matrix, x = numbers(BATCH, IN, OUT, seed=20), numbers(BATCH, ROWS, IN, seed=21)
    x[0, 0], matrix[0, :, 0] = x[0, 0].abs(), -matrix[0, :, 0].abs()  # here no product is positive
    sent = numbers(BATCH, ROWS, OUT, seed=3)
    return Case("linear_map", lambda x: product(x, matrix), (x,), sent, (matrix, product))


def wide_case(sent: Tensor) -> Case:
    weight, bias, x = numbers(OUT, WIDE, seed=1), numbers(OUT, seed=2), numbers(BATCH, ROWS, WIDE)
    return Case("linear", lambda x: F.linear(x, weight, bias), (x,), sent, (weight, bias))


SENT = numbers(BATCH, ROWS, OUT, seed=3)
WIDE_LINEAR = wide_case(SENT)
SPARSE = SENT * torch.tensor([1.0, 0, 0])[:, None]
LINEAR = linear_case(1, numbers(OUT, seed=2), SENT)
SMALL_LINEAR = linear_case(1e-9, None, SENT)
MAP = map_case(torch.matmul)
BIAS = numbers(OUT, seed=2)
BIASED_MAP = Case(
    "pixels",
    lambda x: x @ numbers(IN, OUT, seed=20) + BIAS,
    (numbers(BATCH, ROWS, IN, seed=21),),
    SENT,
    (numbers(IN, OUT, seed=20), torch.matmul),
)
TURNED_MAP = map_case(lambda x, matrix: (matrix.mT @ x.mT).mT.contiguous())


def by_gamma(gamma: float) -> Literal:
    """Products count 1 + γ times where they have the sign of their sum; biases take nothing."""

    def literal(case: Case) -> list[Tensor]:
        x, weight = case.operands[0], case.constants[0]
        weight = weight.T if case.kind == "linear" else weight  # [in, out], or [batch, in, out]
        weight = weight.expand(BATCH, *weight.shape[-2:])
        result = torch.zeros_like(x)
        for b, n, o in places(case.sent):
            products = [float(x[b, n, i]) * float(weight[b, i, o]) for i in range(x.shape[-1])]
            counted = [p * (1 + gamma) if p * sum(products) > 0 else p for p in products]
            for i, part in enumerate(counted):
                result[b, n, i] += part / sum(counted) * float(case.sent[b, n, o])
        return [result]

    return literal


def by_gamma_gradient(gamma: float) -> Literal:
    """The relevance per input where terms count 1 + γ times that have the sign of their sum, the bias among them."""

    def literal(case: Case) -> list[Tensor]:
        x, weight = case.operands[0], case.constants[0]
        bias = case.constants[1] if case.kind == "linear" else BIAS if case.kind == "pixels" else None
        weight = weight.T if case.kind == "linear" else weight
        weight = weight.expand(BATCH, *weight.shape[-2:])
        result = torch.zeros_like(x)
        for b, n, o in places(case.sent):
            products = [float(x[b, n, i]) * float(weight[b, i, o]) for i in range(x.shape[-1])]
            terms = [*products, 0.0 if bias is None else float(bias[o])]
            value = sum(terms)
            counted = [t * (1 + gamma) if t * value > 0 else t for t in terms]
            relevance = value * float(case.sent[b, n, o])
            for i in range(x.shape[-1]):
                result[b, n, i] += counted[i] / sum(counted) * relevance / float(x[b, n, i])
        return [result]

    return literal


def signed_epsilon(stabiliser: float) -> Literal:
    """Biases take their share, and the stabiliser has the sign of the sum."""

    def literal(case: Case) -> list[Tensor]:
        x, (weight, bias) = case.operands[0], case.constants
        result = torch.zeros_like(x)
        for b, n, o in places(case.sent):
            products = [float(x[b, n, i]) * float(weight[o, i]) for i in range(x.shape[-1])]
            total = sum(products) + float(bias[o])
            for i, part in enumerate(products):
                result[b, n, i] += part * float(case.sent[b, n, o]) / (total + math.copysign(stabiliser, total))
        return [result]

    return literal


def epsilon_of_products(case: Case) -> list[Tensor]:
    """Biases take their share."""
    x, weight, bias = case.operands[0], case.constants[0], case.constants[1]
    result = torch.zeros_like(x)
    for b, n, o in places(case.sent):
        terms = [float(x[b, n, i]) * float(weight[o, i]) for i in range(IN)]
        for i in range(IN):
            result[b, n, i] += terms[i] * float(case.sent[b, n, o]) / (sum(terms) + float(bias[o]) + 1e-8)
    return [result]


BIAS = numbers(OUT, seed=2) * 3e-8
EPSILON = linear_case(3e-8, BIAS, SENT)


# Pixels

IMAGES, KERNEL, KERNEL_BIAS = numbers(BATCH, 2, 4, 6, seed=22), numbers(3, 2, 2, 2, seed=23), numbers(3, seed=24)
PIXELS = Case(
    "pixels",
    lambda x: F.conv2d(x, KERNEL, KERNEL_BIAS, 2),
    (IMAGES,),
    numbers(BATCH, 3, 2, 3, seed=25),
    (KERNEL, lambda x, kernel: F.conv2d(x, kernel, None, 2)),
)


def z_b(case: Case) -> list[Tensor]:
    """`z_ij / Σ_i z_ij` with `z_ij = x_i w_ij - low w_ij⁺ - high w_ij⁻`, low and high of the image."""
    result = torch.zeros_like(IMAGES)
    for b, o, row, column in places(case.sent):
        low, high = float(IMAGES[b].min()), float(IMAGES[b].max())
        terms = {}
        for c, i, j in itertools.product(range(2), range(2), range(2)):
            x, w = float(IMAGES[b, c, 2 * row + i, 2 * column + j]), float(KERNEL[o, c, i, j])
            terms[c, 2 * row + i, 2 * column + j] = x * w - low * max(w, 0) - high * min(w, 0)
        for place, term in terms.items():
            result[b][place] += term * share(float(case.sent[b, o, row, column]), sum(terms.values()))
    return [result]


# Matrix products: `term` says what one product `a b` of the sum `z` with relevance `r` gives its two factors.

MATMUL = Case(
    "matmul",
    torch.matmul,
    (numbers(BATCH, ROWS, IN, seed=4, small=1e-4), numbers(BATCH, IN, OUT, seed=5, small=1e-4)),
    numbers(BATCH, ROWS, OUT, seed=6),
)


def of_matmul(term: Callable[[float, float, float, float], tuple[float, float]]) -> Literal:
    def literal(case: Case) -> list[Tensor]:
        left, right = case.operands
        results = [torch.zeros_like(left), torch.zeros_like(right)]
        for b, q, o in places(case.sent):
            z = sum(float(left[b, q, k]) * float(right[b, k, o]) for k in range(IN))
            for k in range(IN):
                found = term(float(left[b, q, k]), float(right[b, k, o]), z, float(case.sent[b, q, o]))
                results[0][b, q, k] += found[0]
                results[1][b, k, o] += found[1]
        return results

    return literal


# Elementwise functions of two: `term` says what `a` and `b` get of the relevance `r`.


def pair_case(kind: str, function: Callable[..., Tensor], *shape: int, first: tuple[int, ...] = ()) -> Case:
    operands = numbers(*(first or (BATCH, ROWS, IN)), seed=7, small=3e-8), numbers(*shape, seed=8) * 3e-8
    return Case(kind, function, operands, numbers(BATCH, ROWS, IN, seed=9))


def of_pair(term: Callable[[float, float, float], tuple[float, float]]) -> Literal:
    def literal(case: Case) -> list[Tensor]:
        values = [o.expand_as(case.sent) for o in case.operands]
        results = [torch.zeros_like(case.sent) for _ in values]
        for place in places(case.sent):
            found = term(*(float(v[place]) for v in (*values, case.sent)))
            for result, part in zip(results, found, strict=True):
                result[place] = part
        return [r.sum_to_size(o.shape) for r, o in zip(results, case.operands, strict=True)]

    return literal


def normalised_addition(case: Case) -> list[Tensor]:
    """In proportion, then each example's sums rescaled to `|ΣR_a| / (|ΣR_a| + |ΣR_b|) · ΣR`."""
    first, second = (o.expand_as(case.sent) for o in case.operands)
    whole = Case(case.kind, case.function, (first, second), case.sent)
    parts = of_pair(lambda a, b, r: (a * share(r, a + b), b * share(r, a + b)))(whole)
    for b in range(BATCH):
        sums = [float(p[b].sum()) for p in parts]
        size, total = abs(sums[0]) + abs(sums[1]), float(case.sent[b].sum())
        for part, own in zip(parts, sums, strict=True):
            part[b] *= share(share(abs(own), size) * total, own)
    return [p.sum_to_size(o.shape) for p, o in zip(parts, case.operands, strict=True)]


ADD = pair_case("add", torch.add, BATCH, ROWS, IN)
ADDITIONS = {"": ADD, "rows": pair_case("add", torch.add, ROWS, IN), "one": pair_case("add", torch.add, 1, 1, IN)}
PRODUCT = pair_case("product", torch.mul, BATCH, ROWS, IN)
BROADCAST = pair_case("product", torch.mul, BATCH, 1, IN)
SCALED = pair_case("scaled", torch.mul, BATCH, ROWS, IN, first=(BATCH, ROWS, 1))
SHARED = pair_case("scaled", torch.mul, BATCH, 1, IN, first=(BATCH, ROWS, 1))
QUOTIENT = pair_case("scaled", lambda number, x: x / number, BATCH, ROWS, IN, first=(BATCH, ROWS, 1))


# Functions of one

X = numbers(BATCH, ROWS, IN, seed=30, small=3e-10)
ONE = {
    name: Case("activation", function, (X,), numbers(BATCH, ROWS, IN, seed=31))
    for name, function in (("tanh", torch.tanh), ("gelu", F.gelu))
}
POOLED = numbers(BATCH, IN, seed=11)
SUM = Case("sum", lambda x: x.sum(1), (X,), POOLED, (X.abs().sum(1),))
MEAN = Case("sum", lambda x: x.mean(1), (X,), POOLED, (X.abs().mean(1),))
SMALL_MEAN = Case("sum", lambda x: x.mean(1), (100 * X,), POOLED, (100 * X.abs().mean(1),))
SCORES = numbers(BATCH, 2, ROWS, IN, seed=32)
SCORES[0, :, 1, 2:] = SCORES[1, 0, 2, 0] = float("-inf")  # what a mask hides
SOFTMAX = Case("softmax", lambda x: x.softmax(-1), (SCORES,), numbers(BATCH, 2, ROWS, IN, seed=33))


def value_over_x(function: Callable[[float], float]) -> Literal:
    def literal(case: Case) -> list[Tensor]:
        result = torch.zeros_like(X)
        for place in places(X):
            result[place] = float(case.sent[place]) * function(float(X[place])) / (float(X[place]) + 1e-10)
        return [result]

    return literal


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def by_size(case: Case) -> list[Tensor]:
    result, count = torch.zeros_like(X), 1 if case is SUM else ROWS
    for b, n, d in places(X):
        size = sum(abs(float(X[b, k, d])) for k in range(ROWS)) / count
        result[b, n, d] = abs(float(X[b, n, d])) / count * share(float(POOLED[b, d]), size)
    return [result]


def epsilon_of_mean(case: Case) -> list[Tensor]:
    x, result = case.operands[0], torch.zeros_like(X)
    for b, n, d in places(x):
        mean = sum(float(x[b, k, d]) for k in range(ROWS)) / ROWS
        result[b, n, d] = float(x[b, n, d]) / ROWS * float(POOLED[b, d]) / (mean + 1e-8)
    return [result]


def taylor(case: Case) -> list[Tensor]:
    """`x_i (R_i - p_i Σ_j R_j)`; what is hidden gets nothing."""
    result = torch.zeros_like(SCORES)
    for b, h, q, k in places(SCORES):
        weights = [math.exp(float(s)) for s in SCORES[b, h, q]]
        whole = sum(float(r) for r in case.sent[b, h, q])
        x = float(SCORES[b, h, q, k])
        if x > float("-inf"):
            result[b, h, q, k] = x * (float(case.sent[b, h, q, k]) - weights[k] / sum(weights) * whole)
    return [result]


# Norms

NORM_X, NORM_SENT = numbers(BATCH, ROWS, IN, seed=40), numbers(BATCH, ROWS, IN, seed=41)
WEIGHT, NORM_BIAS, NORM_EPS = numbers(IN, seed=42), numbers(IN, seed=43), 0.1


def norm_case(centred: bool, weight: Tensor | None, bias: Tensor | None = None) -> Case:
    if centred:
        function = lambda x: F.layer_norm(x, (IN,), weight, bias, NORM_EPS)  # noqa: E731
    else:
        function = lambda x: F.rms_norm(x, (IN,), weight, NORM_EPS)  # noqa: E731
    return Case("norm", function, (NORM_X,), NORM_SENT, ((-1,), weight, NORM_EPS, centred, bias))


NORMS = {
    "layer norm": norm_case(True, WEIGHT, NORM_BIAS),
    "layer norm without weight": norm_case(True, None),
    "rms norm": norm_case(False, WEIGHT),
    "rms norm without weight": norm_case(False, None),
}


def of_norm(relevance: bool) -> Literal:
    """With its denominator a constant: the derivative, or shares of the result by the ε rule."""

    def literal(case: Case) -> list[Tensor]:
        _, weight, eps, centred, _ = case.constants
        value, result = case.function(NORM_X), torch.zeros_like(NORM_X)
        for b, n in itertools.product(range(BATCH), range(ROWS)):
            x = [float(v) for v in NORM_X[b, n]]
            centre = sum(x) / IN if centred else 0.0
            below = math.sqrt(sum((v - centre) ** 2 for v in x) / IN + eps)
            for i, o in itertools.product(range(IN), range(IN)):
                slope = ((i == o) - (1 / IN if centred else 0)) * (1 if weight is None else float(weight[o])) / below
                sent = float(case.sent[b, n, o])
                result[b, n, i] += slope * (x[i] * sent / (float(value[b, n, o]) + 1e-6) if relevance else sent)
        return [result]

    return literal


def _halves(t: float) -> tuple[float, float]:
    return t, t


EACH: dict[str, tuple[Rule, Case, Literal]] = {
    "linear_positive": (rules.linear_positive, LINEAR, by_products(positive_products, by_size=True)),
    "linear_positive, wide": (rules.linear_positive, WIDE_LINEAR, by_products(positive_products)),
    "linear_positive, few rows": (
        rules.linear_positive,
        replace(wide_case(SPARSE), last=True),
        by_products(positive_products),
    ),
    "linear_positive, small": (rules.linear_positive, SMALL_LINEAR, by_products(positive_products, by_size=True)),
    "linear_two_sided": (rules.linear_two_sided, LINEAR, by_products(two_sided)),
    "linear_two_sided, small": (rules.linear_two_sided, SMALL_LINEAR, by_products(two_sided)),
    "linear_excitatory": (rules.linear_excitatory, LINEAR, by_products(excitatory)),
    "map_positive": (rules.map_positive, MAP, by_products(positive_products, by_size=True)),
    "map_positive, turned": (rules.map_positive, TURNED_MAP, by_products(positive_products, by_size=True)),
    "map_two_sided": (rules.map_two_sided, MAP, by_products(two_sided)),
    "map_excitatory": (rules.map_excitatory, MAP, by_products(excitatory)),
    "linear_gamma": (partial(rules.linear_gamma, gamma=0.25), LINEAR, by_gamma(0.25)),
    "linear_gamma_gradient": (partial(rules.linear_gamma_gradient, gamma=0.25), LINEAR, by_gamma_gradient(0.25)),
    "map_gamma_gradient": (partial(rules.map_gamma_gradient, gamma=2.0), MAP, by_gamma_gradient(2.0)),
    "map_gamma_gradient, bias": (partial(rules.map_gamma_gradient, gamma=0.5), BIASED_MAP, by_gamma_gradient(0.5)),
    "map_gamma_gradient, none": (partial(rules.map_gamma_gradient, gamma=0.0), BIASED_MAP, by_gamma_gradient(0.0)),
    "map_gamma": (partial(rules.map_gamma, gamma=2.0), MAP, by_gamma(2.0)),
    "map_gamma, turned": (partial(rules.map_gamma, gamma=0.0), TURNED_MAP, by_gamma(0.0)),
    "epsilon_signed": (partial(rules.epsilon_signed, stabiliser=0.5), LINEAR, signed_epsilon(0.5)),
    "derivative": (rules.derivative, MATMUL, of_matmul(lambda a, b, z, r: (b * r, a * r))),
    "pixels": (rules.pixels, PIXELS, z_b),
    "epsilon": (rules.epsilon, EPSILON, epsilon_of_products),
    "epsilon of a mean": (rules.epsilon, SMALL_MEAN, epsilon_of_mean),
    "matmul_halved": (rules.matmul_halved, MATMUL, of_matmul(lambda a, b, z, r: _halves(a * b * share(r, z) / 2))),
    "matmul_epsilon": (
        rules.matmul_epsilon,
        MATMUL,
        of_matmul(lambda a, b, z, r: _halves(a * b * r / (2 * z + 1e-8))),
    ),
    "halved": (rules.halved, MATMUL, of_matmul(lambda a, b, z, r: (b * r / 2, a * r / 2))),
    "first_held": (rules.first_held, MATMUL, of_matmul(lambda a, b, z, r: (0, a * r))),
    "halved, a gate": (rules.halved, PRODUCT, of_pair(lambda a, b, r: (b * r / 2, a * r / 2))),
    "first_held, a gate": (rules.first_held, BROADCAST, of_pair(lambda a, b, r: (0, a * r))),
    "product_halved": (rules.product_halved, PRODUCT, of_pair(lambda a, b, r: (r / 2, r / 2))),
    "product_halved, shared": (rules.product_halved, BROADCAST, of_pair(lambda a, b, r: (r / 2, r / 2))),
    "scaled": (rules.scaled, SCALED, of_pair(lambda a, b, r: (0, r))),
    "scaled, shared": (rules.scaled, SHARED, of_pair(lambda a, b, r: (0, r))),
    "scaled, a quotient": (rules.scaled, QUOTIENT, of_pair(lambda a, b, r: (0, r))),
    "unchanged": (rules.unchanged, ONE["tanh"], lambda case: [case.sent]),
    "ratio of tanh": (rules.ratio, ONE["tanh"], value_over_x(math.tanh)),
    "ratio of gelu": (rules.ratio, ONE["gelu"], value_over_x(gelu)),
    "sum_by_size": (rules.sum_by_size, SUM, by_size),
    "sum_by_size, a mean": (rules.sum_by_size, MEAN, by_size),
    "softmax_taylor": (rules.softmax_taylor, SOFTMAX, taylor),
}
for _name, _case in ADDITIONS.items():
    _in_proportion = of_pair(lambda a, b, r: (a * share(r, a + b), b * share(r, a + b)))
    _by_epsilon = of_pair(lambda a, b, r: (a * r / (a + b + 1e-8), b * r / (a + b + 1e-8)))
    EACH[f"add {_name}".strip()] = rules.add, _case, _in_proportion
    EACH[f"add_normalised {_name}".strip()] = rules.add_normalised, _case, normalised_addition
    EACH[f"add_epsilon {_name}".strip()] = rules.add_epsilon, _case, _by_epsilon
for _name, _case in NORMS.items():
    EACH[f"norm_held, {_name}"] = rules.norm_held, _case, of_norm(relevance=False)
    EACH[f"norm_epsilon, {_name}"] = rules.norm_epsilon, _case, of_norm(relevance=True)


@pytest.mark.parametrize("name", EACH)
def test_rule(name: str) -> None:
    rule, case, literal = EACH[name]
    assert same(case.by(rule), literal(case))


def test_every_rule_has_a_derivation() -> None:
    written = {name for name, f in vars(rules).items() if "site" in getattr(f, "__annotations__", {})}
    assert {getattr(rule, "func", rule).__name__ for rule, _, _ in EACH.values()} == written


def test_rule_where_the_result_is_a_view_in_another_order() -> None:
    """As einsum gives it."""
    left, right = numbers(BATCH, 2, ROWS, ROWS, seed=50), numbers(BATCH, ROWS, 2, IN, seed=51)
    sent = numbers(BATCH, ROWS, 2, IN, seed=52)
    case = Case("matmul", lambda a, b: torch.einsum("bhqk,bkhd->bqhd", a, b), (left, right), sent)
    expected = [torch.zeros_like(left), torch.zeros_like(right)]
    for b, q, h, d in places(sent):
        products = [float(left[b, h, q, k]) * float(right[b, k, h, d]) for k in range(ROWS)]
        for k, product in enumerate(products):
            part = product * share(float(sent[b, q, h, d]), sum(products)) / 2
            expected[0][b, h, q, k] += part
            expected[1][b, k, h, d] += part
    assert same(case.by(rules.matmul_halved), expected)


def test_a_constant_takes_its_share_under_epsilon() -> None:
    first, second = ADD.operands
    alone = Case("add_constant", lambda x: x + second, (first,), ADD.sent)
    assert same(alone.by(rules.add_epsilon), EACH["add_epsilon"][2](ADD)[:1])


def test_no_product_is_positive_in_one_place() -> None:
    x, matrix = MAP.operands[0], MAP.constants[0]
    assert not any(positive_products(float(x[0, 0, i]), float(matrix[0, i, 0]))[0] for i in range(IN))
    assert torch.isclose(MAP.by(rules.map_positive)[0].sum(), MAP.sent.sum(), rtol=STABILIZED)


def test_division() -> None:
    values = torch.tensor([1.0, -1.0, 1e-9, -3e-9, 1e-12, 0.0, -0.0], dtype=torch.float64)
    found = rules.divide(torch.full_like(values, 2), values)
    assert found.tolist() == pytest.approx([share(2, float(v)) for v in values], rel=1e-12)


# Broken rules


def by_derivative(site: Site, relevance: Tensor) -> Exchange:
    return relevance, lambda position, sent: sent


def times(factor: float, rule: Rule) -> Rule:
    def changed(site: Site, relevance: Tensor) -> Exchange:
        sent, finish = rule(site, relevance)
        return sent, lambda position, sent: factor * finish(position, sent)

    return changed


def over(denominator: Callable[[Site], Tensor]) -> Rule:
    """In proportion to the products, with another denominator."""
    return lambda site, r: (r / denominator(site), lambda position, sent: site.operands[position] * sent)


def with_operands(rule: Rule, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Rule:
    return lambda s, r: rule(Site(s.kind, change(s.operands), s.value, (), s.node, "", BATCH), r)


def as_one_example(rule: Rule) -> Rule:
    return lambda s, r: rule(Site(s.kind, s.operands, s.value, (), s.node, "", 1), r)


def without_fallback(site: Site, relevance: Tensor) -> Exchange:
    x, matrix, product = site.operands
    positive = (product(x, matrix) + product(x.abs(), matrix.abs())) / 2
    shares = rules.divide(relevance, positive).masked_fill(positive < 1e-12, 0)
    sizes = x.abs() * rules._sent_back(product, matrix.abs(), x, shares / 2)
    return shares, lambda position, sent: sizes + x * sent / 2


def by_size_everywhere(site: Site, relevance: Tensor) -> Exchange:
    x, matrix, product = site.operands
    shares = rules.divide(relevance, product(x.abs(), matrix.abs()))
    found = x.abs() * rules._sent_back(product, matrix.abs(), x, shares)
    return relevance, lambda position, sent: found


def one_sum_for_both_sides(site: Site, relevance: Tensor) -> Exchange:
    x, matrix, product = site.operands
    sides = [(x.clamp(min=0), matrix.clamp(min=0)), (x.clamp(max=0), matrix.clamp(max=0))]
    shares = rules.divide(relevance, sum(product(part, side) for part, side in sides))
    found = [p * rules._sent_back(product, side, x, shares) for p, side in sides]
    return relevance, lambda position, sent: found[0] + found[1]


def z_b_between(low: Tensor, high: Tensor, bias: Tensor | None = None) -> Rule:
    def rule(site: Site, relevance: Tensor) -> Exchange:
        x, weight, product = site.operands
        sides = (low.expand_as(x), weight.clamp(min=0)), (high.expand_as(x), weight.clamp(max=0))
        whole = product(x, weight) - sum(product(bound, side) for bound, side in sides)
        shares = rules.divide(relevance, whole + (0 if bias is None else bias.view(-1, 1, 1)))
        taken = [b * rules._sent_back(product, side, x, shares) for b, side in sides]
        return shares, lambda position, sent: x * sent - taken[0] - taken[1]

    return rule


def extremes(*dims: int) -> tuple[Tensor, Tensor]:
    return IMAGES.amin(dims, keepdim=True), IMAGES.amax(dims, keepdim=True)


def second_held(site: Site, relevance: Tensor) -> Exchange:
    return relevance, lambda position, sent: torch.zeros_like(sent) if position else sent


def taylor_by(change: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    """Another change of relevance than `R - p ΣR`."""
    x = SCORES.masked_fill(SCORES.isneginf(), 0)
    return lambda site, r: (r, lambda position, sent: x * change(r, site.value))


def norm_with(change: Callable[[tuple[Any, ...]], tuple[Any, ...]], rule: Rule = rules.norm_held) -> Rule:
    return with_operands(rule, change)


def sizes_forgotten(site: Site, relevance: Tensor) -> Exchange:
    shares = rules.divide(relevance, site.value)
    return shares, lambda position, sent: site.operands[0] * sent


BROKEN: dict[str, list[tuple[str, Rule]]] = {
    "linear_positive": [
        ("derivative", by_derivative),
        ("both signs", over(lambda site: site.value)),
        ("two denominators", rules.linear_two_sided),
        ("positive inputs alone", rules.linear_excitatory),
        ("factor 2 missing", times(2, rules.linear_positive)),
    ],
    "linear_positive, wide": [
        ("bias kept", with_operands(rules.linear_positive, lambda o: (*o[:2], None))),
        ("factor 2 missing", times(2, rules.linear_positive)),
        ("sizes everywhere", with_operands(by_size_everywhere, lambda o: (*o[:2], F.linear))),
    ],
    "linear_two_sided": [("one denominator", rules.linear_positive), ("one side", rules.linear_excitatory)],
    "linear_excitatory": [("both sides", rules.linear_two_sided)],
    "map_positive": [
        ("nothing where none is positive", without_fallback),
        ("sizes everywhere", by_size_everywhere),
        ("factor 2 missing", times(2, rules.map_positive)),
    ],
    "map_two_sided": [("one denominator", one_sum_for_both_sides), ("one side", rules.map_excitatory)],
    "linear_gamma": [
        ("another γ", partial(rules.linear_gamma, gamma=0.3)),
        ("bias kept", over(lambda site: site.value)),
        ("positive products", rules.linear_positive),
    ],
    "linear_gamma_gradient": [
        ("another γ", partial(rules.linear_gamma_gradient, gamma=0.3)),
        ("bias forgotten", with_operands(partial(rules.linear_gamma_gradient, gamma=0.25), lambda o: (*o[:2], None))),
        ("derivative", by_derivative),
    ],
    "map_gamma_gradient": [("no γ", partial(rules.map_gamma_gradient, gamma=0.0))],
    "map_gamma_gradient, none": [("some γ", partial(rules.map_gamma_gradient, gamma=0.1))],
    "map_gamma_gradient, bias": [
        ("another γ", partial(rules.map_gamma_gradient, gamma=0.6)),
        ("derivative", by_derivative),
        ("relevance", partial(rules.map_gamma, gamma=0.5)),
    ],
    "map_gamma": [
        ("another γ", partial(rules.map_gamma, gamma=1.9)),
        ("no γ", partial(rules.map_gamma, gamma=0.0)),
        ("positive products", rules.map_positive),
        ("not times the input", lambda s, r: (rules.map_gamma(s, r, gamma=2.0)[0], lambda position, sent: 2 * sent)),
    ],
    "map_gamma, turned": [("some γ", partial(rules.map_gamma, gamma=0.1))],
    "epsilon_signed": [
        ("always added", over(lambda site: site.value + 0.5)),
        ("subtracted", over(lambda site: site.value - 0.5 * site.value.sign())),
        ("none", over(lambda site: site.value)),
    ],
    "derivative": [("halved", rules.halved), ("held", rules.first_held), ("in proportion", rules.matmul_halved)],
    "map_excitatory": [("both sides", rules.map_two_sided), ("by size", by_size_everywhere)],
    "pixels": [
        ("low and high exchanged", z_b_between(*extremes(1, 2, 3)[::-1])),
        ("one range for the batch", z_b_between(*extremes(0, 1, 2, 3))),
        ("a range for each channel", z_b_between(*extremes(2, 3))),
        ("bias kept", z_b_between(*extremes(1, 2, 3), KERNEL_BIAS)),
        ("no range", rules.map_positive),
    ],
    "epsilon": [
        ("bias left out", over(lambda site: site.value - BIAS + 1e-8)),
        ("stabiliser subtracted", over(lambda site: site.value - 1e-8)),
        ("stabiliser with the sign of the sum", over(lambda site: site.value + 1e-8 * site.value.sign())),
        ("another stabiliser", over(lambda site: site.value + 1e-6)),
        ("not times the input", lambda s, r: (r / (s.value + 1e-8), lambda position, sent: sent)),
    ],
    "epsilon of a mean": [("by size", rules.sum_by_size)],
    "matmul_halved": [
        ("the whole to each", times(2, rules.matmul_halved)),
        ("another stabiliser", rules.matmul_epsilon),
        ("derivative", rules.halved),
    ],
    "matmul_epsilon": [
        ("factor 2 missing", over(lambda site: site.value + 1e-8)),
        ("stabiliser doubled", over(lambda site: 2 * (site.value + 1e-8))),
        ("another stabiliser", rules.matmul_halved),
    ],
    "halved": [
        ("the whole to each", by_derivative),
        ("a quarter", times(0.5, rules.halved)),
        ("held", rules.first_held),
    ],
    "first_held": [("nothing held", by_derivative), ("the other held", second_held), ("halved", rules.halved)],
    "product_halved": [("the whole to each", rules.unchanged), ("first held", rules.scaled)],
    "scaled": [("nothing held", rules.unchanged), ("halves", rules.product_halved), ("derivative", rules.first_held)],
    "unchanged": [("derivative", by_derivative), ("ratio", rules.ratio)],
    "ratio of gelu": [
        ("derivative", by_derivative),
        ("unchanged", rules.unchanged),
        ("turned over", lambda s, r: (r, lambda position, sent: r * s.operands[0] / s.value)),
    ],
    "sum_by_size": [("by value", sizes_forgotten), ("equal shares", by_derivative)],
    "sum_by_size, a mean": [("a sum", times(ROWS, rules.sum_by_size))],
    "add": [("halves", rules.product_halved), ("rescaled", rules.add_normalised), ("other", rules.add_epsilon)],
    "add_normalised": [
        ("sums over the batch", as_one_example(rules.add_normalised)),
        ("not rescaled", rules.add),
        ("the whole to each", rules.unchanged),
        ("halves", rules.product_halved),
    ],
    "add_epsilon": [("another stabiliser", rules.add), ("rescaled", rules.add_normalised)],
    "softmax_taylor": [
        ("derivative", taylor_by(lambda r, p: p * (r - (p * r).sum(-1, keepdim=True)))),
        ("nothing taken away", taylor_by(lambda r, p: r)),
        ("summed over queries", taylor_by(lambda r, p: r - p * r.sum(-2, keepdim=True))),
        ("unchanged", rules.unchanged),
    ],
    "norm_held, layer norm": [
        ("not centred", norm_with(lambda o: (*o[:4], False, o[5]))),
        ("no weight", norm_with(lambda o: (*o[:2], None, *o[3:]))),
        ("no ε", norm_with(lambda o: (*o[:3], 0.0, *o[4:]))),
        ("derivative", by_derivative),
        ("unchanged", rules.unchanged),
    ],
    "norm_held, rms norm": [("centred", norm_with(lambda o: (*o[:4], True, o[5]))), ("derivative", by_derivative)],
    "norm_epsilon, layer norm": [
        ("not centred", norm_with(lambda o: (*o[:4], False, o[5]), rules.norm_epsilon)),
        ("no weight", norm_with(lambda o: (*o[:2], None, *o[3:]), rules.norm_epsilon)),
        ("denominator not held", over(lambda site: site.value + 1e-6)),
        ("not times the input", rules.norm_held),
    ],
    "norm_epsilon, rms norm": [("centred", norm_with(lambda o: (*o[:4], True, o[5]), rules.norm_epsilon))],
}


@pytest.mark.parametrize(("name", "what"), [(name, what) for name, rules_ in BROKEN.items() for what, _ in rules_])
def test_a_broken_rule_is_caught(name: str, what: str) -> None:
    _, case, literal = EACH[name]
    found = case.by(dict(BROKEN[name])[what])
    assert all(bool(f.isfinite().all()) for f in found)
    assert not same(found, literal(case))


STABILISED = {
    "STABILISER": ("linear_positive, small", "linear_two_sided, small", "matmul_halved", "add", "sum_by_size"),
    "EPSILON": ("norm_epsilon, layer norm", "norm_epsilon, rms norm"),
    "SMALL_EPSILON": ("epsilon", "epsilon of a mean", "matmul_epsilon", "add_epsilon"),
    "RATIO_STABILISER": ("ratio of tanh", "ratio of gelu"),
}


@pytest.mark.parametrize(("constant", "name"), [(c, name) for c, names in STABILISED.items() for name in names])
@pytest.mark.parametrize("factor", [-1, 0, 10])
def test_a_broken_stabiliser_is_caught(
    constant: str, name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, case, literal = EACH[name]
    monkeypatch.setattr(rules, constant, factor * getattr(rules, constant))
    assert not same(case.by(rule), literal(case))


def test_broken_rules_are_broken_in_one_place() -> None:
    """Put right, what they are made of gives the literal derivations."""
    assert same(PIXELS.by(z_b_between(*extremes(1, 2, 3))), z_b(PIXELS))
    assert same(SOFTMAX.by(taylor_by(lambda r, p: r - p * r.sum(-1, keepdim=True))), taylor(SOFTMAX))
    assert same(EPSILON.by(over(lambda site: site.value + 1e-8)), epsilon_of_products(EPSILON))


def test_there_are_broken_rules_for_every_rule() -> None:
    assert {EACH[name][0] for name in BROKEN} == {rule for rule, _, _ in EACH.values()}  # with parameters, each
    assert sum(map(len, BROKEN.values())) >= 60


# What the paper proves about the rules


def test_lemma_1_addition_conserves_and_a_matrix_product_doubles() -> None:
    """Before normalisation (Chefer et al. 2021, Lemma 1)."""
    first, second, sent = (numbers(BATCH, ROWS, IN, seed=s) for s in (12, 13, 14))
    parts = Case("add", torch.add, (first, second), sent).by(rules.add)
    assert torch.isclose(sum(p.sum() for p in parts), sent.sum(), rtol=STABILIZED)
    factors = numbers(BATCH, ROWS, IN, seed=4), numbers(BATCH, IN, OUT, seed=5)
    halves = Case("matmul", torch.matmul, factors, MATMUL.sent).by(rules.matmul_halved)
    assert torch.isclose(2 * halves[0].sum(), MATMUL.sent.sum(), rtol=STABILIZED)
    assert torch.isclose(2 * halves[1].sum(), MATMUL.sent.sum(), rtol=STABILIZED)


@pytest.mark.parametrize("a", [1.0, 10.0, 20.0])
def test_lemma_2_relevance_stays_bounded_where_summands_cancel(a: float) -> None:
    """`u = e^a, v = 1 - e^a`: without normalisation the parts explode, with it they stay within the whole."""
    u = torch.tensor([[a]], dtype=torch.float64).exp().expand(BATCH, 1)
    sent = torch.ones(BATCH, 1, dtype=torch.float64)
    case = Case("add", torch.add, (u, 1 - u), sent)
    loose, bound = case.by(rules.add), case.by(rules.add_normalised)
    assert loose[0].abs().max() >= 0.99 * torch.e**a
    assert all(bool((p >= -1e-10).all() and (p <= 1 + 1e-10).all()) for p in bound)
    assert torch.allclose(bound[0] + bound[1], sent, atol=1e-10)


# Whole models, with the modified gradient by hand


class Plain:
    """The functions of torch, as a model calls them."""

    def norm(self, x: Tensor, module: nn.Module) -> Tensor:
        return module(x)

    def activation(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(x)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def attend(self, probabilities: Tensor, values: Tensor) -> Tensor:
        return probabilities @ values

    def gate(self, gate: Tensor, other: Tensor) -> Tensor:
        return gate * other


class ByHand(Plain):
    """The same values, with other derivatives."""

    def __init__(self, conservative: bool) -> None:
        self.conservative = conservative

    def norm(self, x: Tensor, module: nn.Module) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if isinstance(module, nn.LayerNorm) else x
        below = (x.square().mean(-1, keepdim=True) + module.eps).sqrt().detach()
        return x / below * module.weight + (module.bias if isinstance(module, nn.LayerNorm) else 0)

    def activation(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(x).detach() + (x - x.detach()) * (function(x) / (x + 1e-10)).detach()

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.detach() + a.detach() @ b) / 2

    def attend(self, probabilities: Tensor, values: Tensor) -> Tensor:
        return probabilities.detach() @ values if self.conservative else self.matmul(probabilities, values)

    def gate(self, gate: Tensor, other: Tensor) -> Tensor:
        if self.conservative:
            return gate.detach() * other
        return (gate * other.detach() + gate.detach() * other) / 2


class Block(nn.Module):
    """A layer of two heads: norms after the sums as in BERT, or before them and a gate as in Llama."""

    def __init__(self, like: str) -> None:
        super().__init__()
        self.like = like
        norm = nn.LayerNorm if like == "bert" else nn.RMSNorm
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.up, self.gate, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        self.first, self.second = norm(8, eps=0.01), norm(8, eps=0.01)
        self.maps: list[Tensor] = []

    def attention(self, x: Tensor, how: Plain) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (2, 4)).transpose(1, 2) for f in (self.query, self.key, self.value))
        probabilities = (how.matmul(q, k.mT) / 2).softmax(-1)
        self.maps.append(probabilities)
        return self.out(how.attend(probabilities, v).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, how: Plain) -> Tensor:
        if self.like == "bert":
            x = how.norm(x + self.attention(x, how), self.first)
            return how.norm(x + self.down(how.activation(self.up(x), F.gelu)), self.second)
        x = x + self.attention(how.norm(x, self.first), how)
        inner = how.norm(x, self.second)
        return x + self.down(how.gate(how.activation(self.gate(inner), F.silu), self.up(inner)))


@dataclass
class Said:
    logits: Tensor


class Tiny(nn.Module):
    def __init__(self, like: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding, self.positions, self.norm = nn.Embedding(20, 8), nn.Embedding(5, 8), nn.LayerNorm(8)
        self.layers = nn.ModuleList([Block(like)])
        self.pooler, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def run(self, embeddings: Tensor, how: Plain) -> tuple[Tensor, Tensor, Tensor]:
        first = how.norm(embeddings + self.positions.weight, self.norm)
        last = self.layers[0](first, how)
        return first, last, self.head(how.activation(self.pooler(last[:, 0]), torch.tanh))

    def forward(self, input_ids: Tensor) -> Said:
        return Said(self.run(self.embedding(input_ids), Plain())[-1])


@pytest.mark.parametrize("like", ["bert", "llama"])
@pytest.mark.parametrize("target", range(3))
def test_a_whole_model_by_hand(like: str, target: int) -> None:
    model = Tiny(like).double()
    ids = torch.tensor([[1, 5, 7, 3, 2], [4, 4, 9, 0, 6]])
    trace = whyformer.record(model, {"input_ids": ids})
    found, by_hand = {}, {}
    for book in ("attn", "conservative"):
        of = (trace.embeddings, *trace.hidden, trace.attention[0])
        found[book] = list(trace.relevance(of, book, target))
        embeddings = model.embedding(ids).detach().requires_grad_()
        model.layers[0].maps.clear()
        *states, logits = model.run(embeddings, ByHand(book == "conservative"))
        torch.testing.assert_close(logits, trace.logits, rtol=1e-12, atol=1e-12)
        tensors = [embeddings, *states, *model.layers[0].maps]
        gradients = torch.autograd.grad(logits[:, target].sum(), tensors, allow_unused=True)
        by_hand[book] = [
            torch.zeros_like(t) if g is None else (t * g).detach() for t, g in zip(tensors, gradients, strict=True)
        ]
        assert same(found[book], by_hand[book])
    assert not same(found["attn"][:2], by_hand["conservative"][:2])
    gradient = [trace.embeddings.detach() * trace.gradient(trace.embeddings, target)]
    assert not same(gradient, by_hand["attn"][:1])
