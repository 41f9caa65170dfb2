"""Which inputs are run together: the cheapest way to cut them, and no more at once than may be."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from whyformer.inputs.input import TensorInput
from whyformer.perturb.engine import dense_batches, in_turns


def batches(lengths: Sequence[int], budget: int, most: int = 1000, call: int = 10) -> list[list[int]]:
    inputs = [TensorInput({"input_ids": np.arange(length)}) for length in lengths]
    return [[len(one) for one in batch] for batch in dense_batches(inputs, lengths, budget, most, call)]


def cost(cut: Sequence[Sequence[int]], budget: int, most: int, call: int) -> int:
    """In tokens: padding, and calls, of which each part of a cut takes as few as it can."""
    padding = sum(len(part) * max(part) - sum(part) for part in cut)
    calls = sum(math.ceil(len(part) / max(1, min(most, budget // max(part)))) for part in cut)
    return padding + calls * call


def cuts(lengths: Sequence[int]) -> list[list[list[int]]]:
    """Every way to cut lengths, longest first, where they change."""
    places = [n for n in range(1, len(lengths)) if lengths[n] != lengths[n - 1]]
    ways = itertools.chain(*(itertools.combinations(places, count) for count in range(len(places) + 1)))
    return [[list(lengths[a:b]) for a, b in itertools.pairwise((0, *way, len(lengths)))] for way in ways]


def test_lengths_share_a_batch_where_padding_costs_less_than_a_call() -> None:
    lengths = [40, 40, 39, 20, 20, 19, 3]
    assert batches(lengths, 1000, call=10) == [[40, 40, 39], [20, 20, 19], [3]]
    assert batches(lengths, 1000, call=0) == [[40, 40], [39], [20, 20], [19], [3]]
    assert batches(lengths, 1000, call=1000) == [lengths]
    assert batches([], 1000) == []


@pytest.mark.parametrize("seed", range(40))
def test_no_other_way_to_cut_costs_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    budget, most, call = (int(rng.integers(*bounds)) for bounds in ((20, 400), (2, 40), (0, 60)))
    lengths = sorted(rng.integers(1, 12, rng.integers(1, 60)).tolist(), reverse=True)
    least = min(cost(cut, budget, most, call) for cut in cuts(lengths))
    found = batches(rng.permutation(lengths).tolist(), budget, most, call)
    assert list(itertools.chain(*found)) == lengths  # each once, the longest first
    assert all(len(batch) <= most and (len(batch) == 1 or len(batch) * max(batch) <= budget) for batch in found)
    padding = sum(len(batch) * batch[0] - sum(batch) for batch in found)
    assert padding + len(found) * call <= least  # parts of a cut may be padded less than it


def test_a_batch_that_does_not_fit_is_cut_evenly() -> None:
    assert [len(batch) for batch in batches([10] * 21, 100)] == [7, 7, 7]


def test_an_input_that_is_longer_than_a_batch_may_be_stands_alone() -> None:
    assert batches([300, 300], 64) == [[300], [300]]


def test_large_and_small_batches_take_turns() -> None:
    inputs = {count: [TensorInput({"input_ids": np.arange(10)})] * count for count in (1, 2, 3, 4, 5)}
    inputs[6] = [TensorInput({"input_ids": np.arange(60)})]  # few and long: of the most tokens
    order = in_turns([inputs[count] for count in (2, 6, 4, 1, 5, 3)])
    assert [next(n for n, batch in inputs.items() if batch is one) for one in order] == [6, 1, 5, 2, 4, 3]
    assert in_turns([]) == []
