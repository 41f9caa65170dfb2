"""Registered functions, and specs such as `attcat(states=inputs)`: a function with its options.

The code of functions that are not part of this distribution is hashed: it is part of what determines their numbers.
"""

import functools
import hashlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from whyformer.errors import BadOption, nearest, shown
from whyformer.registry.names import Registry, our_packages
from whyformer.registry.options import Option


def code_of(*functions: Callable[..., Any] | None) -> str | None:
    """A hash of the code of functions; None if all are of this package, whose version stands for their code.

    Of a function it holds the compiled code with that inside it, its defaults, and of what it closes over or looks up
    in its module: plain values, tensors and arrays, and the code of functions of the same module. Functions of other
    modules and classes count by their names, other objects by their types.
    """
    foreign = [function for function in functions if function is not None and not _is_ours(function)]
    if not foreign:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for function in foreign:
        digest.update(repr(_Reader(getattr(function, "__module__", None)).value(function)).encode())
    return digest.hexdigest()


def _is_ours(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] in our_packages()


class _Reader:
    """Turns what a function is made of into nested tuples of text and numbers, with one `repr` in all processes."""

    def __init__(self, module: str | None):
        self.module = module
        self.seen: dict[int, int] = {}  # functions by their identity: a second mention is a number

    def value(self, value: Any) -> Any:
        """One value; of lists, dictionaries and other objects, which may change from call to call, the type alone."""
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes)):
            return type(value).__name__, repr(value)
        if isinstance(value, tuple):
            return "tuple", tuple(map(self.value, value))
        if isinstance(value, frozenset):
            return "frozenset", tuple(sorted(map(repr, map(self.value, value))))
        if isinstance(value, (Tensor, np.ndarray)):
            return _numbers(value)
        return self._made(value)

    def _made(self, value: Any) -> Any:
        """Functions and what is like them."""
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, functools.partial):
            keywords = tuple((name, self.value(one)) for name, one in value.keywords.items())
            return "partial", self.value(value.func), self.value(value.args), keywords
        if isinstance(value, types.FunctionType) and value.__module__ == self.module:
            return self._function(value)
        name = value if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) else type(value)
        return "named", getattr(name, "__module__", None), name.__qualname__

    def _function(self, function: types.FunctionType) -> Any:
        if id(function) in self.seen:
            return "seen", self.seen[id(function)]
        self.seen[id(function)] = len(self.seen)
        closed = tuple(self._cell(cell) for cell in function.__closure__ or ())
        defaults = self.value(function.__defaults__)  # those of options stand beside the code
        looked_up = [name for name in _names(function.__code__) if name in function.__globals__]
        used = tuple((name, self._global(function.__globals__[name])) for name in looked_up)
        return "function", self._code(function.__code__), closed, defaults, used

    def _global(self, value: Any) -> Any:
        return ("module", value.__name__) if isinstance(value, types.ModuleType) else self.value(value)

    def _cell(self, cell: types.CellType) -> Any:
        try:
            return self.value(cell.cell_contents)
        except ValueError:  # it is empty, as that of a function which is not yet defined
            return "empty"

    def _code(self, code: types.CodeType) -> Any:
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        return "code", code.co_code, tuple(map(self.value, code.co_consts)), names


def _names(code: types.CodeType) -> list[str]:
    """The names that code looks up, also what is compiled inside it, in a fixed order."""
    inner = [name for const in code.co_consts if isinstance(const, types.CodeType) for name in _names(const)]
    return sorted({*code.co_names, *inner})


def _numbers(value: Any) -> Any:
    array = value.detach().cpu() if isinstance(value, Tensor) else value
    content = repr(array.tolist()).encode()
    return "numbers", str(array.dtype), tuple(array.shape), hashlib.blake2b(content, digest_size=16).hexdigest()


LONGEST_PATH = 4096  # characters


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


