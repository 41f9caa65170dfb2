"""Arguments of public functions, checked against their annotations before a function runs."""

import collections.abc as abc
import functools
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin

import numpy as np

from whyformer.errors import BadOption, nearest, shown
from whyformer.registry.options import Count, described, fits

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
