"""ALTI makes a vector for each pair of units, in tiles: the numbers are those of all at once, and memory is bounded."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertForSequenceClassification

import whyformer
from tests.helpers import families
from whyformer.inputs.batch import batch_of
from whyformer.methods import decomposition
from whyformer.prediction import Prediction
from whyformer.recorder.lrp.value_paths import ValuePath
from whyformer.tolerance import close

WIDTH, HEADS, NUMBER = 16, 4, 8  # of the models of `families`, in float64


def parts_of(path: ValuePath, attention: Tensor, values: Tensor) -> Tensor:
    """What each unit adds to the output at each query, all at once: [batch, queries, keys, width]."""
    parts = torch.einsum("bhqk,whd,bhkd->bqkw", attention, path.weight, values) * path.per_unit[..., None, None]
    return parts + torch.eye(attention.shape[-1], dtype=parts.dtype)[..., None] * path.own[:, :, None]


def untiled(path: ValuePath, attention: Tensor, values: Tensor, offset: float) -> Tensor:
    """The contributions from all parts at once."""
    output = path.output[:, :, None]
    distances = (parts_of(path, attention, values) - output + offset).abs().sum(-1)
    nearness = (output.abs().sum(-1) - distances).clamp(min=0)
    return nearness / nearness.sum(-1, keepdim=True)


def block_of(batch: int, units: int) -> tuple[ValuePath, Tensor, Tensor]:
    """A value path with random numbers, its attention and its values; the output is the sum of the parts."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    own, weight, per_unit = random(batch, units, WIDTH), random(WIDTH, HEADS, 4), 1 + random(batch, units).square()
    attention, values = (3 * random(batch, HEADS, units, units)).softmax(-1), random(batch, HEADS, units, 4)
    path = ValuePath(own, weight, torch.empty(0), per_unit)
    return replace(path, output=parts_of(path, attention, values).sum(2)), attention, values


# A tile of so many vectors: 7 are those of one key, and 4 its projections. 10,000 are more than there are.
@pytest.mark.parametrize("vectors", [0.5, 1, 3, 7, 13, 14, 20, 40, 10_000])
@pytest.mark.parametrize("batch", [1, 3])
def test_contributions_are_those_of_all_parts_at_once(
    batch: int, vectors: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, attention, values = block_of(batch, units=7)
    monkeypatch.setattr(decomposition, "CPU_TILE", int(vectors * WIDTH * NUMBER))
    found, expected = (f(path, attention, values, 0.05) for f in (decomposition._contributions, untiled))
    assert expected.count_nonzero() > 2 * 7 * batch
    assert close(found, expected)


@pytest.mark.parametrize("family", ["bert", "gpt2", "gemma2"])
@pytest.mark.parametrize("vectors", [1, 4, 10, 50])
def test_tiles_change_nothing_in_a_batch_with_padding(
    vectors: int, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = families.build(family), families.batch()
    expected = whyformer.attribute(model, inputs, "alti")
    width = model.config.hidden_size
    monkeypatch.setattr(decomposition, "CPU_TILE", vectors * width * NUMBER)
    assert close(whyformer.attribute(model, inputs, "alti"), expected)


class Largest(TorchDispatchMode):
    """The most bytes of one tensor that any function gave."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return made


@pytest.mark.parametrize(("batch", "units", "heads", "times"), [(1, 256, 4, 32), (4, 64, 16, 8)])
def test_no_tensor_is_larger_than_a_tile(
    batch: int, units: int, heads: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor than the states and maps that the model itself has: never [units, units, width]."""
    width, number = 256, 4
    sizes: dict[str, Any] = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 32}
    model: Any = BertForSequenceClassification(BertConfig(vocab_size=50, num_hidden_layers=2, **sizes)).eval()
    ids = torch.randint(50, (batch, units), generator=torch.Generator().manual_seed(0))
    prediction = Prediction(model, batch_of(model, {"input_ids": ids}), relevance=True)
    _ = prediction.traced, prediction.reader
    tile = 2 * batch * heads * units * units * number  # twice the attention of a layer
    monkeypatch.setattr(decomposition, "CPU_TILE", tile)
    with Largest() as seen:
        whyformer.list_methods()["alti"](prediction)
    assert tile / 2 < seen.bytes <= tile
    assert times * tile <= batch * units * units * width * number
