"""Relevance at attention maps, one layer after the other: the same numbers, and never all maps at once."""

from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import whyformer
from tests.helpers import families
from whyformer import prediction as predictions
from whyformer.models.memory import peak_memory
from whyformer.recorder import BOOKS, Needs, record
from whyformer.recorder.in_turn import in_turn, parts_of
from whyformer.recorder.recording import recorded
from whyformer.tolerance import close

MASKED: dict[str, Any] = {"head_mask": "random", "rate": 0.5}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("transformer_attribution", {}),
    ("transformer_attribution", {"weight": "attention"}),
    ("transformer_attribution", {"weight": "none", "book": "alpha_beta"}),
    ("mask_lrp", MASKED),
    ("mask_lrp", {**MASKED, "variant": "authors"}),
]


@pytest.mark.numeric
@pytest.mark.parametrize("family", families.ALL)
def test_parts_of_a_pass_are_the_whole(family: str) -> None:
    model, inputs = families.build(family), families.batch()
    trace = record(model, inputs)
    for book in ("z_plus", "alpha_beta"):
        *maps, state = trace.relevance((*trace.attention, trace.hidden[1]), book, 1)
        gradients, turns = trace.gradient(trace.attention, 1), in_turn(trace, BOOKS[book], 1)
        assert turns is not None
        each = list(turns)
        assert [at.layer for at in each] == list(reversed(range(len(maps))))
        assert all(close(at.relevance, maps[at.layer], families.arithmetic(family)) for at in each)
        assert all(close(at.gradient, gradients[at.layer], families.arithmetic(family)) for at in each)
        assert close(each[-1].state, state, families.arithmetic(family))


@pytest.mark.numeric
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "mpnet"])
@pytest.mark.parametrize(("method", "options"), CASES)
def test_methods_take_large_maps_in_turn(
    family: str, method: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = families.build(family), families.batch()
    whole = whyformer.attribute(model, inputs, method, target=1, **options)
    monkeypatch.setattr(predictions, "LARGE_MAPS", 0)
    asked: list[object] = []
    monkeypatch.setattr(predictions, "in_turn", lambda *args: asked.append(args) or in_turn(*args))
    assert close(whyformer.attribute(model, inputs, method, target=1, **options), whole)
    assert len(asked) == 1


@pytest.mark.numeric
@pytest.mark.parametrize("book", ["z_plus", "alpha_beta", "eq4", "eq4_normalised"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "mpnet", "deberta_v2", "mistral"])
def test_of_large_maps_one_is_kept_for_each_layer(family: str, book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = families.build(family), families.batch()
    options: dict[str, Any] = {"target": 1, "book": book}
    whole = whyformer.attribute(model, inputs, "transformer_attribution", **options)
    monkeypatch.setattr("whyformer.recorder.lrp.sites.LARGE", 0)
    spared = recorded(model, inputs, Needs(sites=True, in_turn=True)).sites
    assert {site.kind for site in spared if site.spared is not None} >= {"matmul", "softmax"}
    for large_maps in (0, predictions.LARGE_MAPS):
        monkeypatch.setattr(predictions, "LARGE_MAPS", large_maps)
        assert close(whyformer.attribute(model, inputs, "transformer_attribution", **options), whole)


def test_what_is_reported_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = whyformer.Explainer.load("sentiment", device="cpu")
    whole = explainer.explain("a gorgeous film", "transformer_attribution", check=0)
    monkeypatch.setattr(predictions, "LARGE_MAPS", 0)
    in_parts = explainer.explain("a gorgeous film", "transformer_attribution", check=0)
    for name, value in whole.diagnostics["conservation"].items():
        assert in_parts.diagnostics["conservation"][name] == pytest.approx(value, abs=1e-4)


def test_a_state_that_is_passed_by_makes_no_parts() -> None:
    """The first state is added to the last one behind all layers."""
    model, inputs = families.build("bert"), families.batch()
    entered = []
    first = model.bert.encoder.layer[0].register_forward_pre_hook(lambda m, args: entered.append(args[0]))
    behind = model.bert.encoder.register_forward_hook(
        lambda m, args, out: type(out)(last_hidden_state=out.last_hidden_state + entered[-1])
    )
    try:
        trace = record(model, inputs)
        assert parts_of(trace, trace.sites) is None
        assert in_turn(trace, BOOKS["z_plus"], 1) is None
    finally:
        first.remove()
        behind.remove()


def test_less_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 8, "vocab_size": 100}
    model: Any = BertForSequenceClassification(BertConfig(**sizes, num_hidden_layers=6)).eval()
    inputs = {"input_ids": torch.randint(5, 100, (1, 256))}
    known = [*model.parameters(), *inputs.values()]

    def peak() -> int:
        taken = peak_memory(
            lambda: whyformer.attribute(model, inputs, "transformer_attribution"), torch.device("cpu"), known
        )
        assert taken is not None
        return taken

    whole = peak()
    monkeypatch.setattr(predictions, "LARGE_MAPS", 0)
    assert peak() < 0.75 * whole