@dataclass(frozen=True)
class Spec(Generic[R]):
    """A registered function and the options that it is called with; those left out have their defaults.

    Methods and metrics each have their own kind of it, which can be called.
    """

    of: R
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """As it is written, options in order of their names; two specs of the same label are the same."""
        known = self.of.options
        stated = {
            k: v for k, v in sorted(self.options.items()) if known[k].in_key(v) != known[k].in_key(known[k].default)
        }
        written = ", ".join(f"{name}={_text(value)}" for name, value in stated.items())
        return f"{self.of.name}({written})" if written else self.of.name

    @property
    def facts(self) -> dict[str, Any]:
        """What determines a number: the name, all options with their defaults, what files named there hold, and code.

        Code is hashed where a method or metric, or a way to hide, is not of this package, whose version stands for it.
        """
        known = self.of.options
        options = {name: option.default for name, option in sorted(known.items())} | dict(self.options)
        named = {name: _files(value) for name, value in options.items() if known[name].is_path(value)}
        files = {name: _digest(paths) for name, paths in named.items() if paths}
        keyed = {name: value for name, value in options.items() if known[name].is_in_keys(value)}
        in_key = {name: known[name].in_key(value) for name, value in keyed.items()}
        named_code = (known[name].function(value) for name, value in options.items())
        code = code_of(self.of.function, getattr(self.of, "reduce", None), *named_code)
        facts = {"name": self.of.name, "options": in_key, "files": files or None, "code": code}
        return {name: fact for name, fact in facts.items() if fact is not None}


S = TypeVar("S", bound=Spec[Any])
Written = str | Spec[Any] | Sequence[str | Spec[Any]]


def names_of(written: Written) -> list[str]:
    """The names in a text with commas between them, each with its options."""
    written = [written] if isinstance(written, Spec) else written
    if not isinstance(written, Iterable) or isinstance(written, bytes) or getattr(written, "ndim", 1) == 0:
        raise BadOption(f"a method or metric is given by its name, and several in a list; found {shown(written)}")
    parts = _split(written, r",") if isinstance(written, str) else list(written)
    parts = [part.label if isinstance(part, Spec) else part for part in parts]
    if odd := [part for part in parts if not isinstance(part, str)]:
        raise BadOption(f"a method or metric is given by its name; found {shown(odd[0])}")
    return [part.strip() for part in parts if part.strip()]


def distinct(specs: Sequence[S]) -> tuple[S, ...]:
    """Each spec once, by its label; an error if there is none."""
    labelled = {spec.label: spec for spec in specs}
    if not labelled:
        raise BadOption("nothing is named: give at least one name, or `all`")
    return tuple(labelled.values())


def read_spec(written: str, registry: Registry[R]) -> tuple[R, dict[str, Any]]:
    """What is named, and the options that it is given."""
    shape = re.fullmatch(r"([^()]*)(?:\((.*)\))?", written, re.DOTALL)
    if shape is None:
        raise BadOption(f"{written!r} is not written as name or name(option=value, option=value)")
    of = registry.named(shape[1].strip())
    options: dict[str, Any] = {}
    for part in _split(shape[2], r",(?=\s*\w+\s*=)") if shape[2] else []:
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign:
            raise BadOption(f"{written!r}: an option is written as name=value; found {part.strip()!r}")
        if name in options:
            raise BadOption(f"{written!r}: {name} is given twice")
        of.checked({name: None} if name not in of.options else {})  # raises if there is no such option
        options[name] = of.options[name].parsed(value)
    return of, options


def _split(text: str, at: str) -> list[str]:
    """The parts of a text between commas, outside of brackets."""
    parts, start = [], 0
    for comma in re.finditer(at, text):
        before = text[: comma.start()]
        if before.count("(") <= before.count(")"):
            parts.append(text[start : comma.start()])
            start = comma.end()
    return [*parts, text[start:]]


def _files(value: str) -> list[Path]:
    """The file of that name, or those of the model in a folder of that name."""
    path = Path(value)
    if len(value) >= LONGEST_PATH or not path.exists():
        return []
    model = [path / "config.json", *sorted(path.glob("*.safetensors"))]
    return [path] if path.is_file() else model if model[0].is_file() else []


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with file.open("rb") as opened:
            while block := opened.read(2**24):
                digest.update(block)
    return digest.hexdigest()


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
