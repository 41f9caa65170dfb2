"""Balanced gradients once more: a ViT written out, with constants where LibraGrad puts them, and loops over units."""

from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from tests.helpers.golden import assert_close, inputs, model
from whyformer.errors import BadOption, UnsupportedModel
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction
from whyformer.recorder.lrp import rule_sets
from whyformer.testing import check_method

TARGET = 2
BY_BOOK = ("cam", "cat", "attcat", "grad_cam", "gae", "grads", "att_grads")


class ByHand:
    """One image through the ViT of the goldens, step by step.

    A book of None leaves torch's derivatives. Otherwise norms' denominators and the gates of activations are constants;
    `conservative` holds the attention probabilities constant, and `attn` halves what products of two send to either.
    Either way each map is used through a variable, whose gradient is noted.
    """

    def __init__(self, book: str | None):
        self.book, self.vit = book, model("vit_cls", "sdpa")
        self.h: list[Tensor] = []
        self.A: list[Tensor] = []
        self.biases: list[Tensor] = []  # [units, width] each, or [1, width] in the head
        config, base = self.vit.config, self.vit.vit
        self.heads, self.eps = config.num_attention_heads, config.layer_norm_eps
        x = base.embeddings(inputs("vit_cls", "x0")["pixel_values"])[0].detach().requires_grad_()
        for layer in _layers(base):
            self.h.append(x)
            x = self.layer(layer, x)
        self.h.append(x)
        last = self.norm(base.layernorm, x)
        logits = self.linear(self.vit.classifier, last[:1])[0]
        self.y = logits[TARGET]
        variables = [*self.h, *self.A, *self.biases]
        gradients = torch.autograd.grad(self.y, variables, allow_unused=True)
        filled = [torch.zeros_like(v) if g is None else g for v, g in zip(variables, gradients, strict=True)]
        self.dh, rest = filled[: len(self.h)], filled[len(self.h) :]
        self.G, self.db = rest[: len(self.A)], rest[len(self.A) :]
        self.h, self.A = [h.detach() for h in self.h], [a.detach() for a in self.A]
        self.y, self.biases = self.y.detach(), [b.detach() for b in self.biases]
        self.N, self.L = len(x), len(self.A)

    def layer(self, layer: nn.Module, x: Tensor) -> Tensor:
        names = dict(layer.named_modules())
        q, k, v = (self.linear(_one(names, part), self.norm_once(layer, x)) for part in ("q", "k", "v"))
        width = q.shape[-1] // self.heads
        q, k, v = (t.view(-1, self.heads, width).transpose(0, 1) for t in (q, k, v))
        scores = self.product(q, k.mT) / width**0.5
        context = self.attended(scores.softmax(-1), v).transpose(0, 1).flatten(1)
        x = x + self.linear(_one(names, "o"), context)
        inner = self.linear(_one(names, "up"), self.norm(layer.layernorm_after, x))
        return x + self.linear(_one(names, "down"), self.activation(inner))

    def norm_once(self, layer: nn.Module, x: Tensor) -> Tensor:
        if getattr(self, "_normed", (None,))[0] is not x:
            self._normed = x, self.norm(layer.layernorm_before, x)
        return self._normed[1]

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return _halved(a) @ _halved(b) if self.book == "attn" else a @ b

    def attended(self, maps: Tensor, values: Tensor) -> Tensor:
        if self.book == "conservative":
            maps = maps.detach()
        variable = maps.detach().requires_grad_()  # gets what the product sends
        self.A.append(variable)
        if self.book == "attn":
            return variable @ _halved(values) + _halved(maps) @ values.detach() - maps.detach() @ values.detach()
        return variable @ values + maps @ values.detach() - maps.detach() @ values.detach()

    def linear(self, module: Any, x: Tensor) -> Tensor:
        return F.linear(x, module.weight.detach()) + self.bias(module.bias, len(x))

    def bias(self, bias: Tensor, rows: int) -> Tensor:
        spread = bias.detach().expand(rows, -1).clone().requires_grad_()
        self.biases.append(spread)
        return spread

    def norm(self, module: Any, x: Tensor) -> Tensor:
        below = (x.var(-1, correction=0, keepdim=True) + self.eps).sqrt()
        below = below if self.book is None else below.detach()
        centred = x - x.mean(-1, keepdim=True)
        return centred / below * module.weight.detach() + self.bias(module.bias, len(x))

    def activation(self, x: Tensor) -> Tensor:
        if self.book is None:
            return F.gelu(x)
        return F.gelu(x).detach() + (x - x.detach()) * (F.gelu(x) / (x + 1e-10)).detach()

    def cat(self, layer: int) -> list[float]:
        width = self.h[0].shape[1]
        return [sum(float(self.h[layer][i, d] * self.dh[layer][i, d]) for d in range(width)) for i in range(self.N)]

    def received(self, layer: int, unit: int) -> float:
        total = sum(float(self.A[layer][h, q, unit]) for h in range(self.heads) for q in range(self.N))
        return total / (self.heads * self.N)

    def bias_terms(self) -> list[float]:
        terms = [0.0] * self.N
        for bias, gradient in zip(self.biases, self.db, strict=True):
            for row, product in enumerate((bias * gradient).sum(-1).tolist()):
                terms[row] += product  # the only row of the head's is [CLS], which it reads
        return terms


