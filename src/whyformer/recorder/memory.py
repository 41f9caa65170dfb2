"""Memory of a run: how much attention maps take before they are computed, and layers that are run again.

What cannot fit raises an error instead of being allocated. With `memory="low"` only the states between the layers are
kept, and each layer is run again in the backward pass.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from whyformer.errors import TooLarge, WhyformerError
from whyformer.models.cache import known
from whyformer.models.load import text_config
from whyformer.models.memory import free_memory
from whyformer.recorder.trace import Layers, Trace

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


FEW = 2  # units of a text that is run to see what the layers of a model are


def layer_paths(model: nn.Module, inputs: Mapping[str, Tensor], record: Callable[..., Trace]) -> tuple[str, ...]:
    """Return the paths of a model's layers, found on a few units of a text.

    There are none if the model does not have one stack of layers.
    """

    def find() -> tuple[str, ...]:
        try:
            layers = record(model, _few(inputs)).layers
        except (WhyformerError, ValueError, IndexError, RuntimeError):  # it may refuse so short a text
            layers = record(model, inputs).layers
        return layers.paths if isinstance(layers, Layers) else ()

    return known(model).once("paths of layers", find)


def _few(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The first units of the first example; an image as it is."""
    units = next((t.shape[1] for name, t in inputs.items() if name in ("input_ids", "inputs_embeds")), 0)
    return {
        name: tensor[:1, :FEW] if tensor.dim() > 1 and units and tensor.shape[1] == units else tensor[:1]
        for name, tensor in inputs.items()
    }


@contextmanager
def recomputed(
    model: nn.Module, paths: tuple[str, ...], again: Callable[[], AbstractContextManager[Any]]
) -> Iterator[None]:
    """Within it, layers keep nothing but what enters them; a backward pass runs each once more, under `again`.

    Their forward is exchanged for the time being, on the modules themselves.
    """
    with ExitStack() as stack:
        for path in dict.fromkeys(paths):
            layer = model.get_submodule(path)
            stack.callback(_put_back, layer, layer.__dict__.get("forward"))
            layer.forward = partial(_checkpointed, layer.forward, again)
        yield


def _put_back(layer: nn.Module, forward: Any) -> None:
    del layer.__dict__["forward"]
    if forward is not None:  # somebody else had exchanged it before
        layer.forward = forward


def _checkpointed(
    forward: Callable[..., Any], again: Callable[[], AbstractContextManager[Any]], *args: Any, **kwargs: Any
) -> Any:
    return checkpoint(
        forward,
        *args,
        use_reentrant=False,
        preserve_rng_state=False,  # a recorded model is in eval mode
        context_fn=lambda: (nullcontext(), again()),
        **kwargs,
    )
