"""memory="low": layers are run again in the backward pass, and nothing but memory and time differs."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

import whyformer
from tests.helpers import families, vision, zoo
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import method_specs
from whyformer.models.memory import peak_memory
from whyformer.prediction import Prediction
from whyformer.recorder import Needs
from whyformer.recorder.lrp.rule_sets import ATTN
from whyformer.recorder.recording import recorded
from whyformer.testing import state
from whyformer.tolerance import close

FAMILIES = ["bert", "albert", "gpt2", "llama", "qwen3", "gemma2", "distilbert", "modernbert", "deberta_v2"]
METHODS = ["attn_lrp", "cp_lrp", "layer_lrp", "cat(book=attn)", "full_grad(book=attn)"]
TAPPED = ["gae", "gae(book=conservative)", "att_grads", "att_grads(book=attn)"]


@pytest.mark.numeric
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_scores_are_the_same(family: str, method: str) -> None:
    model, inputs = families.build(family), families.batch()
    usual = whyformer.attribute(model, inputs, method, target=1)
    low = whyformer.attribute(model, inputs, method, target=1, memory="low")
    assert close(low, usual, families.arithmetic(family))


@pytest.mark.numeric
@pytest.mark.parametrize("family", ["bert", "albert", "gpt2", "llama", "qwen3", "gemma2", "distilbert", "modernbert"])
@pytest.mark.parametrize("method", TAPPED)
def test_maps_are_looked_at_on_the_way(family: str, method: str) -> None:
    """The scores of methods that keep no more of maps than they make of each, beside those of the maps themselves."""
    model, inputs = families.build(family), families.batch()
    (spec,) = method_specs([method])
    expected = spec(Prediction(model, batch_of(model, inputs), 1, relevance=True)).total
    for memory in ("usual", "low"):
        scores = whyformer.attribute(model, inputs, method, target=1, explains="logit", memory=memory)
        assert close(scores, expected, families.arithmetic(family))


@pytest.mark.parametrize("method", ["gae", "att_grads"])
def test_of_maps_no_more_is_kept_than_what_is_made_of_them(method: str) -> None:
    """Neither the gradients of all heads and layers, nor, beside the graph, the maps."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 8, "vocab_size": 100}
    model: Any = BertForSequenceClassification(BertConfig(**sizes, num_hidden_layers=6)).eval()
    inputs = {"input_ids": torch.randint(5, 100, (1, 256))}
    calls = {
        "tapped": lambda: whyformer.attribute(model, inputs, method),
        "maps": lambda: whyformer.list_methods()[method](Prediction(model, batch_of(model, inputs))),
    }
    known = [*model.parameters(), *inputs.values()]
    peaks = {name: peak_memory(call, torch.device("cpu"), known) or 0 for name, call in calls.items()}
    assert 0 < peaks["tapped"] < 0.75 * peaks["maps"]


def test_maps_that_are_no_maps_where_they_meet_their_values() -> None:
    """DeBERTa folds heads and examples into one dimension."""
    model, inputs = families.build("deberta_v2"), families.batch()
    expected = whyformer.list_methods()["gae"](Prediction(model, batch_of(model, inputs), 1, relevance=True)).total
    assert close(whyformer.attribute(model, inputs, "gae", target=1, explains="logit"), expected)
    with pytest.raises(whyformer.UnsupportedModel, match="where it meets its values"):
        whyformer.attribute(model, inputs, "gae", target=1, memory="low")


def test_images_are_explained_in_low_memory() -> None:
    model = zoo.build("vit", head=zoo.IMAGE)
    inputs = vision.batch(model)
    low = whyformer.attribute(model, inputs, "attn_lrp", target=1, memory="low")
    assert close(low, whyformer.attribute(model, inputs, "attn_lrp", target=1))


