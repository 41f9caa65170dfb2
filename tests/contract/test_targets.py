"""Which class a target or a label means: one look-up for both; messages name what is not clear, and stay short."""

import time
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import families
from whyformer import BadInput, BadOption
from whyformer.datasets import label_index
from whyformer.errors import listed, nearest, shown
from whyformer.tasks.targets import class_index, indices_of, plain_target

LABELS = ("NEGATIVE", "POSITIVE", "Sci-Tech", "science fiction")


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("NEGATIVE", 0),
        ("positive", 1),
        ("neg", 0),
        ("POS!", 1),
        ("sci tech", 2),
        ("Sci/Tech", 2),
        ("Scien", 3),
        ("3", 3),
        (" 1 ", 1),
        ("01", 1),
    ],
)
def test_a_target_is_found_as_a_label_of_the_data_is(name: str, index: int) -> None:
    assert class_index(name, LABELS, len(LABELS)) == label_index(name, LABELS) == index


@pytest.mark.parametrize(
    "name", ["ne", "", "!", "4", "-1", "+1", "1.0", "0.5", "neutral", "²", "9" * 5000, "NEGATIVES"]
)
def test_what_is_no_label_is_refused_on_both_sides(name: str) -> None:
    with pytest.raises(
        BadOption, match=r"is no (label|class) of this model; .*NEGATIVE, .*POSITIVE, .*Sci-Tech"
    ) as refused:
        class_index(name, LABELS, len(LABELS))
    assert len(str(refused.value)) < 300
    with pytest.raises(BadInput, match=r"is none of the labels: .*known: NEGATIVE"):
        label_index(name, LABELS)


def test_names_that_are_not_clear_are_told_with_their_indices() -> None:
    for name, labels, expected in (
        ("sci", LABELS, "2 = Sci-Tech, 3 = science fiction"),
        ("A", ("A", "B", "A"), "0 = A, 2 = A"),
        ("a b", ("a-b", "a_b"), "0 = a-b, 1 = a_b"),
    ):
        with pytest.raises(BadOption, match=f"may be any of {expected}: give the index"):
            class_index(name, labels, len(labels))
        with pytest.raises(BadInput, match=f"may be any of {expected}"):
            label_index(name, labels)


def test_punctuation_alone_is_no_label() -> None:
    assert indices_of("!", ["?", "yes"]) == []
    assert indices_of("?", ["?", "yes"]) == [0]


def test_an_index_is_an_index_where_names_are_numbers() -> None:
    stars = ["1", "2", "3"]
    assert class_index(1, stars, 3) == 1
    assert class_index("1", stars, 3) == 0
    with pytest.raises(BadOption, match="target 3 is no class of this model; it has 0 = 1, 1 = 2, 2 = 3"):
        class_index(3, stars, 3)


@pytest.mark.parametrize(
    "target",
    [True, np.bool_(True), 1.5, float("nan"), 10**5000, b"\x01", {"POSITIVE"}, {0: 1}, object()],
    ids=lambda target: type(target).__name__,
)
def test_targets_that_are_no_output(target: Any) -> None:
    with pytest.raises(BadOption, match="is no output of a model: give a name or a whole number"):
        plain_target(target)


@pytest.mark.parametrize("method", ["input_x_gradient", "rollout"])
def test_the_same_class_on_both_sides_is_refused(method: str) -> None:
    model, inputs = families.build("bert"), families.batch()
    with pytest.raises(BadOption, match=r"target and versus of example 0 are the same, LABEL_1, .*leave versus out"):
        whyformer.attribute(model, inputs, method, target=1, versus="LABEL_1")
    with pytest.raises(BadOption, match="target and versus of example 2 are the same"):
        whyformer.attribute(model, inputs, method, target=[0, 0, 1], versus=1)
    assert whyformer.attribute(model, inputs, method, target=0, versus=1).shape == inputs["input_ids"].shape


def test_the_same_answer_on_both_sides_is_refused() -> None:
    torch.manual_seed(0)
    model = hf.BertForQuestionAnswering(families.CONFIGS["bert"]()).double().eval()
    with pytest.raises(BadOption, match=r"are the same, \[1, 2\]"):
        whyformer.attribute(model, families.batch(), "saliency", target=(1, 2), versus=(1, 2))
    assert whyformer.attribute(model, families.batch(), "saliency", target=(1, 2), versus=(1, 3)).isfinite().all()


def test_long_lists_of_names_are_shortened() -> None:
    labels = [f"LABEL_{n}" for n in range(100_000)]
    start = time.process_time()
    told = nearest("LABEL_99x99", labels)
    assert time.process_time() - start < 5
    assert told.startswith("did you mean 'LABEL_99")
    assert told.endswith("… and 99,992 more")
    assert len(told) < 300
    with pytest.raises(BadOption, match=r"0 = LABEL_0, .*and 99,992 more") as refused:
        class_index(100_000, labels, len(labels))
    assert len(str(refused.value)) < 300
    assert len(nearest("x" * 10**6, ["y" * 10**6])) < 200
    assert listed(["a", "b"]) == "a, b"


def test_values_are_shown_short() -> None:
    assert shown("a film") == "'a film'"
    assert len(shown("x" * 10**7)) < 100
    assert shown(10**5000) == "a number of 16,610 bits"
    assert shown((10**5000, 1)) == "tuple"
