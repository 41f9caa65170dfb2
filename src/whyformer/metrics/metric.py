"""Metrics by name: the decorator `@metric`, and specs such as `comprehensiveness(hide=pad)` or `all`.

Importing any module of this package registers all metrics of Whyformer.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from whyformer.errors import BadInput, BadOption
from whyformer.registry.names import Registry
from whyformer.registry.specs import Registered, Spec, Written, distinct, keyword_only, names_of, read_spec, register

CEILING_OPTIONS = ("target", "hide", "units", "combine")  # what a metric with a ceiling has, as `comprehensiveness`
IMAGE_CEILING_OPTIONS = CEILING_OPTIONS[:2]  # and one for images alone, whose units are patches


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


Level = Literal["example", "corpus"]
Records = Sequence[Any]
Follows = Literal["target", "right"]
Takes = Literal["any", "texts", "images"]

NEEDS = {  # what a metric may need of a data set, or of a method
    "gold": "the gold label of each example",
    "rationale": "a human rationale for each example",
    "answer": "the gold answer of each question",
    "mask": "the mask of an image, which says where what it shows is",
    "classes": "a method whose scores depend on the class",
    "signs": "a method whose scores have signs",
}


@dataclass(frozen=True)
class Metric(Registered):
    """A registered metric: the function and what it declares.

    `needs`: what it cannot do without, see `NEEDS`. `level`: whether it has a number for each example, or for a corpus
    only. `hides`: it asks what the model says of a text with units hidden. `explains`: the class whose explanation it
    is about, unless an option `target` says otherwise. `ceiling`: an order that lowers the probability fast scores
    well, so that searching for one tells what is attainable; its options `CEILING_OPTIONS` say how to search. With
    `lowest_first`, it hides the lowest units first, and an order that keeps the probability scores well. `follows`:
    whether the search looks at the class `target`, or at the one that is right. `takes`: whether the metric is for
    texts or images alone. `resampled`: an interval is found by drawing rows again. That misleads for a number that
    rises with the number of distinct rows, so such a metric has no interval.
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
    lowest_first: bool = False
    follows: Follows = "target"
    takes: Takes = "any"
    resampled: bool = True

    def misfit(self, images: bool) -> str | None:
        """Why this metric is not for images, or not for texts, if it is not."""
        if self.takes == "any" or (self.takes == "images") is images:
            return None
        return f"{self.name} is for {self.takes}, and these are {'images' if images else 'texts'}"

    def refusal(self, given: Mapping[str, bool]) -> str | None:
        """Why this metric cannot be computed, if something that it needs is not given."""
        if misfit := self.misfit(given.get("images", False)):
            return misfit
        missing = [need for need in sorted(self.needs) if not given.get(need)]
        if not missing:
            return None
        return f"{self.name} needs {' and '.join(NEEDS[need] for need in missing)}, which is not given"

    def __call__(self, case: Any, **options: Any) -> Measured:
        """Measure the explanations of a case (`whyformer.metrics.Case`)."""
        arguments = self.arguments(options)
        if refusal := self.refusal(case.given):
            raise BadInput(refusal)
        result = self.function(case, **arguments)
        if not isinstance(result, Measured | Tensor):
            raise TypeError(f"{self.name} returned {type(result).__name__}, not a tensor [batch] or Measured")
        measured: Measured = result if isinstance(result, Measured) else Measured(result)
        if tuple(measured.values.shape) != (len(case),):
            raise TypeError(f"{self.name} returned values of shape {tuple(measured.values.shape)}, not {(len(case),)}")
        return measured

    def reduced(self, records: Records, **options: Any) -> float:
        """One number from the records of all examples, for a metric of level `corpus`."""
        if self.reduce is None:
            raise BadOption(f"{self.name} has a number for each example: take their mean")
        chosen = {name: option.default for name, option in self.options.items()} | dict(options)
        return self.reduce([record for record in records if record is not None], **self.arguments(chosen))


METRICS: Registry[Metric] = Registry("metric", "metrics")


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
    lowest_first: bool = False,
    follows: Follows = "target",
    takes: Takes = "any",
    resampled: bool = True,
) -> Callable[[Callable[..., Measured | Tensor]], Callable[..., Measured | Tensor]]:
    """Register a function as the metric of its name."""
    if unknown := sorted(set(needs) - set(NEEDS)):
        raise ValueError(f"no data set can be asked for {unknown[0]!r}; known: {', '.join(NEEDS)}")
    if (level == "corpus") != (reduce is not None):
        raise ValueError("a metric of level 'corpus', and no other, says how its records are reduced")
    facts = (higher_is_better, bounds, paper, frozenset(needs), level, hides, explains, reduce, ceiling)
    asked = IMAGE_CEILING_OPTIONS if takes == "images" else CEILING_OPTIONS

    def registered(function: Callable[..., Measured | Tensor]) -> Callable[..., Measured | Tensor]:
        missing = [name for name in asked if name not in keyword_only(function)]
        if ceiling and missing:
            raise BadOption(
                f"metric {function.__name__!r} says ceiling=True, so a search for the best order has to know how it "
                f"ranks and hides: give it the keyword-only options {', '.join(asked)}, as comprehensiveness "
                f"has them (missing: {', '.join(missing)}), or leave ceiling out"
            )
        last = (lowest_first, follows, takes, resampled)
        return register(METRICS, Metric(function.__name__, function, family, *facts, *last))

    return registered


def list_metrics() -> dict[str, Metric]:
    """All metrics by name."""
    return METRICS.listed()


def metric_named(name: str) -> Metric:
    """The metric of that name, or an error with the nearest one."""
    return METRICS.named(name)


@dataclass(frozen=True)
class MetricSpec(Spec[Metric]):
    """A metric with its options."""

    def __call__(self, case: Any) -> Measured:
        """Measure the explanations of a case (`whyformer.metrics.Case`)."""
        return self.of(case, **self.options)


def metric_specs(written: Written) -> tuple[MetricSpec, ...]:
    """The metrics named, `all` for every one."""
    named = names_of(written)
    named = list(list_metrics()) if named == ["all"] else named
    return distinct([MetricSpec(*read_spec(name, METRICS)) for name in named])
