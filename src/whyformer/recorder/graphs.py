"""Graphs: work of a GPU that is captured once, and then done again without Python."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def _uncollected() -> Iterator[None]:
    """Python collects no garbage here: a graph that nobody has any more may not be let go while another is captured."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


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
        """What is asked of the device here is noted, not done. Where that fails, the device is as it was before."""
        with _uncollected():
            try:
                with self._capturing() as graph:
                    before = torch.cuda.memory_reserved(self.device)
                    yield graph
                    self.memory += max(0, torch.cuda.memory_reserved(self.device) - before)
            except BaseException:
                with self._capturing():  # torch ends what a failed capture had begun, as that of random numbers
                    torch.zeros(1, device=self.device)
                raise

    @contextmanager
    def _capturing(self) -> Iterator[torch.cuda.CUDAGraph]:
        graph = torch.cuda.CUDAGraph()
        # other threads may go on allocating memory meanwhile
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            yield graph

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Behind whatever else was done with their memory, on any stream."""
        current = torch.cuda.current_stream(self.device)
        current.wait_event(self._used)
        yield
        self._used.record(current)
