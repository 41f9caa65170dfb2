"""The code of methods and metrics that are not of this package, as a hash: part of what determines their numbers."""

import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from whyformer.registry.plugins import our_packages


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
