"""Checks of numbers that a device computes: made at once, or gathered, so that it is waited for once."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from whyformer.errors import WhyformerError


def is_far(tensor: Tensor) -> bool:
    """Whether its numbers are on a device that has to be waited for before they can be looked at."""
    return tensor.device.type != "cpu"


class Checks:
    """Flags [], each with the error that it stands for, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.flags: list[Tensor] = []
        self.errors: list[WhyformerError] = []

    def joined(self) -> Tensor | None:
        """The flags in one tensor, if there are any."""
        return torch.stack(self.flags) if self.flags else None

    def make(self) -> None:
        """Raise the first error whose flag is true: one copy to the CPU."""
        joined = self.joined()
        flags = [] if joined is None else joined.tolist()
        error = next((error for flag, error in zip(flags, self.errors, strict=True) if flag), None)
        if error is not None:
            raise error

    def add(self, flags: Iterable[Tensor], errors: Iterable[WhyformerError]) -> None:
        """Make these checks too."""
        self.flags.extend(flags)
        self.errors.extend(errors)


_GATHERED: ContextVar[Checks | None] = ContextVar("gathered checks", default=None)


def refuse_if(flag: Tensor, error: WhyformerError) -> None:
    """Raise an error if a flag [] is true: now, or where checks are gathered, at the end of that."""
    checks = _GATHERED.get()
    if checks is not None:
        checks.add([flag.detach()], [error])
    elif bool(flag):
        raise error


@contextmanager
def gathering() -> Iterator[Checks]:
    """In it, checks are noted, and it is left to whoever opened it to make them."""
    checks = Checks()
    before = _GATHERED.set(checks)
    try:
        yield checks
    finally:
        _GATHERED.reset(before)


@contextmanager
def gathered() -> Iterator[None]:
    """In it, checks are noted; they are made at its end, or before an error, which may follow from what is wrong."""
    with gathering() as checks:
        try:
            yield
        except Exception:
            checks.make()
            raise
    checks.make()
