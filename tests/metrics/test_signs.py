"""Sign agreement beside its definition in loops, and where it is not defined."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import evaluated
from tests.helpers.cases import PAIR, TEXTS, case, subject
from whyformer import BadInput, BadOption
from whyformer.metrics import Case
from whyformer.metrics.metric import metric_named
from whyformer.metrics.sign_agreement import share_of_right_signs

SIGNS = "sign_agreement"
SURE = 40.0  # logits this far apart leave a probability of 1 in float64


def log_odds(ids: list[int], types: list[int], index: int) -> float:
    """Of one class of one text, run alone: from what the model gives the others."""
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": [1] * len(ids)}
    with torch.no_grad():
        logits = subject().model(**{name: torch.tensor([row]) for name, row in inputs.items()}).logits[0].tolist()
    return float(logits[index] - math.log(sum(math.exp(z) for n, z in enumerate(logits) if n != index)))


def groups_of(one: Case, row: int, units: str) -> list[list[int]]:
    """The places of tokens, or of the tokens that stand side by side in one word."""
    groups: list[list[int]] = []
    previous = None
    for place, unit in enumerate(one.prediction.batch.examples[row].units):
        if not unit.special:
            inside = units == "word" and previous is not None and previous == (unit.part, unit.span[0])  # type: ignore[index]
            groups = [*groups[:-1], [*groups[-1], place]] if inside else [*groups, [place]]
            previous = (unit.part, unit.span[1])  # type: ignore[index]
    return groups


@pytest.mark.parametrize("hide", ["delete", "mask"])
@pytest.mark.parametrize(("units", "top", "threshold"), [("word", 3, 0.1), ("token", 2, 0.0), ("token", 5, 0.4)])
def test_signs_by_loops(units: str, top: int, threshold: float, hide: str) -> None:
    texts: list[Any] = ["the acting is fine", "a bad film is bad", PAIR]
    one = case(texts)
    found = metric_named(SIGNS)(one, units=units, top=top, threshold=threshold, hide=hide)
    mask = subject().tokenizer.mask_token_id
    expected, pooled = [], []
    for row, example in enumerate(one.prediction.batch.examples):
        ids, types = (example.tensors[name].tolist() for name in ("input_ids", "token_type_ids"))
        index, scores = int(one.prediction.predicted[row]), one.scores[row].tolist()
        strengths = [(sum(scores[place] for place in group), group) for group in groups_of(one, row, units)]
        right = []
        for score, group in sorted(strengths, key=lambda pair: -abs(pair[0]))[:top]:
            if hide == "mask":
                others = [mask if place in group else token for place, token in enumerate(ids)], types
            else:
                left = [place for place in range(len(ids)) if place not in group]
                others = [ids[place] for place in left], [types[place] for place in left]
            effect = log_odds(ids, types, index) - log_odds(*others, index)
            if abs(effect) > threshold:
                right.append((score > 0) == (effect > 0))
        expected.append(sum(right) / len(right) if right else math.nan)
        pooled += right
    assert found.values.tolist() == pytest.approx(expected, nan_ok=True)
    assert metric_named(SIGNS).reduced(found.records) == pytest.approx(sum(pooled) / len(pooled))
    assert 0 < sum(pooled) < len(pooled)


def test_the_word_that_was_split_is_hidden_as_one() -> None:
    one = case(["fine acting"])
    record = metric_named(SIGNS)(one).records[0]
    assert len(record["signs"]) == len(record["effects"]) == 2 < len(one.rankable[0])


def test_units_without_an_effect_do_not_count() -> None:
    found = metric_named(SIGNS)(case(), threshold=1e6)
    assert torch.isnan(found.values).all()
    assert all(record["counted"] == record["right"] == 0 for record in found.records)
    assert math.isnan(share_of_right_signs(found.records))


def test_a_score_of_zero_is_not_right() -> None:
    one = case(TEXTS[:1])
    found = metric_named(SIGNS)(replace(one, scores=torch.zeros_like(one.scores)), threshold=0.0)
    assert found.records[0]["signs"] == [0, 0, 0]
    assert found.values.tolist() == [0.0]


def test_units_are_pooled_and_not_texts() -> None:
    records = [{"right": 1, "counted": 1}, {"right": 0, "counted": 3}]
    assert metric_named(SIGNS).reduced(records) == 0.25


def test_a_model_that_is_sure_has_effects_still() -> None:
    one = case(TEXTS[:2])
    inputs, index = one.inputs[0], int(one.prediction.predicted[0])
    logits = torch.zeros(1, 3, dtype=torch.float64)
    logits[0, index] = SURE
    one.outcomes.forget()
    one.outcomes.know([inputs], logits.softmax(-1))
    assert float(logits.softmax(-1)[0, index]) == 1.0
    odds = one.log_odds([[[]], [[]]], "delete", one.chosen("predicted"))
    assert float(odds[0]) == pytest.approx(SURE - math.log(2))


def test_labels_that_are_independent_have_odds_of_their_own() -> None:
    one = case(TEXTS[:1], labels=3, problem="multi_label_classification")
    odds = one.log_odds([[[]]], "delete", one.chosen("predicted"))
    assert float(odds[0]) == pytest.approx(float(one.prediction.trace.logits.detach().max()))


def test_scores_without_signs_are_refused() -> None:
    for changed in (replace(case(), signed=False), replace(case(), ranks=True)):
        with pytest.raises(BadInput, match="sign_agreement needs a method whose scores have signs"):
            metric_named(SIGNS)(changed)


def test_a_threshold_is_no_less_than_nothing() -> None:
    with pytest.raises(BadOption, match=r"threshold=-1\.0: the least size of an effect"):
        metric_named(SIGNS)(case(), threshold=-1.0)


def test_an_evaluation_has_numbers_of_signed_methods_alone(tmp_path: Path) -> None:
    data = evaluated.data(tmp_path, 4)
    with pytest.raises(BadOption, match="sign_agreement needs a method whose scores have signs; none is named"):
        evaluated.run(data, None, "rollout,stepwise", SIGNS)
    table = evaluated.run(data, None, "rollout,attcat,stepwise(report=drop)", f"{SIGNS},{evaluated.FALL}")
    assert table["rollout", SIGNS] is None
    for method in ("attcat", "stepwise(of=layer_lrp, report=drop)"):
        cell = table[method, SIGNS]
        assert cell is not None
        assert (cell.n, cell.refused) == (4, 0)
        assert 0 <= cell.mean <= 1
    assert SIGNS in evaluated.run(data, None, "attcat", "all").metrics
