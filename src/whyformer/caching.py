"""Properties that are computed once, and work that is begun before anybody needs it."""

import functools
from collections.abc import Callable
from contextlib import nullcontext, suppress
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801  (as Python calls it)
    """That of Python 3.12 and later: without a lock, which would be one for all objects of a class.

    Two threads could wait for each other there: one that computes a property and waits for a model, one that holds the
    model and waits for the property of another object.
    """

    def __init__(self, func: Callable[[Any], T]):
        super().__init__(func)
        self.lock = nullcontext()  # what Python 3.11 takes


def beforehand(work: Callable[[], object]) -> Thread:
    """Let another thread do what will be needed: whoever needs it meets again what is wrong with it."""

    def quietly() -> None:
        with suppress(Exception):
            work()

    thread = Thread(target=quietly, daemon=True)
    thread.start()
    return thread
