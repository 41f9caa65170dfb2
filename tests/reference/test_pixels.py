"""Scores at the pixels of images: added up by loops, and in models whose layers have other units than patches."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from tests.helpers.golden import assert_close, inputs, model
from whyformer.errors import BadOption
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import Scores
from whyformer.prediction import Prediction
from whyformer.recorder.lrp import rule_sets

TARGET = 1
PATCH, SIDE = 8, 4  # of the goldens' ViT: 4 x 4 patches after [CLS]
HIERARCHICAL = {
    "Swin": {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2]}
    | {"window_size": 4},
    "Swinv2": {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2]}
    | {"window_size": 4},
    "Pvt": {"image_size": 32, "num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [16, 32], "strides": [4, 2]}
    | {"sequence_reduction_ratios": [2, 1], "patch_sizes": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]},
    "Hiera": {"image_size": [32, 32], "embed_dim": 16, "depths": [1, 1], "num_heads": [1, 2], "num_query_pool": 1}
    | {"masked_unit_size": [4, 4], "masked_unit_attention": [True, False]},
}


def scored(method: str, **options: Any) -> Scores:
    vit, given = model("vit_cls", "sdpa"), inputs("vit_cls", "x0")
    return whyformer.list_methods()[method](Prediction(vit, batch_of(vit, given), TARGET, relevance=True), **options)


def by_patch(pixels: Tensor) -> Tensor:
    """[CLS] first, which has no pixels."""
    sums = [0.0]
    for row in range(SIDE):
        for column in range(SIDE):
            places = [(row * PATCH + i, column * PATCH + j) for i in range(PATCH) for j in range(PATCH)]
            sums.append(sum(float(pixels[place]) for place in places))
    return torch.tensor(sums, dtype=torch.float64)


@pytest.mark.parametrize(
    ("method", "options", "book"),
    [
        ("attn_lrp", {}, rule_sets.ATTN),
        ("cp_lrp", {}, rule_sets.CONSERVATIVE),
        ("attn_lrp", {"form": "epsilon"}, rule_sets.EPSILON),
        ("attn_lrp", {"gamma": 0.1}, rule_sets.with_gamma(rule_sets.ATTN, 0.1)),
        ("cp_lrp", {"gamma": 0.1, "gamma_pixels": 0.25}, rule_sets.with_gamma(rule_sets.CONSERVATIVE, 0.1, 0.25)),
        ("attn_lrp", {"gamma": 0.1, "form": "epsilon"}, rule_sets.gamma(0.1)),
    ],
)
def test_relevance_of_pixels(method: str, options: dict[str, Any], book: rule_sets.Book) -> None:
    trace = whyformer.record(model("vit_cls", "sdpa"), inputs("vit_cls", "x0"))
    pixels = trace.relevance(trace.pixels, book, TARGET)[0].sum(0)
    found = scored(method, at="pixels", **options)
    assert_close(found.diagnostics["pixels"][0], pixels, 1e-10)
    assert_close(found.total[0], by_patch(pixels), 1e-10)
    report = found.diagnostics["conservation"]
    assert_close(report["sum"], pixels.sum()[None], 1e-10)
    assert_close(report["sum"] + report["absorbed"], trace.output(TARGET).detach(), 1e-10)


def test_gamma_at_the_pixels_alone_is_another_book() -> None:
    plain = scored("attn_lrp", at="pixels").total
    assert not torch.allclose(scored("attn_lrp", at="pixels", gamma_pixels=0.25).total, plain)
    above = scored("attn_lrp").total
    torch.testing.assert_close(scored("attn_lrp", gamma_pixels=0.25).total, above)  # nothing above changes
    assert not torch.allclose(scored("attn_lrp", gamma=0.25).total, above)


def test_gamma_goes_over_into_nothing() -> None:
    for method in ("attn_lrp", "cp_lrp"):
        assert_close(scored(method, gamma=1e-12).total, scored(method).total, 1e-8)  # gamma is not quite 0
    with pytest.raises(BadOption, match="a number of 0 or more, found -1"):
        scored("attn_lrp", gamma=-1)


def test_gradients_of_pixels() -> None:
    vit, given = model("vit_cls", "sdpa"), inputs("vit_cls", "x0")
    values = given["pixel_values"].clone().requires_grad_()
    logits = vit(pixel_values=values).logits
    (gradient,) = torch.autograd.grad(logits[0, TARGET], values, retain_graph=True)
    loss = F.cross_entropy(logits, torch.tensor([TARGET]))
    (of_loss,) = torch.autograd.grad(loss, values)
    products, lengths = (values * gradient)[0].sum(0).detach(), gradient[0].square().sum(0).sqrt()
    found = scored("input_x_gradient", at="pixels")
    assert_close(found.diagnostics["pixels"][0], products, 1e-10)
    assert_close(found.total[0], by_patch(products), 1e-10)
    assert_close(scored("saliency", at="pixels").total[0], by_patch(lengths), 1e-10)
    squares = of_loss[0].square().sum(0).sqrt()
    assert_close(scored("saliency", at="pixels", of="loss").total[0], by_patch(squares), 1e-10)


@pytest.mark.parametrize("book", [None, "conservative"])
def test_a_path_of_pixels(book: str | None) -> None:
    """Three points between nothing and the image, as Gauss and Legendre weigh them."""
    vit, given = model("vit_cls", "sdpa"), inputs("vit_cls", "x0")
    end, total = given["pixel_values"], torch.zeros_like(given["pixel_values"])
    for point, weight in ((0.5 - 0.15**0.5, 5 / 18), (0.5, 8 / 18), (0.5 + 0.15**0.5, 5 / 18)):
        trace = whyformer.record(vit, {"pixel_values": end * point})
        total += weight * trace.carried(trace.pixels, book, TARGET)
    found = scored("integrated_gradients", at="pixels", baseline="zero", steps=3, book=book)
    assert_close(found.diagnostics["pixels"][0], (total * end)[0].sum(0), 1e-6)  # captum's weights are float32
    assert_close(found.total[0], by_patch((total * end)[0].sum(0)), 1e-6)


def test_a_text_has_no_pixels() -> None:
    stock = families.build("bert")
    for method in ("attn_lrp", "cp_lrp", "input_x_gradient", "saliency", "integrated_gradients"):
        with pytest.raises(BadOption, match="this input has no pixel_values"):
            whyformer.attribute(stock, families.batch(), method, at="pixels")


def hierarchical(name: str) -> nn.Module:
    config = getattr(transformers, f"{name}Config")(**HIERARCHICAL[name], num_labels=3)
    stock: nn.Module = getattr(transformers, f"{name}ForImageClassification")(config)
    stream = torch.Generator().manual_seed(0)
    for weight in stock.parameters():
        weight.data.copy_(torch.randn(weight.shape, generator=stream) * 0.3)
    return stock.double().eval()


@pytest.mark.parametrize("name", HIERARCHICAL)
def test_layers_of_other_units_than_patches_are_explained_at_the_pixels(name: str) -> None:
    stock = hierarchical(name)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for method, options in {"attn_lrp": {}, "cp_lrp": {}, "lrp": {"book": "z_plus"}, "input_x_gradient": {}}.items():
        together = whyformer.attribute(stock, {"pixel_values": images}, method, target=0, **options)
        assert together.shape == (2, 64)
        for row in range(2):
            alone = whyformer.attribute(stock, {"pixel_values": images[row : row + 1]}, method, target=0, **options)
            assert_close(together[row], alone[0], 1e-10)
    report = whyformer.list_methods()["lrp"](
        Prediction(stock, batch_of(stock, {"pixel_values": images}), 0, relevance=True), book="z_plus"
    ).diagnostics["conservation"]
    assert_close(report["sum"] + report["absorbed"], report["expected"], 1e-6)  # rules divide by sums plus 1e-9


class Pooled(nn.Module):
    """Patches, each divided by its length, pooled by a function."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.patches, self.head, self.pool = nn.Conv2d(3, 6, 4, 4), nn.Linear(6, 3), pool
        self.config = type("Config", (), {"num_labels": 3, "id2label": {0: "a", 1: "b", 2: "c"}})()

    def forward(self, pixel_values: Tensor) -> Any:
        states = F.normalize(self.patches(pixel_values).flatten(2).mT, dim=-1)
        logits = self.head(self.pool(states.mT).flatten(1))
        return transformers.modeling_outputs.ImageClassifierOutput(logits=logits)


