"""What the engine was told once, it is not asked again; what it has forgotten, it is."""

import numpy as np
import pytest
import torch

from tests.helpers import families
from whyformer.inputs.input import Fillers, TensorInput
from whyformer.perturb import Outcomes
from whyformer.perturb.search import Search, best_orders


def row(*ids: int) -> TensorInput:
    tensors = {"input_ids": np.array(ids), "attention_mask": np.ones(len(ids), dtype=np.int64)}
    return TensorInput(tensors, fillers=Fillers(None, None, 9))


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes(families.build("bert"))


def test_a_row_that_was_answered_is_not_run_beside_a_new_one(outcomes: Outcomes) -> None:
    first = outcomes.of([row(1, 5, 9)], 3)
    again = outcomes.of([row(1, 5, 9), row(1, 7)], 3)
    assert outcomes.counts.run == 2
    torch.testing.assert_close(again[:1], first)


def test_a_row_that_was_forgotten_is_run_again(outcomes: Outcomes) -> None:
    for run in (1, 2):
        outcomes.of([row(1, 5, 9)], 3)
        assert outcomes.counts.run == run
        outcomes.forget()


WITHOUT = {(0,): 0.1, (1,): 0.5, (2,): 0.9, (0, 1): 0.45, (0, 2): 0.46, (1, 2): 0.1, (0, 1, 2): 0.0}


class Said:
    """An engine that knows what is said of three tokens by which of them are left."""

    def __init__(self, without: dict[tuple[int, ...], float] = WITHOUT):
        self.without = without

    def of(self, rows: list[TensorInput], classes: int) -> torch.Tensor:
        gone = [tuple(n for n in range(3) if 10 + n not in row.tensors["input_ids"]) for row in rows]
        return torch.tensor([[self.without[places], 1 - self.without[places]] for places in gone])


@pytest.mark.parametrize("beam", [1, 2, 9])
def test_a_search_follows_the_lowest_sum_and_not_the_lowest_step(beam: int) -> None:
    search = Search(row(7, 10, 11, 12), [[1], [2], [3]], 0)
    assert best_orders(Said(), [search], 2, beam=beam) == [[0, 1, 2]]  # type: ignore[arg-type]


@pytest.mark.parametrize(("beam", "order"), [(1, [0, 1, 2]), (2, [1, 2, 0])])
def test_a_beam_follows_as_many_orders_as_it_says(beam: int, order: list[int]) -> None:
    # The best first unit leads to 0.5 + 0.5, the second best to 0.6 + 0.
    without = {(0,): 0.5, (1,): 0.6, (2,): 0.9, (0, 1): 0.5, (0, 2): 0.7, (1, 2): 0.0, (0, 1, 2): 0.0}
    search = Search(row(7, 10, 11, 12), [[1], [2], [3]], 0)
    assert best_orders(Said(without), [search], 2, beam=beam) == [order]  # type: ignore[arg-type]
