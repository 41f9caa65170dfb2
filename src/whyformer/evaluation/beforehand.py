"""Beforehand: what will be needed is begun in another thread, while this one measures."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import torch
import torch.nn.functional as F


def beforehand(work: Callable[[], object]) -> Thread:
    """Let another thread do what will be needed: whoever needs it meets again what is wrong with it."""

    def quietly() -> None:
        with suppress(Exception):
            work()

    thread = Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def multiplied_once(device: torch.device) -> None:
    """A small product: libraries are loaded for the first one on a GPU, which takes longer than many others."""
    if device.type == "cuda":
        few = torch.ones(16, 16, device=device)
        F.linear(few, few, few[0])
