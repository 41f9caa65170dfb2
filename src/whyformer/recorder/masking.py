"""Masks of transformers in a run that is captured: where its numbers cannot be looked at, and no mask is needed."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor

_ONE_TEXT: ContextVar[bool] = ContextVar("each row is one text", default=False)
_PATCHING = threading.Lock()


@contextmanager
def unmasked() -> Iterator[None]:
    """In it, transformers takes each row of this thread's runs for one text without padding, and does not look.

    It leaves causal masks to the kernel of attention where there is neither padding nor more than one text in a row.
    While a stream is captured it cannot tell, and makes a mask [units, units] for each layer, which its gradient keeps
    (32 MiB at 4,096 units in bfloat16), and with which no flash kernel runs. Other threads go on as before.
    """
    masks: Any = sys.modules.get("transformers.masking_utils")
    if masks is None:
        yield
        return
    with _PATCHING:
        is_tracing, sought = masks.is_tracing, masks.find_packed_sequence_indices

        def is_traced(tensor: Tensor | None = None) -> bool:
            return not (_ONE_TEXT.get() and tensor is None) and bool(is_tracing(tensor))

        def texts_in_rows(position_ids: Tensor) -> Tensor | None:
            texts: Tensor | None = None if _ONE_TEXT.get() else sought(position_ids)
            return texts

        before = _ONE_TEXT.set(True)
        masks.is_tracing, masks.find_packed_sequence_indices = is_traced, texts_in_rows
        try:
            yield
        finally:
            masks.is_tracing, masks.find_packed_sequence_indices = is_tracing, sought
            _ONE_TEXT.reset(before)
