"""The authors' own numbers on language models: AttnLRP and CP-LRP.

The reference ran transformers' eager attention, whose softmax is in float32; with it the numbers are equal, but for
rotary positions: their cosines are taken in float32, which CPUs round differently. With `sdpa` they are as near as that
softmax allows.
"""

import pytest
import torch

import whyformer
from tests.helpers.golden import assert_close, goldens, inputs, model, stored
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction

CASES = ("llama_lm", "qwen2_lm", "qwen3_lm", "gpt2_lm")
TEXTS = ("x0", "x1", "x2")
TARGETS = ("max", "t7", "t42")  # the most likely token, and two others
ATTENTION = ("eager", "sdpa")
METHODS = {"lxt.attnlrp": "attn_lrp", "lxt.cplrp": "cp_lrp", "hf.input_x_gradient": "input_x_gradient"}
BOOKS = {"lxt.attnlrp.hidden": "attn", "lxt.cplrp.hidden": "conservative"}


def within(case: str, attention: str) -> float:
    """How far from a golden, as a share of its peak; without a part in float32, rounding alone."""
    return 1e-10 if (case, attention) == ("gpt2_lm", "eager") else 1e-5


@pytest.mark.parametrize("golden", METHODS)
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("case", CASES)
def test_methods(case: str, attention: str, golden: str) -> None:
    for name in TEXTS:
        trace = whyformer.record(model(case, attention), inputs(case, name))
        batch = batch_of(model(case, attention), inputs(case, name))
        for chosen in TARGETS:
            target = int(goldens(case)[f"{name}.{chosen}.target"])
            prediction = Prediction(model(case, attention), batch, target, trace=trace)
            scores = whyformer.list_methods()[METHODS[golden]](prediction).total[0]
            assert_close(scores, goldens(case)[f"{name}.{chosen}.{golden}"], within(case, attention))


@pytest.mark.parametrize("case", CASES)
def test_the_default_is_the_most_likely_token(case: str) -> None:
    scores = whyformer.attribute(model(case, "eager"), inputs(case, "x1"), "attn_lrp")[0]
    assert_close(scores, goldens(case)["x1.max.lxt.attnlrp"], within(case, "eager"))


@pytest.mark.parametrize("golden", BOOKS)
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("case", CASES)
def test_relevance_of_hidden_states(case: str, attention: str, golden: str) -> None:
    """At what enters each layer, summed over width."""
    for name in TEXTS:
        trace = whyformer.record(model(case, attention), inputs(case, name))
        for chosen in TARGETS:
            target = int(goldens(case)[f"{name}.{chosen}.target"])
            found = trace.relevance(trace.hidden[:-1], BOOKS[golden], target)
            assert_close(torch.cat(found).sum(-1), goldens(case)[f"{name}.{chosen}.{golden}"], within(case, attention))


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("case", CASES)
def test_trace(case: str, attention: str) -> None:
    for name in TEXTS:
        trace = whyformer.record(model(case, attention), inputs(case, name))
        assert_close(trace.logits, goldens(case)[f"{name}.hf.logits"], within(case, attention))
        states = goldens(case)[f"{name}.hf.hidden_states"]  # the last one is after the final norm
        assert_close(torch.cat(trace.hidden[:-1]), states[:-1], within(case, attention))


@pytest.mark.parametrize("case", CASES)
def test_every_golden_is_used(case: str) -> None:
    counted = {"input_ids": 3, "hf.logits": 3, "hf.hidden_states": 3, "target": 9}
    counted |= dict.fromkeys((*METHODS, *BOOKS), 9)
    assert {name: len(stored(case, name)) for name in counted} == counted
    assert len(goldens(case)) == sum(counted.values())
