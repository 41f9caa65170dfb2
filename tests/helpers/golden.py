"""The stored cases: each a small model, its inputs, and the numbers that the authors' own code gave on them."""

from functools import cache
from pathlib import Path

import torch
import transformers as hf
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

DATA = Path(__file__).parents[1] / "golden" / "data"
LOADERS = {
    "cls": hf.AutoModelForSequenceClassification,
    "qa": hf.AutoModelForQuestionAnswering,
    "lm": hf.AutoModelForCausalLM,
}


@cache
def model(case: str, attention: str | None = None) -> PreTrainedModel:
    loader = hf.AutoModelForImageClassification if case == "vit_cls" else LOADERS[case.split("_")[1]]
    return loader.from_pretrained(DATA / case, dtype=torch.float64, attn_implementation=attention)


@cache
def goldens(case: str) -> dict[str, Tensor]:
    return load_file(DATA / case / "goldens.safetensors")


def inputs(case: str, name: str) -> dict[str, Tensor]:
    kinds = ("input_ids", "attention_mask", "pixel_values")
    return {kind: goldens(case)[f"{name}.{kind}"] for kind in kinds if f"{name}.{kind}" in goldens(case)}


def stored(case: str, name: str) -> list[str]:
    """The keys of a case that end with a name."""
    return sorted(key for key in goldens(case) if key.split(".", 2)[-1] == name or key.split(".", 1)[1] == name)


def assert_close(found: Tensor, golden: Tensor, tolerance: float) -> None:
    """The distance is relative to the golden's peak."""
    assert found.shape == golden.shape
    assert (found - golden).abs().max() <= tolerance * golden.abs().max()
