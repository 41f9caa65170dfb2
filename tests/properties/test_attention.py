"""Attention computed in the open is torch's fused attention."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whyformer.recorder.attention import attend

Mask = Literal["none", "boolean", "additive", "causal"]


@dataclass(frozen=True)
class Case:
    batch: int
    heads: int
    groups: int  # query heads for each key head
    queries: int
    keys: int
    width: int
    value_width: int
    folded: bool  # heads folded into the batch: three dimensions
    mask: Mask
    mask_shape: Literal["full", "no heads", "no batch"]
    scale: float | None
    seed: int

    def tensors(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        query_heads = self.heads * self.groups
        shapes = [
            (self.batch, query_heads, self.queries, self.width),
            (self.batch, self.heads, self.keys, self.width),
            (self.batch, self.heads, self.keys, self.value_width),
        ]
        made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        return [(t[:, 0] if self.folded else t).requires_grad_() for t in made]

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"scale": self.scale, "is_causal": self.mask == "causal"}
        if self.mask in ("boolean", "additive"):
            options["attn_mask"] = self._mask()
        if self.groups > 1:
            options["enable_gqa"] = True
        return options

    def _mask(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed + 1)
        heads = 1 if self.mask_shape == "no heads" else self.heads * self.groups
        shape: tuple[int, ...] = (self.batch, heads, self.queries, self.keys)
        if self.mask_shape == "no batch":
            shape = shape[2:]
        elif self.folded:
            shape = (self.batch, self.queries, self.keys)
        allowed = torch.rand(shape, generator=generator) < 0.6
        if self.mask == "boolean":
            return allowed
        return torch.randn(shape, generator=generator, dtype=torch.float64).masked_fill(~allowed, float("-inf"))

    def blind(self) -> Tensor:
        """Queries that may look nowhere, as a mask over the result."""
        mask = self.options().get("attn_mask")
        if mask is None:
            return torch.tensor(False)
        return (~mask if mask.dtype == torch.bool else mask.isneginf()).all(-1, keepdim=True)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    folded = draw(st.booleans())
    size = st.integers(1, 5)
    return Case(
        batch=draw(size),
        heads=1 if folded else draw(st.integers(1, 3)),
        groups=1 if folded else draw(st.integers(1, 3)),
        queries=draw(size),
        keys=draw(size),
        width=draw(size),
        value_width=draw(size),
        folded=folded,
        mask=draw(st.sampled_from(["none", "boolean", "additive", "causal"])),
        mask_shape=draw(st.sampled_from(["full", "no heads", "no batch"])),
        scale=draw(st.sampled_from([None, 1.0, 0.3])),
        seed=draw(st.integers(0, 10**6)),
    )


def gradients(context: Tensor, tensors: list[Tensor], seen: Tensor) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(context.shape, generator=generator, dtype=torch.float64) * seen
    return torch.autograd.grad((context * direction).sum(), tensors)


@pytest.mark.long
@settings(max_examples=250, deadline=None, derandomize=True)
@given(cases())
def test_attend_is_scaled_dot_product_attention(case: Case) -> None:
    tensors, options, blind = case.tensors(), case.options(), case.blind()
    context, attention = attend(*tensors, **options)
    fused = F.scaled_dot_product_attention(*tensors, **options)
    assert context.shape == fused.shape
    torch.testing.assert_close(context, fused.masked_fill(blind, 0), rtol=0, atol=1e-10)

    found = gradients(context, tensors, torch.ones(()))
    assert all(bool(g.isfinite().all()) for g in found)
    if not bool(blind.any()):
        expected = gradients(fused, tensors, torch.ones(()))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)

    sums = attention.probabilities.sum(-1, keepdim=True)
    unfolded = blind.unsqueeze(1) if case.folded and blind.dim() == 3 else blind
    torch.testing.assert_close(sums, torch.ones_like(sums).masked_fill(unfolded, 0), rtol=0, atol=1e-12)
    heads = 1 if case.folded else case.heads * case.groups
    assert attention.probabilities.shape == (case.batch, heads, case.queries, case.keys)
    assert attention.values.shape == (case.batch, heads, case.keys, case.value_width)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(cases(), st.integers(0, 4))
def test_a_query_that_may_look_nowhere_gets_zeros_and_passes_no_gradient(case: Case, row: int) -> None:
    tensors, row = case.tensors(), row % case.queries
    for mask in (
        torch.ones(case.queries, case.keys, dtype=torch.bool),
        torch.zeros(case.queries, case.keys, dtype=torch.float64),
    ):
        mask[row] = False if mask.dtype == torch.bool else float("-inf")
        options = {"attn_mask": mask, "scale": case.scale, "enable_gqa": case.groups > 1}
        context, attention = attend(*tensors, **options)
        assert not bool(context[..., row, :].any())
        assert not bool(attention.probabilities[..., row, :].any())
        found = gradients(context, tensors, torch.ones(()))
        assert all(bool(g.isfinite().all()) for g in found)
        assert not bool(found[0][..., row, :].any())


def test_half_precision_is_computed_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 4, 8, generator=generator).bfloat16() for _ in range(3))
    context, attention = attend(query, key, value)
    assert context.dtype == attention.probabilities.dtype == torch.bfloat16
    expected = (query.float() @ key.float().mT * 8**-0.5).softmax(-1).bfloat16()
    torch.testing.assert_close(attention.probabilities, expected, rtol=torch.finfo(torch.bfloat16).eps, atol=0)
