"""Properties that are computed once."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
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
