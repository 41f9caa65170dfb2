"""What a model is given: tensors that go together, checked before it is run."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.errors import BadInput, NoAttention, UnsupportedModel
from whyformer.load import text_config
from whyformer.recorder.failures import FLEX

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
    sizes = {name: t.shape[0] for name, t in inputs.items() if isinstance(t, Tensor) and t.dim()}
    if not sizes or len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise BadInput(f"inputs need one batch size; found {sizes or 'no tensors'}")
    if torch.get_default_device().type == "meta":
        raise BadInput("torch's default device is meta, which holds no numbers: torch.set_default_device('cpu')")
    ids = inputs.get("input_ids")
    name = type(model).__name__
    if getattr(text_config(model), "_attn_implementation", None) == "flex_attention" and not torch.cuda.is_available():
        raise NoAttention(f"{name} cannot be explained: {FLEX}")  # it would be compiled first, and then fail
    if name.endswith("ForMultipleChoice") or (isinstance(ids, Tensor) and ids.dim() == 3):
        found = "" if ids is None else f"; found input_ids of shape {tuple(ids.shape)}"
        raise UnsupportedModel(
            f"{name}: models that choose among several texts are not supported yet; needed is one text for each "
            f"example, [batch, units]{found}"
        )
    _check_mask(inputs.get("attention_mask"), ids if ids is not None else inputs.get("inputs_embeds"))
    return next(iter(sizes.values()))


def _check_mask(mask: Tensor | None, content: Tensor | None) -> None:
    if mask is None or content is None:
        return
    units = content.shape[1]
    fits = mask.shape == content.shape[:2] if mask.dim() == 2 else mask.dim() in (3, 4) and mask.shape[-1] == units
    if not fits:
        due = tuple(content.shape[:2])
        raise BadInput(f"attention_mask has the shape {tuple(mask.shape)} for tokens of shape {due}: give one for each")
    if mask.is_floating_point() and bool(mask.isnan().any()):
        raise BadInput("attention_mask holds NaN: give 1 for a token that is attended to, 0 for padding")
    if mask.dim() == 2 and not bool(mask.any(-1).all()):
        rows = mask.any(-1).logical_not().nonzero().flatten().tolist()
        raise BadInput(
            f"no token of {'example' if len(rows) == 1 else 'examples'} {', '.join(map(str, rows[:5]))}"
            f"{' …' if len(rows) > 5 else ''} is attended to: leave {'it' if len(rows) == 1 else 'them'} out"
        )
