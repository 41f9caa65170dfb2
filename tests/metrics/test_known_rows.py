"""What the engine was told once, it is not asked again; what it has forgotten, it is."""

import numpy as np
import pytest
import torch

import families
from whyformer.perturb import Outcomes, Row


def row(*ids: int) -> Row:
    return Row({"input_ids": np.array(ids), "attention_mask": np.ones(len(ids), dtype=np.int64)})


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
