"""Options: what a keyword-only parameter takes, how it is checked, and how it is read from a command line."""

import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from torch import Tensor

from whyformer.errors import BadOption

_UNREADABLE = object()


@dataclass(frozen=True)
class Option:
    """A keyword-only parameter of a method or metric."""

    name: str
    annotation: Any
    default: Any

    @property
    def flag(self) -> str:
        """How it is written on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def takes(self) -> str:
        """What it takes, for people."""
        return " | ".join(_described(kind) for kind in _alternatives(self.annotation))

    def checked(self, value: Any) -> Any:
        """The value as plain data, if the option takes it: rows of numbers as lists, a path as text."""
        value = value.tolist() if hasattr(value, "tolist") else str(value) if isinstance(value, Path) else value
        if any(_fits(value, kind) for kind in _alternatives(self.annotation)):
            return list(value) if isinstance(value, tuple) else value
        raise BadOption(f"option {self.name} takes {self.takes}; found {value!r}")

    def takes_text(self, text: str) -> bool:
        """Whether this word is among the values."""
        return any(_fits(text, kind) for kind in _alternatives(self.annotation))

    def parsed(self, text: str) -> Any:
        """The value written as text on a command line."""
        for kind in _alternatives(self.annotation):
            value = _read(text, kind)
            if value is not _UNREADABLE:
                return value
        raise BadOption(f"option {self.flag} takes {self.takes}; found {text!r}")


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (types.UnionType, typing.Union):
        return get_args(annotation)
    return (annotation,)


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is list:
        return "several of " + _described(get_args(kind)[0])
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    return "rows of numbers" if kind is Tensor else names[kind]


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind) and not isinstance(value, bool)
    if get_origin(kind) is list:
        return isinstance(value, (list, tuple)) and bool(value) and all(_fits(v, get_args(kind)[0]) for v in value)
    if kind is Tensor:
        return isinstance(value, (list, tuple)) and all(isinstance(v, (int, float)) or _fits(v, kind) for v in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _read(text: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return text if text in get_args(kind) else _UNREADABLE
    if get_origin(kind) is list:
        items = [_read(part, get_args(kind)[0]) for part in text.split(",")]
        return _UNREADABLE if _UNREADABLE in items else items
    if kind is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(text, _UNREADABLE)
    if kind is type(None):
        return None if text == "none" else _UNREADABLE
    try:
        return kind(text)
    except (TypeError, ValueError):
        return _UNREADABLE
