"""The authors' own numbers on an image classifier.

The reference takes its softmax in float64 and transformers' eager ViT in float32, so the model runs with `sdpa`, which
the recorder computes in the model's own precision.
"""

from typing import Any

import pytest
import torch

import whyformer
from tests.helpers.golden import assert_close, goldens, inputs, model, stored
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction

CASE = "vit_cls"
IMAGES = ("x0", "x1", "x2")
MAPS = ("x0", "x1")  # the stored attention maps, with their gradients and relevances

# golden -> method, options, tolerance. All are patches alone, without [CLS].
CLASS_AGNOSTIC: dict[str, tuple[str, dict[str, Any], float]] = {
    "chefer.rollout": ("rollout", {}, 1e-10),
    "chefer.rollout.start1": ("rollout", {"first_layer": 1}, 1e-10),
}
# Relevances: seen up to 5e-6 at the pixels and 1.5e-6 in the scores. Where a number is used twice, the authors divide
# its relevance by it and multiply again, with a stabiliser: a test below puts that in, and 1e-7 is left.
CLASS_SPECIFIC: dict[str, tuple[str, dict[str, Any], float]] = {
    "chefer.last_layer_attn": ("raw_attention", {}, 1e-10),
    "chefer.cam_attn_gradcam": ("grad_cam", {}, 1e-9),
    "gae.generate_relevance": ("gae", {}, 1e-10),
    "chefer.last_layer": ("partial_lrp", {"book": "z_plus"}, 1e-6),
    "chefer_orig.last_layer": ("partial_lrp", {"book": "alpha_beta"}, 1e-6),
    "chefer.transformer_attribution": ("transformer_attribution", {}, 1e-5),
    "chefer.transformer_attribution.start1": ("transformer_attribution", {"first_layer": 1}, 1e-6),
    "chefer.last_layer.ablation": ("transformer_attribution", {"block": 2}, 1e-6),
    "chefer.second_layer": ("transformer_attribution", {"block": 1, "weight": "none"}, 1e-6),
    "chefer.second_layer.ablation": ("transformer_attribution", {"block": 1, "weight": "gradient"}, 1e-6),
    "chefer.lrp_rollout": ("transformer_attribution", {"weight": "none"}, 1e-6),
}


@pytest.mark.parametrize("golden", CLASS_AGNOSTIC)
def test_class_agnostic_methods(golden: str) -> None:
    method, options, tolerance = CLASS_AGNOSTIC[golden]
    for name in IMAGES:
        scores = whyformer.attribute(model(CASE, "sdpa"), inputs(CASE, name), method, **options)[0]
        assert_close(scores[1:], goldens(CASE)[f"{name}.{golden}"], tolerance)


@pytest.mark.parametrize("golden", CLASS_SPECIFIC)
@pytest.mark.parametrize("name", IMAGES)
def test_class_specific_methods(name: str, golden: str) -> None:
    method, options, tolerance = CLASS_SPECIFIC[golden]
    for target in range(3):
        scores = whyformer.attribute(model(CASE, "sdpa"), inputs(CASE, name), method, target=target, **options)[0]
        expected = goldens(CASE)[f"{name}.c{target}.{golden}"].flatten()
        if expected.isnan().any():  # 0/0 in the authors' code: a map of zeros
            assert not scores.any()
        else:
            assert_close(scores[1:], expected, tolerance)


@pytest.mark.parametrize(("book", "prefix"), [("z_plus", "chefer"), ("alpha_beta", "chefer_orig")])
@pytest.mark.parametrize("name", MAPS)
def test_ablations_by_book(name: str, book: str, prefix: str) -> None:
    """One block alone, from the authors' own maps: they ran that of the last block with the original LRP."""
    for target in range(3):
        maps = goldens(CASE)[f"{name}.c{target}.{prefix}.attn_cam"]
        gradients = goldens(CASE)[f"{name}.c{target}.attn_grad"]
        for block, (relevances, gradient) in enumerate(zip(maps, gradients, strict=True)):
            expected = (relevances * gradient).clamp(min=0).mean(0)[0, 1:]
            given = model(CASE, "sdpa"), inputs(CASE, name), "transformer_attribution"
            scores = whyformer.attribute(*given, target=target, block=block, book=book)[0]
            assert_close(scores[1:], expected, 1e-5)


