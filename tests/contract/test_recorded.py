"""What a recorded run and a prediction keep apart: maps, values, readers, absorbers, books, padding."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer.inputs.batch import Batch, batch_of, collate, encode
from whyformer.inputs.input import Fillers, TensorInput
from whyformer.perturb import hide_named
from whyformer.perturb.engine import hideable, remains
from whyformer.perturb.search import _grown, _SearchState
from whyformer.prediction import Prediction
from whyformer.recorder.lrp.rule_sets import moves
from whyformer.tolerance import ROUNDING

IDS = torch.tensor([[1, 5, 9, 3], [2, 8, 4, 7]])
Function = Callable[[nn.Module, Tensor], Tensor]


class Layer(nn.Module):
    """Attention written out, a residual connection, and some function of the states."""

    def __init__(self, function: Function, weigh: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.qkv, self.w, self.positions = nn.Linear(8, 24), nn.Linear(8, 8), nn.Parameter(torch.randn(4, 8))
        self.function, self.weigh = function, weigh

    def forward(self, states: Tensor) -> Tensor:
        q, k, v = (t.unsqueeze(1) for t in self.qkv(states).chunk(3, -1))
        context = self.weigh((q @ k.mT).softmax(-1), v).squeeze(1)
        return self.function(self, context + states)


class Model(nn.Module):
    """Two such layers and a head that reads the first unit."""

    def __init__(
        self,
        function: Function = lambda layer, x: x + layer.w(x),
        weigh: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
        read: Callable[[Tensor], Tensor] = lambda logits: logits,
    ):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head, self.read = nn.Embedding(20, 8), nn.Linear(8, 2), read
        self.layers = nn.ModuleList([Layer(function, weigh), Layer(function, weigh)])
        self.double()

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: Tensor) -> SimpleNamespace:
        states = self.embedding(input_ids)
        for layer in self.layers:
            states = layer(states)
        return SimpleNamespace(logits=self.read(self.head(states[:, 0])))


def relevances(model: nn.Module, book: str = "attn") -> Tensor:
    trace = whyformer.record(model, {"input_ids": IDS})
    return trace.relevance(trace.embeddings, book, 1)  # type: ignore[return-value]


def prediction(model: nn.Module) -> Prediction:
    return Prediction(model, batch_of(model, {"input_ids": IDS}), 1, relevance=True)


def test_one_map_that_weighs_twice_keeps_both_values() -> None:
    def twice(p: Tensor, v: Tensor) -> Tensor:
        return p @ v + p @ (3 * v)

    trace = whyformer.record(Model(weigh=twice), {"input_ids": IDS})
    assert [values.shape[-1] for values in trace.values] == [16, 16]
    for values in trace.values:
        torch.testing.assert_close(values[..., 8:], 3 * values[..., :8])


def test_a_head_of_two_opposite_logits_has_a_reader() -> None:
    trace = whyformer.record(Model(read=lambda z: torch.cat((z[:, :1], -z[:, :1]), 1)), {"input_ids": IDS})
    assert trace.read_for(1).tolist() == [[1, 0, 0, 0]] * 2


@pytest.mark.parametrize(
    "other",
    [
        lambda x: torch.ones(8, 8).double(),
        lambda x: torch.ones(2, 8, 8).double(),
        lambda x: torch.ones(8, 1).double().squeeze(1),
        lambda x: x[0].mT @ x[0],
    ],
    ids=["matrix", "matrices", "vector", "one matrix of the states"],
)
def test_a_softmax_that_meets_another_matrix_than_values_is_no_attention(other: Callable[[Tensor], Tensor]) -> None:
    def mixed(layer: nn.Module, x: Tensor) -> Tensor:
        product = layer.w(x).softmax(-1) @ other(x)
        return x + (product if product.dim() == 3 else product[..., None])

    trace = whyformer.record(Model(mixed), {"input_ids": IDS})
    assert [tuple(a.shape) for a in trace.attention] == [(2, 1, 4, 4)] * 2
    assert len(trace.sites) > 0


def test_a_product_that_was_not_seen_is_refused() -> None:
    with pytest.raises(whyformer.UncoveredOperation, match="Mul"):
        relevances(Model(lambda layer, x: x + torch.kron(layer.w(x), torch.full((1, 1, 1), 2.0).double())))
    x = torch.ones(2, requires_grad=True)
    assert not moves((x * 2).grad_fn)


def test_a_sum_moves_numbers_if_it_does_not_scale_them() -> None:
    x, constant = torch.ones(2, requires_grad=True), torch.ones(2)
    assert moves(torch.add(constant, x).grad_fn)
    assert not moves(torch.add(constant, x, alpha=2).grad_fn)
    assert not moves((x + x).grad_fn)


def test_rms_norm_without_epsilon_has_that_of_its_dtype() -> None:
    def by_hand(layer: nn.Module, x: Tensor) -> Tensor:
        small = 1e-2 * layer.w(x)
        inverse = (small.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).rsqrt()
        return x + small * inverse.detach()

    found = relevances(Model(lambda layer, x: x + F.rms_norm(1e-2 * layer.w(x), (8,))))
    expected = relevances(Model(by_hand))
    assert (found - expected).abs().max() <= ROUNDING[torch.float64] * expected.abs().max()


def test_what_positions_below_the_first_layers_output_take_is_not_counted_above_it() -> None:
    one = prediction(Model(lambda layer, x: x + layer.w(x) + layer.positions))
    found = one.relevances("z_plus", whole=False)
    assert found.state is not None
    assert float(found.absorbed.abs().min()) > 1e-3
    torch.testing.assert_close(
        found.state.flatten(1).sum(1) + found.absorbed, torch.ones(2).double(), rtol=0, atol=1e-6
    )


def test_relevance_for_maps_is_not_taken_for_that_of_the_embeddings() -> None:
    one, methods = prediction(Model()), whyformer.list_methods()
    methods["transformer_attribution"](one)
    found = methods["lrp"](one, book="z_plus").total
    expected = methods["lrp"](prediction(Model()), book="z_plus").total
    torch.testing.assert_close(found, expected)


def test_the_stand_in_for_padding_is_a_token_that_no_text_holds() -> None:
    model, inputs = families.build("gpt2"), families.batch((5, 3))
    inputs["input_ids"][0, -1] = 0
    inputs["input_ids"][1, 2] = 1
    for row, length in ((0, 5), (1, 3)):
        together = whyformer.attribute(model, inputs, "gae", target=1)[row, :length]
        alone = whyformer.attribute(model, families.alone(inputs, row), "gae", target=1)[0]
        assert (together - alone).abs().max() <= ROUNDING[torch.float64] * alone.abs().max()


def test_a_masked_position_that_the_head_reads_is_no_padding() -> None:
    masked = torch.tensor([[True, True, False, False]])
    reader = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    assert Batch({}, masked, None).padding(reader, None).tolist() == [[False, True, False, False]]
    inputs = families.batch((6, 6))
    inputs["attention_mask"][0, :2] = 0  # BERT reads its first position all the same
    scores = whyformer.attribute(families.build("bert"), inputs, "saliency", target=1)
    assert scores[0].ne(0).tolist() == [True, False, True, True, True, True]


def test_positions_are_counted_anew_after_a_deletion() -> None:
    numbers = {"input_ids": [1, 7, 8, 9], "attention_mask": [1, 1, 1, 1], "position_ids": [2, 3, 4, 5]}
    row = TensorInput({name: np.array(values) for name, values in numbers.items()}, fillers=Fillers(None, 0, 1))
    left = row.without([1, 2], hide_named("delete"))
    assert {name: values.tolist() for name, values in left.tensors.items()} == {
        "input_ids": [1, 9],
        "attention_mask": [1, 1],
        "position_ids": [2, 3],
    }


def test_the_search_goes_on_with_the_better_of_two_paths_to_one_set() -> None:
    grown = _grown([_SearchState((0, 1), 2.0), _SearchState((1, 0), 1.0)], 3)
    assert grown == [_SearchState((1, 0, 2), 1.0)]
    assert _grown([_SearchState((1, 0), 1.0), _SearchState((0, 1), 2.0)], 3) == grown


@pytest.fixture(scope="module")
def sentiment() -> Any:
    return whyformer.Explainer.load("sentiment").subject


def test_special_tokens_stay_special_behind_deleted_ones(sentiment: Any) -> None:
    examples = [encode(sentiment, text) for text in ("a fine film", "dull")]
    whole = Prediction(sentiment.model, collate(sentiment, examples), 1)
    delete = hide_named("delete")
    left = remains(whole, hideable(whole, "token", delete), [[1, 3], []], delete)
    assert left.batch.special is not None
    flags = left.batch.special.tolist()
    assert flags[0][:3] == [True, False, True]
    assert flags[1][:3] == [True, False, True]


def test_a_trace_describes_itself_in_a_line() -> None:
    model = families.build("bert")
    trace = whyformer.record(model, families.batch())
    assert repr(trace) == "Trace(logits [3, 3], 2 layers, with attention maps)"
    rules = whyformer.record(model, families.batch(), book="attn", maps=False)
    assert repr(rules) == "Trace(logits [3, 3], 2 layers, without attention maps, gradients under attn)"
