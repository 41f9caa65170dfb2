"""Dropping units of an image: the model goes on without them from its first layer on."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.errors import BadOption, WhyformerError, reason_of
from whyformer.inputs.images import ImageInput
from whyformer.inputs.input import TensorInput
from whyformer.models.cache import known
from whyformer.recorder import record
from whyformer.recorder.function_mode import in_this_thread


def dropping(model: nn.Module, inputs: Sequence[TensorInput]) -> AbstractContextManager[Any]:
    """In it, a model that is run on these images does without the units that are gone, behind their positions.

    The images of a batch have equally many units left.
    """
    first = inputs[0]
    if not isinstance(first, ImageInput) or first.gone is None:
        return nullcontext()
    left = np.stack([np.flatnonzero(~one.gone) for one in inputs if one.gone is not None])
    return _Dropping(model, _first_layer(model, first), torch.from_numpy(left), len(first))


def _first_layer(model: nn.Module, image: ImageInput) -> int:
    """Return the number of the first layer among the calls of numbered modules."""

    def find() -> int:
        layers = record(model, {"pixel_values": image.pixels}, relevance=False).layers
        if isinstance(layers, WhyformerError):
            raise BadOption(f"hide='drop' is not possible, {layers}: use hide='mean'") from layers
        return layers.calls[0]

    return known(model).once("call of the first layer", find)


class _Dropping(ExitStack):
    """Takes units out of what enters the first layer, through hooks that are gone afterwards."""

    def __init__(self, model: nn.Module, first: int, left: Tensor, units: int):
        super().__init__()
        self.model, self.first, self.left, self.units = model, first, left, units
        self.calls, self.dropped = 0, False

    def __enter__(self) -> Self:
        for path, module in self.model.named_modules():
            if path.rpartition(".")[2].isdigit():
                self.enter_context(module.register_forward_pre_hook(in_this_thread(self._enter), with_kwargs=True))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        super().__exit__(kind, error, trace)
        fails = isinstance(error, RuntimeError | ValueError | IndexError) and not isinstance(
            error, torch.OutOfMemoryError | WhyformerError
        )
        if fails or (error is None and not self.dropped):
            why = reason_of(error) if fails else "its first layer was not given all units"
            name = type(self.model).__name__
            raise BadOption(
                f"hide='drop' is not possible: {name} needs all its units ({why}); use hide='mean'"
            ) from error
        return None

    def _enter(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        number, self.calls = self.calls, self.calls + 1
        if number != self.first:
            return None
        return tuple(map(self._left, args)), {name: self._left(value) for name, value in kwargs.items()}

    def _left(self, value: Any) -> Any:
        """States [batch, units, width] without the units that are gone; anything else as it is."""
        if not isinstance(value, Tensor) or value.dim() != 3 or value.shape[1] != self.units:
            return value
        self.dropped = True
        places = self.left.to(value.device)[:, :, None].expand(-1, -1, value.shape[2])
        return value.gather(1, places)
