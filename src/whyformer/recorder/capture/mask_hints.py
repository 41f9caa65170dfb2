"""Masks of transformers: whether a run needs them is told where looking at numbers takes time, or cannot be done."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from torch import Tensor

ASKED = ("is_tracing", "find_packed_sequence_indices")  # by transformers, to tell whether it may look
IGNORES = ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa")  # which look whether anything is masked

_NEEDED: ContextVar[bool | None] = ContextVar("whether masks are needed", default=None)


class _Exchanged:
    """Functions of transformers that ask what is told here; they are there while anybody tells, in any thread."""

    def __init__(self) -> None:
        self.lock, self.tellers = threading.Lock(), 0

    def begin(self, module: Any) -> None:
        """Exchange them for the first who tells."""
        with self.lock:
            if not self.tellers:
                self.own = module.is_tracing, module.find_packed_sequence_indices
                module.is_tracing, module.find_packed_sequence_indices = self.is_tracing, self.texts_in_rows
                self.ignores = {name: getattr(module, name) for name in IGNORES if hasattr(module, name)}
                for name, own in self.ignores.items():
                    setattr(module, name, partial(_ignores, own))
            self.tellers += 1

    def end(self, module: Any) -> None:
        """Give them back behind the last."""
        with self.lock:
            self.tellers -= 1
            if not self.tellers:
                module.is_tracing, module.find_packed_sequence_indices = self.own
                for name, own in self.ignores.items():
                    setattr(module, name, own)

    def is_tracing(self, mask: Tensor | None = None) -> bool:
        """Whether a mask must not be looked at; without one, transformers looks at nothing."""
        needed = _NEEDED.get()
        if needed is not None and needed is (mask is not None):
            return needed
        return bool(self.own[0](mask))

    def texts_in_rows(self, position_ids: Tensor) -> Tensor | None:
        """Which text each token belongs to; None if each row is one."""
        texts: Tensor | None = None if _NEEDED.get() is False else self.own[1](position_ids)
        return texts


def _ignores(own: Callable[..., bool], padding_mask: Tensor | None, *others: Any, **named: Any) -> bool:
    """Whether a mask can be ignored; one that masks nothing is as none."""
    return own(None if _NEEDED.get() is False else padding_mask, *others, **named)


_EXCHANGED = _Exchanged()


@contextmanager
def masks(*, needed: bool | None) -> Iterator[None]:
    """In it, transformers is told whether this thread's runs need masks, and does not look; None tells nothing.

    Where there is padding they do, and looking would wait for a GPU. Where nothing is masked, and each row is one text,
    they do not: transformers leaves causal masks to the kernel of attention then. While a stream is captured it cannot
    look, and would make a mask [units, units] for each layer, which its gradient keeps (32 MiB at 4,096 units in
    bfloat16), and with which no flash kernel runs. A transformers that asks in other ways looks as it does.
    """
    module = sys.modules.get("transformers.masking_utils")
    if needed is None or module is None or not all(hasattr(module, name) for name in ASKED):
        yield
        return
    _EXCHANGED.begin(module)
    before = _NEEDED.set(needed)
    try:
        yield
    finally:
        _NEEDED.reset(before)
        _EXCHANGED.end(module)
