"""ALTI once more, with loops over layers, queries, keys and heads, from the stock model's weights and outputs."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm

import whyformer
from tests.helpers import families


@cache
def build(family: str) -> PreTrainedModel:
    """With biases and norms that are not 0 and 1."""
    model = copy.deepcopy(families.build(family, attention="eager"))
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


@dataclass(frozen=True)
class Block:
    """The attention of one layer on one text.

    What attention gathered goes through `out` and then `inner`, is added to the layer's input, and goes through
    `outer`; both are linear once a number per unit is fixed, and are given as such.
    """

    states: Tensor  # [units, width]
    attention: Tensor  # [heads, queries, keys]
    values: Tensor  # [heads, keys, head width]
    out: Tensor  # [heads, width, head width]
    bias: Tensor  # [width]
    inner: Callable[[Tensor, Tensor], Tensor]  # of a part, and of the whole that fixes the number
    outer: Callable[[Tensor, Tensor], Tensor]
    outer_bias: Tensor | float = 0.0

    def contributions(self, offset: float) -> Tensor:
        units, heads = len(self.states), len(self.attention)
        result = torch.zeros(units, units, dtype=torch.float64)
        for i in range(units):
            gathered = self.bias.clone()
            parts = []
            for j in range(units):
                part = torch.zeros_like(self.states[i])
                for h in range(heads):
                    part += self.attention[h, i, j] * (self.out[h] @ self.values[h, j])
                gathered += part
                parts.append(part)
            added = self.states[i] + self.inner(gathered, gathered)
            output = self.outer(added, added) + self.outer_bias
            for j in range(units):
                transformed = self.inner(parts[j], gathered) + (self.states[i] if i == j else 0)
                distance = sum(abs(float(d)) for d in self.outer(transformed, added) - output + offset)
                result[i, j] = max(0.0, sum(abs(float(y)) for y in output) - distance)
            if result[i].sum() > 0:
                result[i] /= sum(float(c) for c in result[i])
        return result


def unchanged(part: Tensor, whole: Tensor) -> Tensor:
    return part


def layer_norm(norm: nn.LayerNorm) -> Callable[[Tensor, Tensor], Tensor]:
    """Without its bias, and with the deviation of the whole."""

    def linear(part: Tensor, whole: Tensor) -> Tensor:
        deviation = ((whole - whole.mean()).square().mean() + norm.eps).sqrt()
        return (part - part.mean()) / deviation * norm.weight

    return linear


def rms_norm(norm: Gemma2RMSNorm) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda part, whole: part / (whole.square().mean() + norm.eps).sqrt() * (1 + norm.weight)


def by_heads(values: Tensor, heads: int) -> Tensor:
    """[units, width] as [heads, units, head width]."""
    return values.unflatten(-1, (heads, -1)).transpose(0, 1)


def of_bert(layer: nn.Module, states: Tensor, attention: Tensor) -> Block:
    heads, part = len(attention), layer.attention
    values = by_heads(part.self.value(states), heads)
    out = part.output.dense.weight.unflatten(1, (heads, -1)).transpose(0, 1)
    norm = part.output.LayerNorm
    return Block(states, attention, values, out, part.output.dense.bias, unchanged, layer_norm(norm), norm.bias)


def of_gpt2(layer: nn.Module, states: Tensor, attention: Tensor) -> Block:
    heads, part = len(attention), layer.attn
    values = by_heads(part.c_attn(layer.ln_1(states)[None])[0].chunk(3, -1)[2], heads)
    out = part.c_proj.weight.T.unflatten(1, (heads, -1)).transpose(0, 1)
    return Block(states, attention, values, out, part.c_proj.bias, unchanged, unchanged)


def of_gemma2(layer: nn.Module, states: Tensor, attention: Tensor) -> Block:
    heads, part = len(attention), layer.self_attn
    shared = by_heads(part.v_proj(layer.input_layernorm(states)), part.config.num_key_value_heads)
    values = torch.stack([shared[h * len(shared) // heads] for h in range(heads)])  # query heads share them
    out = part.o_proj.weight.unflatten(1, (heads, -1)).transpose(0, 1)
    return Block(
        states, attention, values, out, torch.zeros_like(states[0]), rms_norm(layer.post_attention_layernorm), unchanged
    )


READ = {"bert": of_bert, "gpt2": of_gpt2, "gemma2": of_gemma2}
LAYERS = {"bert": "bert.encoder.layer", "gpt2": "transformer.h", "gemma2": "model.layers"}


def literal(family: str, inputs: dict[str, Tensor], offset: float) -> Tensor:
    model = build(family)
    with torch.no_grad():
        output = model(**inputs, output_attentions=True, output_hidden_states=True)
        joint = torch.eye(inputs["input_ids"].shape[1], dtype=torch.float64)
        layers = model.get_submodule(LAYERS[family])
        for layer, states, attention in zip(layers, output.hidden_states, output.attentions, strict=False):
            joint = READ[family](layer, states[0], attention[0]).contributions(offset) @ joint
    return joint[0 if family == "bert" else -1]


def check(family: str, offset: float, tolerance: float) -> None:
    inputs = families.alone(families.batch(), 0)
    scores = whyformer.attribute(build(family), inputs, "alti", distance_offset=offset)[0]
    expected = literal(family, inputs, offset)
    assert expected.sum() == pytest.approx(1)
    assert (scores - expected).abs().max() <= tolerance


@pytest.mark.parametrize("offset", [0.0, 1e-6])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_alti(family: str, offset: float) -> None:
    check(family, offset, 1e-10)


def precise(self: Gemma2RMSNorm, x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * (1 + self.weight)


@pytest.mark.parametrize("offset", [0.0, 1e-6])
def test_alti_with_a_norm_before_the_sum(offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    check("gemma2", offset, 1e-7)  # the model's own norm is in float32
    monkeypatch.setattr(Gemma2RMSNorm, "forward", precise)
    check("gemma2", offset, 1e-10)


def test_alti_of_texts_in_a_batch_is_that_of_each_alone() -> None:
    inputs = families.batch()
    scores = whyformer.attribute(build("bert"), inputs, "alti")
    for row, length in enumerate((9, 5, 7)):
        expected = literal("bert", families.alone(inputs, row), 0.0)
        assert (scores[row, :length] - expected).abs().max() <= 1e-10
        assert not scores[row, length:].any()
