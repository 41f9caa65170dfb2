"""Graphs: work of a GPU that is captured once, and then done again without Python."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Graphs:
    """CUDA graphs that share memory of their own: what one computes, later ones read.

    A later one may be replayed as often as one likes once those that it reads from were.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.memory = 0  # bytes that are held
        self._stream = torch.cuda.Stream(device)
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
        """What is asked of the device here is noted, not done."""
        graph = torch.cuda.CUDAGraph()
        # other threads may go on allocating memory meanwhile
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            before = torch.cuda.memory_reserved(self.device)
            yield graph
            self.memory += max(0, torch.cuda.memory_reserved(self.device) - before)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Behind whatever else was done with their memory, on any stream."""
        current = torch.cuda.current_stream(self.device)
        current.wait_event(self._used)
        yield
        self._used.record(current)
