"""layer_lrp once more: a BERT written out with constants where the books put them, and loops over layers and units."""

import math
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer.errors import BadOption
from whyformer.inputs.batch import batch_of
from whyformer.methods.lrp import lower_layers
from whyformer.methods.method import Scores
from whyformer.prediction import Prediction
from whyformer.tolerance import close

LAYERS, TARGET = 5, 1
LENGTHS = (4, 9, 7)


@cache
def bert() -> hf.BertForSequenceClassification:
    """Five layers, with biases and norms that are not 0 and 1."""
    config = families.CONFIGS["bert"]()
    config.update({"num_hidden_layers": LAYERS, "num_labels": 3})
    torch.manual_seed(3)
    model = hf.BertForSequenceClassification(config).double().eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, dtype=torch.float64)
    return model


def explained(*, versus: int | None = None, **options: Any) -> Scores:
    prediction = Prediction(bert(), batch_of(bert(), families.batch(LENGTHS)), TARGET, versus, relevance=True)
    return whyformer.list_methods()["layer_lrp"](prediction, **options)


class ByHand:
    """One text, without padding: the states that enter each layer, and what arrives there under a book."""

    def __init__(self, book: str, ids: Tensor):
        model = bert()
        self.book, self.states = book, []
        x = model.bert.embeddings(ids[None])[0].detach().requires_grad_()
        for layer in model.bert.encoder.layer:
            self.states.append(x)
            x = self.layer(layer, x)
        pooled = x[0] @ model.bert.pooler.dense.weight.T + model.bert.pooler.dense.bias
        logits = model.classifier(self.held(torch.tanh, pooled))
        self.logits = logits.detach()
        self.gradients = {
            target: torch.autograd.grad(logits[target], self.states, retain_graph=True) for target in range(3)
        }

    def layer(self, layer: Any, x: Tensor) -> Tensor:
        attention, heads = layer.attention, layer.attention.self.num_attention_heads
        q, k, v = (
            part(x).view(len(x), heads, -1).transpose(0, 1)
            for part in (attention.self.query, attention.self.key, attention.self.value)
        )
        if self.book == "attn":
            q, k = halved(q), halved(k)
        maps = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), -1)
        gathered = maps.detach() @ v if self.book == "conservative" else halved(maps) @ halved(v)
        y = attention.output.dense(gathered.transpose(0, 1).reshape(x.shape))
        y = self.norm(attention.output.LayerNorm, x + y)
        return self.norm(layer.output.LayerNorm, y + layer.output.dense(self.held(F.gelu, layer.intermediate.dense(y))))

    def norm(self, module: nn.LayerNorm, x: Tensor) -> Tensor:
        below = (x.var(-1, correction=0, keepdim=True) + module.eps).sqrt().detach()
        return (x - x.mean(-1, keepdim=True)) / below * module.weight + module.bias

    def held(self, function: Any, x: Tensor) -> Tensor:
        """A function whose share of its input is a constant."""
        return x * (function(x) / (x + 1e-10)).detach()

    def relevance(self, layer: int, unit: int, target: int) -> float:
        state, gradient = self.states[layer].detach(), self.gradients[target][layer]
        return sum(float(state[unit, d] * gradient[unit, d]) for d in range(state.shape[1]))


def halved(x: Tensor) -> Tensor:
    return x / 2 + (x / 2).detach()


@cache
def by_hand(book: str) -> list[ByHand]:
    tokens = families.batch(LENGTHS)["input_ids"]
    return [ByHand(book, ids[:length]) for ids, length in zip(tokens, LENGTHS, strict=True)]


def derived(book: str, count: int, versus: int | None = None) -> Tensor:
    """[layers, batch, units]: each layer's share of the mean; padding has none."""
    values = torch.zeros(count, len(LENGTHS), max(LENGTHS), dtype=torch.float64)
    for row, (hand, length) in enumerate(zip(by_hand(book), LENGTHS, strict=True)):
        for layer in range(count):
            for unit in range(length):
                against = 0.0 if versus is None else hand.relevance(layer, unit, versus)
                values[layer, row, unit] = (hand.relevance(layer, unit, TARGET) - against) / count
    return values


@pytest.mark.parametrize(("depth", "count"), [(0.01, 1), (0.2, 1), (0.4, 2), (0.5, 3), (0.69, 3), (0.7, 4), (1.0, 5)])
@pytest.mark.parametrize("book", ["conservative", "attn"])
def test_the_mean_over_the_lower_layers(book: str, depth: float, count: int) -> None:
    found = explained(book=book, depth=depth)
    assert found.layers is not None
    assert close(found.layers, derived(book, count))
    assert close(found.total, derived(book, count).sum(0))


def test_by_default_it_is_the_lower_half_and_the_book_of_constants() -> None:
    assert close(explained().values, derived("conservative", 3))


def test_the_difference_of_two_classes() -> None:
    assert close(explained(versus=2).values, derived("conservative", 3, versus=2))


def test_what_arrived_is_the_mean_of_the_layers_sums() -> None:
    found, logits = explained(), torch.stack([hand.logits[TARGET] for hand in by_hand("conservative")])
    report = found.diagnostics["conservation"]
    assert close(report["sum"], derived("conservative", 3).sum((0, 2)))
    assert close(report["expected"], logits)
    assert close(report["sum"] + report["absorbed"], logits)


def test_without_biases_every_layer_adds_up_to_the_logit() -> None:
    """And so does the mean, at any depth."""
    model = families.build("llama")
    assert not any("bias" in name for name, _ in model.named_parameters())
    prediction = Prediction(model, batch_of(model, families.batch()), TARGET, relevance=True)
    scores = whyformer.list_methods()["layer_lrp"](prediction, depth=1.0)
    logits = prediction.trace.logits[:, TARGET].detach()
    assert scores.layers is not None
    for total in (scores.total, *(len(scores.layers) * layer for layer in scores.layers)):
        assert (total.sum(-1) - logits).abs().max() <= 1e-5  # its norms compute in float32


@pytest.mark.parametrize(
    ("layers", "depth", "count"), [(1, 0.5, 1), (2, 0.5, 1), (6, 0.5, 3), (7, 0.5, 4), (12, 0.5, 6), (30, 0.1, 3)]
)
def test_how_many_layers_are_the_lower_ones(layers: int, depth: float, count: int) -> None:
    assert lower_layers(layers, depth) == count


@pytest.mark.parametrize("depth", [0.0, -0.5, 1.01, math.nan, math.inf])
def test_a_depth_that_is_no_share_is_refused(depth: float) -> None:
    with pytest.raises(BadOption, match=rf"depth={depth}: the share of the layers|option depth takes a number"):
        explained(depth=depth)


def test_a_book_that_carries_no_gradient_is_refused() -> None:
    with pytest.raises(BadOption, match=r"option book takes conservative \| attn; found 'z_plus'"):
        explained(book="z_plus")


def test_one_forward_and_one_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []
    back = torch.autograd.grad

    def counted(*arguments: Any, **options: Any) -> Any:
        passes.append("backward")
        return back(*arguments, **options)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    handle = bert().register_forward_hook(lambda *_: passes.append("forward"))
    try:
        prediction = Prediction(bert(), batch_of(bert(), families.batch(LENGTHS)), TARGET, relevance=True)
        _ = prediction.padding  # asks what the head reads
        passes.remove("backward")
        whyformer.list_methods()["layer_lrp"](prediction)
    finally:
        handle.remove()
    assert passes == ["forward", "backward"]
