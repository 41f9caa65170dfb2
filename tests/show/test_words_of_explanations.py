"""The small language of an explanation: the score of a word, its share, equality, agreement, one line."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.cases import subject
from tests.helpers.explained_images import explained
from whyformer import BadInput, BadOption, Comparison, Explainer, Explanation, UnknownWord
from whyformer.inputs.units import Unit
from whyformer.tasks.targets import Label, Predicted

TEXT = "a gorgeous, witty film that didn't once bore me"


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer.load("sentiment")


def made(scores: list[float], text: str = "Film film good", pieces: str = r"\w\w|\S", **more: Any) -> Explanation:
    """A text in tokens of two letters behind a special one."""
    spans = [m.span() for m in re.finditer(pieces, text)]
    units = [Unit("[CLS]", special=True), *(Unit(text[a:b], "token", (a, b), 0) for a, b in spans)]
    said = Predicted("yes", 1, 0.75, (0.0, 1.0986), (0.25, 0.75), ("no", "yes"))
    settings: dict[str, Any] = {"target": Label(1, "yes"), "method": "made", "signed": True, "texts": (text,)} | more
    return Explanation(tuple(units), np.array([9.0, *scores]), said, **settings)


def picture() -> Explanation:
    return explained([[1.0, -2.0], [3.0, 4.0]])


# Words


def test_a_word_has_the_sum_of_all_its_tokens_and_occurrences() -> None:
    e = made([1.0, 2.0, 4.0, 8.0, -16.0, 0.0])
    assert (e["Film"], e["film"], e["good"]) == (3.0, 12.0, -16.0)
    assert e["FILM"] == 15.0
    assert e.by_word()["FILM"] == 15.0


def test_of_ranks_a_word_has_the_highest() -> None:
    assert made([1.0, 2.0, 4.0, 8.0, 16.0, 0.0], signed=False, ranks=True)["FILM"] == 8.0


def test_a_share_is_of_the_magnitudes_of_words() -> None:
    e = made([1.0, 2.0, 4.0, -8.0, -16.0, 15.0])
    assert e.share("Film") == pytest.approx(3 / 8)
    assert e.share("good") == pytest.approx(1 / 8)
    assert sum(e.share(word) for word in ("Film", "film", "good")) == pytest.approx(1)
    assert e.share("FILM") == pytest.approx(e.by_word().share("FILM"))
    assert made([0.0] * 6).share("good") == 0


def test_a_word_that_is_not_there_is_named_with_the_nearest() -> None:
    e = made([1.0] * 6)
    with pytest.raises(
        UnknownWord, match=r"^there is no word 'goood' in this text; did you mean 'good'\? known: "
    ) as error:
        e["goood"]
    assert isinstance(error.value, KeyError)
    assert isinstance(error.value, BadInput)
    with pytest.raises(KeyError, match="'fi'"):
        e.share("fi")
    assert "FILM" in e
    assert "fi" not in e
    with pytest.raises(BadInput, match=r"by its text, as e\['film'\]; found 0"):
        e[0]  # type: ignore[index]


def test_an_image_has_no_words_to_ask_for() -> None:
    with pytest.raises(BadOption, match="words are of texts"):
        picture()["cat"]


# Equality


def test_scores_are_equal_within_rounding() -> None:
    one = made([1.0, 2.0, 4.0, 8.0, -16.0, 0.0])
    near, far = one.scores * (1 + 1e-6), one.scores * (1 + 1e-2)
    assert one == dataclasses.replace(one, scores=near)
    assert hash(one) == hash(dataclasses.replace(one, scores=near))
    assert one != dataclasses.replace(one, scores=far)
    coarse = dataclasses.replace(one, scores=far, provenance={"dtype": "float16"})
    assert one == coarse == one
    precise = {"provenance": {"dtype": "float64"}}
    assert dataclasses.replace(one, **precise) != dataclasses.replace(one, scores=near, **precise)
    assert one != "one"


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "other"},
        {"target": Label(0, "no")},
        {"versus": Label(0, "no")},
        {"options": {"layer": 1}},
        {"texts": ("Film film good!",)},
        {"units": (Unit("[SEP]", special=True), *made([1.0] * 6).units[1:])},
    ],
)
def test_what_is_not_the_same_is_not_equal(changes: dict[str, Any]) -> None:
    one = made([1.0] * 6)
    assert one != dataclasses.replace(one, **changes)


@pytest.mark.parametrize(
    "options", [{}, {"method": "raw_attention", "layer": (0, 1)}, {"target": "NEGATIVE", "versus": "POSITIVE"}]
)
def test_what_was_saved_is_equal(explainer: Explainer, options: dict[str, Any], tmp_path: Path) -> None:
    e = explainer.explain(TEXT, **options)
    again = Explanation.load(e.save(tmp_path / "e.json"))
    assert again == e
    assert e in {again}
    assert e == explainer.explain([TEXT, "a bad film that is much longer than the other one was"], **options)[0]
    assert e != e.by_word()


# Agreement


def test_agreement_by_hand() -> None:
    one, other = made([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), made([6.0, 5.0, 3.0, -4.0, 2.0, 1.0])
    found = one.agreement(other, k=3)
    ranks = [5, 4, 3, 2, 1, 0], [5, 4, 3, 0, 2, 1]
    assert found.spearman == pytest.approx(1 - 6 * sum((a - b) ** 2 for a, b in zip(*ranks, strict=True)) / (6 * 35))
    assert found.kendall == pytest.approx((13 - 2) / 15)
    assert (found.top, found.k, found.units, found.kind) == (pytest.approx(2 / 3), 3, 6, "token")
    assert found.signs == pytest.approx(3 / 4)  # of the four that are among the first three of either
    assert str(found) == (
        "Of their 3 strongest tokens 2 are the same, 75 % of those in either with the same sign; over all 6 tokens "
        f"their rank correlation is {found.spearman:.2f}."
    )


def test_sizes_are_compared_where_one_has_no_signs() -> None:
    one, other = made([-6.0, 5.0, -4.0, 3.0, 2.0, 1.0]), made([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], signed=False)
    found = one.agreement(other)
    assert (found.spearman, found.kendall, found.top, found.signs) == (pytest.approx(1), pytest.approx(1), 1, None)
    stepwise = dataclasses.replace(other, ranks=True, signs=np.array([0, -1, 1, -1, 1, 1, 1]))
    assert one.agreement(stepwise).signs == 1


def test_agreement_with_what_ranks_nothing() -> None:
    found = made([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]).agreement(made([1.0] * 6), k=99)
    assert (found.spearman, found.kendall, found.top, found.k) == (None, None, 1, 6)
    assert found.sentence.endswith("one of the two ranks nothing, as all its scores are the same.")


def test_other_tokens_are_compared_as_words() -> None:
    one, other = made([3.0, 0.0, 1.0, 1.0, 0.5, 0.5]), made([3.0, 2.0, 1.0], pieces=r"\w+")
    found = one.agreement(other)
    assert (found.kind, found.units, found.spearman) == ("word", 3, pytest.approx(1))
    bert, gpt2 = (Explainer(subject(kind)).explain("the film is not bad", "rollout") for kind in ("bert", "gpt2"))
    assert bert.agreement(gpt2).units == 5


def test_special_units_have_no_share_in_agreement() -> None:
    one = made([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    other = dataclasses.replace(one, scores=np.array([-99.0, *one.scores[1:]]))
    assert one.agreement(other).spearman == pytest.approx(1)


def test_what_cannot_agree() -> None:
    one = made([1.0] * 6)
    with pytest.raises(BadInput, match="of different texts: explain the same input"):
        one.agreement(made([1.0] * 3, "good"))
    with pytest.raises(BadInput, match="of different images or texts"):
        one.agreement(picture())
    with pytest.raises(BadInput, match="that of two explanations; found 3"):
        one.agreement(3)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="at least 1; found 0"):
        one.agreement(one, k=0)


def test_explanations_of_an_image_agree() -> None:
    assert picture().agreement(picture()).spearman == pytest.approx(1)
    assert picture().agreement(picture()).kind == "patch"


# One line


def test_an_explanation_in_one_line(explainer: Explainer) -> None:
    e = made([1.0, 2.0, 4.0, 8.0, -16.0, 0.0])
    assert repr(e) == "<Explanation: yes 75.0 % of “Film film good”, why yes? made: good -16, film +12, Film +3>"
    long = explainer.explain(f"{TEXT}\n" * 9)
    assert "\n" not in repr(long)
    assert "…”" in repr(long)
    assert len(repr(long)) < 200
    both = Comparison((e, dataclasses.replace(e, method="other")))
    assert repr(both) == "<Comparison: 2 explanations, yes 75.0 % of “Film film good”: made, other>"
    assert repr(picture()).count("of an image, why") == 1
    assert "\x1b" not in repr(made([1.0], "\x1b[31m", r".+"))
    assert repr(e.top(1)) == "[ScoredUnit(text='lm', score=8.0)]"
