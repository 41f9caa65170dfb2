"""What a model is given: tensors that go together, checked before it is run."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.errors import BadInput, NoAttention
from whyformer.inputs.tensors import check_mask, check_one_text
from whyformer.models.failures import FLEX
from whyformer.models.loading import text_config

CONTENT = ("input_ids", "inputs_embeds", "pixel_values")  # one of them says how many examples there are


def expanded(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs, with positions [1, units] that transformers takes for all examples repeated for each."""
    batch = next((len(inputs[name]) for name in CONTENT if name in inputs and inputs[name].dim()), 1)
    return {
        name: tensor.expand(batch, *tensor.shape[1:]) if name == "position_ids" and len(tensor) == 1 else tensor
        for name, tensor in inputs.items()
    }


def check_inputs(model: nn.Module, inputs: Mapping[str, Any]) -> int:
    """Raise if tensors cannot be a batch of texts or images for this model; the number of examples."""
    ids = inputs.get("input_ids")
    check_one_text(ids)
    tokens = ids if ids is not None else inputs.get("inputs_embeds")
    if tokens is not None and "attention_mask" in inputs:
        check_mask(inputs["attention_mask"], tokens.shape[:2])
    sizes = {name: t.shape[0] for name, t in inputs.items() if isinstance(t, Tensor) and t.dim()}
    if not sizes or len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise BadInput(f"inputs need one batch size; found {sizes or 'no tensors'}")
    if torch.get_default_device().type == "meta":
        raise BadInput("torch's default device is meta, which holds no numbers: torch.set_default_device('cpu')")
    name = type(model).__name__
    if getattr(text_config(model), "_attn_implementation", None) == "flex_attention" and not torch.cuda.is_available():
        raise NoAttention(f"{name} cannot be explained: {FLEX}")  # it would be compiled first, and then fail
    return next(iter(sizes.values()))
