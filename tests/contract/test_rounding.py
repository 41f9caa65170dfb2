"""What is the same within rounding, and in which dtype a model computes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers import arithmetics, families
from whyformer.tolerance import ROUNDING, arithmetic, close, coarsest, distance

PEAK = torch.tensor([1.0, -200.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_a_difference_counts_as_a_share_of_the_largest_number(dtype: torch.dtype) -> None:
    allowed = ROUNDING[dtype]
    for share, same in ((0.9, True), (1.1, False)):
        other = PEAK + torch.tensor([share * allowed * 200, 0, 0], dtype=torch.float64)
        assert close(other, PEAK, dtype) == same
        assert distance(other, PEAK) == pytest.approx(share * allowed)


def test_the_coarser_dtype_decides() -> None:
    other = PEAK * (1 + 1e-6)
    assert not close(other, PEAK)
    assert close(other.float(), PEAK)
    assert close(other.numpy(), PEAK.numpy(), torch.float32)
    assert not close(other.numpy(), PEAK.numpy())
    assert coarsest([torch.float64, torch.bfloat16, torch.float16]) == torch.bfloat16


def test_shapes_and_numbers_that_are_none() -> None:
    assert not close(PEAK, PEAK[:2])
    assert close(torch.zeros(0), torch.zeros(0))
    assert close(np.zeros(3), np.zeros(3))
    assert not close(PEAK * float("nan"), PEAK)


@pytest.mark.parametrize(
    ("family", "expected"),
    [("bert", torch.float64), ("gpt2", torch.float64), ("llama", torch.float32), ("bloom", torch.float32)],
)
def test_a_model_may_compute_in_a_coarser_dtype_than_its_weights(family: str, expected: torch.dtype) -> None:
    assert families.arithmetic(family) == expected


def test_positions_and_masks_in_another_dtype_do_not_count() -> None:
    linear = nn.Linear(3, 3, dtype=torch.float64)
    mask = torch.ones(3)
    assert arithmetic(lambda: linear(PEAK) + (1 - mask) * mask) == torch.float64
    assert arithmetic(lambda: linear(PEAK).half().double()) == torch.float16
    assert arithmetic(lambda: torch.fft.fft(linear(PEAK))) == torch.float64


def test_weights_at_odd_addresses() -> None:
    weights = arithmetics.shifted(PEAK.clone())
    assert weights.data_ptr() % arithmetics.ALIGNED == 8
    assert torch.equal(weights, PEAK)
    assert arithmetics.shifted(weights) is weights


@pytest.mark.long
@pytest.mark.parametrize(("name", "said"), [("", "True 0"), ("shifted", "True 4"), ("rounded", "False 0")])
def test_other_arithmetics(name: str, said: str) -> None:
    """In a process of its own: whether a product is the same twice, and where a weight lies."""
    code = f"""
import torch
from tests.helpers import arithmetics
arithmetics.apply({name!r})
linear, x = torch.nn.Linear(64, 64).eval(), torch.randn(64, 64)
assert torch.allclose(linear(x), linear(x), atol=1e-5)
print(torch.equal(linear(x), linear(x)), linear.weight.data_ptr() % 64)"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == said
