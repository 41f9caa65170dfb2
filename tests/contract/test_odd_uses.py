"""Odd but real uses: threads, wrappers, autocast, foreign padding, in-place activations."""

import copy
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

import whyformer
from tests.helpers import families
from whyformer import Explainer
from whyformer.errors import BadInput, UnsupportedModel
from whyformer.tolerance import close


def test_threads_may_share_a_model() -> None:
    model = families.build("bert")
    inputs = [families.batch((7, 7), seed=s) for s in range(12)]
    expected = [whyformer.attribute(model, x, "smooth_grad", target=0, samples=2) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: whyformer.attribute(model, x, "smooth_grad", target=0, samples=2), inputs))
    assert all(close(a, b) for a, b in zip(found, expected, strict=True))


def test_padding_may_hold_any_token_and_be_called_special() -> None:
    model, inputs = families.build("bert"), families.batch()
    expected = whyformer.attribute(model, inputs, "attcat", target=1)
    padding = inputs["attention_mask"] == 0
    foreign = {**inputs, "input_ids": inputs["input_ids"].masked_fill(padding, 9)}
    torch.testing.assert_close(whyformer.attribute(model, foreign, "attcat", target=1), expected)
    called_special = {**inputs, "special_tokens_mask": padding.long()}
    torch.testing.assert_close(whyformer.attribute(model, called_special, "attcat", target=1), expected)


def test_one_padded_text_without_a_padding_token() -> None:
    model, inputs = families.build("gpt2"), families.alone(families.batch(), 0)
    wider = {name: nn.functional.pad(tensor, (0, 3)) for name, tensor in inputs.items()}
    expected = whyformer.attribute(model, inputs, "rollout")
    torch.testing.assert_close(whyformer.attribute(model, wider, "rollout")[:, :9], expected)


class Wrapper(nn.Module):
    """As PEFT wraps a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.config

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def forward(self, *args: object, **kwargs: object) -> object:
        return self.model(*args, **kwargs)


def test_a_wrapped_and_a_compiled_model_are_explained_as_the_model_itself() -> None:
    subject = Explainer.load("sentiment").subject
    pair = ("a fine film", "with a poor ending")
    expected = Explainer(subject.model, subject.tokenizer).explain(pair, target=1).scores
    for other in (Wrapper(subject.model), torch.compile(subject.model)):
        assert close(Explainer(other, subject.tokenizer).explain(pair, target=1).scores, expected, torch.float32)


@pytest.mark.parametrize("method", ["attcat", "transformer_attribution"])
def test_autocast_and_return_dict_do_not_matter(method: str) -> None:
    model = copy.deepcopy(families.build("bert", torch.float32))
    expected = whyformer.attribute(model, families.batch(), method, target=1)
    model.config.return_dict = False
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert close(whyformer.attribute(model, families.batch(), method, target=1), expected)


def test_a_class_against_itself_has_no_relevance() -> None:
    trace = whyformer.record(families.build("bert"), families.batch())
    assert not trace.relevance(trace.hidden[0], target=1, versus=1).any()


@pytest.mark.parametrize("method", ["lrp", "transformer_attribution"])
def test_half_precision_is_refused_for_relevance(method: str) -> None:
    with pytest.raises(whyformer.UnsupportedModel, match="float32"):
        whyformer.attribute(families.build("bert", torch.bfloat16), families.batch(), method)


def test_half_precision_attention_does_not_overflow() -> None:
    query = torch.full((1, 1, 3, 64), 40.0, dtype=torch.float16, requires_grad=True)
    context, attention = whyformer.recorder.attention.attend(query, query, query)
    assert torch.isfinite(context).all()
    assert attention.probabilities.dtype == torch.float16


class Head(nn.Module):
    def __init__(self, inner: nn.Module, in_place: bool) -> None:
        super().__init__()
        self.dense, self.act, self.inner = nn.Linear(32, 32), nn.SiLU(inplace=in_place), inner

    def forward(self, states: Tensor) -> Tensor:
        return self.inner(self.act(self.dense(states)))


def test_activations_in_place_change_nothing() -> None:
    scores = []
    for in_place in (False, True):
        model = copy.deepcopy(families.build("bert"))
        torch.manual_seed(0)
        model.classifier = Head(model.classifier, in_place).double()
        scores.append(whyformer.attribute(model, families.batch(), "lrp", target=1, book="z_plus"))
    torch.testing.assert_close(*scores)


def test_a_users_backward_hook_is_no_hindrance() -> None:
    model = copy.deepcopy(families.build("bert"))
    expected = whyformer.attribute(model, families.batch(), "transformer_attribution", target=1)
    model.bert.encoder.layer[1].register_full_backward_hook(lambda *_: None)
    torch.testing.assert_close(
        whyformer.attribute(model, families.batch(), "transformer_attribution", target=1), expected
    )


def test_the_loss_of_one_output_is_refused() -> None:
    model = copy.deepcopy(families.build("bert"))
    model.classifier = nn.Linear(32, 1).double()
    with pytest.raises(whyformer.BadOption, match="one output"):
        whyformer.attribute(model, families.batch(), "saliency", of="loss")


@pytest.mark.long
def test_a_run_is_forgotten_with_its_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a garbage collection: a GPU's memory would be full before there is one."""
    traces = []
    recorded = whyformer.recorder.recording.recorded_somehow  # type: ignore[attr-defined]

    def record(*args: Any, **kwargs: Any) -> whyformer.Trace:
        trace = recorded(*args, **kwargs)
        traces.append(weakref.ref(trace.logits))
        return trace

    monkeypatch.setattr(whyformer.recorder.recording, "recorded_somehow", record)
    gc.collect()
    gc.disable()
    try:
        for name in families.METHODS:
            whyformer.attribute(families.build("bert"), families.batch(), name, **families.OPTIONS.get(name, {}))
    finally:
        gc.enable()
    assert len(traces) >= len(families.METHODS)
    assert not any(trace() is not None for trace in traces)