@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_given_back_as_it_was(training: bool) -> None:
    """Also while it is in training mode, in which a layer that is run again would drop numbers."""
    model = copy.deepcopy(families.build("bert")).train(training)
    before = str(state(model))
    low = whyformer.attribute(model, families.batch(), "attn_lrp", target=1, memory="low")
    assert str(state(model)) == before
    assert not any("forward" in module.__dict__ for module in model.modules())
    assert close(low, whyformer.attribute(model.eval(), families.batch(), "attn_lrp", target=1))


def test_a_model_that_lost_layers_since_it_was_explained() -> None:
    model, inputs = copy.deepcopy(families.build("bert")), families.batch()
    whyformer.attribute(model, inputs, "attn_lrp", target=1, memory="low")
    model.bert.encoder.layer = model.bert.encoder.layer[:1]
    low = whyformer.attribute(model, inputs, "attn_lrp", target=1, memory="low")
    assert close(low, whyformer.attribute(model, inputs, "attn_lrp", target=1))


def test_a_forward_that_somebody_exchanged_is_put_back() -> None:
    model = copy.deepcopy(families.build("bert"))
    layer = model.bert.encoder.layer[0]
    theirs = layer.forward
    layer.forward = theirs
    whyformer.attribute(model, families.batch(), "attn_lrp", target=1, memory="low")
    assert layer.__dict__["forward"] is theirs


def test_a_model_that_raises_is_given_back() -> None:
    class Broken(nn.Module):
        def forward(self, *_: Any, **__: Any) -> Tensor:
            raise RuntimeError("broken")

    model = copy.deepcopy(families.build("bert"))
    whyformer.attribute(model, families.batch(), "attn_lrp", target=1, memory="low")  # which sees the layers
    model.bert.encoder.layer[1].output = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        whyformer.attribute(model, families.batch(), "attn_lrp", target=1, memory="low")
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_less_memory_is_taken() -> None:
    """Of eight layers one at a time, and the states between them."""
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4, "vocab_size": 100}
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=8, num_key_value_heads=4)).eval()
    inputs = {"input_ids": torch.randint(5, 100, (1, 256))}

    def explain(memory: str) -> None:
        needs = Needs(maps=False, book=ATTN, last=True, once=True, low=memory == "low")
        trace = recorded(model, inputs, needs)
        assert trace.embeddings is not None
        trace.relevance(trace.embeddings, ATTN)

    known = [*model.parameters(), *inputs.values()]
    usual, low = (
        peak_memory(lambda memory=memory: explain(memory), torch.device("cpu"), known) for memory in ("", "low")
    )
    assert usual is not None
    assert low is not None
    assert low < usual / 2.9


def test_methods_that_need_maps_or_sites_refuse() -> None:
    model, inputs = families.build("bert"), families.batch()
    for method in (
        "rollout",
        "transformer_attribution",
        "input_x_gradient",
        "attn_lrp(gamma=0.25)",
        "grads(book=attn)",
    ):
        with pytest.raises(whyformer.BadOption, match="memory='low'"):
            whyformer.attribute(model, inputs, method, target=1, memory="low")
    with pytest.raises(whyformer.BadOption, match=r"memory takes usual \| low; found 'tiny'"):
        whyformer.attribute(model, inputs, target=1, memory="tiny")


def test_nothing_large_is_done_silently_where_rules_cannot_follow() -> None:
    """With usual memory, IBERT's integer activations are explained by sites, which take more."""
    model = zoo.build("ibert")
    inputs = zoo.batch(model)
    whyformer.attribute(model, inputs, "attn_lrp", target=1)
    with pytest.raises(whyformer.UnsupportedModel, match="IntGELU"):
        whyformer.attribute(model, inputs, "attn_lrp", target=1, memory="low")


def test_steps_and_texts_in_windows() -> None:
    explainer = whyformer.Explainer.load("sentiment", device="cpu")
    text = "a gorgeous, witty, seductive movie"
    usual, low = (explainer.explain(text, "stepwise", steps=2, check=0, memory=m) for m in ("usual", "low"))
    assert usual == low
    with pytest.raises(whyformer.BadOption, match="in one piece"):
        explainer.explain(text, windows="merge", memory="low")
