"""What attention maps take, known before they are computed; and an error in place of an allocation that cannot fit."""

from typing import Any

import torch
from torch import nn

from whyformer.errors import TooLarge
from whyformer.models.loading import text_config
from whyformer.models.memory import free_memory

SPARSE = ("attention_window", "attn_layers", "block_size", "block_sizes")  # of models without a map of all pairs


def maps_estimate(model: nn.Module, batch: int, units: int, copies: float) -> int | None:
    """Bytes of the attention maps of all layers, `copies` of each; None for a model whose shape is not known.

    Maps are [batch, heads, units, units] in each layer, in float32 where the model computes in half precision. The
    numbers are those of the configuration: an encoder with a decoder has more maps than are counted here.
    """
    config = text_config(model)
    layers, heads = _attention_layers(config), _count(config, "num_attention_heads")
    parameter = next(model.parameters(), None)
    if layers is None or heads is None or parameter is None or any(getattr(config, name, None) for name in SPARSE):
        return None
    itemsize = torch.promote_types(parameter.dtype, torch.float32).itemsize if parameter.is_floating_point() else 4
    return round(batch * heads * units**2 * itemsize * copies * layers)


def _attention_layers(config: Any) -> int | None:
    """How many layers compute attention maps: of a model that mixes kinds of layers, those that its names tell."""
    kinds = getattr(config, "layer_types", None) or ()
    attending = sum("attention" in kind and "linear" not in kind for kind in kinds)
    return attending or _count(config, "num_hidden_layers")


def _count(config: Any, name: str) -> int | None:
    """A number of the configuration; None where there is none, or one for each stage."""
    number = getattr(config, name, None)
    return number if isinstance(number, int) and number > 0 else None


def check_fits(estimate: int | None, device: torch.device, what: str) -> None:
    """Raise `TooLarge` if an estimate is more than is free on a device; what is not known is taken to fit.

    `what` is what was asked for, as a message begins: "rollout of 1 text of 8192 tokens".
    """
    if estimate is None:
        return
    free = free_memory(device)
    if free is not None and estimate > free:
        raise TooLarge(
            f"{what} would take about {_gib(estimate)} GiB for attention maps, and {_gib(free)} GiB are free on "
            f"{device}: take a method that needs no maps (attn_lrp, layer_lrp), a shorter text or a smaller batch, or "
            "memory='low'"
        )


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f}" if count >= 2**30 / 10 else f"{count / 2**30:.2g}"
