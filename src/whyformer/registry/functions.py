"""Functions that are registered under their own names, with the options that their signatures give them."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from whyformer.errors import BadOption, nearest
from whyformer.registry.options import Option
from whyformer.registry.plugins import Registry


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
        return {p.name: Option(p.name, hints[p.name], p.default) for p in options_of(self.function)}

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


def register(registry: Registry[R], member: R) -> Callable[..., Any]:
    """Register a function under its own name, and give it back."""
    if not inspect.getdoc(member.function):
        raise ValueError(f"{registry.kind} {member.name!r} needs a docstring: its first line is shown to users")
    bare = [p.name for p in options_of(member.function) if p.annotation is p.empty or p.default is p.empty]
    if bare:
        raise ValueError(
            f"{registry.kind} {member.name!r}: option {bare[0]} needs a type and a default, as in {bare[0]}: int = 3"
        )
    registry.add(member.name, member, member.function.__module__)
    return member.function


def options_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The keyword-only parameters of a function."""
    return [p for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY]


def keyword_only(function: Callable[..., Any]) -> set[str]:
    """The names of a function's options."""
    return {p.name for p in options_of(function)}
