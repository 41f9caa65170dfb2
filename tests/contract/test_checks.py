"""Checks of numbers: made at once, gathered, or postponed; none is forgotten."""

import pytest
import torch

from whyformer.checks import gathered, postponed, raise_postponed, refuse_if
from whyformer.errors import BadInput, UnsupportedModel

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


def test_postponed_checks_are_those_of_all_that_was_gathered() -> None:
    with postponed() as checks:
        for flag, text in ((RIGHT, "none"), (WRONG, "first"), (WRONG, "second")):
            with gathered():
                check(flag, text)
    with pytest.raises(UnsupportedModel, match="first"):
        checks.make()


def test_checks_are_postponed_here_alone() -> None:
    with postponed() as around:
        with postponed() as checks, gathered():
            check(WRONG, "inside")
        with gathered():
            check(RIGHT, "none")
    around.make()
    with pytest.raises(UnsupportedModel, match="inside"):
        checks.make()
    with pytest.raises(UnsupportedModel, match="now"), gathered():
        check(WRONG, "now")


def test_what_is_gathered_inside_is_not_postponed() -> None:
    """As by a method that is made of another one."""

    @gathered()
    def inner() -> None:
        check(WRONG, "inside")

    @gathered()
    def outer() -> None:
        check(RIGHT, "none")
        inner()
        pytest.fail("it went on with wrong numbers")

    with postponed() as checks, pytest.raises(UnsupportedModel, match="inside"):
        outer()
    checks.make()


def test_an_error_comes_behind_what_is_wrong_with_numbers() -> None:
    @gathered()
    def work() -> None:
        check(WRONG, "numbers")
        raise BadInput("what follows from them")

    with postponed(), pytest.raises(UnsupportedModel, match="numbers"):
        work()


def test_what_is_made_of_numbers_waits_for_their_checks() -> None:
    raise_postponed()
    with postponed():
        raise_postponed()
        with gathered():
            check(WRONG, "numbers")
        with pytest.raises(UnsupportedModel, match="numbers"):
            raise_postponed()


def test_a_check_that_comes_later_is_made_too() -> None:
    with postponed() as checks:
        with gathered():
            check(RIGHT, "none")
        checks.land()
        with gathered():
            check(WRONG, "later")
    with pytest.raises(UnsupportedModel, match="later"):
        checks.make()
