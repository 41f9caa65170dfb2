"""Attention written as a product of single numbers: the same relevance as the matrix product, or a refusal."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer.tolerance import ROUNDING

INPUTS = families.batch((9, 5, 7))
WEIGHING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda p, v: (p[..., None] * v[:, :, None]).sum(3),
    "turned": lambda p, v: (v[:, :, None] * p.unsqueeze(-1)).sum(-2),
    "loop": lambda p, v: sum(p[..., k, None] * v[:, :, k, None] for k in range(v.shape[2])),  # type: ignore[misc, return-value]
}


class Weighing(nn.Module):
    """BERT's self-attention; how values are weighed is given."""

    def __init__(self, attention: nn.Module, weigh: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.inner, self.weigh = attention, weigh

    def forward(self, states: Tensor, attention_mask: Tensor | None = None, **_: Any) -> tuple[Tensor, None]:
        query, key, value = (
            linear(states).unflatten(-1, (4, -1)).transpose(1, 2)
            for linear in (self.inner.query, self.inner.key, self.inner.value)
        )
        scores = query @ key.mT / query.shape[-1] ** 0.5
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, -1e9) if attention_mask.dtype == torch.bool else scores
        return self.weigh(scores.softmax(-1), value).transpose(1, 2).flatten(2), None


def model(weigh: Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
    """BERT with such attention."""
    built = copy.deepcopy(families.build("bert"))
    for layer in built.bert.encoder.layer:
        layer.attention.self = Weighing(layer.attention.self, weigh)
    return built


@pytest.mark.parametrize("name", WEIGHING)
@pytest.mark.parametrize("method", ["attn_lrp", "cp_lrp", "input_x_gradient"])
def test_products_of_single_numbers_pass_relevance_as_a_matrix_product_does(method: str, name: str) -> None:
    expected = whyformer.attribute(model(torch.matmul), INPUTS, method, target=1)
    found = whyformer.attribute(model(WEIGHING[name]), INPUTS, method, target=1)
    assert (found - expected).abs().max() <= ROUNDING[torch.float64] * expected.abs().max()


@pytest.mark.parametrize("name", WEIGHING)
@pytest.mark.parametrize("method", ["attcat", "transformer_attribution", "lrp", "layer_lrp", "gae"])
def test_their_maps_are_not_seen(method: str, name: str) -> None:
    with pytest.raises(whyformer.NoAttention, match="product of single numbers"):
        whyformer.attribute(model(WEIGHING[name]), INPUTS, method, target=1)


class Pooled(nn.Module):
    """BERT with a head that pools by attention, written in several ways."""

    def __init__(self, pool: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        torch.manual_seed(5)
        self.inner, self.scorer, self.pool = families.build("bert"), nn.Linear(32, 1).double(), pool
        self.config = self.inner.config

    def get_input_embeddings(self) -> nn.Module:
        return self.inner.get_input_embeddings()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        states = self.inner.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        scores = self.scorer(states).squeeze(-1).masked_fill(attention_mask == 0, float("-inf"))
        return type("Output", (), {"logits": self.inner.classifier(self.pool(scores, states))})


POOLING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda scores, states: (scores.softmax(-1)[:, None] @ states).squeeze(1),
    "sum": lambda scores, states: (scores.softmax(1).unsqueeze(-1) * states).sum(1),
    "turned": lambda scores, states: (states * scores.unsqueeze(-1).softmax(1)).sum(dim=1),
    "einsum": lambda scores, states: torch.einsum("bu,buw->bw", scores.softmax(1), states),
}


@pytest.mark.parametrize("method", ["attn_lrp", "cp_lrp"])
def test_pooling_by_attention_is_the_same_however_it_is_written(method: str) -> None:
    expected, *others = (whyformer.attribute(Pooled(pool), INPUTS, method, target=1) for pool in POOLING.values())
    for found in others:
        assert (found - expected).abs().max() <= ROUNDING[torch.float64] * expected.abs().max()


def test_pooling_by_attention_conserves_relevance() -> None:
    trace = whyformer.record(Pooled(POOLING["sum"]), INPUTS)
    assert {site.kind for site in trace.sites if site.last} >= {"gated", "sum", "softmax"}
    arrived = trace.relevance(trace.hidden[0], "z_plus", 1).flatten(1).sum(1)
    torch.testing.assert_close(arrived, torch.ones_like(arrived), rtol=0, atol=1e-6)
