"""Checks of numbers that a device computes: made at once, or gathered, so that it is waited for once."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from whyformer.errors import WhyformerError
from whyformer.landing import Landing


def is_far(tensor: Tensor) -> bool:
    """Whether its numbers are on a device that has to be waited for before they can be looked at."""
    return tensor.device.type != "cpu"


class Checks:
    """Flags [], each with the error that it stands for, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.flags: list[Tensor] = []
        self.errors: list[WhyformerError] = []
        self._landing: Landing | None = None

    def joined(self) -> Tensor | None:
        """The flags in one tensor, if there are any."""
        return torch.stack(self.flags) if self.flags else None

    def land(self) -> None:
        """Let the flags come to the CPU, before somebody asks for them."""
        flags = self.joined()
        self._landing = None if flags is None else Landing(flags)

    def make(self) -> None:
        """Raise the first error whose flag is true: one copy to the CPU."""
        if self._landing is None:
            self.land()
        flags = [] if self._landing is None else self._landing.tensors[0].tolist()
        error = next((error for flag, error in zip(flags, self.errors, strict=True) if flag), None)
        if error is not None:
            raise error

    def add(self, flags: Iterable[Tensor], errors: Iterable[WhyformerError]) -> None:
        """Make these checks too."""
        self.flags.extend(flags)
        self.errors.extend(errors)
        self._landing = None


_GATHERED: ContextVar[Checks | None] = ContextVar("gathered checks", default=None)
_POSTPONED: ContextVar[Checks | None] = ContextVar("postponed checks", default=None)


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
    with gathering() as checks, at_once():  # something is made here of what others give
        try:
            yield
        except Exception:
            checks.make()
            raise
    raise_or_postpone(checks.flags, checks.errors)


def raise_or_postpone(flags: Iterable[Tensor], errors: Iterable[WhyformerError]) -> None:
    """Raise the first of several errors whose flag is true: now, or where checks are postponed, later."""
    later = _POSTPONED.get()
    checks = Checks() if later is None else later
    checks.add(flags, errors)
    if later is None:
        checks.make()


@contextmanager
def postponed() -> Iterator[Checks]:
    """In it, gathered checks are left to whoever opened it: a device works on while Python asks for what comes next."""
    checks = Checks()
    before = _POSTPONED.set(checks)
    try:
        yield checks
    finally:
        _POSTPONED.reset(before)


@contextmanager
def at_once() -> Iterator[None]:
    """In it, nothing is postponed."""
    before = _POSTPONED.set(None)
    try:
        yield
    finally:
        _POSTPONED.reset(before)


def raise_postponed() -> None:
    """Make the checks that are postponed here, before something is made of numbers that may be wrong."""
    later = _POSTPONED.get()
    if later is not None:
        later.make()