@pytest.mark.parametrize(("book", "prefix"), [("z_plus", "chefer"), ("alpha_beta", "chefer_orig")])
@pytest.mark.parametrize("name", IMAGES)
def test_relevance_of_pixels(name: str, book: str, prefix: str) -> None:
    trace = whyformer.record(model(CASE, "sdpa"), inputs(CASE, name))
    assert trace.pixels is not None
    for target in range(3):
        golden = goldens(CASE)[f"{name}.c{target}.{prefix}.full"]
        assert_close(trace.relevance(trace.pixels, book, target).sum(1)[0], golden, 1e-5)
        batch = batch_of(model(CASE, "sdpa"), inputs(CASE, name))
        prediction = Prediction(model(CASE, "sdpa"), batch, target, trace=trace)
        scores = whyformer.list_methods()["lrp"](prediction, book=book)
        assert_close(scores.diagnostics["pixels"][0], golden, 1e-5)
        by_patch = golden.unfold(0, 8, 8).unfold(1, 8, 8).sum((-1, -2)).flatten()
        assert_close(scores.total[0, 1:], by_patch, 1e-5)
        assert scores.total[0, 0] == 0  # [CLS] has no pixels


@pytest.mark.parametrize("name", IMAGES)
def test_trace(name: str) -> None:
    golden = goldens(CASE)
    trace = whyformer.record(model(CASE, "sdpa"), inputs(CASE, name))
    assert_close(trace.logits, golden[f"{name}.ref.logits"], 1e-10)
    assert_close(torch.cat(trace.attention), golden[f"{name}.attn"], 1e-10)
    if name in MAPS:
        assert_close(torch.cat(trace.hidden), golden[f"{name}.hf.hidden_states"], 1e-6)  # transformers, eager
        for target in range(3):
            prefix = f"{name}.c{target}"
            assert_close(torch.cat(trace.gradient(trace.attention, target)), golden[f"{prefix}.attn_grad"], 1e-10)
            maps = torch.cat(trace.relevance(trace.attention, "z_plus", target))
            assert_close(maps, golden[f"{prefix}.chefer.attn_cam"], 1e-6)
            maps = torch.cat(trace.relevance(trace.attention, "alpha_beta", target))
            assert_close(maps, golden[f"{prefix}.chefer_orig.attn_cam"], 1e-5)


@pytest.mark.parametrize(("book", "prefix"), [("z_plus", "chefer"), ("alpha_beta", "chefer_orig")])
def test_with_the_authors_stabiliser_at_copies_the_relevances_are_theirs(book: str, prefix: str) -> None:
    """`x (R₁ / (x + 1e-9) + R₂ / (x + 1e-9))` for a number that two functions take, as what a block adds up is."""
    trace = whyformer.record(model(CASE, "sdpa"), inputs(CASE, "x1"))
    handles = []
    for site in trace.sites:
        if site.kind == "add":
            factor = site.value / (site.value + 1e-9)
            handles.append(site.node.register_prehook(lambda sent, f=factor: (sent[0] * f, *sent[1:])))
    for target in range(3):
        *maps, pixels = trace.relevance((*trace.attention, trace.pixels), book, target)
        assert_close(torch.cat(maps), goldens(CASE)[f"x1.c{target}.{prefix}.attn_cam"], 1e-7)
        assert_close(pixels.sum(1)[0], goldens(CASE)[f"x1.c{target}.{prefix}.full"], 1e-7)
    for handle in handles:
        handle.remove()


def test_the_stock_model_is_near() -> None:
    """Loaded as it comes, its softmax may be that of transformers in float32."""
    for target in range(3):
        golden = goldens(CASE)[f"x0.c{target}.chefer.transformer_attribution"]
        for attention in ("sdpa", "eager"):
            given = model(CASE, attention), inputs(CASE, "x0"), "transformer_attribution"
            assert_close(whyformer.attribute(*given, target=target)[0, 1:], golden, 1e-3)


def test_every_golden_is_used() -> None:
    for golden in CLASS_AGNOSTIC:
        assert len(stored(CASE, golden)) == 3
    for golden in (*CLASS_SPECIFIC, "chefer.full", "chefer_orig.full"):
        assert len(stored(CASE, golden)) == 9
    counted = {"pixel_values": 3, "ref.logits": 3, "attn": 3, "hf.hidden_states": 2}
    counted |= dict.fromkeys(("attn_grad", "chefer.attn_cam", "chefer_orig.attn_cam"), 6)
    assert {name: len(stored(CASE, name)) for name in counted} == counted
    assert len(goldens(CASE)) == 2 * 3 + 13 * 9 + sum(counted.values())
