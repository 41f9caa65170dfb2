"""Functions that rules write out in simpler ones give what torch gives."""

from typing import Any

import pytest
import torch

from whyformer.recorder.lrp import dispatch

A, B, C = (torch.arange(6.0, dtype=torch.float64).reshape(2, 3) + shift for shift in (0.5, -2.0, 3.0))
ROWS = torch.tensor([1, 0])


@pytest.mark.parametrize("alpha", [1, 2, -0.5])
def test_factors_of_sums(alpha: float) -> None:
    pairs: list[tuple[Any, Any]] = [
        (dispatch._scaled_added(A, B, alpha=alpha), torch.add(A, B, alpha=alpha)),
        (dispatch._subtracted(A, B, alpha=alpha), torch.sub(A, B, alpha=alpha)),
        (dispatch._subtracted_from(A, B), torch.rsub(A, B)),
        (dispatch._indices_added(A, 0, ROWS, B, alpha=alpha), torch.index_add(A, 0, ROWS, B, alpha=alpha)),
    ]
    for found, expected in pairs:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (2, 1), (1, 3), (-0.5, 0.25)])
def test_factors_of_products(beta: float, alpha: float) -> None:
    added, left, right = A[None, :, :2], A[None], B.T[None]
    found = dispatch._added_product(added, left, right, beta=beta, alpha=alpha)
    torch.testing.assert_close(found, torch.baddbmm(added, left, right, beta=beta, alpha=alpha))
