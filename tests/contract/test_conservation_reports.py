"""What methods of relevance report: how much arrived, how much was absorbed, how much was sent."""

import warnings
from typing import Any

import pytest
import torch

import whyformer
from tests.helpers import families
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction
from whyformer.tolerance import close


def reported(method: str, versus: int | None, **options: Any) -> tuple[Prediction, dict[str, torch.Tensor]]:
    model = families.build("bert")
    prediction = Prediction(model, batch_of(model, families.batch()), 1, versus, relevance=True)
    return prediction, whyformer.list_methods()[method](prediction, **options).diagnostics


@pytest.mark.parametrize(
    ("method", "options"), [("lrp", {"book": "z_plus"}), ("transformer_attribution", {}), ("partial_lrp", {})], ids=str
)
@pytest.mark.parametrize("versus", [None, 2])
def test_a_class_is_sent_1_and_each_of_two_that_are_compared(
    method: str, options: dict[str, Any], versus: int | None
) -> None:
    _, found = reported(method, versus, **options)
    for report in [found["conservation"], *([found["versus"]["conservation"]] if versus else [])]:
        assert report["expected"].tolist() == [1.0] * 3
        if method != "partial_lrp":  # the book of its papers conserves nothing
            assert (report["sum"] + report["absorbed"] - 1).abs().max() <= 1e-6


@pytest.mark.parametrize("method", ["attn_lrp", "cp_lrp", "layer_lrp"])
def test_what_did_not_arrive_was_absorbed(method: str) -> None:
    prediction, found = reported(method, None)
    report, logits = found["conservation"], prediction.trace.logits[:, 1].detach()
    assert close(report["expected"], logits)
    assert close(report["sum"] + report["absorbed"], logits)


def test_relevance_that_grew_is_warned_of() -> None:
    explainer = whyformer.Explainer.load("sentiment")
    text = "a slow and dull film that is saved by its gorgeous acting"
    with pytest.warns(whyformer.CompletenessWarning, match=r"lrp: .* grew to more than 10 times what was sent"):
        grown = explainer.explain(text, "lrp", check=0)
    assert abs((grown.conservation or {})["sum"]) > 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in ("lrp(book=z_plus)", "attn_lrp", "layer_lrp", "transformer_attribution"):
            explainer.explain(text, method, check=0)
