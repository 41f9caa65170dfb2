"""The authors' own numbers of Mask-LRP, on a text classifier and three head masks."""

from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import whyformer
from tests.helpers.golden import DATA, assert_close, inputs, model
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction
from whyformer.recorder.lrp.head_gate import HeadGate
from whyformer.tolerance import close

CASE = "bert_cls"
CLOSE = 1e-6


@cache
def goldens() -> dict[str, Tensor]:
    return load_file(DATA / CASE / "mask_lrp.safetensors")


def keys(name: str) -> list[str]:
    return sorted(key for key in goldens() if f".masklrp.{name}." in key)


@cache
def recorded(name: str) -> Prediction:
    return Prediction(model(CASE), batch_of(model(CASE), inputs(CASE, name)), relevance=True)


def prediction(key: str) -> Prediction:
    name, target = key.split(".")[:2]
    return recorded(name).towards(int(target[1]))


def mask(key: str) -> Any:
    name = key.rsplit(".", 1)[1]
    return "off" if name == "none" else goldens()[f"head_mask.{name}"]


def gate(key: str) -> HeadGate | None:
    """The authors' mask on the relevance that enters each block's product of attention and values."""
    found = mask(key)
    return None if isinstance(found, str) else HeadGate(found.double()[None], rescaled=False)


@pytest.mark.parametrize("key", keys("MGAE"))
def test_scores(key: str) -> None:
    """Entry 0 was overwritten by the authors."""
    scores = whyformer.list_methods()["mask_lrp"](prediction(key), head_mask=mask(key), variant="authors").total[0]
    real = inputs(CASE, key.split(".")[0])["input_ids"][0] != model(CASE).config.pad_token_id
    real[0] = False
    assert_close(scores[real], goldens()[key][real], CLOSE)


@pytest.mark.parametrize("key", keys("attn_cam"))
def test_relevance_of_the_maps(key: str) -> None:
    given, masking = prediction(key), gate(key)
    book = "z_plus" if masking is None else given.traced.gated("z_plus", masking)
    found = given.relevances(book, whole=False).attention
    maps = found if masking is None else masking.maps(given.attention)
    assert_close(torch.cat(tuple(maps)), goldens()[key], CLOSE)


@pytest.mark.parametrize("key", keys("full_lrp"))
def test_relevance_at_the_embedding_output(key: str) -> None:
    """Entry 0 was overwritten by the authors."""
    given, masking = prediction(key), gate(key)
    state = given.relevances("z_plus" if masking is None else given.traced.gated("z_plus", masking)).state
    assert state is not None
    assert_close(state.sum(-1)[0, 1:], goldens()[key][1:], CLOSE)


def test_in_the_authors_code_the_first_layer_needs_no_mask() -> None:
    given, rand = prediction("x1.c1"), goldens()["head_mask.rand"]
    other = rand.clone()
    other[0] = 1 - other[0]
    method = whyformer.list_methods()["mask_lrp"]
    first, second = (method(given, head_mask=m, variant="authors").total for m in (rand, other))
    assert close(first, second)
    first, second = (method(given, head_mask=m).total for m in (rand, other))
    assert not torch.allclose(first, second)


def test_every_golden_is_used() -> None:
    assert [len(keys(name)) for name in ("MGAE", "attn_cam", "full_lrp")] == [7 * 3 * 4, 5 * 4, 7 * 3 * 2]
