"""Methods and metrics by name: what each declares about itself, and the options that its signature gives it."""

import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from whyformer.errors import BadInput, BadOption, UnsupportedModel, nearest
from whyformer.prediction import Prediction
from whyformer.recorder import differentiating
from whyformer.registry.options import Option


class PerExample(tuple[Tensor, ...]):
    """A diagnostic whose shape differs from example to example: a tensor for each, [examples]."""


@dataclass(frozen=True)
class Scores:
    """What a method computed: [batch, units], or [layers, batch, units] where the layers are to be summed.

    `signed` says whether scores below zero speak against the target, where an option decides it; otherwise it is what
    the method declares.
    """

    values: Tensor
    diagnostics: dict[str, Any] = field(default_factory=dict)
    signed: bool | None = None

    @property
    def layers(self) -> Tensor | None:
        """The scores of each layer, if the method gives them."""
        return self.values if self.values.dim() == 3 else None

    @property
    def total(self) -> Tensor:
        """The scores, [batch, units]."""
        return self.values.sum(0) if self.values.dim() == 3 else self.values


@dataclass(frozen=True)
class Measured:
    """What a metric found: one number per example, [batch]; NaN where an example is left out.

    `curve` has the numbers that were averaged, [batch, steps], and `at` says where each was taken. Corpus metrics give
    one plain `record` per example instead of, or beside, a number: `Metric.reduced` turns those of all into one number.
    """

    values: Tensor
    curve: Tensor | None = None
    at: tuple[float, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict)
    records: tuple[Any, ...] = ()


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


Passes = Literal["one", "many"]


@dataclass(frozen=True)
class Method(Registered):
    """A registered method: the function and what it declares.

    `signed`: scores below zero speak against the target. `class_specific`: the scores depend on the target.
    `relevance`: it needs a trace that relevance can flow through. `passes`: whether it runs the model once or often.
    """

    signed: bool
    class_specific: bool
    paper: str
    relevance: bool = False
    passes: Passes = "one"

    def __call__(self, prediction: Prediction, **options: Any) -> Scores:
        """Score a prediction. Padding scores exactly 0, and a score that is no number is an error.

        The start and the end of an answer are scored one by one, and added up.
        """
        arguments = self.arguments(options)
        with differentiating():
            found = [self.function(part, **arguments) for part in prediction.parts]
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
        return Scores(values, scores.diagnostics, self.signed if scores.signed is None else scores.signed)


CEILING_OPTIONS = ("target", "hide", "units", "combine")  # what a metric with a ceiling has, as `comprehensiveness`
RESERVED = frozenset(  # parameters of `Explainer.explain` and `attribute`, and flags of `whyformer explain`
    (
        *("input", "inputs", "text", "texts", "pair", "question", "context", "context_file", "file", "choices"),
        *("model", "method", "methods", "target", "versus", "word", "words", "position", "options", "effort"),
        *("batch_size", "progress", "trust", "html", "json", "device", "dtype", "allow_pickle", "trust_remote_code"),
        *("no_cache", "debug", "help"),
    )
)
Level = Literal["example", "corpus"]
Records = Sequence[Any]

NEEDS = {  # what a metric may need of a data set, or of a method
    "gold": "the gold label of each example",
    "rationale": "a human rationale for each example",
    "answer": "the gold answer of each question",
    "idf": "the inverse document frequency of words",
    "classes": "a method whose scores depend on the class",
}


@dataclass(frozen=True)
class Metric(Registered):
    """A registered metric: the function and what it declares.

    `needs`: what it cannot do without, see `NEEDS`. `level`: whether it has a number for each example, or for a corpus
    only. `hides`: it asks what the model says of a text with units hidden. `explains`: the class whose explanation it
    is about, unless an option `target` says otherwise. `ceiling`: an order that lowers the probability fast scores
    well, so that searching for one tells what is attainable; its options `CEILING_OPTIONS` say how to search.
    """

    higher_is_better: bool
    bounds: tuple[float, float]
    paper: str
    needs: frozenset[str] = frozenset()
    level: Level = "example"
    hides: bool = False
    explains: Literal["predicted", "gold"] = "predicted"
    reduce: Callable[..., float] | None = None
    ceiling: bool = False

    def refusal(self, given: Mapping[str, bool]) -> str | None:
        """Why this metric cannot be computed, if something that it needs is not given."""
        missing = [need for need in sorted(self.needs) if not given.get(need)]
        if not missing:
            return None
        return f"{self.name} needs {' and '.join(NEEDS[need] for need in missing)}, which is not given"

    def __call__(self, case: Any, **options: Any) -> Measured:
        """Measure the explanations of a case (`whyformer.metrics.Case`)."""
        arguments = self.arguments(options)
        refusal = self.refusal(case.given)
        if refusal:
            raise BadInput(refusal)
        found = self.function(case, **arguments)
        measured: Measured = found if isinstance(found, Measured) else Measured(found)
        if tuple(measured.values.shape) != (len(case),):
            raise TypeError(f"{self.name} returned values of shape {tuple(measured.values.shape)}, not {(len(case),)}")
        return measured

    def reduced(self, records: Records, **options: Any) -> float:
        """One number from the records of all examples, for a metric of level `corpus`."""
        if self.reduce is None:
            raise BadOption(f"{self.name} has a number for each example: take their mean")
        chosen = {name: option.default for name, option in self.options.items()} | dict(options)
        return self.reduce([record for record in records if record is not None], **self.arguments(chosen))


