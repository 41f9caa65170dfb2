"""As many texts as tokens: which dimension is which is never taken from sizes that are equal by chance."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

import families
import whyformer
import zoo
from whyformer.inputs import batch_of
from whyformer.prediction import Prediction
from whyformer.rounding import ROUNDING

METHODS: dict[str, dict[str, Any]] = {
    "attcat": {},
    "attn_lrp": {},
    "cp_lrp": {},
    "transformer_attribution": {},
    "gae": {},
    "lrp": {"book": "z_plus"},
}
SIZES = (5, 8)
SINGLE = zoo.SINGLE | {"axk2", "gpt_neo", "gptj"}  # these compute in float32, also in a float64 model


def explained(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Tensor | type[Exception]]:
    """The scores of each method, or the error."""
    prediction = Prediction(model, batch_of(model, inputs), 1, relevance=True)
    found: dict[str, Tensor | type[Exception]] = {}
    for name, options in METHODS.items():
        try:
            found[name] = whyformer.methods()[name](prediction, **options).total
        except whyformer.WhyformerError as error:
            found[name] = type(error)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", zoo.names())
def test_as_many_texts_as_tokens_are_explained_as_each_alone(name: str) -> None:
    try:
        model = zoo.build(name)
    except zoo.NotBuildable:
        return
    allowed = 10 * ROUNDING[torch.float32] if name in SINGLE else 1e-7
    for size in SIZES:
        inputs = zoo.batch(model, (size,) * size)
        together = explained(model, inputs)
        for row in (0, size - 1):
            for method, alone in explained(model, zoo.alone(inputs, row)).items():
                batched = together[method]
                if isinstance(alone, Tensor) and isinstance(batched, Tensor):
                    assert (batched[row] - alone[0]).abs().max() <= allowed * alone.abs().max(), (size, method)
                else:
                    assert batched is alone, (size, method)


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


@pytest.mark.parametrize("batch", [1, 2, 4, 5])
def test_relevance_is_conserved_in_each_example_however_a_sum_is_laid_out(batch: int) -> None:
    plain = Headed(families.build("bert"), HEADS["mean"])
    turned = copy.deepcopy(plain)
    turned.inner.bert.encoder = TurnedEncoder(turned.inner.bert.encoder)
    for layer in turned.inner.bert.encoder.layer:  # so that sums are computed with the units first too
        layer.inner, layer.forward = copy.deepcopy(layer.inner), _flat(layer.inner)
    inputs = families.batch((4,) * batch)
    traces = [whyformer.record(model, inputs) for model in (plain, turned)]
    expected, found = (trace.relevance(trace.embeddings, "z_plus", 1) for trace in traces)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


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
