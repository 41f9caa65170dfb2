"""Properties that are computed once."""

import functools
from typing import Any, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801  (as Python calls it)
    """That of Python since 3.12: without a lock, which would be one for all objects of a class.

    Two threads could wait for each other there: one that computes a property and waits for a model, one that holds the
    model and waits for the property of another object.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        assert self.attrname is not None
        kept: dict[str, T] = instance.__dict__
        if self.attrname not in kept:
            kept[self.attrname] = self.func(instance)
        return kept[self.attrname]