POOLS = {
    "adaptive": lambda states: F.adaptive_avg_pool1d(states, 1),
    "mean": lambda states: states.mean(-1),
    "windows": lambda states: F.avg_pool1d(states, states.shape[-1]),
    "maximum": lambda states: states.max(-1).values,
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("book", ["z_plus", "attn", "epsilon"])
def test_pools_and_lengths(name: str, book: str) -> None:
    """Written out: by the shares of the summands, or where the maximum is; a length is a constant."""
    torch.manual_seed(0)
    stock = Pooled(POOLS[name]).double().eval()
    images = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    trace = whyformer.record(stock, {"pixel_values": images})
    found = trace.relevance(trace.pixels, book, TARGET)
    if book == "attn":
        states = stock.patches(leaf := images.clone().requires_grad_()).flatten(2).mT
        lengths = states.norm(dim=-1, keepdim=True).detach()
        logits = stock.head(stock.pool((states / lengths).mT).flatten(1))
        (gradient,) = torch.autograd.grad(logits[0, TARGET], leaf)
        assert_close(found, (leaf * gradient).detach(), 1e-10)
    elif name != "maximum":
        expected = whyformer.record(_with_pool(stock, "mean"), {"pixel_values": images})
        assert_close(found, expected.relevance(expected.pixels, book, TARGET), 1e-10)
    assert bool(torch.isfinite(found).all())


def _with_pool(stock: Pooled, name: str) -> Pooled:
    other = Pooled(POOLS[name]).double().eval()
    other.load_state_dict(stock.state_dict())
    return other
