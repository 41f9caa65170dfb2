"""Relevance on unmodified models: conserved, closed, shared, and the model given back."""

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction
from whyformer.tolerance import close


@pytest.mark.parametrize("family", families.ALL)
def test_relevance_is_conserved(family: str) -> None:
    trace = whyformer.record(families.build(family), families.batch())
    for target in range(3):
        sums = trace.relevance(trace.hidden[0], "z_plus", target).flatten(1).sum(1)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", families.ALL)
def test_relevance_depends_neither_on_the_batch_nor_on_padding(family: str) -> None:
    model, inputs = families.build(family), families.batch()
    allowed = 1e-4 if family == "bloom" else 1e-6  # Bloom's positions are in float32
    together = whyformer.record(model, inputs)
    wider = whyformer.record(model, families.batch(extra=2))
    found = together.relevance((*together.attention, together.hidden[0]), "z_plus", 1)
    padded = wider.relevance((*wider.attention, wider.hidden[0]), "z_plus", 1)
    for row, length in enumerate((9, 5, 7)):
        alone = whyformer.record(model, families.alone(inputs, row))
        expected = alone.relevance((*alone.attention, alone.hidden[0]), "z_plus", 1)
        for batched, more, single in zip(found, padded, expected, strict=True):
            part = (row, slice(None), slice(length), slice(length)) if single.dim() == 4 else (row, slice(length))
            assert (batched[part] - single[0]).abs().max() <= allowed * single.abs().max()
            assert (more[part] - single[0]).abs().max() <= allowed * single.abs().max()


class Layer(nn.Module):
    """Attention, then a function that no rule covers; the recorder does not see it either."""

    def __init__(self, function: nn.Module, in_place: bool = False) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.function = function
        self.in_place = in_place

    def forward(self, states: Tensor) -> Tensor:
        q, k, v = (t.unsqueeze(1) for t in self.qkv(states).chunk(3, -1))
        context = nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1)
        if self.in_place:
            context += states
            return self.function(context)
        return self.function(context + states)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient


class Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Square.apply(x)


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


class Model(nn.Module):
    def __init__(self, function: nn.Module, in_place: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 8)
        self.layers = nn.ModuleList([Layer(nn.Identity(), in_place), Layer(function, in_place)])
        self.in_place = in_place
        self.head = nn.Linear(8, 2)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: Tensor) -> "Output":
        states = self.embedding(input_ids)
        if self.in_place:
            states += 0.5  # on what the recorder made a leaf
        else:
            states = states + 0.5
        for layer in self.layers:
            states = layer(states)
        return Output(self.head(states[:, 0]))


class Output:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


@pytest.mark.parametrize(("function", "name"), [(Sine(), "Sin"), (Squared(), "Square")])
def test_the_world_is_closed(function: nn.Module, name: str) -> None:
    trace = whyformer.record(Model(function).double(), {"input_ids": torch.arange(5)[None]})
    with pytest.raises(whyformer.UncoveredOperation, match=name):
        trace.relevance(trace.hidden[0])
    with pytest.raises(whyformer.UncoveredOperation, match=name):
        trace.relevance(trace.attention)


def test_what_lies_below_the_asked_tensors_needs_no_rule() -> None:
    model = Model(nn.Identity()).double()
    model.layers[0].function = Sine()
    trace = whyformer.record(model, {"input_ids": torch.arange(5)[None]})
    assert trace.relevance(trace.attention[1]).abs().sum() > 0
    with pytest.raises(whyformer.UncoveredOperation):
        trace.relevance(trace.attention)


def test_additions_in_place_change_nothing() -> None:
    traces = [
        whyformer.record(Model(nn.Identity(), in_place).double(), {"input_ids": torch.arange(5)[None]})
        for in_place in (False, True)
    ]
    plain, changed = ([*t.relevance((*t.attention, t.hidden[0])), *t.gradient(t.hidden)] for t in traces)
    for expected, found in zip(plain, changed, strict=True):
        torch.testing.assert_close(found, expected)


