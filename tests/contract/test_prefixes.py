"""What inputs of a causal model begin with alike is run once: the outputs are those of whole runs, for every model."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn
from transformers.models.llama import modeling_llama

import whyformer
from tests.helpers import families, zoo
from tests.helpers.reused import LENGTH, PLACES, both_runs, hidden, read, whole_of
from whyformer.inputs.input import TensorInput
from whyformer.models.cache import known
from whyformer.perturb import Outcomes, hide_named, prefixes
from whyformer.perturb.engine import Runner
from whyformer.tolerance import close

PLAIN = ("gpt2", "gpt_neox", "opt", "bloom", "llama", "qwen2", "qwen3", "phi3")
WINDOWS = ("mistral", "gemma2", "gpt_oss")  # their caches hold what is in a window


@pytest.fixture(autouse=True)
def _calls_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short inputs are worth it, and every start has its own batch."""
    monkeypatch.setattr(prefixes, "CALL", 0)


@pytest.fixture
def _calls_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "CALL", 1 / 64)


def language_model(kind: str, dtype: torch.dtype = torch.float64, **more: Any) -> Any:
    torch.manual_seed(7)
    config = families.CONFIGS[kind]()
    for name, value in more.items():
        setattr(config, name, value)
    model = hf.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.25)
    return model.to(dtype).eval()


@pytest.mark.parametrize("family", PLAIN)
def test_plain_caches_are_reused(family: str) -> None:
    model = families.build(family)
    engine, outputs, expected = both_runs(model, hidden(whole_of(model), "delete", "zero"))
    assert close(outputs, expected, families.arithmetic(family))
    assert engine.counts.reused == LENGTH - 1 + 2 * sum(min(places) for places in PLACES) - 1  # without the last: 10
    assert engine.counts.tokens < LENGTH * len(PLACES) * 2


@pytest.mark.parametrize("family", WINDOWS)
def test_caches_that_are_not_plain_are_not(family: str) -> None:
    model = families.build(family)
    engine, outputs, expected = both_runs(model, hidden(whole_of(model), "delete", "zero"))
    assert torch.equal(outputs, expected)
    assert (engine.counts.reused, known(model)[prefixes.CHECKED]) == (0, prefixes.REFUSED)


@pytest.mark.long
@pytest.mark.parametrize("name", ["qwen3_next", "zamba2"])
def test_nor_are_states_of_recurrent_layers(name: str) -> None:
    model = zoo.build(name, head=zoo.CAUSAL)
    engine, outputs, expected = both_runs(model, hidden(whole_of(model), "zero"), LENGTH - 1)
    assert close(outputs, expected, torch.float32)
    assert engine.counts.reused == 0


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta_v2", "modernbert"])
def test_models_that_look_both_ways_are_not_asked(family: str) -> None:
    model = families.build(family)
    whole = whole_of(model)
    engine = Runner(model, read, reuse=True)
    assert engine.prefixes is not None
    assert engine.prefixes.plans(hidden(whole, "delete"))[0] == []
    assert not prefixes.takes_a_past(model)


def test_an_encoder_that_takes_a_past_is_not_asked_twice() -> None:
    """A BERT with the head of a decoder, which looks both ways and returns no cache."""
    model = hf.BertLMHeadModel(families.CONFIGS["bert"]()).double().eval()
    engine, outputs, expected = both_runs(model, hidden(whole_of(model), "zero"), LENGTH - 1)
    assert close(outputs, expected)
    assert (engine.counts.reused, known(model)[prefixes.CHECKED]) == (0, prefixes.REFUSED)


