"""Models of timm: plain logits of a plain tensor, fused attention, heads of several kinds.

The models themselves are run where timm is installed; a small model with their interface is run everywhere.
"""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whyformer
from tests.helpers import timm_models, vision
from whyformer import BadInput, Explainer
from whyformer.errors import BadOption
from whyformer.models.load import processor_in
from whyformer.recorder import record
from whyformer.tolerance import close

WITHOUT = "needs timm in a folder of its own: make test puts it there"
STRICT = bool(os.environ.get("CI") or os.environ.get("WHYFORMER_STRICT"))
ONE_STACK = {  # special units, and units that the head reads
    "vit_tiny_patch16_224": ([0], [0]),
    "deit_tiny_distilled_patch16_224": ([0, 1], [0, 1]),
    "deit3_small_patch16_224": ([0], [0]),
    "vit_small_patch14_reg4_dinov2": ([0, 1, 2, 3, 4], [0]),
    "vit_medium_patch16_gap_240": ([], list(range(16))),
    "vit_base_patch16_clip_224": ([0], [0]),
    "vit_base_patch16_siglip_224": ([], list(range(16))),
    "beit_base_patch16_224": ([0], list(range(1, 17))),
    "eva02_tiny_patch14_224": ([0], list(range(1, 17))),
}


@cache
def facts() -> dict[str, Any]:
    """What was found in each model of timm, in a process of its own."""
    if not timm_models.FOLDER.is_dir():
        pytest.fail(WITHOUT) if STRICT else pytest.skip(WITHOUT)
    command = [sys.executable, "-m", "tests.helpers.timm_models"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", timm_models.MODELS)
def test_logits_and_units_of_timm(name: str) -> None:
    found = facts()[name]
    assert found["distance"] < 1e-4
    if name in ONE_STACK:
        special, read = ONE_STACK[name]
        assert found["layers"] == 2
        assert (found["special"], found["read"], found["grid"]) == (special, read, [4, 4])
    else:
        assert isinstance(found["layers"], str)
        assert found["special"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", timm_models.MODELS)
def test_methods_explain_timm_or_refuse_by_name(name: str) -> None:
    found = facts()[name]
    assert found["said"]["occlusion"] == found["best"]
    for method, said in found["said"].items():
        assert said == found["best"] or (said.startswith("refused: ") and (name not in ONE_STACK or method == "alti"))


class Block(nn.Module):
    """Pre-norm, with one projection for query, key and value, and fused attention."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32))
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0)
        else:
            mixed = ((q * 8**-0.5) @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Plain(nn.Module):
    """What models of timm look like: `forward(x)`, `blocks`, prefix units, and logits as a tensor."""

    def __init__(self, special: int = 1, pool: str = "token", fused: bool = True) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.pool, self.special = pool, special
        self.patch_embed = nn.Conv2d(3, 32, 8, 8)
        self.prefix = nn.Parameter(torch.randn(1, special, 32))
        self.pos_embed = nn.Parameter(torch.randn(1, 16, 32))
        self.blocks = nn.Sequential(*(Block(fused) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 4)
        self.head_dist = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
        states = self.norm(self.blocks(torch.cat((self.prefix.expand(len(x), -1, -1), patches), 1)))
        if self.pool == "avg":
            return self.head(states[:, self.special :].mean(1))
        if self.pool == "distilled":
            return (self.head(states[:, 0]) + self.head_dist(states[:, 1])) / 2
        return self.head(states[:, 0])


KINDS = {"token": (1, "token"), "registers": (5, "token"), "pooled": (0, "avg"), "distilled": (2, "distilled")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fused", [True, False])
def test_a_plain_model_with_blocks(kind: str, fused: bool) -> None:
    special, pool = KINDS[kind]
    model, pixels = Plain(special, pool, fused).eval(), vision.images(2)
    trace = record(model, {"pixel_values": pixels})
    with torch.no_grad():
        assert close(trace.logits.detach(), model(pixels))
    units = 16 + special
    assert [tuple(a.shape) for a in trace.attention] == [(2, 4, units, units)] * 2
    assert np.flatnonzero(~trace.patches.free).tolist() == list(range(special))
    read = {"token": [0], "avg": list(range(units)), "distilled": [0, 1]}[pool]
    assert trace.read_for()[0].nonzero().flatten().tolist() == read


@pytest.mark.parametrize("method", ["rollout", "attn_lrp", "cp_lrp", "transformer_attribution", "alti", "occlusion"])
def test_fused_and_plain_attention_are_explained_alike(method: str) -> None:
    pixels = {"pixel_values": vision.images(2).double()}
    fused, plain = (
        whyformer.attribute(Plain(2, "distilled", fused).double().eval(), pixels, method, target=1)
        for fused in (True, False)
    )
    assert close(fused, plain)


def test_a_transform_and_labels_make_an_explainer() -> None:
    labels = ["cat", "dog", "bird", "fish"]
    model, transform = Plain().eval(), lambda image: vision.images(1)[0]
    explainer = Explainer(model, transform, labels=labels)
    explanation = explainer.explain(np.zeros((20, 20, 3), dtype=np.uint8), "rollout", target="dog")
    assert explanation.prediction.labels == tuple(labels)
    assert explanation.target.name == "dog"
    with torch.no_grad():
        assert explanation.prediction.label == labels[int(model(vision.images(1)).argmax())]
    assert processor_in(transform) is transform


def test_labels_fit_the_outputs() -> None:
    image = np.zeros((20, 20, 3), dtype=np.uint8)
    with pytest.raises(whyformer.UnsupportedModel, match="4 outputs"):
        Explainer(Plain().eval(), lambda _: vision.images(1)[0], labels=["cat"]).explain(image, "rollout")
    with pytest.raises(BadOption, match="labels takes several of"):
        Explainer(Plain().eval(), lambda _: vision.images(1)[0], labels="cat")
    with pytest.raises(BadInput, match="an image processor, is needed"):
        Explainer(Plain().eval())
    unnamed = Explainer(Plain().eval(), lambda _: vision.images(1)[0]).explain(image, "rollout")
    assert unnamed.prediction.labels == ("0", "1", "2", "3")
