"""The authors' own numbers on text classifiers."""

from functools import cache
from typing import Any

import pytest
import torch

import whyformer
from tests.helpers.golden import assert_close, goldens, inputs, model
from whyformer.inputs.batch import batch_of
from whyformer.methods.attention import with_residual
from whyformer.methods.decomposition import _contributions
from whyformer.prediction import Prediction
from whyformer.recorder.lrp.value_paths import value_paths

CASES = ("bert_cls", "roberta_cls", "distilbert_cls")
SPECIAL = {"bert_cls": (101, 102), "roberta_cls": (0, 2), "distilbert_cls": (101, 102)}  # kept where they are masked

# golden -> method, options, tolerance, whether entry 0 was overwritten by the authors
CLASS_AGNOSTIC: dict[str, tuple[str, dict[str, Any], float, bool]] = {
    "chefer.raw_attention": ("raw_attention", {}, 1e-10, True),
    "chefer.rollout": ("rollout", {}, 1e-10, True),
    "chefer.rollout.start1": ("rollout", {"first_layer": 1}, 1e-10, True),
    "chefer.rollout.start2": ("rollout", {"first_layer": 2}, 1e-10, True),
    "attention_flow.flow_cls": ("attention_flow", {}, 1e-6, False),
    "alti.rollout": ("alti", {"distance_offset": 1e-6}, 1e-10, False),
}
# The authors' mean over queries counts padding; so does "all".
CLASS_SPECIFIC: dict[str, tuple[str, dict[str, Any], float, bool]] = {
    "attcat.generate_TransCAM": ("attcat", {"states": "inputs", "attention_query": "all"}, 1e-10, False),
    "derived.attcat": ("attcat", {"states": "inputs", "attention_query": "all"}, 1e-9, False),
    "derived.attcat_outputs": ("attcat", {"attention_query": "all"}, 1e-10, False),
    "derived.cat_outputs": ("cat", {}, 1e-10, False),
    "derived.cat_inputs": ("cat", {"states": "inputs"}, 1e-10, False),
    "derived.grad_sam": ("att_grads", {}, 1e-10, False),
    "chefer.attn_gradcam": ("grad_cam", {"over": "map"}, 1e-9, True),
    "masklrp.generate_gradcam": ("grads", {"query": "all", "positive": True}, 1e-10, True),
    "chefer.full_lrp": ("lrp", {"book": "z_plus"}, 1e-6, True),
    "chefer.partial_lrp": ("partial_lrp", {"book": "z_plus"}, 1e-6, True),
    # Where special tokens are masked these relevances grow to 500,000, and so does the authors' rounding.
    "chefer_orig.full_lrp": ("lrp", {}, 2e-6, True),
    "chefer_orig.partial_lrp": ("partial_lrp", {}, 1e-6, True),
    "chefer.transformer_attribution": ("transformer_attribution", {"row_normalised": True}, 1e-6, True),
    "chefer.transformer_attribution.start1": (
        "transformer_attribution",
        {"row_normalised": True, "first_layer": 1},
        1e-6,
        True,
    ),
    "chefer.transformer_attribution.start2": (
        "transformer_attribution",
        {"row_normalised": True, "first_layer": 2},
        1e-6,
        True,
    ),
    "gae.generate_ours": ("gae", {}, 1e-10, True),
    "derived.gae_row0": ("gae", {}, 1e-9, False),
    "lxt_explicit.attnlrp": ("attn_lrp", {"form": "epsilon"}, 1e-6, False),
}
UNPADDED = ("x0", "x1", "x2", "x5", "x6")  # on these the default, a mean over real queries, is the authors' mean too


def keys(table: dict[str, Any], *, with_class: bool) -> list[tuple[str, str, str]]:
    found = []
    for case in CASES:
        for key in sorted(goldens(case)):
            rest = key.split(".", 2)[2] if with_class and key.split(".")[1][0] == "c" else key.split(".", 1)[1]
            if rest in table:
                found.append((case, key, rest))
    return found


@cache
def prediction(case: str, name: str) -> Prediction:
    given = inputs(case, name)
    given["special_tokens_mask"] = sum(given["input_ids"] == i for i in SPECIAL[case])  # type: ignore[assignment]
    return Prediction(model(case), batch_of(model(case), given), relevance=True)


def compare(case: str, key: str, call: tuple[str, dict[str, Any], float, bool], target: int | None) -> None:
    method, options, tolerance, overwritten = call
    name = key.split(".")[0]
    scores = whyformer.list_methods()[method](prediction(case, name).towards(target), **options).total[0]
    golden = goldens(case)[key]
    golden = golden[-1, 0] if key.endswith("alti.rollout") else golden.flatten()  # all layers, read at the first token
    kept = inputs(case, name)["input_ids"][0] != model(case).config.pad_token_id
    assert not scores[~kept].any()
    kept[0] = not overwritten
    if golden.isnan().any():  # 0/0 in the authors' code: a map of zeros
        assert not scores.any()
    else:
        assert_close(scores[kept], golden[kept], tolerance)


@pytest.mark.parametrize(("case", "key", "golden"), keys(CLASS_AGNOSTIC, with_class=False))
def test_class_agnostic_methods(case: str, key: str, golden: str) -> None:
    compare(case, key, CLASS_AGNOSTIC[golden], None)


@pytest.mark.parametrize(("case", "key", "golden"), keys(CLASS_SPECIFIC, with_class=True))
def test_class_specific_methods(case: str, key: str, golden: str) -> None:
    compare(case, key, CLASS_SPECIFIC[golden], int(key.split(".")[1][1]))


