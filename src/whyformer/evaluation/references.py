"""References: random orders, and the best one that a search finds, which methods are compared with."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from whyformer.evaluation.asked import MetricCall
from whyformer.evaluation.examples import Item
from whyformer.evaluation.plan import Plan
from whyformer.inputs.images import ImageInput
from whyformer.methods.registry import method_named
from whyformer.metrics.case import Case, Combine, Groups
from whyformer.metrics.faithfulness import hide_of
from whyformer.metrics.specs import MetricSpec
from whyformer.perturb import ORDERS, Outcomes
from whyformer.prediction import Prediction
from whyformer.results.table import CEILING, CHANCE, Pair


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


class References:
    """Those of a chunk, of which some pairs of a method and a metric are missing."""

    def __init__(self, plan: Plan, pairs: Collection[Pair], outcomes: Outcomes):
        self.plan, self.pairs, self.outcomes = plan, pairs, outcomes

    def calls(self, prediction: Prediction, items: Sequence[Item]) -> Iterator[MetricCall]:
        """Random orders and the best one that a search finds, for texts that are short enough, and for images.

        Both are orders of the cells of an image.
        """
        if items[0].row >= self.plan.settings.ceiling or not items[0].searchable:
            return  # batches hold one kind only
        chance = method_named("random")
        cases = [self._case(prediction, chance(prediction, seed=seed).total, items) for seed in range(ORDERS)]
        searched: dict[Way, Case] = {}
        for metric in self.plan.metrics:
            if not metric.of.ceiling:
                continue
            way = Way.of(metric, images=isinstance(items[0].encoded, ImageInput))
            if (CHANCE, metric.label) in self.pairs:
                yield from (MetricCall(CHANCE, metric, case.shuffled(way.units, way.combine), items) for case in cases)
            if (CEILING, metric.label) in self.pairs:
                if way not in searched:
                    searched[way] = self._searched(cases[0], way)
                yield MetricCall(CEILING, metric, searched[way], items)

    def _searched(self, case: Case, way: "Way") -> Case:
        """The case with the best order that a search finds; what is asked about cells is not asked again."""
        engine = None
        if way.units == "cell":
            engine = Outcomes(self.plan.subject.model, tokens_per_batch=self.plan.settings.tokens_per_batch)
        how: dict[str, Any] = {**way._asdict(), "beam": self.plan.settings.beam, "engine": engine}
        best = case.best(**how)
        if engine is not None:
            self.outcomes.counts.add(engine.counts)
        return best

    def _case(self, prediction: Prediction, scores: Tensor, items: Sequence[Item]) -> Case:
        return Case(prediction, scores, self.outcomes, [item.annotation for item in items], idf=self.plan.idf)
