"""References: random orders, and the best one that a search finds, which methods are compared with."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from whyformer.evaluation.explained import Explained
from whyformer.evaluation.plan import EvaluationPlan
from whyformer.inputs.images import ImageInput
from whyformer.methods.method import method_named
from whyformer.metrics.case import Case, Combine, Groups
from whyformer.metrics.faithfulness import hide_of
from whyformer.metrics.metric import MetricSpec
from whyformer.perturb import ORDERS, Outcomes
from whyformer.results.evaluation import CEILING, CHANCE, MethodMetric


class Way(NamedTuple):
    """How the best order is searched for a metric: metrics of the same way share a search."""

    target: Any
    hide: str
    units: Groups
    combine: Combine
    keeping: bool

    @classmethod
    def of(cls, metric: MetricSpec, images: bool) -> "Way":
        """That of a metric; in images, cells are searched."""
        options: Mapping[str, Any] = metric.facts["options"]
        target = "right" if metric.of.follows == "right" else options["target"]
        hide = hide_of(options["hide"], options.get("protocol"))
        if images:
            return cls(target, hide, "cell", "max", metric.of.lowest_first)
        return cls(target, hide, options["units"], options["combine"], metric.of.lowest_first)


def reference_cases(
    plan: EvaluationPlan, pairs: Collection[MethodMetric], outcomes: Outcomes, explained: Explained
) -> Iterator[tuple[str, MetricSpec, Case]]:
    """Yield random orders, and the best order that a search finds, for each metric that misses numbers of them.

    Texts that are short enough and images have references. Those of images order cells.
    """
    items, prediction = explained.items, explained.settled
    if items[0].row >= plan.settings.ceiling or not items[0].searchable:
        return  # a batch holds items of one kind
    chance, annotations = method_named("random"), [item.annotation for item in items]
    orders = [chance(prediction, seed=seed).total for seed in range(ORDERS)]
    cases = [Case(prediction, order, outcomes, annotations) for order in orders]
    searched: dict[Way, Case] = {}
    for metric in plan.metrics:
        if not metric.of.ceiling:
            continue
        way = Way.of(metric, images=isinstance(items[0].encoded, ImageInput))
        if (CHANCE, metric.label) in pairs:
            yield from ((CHANCE, metric, case.shuffled(way.units, way.combine)) for case in cases)
        if (CEILING, metric.label) in pairs:
            if way not in searched:
                searched[way] = _searched(plan, cases[0], way)
            yield CEILING, metric, searched[way]


def _searched(plan: EvaluationPlan, case: Case, way: Way) -> Case:
    """Return the case with the best order. Cells have an engine of their own: no other metric asks about them."""
    how: dict[str, Any] = {**way._asdict(), "beam": plan.settings.beam}
    if way.units != "cell":
        return case.best(**how, engine=None)
    engine = Outcomes(plan.subject.model, tokens_per_batch=plan.settings.tokens_per_batch)
    best = case.best(**how, engine=engine)
    case.outcomes.counts.add(engine.counts)
    return best