def test_the_garbage_collector_is_given_back() -> None:
    model = families.build("bert")
    whyformer.attribute(model, families.batch(), "attcat")
    assert gc.isenabled()
    with pytest.raises(whyformer.BadOption):
        whyformer.attribute(model, families.batch(), "transformer_attribution", block=7)
    assert gc.isenabled()
    gc.disable()
    try:
        whyformer.attribute(model, families.batch(), "attcat")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_may_share_a_trace() -> None:
    trace = whyformer.record(families.build("bert"), families.batch())
    books = ("z_plus", "attn", "conservative", "alpha_beta") * 4
    expected = {book: trace.relevance(trace.attention[0], book, 1) for book in books}
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda book: trace.relevance(trace.attention[0], book, 1), books))
    assert all(close(r, expected[book]) for r, book in zip(found, books, strict=True))


def test_a_wrapped_model_keeps_the_names_of_its_classes() -> None:
    subject = Explainer.load("sentiment").subject
    wrapped = Explainer(nn.DataParallel(subject.model), subject.tokenizer)
    assert wrapped.subject.labels == ("NEGATIVE", "POSITIVE")
    assert wrapped.explain("a gorgeous film", check=0).prediction.label == "POSITIVE"


def test_a_model_that_writes_a_text_from_another_is_refused_in_words() -> None:
    tokenizer = Explainer.load("sentiment").subject.tokenizer
    sizes = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2}
    config: Any = T5Config(vocab_size=len(tokenizer), **sizes)
    config.decoder_start_token_id = 0
    model = T5ForConditionalGeneration(config).eval()
    with pytest.raises(UnsupportedModel, match=r"T5For.* cannot be explained: it needs decoder_input_ids"):
        Explainer(model, tokenizer).explain("a gorgeous film")
    inputs = {name: torch.ones(1, 3, dtype=torch.long) for name in ("input_ids", "attention_mask")}
    with pytest.raises(UnsupportedModel, match="write a text from another"):
        whyformer.attribute(model, inputs, target=1)


@pytest.mark.parametrize("name", ["some/where", Path("some/where")])
def test_the_name_of_a_tokenizer_is_none(name: str | Path) -> None:
    with pytest.raises(BadInput, match="found the name 'some/where': load it with"):
        Explainer(Explainer.load("sentiment").subject.model, name)
