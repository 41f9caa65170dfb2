"""Streams of a GPU as vector clocks: whether what is read on one is done behind what made it, wherever that was."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from whyformer.async_copy import Landing
from whyformer.perturb import engine

Moment = tuple["Stream", int]


class Stream:
    """Knows, of every stream, up to which moment it waited for it."""

    def __init__(self, name: str):
        self.name, self.clock = name, dict[Stream, int]()

    def wait_stream(self, other: "Stream") -> None:
        for stream, time in other.clock.items():
            self.clock[stream] = max(self.clock.get(stream, 0), time)

    def moment(self) -> Moment:
        """Something is done on it."""
        self.clock[self] = self.clock.get(self, 0) + 1
        return self, self.clock[self]

    def is_behind(self, moment: Moment) -> bool:
        return self.clock.get(moment[0], 0) >= moment[1]


class TorchWith:
    """The torch module, with another `torch.cuda`."""

    def __init__(self, cuda: Any):
        self.cuda = cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class Streams:
    """A GPU in place of the CPU, on which nothing is over before it was asked about a few times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, patience: int):
        self._stack = [Stream("default")]
        self.aside = (Stream("aside 0"), Stream("aside 1"))
        cuda: Any = SimpleNamespace(stream=self.entered, current_stream=lambda device: self.current)
        monkeypatch.setattr(engine, "torch", TorchWith(cuda))
        monkeypatch.setattr(engine, "_streams", lambda device: self.aside)
        monkeypatch.setitem(engine.AHEAD, "cpu", 4)

        class LateLanding(Landing):
            def __init__(self, *tensors: torch.Tensor):
                super().__init__(*tensors)
                self._queries = patience

            @property
            def is_over(self) -> bool:
                self._queries -= 1
                return self._queries < 0

            def wait(self) -> None:
                self._queries = 0

        monkeypatch.setattr(engine, "Landing", LateLanding)

    @property
    def current(self) -> Stream:
        return self._stack[-1]

    @contextmanager
    def entered(self, stream: Stream) -> Iterator[None]:
        """In it, this is the current one."""
        self._stack.append(stream)
        try:
            yield
        finally:
            self._stack.pop()
