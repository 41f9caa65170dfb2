"""Assertions for a model's own tests: what it leans on, and what it ignores."""

import math

import pytest
import torch

from tests.helpers.cases import subject
from tests.helpers.explained_images import explained
from whyformer import BadInput, BadOption, Explainer, UnknownWord, UnsupportedModel
from whyformer.testing import assert_ignores, assert_leans_on

TEXT = "a gorgeous film that was shown on a thursday"


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer.load("sentiment")


def log_odds(explainer: Explainer, *texts: str) -> list[float]:
    """Of the class that is predicted for the first text."""
    own = explainer.subject
    with torch.no_grad():
        rows = [own.model(**own.tokenizer(text, return_tensors="pt")).logits[0].double() for text in texts]
    predicted = int(rows[0].argmax())
    shares = [float(row.softmax(-1)[predicted]) for row in rows]
    return [math.log(share / (1 - share)) for share in shares]


def test_shares_of_explanations(explainer: Explainer) -> None:
    e = explainer.explain(TEXT)
    share = e.share("gorgeous")
    assert_leans_on(e, "gorgeous")
    assert_leans_on([e, e], "Gorgeous", share=share - 1e-6)
    assert_ignores(e, "gorgeous", share=share + 1e-6)
    assert_leans_on(explainer, "gorgeous", texts=TEXT, share=share - 1e-3)
    with pytest.raises(AssertionError) as failed:
        assert_leans_on(e, "gorgeous", share=0.99)
    has = f"it has {100 * share:.3g} % of all that matters in {e!r}"
    assert str(failed.value) == f"the model does not lean on 'gorgeous': {has}, less than 99 %"
    with pytest.raises(AssertionError, match=r"does not ignore 'gorgeous': .*, more than 5 %; so in 2 of 2 texts$"):
        assert_ignores([e, e], "gorgeous")
    assert len(str(failed.value)) < 300


def test_effects_of_deleting_a_word_everywhere(explainer: Explainer) -> None:
    text = "a gorgeous, gorgeous film"
    whole, without = log_odds(explainer, text, "a, film")
    effect = abs(whole - without)
    assert effect > 0.5
    assert_leans_on(explainer, "gorgeous", texts=text, effect=effect - 1e-3)
    assert_ignores(explainer, "gorgeous", texts=[text], effect=effect + 1e-3)
    with pytest.raises(AssertionError, match=rf"log-odds of POSITIVE move by {effect:.2f}.* % → .* %\) in 'a gorgeous"):
        assert_ignores(explainer, "gorgeous", texts=text)
    with pytest.raises(AssertionError, match=r"does not lean on 'gorgeous'.*less than 99$"):
        assert_leans_on(explainer, "gorgeous", texts=text, effect=99)


def test_all_tokens_of_a_word_are_deleted(explainer: Explainer) -> None:
    text = "a seductive film"
    assert len(explainer.subject.tokenizer.tokenize("seductive")) > 1
    whole, without = log_odds(explainer, text, "a film")
    effect = abs(whole - without)
    assert_leans_on(explainer, "seductive", texts=text, effect=effect - 1e-3)
    assert_ignores(explainer, "seductive", texts=text, effect=effect + 1e-3)


def test_the_worst_text_is_named_and_those_without_the_word_passed_over(explainer: Explainer) -> None:
    texts = ["a bad film", "the gorgeous thing", "dull, but a gorgeous film"]
    with pytest.raises(AssertionError, match=r"; so in 2 of 2 texts$"):
        assert_ignores(explainer, "gorgeous", texts=texts)
    effects = [abs(a - b) for a, b in (log_odds(explainer, t, t.replace("gorgeous ", "")) for t in texts[1:])]
    worst = texts[1:][effects.index(max(effects))]
    with pytest.raises(AssertionError, match=f"in '{worst}'"):
        assert_ignores(explainer, "gorgeous", texts=texts)
    with pytest.raises(UnknownWord, match="there is no word 'thursday'"):
        assert_ignores(explainer, "thursday", texts=texts)


def test_misuse(explainer: Explainer) -> None:
    e = explainer.explain(TEXT)
    with pytest.raises(BadOption, match="not both"):
        assert_ignores(explainer, "film", texts=TEXT, share=0.1, effect=0.1)
    for wrong in ({"effect": 0.1}, {"texts": TEXT}):
        with pytest.raises(BadOption, match="give explanations and share=, or an Explainer and texts="):
            assert_ignores(e, "film", **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="or an Explainer and texts="):
        assert_ignores(explainer, "film")
    with pytest.raises(BadInput, match="found 'film'"):
        assert_ignores(["film"], "film")  # type: ignore[list-item]
    with pytest.raises(BadInput, match="there is no text"):
        assert_ignores([], "film")
    with pytest.raises(BadOption, match="words are of texts"):
        assert_ignores(explained([[1.0]]), "cat")
    with pytest.raises(UnsupportedModel, match="use share="):
        assert_ignores(Explainer(subject(labels=1)), "film", texts="a bad film")
