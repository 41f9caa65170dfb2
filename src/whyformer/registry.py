"""The methods by name: what each declares about itself, and the options that its signature gives it."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from whyformer.errors import BadOption, UnsupportedModel, nearest
from whyformer.prediction import Prediction
from whyformer.recorder import differentiating


@dataclass(frozen=True)
class Scores:
    """What a method computed: [batch, units], or [layers, batch, units] where the layers are to be summed."""

    values: Tensor
    diagnostics: dict[str, Any] = field(default_factory=dict)

    @property
    def layers(self) -> Tensor | None:
        """The scores of each layer, if the method gives them."""
        return self.values if self.values.dim() == 3 else None

    @property
    def total(self) -> Tensor:
        """The scores, [batch, units]."""
        return self.values.sum(0) if self.values.dim() == 3 else self.values


@dataclass(frozen=True)
class Option:
    """A keyword-only parameter of a method."""

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
        """The value, if the option takes it."""
        if any(_fits(value, kind) for kind in _alternatives(self.annotation)):
            return list(value) if isinstance(value, tuple) else value
        raise BadOption(f"option {self.name} takes {self.takes}; found {value!r}")

    def parsed(self, text: str) -> Any:
        """The value written as text on a command line."""
        for kind in _alternatives(self.annotation):
            value = _read(text, kind)
            if value is not _UNREADABLE:
                return value
        raise BadOption(f"option {self.flag} takes {self.takes}; found {text!r}")


@dataclass(frozen=True)
class Method:
    """A registered method: the function and what it declares.

    `signed`: scores below zero speak against the target. `class_specific`: the scores depend on the target.
    `relevance`: it needs a trace that relevance can flow through.
    """

    name: str
    function: Callable[..., Scores | Tensor]
    family: str
    signed: bool
    class_specific: bool
    paper: str
    relevance: bool = False

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return inspect.getdoc(self.function).splitlines()[0]  # type: ignore[union-attr]

    @cached_property
    def options(self) -> dict[str, Option]:
        """The options by name."""
        hints = typing.get_type_hints(self.function)
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: Option(p.name, hints[p.name], p.default) for p in parameters if p.kind == p.KEYWORD_ONLY}

    def checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options, if the method has them and takes their values."""
        for name in options:
            if name not in self.options:
                raise BadOption(f"{self.name} has no option {name!r}; {nearest(name, self.options)}")
        return {name: self.options[name].checked(value) for name, value in options.items()}

    def __call__(self, prediction: Prediction, **options: Any) -> Scores:
        """Score a prediction. Padding scores exactly 0, and a score that is no number is an error.

        The start and the end of an answer are scored one by one, and added up.
        """
        checked = self.checked(options)
        with differentiating():
            found = [self.function(part, **checked) for part in prediction.parts]
        scores = _added([f if isinstance(f, Scores) else Scores(f) for f in found])
        expected = tuple(prediction.padding.shape)
        if tuple(scores.values.shape[-2:]) != expected or scores.values.dim() not in (2, 3):
            raise TypeError(f"{self.name} returned scores of shape {tuple(scores.values.shape)}, not {expected}")
        values = scores.values.detach().masked_fill(prediction.padding, 0)
        if not bool(torch.isfinite(values).all()):
            raise UnsupportedModel(
                f"{self.name} gave scores that are not numbers on this model in {prediction.trace.logits.dtype}; "
                "load it in float32"
            )
        return Scores(values, scores.diagnostics)


def _added(parts: list[Scores]) -> Scores:
    """The sum; what the parts report is added up too where it is a number, and listed where it is not."""
    if len(parts) == 1:
        return parts[0]
    return Scores(torch.stack([p.values for p in parts]).sum(0), _joined([p.diagnostics for p in parts]))


def _joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name, first in reports[0].items():
        values = [report[name] for report in reports]
        if isinstance(first, dict):
            joined[name] = _joined(values)
        else:
            joined[name] = torch.stack(values).sum(0) if isinstance(first, Tensor) else values
    return joined


_METHODS: dict[str, Method] = {}


def method(
    *, family: str, signed: bool, class_specific: bool, paper: str, relevance: bool = False
) -> Callable[[Callable[..., Scores | Tensor]], Callable[..., Scores | Tensor]]:
    """Register a function as the method of its name."""

    def register(function: Callable[..., Scores | Tensor]) -> Callable[..., Scores | Tensor]:
        name = function.__name__
        if name in _METHODS:
            raise ValueError(f"there is a method {name!r} already, in {_METHODS[name].function.__module__}")
        if not inspect.getdoc(function):
            raise ValueError(f"method {name!r} needs a docstring: its first line is shown to users")
        _METHODS[name] = Method(name, function, family, signed, class_specific, paper, relevance)
        return function

    return register


def methods() -> dict[str, Method]:
    """All methods by name."""
    return dict(sorted(_METHODS.items()))


def method_named(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    if not isinstance(name, str):
        raise BadOption(f"a method is given by its name; found {name!r}")
    if name not in _METHODS:
        raise BadOption(f"there is no method {name!r}; {nearest(name, _METHODS)}")
    return _METHODS[name]


_UNREADABLE = object()


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (types.UnionType, typing.Union):
        return get_args(annotation)
    return (annotation,)


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is list:
        return "several of " + _described(get_args(kind)[0])
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}[kind]


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind) and not isinstance(value, bool)
    if get_origin(kind) is list:
        return isinstance(value, (list, tuple)) and bool(value) and all(_fits(v, get_args(kind)[0]) for v in value)
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
    except ValueError:
        return _UNREADABLE
