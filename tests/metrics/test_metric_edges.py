"""Metrics where it is close: tiny probabilities, words that touch, orders of words, rows asked for again, windows."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import cases, evaluated
from whyformer import BadInput, BadOption, Explainer, UnsupportedModel
from whyformer.datasets import Example
from whyformer.evaluation.examples import item_of
from whyformer.inputs.batch import collate, encode
from whyformer.metrics import Annotation, Case, RationaleWords
from whyformer.metrics.metric import metric_named
from whyformer.metrics.plausibility import _words
from whyformer.models.load import subject_of
from whyformer.perturb import Outcomes, hide_named
from whyformer.prediction import Prediction
from whyformer.tasks.regression import is_regression

TEXT = "the film is a fine film"


def test_log_odds_of_a_model_that_is_sure() -> None:
    """Its probabilities fall far below a thousandth."""
    plain = cases.subject()
    model = copy.deepcopy(plain.model)
    with torch.no_grad():
        model.classifier.weight *= 60  # type: ignore[union-attr, operator]
    own = subject_of(model, plain.tokenizer)
    encoded = encode(own, TEXT)
    prediction = Prediction(model, collate(own, [encoded]), 2)
    assert int(prediction.predicted) != 2
    scores = torch.arange(len(encoded.units), 0, -1, dtype=torch.float64)[None]
    case = Case(prediction, scores, Outcomes(model))
    measured = metric_named("log_odds")(case, target="explained")
    units = len(encoded.units) - 2
    logs = []
    for tenths in range(11):
        ids = torch.tensor([encoded.tensors["input_ids"].tolist()])
        ids[0, 1 : 1 + (2 * tenths * units + 10) // 20] = own.tokenizer.pad_token_id
        with torch.no_grad():
            logs.append(float(model(input_ids=ids).logits.log_softmax(-1)[0, 2]))
    assert min(logs) < math.log(1e-3) - 1
    assert max(logs) - min(logs) > 1
    assert float(measured.values) == pytest.approx(sum(log - logs[0] for log in logs) / 11, rel=1e-9)


def test_words_that_touch_have_the_scores_of_their_own_tokens() -> None:
    text = "film,fine"
    example = encode(cases.subject(), text)
    spans = {unit.span: n for n, unit in enumerate(example.units) if unit.span}
    assert list(spans) == [(0, 4), (4, 5), (5, 9)]
    scores = torch.zeros(len(example.units), dtype=torch.float64).numpy()
    scores[spans[0, 4]], scores[spans[4, 5]], scores[spans[5, 9]] = 3.0, 1.0, 2.0
    rationale = RationaleWords(((0, 4), (4, 5), (5, 9)), frozenset({1}))
    assert _words(rationale, example, scores) == {0: 3.0, 1: 1.0, 2: 2.0}
    one = cases.case([text], annotations=[Annotation(gold=1, rationale=rationale)])
    object.__setattr__(one, "scores_for", lambda _: torch.from_numpy(scores)[None])
    found = metric_named("token_f1")(one, k=[1, 2, 3], target="gold")
    assert found.curve is not None
    assert found.curve[0].tolist() == [0.0, 0.0, 0.5]  # the word in evidence is the last


def test_the_order_of_words_is_that_of_their_highest_token_where_scores_are_ranks() -> None:
    text = "acting film"  # act ##ing film
    one = cases.case([text])
    assert one.units("word") == [[[1, 2], [3]]]
    scores = torch.zeros_like(one.scores)
    scores[0, 1:4] = torch.tensor([0.6, 0.5, 0.9], dtype=torch.float64)
    plain = Case(one.prediction, scores, one.outcomes)
    ranks = Case(one.prediction, scores, one.outcomes, ranks=True)
    assert plain.ranked("predicted", "word") == [[[1, 2], [3]]]
    assert ranks.ranked("predicted", "word") == [[[3], [1, 2]]]
    for ranked, expected in (
        (plain, [2, 0, 0, 1, 2]),
        (ranks, [2, 1, 1, 0, 2]),
    ):  # the turns of special tokens never come
        ((turns, count),) = ranked.turns("predicted", "word")
        assert (turns.tolist(), count) == (expected, 2)


def test_places_may_come_as_an_array() -> None:
    prediction = cases.predicted(["a good film with good actors"])
    case = Case(prediction, prediction.real, Outcomes(prediction.model))
    places: Any = [[1], [3], [5]]
    (expected,) = case.probabilities([places], "delete")
    (found,) = case.probabilities([np.array(places)], "delete")
    (of_flags,) = case.probabilities([np.eye(len(case.inputs[0]), dtype=bool)[[1, 3, 5]]], "delete")
    assert torch.equal(found, expected)
    assert torch.equal(of_flags, expected)


def test_a_row_that_was_answered_is_not_run_again() -> None:
    one = cases.case()
    outcomes = Outcomes(one.prediction.model)
    rows = [row.without([1], hide_named("delete")) for row in one.prediction.inputs]
    first = outcomes.of(rows, 3)
    assert outcomes.counts.run == len(rows)
    again = outcomes.of([*rows, one.prediction.inputs[0]], 3)
    assert outcomes.counts.run == len(rows) + 1
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.run()
    assert outcomes.counts.run == len(rows) + 1
    assert torch.equal(again[:-1], first)


def test_the_key_of_an_example_holds_the_window_and_what_is_special() -> None:
    own = cases.subject()
    example = Example(0, " ".join(["film"] * 20))
    narrow = copy.deepcopy(own.tokenizer)
    narrow.model_max_length = 10
    whole, cut = (item_of(subject_of(own.model, tokenizer), example) for tokenizer in (own.tokenizer, narrow))
    assert len(cut.encoded.units) == 10
    assert whole.content != cut.content
    assert whole.content == item_of(own, example).content


# Regression


def test_regression_with_several_outputs_has_no_probabilities(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = cases.subject(problem="regression")
    assert is_regression(own.model)
    assert not is_regression(cases.subject().model)
    data = evaluated.data(tmp_path_factory.mktemp("data"), 2)
    for metric in ("aopc", "kendall_tau", "token_overlap"):
        with pytest.raises(BadOption, match=f"{metric} is for models that classify; this one is of regression"):
            evaluated.run(data, None, "attcat", metric, of=own)
    with pytest.raises(BadInput, match="for models that classify"):
        metric_named("aopc")(cases.case(problem="regression"))
    with pytest.raises(UnsupportedModel, match="not classes with probabilities"):
        Explainer(own).explain(TEXT, "attcat")
    one = Explainer(cases.subject(labels=1))
    with pytest.raises(UnsupportedModel, match="a regression model gives none"):
        one.explain(TEXT, "attcat").trust()
    with pytest.raises(BadOption, match="has no cross-entropy"):
        one.explain(TEXT, "saliency", of="loss")
    seen = one.explain(TEXT, "stepwise").seen[0]
    assert seen.probabilities is seen.probability is None
