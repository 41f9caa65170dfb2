"""Models written in unusual ways: the numbers are right, or they are refused by name."""

from collections.abc import Callable

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import whyformer
from tests.helpers import families, zoo


def with_random_biases(name: str) -> hf.PreTrainedModel:
    model = zoo.build(name)
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=float(parameter.data.abs().mean() > 0.5), std=0.2)
    return model


@pytest.mark.parametrize(
    "name", ["bert", "deberta", "gpt2", "llama", "modernbert", "gemma2", "squeezebert", "qwen2_moe"]
)
def test_the_two_forms_of_attn_lrp_differ_by_their_stabilisers(name: str) -> None:
    model = with_random_biases(name)
    inputs = zoo.alone(zoo.batch(model), 0)
    scores = [
        whyformer.attribute(model, inputs, "attn_lrp", target=1, form=form)[0] for form in ("gradient", "epsilon")
    ]
    assert (scores[0] - scores[1]).abs().max() <= 2e-2 * scores[0].abs().max()


class Layer(nn.Module):
    """Attention and a residual connection, then some function of the states."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.qkv, self.w = nn.Linear(8, 24), nn.Linear(8, 8)
        self.inner: nn.Module | None = None
        self.function = function

    def forward(self, states: Tensor) -> Tensor:
        q, k, v = (t.unsqueeze(1) for t in self.qkv(states).chunk(3, -1))
        context = nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1)
        return self.function(self, context + states)


class Output:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Model(nn.Module):
    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor], inner: type[nn.Module] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 2)
        self.layers = nn.ModuleList([Layer(function), Layer(function)])
        for layer in self.layers:
            torch.manual_seed(1)
            layer.inner = inner() if inner is not None else None  # type: ignore[assignment]

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: Tensor) -> Output:
        states = self.embedding(input_ids)
        for layer in self.layers:
            states = layer(states)
        return Output(self.head(states[:, 0]))


IDS = {"input_ids": torch.arange(10).view(2, 5)}
BOOKS = ("z_plus", "alpha_beta", "epsilon", "attn", "conservative")


def relevances(
    function: Callable[[nn.Module, Tensor], Tensor], book: str, inner: type[nn.Module] | None = None
) -> Tensor:
    trace = whyformer.record(Model(function, inner).double(), IDS)
    return trace.relevance(trace.hidden[0], book, 1)


class DenseGELU(nn.Module):
    """Named as an activation, but it mixes."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.w(x))


class Dense(DenseGELU):
    """The same under a plain name."""