def _added(parts: list[Scores]) -> Scores:
    """The sum; what the parts report is added up too where it is a number, and listed where it is not.

    Whole numbers of units, as which step hid each, are listed by part: [batch, parts, units].
    """
    if len(parts) == 1:
        return parts[0]
    values = torch.stack([p.values for p in parts]).sum(0)
    return Scores(values, _joined([p.diagnostics for p in parts]), parts[0].signed)


def _joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name, first in reports[0].items():
        values = [report[name] for report in reports]
        if isinstance(first, dict):
            joined[name] = _joined(values)
        else:
            joined[name] = _together(values) if isinstance(first, Tensor) else values
    return joined


def _together(values: list[Tensor]) -> Tensor:
    listed = values[0].dim() > 1 and not values[0].is_floating_point()
    return torch.stack(values, 1) if listed else torch.stack(values).sum(0)


R = TypeVar("R", bound=Registered)

_METHODS: dict[str, Method] = {}
_METRICS: dict[str, Metric] = {}


def method(
    *, family: str, signed: bool, class_specific: bool, paper: str, relevance: bool = False, passes: Passes = "one"
) -> Callable[[Callable[..., Scores | Tensor]], Callable[..., Scores | Tensor]]:
    """Register a function as the method of its name."""

    def register(function: Callable[..., Scores | Tensor]) -> Callable[..., Scores | Tensor]:
        made = Method(function.__name__, function, family, signed, class_specific, paper, relevance, passes)
        if taken := sorted(RESERVED & _keyword_only(function)):
            raise BadOption(
                f"method {made.name!r} cannot have an option {taken[0]!r}: explain has a parameter of that name, and "
                f"the method would not get it; rename it. Reserved are {', '.join(sorted(RESERVED))}"
            )
        return _registered(_METHODS, "method", made)

    return register


def metric(
    *,
    family: str,
    higher_is_better: bool,
    bounds: tuple[float, float],
    paper: str,
    needs: Collection[str] = (),
    level: Level = "example",
    hides: bool = False,
    explains: Literal["predicted", "gold"] = "predicted",
    reduce: Callable[..., float] | None = None,
    ceiling: bool = False,
) -> Callable[[Callable[..., Measured | Tensor]], Callable[..., Measured | Tensor]]:
    """Register a function as the metric of its name."""
    if unknown := sorted(set(needs) - set(NEEDS)):
        raise ValueError(f"no data set can be asked for {unknown[0]!r}; known: {', '.join(NEEDS)}")
    if (level == "corpus") != (reduce is not None):
        raise ValueError("a metric of level 'corpus', and no other, says how its records are reduced")
    facts = (higher_is_better, bounds, paper, frozenset(needs), level, hides, explains, reduce, ceiling)

    def register(function: Callable[..., Measured | Tensor]) -> Callable[..., Measured | Tensor]:
        missing = [name for name in CEILING_OPTIONS if name not in _keyword_only(function)]
        if ceiling and missing:
            raise BadOption(
                f"metric {function.__name__!r} says ceiling=True, so a search for the best order has to know how it "
                f"ranks and hides: give it the keyword-only options {', '.join(CEILING_OPTIONS)}, as comprehensiveness "
                f"has them (missing: {', '.join(missing)}), or leave ceiling out"
            )
        return _registered(_METRICS, "metric", Metric(function.__name__, function, family, *facts))

    return register


def _keyword_only(function: Callable[..., Any]) -> set[str]:
    """The names of a function's options."""
    return {p.name for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY}


def _registered(known: dict[str, R], kind: str, made: R) -> Callable[..., Any]:
    if made.name in known:
        raise ValueError(f"there is a {kind} {made.name!r} already, in {known[made.name].function.__module__}")
    if not inspect.getdoc(made.function):
        raise ValueError(f"{kind} {made.name!r} needs a docstring: its first line is shown to users")
    known[made.name] = made
    return made.function


def list_methods() -> dict[str, Method]:
    """All methods by name."""
    _import_all()
    return dict(sorted(_METHODS.items()))


def list_metrics() -> dict[str, Metric]:
    """All metrics by name."""
    _import_all()
    return dict(sorted(_METRICS.items()))


def method_named(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    return _named(_METHODS, "method", name)


def metric_named(name: str) -> Metric:
    """The metric of that name, or an error with the nearest one."""
    return _named(_METRICS, "metric", name)


def _import_all() -> None:
    """Register the methods and metrics of this package, whichever module is imported alone."""
    import whyformer.methods
    import whyformer.metrics  # noqa: F401


def _named(known: dict[str, R], kind: str, name: str) -> R:
    _import_all()
    if not isinstance(name, str):
        raise BadOption(f"a {kind} is given by its name; found {name!r}")
    if name not in known:
        raise BadOption(f"there is no {kind} {name!r}; {nearest(name, known)}")
    return known[name]
