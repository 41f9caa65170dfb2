"""Work that may not fit into the memory of a device."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch

from whyformer.recorder.capture.captures import release


class Sliceable(Protocol):
    """A list or a tensor: slices of it are of the same kind."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


S = TypeVar("S", bound=Sliceable)


def in_halves(work: Callable[[S], object], items: S) -> None:
    """Do the work on all items at once. If memory runs out, do it on each half, down to single items."""
    try:
        work(items)
        return
    except torch.OutOfMemoryError:
        if len(items) < 2:
            raise
    # The failed call is over, so nothing holds its tensors any more.
    release()
    torch.cuda.empty_cache()
    half = len(items) // 2
    in_halves(work, items[:half])
    in_halves(work, items[half:])