@pytest.mark.parametrize("golden", ["attcat.generate_TransCAM", "derived.attcat_outputs", "masklrp.generate_gradcam"])
def test_without_padding_the_default_query_is_the_authors(golden: str) -> None:
    method, options, tolerance, overwritten = CLASS_SPECIFIC[golden]
    options = {k: "mean" if v == "all" else v for k, v in options.items()}
    for name in UNPADDED:
        compare("bert_cls", f"{name}.c1.{golden}", (method, options, tolerance, overwritten), 1)


def every_input() -> list[tuple[str, str]]:
    return [(case, key.split(".")[0]) for case in CASES for key in sorted(goldens(case)) if key.endswith("input_ids")]


@pytest.mark.parametrize(("case", "name"), every_input())
def test_trace(case: str, name: str) -> None:
    golden = goldens(case)
    trace = whyformer.record(model(case), inputs(case, name))
    assert_close(trace.logits, golden[f"{name}.hf.logits"], 1e-10)
    assert_close(torch.cat(trace.attention), golden[f"{name}.attn"], 1e-10)
    assert_close(torch.cat(trace.hidden), golden[f"{name}.hidden_states"], 1e-10)
    for target in range(3):
        gradients = trace.gradient(trace.attention, target), trace.gradient(trace.hidden, target)
        assert_close(torch.cat(gradients[0]), golden[f"{name}.c{target}.attn_grad"], 1e-10)
        assert_close(torch.cat(gradients[1]), golden[f"{name}.c{target}.hs_grad"], 1e-10)


@pytest.mark.parametrize("name", [f"x{i}" for i in range(7)])
@pytest.mark.parametrize("target", range(3))
def test_relevances(name: str, target: int) -> None:
    golden = goldens("bert_cls")
    trace = whyformer.record(model("bert_cls"), inputs("bert_cls", name))
    *maps, embedded = trace.relevance((*trace.attention, trace.hidden[0]), "z_plus", target)
    assert_close(torch.cat(maps), golden[f"{name}.c{target}.chefer.attn_cam"], 1e-6)
    assert_close(embedded[0], golden[f"{name}.c{target}.chefer.full_lrp_hidden"], 1e-6)
    maps = list(trace.relevance(trace.attention, "alpha_beta", target))
    assert_close(torch.cat(maps), golden[f"{name}.c{target}.chefer_orig.attn_cam"], 1e-6)


@pytest.mark.parametrize("name", [f"x{i}" for i in range(7)])
@pytest.mark.parametrize("target", range(3))
def test_rollout_of_transformer_attribution(name: str, target: int) -> None:
    """Every row, not only the reader's."""
    trace = whyformer.record(model("bert_cls"), inputs("bert_cls", name))
    pairs = zip(
        trace.gradient(trace.attention, target), trace.relevance(trace.attention, "z_plus", target), strict=True
    )
    first, *others = with_residual([(g * r).clamp(min=0).mean(1) for g, r in pairs])
    for matrix in others:
        first = matrix @ first
    assert_close(first[0], goldens("bert_cls")[f"{name}.c{target}.chefer.rollout_matrix"], 1e-6)


@pytest.mark.parametrize("name", ["x0", "x3", "x5"])
def test_attn_lrp_without_stabilisers_is_near_the_authors_explicit_form(name: str) -> None:
    """Up to 3e-4 of the peak on these inputs, and 2e-3 on all: their stabilisers, where numbers are small."""
    for target in range(3):
        scores = whyformer.attribute(model("bert_cls"), inputs("bert_cls", name), "attn_lrp", target=target)[0]
        golden = goldens("bert_cls")[f"{name}.c{target}.lxt_explicit.attnlrp"]
        real = inputs("bert_cls", name)["attention_mask"][0].bool()
        assert_close(scores[real], golden[real], 5e-4)


@pytest.mark.parametrize(("case", "name"), every_input())
def test_contributions_of_alti(case: str, name: str) -> None:
    """Of every unit to every other in each layer, padding among them."""
    golden = goldens(case)
    trace = whyformer.record(model(case), inputs(case, name))
    layers = zip(value_paths(trace), trace.attention, trace.values, strict=True)
    found = torch.cat([_contributions(path, a.detach(), v.detach(), 1e-6) for path, a, v in layers])
    assert_close(found, golden[f"{name}.alti.contributions"], 1e-10)
    joint = found[0]
    for layer, matrix in enumerate(found):
        joint = matrix if layer == 0 else matrix @ joint
        assert_close(joint, golden[f"{name}.alti.rollout"][layer], 1e-10)


@pytest.mark.parametrize(("case", "name"), every_input())
def test_alti_without_the_authors_offset(case: str, name: str) -> None:
    given = inputs(case, name)
    real = given["attention_mask"][0].bool()
    scores = whyformer.attribute(model(case), given, "alti")[0]
    assert_close(scores[real], goldens(case)[f"{name}.alti.rollout"][-1, 0][real], 1e-5)


def test_layers_are_those_of_the_authors() -> None:
    golden = goldens("bert_cls")
    given = prediction("bert_cls", "x3").towards(2)
    scores = whyformer.list_methods()["attcat"](given, states="inputs", attention_query="all")
    assert scores.layers is not None
    assert_close(scores.layers[:, 0], golden["x3.c2.derived.attcat_per_layer"], 1e-10)


def test_every_golden_is_used() -> None:
    assert len(keys(CLASS_AGNOSTIC, with_class=False)) == 7 * 3 + 1 + 7 + 4 + 4
    assert len(keys(CLASS_SPECIFIC, with_class=True)) == 16 * 3 * 7 + 2 * 2 * 4 * 3
    assert len(every_input()) == 7 + 4 + 4
