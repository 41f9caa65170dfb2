"""Graphs of a CPU: what torch is asked for is noted and done again, as a CUDA graph does it, with tensors in place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from whyformer.recorder.capture import captures

WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero", "aten::masked_select")
CREATES = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty_strided")


class Tape(TorchDispatchMode):
    """Every operation with its tensors. To replay it is to do them again, with the results in the same tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name in WAITS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        result = func(*args, **(kwargs or {}))
        self.steps.append((func, args, kwargs or {}, tree_flatten(result)[0]))
        return result

    def replay(self) -> None:
        """Do it again, in place."""
        with torch.no_grad():
            for func, args, kwargs, results in self.steps:
                if func._schema.name in CREATES:
                    continue
                again = tree_flatten(func(*_plain(args), **_plain(kwargs)))[0]
                for old, new in zip(results, again, strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.data.copy_(new)


class Tapes:
    """In place of `Graphs`."""

    def __init__(self, device: torch.device):
        self.device, self.memory = device, 0
        self.is_waited_for = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """There is one stream."""
        yield

    @contextmanager
    def captured(self) -> Iterator[Tape]:
        """Note what is done; transformers looks at no mask then, and nobody at numbers."""
        tape = Tape()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("transformers.masking_utils.is_tracing", lambda tensor=None: True)
            for name in ("tolist", "numpy", "__bool__", "__int__", "__float__", "item"):
                patch.setattr(Tensor, name, _waits(name))
            with tape:
                yield tape
        self.memory += 1

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """There is one stream."""
        yield

    def wait(self) -> None:
        """Nothing is on its way."""
        self.is_waited_for = True


def _plain(arguments: Any) -> Any:
    """The same memory, of which autograd does not count who writes to it."""
    return tree_map(lambda one: one.data if isinstance(one, Tensor) else one, arguments)


def _waits(name: str) -> Callable[..., Any]:
    def wait(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"operation not permitted when stream is capturing: {name}")

    return wait


@contextmanager
def on_the_cpu() -> Iterator[None]:
    """Runs on a CPU are captured here, as those on a GPU are; numbers there count as far away."""
    captures.release()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captures, "Graphs", Tapes)
        patch.setattr(captures, "DEVICES", ("cuda", "cpu"))
        for module in ("recorder.recording", "recorder.attention", "recorder.lrp.rules"):
            patch.setattr(f"whyformer.{module}.is_far", lambda tensor: True)
        yield
    captures.release()
