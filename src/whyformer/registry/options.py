"""Options of registered functions, and arguments of public functions: checked against their annotations."""

import collections.abc as abc
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, ParamSpec, TypeVar, get_args, get_origin

import numpy as np
from torch import Tensor

from whyformer.caching import cached_property
from whyformer.errors import BadOption, nearest, shown

MethodName = NewType("MethodName", str)  # the method that another one is made of, as it is written

E = TypeVar("E")

_UNREADABLE = object()


@dataclass(frozen=True)
class Count:
    """The bounds of a whole number, and why there is an upper one: `Annotated[int, Count(1, 100, "…")]`."""

    least: int
    most: int | None = None
    why: str = ""

    @property
    def takes(self) -> str:
        """What is taken, for people."""
        return f"a whole number from {self.least} {'on' if self.most is None else f'to {self.most}'}"

    def check(self, name: str, value: Any, takes: str) -> None:
        """Raise for a whole number outside the bounds."""
        if not isinstance(value, int) or isinstance(value, bool):
            return
        is_too_large = self.most is not None and value > self.most
        if value < self.least or is_too_large:
            raise BadOption(f"{name} takes {takes}; found {shown(value)}{f': {self.why}' if is_too_large else ''}")


@dataclass(frozen=True)
class Spelling:
    """Other spellings of an option's values.

    `former` maps those of earlier versions, which are still taken, to today's. `in_keys` maps today's to what stands in
    the keys of journals, where a number's key must not change with a spelling.
    """

    former: Mapping[Any, Any] = field(default_factory=dict)
    in_keys: Mapping[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Added:
    """An option that a method or metric got later: its default stands in no key, so that older numbers keep theirs."""


@dataclass(frozen=True)
class Names:
    """The members of a registry, one of which a text names: `Annotated[str, Names(HIDES, "apply")]`.

    `known` maps names to members, which may be added to later; a member itself is taken for its name. `does` is the
    method of a member that determines numbers.
    """

    known: Mapping[str, Any]
    does: str

    @property
    def takes(self) -> str:
        """What is taken, for people."""
        return " | ".join(self.known)

    def named(self, value: Any) -> Any:
        """The name of a member; anything else as it is."""
        name = getattr(value, "name", None)
        return name if isinstance(name, str) and self.known.get(name) is value else value

    def function(self, value: Any) -> Callable[..., Any] | None:
        """What the member of a name does."""
        member = self.known.get(value) if isinstance(value, str) else None
        return None if member is None else getattr(type(member), self.does)


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
        special = {int: self._extra(Count), str: self._names}
        return " | ".join(extra.takes if (extra := special.get(k)) else described(k) for k in self.kinds)

    @cached_property
    def kinds(self) -> tuple[Any, ...]:
        """The types that a value may have."""
        plain = get_args(self.annotation)[0] if get_origin(self.annotation) is Annotated else self.annotation
        return get_args(plain) if get_origin(plain) in (types.UnionType, typing.Union) else (plain,)

    def checked(self, value: Any) -> Any:
        """The value as plain data, if the option takes it: rows of numbers as lists, a path as text."""
        value = value.tolist() if hasattr(value, "tolist") else str(value) if isinstance(value, Path) else value
        value = self._today(value if self._names is None else self._names.named(value))
        if not self._takes(value):
            raise BadOption(f"option {self.name} takes {self.takes}; found {shown(value)}")
        self._check_count(value)
        return list(value) if isinstance(value, tuple) else value

    def takes_text(self, text: str) -> bool:
        """Whether this word is among the values."""
        return self._takes(self._today(text))

    def parsed(self, text: str) -> Any:
        """The value written as text on a command line."""
        for kind in self.kinds:
            value = _read(self._today(text), kind)
            if value is not _UNREADABLE and self._takes(value):
                self._check_count(value)
                return value
        raise BadOption(f"option {self.flag} takes {self.takes}; found {text!r}")

    def argument(self, value: Any) -> Any:
        """A checked value as the function is given it: a path as a `Path`, where it takes no other text."""
        if isinstance(value, int) and not isinstance(value, bool) and float in self.kinds and int not in self.kinds:
            return float(value)
        return Path(value) if self.is_path(value) and str not in self.kinds else value

    def is_path(self, value: Any) -> bool:
        """Whether a value names a file or folder: what that holds determines a number."""
        words = [kind for kind in self.kinds if get_origin(kind) is Literal]
        return isinstance(value, str) and Path in self.kinds and not any(fits(value, kind) for kind in words)

    def function(self, value: Any) -> Callable[..., Any] | None:
        """What the registered thing does that a value names: its code determines a number."""
        return None if self._names is None else self._names.function(value)

    def is_in_keys(self, value: Any) -> bool:
        """Whether a value stands in the keys of journals."""
        return self._extra(Added) is None or value != self.default

    def in_key(self, value: Any) -> Any:
        """The value as it stands in the keys of journals."""
        spelling = self._extra(Spelling)
        return value if spelling is None else _exchanged(spelling.in_keys, value)

    def _today(self, value: Any) -> Any:
        """The value in today's spelling."""
        spelling = self._extra(Spelling)
        return value if spelling is None else _exchanged(spelling.former, value)

    def _check_count(self, value: Any) -> None:
        count = self._extra(Count)
        if count is not None:
            count.check(f"option {self.name}", value, self.takes)

    def _takes(self, value: Any) -> bool:
        unknown = self._names is not None and isinstance(value, str) and value not in self._names.known
        return not unknown and any(fits(value, kind) for kind in self.kinds)

    @property
    def _names(self) -> Names | None:
        return self._extra(Names)

    def _extra(self, kind: type[E]) -> E | None:
        """What of this kind the annotation holds beside the type."""
        extras = get_args(self.annotation)[1:] if get_origin(self.annotation) is Annotated else ()
        return next((extra for extra in extras if isinstance(extra, kind)), None)


def _exchanged(others: Mapping[Any, Any], value: Any) -> Any:
    return others.get(value, value) if value is None or isinstance(value, str) else value


def described(kind: Any) -> str:
    """The values of a type, for messages."""
    if get_origin(kind) is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is list:
        return "several of " + described(get_args(kind)[0])
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        type(None): "none",
        Path: "a file or folder",
        MethodName: "a method",
        Tensor: "rows of numbers",
    }
    return names[kind]


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type. Numbers must be finite, and a bool is no number."""
    if get_origin(kind) is Literal:
        return isinstance(value, str | int) and not isinstance(value, bool) and value in get_args(kind)
    if get_origin(kind) is list:
        return isinstance(value, (list, tuple)) and bool(value) and all(fits(v, get_args(kind)[0]) for v in value)
    if kind is Tensor:
        return isinstance(value, (list, tuple)) and all(isinstance(v, (int, float)) or fits(v, kind) for v in value)
    if kind in (Path, MethodName):
        return isinstance(value, str)
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(value, kind)


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
    if kind in (Path, MethodName):
        return text
    try:
        return kind(text)
    except (TypeError, ValueError):
        return _UNREADABLE


P = ParamSpec("P")
R = TypeVar("R")

READ = frozenset(  # what is explained, and of which model: those who read it say more about what is wrong
    (
        *("model", "tokenizer", "inputs", "input", "text", "question", "context", "choices", "explanations", "other"),
        *("data", "source", "name", "method", "methods", "metrics", "target", "versus", "word", "position"),
        *("path", "folder", "device", "dtype"),
    )
)
_SIMPLE = (bool, int, float, str, type(None))
_SEVERAL = (abc.Sequence, abc.Collection, abc.Iterable)


def validated(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse unknown keywords, and values that the function's annotations rule out, with a BadOption.

    Numbers, texts, choices, paths and classes are checked, several of these, and the bounds of an annotated `Count`.
    Parameters that are `READ`, or have any other annotation, are left to the function.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    checked = {p.name: p.annotation for p in parameters if p.name not in READ and is_plain(p.annotation)}

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in () if takes_any else kwargs:
            if name not in signature.parameters:
                known = [one for one in signature.parameters if one not in ("self", "cls")]
                raise BadOption(f"{function.__name__} takes no {name}; {nearest(name, known)}")
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            hint = "; write the others as name=value" if "positional" in str(error) else ""
            raise TypeError(f"{function.__name__}: {error}{hint}") from None
        for name, annotation in checked.items():
            if name in bound.arguments:
                bound.arguments[name] = valid(name, bound.arguments[name], annotation)
        return function(*bound.args, **bound.kwargs)

    return run


def valid(name: str, value: Any, annotation: Any) -> Any:
    """The value, with a number of numpy as one of Python; an error if the annotation rules it out."""
    value = value.item() if isinstance(value, np.generic) else value
    counts = [extra for extra in get_args(annotation)[1:] if isinstance(extra, Count)] if _is_noted(annotation) else []
    kinds = _kinds(annotation)
    takes = " | ".join(counts[0].takes if kind is int and counts else _called(kind) for kind in kinds)
    if not _fits(value, annotation):
        raise BadOption(f"{name} takes {takes}; found {shown(value)}")
    for count in counts:
        count.check(name, value, takes)
    return value


def is_plain(annotation: Any) -> bool:
    """True for an annotation that can be checked."""
    if annotation is inspect.Parameter.empty:
        return False
    several = [get_args(kind)[0] for kind in _kinds(annotation) if get_origin(kind) in _SEVERAL]
    return all(_is_simple(kind) or _class_of(kind) is not None for kind in _kinds(annotation)) and all(
        map(is_plain, several)
    )


def _fits(value: Any, annotation: Any) -> bool:
    return any(_fits_one(value, kind) for kind in _kinds(annotation))


def _fits_one(value: Any, kind: Any) -> bool:
    of = _class_of(kind)
    if of is None or _is_simple(kind):
        return fits(value, kind)
    if get_origin(kind) not in _SEVERAL:
        return isinstance(value, of)
    is_single = isinstance(value, str | bytes | abc.Mapping) or getattr(value, "ndim", 1) == 0
    if is_single or not isinstance(value, of):
        return False
    return not isinstance(value, abc.Collection) or all(_fits(item, get_args(kind)[0]) for item in value)


def _is_noted(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    plain = get_args(annotation)[0] if _is_noted(annotation) else annotation
    return get_args(plain) if get_origin(plain) in (types.UnionType, typing.Union) else (plain,)


def _class_of(kind: Any) -> type | None:
    """The class of a value: of `Mapping[str, int]` it is `Mapping`."""
    kind = get_origin(kind) or kind
    return kind if kind is not Any and inspect.isclass(kind) else None


def _is_simple(kind: Any) -> bool:
    return get_origin(kind) is Literal or kind in _SIMPLE


def _called(kind: Any) -> str:
    of = _class_of(kind)
    if of is None or _is_simple(kind) or kind is Path:
        return described(kind)
    items = " | ".join(map(_called, _kinds(get_args(kind)[0]))) if get_origin(kind) in _SEVERAL else ""
    return f"several of ({items})" if items else {"Mapping": "a dictionary"}.get(of.__name__, of.__name__)