def test_methods_share_one_forward_and_a_backward_per_book(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    model = families.build("bert")
    handle = model.register_forward_hook(lambda *_: counts.update(["forward"]))
    gradient, relevance = whyformer.Trace.gradient, whyformer.Trace.relevance
    monkeypatch.setattr(
        whyformer.Trace, "gradient", lambda s, *a, **k: counts.update(["gradient"]) or gradient(s, *a, **k)
    )
    monkeypatch.setattr(
        whyformer.Trace,
        "relevance",
        lambda s, of, book, *a, **k: counts.update([book.name]) or relevance(s, of, book, *a, **k),
    )
    prediction = Prediction(model, batch_of(model, families.batch()), 1, relevance=True)
    try:
        for name, method in whyformer.list_methods().items():
            if name in families.METHODS and method.passes == "one":
                method(prediction, **families.OPTIONS.get(name, {}))
    finally:
        handle.remove()
    counts.subtract(["forward"])  # of legrad, which looks at what the head does
    counts.subtract(["conservative"])  # of layer_lrp, which asks at the lower layers and no further down
    counts.subtract(["alpha_beta"])  # of partial_lrp, which goes through the last layer alone
    assert counts == {"forward": 1, "gradient": 1, "z_plus": 2, "alpha_beta": 1, "conservative": 1, "attn": 1}


def test_gradient_methods_share_a_backward_per_book(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    model = families.build("bert")
    handle = model.register_forward_hook(lambda *_: counts.update(["forward"]))
    carried = whyformer.Trace.carried
    monkeypatch.setattr(
        whyformer.Trace,
        "carried",
        lambda s, of, book, *a: counts.update([book.name]) or carried(s, of, book, *a),
    )
    prediction = Prediction(model, batch_of(model, families.batch()), 1)
    try:
        for book in ("conservative", "attn"):
            for name in ("cam", "cat", "attcat", "grad_cam", "gae", "grads", "att_grads"):
                whyformer.list_methods()[name](prediction, book=book)
    finally:
        handle.remove()
    assert counts == {"forward": 3, "conservative": 1, "attn": 1}  # again under each book, which nobody had asked for


def test_a_trace_without_relevance_is_recorded_anew_when_it_is_needed() -> None:
    model, inputs = families.build("bert"), families.batch()
    prediction = Prediction(model, batch_of(model, inputs), 1)
    cat = whyformer.list_methods()["cat"](prediction).total
    found = whyformer.list_methods()["transformer_attribution"](prediction).total
    torch.testing.assert_close(found, whyformer.attribute(model, inputs, "transformer_attribution", target=1))
    torch.testing.assert_close(cat, whyformer.attribute(model, inputs, "cat", target=1))
    trace = whyformer.record(model, inputs, relevance=False)
    with pytest.raises(whyformer.BadOption, match="relevance=False"):
        trace.relevance(trace.attention)


def test_conservation_is_reported() -> None:
    e = whyformer.Explainer.load("sentiment").explain("a gorgeous, witty film", "transformer_attribution")
    assert e.conservation is not None
    assert e.conservation["expected"] == 1
    assert abs(e.conservation["sum"] - 1) < 1e-3  # float32
    assert whyformer.Explainer.load("sentiment").explain("a gorgeous film", "attcat").conservation is None


def test_ablations() -> None:
    model, inputs = families.build("bert"), families.batch()
    whole = whyformer.attribute(model, inputs, "transformer_attribution", target=1)
    trace = whyformer.record(model, inputs)
    relevances, gradients = trace.relevance(trace.attention, "z_plus", 1), trace.gradient(trace.attention, 1)
    for options, weights in (({}, gradients), ({"weight": "attention"}, trace.attention), ({"weight": "none"}, None)):
        rows = torch.zeros(3, 1, 9, dtype=torch.float64)
        rows[:, 0, 0] = 1
        for layer in (1, 0):
            weighted = relevances[layer] if weights is None else weights[layer] * relevances[layer]
            rows = rows + rows @ weighted.clamp(min=0).mean(1)
        found = whyformer.attribute(model, inputs, "transformer_attribution", target=1, **options)
        torch.testing.assert_close(found, rows[:, 0].detach(), rtol=1e-9, atol=1e-12)
    last = whyformer.attribute(model, inputs, "transformer_attribution", target=1, block=1)
    torch.testing.assert_close(last[:, 1:], (gradients[1] * relevances[1]).clamp(min=0).mean(1)[:, 0, 1:])
    assert not torch.allclose(last, whole)
    with pytest.raises(whyformer.BadOption):
        whyformer.attribute(model, inputs, "transformer_attribution", block=1, first_layer=1)
    with pytest.raises(whyformer.BadOption, match="rule book"):
        trace.relevance(trace.attention, "z_minus")


def test_partial_lrp_goes_through_the_last_layer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no rule covers below that layer does not matter, and the scores are those of a pass through all layers."""
    model = copy.deepcopy(families.build("bert"))
    lower = model.bert.encoder.layer[0]
    plain = lower.forward

    def accumulating(states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        found: torch.Tensor = plain(states, *args, **kwargs)
        return found + 0.01 * found.cumsum(-1)

    prediction = Prediction(model, batch_of(model, families.batch()), relevance=True)
    whole = prediction.relevances("alpha_beta", whole=False)
    last = prediction.last_relevances("alpha_beta")
    assert close(last.attention[0], whole.attention[-1])
    assert len(last.attention) == 1
    above = prediction.traced.relevance((prediction.traced.hidden[1],), "alpha_beta", *prediction.asked)
    assert close(last.state, above[0])
    assert close(last.absorbed, whole.absorbed)  # of two layers, what is above the first one's output
    monkeypatch.setattr(lower, "forward", accumulating)
    with pytest.raises(whyformer.UncoveredOperation, match="Cumsum"):
        whyformer.attribute(model, families.batch(), "transformer_attribution")
    assert whyformer.attribute(model, families.batch(), "partial_lrp").isfinite().all()
