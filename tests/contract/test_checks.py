"""Checks of numbers: made at once or gathered; none is forgotten."""

import pytest
import torch

from whyformer.errors import BadInput, UnsupportedModel
from whyformer.number_checks import gathered, refuse_if

WRONG, RIGHT = torch.tensor(True), torch.tensor(False)


def check(flag: torch.Tensor, text: str) -> None:
    refuse_if(flag, UnsupportedModel(text))


def test_gathered_checks_are_made_at_the_end() -> None:
    done = []

    @gathered()
    def work() -> None:
        check(RIGHT, "none")
        check(WRONG, "first")
        check(WRONG, "second")
        done.append("all")

    with pytest.raises(UnsupportedModel, match="first"):
        work()
    assert done == ["all"]


def test_an_error_comes_behind_what_is_wrong_with_numbers() -> None:
    @gathered()
    def work() -> None:
        check(WRONG, "numbers")
        raise BadInput("what follows from them")

    with pytest.raises(UnsupportedModel, match="numbers"):
        work()