class AdaRMSNorm(nn.Module):
    """Named as a norm, but a second input flows in."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(8, 8)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) + self.w(c)


class Ada(AdaRMSNorm):
    """The same under a plain name."""


@pytest.mark.parametrize("book", BOOKS)
def test_a_name_makes_no_activation_and_no_norm(book: str) -> None:
    def dense(layer: nn.Module, x: Tensor) -> Tensor:
        return layer.inner(x)

    def ada(layer: nn.Module, x: Tensor) -> Tensor:
        return layer.inner(x, layer.w(x))

    for function, named, plain in ((dense, DenseGELU, Dense), (ada, AdaRMSNorm, Ada)):
        torch.testing.assert_close(relevances(function, book, named), relevances(function, book, plain))


def in_place(name: str) -> Callable[[nn.Module, Tensor], Tensor]:
    def change(layer: nn.Module, x: Tensor) -> Tensor:
        changed = x.clone()
        getattr(changed[:, :], name)(*([2] if name == "pow_" else []))
        return changed

    return change


def test_functions_in_place_of_a_view() -> None:
    plain = relevances(lambda _, x: x.clone().tanh(), "z_plus")
    torch.testing.assert_close(relevances(in_place("tanh_"), "z_plus"), plain)
    with pytest.raises(whyformer.UncoveredOperation, match="pow_"):
        relevances(in_place("pow_"), "z_plus")


def test_a_sum_in_the_places_of_an_index_is_refused() -> None:
    places = (torch.tensor([0, 1]), torch.tensor([0, 0]))
    with pytest.raises(whyformer.UncoveredOperation, match="index_put"):
        relevances(lambda _, x: x.index_put(places, x[:, 1], accumulate=True), "z_plus")


def test_states_that_are_overwritten_are_refused() -> None:
    class Overwriting(Layer):
        def forward(self, states: Tensor) -> Tensor:
            found = super().forward(states)
            states += 1
            return found

    model = Model(lambda _, x: x)
    model.layers[1].__class__ = Overwriting
    with pytest.raises(whyformer.UnsupportedModel, match="in place"):
        whyformer.attribute(model.double(), IDS, "cat")


def test_fused_attention_by_keywords_with_constant_queries() -> None:
    """A query that does not depend on the input takes nothing, however it is handed over."""

    def attended(by_name: bool) -> Callable[[nn.Module, Tensor], Tensor]:
        def attend(layer: nn.Module, x: Tensor) -> Tensor:
            query, key = torch.ones_like(x).unsqueeze(1).detach(), layer.w(x).unsqueeze(1)
            fused = nn.functional.scaled_dot_product_attention
            found = fused(query=query, key=key, value=key) if by_name else fused(query, key, key)
            return x + found.squeeze(1)

        return attend

    trace = whyformer.record(Model(attended(True)).double(), IDS)
    by_name = trace.relevance(trace.embeddings, "z_plus", 1)
    torch.testing.assert_close(by_name.flatten(1).sum(1), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-6)
    trace = whyformer.record(Model(attended(False)).double(), IDS)
    torch.testing.assert_close(by_name, trace.relevance(trace.embeddings, "z_plus", 1))


def test_softmax_over_another_dimension() -> None:
    def pooled(dim: int) -> Callable[[nn.Module, Tensor], Tensor]:
        def pool(layer: nn.Module, x: Tensor) -> Tensor:
            scores = layer.w(x)[..., :1]  # [batch, units, 1]
            weights = scores.softmax(1) if dim == 1 else scores.mT.softmax(-1).mT
            return x + weights.mT @ layer.w(x)

        return pool

    for book in ("z_plus", "epsilon", "attn"):
        torch.testing.assert_close(relevances(pooled(1), book), relevances(pooled(-1), book))


def test_a_gate_stays_one_through_a_view_or_cast() -> None:
    def gated(change: Callable[[Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
        return lambda layer, x: x + change(nn.functional.silu(layer.w(x))) * (layer.w(x) + 1)

    plain = relevances(gated(lambda g: g), "conservative")
    torch.testing.assert_close(relevances(gated(lambda g: g.view(g.shape)), "conservative"), plain)
    torch.testing.assert_close(relevances(gated(lambda g: g.to(torch.float64).contiguous()), "conservative"), plain)


def test_a_bias_that_depends_on_the_input_is_refused() -> None:
    with pytest.raises(whyformer.UncoveredOperation):
        relevances(lambda layer, x: nn.functional.linear(x, layer.w.weight, x[0, 0]), "z_plus")


def test_sums_with_the_units_first_are_those_of_each_example() -> None:
    def turned(layer: nn.Module, x: Tensor) -> Tensor:
        return (x.transpose(0, 1) + layer.w(x).transpose(0, 1)).transpose(0, 1)

    for book in ("z_plus", "alpha_beta", "attn"):
        torch.testing.assert_close(relevances(turned, book), relevances(lambda layer, x: x + layer.w(x), book))


def test_patches_of_an_image_that_is_no_multiple_of_them() -> None:
    torch.manual_seed(0)
    config = hf.Dinov2Config(  # type: ignore[call-arg]
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14, num_labels=3
    )
    model = hf.Dinov2ForImageClassification(config).double().eval()
    inputs = {"pixel_values": torch.randn(1, 3, 40, 40, dtype=torch.float64)}
    trace = whyformer.record(model, inputs)
    pixels = trace.relevance(trace.pixels, "z_plus", 1).sum(1)[0]
    expected = [pixels[r : r + 14, c : c + 14].sum() for r in (0, 14) for c in (0, 14)]
    scores = whyformer.attribute(model, inputs, "lrp", target=1, book="z_plus")[0]
    torch.testing.assert_close(scores[1:], torch.stack(expected))


def test_alti_refuses_a_residual_that_is_not_the_layers_input() -> None:
    model = families._build.__wrapped__("gpt2", torch.float64, "sdpa")
    block = type(model.transformer.h[0])
    plain = block.forward

    def halved(self: nn.Module, hidden_states: Tensor, *args: object, **kwargs: object) -> Tensor:
        attended = self.attn(self.ln_1(hidden_states), attention_mask=kwargs.get("attention_mask"))[0]
        states = 0.5 * hidden_states + attended
        return states + self.mlp(self.ln_2(states))

    try:
        block.forward = halved
        with pytest.raises(whyformer.UnsupportedModel, match="not added to its layer's input"):
            whyformer.attribute(model, families.batch((6,)), "alti")
    finally:
        block.forward = plain
