"""As many texts as tokens: which dimension is which is never taken from sizes that are equal by chance."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

import whyformer
from tests.helpers import families, zoo
from whyformer.recorder.lrp.sites import Site


class Turned(nn.Module):
    """A layer that takes and gives [units, batch, width]."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.inner = layer

    def forward(self, states: Tensor, *args: Any) -> Tensor:
        output = self.inner(states.transpose(0, 1), *args)
        return (output[0] if isinstance(output, tuple) else output).transpose(0, 1)


class TurnedEncoder(nn.Module):
    """Layers in the layout [units, batch, width]."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.layer = nn.ModuleList(Turned(layer) for layer in encoder.layer)

    def forward(self, states: Tensor, attention_mask: Tensor | None = None, **_: Any) -> Any:
        states = states.transpose(0, 1)
        for layer in self.layer:
            states = layer(states, attention_mask)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states.transpose(0, 1))


class Headed(nn.Module):
    """BERT with a head that reads the mean of all tokens, or the first one."""

    def __init__(self, model: Any, read: Callable[[Tensor], Tensor]):
        super().__init__()
        self.inner, self.read, self.config = model, read, model.config

    def get_input_embeddings(self) -> nn.Module:
        return self.inner.get_input_embeddings()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SimpleNamespace:
        states = self.inner.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SimpleNamespace(logits=self.inner.classifier(self.read(states)))


HEADS = {"mean": lambda states: states.mean(1), "first": lambda states: states[:, 0], "last": lambda s: s[:, -1]}


@pytest.mark.parametrize("lengths", [(5,) * 5, (8,) * 8, (7, 7, 7), (6,) * 3, (4,) * 5, (9,)])
@pytest.mark.parametrize("head", HEADS)
def test_layers_with_the_units_first_are_refused_whatever_the_batch(head: str, lengths: tuple[int, ...]) -> None:
    plain = Headed(families.build("bert"), HEADS[head])
    turned = copy.deepcopy(plain)
    turned.inner.bert.encoder = TurnedEncoder(turned.inner.bert.encoder)
    inputs = families.batch(lengths)
    for method in ("attcat", "cat", "saliency", "smooth_grad", "lrp", "transformer_attribution"):
        with pytest.raises(whyformer.UnsupportedModel):
            whyformer.attribute(turned, inputs, method, target=1)
    expected = whyformer.attribute(plain, inputs, "attn_lrp", target=1)
    torch.testing.assert_close(whyformer.attribute(turned, inputs, "attn_lrp", target=1), expected)


class Opposed(nn.Module):
    """BERT's layer with a sum whose parts have relevance of opposite signs, laid out as is asked for."""

    def __init__(self, layer: nn.Module, turned: bool):
        super().__init__()
        self.inner, self.turned = layer, turned

    def forward(self, states: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        attended = self.inner.attention(states, mask)[0]
        inner = 0.1 * self.inner.output.dense(self.inner.intermediate(attended)) - 0.6 * attended
        if not self.turned:
            return self.inner.output.LayerNorm(inner + attended)
        second = inner.transpose(0, 1) + attended.transpose(0, 1)
        minor = (second.flatten(0, 1) - 0.5 * second.flatten(0, 1)) * 2  # [units · batch, width]
        return self.inner.output.LayerNorm(minor).view_as(second).transpose(0, 1)


@pytest.mark.parametrize("batch", [1, 2, 4, 5])
def test_relevance_is_added_up_for_each_example_however_a_sum_is_laid_out(batch: int) -> None:
    traces = []
    for turned in (False, True):
        model = copy.deepcopy(families.build("bert"))
        model.bert.encoder.layer = nn.ModuleList(Opposed(layer, turned) for layer in model.bert.encoder.layer)
        traces.append(whyformer.record(model, families.batch((4,) * batch)))
    expected, found = (trace.relevance(trace.embeddings, "z_plus", 1) for trace in traces)
    assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
    plain, turned_too = ({site.layout for site in trace._placed_sites if site.kind == "add"} for trace in traces)
    assert plain == {"first"}
    assert turned_too == ({"first"} if batch == 1 else {"first", "minor", "second"})


def test_the_sums_of_each_example_in_every_layout() -> None:
    x = torch.randn(2, 3, 4)  # [batch, units, width]
    sums = x.sum((1, 2))
    node = (x.requires_grad_() * 1).grad_fn
    assert node is not None
    laid_out = {
        "first": (x, sums[:, None, None].expand(2, 3, 4)),
        "second": (x.transpose(0, 1), sums[None, :, None].expand(3, 2, 4)),
        "minor": (x.transpose(0, 1).flatten(0, 1), sums.repeat(3)[:, None].expand(6, 4)),
    }
    for layout, (values, expected) in laid_out.items():
        site = Site("add", (), None, (), node, "here", 2, layout=layout)  # type: ignore[arg-type]
        torch.testing.assert_close(site.per_example(values).expand_as(expected), expected)
    torch.testing.assert_close(
        Site("add", (), None, (), node, "here", 2).per_example(x.flatten(0, 1)).flatten(), sums.repeat_interleave(3)
    )
    with pytest.raises(whyformer.UnsupportedModel, match="pass one text"):
        Site("add", (), None, (), node, "here", 2, layout="scattered").per_example(x)


def _flat(layer: nn.Module) -> Callable[..., Tensor]:
    """BERT's layer on [units, batch, width], with its second sum taken of [units · batch, width]."""

    def forward(states: Tensor, mask: Tensor | None = None) -> Tensor:
        attended = layer.attention(states.transpose(0, 1), mask)[0].transpose(0, 1)
        inner = layer.output.dense(layer.intermediate(attended))
        added = inner.flatten(0, 1) + attended.flatten(0, 1)
        return layer.output.LayerNorm(added).view_as(attended)

    return forward


class HeadsFirst(nn.Module):
    """BERT's self-attention with its maps in the layout [heads, batch, queries, keys]."""

    def __init__(self, attention: nn.Module):
        super().__init__()
        self.inner = attention

    def forward(self, states: Tensor, attention_mask: Tensor | None = None, **_: Any) -> tuple[Tensor, None]:
        query, key, value = (
            linear(states).unflatten(-1, (4, -1)).permute(2, 0, 1, 3)
            for linear in (self.inner.query, self.inner.key, self.inner.value)
        )
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
        return (weights @ value).permute(1, 2, 0, 3).flatten(2), None


@pytest.mark.parametrize("batch", [2, 3, 4])
def test_maps_with_the_heads_first_are_refused_also_where_heads_are_as_many_as_texts(batch: int) -> None:
    model = copy.deepcopy(families.build("bert"))
    for layer in model.bert.encoder.layer:
        layer.attention.self = HeadsFirst(layer.attention.self)
    with pytest.raises(whyformer.UnsupportedModel, match="first dimension"):
        whyformer.attribute(model, families.batch((6,) * batch), "raw_attention", target=1)
    assert whyformer.attribute(model, families.batch((6,)), "raw_attention", target=1).shape == (1, 6)


def test_a_table_as_wide_as_the_text_is_long_loses_its_padding() -> None:
    model = zoo.build("tapas")
    inputs = zoo.batch(model, (7, 4))  # seven numbers for each token
    scores = whyformer.attribute(model, inputs, "occlusion", target=1, baseline="zero")
    alone = whyformer.attribute(model, zoo.alone(inputs, 1), "occlusion", target=1, baseline="zero")
    torch.testing.assert_close(scores[1:, :4], alone)
