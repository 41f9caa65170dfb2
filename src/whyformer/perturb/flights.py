"""Flights: batches that a GPU computes while Python goes on, and whose outputs land on the CPU later."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from whyformer.inputs.input import TensorInput
from whyformer.landing import Landing

AHEAD = {"cuda": 4}  # batches that a type of device has to do: it works on while Python reads the next examples
ENOUGH = {"cuda": 2**18}  # tokens: while there are fewer in all, twice as many batches may be on their way
STREAMS = 2  # that take turns


class Flight(NamedTuple):
    """Inputs, and their outputs, which land on the CPU."""

    inputs: Sequence[TensorInput]
    landing: Landing

    @property
    def tokens(self) -> int:
        """About how many there are, if the first input is as long as others."""
        return len(self.inputs) * len(self.inputs[0])

    @property
    def is_over(self) -> bool:
        """Whether the outputs are there."""
        return self.landing.is_over

    @property
    def outputs(self) -> Tensor:
        """The outputs, once they are there."""
        return self.landing.tensors[0]


class Flights:
    """The batches of one engine that are on their way, in order: at most `AHEAD`, or twice as many small ones.

    Models of transformers look at masks on the CPU, unless they are told that there is padding, and wait for whatever
    their stream has to do before. So streams take turns. Inputs are kept until their outputs are there: no memory is
    given to others that a stream still reads.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._most, self._enough = AHEAD.get(device.type, 0), ENOUGH.get(device.type, 0)
        self._flying: deque[Flight] = deque()
        self._launched = 0
        self._streams = _streams(device)

    @property
    def run_ahead(self) -> bool:
        """Whether Python goes on before a batch is computed."""
        return self._most > 0

    @property
    def count(self) -> int:
        """How many batches are on their way."""
        return len(self._flying)

    @property
    def has_room(self) -> bool:
        """Whether the device could do with something more."""
        return self._may_fly(len(self._flying) + 1)

    def begin(self) -> None:
        """What was asked of the device before, as changes to weights, is done before what is launched from now on."""
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(self.device))

    def join(self) -> None:
        """What was launched aside is done before what is launched from now on, and not aside."""
        for stream in self._streams:
            torch.cuda.current_stream(self.device).wait_stream(stream)

    def launch(self, inputs: Sequence[TensorInput], run: Callable[[], Tensor], *, aside: bool) -> None:
        """Compute the outputs of inputs; `aside`, on one of the streams that take turns, or else in line."""
        with self._stream() if aside else nullcontext():
            self._flying.append(Flight(inputs, Landing(run().double())))

    def arrived(self, most: int | None = None) -> Iterator[Flight]:
        """Those whose outputs are there; it is waited until at most so many, or as many as may be, are on their way."""
        while self._flying and (self._are_more_than(most) or self._flying[0].is_over):
            flight = self._flying.popleft()
            flight.landing.wait()
            yield flight

    def forget(self) -> None:
        """Let go of those that are on their way."""
        for _ in self.arrived(0):
            pass

    def _are_more_than(self, most: int | None) -> bool:
        count = len(self._flying)
        return not self._may_fly(count) if most is None else count > most

    def _may_fly(self, count: int) -> bool:
        """Whether so many may be on their way."""
        if self._most < count <= 2 * self._most:
            return sum(flight.tokens for flight in islice(self._flying, count - 1)) < self._enough
        return count <= self._most

    def _stream(self) -> AbstractContextManager[object]:
        if not self._streams:
            return nullcontext()
        self._launched += 1
        return torch.cuda.stream(self._streams[self._launched % len(self._streams)])


@lru_cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    """Those that take turns, the same for all engines: torch keeps memory for each stream."""
    return tuple(torch.cuda.Stream(device) for _ in range(STREAMS)) if device.type == "cuda" else ()
