"""What `auto` means without a record, and what explains the steps of `stepwise`: it depends on a model's layers."""

from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

import whyformer
from tests.helpers import cases, dual, families, image_cases
from tests.helpers.cases import TEXTS
from whyformer import Explainer, NoAttention, UnsupportedModel
from whyformer.inputs.batch import batch_of
from whyformer.methods import default
from whyformer.methods.default import methods_for, usual_method, usual_method_for
from whyformer.methods.method import list_methods
from whyformer.models.cache import known
from whyformer.models.load import Subject, subject_of
from whyformer.prediction import Prediction
from whyformer.tolerance import close


@cache
def with_decoder() -> Subject:
    """An encoder with a decoder, which classifies."""
    torch.manual_seed(3)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    tokens = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    config = hf.BartConfig(vocab_size=99, d_model=16, max_position_embeddings=64, **sizes, **heads, **tokens)
    config.num_labels = 3
    return subject_of(hf.BartForSequenceClassification(config).double().eval(), cases.wordpiece())


@pytest.mark.parametrize(
    ("subject", "auto", "steps"),
    [
        (cases.subject, "layer_lrp", "stepwise(of=layer_lrp)"),
        (with_decoder, "attn_lrp", "stepwise(of=attn_lrp)"),
        (image_cases.subject, "full_grad(book=attn)", "stepwise(of=attn_lrp)"),
        (lambda: dual.subject("clip"), "attn_lrp", "stepwise(of=attn_lrp)"),
    ],
    ids=["text", "encoder_decoder", "image", "clip"],
)
def test_it_goes_by_what_the_model_is(subject, auto: str, steps: str) -> None:  # type: ignore[no-untyped-def]
    assert usual_method(subject()) == auto
    assert [spec.label for spec in methods_for(subject(), "auto,stepwise")] == [auto, steps]
    assert steps in [spec.label for spec in methods_for(subject(), "all")]
    assert methods_for(subject(), "stepwise,stepwise(of=auto, steps=3)," + steps)[0].label == steps


def test_every_default_runs_without_one_stack_of_layers() -> None:
    explainer = Explainer(with_decoder())
    explanation = explainer.explain(TEXTS[2])
    assert explanation.method == "attn_lrp"
    steps = explainer.explain(TEXTS[2], "stepwise", steps=2)
    assert steps.options == {"of": "attn_lrp", "steps": 2}
    assert explainer.explain(TEXTS[2], "stepwise", of="auto", steps=2).options == steps.options
    assert explainer.explain(TEXTS[2], effort="balanced").options["of"] == "attn_lrp"
    with pytest.raises((UnsupportedModel, NoAttention)):
        explainer.explain(TEXTS[2], "stepwise", of="layer_lrp")


@pytest.mark.parametrize("stacked", [True, False])
def test_ready_tensors_are_told_by_their_model(stacked: bool) -> None:
    model: Any = families.build("bert")
    inputs = families.batch()
    if not stacked:
        model, inputs = with_decoder().model, {"input_ids": torch.tensor([[2, 9, 8, 7, 3], [2, 5, 6, 7, 3]])}
        inputs["special_tokens_mask"] = torch.tensor([[1, 0, 0, 0, 1]] * 2)
    usual = "layer_lrp" if stacked else "attn_lrp"
    assert usual_method_for(model, batch_of(model, inputs)) == usual
    assert close(whyformer.attribute(model, inputs, target=1), whyformer.attribute(model, inputs, usual, target=1))
    stepwise, prediction = (
        list_methods()["stepwise"],
        Prediction(model, batch_of(model, inputs), [1] * len(inputs["input_ids"])),
    )
    assert close(stepwise(prediction, steps=2).total, stepwise(prediction, of=usual, steps=2).total)


def test_a_model_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[nn.Module] = []
    record = default.record  # type: ignore[attr-defined]
    known(cases.subject().model).clear()
    monkeypatch.setattr(
        default, "record", lambda model, *given, **how: runs.append(model) or record(model, *given, **how)
    )  # type: ignore[func-returns-value]
    assert {usual_method(cases.subject()) for _ in range(3)} == {"layer_lrp"}
    assert len(runs) == 1


def test_a_model_that_cannot_be_asked_says_what_is_wrong_when_it_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    known(cases.subject().model).clear()

    def broken(*_: object, **__: object) -> None:
        raise UnsupportedModel("it does not run")

    monkeypatch.setattr(default, "record", broken)
    assert usual_method(cases.subject()) == "attn_lrp"
    assert default.STACKED not in known(cases.subject().model)