def test_a_model_that_looks_ahead_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cache is plain, and it says the same of one token: but what follows changes what stands before."""
    model = copy.deepcopy(families.build("llama"))
    monkeypatch.setattr(modeling_llama, "create_causal_mask", hf.masking_utils.create_bidirectional_mask)
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
    engine, outputs, expected = both_runs(model, hidden(whole_of(model), "zero"))
    assert close(outputs, expected, torch.float32)
    assert (engine.counts.reused, known(model)[prefixes.CHECKED]) == (0, prefixes.REFUSED)


def test_angles_that_depend_on_the_length_are_refused() -> None:
    for kind in ("dynamic", "longrope"):
        assert prefixes.takes_a_past(families.build("llama"))
        model = copy.deepcopy(families.build("llama"))
        model.model.rotary_emb.rope_type = kind
        assert not prefixes.takes_a_past(model)


def test_a_writer_of_texts_from_texts_is_refused() -> None:
    model = zoo.build("bart", head=zoo.SEQUENCE)
    assert not prefixes.takes_a_past(model)


def test_states_of_a_window_are_not_plain() -> None:
    states = torch.zeros(1, 2, 6, 8)
    plain, window = hf.DynamicCache(), hf.DynamicCache(config=families.CONFIGS["mistral"]())
    for cache in (plain, window):
        for layer in range(2):
            cache.update(states, states, layer)
    window.layers[0].keys = window.layers[0].values = window.layers[1].keys = window.layers[1].values = states
    assert prefixes.plain_layers(plain, 1) == [(layer.keys, layer.values) for layer in plain.layers]
    assert prefixes.plain_layers(plain, 2) is None
    assert prefixes.plain_layers(window, 1) is None
    assert prefixes.plain_layers(None, 1) is None
    assert prefixes.plain_layers(hf.EncoderDecoderCache(plain, plain), 1) is None


# What is hidden where


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
@pytest.mark.parametrize("hide", ["delete", "pad", "pad_attended", "zero"])
def test_whatever_is_hidden_wherever_it_stands(family: str, hide: str) -> None:
    """Also where the padding token of the model takes the place of what its classifier reads."""
    model = families.build(family)
    whole = whole_of(model)
    inputs = [
        whole.without(list(range(first, last)), hide_named(hide)) for first in range(1, 12) for last in (first + 1, 12)
    ]
    engine, outputs, expected = both_runs(model, inputs)
    assert engine.counts.reused > 0
    assert close(outputs, expected, families.arithmetic(family))


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3"])
@pytest.mark.parametrize("kept", [4, LENGTH - 1])
def test_language_models_speak_at_the_position_that_is_kept(kind: str, kept: int) -> None:
    """What stands behind it cannot matter, and it is run itself."""
    model = language_model(kind)
    engine, outputs, expected = both_runs(model, hidden(whole_of(model), "zero"), kept)
    assert outputs.shape == (len(PLACES) + 1, families.VOCABULARY)
    assert close(outputs, expected, families.arithmetic(kind))
    assert engine.counts.reused == sum(min(*places, kept) for places in PLACES)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3"])
def test_units_of_several_texts_are_hidden_side_by_side(kind: str) -> None:
    model = families.build(kind)
    wholes = [whole_of(model, length) for length in (9, 12, 14)]
    inputs = [one.without([place], hide_named("delete")) for one in wholes for place in range(1, len(one) - 1)]
    engine, outputs, expected = both_runs(model, inputs)
    assert close(outputs, expected, families.arithmetic(kind))
    assert engine.counts.reused >= 0.9 * sum(place for one in wholes for place in range(1, len(one) - 1))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("head", ["classes", "next token"])
@pytest.mark.parametrize("method", ["occlusion(window=1, baseline=zero)", "kernel_shap(samples=6, baseline=zero)"])
def test_methods_give_the_same_scores_of_padded_texts(kind: str, side: str, head: str, method: str) -> None:
    model = language_model(kind) if head == "next token" else copy.deepcopy(families.build(kind))
    inputs = families.batch((LENGTH, 8))
    if side == "left":
        inputs = {name: torch.stack((values[0], values[1].roll(4))) for name, values in inputs.items()}
    if head == "next token":
        inputs |= {"position_ids": (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)}
    scores = whyformer.attribute(model, inputs, method, target=1)
    assert known(model)[prefixes.CHECKED] > 0
    with prefixes.running_whole(model):
        expected = whyformer.attribute(model, inputs, method, target=1)
    assert close(scores, expected, families.arithmetic(kind))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_in_other_precisions(kind: str, dtype: torch.dtype) -> None:
    model = language_model(kind, dtype)
    engine, outputs, expected = both_runs(model, hidden(whole_of(model), "zero"), LENGTH - 1)
    assert close(outputs, expected, dtype)
    assert engine.counts.reused > 0


def test_probabilities_of_classes() -> None:
    model = families.build("llama")
    inputs = hidden(whole_of(model), "delete", "pad")
    engine = Outcomes(model)
    shares = engine.of(inputs, 3)
    with prefixes.running_whole(model):
        assert close(shares, Outcomes(model).of(inputs, 3), families.arithmetic("llama"))
    assert engine.counts.reused > 0


# What it costs, and what may go wrong


@pytest.mark.usefixtures("_calls_cost")
def test_short_inputs_are_run_whole() -> None:
    model = families.build("llama")
    whole = whole_of(model)
    inputs = [whole.without([place], hide_named("zero")) for place in (8, 9, 10)]
    assert both_runs(model, inputs)[0].counts.reused == 0


@pytest.mark.usefixtures("_calls_cost")
def test_batches_hold_several_starts_where_calls_cost() -> None:
    """Neighbouring starts are run together, behind the first of them; and never more inputs than whole runs hold."""
    model = families.build("llama")
    whole = whole_of(model, 60)
    inputs = [whole.without([place], hide_named("zero")) for place in range(60)]
    engine = Runner(model, read, reuse=True, tokens_per_batch=600)
    outputs = engine.logits(inputs, 3)
    with prefixes.running_whole(model):
        before = Runner(model, read, reuse=True, tokens_per_batch=600)
        assert close(outputs, before.logits(inputs, 3), families.arithmetic("llama"))
    assert engine.counts.run == before.counts.run == 60
    assert engine.counts.tokens < 0.65 * before.counts.tokens == 0.65 * 60 * 60
    assert engine.counts.batches < 30
    plans, left = engine.prefixes.plans(inputs)
    assert max(len(batch.inputs) for plan in plans for batch in plan.batches) * 60 <= 600
    assert [one.gone.argmax() for one in left] == [0]


def calls_of(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Any], Exception | None]) -> list[Any]:
    """What the engine runs from now on; some of it fails."""
    batches, call = [], Runner._call

    def noted(self: Runner, batch: Any, kept: int | None, **more: Any) -> Any:
        batches.append(batch)
        error = fails(batch)
        if error is not None:
            raise error
        return call(self, batch, kept, **more)

    monkeypatch.setattr(Runner, "_call", noted)
    return batches


@pytest.fixture
def llama() -> Any:
    """One of which nothing is known yet."""
    return copy.deepcopy(families.build("llama"))


def test_whatever_fails_behind_a_prefix_is_run_whole(monkeypatch: pytest.MonkeyPatch, llama: Any) -> None:
    batches = calls_of(monkeypatch, lambda batch: KeyError("no past") if batch.prefix else None)
    inputs = hidden(whole_of(llama), "delete")
    engine, outputs, expected = both_runs(llama, inputs)
    assert torch.equal(outputs, expected)
    assert (engine.counts.reused, known(llama)[prefixes.CHECKED]) == (0, prefixes.REFUSED)
    assert sum(batch.prefix is not None for batch in batches) == 1


def test_other_logits_behind_a_prefix_are_run_whole(monkeypatch: pytest.MonkeyPatch, llama: Any) -> None:
    call = Runner._call

    def other(self: Runner, batch: Any, kept: int | None, **more: Any) -> Any:
        output = call(self, batch, kept, **more)
        if batch.prefix:
            output.logits = output.logits * 1.001
        return output

    monkeypatch.setattr(Runner, "_call", other)
    engine, outputs, expected = both_runs(llama, hidden(whole_of(llama), "delete"))
    assert torch.equal(outputs, expected)
    assert engine.counts.reused == 0


def test_where_memory_is_short_fewer_are_run_at_once(monkeypatch: pytest.MonkeyPatch, llama: Any) -> None:
    whole = whole_of(llama)
    inputs = [whole.without([9, place], hide_named("zero")) for place in range(9, 12)]
    assert both_runs(llama, inputs)[0].counts.reused == 27
    crowded = lambda batch: torch.OutOfMemoryError("full") if batch.prefix and len(batch.inputs) > 1 else None  # noqa: E731
    batches = calls_of(monkeypatch, crowded)
    engine, outputs, expected = both_runs(llama, inputs)
    assert close(outputs, expected, families.arithmetic("llama"))
    assert engine.counts.reused == 27
    assert [len(batch.inputs) for batch in batches if batch.prefix] == [3, 1, 2, 1, 1]


def test_where_a_prefix_takes_the_memory_inputs_are_run_whole(monkeypatch: pytest.MonkeyPatch, llama: Any) -> None:
    inputs = hidden(whole_of(llama), "zero")
    assert both_runs(llama, inputs)[0].counts.reused > 0
    batches = calls_of(monkeypatch, lambda batch: torch.OutOfMemoryError("full") if batch.prefix else None)
    engine, outputs, expected = both_runs(llama, inputs)
    assert close(outputs, expected, families.arithmetic("llama"))
    assert (engine.counts.reused, engine.counts.run) == (0, len(inputs))
    assert sum(batch.prefix is not None for batch in batches) == 1
    monkeypatch.undo()
    monkeypatch.setattr(prefixes, "CALL", 0)
    calls_of(monkeypatch, lambda batch: torch.OutOfMemoryError("full") if len(batch.inputs[0]) == 11 else None)
    assert close(both_runs(llama, inputs)[1], expected, families.arithmetic("llama"))


def test_a_model_is_checked_once_and_again_on_longer_inputs(monkeypatch: pytest.MonkeyPatch, llama: Any) -> None:
    checked, check = [], prefixes.Prefixes._is_right

    def noted(self: prefixes.Prefixes, plan: prefixes.PrefixPlan) -> bool:
        checked.append(len(plan.source))
        return check(self, plan)

    monkeypatch.setattr(prefixes.Prefixes, "_is_right", noted)
    for length in (12, 9, 20, 24, 25, 40, 12):
        both_runs(llama, hidden(whole_of(llama, length), "zero"))
    assert checked == [12, 25]
    monkeypatch.setattr(prefixes.Prefixes, "_is_right", lambda *_: False)
    assert both_runs(llama, hidden(whole_of(llama, 60), "zero"))[0].counts.reused == 0
    assert known(llama)[prefixes.CHECKED] == prefixes.REFUSED


def test_a_cache_is_not_changed_by_runs(llama: Any) -> None:
    engine = Runner(llama, read, reuse=True)
    assert engine.prefixes is not None
    inputs = hidden(whole_of(llama), "zero")
    plan = engine.prefixes.plans(inputs)[0][0]
    prefix = engine.prefixes.prefix(plan)
    assert prefix is not None
    before = [(keys.clone(), values.clone()) for keys, values in prefix.layers]
    for batch in plan.batches:
        engine._run(batch._replace(prefix=prefix))
    for (keys, values), (old_keys, old_values) in zip(prefix.layers, before, strict=True):
        assert torch.equal(keys, old_keys)
        assert torch.equal(values, old_values)
    assert prefix.layers[0][0].shape == (1, 2, plan.length, 8)  # as many heads as keys have, not as queries


def test_what_is_no_text_is_run_whole() -> None:
    model = families.build("llama")
    engine = Runner(model, read, reuse=True)
    embedded = TensorInput({"inputs_embeds": torch.zeros(1, 5, 32)}, length=5)
    assert engine.prefixes is not None
    assert engine.prefixes.plans([embedded]) == ([], [embedded])


def test_how_much_is_shared() -> None:
    ids = np.arange(10, 18)
    plain, masked = TensorInput({"input_ids": ids}), TensorInput({"input_ids": ids, "attention_mask": np.ones(8, int)})
    for whole in (plain, masked):
        assert prefixes.shared(whole) == 8
        assert prefixes.shared(whole.deleted([5])) == 5
        assert prefixes.shared(whole.deleted([6, 7])) == 6
        assert prefixes.shared(whole.filled([4], 3)) == 4
        assert prefixes.shared(whole.filled([4], 14, attended=False)) == 4  # the same token, not attended to
        assert prefixes.shared(whole.exchanged([3, 6], None)) == 3
        assert prefixes.shared(whole.filled([6], 3).filled([2], 3)) == 2
    typed = TensorInput({"input_ids": ids, "token_type_ids": np.ones(8, int)}, whole=plain)
    assert prefixes.shared(typed) == 0
