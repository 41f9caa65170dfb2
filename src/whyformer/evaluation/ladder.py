"""Measuring on texts that are short enough, one step longer each time, and what longer ones would take by that."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whyformer.errors import WhyformerError
from whyformer.models.memory import peak_memory
from whyformer.progress import report
from whyformer.results.cost import Basis, Cost

STEPS = (16, 32, 64, 128, 256)  # tokens; longer texts are not run
RUNS = 3  # of which the quickest counts
ENOUGH = 0.2  # seconds; after so many there is no further run

Call = Callable[[], object]


@dataclass(frozen=True)
class Point:
    """What one length took: the quickest of a few runs, and the peak of memory in bytes."""

    units: int
    seconds: float
    memory: int | None


def steps_to(asked: Sequence[int]) -> tuple[int, ...]:
    """The lengths to run for those that are asked for: the shorter steps, and what is asked for if it is short."""
    below = {step for step in STEPS if step < max(asked)}
    return tuple(sorted(below | {units for units in asked if units <= STEPS[-1]}))


class Budget:
    """A time that several workloads share: each has an equal part, and what those before it left over."""

    def __init__(self, seconds: float, workloads: int):
        self.part, self.left_over = seconds / workloads, 0.0

    def begin(self) -> Callable[[], float]:
        """For the next workload: a function that says how many of its seconds are left."""
        end = time.perf_counter() + self.part + self.left_over

        def left() -> float:
            self.left_over = max(0.0, end - time.perf_counter())
            return self.left_over

        return left


def climb(
    prepare: Callable[[int], Call],
    lengths: Sequence[int],
    left: Callable[[], float],
    device: torch.device,
    known: Sequence[Tensor],
    free: int | None,
) -> list[Point]:
    """Measure one length after the other, as long as there is time, and memory, for the next; the first in any case.

    An error at the first length is raised; at another it ends the measuring.
    """
    points: list[Point] = []
    for number, units in enumerate(lengths):
        try:
            points.append(measure(prepare(units), units, device, known))
        except (WhyformerError, torch.OutOfMemoryError):
            if not points:
                raise
            break
        report(number + 1, len(lengths))
        if number + 1 < len(lengths) and not _affordable(points[-1], lengths[number + 1], left(), free):
            break
    return points


def _affordable(last: Point, units: int, seconds: float, free: int | None) -> bool:
    """Whether there will be time and memory for a longer text, which is run twice: for each of them.

    It is taken to need time in proportion, and memory in proportion to its square.
    """
    longer = units / last.units
    fits = last.memory is None or free is None or last.memory * longer**2 <= free
    return fits and 2 * last.seconds * longer <= seconds


def measure(call: Call, units: int, device: torch.device, known: Sequence[Tensor]) -> Point:
    """What a call takes. The memory is that of a first run; time is taken without looking at memory."""
    memory = peak_memory(call, device, known)
    return Point(units, min(_times(call, device)), memory)


def _times(call: Call, device: torch.device) -> Iterator[float]:
    """Seconds of each of a few runs."""
    total = 0.0
    for _ in range(RUNS):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - start
        yield seconds
        total += seconds
        if total > ENOUGH:
            return


def cost_at(name: str, units: int, points: Sequence[Point]) -> Cost:
    """What a number of units takes, by what was measured."""
    lengths = tuple(point.units for point in points)
    for point in points:
        if point.units == units:
            return Cost(name, units, point.seconds, point.memory, "measured", lengths)
    seconds = extrapolated(lengths, [point.seconds for point in points], units)
    peaks = [point.memory for point in points if point.memory is not None]
    memory = round(extrapolated(lengths, peaks, units)) if len(peaks) == len(points) else None
    basis: Basis = "extrapolated" if len(points) > 2 else "at most"
    return Cost(name, units, seconds, memory, basis, lengths)


def extrapolated(lengths: Sequence[int], values: Sequence[float], units: int) -> float:
    """The value at `units` of a + b·n + c·n², with a, b, c ≥ 0, that is nearest to the values at the lengths.

    One or two values do not tell three numbers: then it is the highest that such a curve can be at a longer length,
    that of c·n² or a + c·n².
    """
    from scipy.optimize import nnls

    powers = {1: (2,), 2: (0, 2)}.get(len(lengths), (0, 1, 2))
    relative = np.array(lengths, dtype=np.float64) / lengths[-1]
    scale = max(values) or 1.0
    terms = np.stack([relative**power for power in powers], axis=1)
    factors, _ = nnls(terms, np.array(values, dtype=np.float64) / scale)
    at = np.array([(units / lengths[-1]) ** power for power in powers])
    return float(factors @ at) * scale
