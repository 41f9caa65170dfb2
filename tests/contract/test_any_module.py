"""Modules that are not of transformers: whatever they call their inputs, and whatever they put their logits in."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer import BadInput, UnsupportedModel
from whyformer.tolerance import close

IDS = torch.tensor([[3, 7, 1, 4, 9], [2, 2, 8, 6, 5]])
ONES = torch.ones_like(IDS)


class Plain(nn.Module):
    """Embeddings, two layers and a head, as people write them; its logits are a tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(12, 8)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(8, 3)
        self.eval()

    def read(self, states: Tensor) -> Tensor:
        for layer in self.layers:
            states = layer(states)
        return self.head(states[:, 0])  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor) -> Any:
        return self.read(self.embed(tokens))


class InTuple(Plain):
    def forward(self, tokens: Tensor) -> Any:
        return super().forward(tokens), tokens


class InDict(Plain):
    def forward(self, tokens: Tensor) -> Any:
        return {"loss": None, "logits": super().forward(tokens)}


class AsAttribute(Plain):
    def forward(self, tokens: Tensor) -> Any:
        return SimpleNamespace(logits=super().forward(tokens))


class PositionalOnly(Plain):
    def forward(self, tokens: Tensor, /) -> Any:
        return super().forward(tokens)


class Starred(Plain):
    def forward(self, *tokens: Tensor) -> Any:
        return super().forward(tokens[0])


class Weighted(Plain):
    def forward(self, tokens: Tensor, weights: Tensor | None = None) -> Any:
        states = self.embed(tokens)
        return self.read(states if weights is None else states * weights[..., None])


class OfEmbeddings(Plain):
    def forward(self, states: Tensor) -> Any:
        return self.read(states)


class OnBert(nn.Module):
    """A head of one's own on a model of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = copy.deepcopy(families.build("bert", torch.float32)).base_model
        self.head = nn.Linear(self.body.config.hidden_size, 3)
        self.eval()

    def forward(self, ids: Tensor, seen: Tensor) -> Tensor:
        return self.head(self.body(ids, attention_mask=seen).last_hidden_state[:, 0])  # type: ignore[no-any-return]


def by_hand(model: Plain) -> Tensor:
    """The embeddings times the gradient of the predicted class."""
    states = model.embed(IDS).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model.read(states).amax(-1).sum(), states)
    return (states * gradient).sum(-1)


@pytest.mark.parametrize("kind", [Plain, InTuple, InDict, AsAttribute, PositionalOnly, Starred, Weighted])
@pytest.mark.parametrize("inputs", [{"tokens": IDS}, {"input_ids": IDS}, IDS, (IDS,)], ids=str)
def test_modules_are_called_and_read_as_they_are_written(kind: type[Plain], inputs: Any) -> None:
    model = kind()
    assert close(whyformer.attribute(model, inputs, "input_x_gradient"), by_hand(model))


@pytest.mark.parametrize("method", ["auto", "rollout", "gae", "attcat", "cp_lrp", "occlusion", "integrated_gradients"])
def test_methods_explain_a_plain_module_as_one_in_a_dict(method: str) -> None:
    options = {"baseline": "zero"} if method in ("occlusion", "integrated_gradients") else {}
    found = [whyformer.attribute(kind(), IDS, method, **options) for kind in (Plain, InDict, Starred)]
    assert found[0].shape == IDS.shape
    assert found[0].abs().max() > 0
    assert close(found[1], found[0])
    assert close(found[2], found[0])


def test_what_is_taken_beside_tokens_is_handed_on() -> None:
    weights = torch.tensor([[1.0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])
    for inputs in ((IDS, weights), {"weights": weights, "tokens": IDS}):
        scores = whyformer.attribute(Weighted(), inputs, "input_x_gradient")
        assert scores.eq(0).tolist() == weights.eq(0).tolist()
        hidden = whyformer.attribute(Weighted(), inputs, "occlusion", window=1, baseline="zero")
        assert hidden[weights.eq(0)].abs().max() < 1e-5 < hidden[weights.ne(0)].abs().min()


def test_tokens_need_not_be_what_a_module_takes_first() -> None:
    class Last(Plain):
        def forward(self, scale: Tensor, input_ids: Tensor) -> Any:  # type: ignore[override]
            return super().forward(input_ids) * scale

    inputs = {"scale": torch.full((2, 1), 2.0), "input_ids": IDS}
    assert close(whyformer.attribute(Last(), inputs, "input_x_gradient"), 2 * by_hand(Plain()))


def test_embeddings_may_be_given() -> None:
    model = OfEmbeddings()
    assert close(whyformer.attribute(model, model.embed(IDS).detach(), "input_x_gradient"), by_hand(model))


@pytest.mark.parametrize("name", ["image", "pixel_values", None])
def test_pixels_may_be_given(name: str | None) -> None:
    class OfPatches(Plain):
        def forward(self, image: Tensor) -> Any:
            return self.read(torch.nn.functional.unfold(image, 2, stride=2).transpose(1, 2)[..., :8])

    image = torch.rand(2, 3, 6, 4, generator=torch.Generator().manual_seed(0))
    inputs = image if name is None else {name: image}
    scores = whyformer.attribute(OfPatches(), inputs, "gae")
    assert scores.shape == (2, 6)
    assert scores.abs().max() > 0


def test_features_are_units_of_a_model_that_takes_them_so() -> None:
    weight = torch.tensor([[1.0, -2, 3], [0, 1, 0]])

    class Linear(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return features.squeeze(-1) @ weight.T

    scores = whyformer.attribute(Linear(), torch.tensor([[[1.0], [2.0], [3.0]]]), "input_x_gradient", target=0)
    assert close(scores, torch.tensor([[1.0, -4.0, 9.0]]))


def test_a_head_on_a_model_of_transformers() -> None:
    model = OnBert()
    named = whyformer.attribute(model, {"ids": IDS, "seen": ONES}, "gae")
    assert named.shape == IDS.shape
    assert close(whyformer.attribute(model, (IDS, ONES), "gae"), named)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (torch.ones(2, 5), r"tokens is float32 of shape \(2, 5\): tokens \[batch, units\], as whole numbers"),
        (torch.ones(2, 5, 1, dtype=torch.long), r"tokens is int64 of shape \(2, 5, 1\)"),
        ((IDS, IDS), "the forward of Plain takes 1 inputs; found 2"),
        ({"tokens": IDS.tolist()}, "tokens is list: give tensors"),
        ({"others": IDS}, "the forward of Plain takes no 'others'"),
        ([IDS], "inputs are the tensors that the model's forward takes"),
    ],
)
def test_what_cannot_be_explained_is_said(inputs: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        whyformer.attribute(Plain(), inputs)


def test_models_of_transformers_keep_their_names() -> None:
    with pytest.raises(BadInput, match=r"by name, as tokenizer.* gives them; found Tensor"):
        whyformer.attribute(families.build("bert"), IDS)


def test_two_rows_of_an_answer_are_no_classes() -> None:
    class Answering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = BertForQuestionAnswering()

        def forward(self, tokens: Tensor) -> Any:
            return self.inner(tokens)

    class BertForQuestionAnswering(Plain):
        def forward(self, tokens: Tensor) -> Any:
            states = self.embed(tokens)
            return states[..., 0], states[..., 1]

    with pytest.raises(UnsupportedModel, match="Answering returns no logits"):
        whyformer.attribute(Answering(), IDS, "input_x_gradient")
