"""What a GPU did during a call: how long it computed, and what; when it had nothing to do, what Python waited for."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

KINDS = {  # by a part of a kernel's name
    "attention": ("fmha", "attention", "softmax"),
    "matrix products": ("gemm", "cutlass", "gemv", "splitk"),
    "norms": ("layer_norm", "layernorm"),
    "copies": ("memcpy", "memset"),
}
OTHERS = "others"
LONG = 0.05  # seconds of a call of CUDA, which otherwise takes microseconds


class Event(NamedTuple):
    """A kernel, or a call of CUDA, from when to when, in seconds."""

    name: str
    start: float
    stop: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.stop - self.start

    @property
    def kind(self) -> str:
        """What a kernel computes."""
        name = self.name.lower()
        return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), OTHERS)


@dataclass(frozen=True)
class Profile:
    """The kernels of a call and its own calls of CUDA, and how many seconds it took in all."""

    kernels: Sequence[Event]
    calls: Sequence[Event]
    seconds: float

    @property
    def busy(self) -> list[tuple[float, float]]:
        """From when to when the GPU computed anything."""
        spans: list[tuple[float, float]] = []
        for _, start, stop in sorted(self.kernels, key=lambda kernel: kernel.start):
            if spans and start <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(stop, spans[-1][1])
            else:
                spans.append((start, stop))
        return spans

    def lines(self) -> Iterator[str]:
        """What people read; kernels that run beside each other are counted each."""
        busy = self.busy or [(self.seconds, self.seconds)]
        computed, first, last = sum(stop - start for start, stop in busy), busy[0][0], busy[-1][1]
        yield f"The GPU computed for {computed:.2f} s of {self.seconds:.2f}: it had nothing to do for {first:.2f} s"
        yield f"at the beginning, {self.seconds - last:.2f} s at the end, {last - first - computed:.2f} s in between."
        yield from _table("kernels", ((kernel.kind, kernel.seconds) for kernel in self.kernels))
        long = [(call.name, call.seconds) for call in self.calls if call.seconds >= LONG]
        if long:
            yield from _table(f"calls of {1000 * LONG:.0f} ms and more", long)


def _table(title: str, rows: Any) -> Iterator[str]:
    seconds, counts = Counter[str](), Counter[str]()
    for name, taken in rows:
        seconds[name] += taken
        counts[name] += 1
    yield f"\n| {title} | number | s |\n|---|---|---|"
    yield from (f"| {name} | {counts[name]:,} | {taken:.2f} |" for name, taken in seconds.most_common())


def profiled(call: Callable[[], object]) -> Profile:
    """What a GPU does during a call, which takes a little longer for it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        begun = time.time_ns()
        call()
        torch.cuda.synchronize()
        seconds = (time.time_ns() - begun) / 1e9
    found: dict[bool, list[Event]] = {True: [], False: []}
    for event in profiler.profiler.kineto_results.events():
        start = (event.start_ns() - begun) / 1e9
        is_kernel = event.device_type() == torch.profiler.DeviceType.CUDA
        found[is_kernel].append(Event(event.name(), start, start + event.duration_ns() / 1e9))
    return Profile(found[True], found[False], seconds)
