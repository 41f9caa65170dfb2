"""Each relevance rule once more, with loops, and broken rules that must be caught."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from whyformer.recorder import rules
from whyformer.recorder.sites import Rule, Site, governed, make_site

EPSILON = 1e-9
BATCH, ROWS, IN, OUT = 2, 3, 4, 5


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def share(part: float, whole: float) -> float:
    return 0.0 if whole == 0 else part / (whole + EPSILON)


def by_rule(
    rule: Rule,
    kind: str,
    function: Callable[..., Tensor],
    operands: Sequence[Tensor],
    relevance: Tensor,
    *constants: object,
) -> list[Tensor]:
    """What a relevance pass through one site gives its operands."""
    leaves = [o.clone().requires_grad_() for o in operands]
    result, site = make_site(kind, function, leaves, "test", BATCH, constants)
    assert site is not None
    with governed([site], lambda _: rule):
        return list(torch.autograd.grad(result, leaves, relevance))


LINEAR = {"x": numbers(BATCH, ROWS, IN), "weight": numbers(OUT, IN, seed=1), "bias": numbers(OUT, seed=2)}
SENT = numbers(BATCH, ROWS, OUT, seed=3)


def linear(rule: Rule, relevance: Tensor = SENT) -> Tensor:
    x, weight, bias = LINEAR.values()
    function = lambda x: torch.nn.functional.linear(x, weight, bias)  # noqa: E731
    return by_rule(rule, "linear", function, [x], relevance, weight, bias)[0]


def literal_linear(pairs: Callable[[float, float], list[float]], relevance: Tensor = SENT) -> Tensor:
    """`pairs` splits a product into the parts that have a denominator of their own."""
    x, weight, _ = LINEAR.values()
    result = torch.zeros_like(x)
    for b in range(BATCH):
        for n in range(ROWS):
            for o in range(OUT):
                parts = [pairs(float(x[b, n, i]), float(weight[o, i])) for i in range(IN)]
                totals = [sum(column) for column in zip(*parts, strict=True)]
                for i in range(IN):
                    for part, total in zip(parts[i], totals, strict=True):
                        result[b, n, i] += part * share(float(relevance[b, n, o]), total)
    return result


def positive_products(x: float, w: float) -> list[float]:
    return [max(x, 0) * max(w, 0) + min(x, 0) * min(w, 0)]


def two_sided(x: float, w: float) -> list[float]:
    return [max(x, 0) * max(w, 0), min(x, 0) * min(w, 0)]


def excitatory(x: float, w: float) -> list[float]:
    return [max(x, 0) * max(w, 0)]


def same(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).abs().max() <= 1e-9 * expected.abs().max())


def test_linear_positive() -> None:
    assert same(linear(rules.linear_positive), literal_linear(positive_products))


def test_linear_positive_where_most_rows_have_no_relevance() -> None:
    sparse = SENT.clone()
    sparse[:, 1:] = 0
    assert same(linear(rules.linear_positive, sparse), literal_linear(positive_products, sparse))


def test_linear_two_sided() -> None:
    assert same(linear(rules.linear_two_sided), literal_linear(two_sided))


def test_linear_excitatory() -> None:
    assert same(linear(rules.linear_excitatory), literal_linear(excitatory))


A, B, MATMUL_SENT = numbers(BATCH, ROWS, IN, seed=4), numbers(BATCH, IN, OUT, seed=5), numbers(BATCH, ROWS, OUT, seed=6)


def test_matmul_halved() -> None:
    found = by_rule(rules.matmul_halved, "matmul", torch.matmul, [A, B], MATMUL_SENT)
    left, right = torch.zeros_like(A), torch.zeros_like(B)
    product = A @ B
    for b in range(BATCH):
        for q in range(ROWS):
            for o in range(OUT):
                ratio = share(float(MATMUL_SENT[b, q, o]), float(product[b, q, o]))
                for k in range(IN):
                    left[b, q, k] += A[b, q, k] * B[b, k, o] * ratio / 2
                    right[b, k, o] += A[b, q, k] * B[b, k, o] * ratio / 2
    assert same(found[0], left)
    assert same(found[1], right)


def literal_add(first: Tensor, second: Tensor, relevance: Tensor, normalised: bool) -> list[Tensor]:
    parts = [torch.zeros_like(relevance), torch.zeros_like(relevance)]
    for b in range(BATCH):
        for n in range(relevance.shape[1]):
            for d in range(relevance.shape[2]):
                one, two = float(first[b, n, d]), float(second.expand_as(relevance)[b, n, d])
                ratio = share(float(relevance[b, n, d]), one + two)
                parts[0][b, n, d], parts[1][b, n, d] = one * ratio, two * ratio
        if normalised:
            sums = [float(p[b].sum()) for p in parts]
            size, whole = abs(sums[0]) + abs(sums[1]), float(relevance[b].sum())
            for part, total in zip(parts, sums, strict=True):
                part[b] *= share(share(abs(total), size) * whole, total)
    return [parts[0], parts[1].sum_to_size(second.shape)]


@pytest.mark.parametrize(("rule", "normalised"), [(rules.add, False), (rules.add_normalised, True)])
@pytest.mark.parametrize("shape", [(BATCH, ROWS, IN), (ROWS, IN), (1, 1, IN)], ids=str)
def test_add(rule: Rule, normalised: bool, shape: tuple[int, ...]) -> None:
    first, second, sent = numbers(BATCH, ROWS, IN, seed=7), numbers(*shape, seed=8), numbers(BATCH, ROWS, IN, seed=9)
    found = by_rule(rule, "add", torch.add, [first, second], sent)
    for part, expected in zip(found, literal_add(first, second, sent, normalised), strict=True):
        assert same(part, expected)


def test_product_and_sum_and_unchanged() -> None:
    sent = numbers(BATCH, ROWS, IN, seed=10)
    gate = by_rule(rules.product_halved, "product", torch.mul, [A, A + 1], sent)
    assert same(gate[0], sent / 2)
    assert same(gate[1], sent / 2)
    assert same(by_rule(rules.unchanged, "activation", torch.tanh, [A], sent)[0], sent)
    pooled = numbers(BATCH, IN, seed=11)
    for function in (lambda x: x.sum(1), lambda x: x.mean(1)):
        found = by_rule(rules.sum_by_size, "sum", function, [A], pooled, function(A.abs()))[0]
        expected = torch.zeros_like(A)
        for b in range(BATCH):
            for d in range(IN):
                size = sum(abs(float(A[b, n, d])) for n in range(ROWS))
                for n in range(ROWS):
                    expected[b, n, d] = abs(float(A[b, n, d])) * float(pooled[b, d]) / size
        assert (found - expected).abs().max() < 1e-8


def test_lemma_1_addition_conserves_and_a_matrix_product_doubles() -> None:
    """Before normalisation (Chefer et al. 2021, Lemma 1)."""
    first, second, sent = (numbers(BATCH, ROWS, IN, seed=s) for s in (12, 13, 14))
    parts = by_rule(rules.add, "add", torch.add, [first, second], sent)
    assert torch.isclose(sum(p.sum() for p in parts), sent.sum(), rtol=1e-6)
    halves = by_rule(rules.matmul_halved, "matmul", torch.matmul, [A, B], MATMUL_SENT)
    assert torch.isclose(2 * halves[0].sum(), MATMUL_SENT.sum(), rtol=1e-6)
    assert torch.isclose(2 * halves[1].sum(), MATMUL_SENT.sum(), rtol=1e-6)


@pytest.mark.parametrize("a", [1.0, 10.0, 20.0])
def test_lemma_2_relevance_stays_bounded_where_summands_cancel(a: float) -> None:
    """`u = e^a, v = 1 - e^a`: without normalisation the parts explode, with it they stay within the whole."""
    u = torch.tensor([[a]], dtype=torch.float64).exp().expand(BATCH, 1)
    sent = torch.ones(BATCH, 1, dtype=torch.float64)
    loose = by_rule(rules.add, "add", torch.add, [u, 1 - u], sent)
    bound = by_rule(rules.add_normalised, "add", torch.add, [u, 1 - u], sent)
    assert loose[0].abs().max() >= 0.99 * torch.e**a
    assert all(bool((p >= -1e-6).all() and (p <= 1 + 1e-6).all()) for p in bound)
    assert torch.allclose(bound[0] + bound[1], sent, atol=1e-6)


def broken(change: Callable[[Site, Tensor], tuple[Tensor, Callable[[int, Tensor], Tensor]]]) -> Rule:
    return change


def _with_bias(site: Site, relevance: Tensor) -> tuple[Tensor, Callable[[int, Tensor], Tensor]]:
    x, weight, _ = site.operands
    return rules.linear_positive(Site(site.kind, (x, weight, None), site.value, (), site.node, "", BATCH), relevance)


def _by_gradient(site: Site, relevance: Tensor) -> tuple[Tensor, Callable[[int, Tensor], Tensor]]:
    return relevance, lambda position, sent: sent


def _epsilon(site: Site, relevance: Tensor) -> tuple[Tensor, Callable[[int, Tensor], Tensor]]:
    return rules.divide(relevance, site.value), lambda position, sent: site.operands[0] * sent


@pytest.mark.parametrize("rule", [_with_bias, _by_gradient, _epsilon, rules.linear_two_sided, rules.linear_excitatory])
def test_a_broken_linear_rule_is_caught(rule: Rule) -> None:
    assert not same(linear(rule), literal_linear(positive_products))


def _over_the_batch(site: Site, relevance: Tensor) -> tuple[Tensor, Callable[[int, Tensor], Tensor]]:
    return rules.add_normalised(Site(site.kind, site.operands, site.value, (), site.node, "", 1), relevance)


@pytest.mark.parametrize("rule", [_over_the_batch, rules.add, rules.unchanged, rules.product_halved, _by_gradient])
def test_a_broken_addition_is_caught(rule: Rule) -> None:
    first, second, sent = (numbers(BATCH, ROWS, IN, seed=s) for s in (7, 8, 9))
    found = by_rule(rule, "add", torch.add, [first, second], sent)
    assert not same(found[0], literal_add(first, second, sent, normalised=True)[0])
