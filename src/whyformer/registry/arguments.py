"""Arguments of public functions, checked against their annotations before a function runs."""

import collections.abc as abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin

import numpy as np

from whyformer.errors import BadOption, nearest, shown
from whyformer.registry.options import Count, described, fits

P = ParamSpec("P")
R = TypeVar("R")

READ = frozenset({"question", "context", "choices"})  # parts of inputs: their readers have more advice
_SEVERAL = (abc.Sequence, abc.Collection, abc.Iterable, list)


def validated(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse unknown keywords, and values that the function's annotations rule out, with a BadOption.

    Numbers, texts, choices, paths, classes and sequences of these are checked, and the bounds of an annotated `Count`.
    Parameters with any other annotation are left to the function.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = {p.name: p.annotation for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in READ}
    plain = {name: annotation for name, annotation in named.items() if _is_plain(annotation)}

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in () if takes_any else kwargs:
            if name not in signature.parameters:
                raise BadOption(f"{function.__name__} takes no {name}; {nearest(name, _names(signature))}")
        bound = signature.bind(*args, **kwargs)
        for name, annotation in plain.items():
            if name in bound.arguments:
                bound.arguments[name] = _valid(name, bound.arguments[name], annotation)
        return function(*bound.args, **bound.kwargs)

    return run


def _names(signature: inspect.Signature) -> list[str]:
    return [name for name in signature.parameters if name not in ("self", "cls")]


def _valid(name: str, value: Any, annotation: Any) -> Any:
    """The value, with a number of numpy as one of Python."""
    value = value.item() if isinstance(value, np.generic) else value
    counts = [extra for extra in get_args(annotation)[1:] if isinstance(extra, Count)] if _is_noted(annotation) else []
    kinds = _kinds(annotation)
    if not any(_fits(value, kind) for kind in kinds):
        takes = " | ".join(counts[0].takes if kind is int and counts else _described(kind) for kind in kinds)
        raise BadOption(f"{name} takes {takes}; found {shown(value)}")
    for count in counts:
        count.check(name, value)
    return value


def _is_noted(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    plain = get_args(annotation)[0] if _is_noted(annotation) else annotation
    return get_args(plain) if get_origin(plain) in (types.UnionType, typing.Union) else (plain,)


def _is_plain(annotation: Any) -> bool:
    """True for an annotation that can be checked."""
    return annotation is not inspect.Parameter.empty and all(map(_is_plain_kind, _kinds(annotation)))


def _is_plain_kind(kind: Any) -> bool:
    if get_origin(kind) in _SEVERAL:
        return all(_is_plain(item) for item in get_args(kind))
    return get_origin(kind) is Literal or _class_of(kind) is not None


def _class_of(kind: Any) -> type | None:
    """The class of a value: of `Mapping[str, int]` it is `Mapping`."""
    kind = get_origin(kind) or kind
    return kind if kind is not Any and inspect.isclass(kind) else None


def _fits(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in _SEVERAL:
        is_single = isinstance(value, str | bytes | abc.Mapping) or getattr(value, "ndim", 1) == 0
        if is_single or not isinstance(value, Iterable):
            return False
        return not isinstance(value, abc.Collection) or all(_item_fits(item, get_args(kind)[0]) for item in value)
    of = _class_of(kind)
    return fits(value, kind) if of is None or of in (bool, int, float, str) else isinstance(value, of)


def _item_fits(value: Any, annotation: Any) -> bool:
    return any(_fits(value, kind) for kind in _kinds(annotation))


def _described(kind: Any) -> str:
    if get_origin(kind) in _SEVERAL:
        return f"several of ({' | '.join(map(_described, _kinds(get_args(kind)[0])))})"
    of = _class_of(kind)
    if of is None or of in (bool, int, float, str, Path, type(None)):
        return described(kind)
    return {"Mapping": "a dictionary", "Callable": "a function"}.get(of.__name__, of.__name__)
