"""Methods keep the contract on every family of models, and the contract catches methods that do not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import whyformer
from tests.helpers import families
from whyformer.methods.method import Method
from whyformer.prediction import Prediction
from whyformer.testing import check_method, state
from whyformer.tolerance import close

WITH_EVERY_METHOD = ("bert", "gpt2")
WITH_ONE_OF_EACH = ("distilbert", "albert", "deberta_v2", "modernbert", "modernbert_mean", "bloom", "mistral")
PAIRS = [
    *((name, family) for family in WITH_EVERY_METHOD for name in families.METHODS),
    *((name, family) for family in WITH_ONE_OF_EACH for name in families.ONE_OF_EACH),
]
BY_RULES = ("lrp", "mask_lrp", "partial_lrp", "transformer_attribution")

MORE_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("raw_attention", {"layer": "mean"}),
    ("raw_attention", {"layer": [0, 1]}),
    ("rollout", {"first_layer": 1, "row_normalised": False}),
    ("grads", {"query": "mean"}),
    ("grads", {"times_attention": True}),
    ("cam", {"layer": 0}),
    ("cat", {"states": "inputs"}),
    ("attcat", {"states": "inputs"}),
    ("attcat", {"attention_query": "reader"}),
    ("saliency", {"of": "loss"}),
    ("saliency", {"protocol": "allennlp"}),
    ("input_x_gradient", {"at": "embedding_output"}),
]


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_every_method_keeps_the_contract(name: str, family: str) -> None:
    options = families.options(name, family)
    if name in BY_RULES:
        options["in_float32"] = 0.05  # relevance propagation divides by sums that cancel
    assert not check_method(whyformer.list_methods()[name], families.build(family), families.batch(), **options)


def test_each_way_to_record_has_its_method() -> None:
    """A method that records in a new way belongs to `families.ONE_OF_EACH`."""
    ways = [families.way_to_record(name) for name in families.ONE_OF_EACH]
    assert len(set(ways)) == len(ways)
    assert set(ways) == {families.way_to_record(name) for name in families.METHODS}


@pytest.mark.parametrize(("name", "options"), MORE_OPTIONS, ids=str)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_options_keep_the_contract(name: str, options: dict[str, Any], family: str) -> None:
    chosen = {**families.options(name, family), **options}
    assert not check_method(whyformer.list_methods()[name], families.build(family), families.batch(), **chosen)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_smooth_gradients_as_in_allennlp_keep_the_contract(family: str) -> None:
    """Not on models with LayerNorms, where the sums are rounding (docs/methods.md)."""
    options = {"protocol": "allennlp", "samples": 2}
    assert not check_method(
        whyformer.list_methods()["smooth_grad"], families.build(family), families.batch(), **options
    )


@pytest.mark.parametrize("combine", ["rollout", "product"])
def test_products_of_layers_keep_the_contract(combine: str) -> None:
    """Not on models with a final norm: the last layer's share is 0 there, up to rounding (docs/methods.md)."""
    assert not check_method(
        whyformer.list_methods()["attcat"],
        families.build("bert"),
        families.batch(),
        combine=combine,
        attention_query="mean",
    )


def good(prediction: Prediction) -> Tensor:
    """Keeps every promise."""
    return prediction.read(prediction.attention[-1].mean(1))


def ignores_the_mask(prediction: Prediction) -> Tensor:
    """Averages over padding too."""
    return prediction.attention[-1].mean((1, 2))


def couples_the_batch(prediction: Prediction) -> Tensor:
    """Divides by a sum over the batch."""
    scores = good(prediction)
    return scores / scores.pow(2).sum()


def leaves_a_hook(prediction: Prediction) -> Tensor:
    """Registers a hook and forgets it."""
    prediction.model.register_forward_hook(lambda *_: None)
    return good(prediction)


def edits_a_weight(prediction: Prediction) -> Tensor:
    """Changes the model."""
    scores = good(prediction)
    with torch.no_grad():
        next(prediction.model.parameters()).mul_(1 + 1e-12)
    return scores


