"""Memory of a device: how much is free, how much one call takes, and how much is run at once by default."""

import gc
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from whyformer.models.cache import known

LONGEST_PAUSE = 60  # seconds, after which `collect_now` collects old objects too
MUCH = 50_000  # new objects, above which `collect_now` collects these
GROUPS = Path("/sys/fs/cgroup")
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


class _Pauses:
    """The pauses of Python's garbage collector in all threads."""

    def __init__(self) -> None:
        self.lock = RLock()  # re-entrant, because a finalizer may pause the collector too
        self.open: list[bool] = []  # for each pause that has not ended, True if `collect_now` has to wait for its end
        self.was_enabled = True
        self.collected = 0.0


_PAUSES = _Pauses()


@contextmanager
def uncollected(*, strict: bool = False) -> Iterator[None]:
    """Pause Python's garbage collector. It resumes when the last pause of all threads ends, if it was enabled before.

    Garbage in cycles stays in memory meanwhile, unless some thread calls `collect_now`. That collects nothing during a
    `strict` pause.
    """
    with _PAUSES.lock:
        if not _PAUSES.open:
            _PAUSES.was_enabled, _PAUSES.collected = gc.isenabled(), time.monotonic()
            gc.disable()
        _PAUSES.open.append(strict)
    try:
        yield
    finally:
        with _PAUSES.lock:
            _PAUSES.open.remove(strict)
            if not _PAUSES.open and _PAUSES.was_enabled:
                gc.enable()


def collect_now() -> None:
    """Collect garbage during a pause: new objects if there are many, and all objects once a minute."""
    with _PAUSES.lock:  # no strict pause begins before it is done
        if not _PAUSES.open or any(_PAUSES.open) or not _PAUSES.was_enabled:
            return
        is_late = time.monotonic() - _PAUSES.collected > LONGEST_PAUSE
        if is_late:
            _PAUSES.collected = time.monotonic()
        if is_late or gc.get_count()[0] > MUCH:
            gc.collect(2 if is_late else 1)


def in_words(count: float) -> str:
    """Bytes for people: `512 B`, `12.3 MiB`, `1.4 GiB`."""
    for name, size in UNITS:
        if count >= size:
            return f"{count / size:,.0f} {name}" if count >= 100 * size else f"{count / size:.3g} {name}"
    return f"{count:.0f} B"


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated on a device; None where nobody can tell.

    On CUDA this includes what torch holds in reserve; on a CPU no more than the limits of the process's control groups
    leave.
    """
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(reserved)
    if device.type != "cpu":
        return None
    known = [free for free in (_available(), *_left_by_groups()) if free is not None]
    return min(known, default=None)


def _available() -> int | None:
    """What the system could give without swapping: by `/proc/meminfo`, or else its free pages."""
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 2**10
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # no such system call, or no such names
        return None


def _left_by_groups() -> Iterator[int]:
    """What the limits of each control group around this process leave, of either version."""
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit, used = GROUPS, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit, used = GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = root / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(root) and (most := _number(folder / limit)) is not None:
                yield max(0, most - (_number(folder / used) or 0) + _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    """Files that a control group only keeps in memory as long as nobody needs it."""
    fields = dict(line.split(maxsplit=1) for line in _lines(folder / "memory.stat"))
    return int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no file, or no limit (`max`)."""
    text = next(iter(_lines(path)), "")
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def peak_memory(
    call: Callable[[], object], device: torch.device, known: Iterable[Tensor] = (), *, limit: int | None = None
) -> int | None:
    """Return the peak of a call's tensors in bytes, above what existed before; None if the device does not report it.

    `known` are tensors that exist already and are not counted: a model's weights, and its inputs. On a CPU every
    storage is counted from the operation that returns it until it is freed, and a call that takes more than `limit`
    raises torch.OutOfMemoryError. CUDA raises it by itself.
    """
    if device.type == "cuda":
        gc.collect()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device)) - int(before)
    if device.type != "cpu":
        return None
    live = _LiveStorages(known, limit)
    with live:
        call()
    return live.peak


class _LiveStorages(TorchDispatchMode):
    """Count the bytes of all storages that operations return, as long as they live."""

    def __init__(self, known: Iterable[Tensor], limit: int | None = None):
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes, self.peak, self._limit = 0, 0, limit
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._live: dict[int, weakref.ref[torch.UntypedStorage]] = {}  # by the address of the storage

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address in self._known or address in self._live:
            return

        def let_go(_: object) -> None:
            self._live.pop(address, None)
            self.bytes -= size

        self._live[address] = weakref.ref(storage, let_go)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        if self._limit is not None and self.bytes > self._limit:
            raise torch.OutOfMemoryError(f"tensors take more than {in_words(self._limit)}")


LARGE = 2**36  # bytes of a GPU's memory
SMALL = 2**28  # weights of a model: one with more is given less at once, but no less than a CPU


@dataclass(frozen=True)
class Limits:
    """What goes through a model together.

    `rows` is how many examples are read, and in an evaluation journalled, together; `texts` how many of them are
    explained at once, those of nearly one length; `traced_tokens` how many tokens of a recorded run; `tokens` how many
    of any other run; `traced_call` and `call` how many tokens such a run costs as much as, on top of its own; `logits`
    how many outputs of models that give a vocabulary at every position.
    """

    rows: int
    texts: int
    traced_tokens: int
    traced_call: int
    tokens: int
    call: int
    logits: int

    def scaled(self, share: float) -> "Limits":
        """A share of what is recorded and journalled together."""
        return replace(self, **{n: max(getattr(CPU, n), int(share * getattr(self, n))) for n in BY_WEIGHTS})


BY_WEIGHTS = ("rows", "texts", "traced_tokens")
CPU = Limits(rows=16, texts=16, traced_tokens=2048, traced_call=64, tokens=4096, call=16, logits=2**26)
LIMITS = {
    "cpu": CPU,
    "cuda": Limits(rows=256, texts=128, traced_tokens=8192, traced_call=1536, tokens=65536, call=1024, logits=2**28),
    "large cuda": Limits(
        rows=512, texts=256, traced_tokens=16384, traced_call=1536, tokens=65536, call=1024, logits=2**28
    ),
}


def limits_of(device: torch.device, model: nn.Module | None = None) -> Limits:
    """The limits of a device, of a GPU by its memory, and of a large model; those of a CPU where there are none."""
    is_large = device.type == "cuda" and _memory(device) >= LARGE
    limits = LIMITS.get("large cuda" if is_large else device.type, CPU)
    weights = 0 if model is None else sum(weight.numel() for weight in model.parameters())
    limits = limits if weights <= SMALL else limits.scaled(SMALL / weights)
    return replace(limits, call=0, traced_call=0) if model is not None and not may_pad(model) else limits


def run_without_padding(model: nn.Module) -> None:
    """Run inputs of this model in batches of one length from now on."""
    known(model)["pads"] = False


def may_pad(model: nn.Module) -> bool:
    """Whether inputs of different lengths may be run together."""
    return bool(known(model).get("pads", True))


@lru_cache
def _memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)
