"""Layers that are run again in the backward pass, so that only the states between them are kept."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from whyformer.errors import WhyformerError
from whyformer.models.cache import known
from whyformer.recorder.trace import Layers, Trace

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