def freezes_the_model(prediction: Prediction) -> Tensor:
    """Switches gradients off for good."""
    prediction.model.requires_grad_(False)
    return good(prediction)


def switches_to_eval(prediction: Prediction) -> Tensor:
    """Leaves the model in another mode."""
    prediction.model.eval()
    return good(prediction)


def edits_the_config(prediction: Prediction) -> Tensor:
    """Sets what it needs in the configuration."""
    prediction.model.config.use_cache = False  # type: ignore[union-attr]
    return good(prediction)


def accumulates_gradients(prediction: Prediction) -> Tensor:
    """Runs backward into the parameters."""
    prediction.model(**prediction.batch.tensors).logits.sum().backward()
    return good(prediction)


def returns_nan(prediction: Prediction) -> Tensor:
    """Divides 0 by 0."""
    return good(prediction) * float("nan")


def has_the_wrong_shape(prediction: Prediction) -> Tensor:
    """Returns all rows."""
    return prediction.attention[-1].mean(1).flatten(0, 1)


def is_not_seeded(prediction: Prediction) -> Tensor:
    """Adds noise from the global generator."""
    return good(prediction) * (1 + 1e-6 * torch.rand(1, dtype=torch.float64))


def is_signed(prediction: Prediction) -> Tensor:
    """Has negative scores, and says it has none."""
    return -good(prediction)


def knows_the_class(prediction: Prediction) -> Tensor:
    """Depends on the target, and says it does not."""
    return good(prediction) * (1 + prediction.target[:, None])


def is_imprecise(prediction: Prediction) -> Tensor:
    """Rounds on the way."""
    scores = good(prediction)
    return scores if scores.dtype == torch.float64 else scores.to(torch.bfloat16).float()


BROKEN: list[tuple[Callable[..., Tensor], str]] = [
    (ignores_the_mask, "alone"),
    (couples_the_batch, "alone"),
    (leaves_a_hook, "given back"),
    (edits_a_weight, "given back"),
    (freezes_the_model, "given back"),
    (switches_to_eval, "given back"),
    (edits_the_config, "given back"),
    (accumulates_gradients, "given back"),
    (returns_nan, "runs"),
    (has_the_wrong_shape, "runs"),
    (is_not_seeded, "deterministic"),
    (is_signed, "facts"),
    (knows_the_class, "facts"),
    (is_imprecise, "precision"),
]


def as_method(function: Callable[..., Tensor], **facts: bool) -> Method:
    return Method(function.__name__, function, "test", **{"signed": False, "class_specific": False, **facts}, paper="-")


def test_a_good_method_passes() -> None:
    assert not check_method(as_method(good), families.build("bert"), families.batch())


def test_a_method_without_negative_scores_is_not_signed() -> None:
    found = check_method(as_method(good, signed=True), families.build("bert"), families.batch())
    assert [violation.found for violation in found] == [
        "declared as signed, but not even between two classes a score is negative"
    ]


@pytest.mark.parametrize(("function", "clause"), BROKEN, ids=lambda x: getattr(x, "__name__", x))
def test_a_broken_method_is_caught(function: Callable[..., Tensor], clause: str) -> None:
    violations = check_method(as_method(function), families.build("bert"), families.batch())
    assert clause in {v.clause for v in violations}, violations


@pytest.mark.parametrize("facts", [{"signed": True}, {"class_specific": True}], ids=str)
def test_untrue_facts_are_caught(facts: dict[str, bool]) -> None:
    violations = check_method(as_method(good, **facts), families.build("bert"), families.batch())
    assert [v.clause for v in violations] == ["facts"]


def test_a_model_in_training_mode_is_explained_as_in_eval_mode() -> None:
    model = families.build("bert")
    expected = whyformer.attribute(model, families.batch(), "attcat", target=1)
    model.train()
    model.bert.encoder.layer[0].eval()
    before = state(model)
    try:
        scores = whyformer.attribute(model, families.batch(), "attcat", target=1)
        assert state(model)["training"] == before["training"]
    finally:
        model.eval()
    assert close(scores, expected)
