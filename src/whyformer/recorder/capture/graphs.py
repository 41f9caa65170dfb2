"""Graphs: work of a GPU that is captured once, and then done again without Python."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch

from whyformer.models.memory import uncollected

ATTEMPTS = 3  # an error of the failed capture may be told to the next one


def _stream_restored(device: torch.device) -> AbstractContextManager[Any]:
    """Behind it the stream is the one that is now, which torch forgets where a capture fails."""
    return torch.cuda.stream(torch.cuda.current_stream(device))


def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream to capture on. Torch hands out the same 32 of each priority again and again: nobody else takes these."""
    return torch.cuda.Stream(device, priority=-1)


def _capturing(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, **memory: Any) -> AbstractContextManager[Any]:
    """What is asked of a stream is noted; other threads may go on allocating memory meanwhile."""
    return torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local", **memory)


def _end_capture(device: torch.device) -> None:
    """End what a failed capture had begun, as that of random numbers: torch does so behind one that does not fail."""
    for _ in range(ATTEMPTS):
        with suppress(RuntimeError), _stream_restored(device):
            with _capturing(torch.cuda.CUDAGraph(), _capture_stream(device)):
                torch.zeros(1, device=device)
            return


class Graphs:
    """CUDA graphs that share memory of their own: what one computes, later ones read.

    A later one may be replayed as often as one likes once those that it reads from were.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.memory = 0  # bytes that are held
        self._stream = _capture_stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._used = torch.cuda.Event()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """On the stream that is captured, behind what was asked for before, and ahead of what comes next."""
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    @contextmanager
    def captured(self) -> Iterator[torch.cuda.CUDAGraph]:
        """What is asked of the device here is noted, not done. Where that fails, the device is as it was before."""
        graph = torch.cuda.CUDAGraph()
        # freeing a graph during a capture would spoil the capture
        with uncollected(strict=True), _stream_restored(self.device):
            try:
                with _capturing(graph, self._stream, pool=self._pool):
                    before = torch.cuda.memory_reserved(self.device)
                    yield graph
                    self.memory += max(0, torch.cuda.memory_reserved(self.device) - before)
            except BaseException:
                _end_capture(self.device)
                raise

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Behind whatever else was done with their memory, on any stream."""
        current = torch.cuda.current_stream(self.device)
        current.wait_event(self._used)
        yield
        self._used.record(current)

    def wait(self) -> None:
        """Wait until nobody reads their memory any more: another stream may be given it then."""
        self._used.synchronize()
