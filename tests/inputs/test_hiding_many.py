"""Many inputs with units hidden are made together, and are those that are made one by one."""

from typing import Any

import numpy as np
import pytest

from tests.helpers import cases
from tests.helpers.cases import predicted
from whyformer.errors import BadOption
from whyformer.inputs.hiding import Delete, Fill, Hide
from whyformer.inputs.input import Fillers, Places, TensorInput, flags_of
from whyformer.perturb import Outcomes, hide_named

FILLERS = Fillers(pad=7, mask=8, alone=9)
PLACES: list[list[int]] = [[1], [], [2, 1], [0, 1, 2, 3], [3, 0], [1]]


def ready(**more: Any) -> TensorInput:
    tensors = {"input_ids": np.array([4, 5, 6, 5]), "attention_mask": np.array([1, 1, 0, 1])}
    return TensorInput(tensors | {name: np.array(values) for name, values in more.items()}, fillers=FILLERS)


def gone(whole: TensorInput, several: list[list[int]]) -> Any:
    return flags_of(several, len(whole))


def content(one: TensorInput) -> dict[str, list[int]]:
    return {name: np.asarray(values).tolist() for name, values in one.tensors.items()}


WHOLES = {
    "mask": ready(),
    "positions": ready(position_ids=[3, 4, 5, 6], token_type_ids=[0, 0, 1, 1]),
    "several types": ready(token_type_ids=[[0, 1], [0, 2], [1, 3], [1, 4]]),
    "no mask": TensorInput({"input_ids": np.array([4, 5, 6, 5])}, fillers=FILLERS),
    "text": predicted(["a bad"]).inputs[0],
}


@pytest.mark.parametrize("hide", ["delete", "pad", "pad_attended", "mask", "zero"])
@pytest.mark.parametrize("name", WHOLES)
def test_each_is_what_it_is_by_itself(name: str, hide: str) -> None:
    whole = WHOLES[name]
    several = [[place for place in places if place < len(whole)] for places in PLACES]
    found = whole.without_each(gone(whole, several), hide_named(hide))
    expected = [whole.without(places, hide_named(hide)) for places in several]
    for one, other in zip(found, expected, strict=True):
        assert content(one) == content(other)
        assert (one.key, one.kind, len(one)) == (other.key, other.kind, len(other))
        assert (one.gone is None) == (other.gone is None)
    assert found[1] is whole


@pytest.mark.parametrize("hide", ["delete", "pad"])
def test_where_nothing_is_left_to_attend_to_one_token_stands_for_it(hide: str) -> None:
    (one,) = ready().without_each(gone(ready(), [[0, 1, 3]]), hide_named(hide))
    assert content(one) == {"input_ids": [9], "attention_mask": [1]}


def test_a_way_of_ones_own_is_applied_to_each() -> None:
    asked: list[list[int]] = []

    class Noted(Hide):
        name = "noted"

        def apply(self, whole: TensorInput, places: Places) -> TensorInput:
            asked.append(list(places))
            return whole.filled(places, 3)

    found = ready().without_each(gone(ready(), PLACES), Noted())
    assert asked == [[1], [1, 2], [0, 1, 2, 3], [0, 3], [1]]
    assert content(found[2])["input_ids"] == [4, 3, 3, 5]


class OwnFill(Fill):
    """One that says itself what takes the place of units."""

    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        return whole.filled(places, 42)


class OwnDelete(Delete):
    """The same of one that takes them out."""

    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        return whole.filled(places, 42)


@pytest.mark.parametrize("own", [OwnFill("own", "pad"), OwnDelete()])
def test_whoever_says_otherwise_for_one_says_so_for_many(own: Hide) -> None:
    (one,) = ready().without_each(gone(ready(), [[1]]), own)
    assert content(one)["input_ids"] == [4, 42, 6, 5]


def test_what_is_hidden_already_is_not_hidden_again() -> None:
    once = ready().without([1], hide_named("zero"))
    with pytest.raises(BadOption, match="hidden already"):
        once.without_each(gone(once, [[2]]), hide_named("delete"))


def test_an_engine_makes_each_input_once() -> None:
    own = predicted(cases.TEXTS)
    engine, (one, other, *_) = Outcomes(own.model), own.inputs
    first = engine.without(one, gone(one, [[1, 2], [2, 1], [1]]), hide_named("delete"))
    assert first[0] is first[1]
    assert engine.without(one, gone(one, [[2, 1]]), hide_named("delete")) == [first[0]]
    assert engine.without(one, gone(one, [[2, 1]]), hide_named("mask"))[0] is not first[0]
    assert engine.without(other, gone(other, [[2, 1]]), hide_named("delete"))[0] is not first[0]
    assert engine.without(one, gone(one, []), hide_named("delete")) == []
