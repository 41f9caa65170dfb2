"""Methods where it is close: windows, masks, odd numbers of layers, products that cancel, images, counts, sums."""

import copy
import random
import sys
import warnings
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

import whyformer
from tests.helpers import families
from whyformer import BadInput, BadOption, Explainer, UnsupportedModel
from whyformer.errors import CompletenessWarning
from whyformer.inputs.batch import batch_of
from whyformer.methods import paths, sampling
from whyformer.methods.method import Scores, method_named
from whyformer.prediction import Prediction
from whyformer.tolerance import ROUNDING

EXACT = ROUNDING[torch.float64]


def scored(name: str, model: nn.Module, inputs: dict[str, torch.Tensor], target: Any = 1, **options: Any) -> Scores:
    return method_named(name)(Prediction(model, batch_of(model, inputs), target), **options)


@cache
def image_model() -> nn.Module:
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = hf.ViTConfig(**sizes, image_size=16, patch_size=8, num_labels=3)  # type: ignore[call-arg]
    return hf.ViTForImageClassification(config).double().eval()


def image(seed: int = 0) -> dict[str, torch.Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return {"pixel_values": torch.randn(2, 3, 16, 16, generator=stream, dtype=torch.float64)}


# What mutations showed


def test_grad_cam_leaves_out_what_a_window_hides() -> None:
    """Keys outside the window of the reader have a gradient, and no place in the mean of it."""
    model, inputs = families.build("mistral"), families.batch((9,))
    prediction = Prediction(model, batch_of(model, inputs), 1)
    reader = int(prediction.reader[0].argmax())
    attention, gradients = (maps[-1][0, :, reader] for maps in (prediction.attention, prediction.attention_gradients))
    seen = [key for key in range(9) if key != reader and float(attention[:, key].max()) > 0]
    hidden = [key for key in range(9) if key != reader and key not in seen]
    assert hidden
    assert gradients[:, hidden].abs().max() > 0
    row = []
    for key in seen:
        parts = []
        for head in range(len(attention)):
            weight = sum(float(gradients[head, k]) for k in seen) / len(seen)
            parts.append(weight * float(attention[head, key]))
        row.append(max(0.0, sum(parts) / len(parts)))
    expected = torch.zeros(9, dtype=torch.float64)
    if max(row) > min(row):
        for key, value in zip(seen, row, strict=True):
            expected[key] = (value - min(row)) / (max(row) - min(row))
    assert expected.any()
    assert torch.allclose(method_named("grad_cam")(prediction).total[0], expected, atol=1e-10)


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_relevance_lost_in_the_first_block_is_not_taken_off_what_is_expected(variant: str) -> None:
    """It is measured above that block."""
    mask = [[0, 0, 0, 0], [1, 0, 1, 1]]  # the first block lets nothing pass
    found = scored("mask_lrp", families.build("bert"), families.batch((9, 5)), head_mask=mask, variant=variant)
    report, heads = found.diagnostics["conservation"], found.diagnostics["heads"]
    assert heads["closed_blocks"].tolist() == [1, 1]
    lost_below = heads["lost"] - (1 - report["expected"])
    assert lost_below.abs().min() > 1e-3
    assert torch.allclose(report["sum"] + report["absorbed"], report["expected"], atol=1e-10)


def test_the_middle_of_three_layers_is_the_first() -> None:
    model = families.build("albert")
    assert model.config.num_hidden_layers == 3
    found = scored("decoded_grad_cam", model, families.batch((5,)), decode=False)
    assert found.diagnostics["decoded"]["layer"] == 1


# Products that cancel


@pytest.mark.parametrize(
    ("name", "options", "advice"),
    [
        ("attcat", {}, "states='inputs'"),
        ("attcat", {"attention_query": "reader"}, "states='inputs'"),
        ("attcat", {"combine": "product"}, "states='inputs'"),
        ("attcat", {"combine": "rollout"}, "states='inputs'"),
        ("cat", {}, "states='inputs'"),
        ("cam", {}, "take a lower layer"),
        ("cam", {"layer": -1}, "take a lower layer"),
        ("decoded_grad_cam", {"decode": False}, "take a lower layer"),
        ("decoded_grad_cam", {"decode": False, "score": "attcat"}, "take a lower layer"),
    ],
    ids=str,
)
@pytest.mark.parametrize("family", ["gpt2", "llama", "modernbert"])
def test_products_made_of_a_norms_constant_are_refused(
    name: str, options: dict[str, Any], advice: str, family: str
) -> None:
    model, inputs = families.build(family), families.batch((9, 7))
    with pytest.raises(UnsupportedModel, match="cancel to almost nothing") as refusal:
        scored(name, model, inputs, **options)
    assert advice in str(refusal.value)


@pytest.mark.parametrize("family", ["gpt2", "llama", "modernbert", "modernbert_mean", "bert"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("attcat", {"states": "inputs"}),
        ("cat", {"states": "inputs"}),
        ("cam", {"layer": 0}),
        ("input_x_gradient", {"at": "embedding_output"}),
        ("decoded_grad_cam", {"decode": False, "layer": 0}),
        ("saliency", {}),
        ("grads", {}),
    ],
    ids=str,
)
def test_real_signals_are_not_refused(name: str, options: dict[str, Any], family: str) -> None:
    for dtype in (torch.float64, torch.float32):
        assert scored(name, families.build(family, dtype), families.batch((9, 7)), **options).total.any()


def test_one_example_that_cancels_is_enough_and_the_others_are_explained_alone() -> None:
    model = families.build("gpt2")
    assert scored("cat", model, families.batch((1,))).total.any()  # its one token is read
    with pytest.raises(UnsupportedModel, match="cancel"):
        scored("cat", model, families.batch((1, 9)))


# Images


@pytest.mark.parametrize("name", ["attn_lrp", "cp_lrp", "input_x_gradient", "integrated_gradients"])
def test_the_default_place_of_an_image_is_the_embedding_output(name: str) -> None:
    model = image_model()
    options = {"steps": 20} if name == "integrated_gradients" else {}
    found = whyformer.attribute(model, image(), name, target=1, **options)
    assert found.shape == (2, 5)
    assert found.any()
    expected = whyformer.attribute(model, image(), name, target=1, at="embedding_output", **options)
    assert torch.allclose(found, expected, atol=EXACT)
    with pytest.raises(BadOption, match="token embeddings were not seen; use at='embedding_output'"):
        whyformer.attribute(model, image(), name, target=1, at="token_embeddings", **options)


def test_the_default_method_explains_an_image() -> None:
    found = whyformer.attribute(image_model(), image(), target=1)
    expected = whyformer.attribute(image_model(), image(), "full_grad", target=1, book="attn")
    assert torch.allclose(found, expected, atol=EXACT)


@pytest.mark.parametrize("name", ["attn_lrp", "cp_lrp"])
def test_the_former_spelling_of_a_place_is_taken(name: str) -> None:
    model, inputs = families.build("bert"), families.batch((5,))
    plain, former, today = (
        whyformer.attribute(model, inputs, name, target=1, **options)
        for options in ({}, {"at": "embeddings"}, {"at": "token_embeddings"})
    )
    assert torch.allclose(plain, former, atol=EXACT)
    assert torch.allclose(plain, today, atol=EXACT)
    other = whyformer.attribute(model, inputs, name, target=1, at="embedding_output")
    assert not torch.allclose(plain, other, atol=1e-3)


# Counts


@pytest.mark.parametrize(
    ("name", "option", "most", "why"),
    [
        ("integrated_gradients", "steps", 2000, "steps x steps"),
        ("gradient_shap", "samples", 1000, "in memory at once"),
        ("smooth_grad", "samples", 10000, "hours"),
        ("lime", "samples", 10000, "hours"),
        ("kernel_shap", "samples", 10000, "hours"),
        ("shapley_value_sampling", "samples", 10000, "for every unit"),
        ("occlusion", "window", 10000, "no text has more units"),
        ("stepwise", "steps", 10000, "no text has more units"),
    ],
)
def test_counts_have_limits_with_a_reason(name: str, option: str, most: int, why: str) -> None:
    method = method_named(name)
    assert method.checked({option: most}) == {option: most}
    for count in (most + 1, 10**9):
        with pytest.raises(BadOption) as refusal:
            method.checked({option: count})
        assert f"to {most}" in str(refusal.value)
        assert f"found {count}: " in str(refusal.value)
        assert why in str(refusal.value)
        with pytest.raises(BadOption, match=f"to {most}"):
            method.options[option].parsed(str(count))
    with pytest.raises(BadOption, match=f"a whole number from [12] to {most}"):
        method.checked({option: 0})


def test_steps_beyond_the_number_of_units_hide_one_at_a_time() -> None:
    model, inputs = families.build("bert"), families.batch((4,))
    many, each = (scored("stepwise", model, inputs, steps=steps).total for steps in (10_000, 4))
    assert torch.allclose(many, each, atol=EXACT)


# Sums


def constant_path(example: Any, delta: float, expected: float = 10.0) -> sampling.CaptumDiagnostics:
    whole, scores = torch.tensor([expected, expected + delta], dtype=torch.float64).split(1)
    return sampling.adding_up(example, scores, whole, torch.tensor(0.0))


@pytest.mark.parametrize(
    ("delta", "missed"), [(0.0, False), (0.49, False), (-0.49, False), (0.51, True), (-0.51, True)]
)
def test_scores_miss_where_they_are_more_than_a_twentieth_off(delta: float, missed: bool) -> None:
    class Example:
        model = families.build("bert")

    report = constant_path(Example, delta)
    assert bool(report[sampling.MISSES]) is missed
    assert float(report["delta"]) == pytest.approx(delta, abs=1e-10)
    assert float(report["expected"]) == 10


def test_what_is_within_rounding_is_not_missed() -> None:
    class Example:
        model = nn.Linear(1, 1)  # float32

    ends = torch.tensor(1e4), torch.tensor(1e4)
    assert not sampling.adding_up(Example, torch.tensor([0.5]), *ends)[sampling.MISSES]  # type: ignore[arg-type]
    assert sampling.adding_up(Example, torch.tensor([1.5]), *ends)[sampling.MISSES]  # type: ignore[arg-type]


def test_steps_are_doubled_while_the_sum_misses() -> None:
    """From zero, where a norm has no direction, no number of steps is enough; a few suffice to a token."""
    model, inputs = families.build("llama"), families.batch((9, 7))
    with pytest.warns(CompletenessWarning, match=r"add up to .* instead of .*more steps help"):
        found = scored("integrated_gradients", model, inputs, baseline="zero")
    delta, expected = (found.diagnostics[name] for name in ("delta", "expected"))
    missed = delta.abs() > 0.05 * expected.abs()
    assert missed.any()
    assert (found.diagnostics["steps"] == paths.MOST_STEPS).tolist() == missed.tolist()
    assert torch.allclose(found.total.sum(-1).double(), expected + delta, rtol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near = scored("integrated_gradients", families.build("bert"), inputs)
    assert near.diagnostics["steps"].tolist() == [50, 50]


def test_as_many_steps_as_are_needed_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = families.build("bert"), families.batch((7,))
    monkeypatch.setattr(paths, "STEPS", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = scored("integrated_gradients", model, inputs)
    assert 1 < int(found.diagnostics["steps"]) < paths.MOST_STEPS
    with pytest.warns(CompletenessWarning):
        told = scored("integrated_gradients", model, inputs, steps=1)
    assert told.diagnostics["steps"].tolist() == [1]  # what is asked for is done


def test_everyone_is_told_that_scores_do_not_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    from whyformer.cli import main

    text = "a gorgeous, witty film"
    with pytest.warns(CompletenessWarning, match="add up to"):
        explanation = Explainer.load("sentiment").explain(text, "integrated_gradients", steps=1)
    assert abs(explanation.diagnostics["delta"]) > 0.05 * abs(explanation.diagnostics["expected"])
    with pytest.warns(CompletenessWarning, match="deep_lift_shap: the scores of 2 of 2 inputs, at worst, add up to"):
        whyformer.attribute(families.build("bert"), families.batch((7, 5)), "deep_lift_shap", target=1)
    shown = warnings.showwarning
    try:
        with warnings.catch_warnings(), pytest.raises(SystemExit):
            main(["explain", text, "--method", "integrated_gradients", "--steps", "1"])
    finally:
        warnings.showwarning = shown
    assert "whyformer: warning: integrated_gradients: the scores add up to" in capsys.readouterr().err


# Random states


def test_importing_a_library_leaves_the_random_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """As scikit-learn, which draws a number when it is first imported."""
    monkeypatch.delitem(sys.modules, "captum.attr", raising=False)  # another test may have imported it
    monkeypatch.setattr(sampling.importlib, "import_module", lambda name: random.random())  # type: ignore[attr-defined]
    before = random.getstate()
    sampling.captum_attr()
    assert random.getstate() == before


# Tokens beyond the vocabulary


def altered(family: str, **tokens: int) -> nn.Module:
    model = copy.deepcopy(families.build(family))
    for name, number in tokens.items():
        setattr(model.config, name, number)
    return model


def test_stepwise_takes_no_token_that_the_model_cannot_look_up() -> None:
    found = scored("stepwise", altered("llama", eos_token_id=99, bos_token_id=98), families.batch((7, 5)))
    plain = altered("llama")
    for name in ("bos_token_id", "eos_token_id"):
        setattr(plain.config, name, None)
    assert torch.allclose(found.total, scored("stepwise", plain, families.batch((7, 5))).total, atol=EXACT)


@pytest.mark.parametrize(
    ("name", "options", "lengths", "error", "message"),
    [
        ("stepwise", {}, (7, 5), BadInput, "padding token 99 lies beyond its vocabulary"),
        ("stepwise", {"hide": "pad"}, (7,), BadOption, "the vocabulary has no padding token"),
        ("lime", {"samples": 4}, (7,), BadOption, "padding token 99 lies beyond the model's vocabulary of 60"),
    ],
)
def test_a_padding_token_beyond_the_vocabulary_is_named(
    name: str, options: dict[str, Any], lengths: tuple[int, ...], error: type[Exception], message: str
) -> None:
    model = altered("llama", pad_token_id=99)
    with pytest.raises(error, match=message):
        scored(name, model, families.batch(lengths), **options)


def test_where_no_token_can_stand_for_nothing_that_is_said() -> None:
    model = altered("gpt2", eos_token_id=99, bos_token_id=98)
    with pytest.raises(BadOption, match="no BOS, EOS or padding token in the vocabulary"):
        scored("stepwise", model, families.batch((7,)))


# Adapters


class Adapted(nn.Module):
    """A linear map with an adapter that is not merged, as LoRA adds them."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.base(states) + self.up(self.down(states))  # type: ignore[no-any-return]


def test_alti_names_an_adapter_that_is_not_merged() -> None:
    model = copy.deepcopy(families.build("bert"))
    output = model.bert.encoder.layer[0].attention.output  # type: ignore[union-attr, index]
    output.dense = Adapted(output.dense).double()  # type: ignore[union-attr, arg-type]
    with pytest.raises(UnsupportedModel, match="after attend come 2 of linear, not one: merge adapters such as LoRA"):
        scored("alti", model, families.batch((5,)))
