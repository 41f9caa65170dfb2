"""What is registered under a name: the registry of one kind, and functions with the options of their signature."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from whyformer.errors import BadOption, nearest
from whyformer.registry.options import Option


@dataclass(frozen=True)
class Registered:
    """A function under its own name, with the options that its signature gives it."""

    name: str
    function: Callable[..., Any]
    family: str

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return inspect.getdoc(self.function).splitlines()[0]  # type: ignore[union-attr]

    @cached_property
    def options(self) -> dict[str, Option]:
        """The options by name."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: Option(p.name, hints[p.name], p.default) for p in parameters if p.kind == p.KEYWORD_ONLY}

    def checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options, if there are such options and they take these values."""
        for name in options:
            if name not in self.options:
                raise BadOption(f"{self.name} has no option {name!r}; {nearest(name, self.options)}")
        return {name: self.options[name].checked(value) for name, value in options.items()}

    def arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options, checked, as the function is given them."""
        return {name: self.options[name].argument(value) for name, value in self.checked(options).items()}


R = TypeVar("R", bound=Registered)


class Registry(Generic[R]):
    """All functions of one kind, as methods, by name."""

    def __init__(self, kind: str):
        self.kind = kind
        self.known: dict[str, R] = {}

    def add(self, member: R) -> Callable[..., Any]:
        """Register a function, and give it back."""
        if member.name in self.known:
            other = self.known[member.name].function.__module__
            raise ValueError(f"there is a {self.kind} {member.name!r} already, in {other}")
        if not inspect.getdoc(member.function):
            raise ValueError(f"{self.kind} {member.name!r} needs a docstring: its first line is shown to users")
        self.known[member.name] = member
        return member.function

    def listed(self) -> dict[str, R]:
        """All by name, in order."""
        return dict(sorted(self.known.items()))

    def named(self, name: str) -> R:
        """The one of that name, or an error with the nearest one."""
        if not isinstance(name, str):
            raise BadOption(f"a {self.kind} is given by its name; found {name!r}")
        if name not in self.known:
            raise BadOption(f"there is no {self.kind} {name!r}; {nearest(name, self.known)}")
        return self.known[name]


def keyword_only(function: Callable[..., Any]) -> set[str]:
    """The names of a function's options."""
    return {p.name for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY}
