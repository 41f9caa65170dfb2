"""Layers that are run again in the backward pass, so that only the states between them are kept."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from whyformer.errors import WhyformerError
from whyformer.recorder.trace import Layers, Trace

FEW = 2  # units of a text that is run to see what the layers of a model are

_PATHS: "weakref.WeakKeyDictionary[nn.Module, tuple[int, tuple[str, ...]]]" = weakref.WeakKeyDictionary()


def layer_paths(model: nn.Module, inputs: Mapping[str, Tensor], record: Callable[..., Trace]) -> tuple[str, ...]:
    """The paths of a model's layers, found once on a few units of a text, and again when modules were added or removed.

    There are none if the model does not have one stack of layers.
    """
    modules = sum(1 for _ in model.modules())
    if model not in _PATHS or _PATHS[model][0] != modules:
        try:
            layers = record(model, _few(inputs)).layers
        except (WhyformerError, ValueError, IndexError, RuntimeError):  # it may refuse so short a text
            layers = record(model, inputs).layers
        _PATHS[model] = modules, layers.paths if isinstance(layers, Layers) else ()
    return _PATHS[model][1]


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