def _layers(base: nn.Module) -> nn.ModuleList:
    return next(m for m in base.modules() if isinstance(m, nn.ModuleList))


def _one(names: dict[str, nn.Module], part: str) -> nn.Module:
    """The linear map of that part, by the end of its name in any version of transformers."""
    ends = {
        "q": ("query", "q_proj"),
        "k": ("key", "k_proj"),
        "v": ("value", "v_proj"),
        "o": ("attention.output.dense", "o_proj", "out_proj"),
        "up": ("intermediate.dense", "fc1"),
        "down": ("output.dense", "fc2"),
    }[part]
    fitting = [m for n, m in names.items() if n.endswith(ends) and isinstance(m, nn.Linear)]
    return next(m for m in fitting if part != "down" or m.in_features > m.out_features)


def _halved(x: Tensor) -> Tensor:
    return x / 2 + (x / 2).detach()


@cache
def by_hand(book: str | None) -> ByHand:
    return ByHand(book)


def attribute(method: str, **options: Any) -> Tensor:
    return whyformer.attribute(model("vit_cls", "sdpa"), inputs("vit_cls", "x0"), method, target=TARGET, **options)[0]


def scores(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("book", [None, "conservative", "attn"])
def test_states_times_balanced_gradients(book: str | None) -> None:
    hand = by_hand(book)
    cats = [hand.cat(layer) for layer in range(hand.L + 1)]
    assert_close(attribute("cam", book=book, layer=1), scores(cats[1]), 1e-10)
    total = [sum(cats[layer][i] for layer in range(hand.L)) for i in range(hand.N)]
    assert_close(attribute("cat", book=book, states="inputs"), scores(total), 1e-10)
    weighted = [sum(cats[n + 1][i] * hand.received(n, i) for n in range(hand.L)) for i in range(hand.N)]
    assert_close(attribute("attcat", book=book), scores(weighted), 1e-10)


@pytest.mark.parametrize("book", ["conservative", "attn"])
def test_relevance_of_the_lower_layers_of_an_image_model(book: str) -> None:
    hand = by_hand(book)
    for depth, count in ((0.5, (hand.L + 1) // 2), (1.0, hand.L)):
        cats = [hand.cat(layer) for layer in range(count)]
        average = [sum(cat[i] for cat in cats) / count for i in range(hand.N)]
        assert_close(attribute("layer_lrp", book=book, depth=depth), scores(average), 1e-10)


@pytest.mark.parametrize("book", [None, "conservative", "attn"])
def test_attention_times_balanced_gradients(book: str | None) -> None:
    hand = by_hand(book)
    units, heads = range(hand.N), range(hand.heads)
    last = [sum(float(hand.G[-1][h, 0, i]) for h in heads) / hand.heads for i in units]
    assert_close(attribute("grads", book=book), scores(last), 1e-10)
    sam = [0.0] * hand.N
    rows = [float(i == 0) for i in units]
    for maps, gradients in zip(reversed(hand.A), reversed(hand.G), strict=True):
        positive = [
            [sum(max(0.0, float(maps[h, q, k] * gradients[h, q, k])) for h in heads) / hand.heads for k in units]
            for q in units
        ]
        rows = [rows[k] + sum(rows[q] * positive[q][k] for q in units) for k in units]
        for k in units:
            sam[k] += sum(positive[q][k] for q in units) / hand.L
    assert_close(attribute("gae", book=book), scores(rows), 1e-10)
    assert_close(attribute("att_grads", book=book), scores(sam), 1e-10)
    weights = [sum(float(hand.G[-1][h, 0, k]) for k in units[1:]) / (hand.N - 1) for h in heads]
    row = [max(0.0, sum(weights[h] * float(hand.A[-1][h, 0, k]) for h in heads) / hand.heads) for k in units[1:]]
    stretched = [0.0, *((v - min(row)) / (max(row) - min(row)) if max(row) > min(row) else 0.0 for v in row)]
    assert_close(attribute("grad_cam", book=book), scores(stretched), 1e-10)


@pytest.mark.parametrize("book", [None, "conservative", "attn"])
def test_full_grad(book: str | None) -> None:
    hand = by_hand(book)
    cats = [hand.cat(layer) for layer in range(hand.L)]
    without = [sum(cat[i] for cat in cats) for i in range(hand.N)]
    assert_close(attribute("full_grad", book=book, biases=False), scores(without), 1e-10)
    whole = [one + bias for one, bias in zip(without, hand.bias_terms(), strict=True)]
    assert_close(attribute("full_grad", book=book), scores(whole), 1e-10)
    complete = sum(cats[0]) + sum(hand.bias_terms())
    is_logit = abs(complete - float(hand.y)) <= 1e-10 * abs(float(hand.y))
    assert is_logit == (book == "conservative")  # what LibraGrad calls FG-completeness


def test_integrated_gradients_under_a_book() -> None:
    """A balanced gradient of the embedding output itself, averaged over the points of the path."""
    given = model("vit_cls", "sdpa"), inputs("vit_cls", "x0")
    options = {"steps": 3, "baseline": "zero", "at": "embedding_output"}
    found = attribute("integrated_gradients", book="conservative", **options)
    end = whyformer.record(*given).hidden[0].detach()
    free = torch.ones(end.shape[1], 1, dtype=end.dtype)
    free[0] = 0  # [CLS] stays
    nodes = [0.5 - 0.5 * 0.6**0.5, 0.5, 0.5 + 0.5 * 0.6**0.5]
    total = torch.zeros_like(end)
    for node, weight in zip(nodes, (5 / 18, 8 / 18, 5 / 18), strict=True):
        states = end * (1 - free) + end * free * node
        trace = whyformer.record(*given)
        edited = whyformer.recorder.Edit("embedding_output", lambda _, states=states: states)
        trace = whyformer.record(*given, edit=edited, first_layer=trace.layers.calls[0])
        relevance = trace.relevance(trace.hidden[0], "conservative", TARGET)
        total += weight * (relevance / states).detach()
    assert_close(found, (total * end * free).sum(-1)[0], 1e-6)  # captum's weights are float32
    assert not torch.allclose(found, attribute("integrated_gradients", **options))


def test_legrad() -> None:
    vit, given = model("vit_cls", "sdpa"), inputs("vit_cls", "x0")
    trace = whyformer.record(vit, given)
    units, layers = trace.hidden[0].shape[1], len(trace.attention)
    expected = [0.0] * units
    for attention, states in zip(trace.attention, trace.hidden[1:], strict=True):
        logit = vit.classifier(vit.vit.layernorm(states)[:, 0])[0, TARGET]
        (gradient,) = torch.autograd.grad(logit, attention, retain_graph=True)
        for head in gradient[0]:
            for query in head:
                for unit, value in enumerate(query.tolist()):
                    expected[unit] += max(0.0, value) / (attention.shape[1] * units * layers)
    assert_close(attribute("legrad"), scores(expected), 1e-10)


def test_legrad_reads_as_the_head_does() -> None:
    """Through a pooler, at the last token, and as a mean."""
    windows = 0
    for family, head in {
        "bert": lambda m, h: m.classifier(m.bert.pooler(h)),
        "gpt2": lambda m, h: m.score(m.transformer.ln_f(h))[:, -1],
        "modernbert_mean": lambda m, h: m.classifier(m.head(m.model.final_norm(h).mean(1))),
    }.items():
        stock = families.build(family, torch.float64)
        given = families.alone(families.batch(), 0)
        trace = whyformer.record(stock, given)
        total = torch.zeros(())
        for attention, states in zip(trace.attention, trace.hidden[1:], strict=True):
            (gradient,) = torch.autograd.grad(head(stock, states)[0, TARGET], attention, retain_graph=True)
            seen = (attention != 0).to(gradient)  # not what a window leaves out
            windows += int(((attention == 0) & (gradient > 0)).sum())
            total = total + (gradient.clamp(min=0) * seen)[0].mean((0, 1)) / len(trace.attention)
        assert_close(whyformer.attribute(stock, given, "legrad", target=TARGET)[0], total, 1e-10)
    assert windows


class Scaled(nn.Module):
    """A classifier whose logits are scaled by something of each run's own."""

    def __init__(self, inner: nn.Module, factors: list[float]) -> None:
        super().__init__()
        self.inner, self.config, self.factors = inner, inner.config, factors

    def get_input_embeddings(self) -> nn.Module:
        return self.inner.get_input_embeddings()  # type: ignore[no-any-return,operator]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        output = self.inner(input_ids=input_ids, attention_mask=attention_mask)
        output.logits = output.logits * self.factors.pop()
        return output


def test_legrad_follows_what_comes_after_the_head() -> None:
    stock = families.build("bert", torch.float64)
    given = families.batch()
    found = whyformer.attribute(Scaled(stock, [2.0] * 2), given, "legrad", target=TARGET)
    assert_close(found, 2 * whyformer.attribute(stock, given, "legrad", target=TARGET), 1e-10)
    with pytest.raises(UnsupportedModel, match="Scaled does after its last layer is not the same in another run"):
        whyformer.attribute(Scaled(stock, [2.0, 3.0]), given, "legrad", target=TARGET)


@pytest.mark.parametrize("method", BY_BOOK)
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_the_promises_hold_under_a_book(method: str, family: str) -> None:
    stock = families.build(family, torch.float64)
    assert not check_method(whyformer.list_methods()[method], stock, families.batch(), book="conservative")


def test_a_book_that_carries_relevance_is_refused_by_name() -> None:
    stock = families.build("bert")
    prediction = Prediction(stock, batch_of(stock, families.batch()), 1)
    with pytest.raises(BadOption, match="z_plus carries relevance, not a gradient; conservative, attn carry one"):
        prediction.gradients("z_plus")
    with pytest.raises(BadOption, match=r"option book takes conservative \| attn \| none; found 'z_plus'"):
        whyformer.attribute(stock, families.batch(), "gae", book="z_plus")


def test_gradients_of_a_book_are_kept_with_it() -> None:
    stock = families.build("bert")
    prediction = Prediction(stock, batch_of(stock, families.batch()), 1)
    assert prediction.gradients("attn").hidden[0] is prediction.gradients("attn").hidden[0]
    gamma = rule_sets.with_gamma(rule_sets.ATTN, 0.25)
    again = rule_sets.with_gamma(rule_sets.ATTN, 0.25)
    assert prediction.gradients(gamma).hidden[0] is prediction.gradients(again).hidden[0]
    assert prediction.gradients(gamma).hidden[0] is not prediction.gradients("attn").hidden[0]


def test_a_bias_of_no_unit_is_refused() -> None:
    from whyformer.methods.gradient import _at_units

    stock = families.build("bert")
    prediction = Prediction(stock, batch_of(stock, families.batch()), 1, relevance=True)
    site = prediction.traced.sites[0]
    batch, units = prediction.real.shape
    with pytest.raises(UnsupportedModel, match=r"which are not those of .* units: use biases=False"):
        _at_units(prediction, site, torch.zeros(batch, 2, 2 * units))
    heads = torch.arange(batch * units * 2, dtype=torch.float32).reshape(batch, units, 2)
    assert torch.equal(_at_units(prediction, site, heads), heads[..., 0] + heads[..., 1])
    assert torch.equal(_at_units(prediction, site, heads.mT), heads[..., 0] + heads[..., 1])
    turned = torch.arange(batch * units, dtype=torch.float32).reshape(units, batch)
    assert torch.equal(_at_units(prediction, site, turned), turned.T)
    flat = torch.arange(batch * units, dtype=torch.float32)
    assert torch.equal(_at_units(prediction, site, flat), flat.view(batch, units))
    of_head = torch.ones(batch)
    assert torch.equal(_at_units(prediction, site, of_head), prediction.reader)
