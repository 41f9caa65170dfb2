"""Asked: what methods and metrics were asked about a batch of examples, and may not have answered yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from whyformer.caching import cached_property
from whyformer.checks import Checks, postponed
from whyformer.errors import WhyformerError
from whyformer.evaluation.examples import Item
from whyformer.landing import Landing
from whyformer.methods.registry import Scores
from whyformer.methods.specs import MethodSpec
from whyformer.metrics.case import Case
from whyformer.metrics.class_scores import scores_by
from whyformer.metrics.specs import MetricSpec
from whyformer.prediction import Prediction


@dataclass(frozen=True)
class MetricCall:
    """A metric that is called for a method's explanations of some items."""

    method: str
    metric: MetricSpec
    case: Case
    items: Sequence[Item]


@dataclass(frozen=True)
class Runs:
    """What the model says of some items, and the run that is explained: another one only where a protocol asks it."""

    whole: Prediction
    explained: Prediction

    @cached_property
    def settled(self) -> Prediction:
        """What it says, without the graph."""
        return self.whole.settled()


@dataclass(frozen=True)
class Asked:
    """A method that was asked for its scores: a GPU may still be computing them, or the checks of their numbers.

    Of the scores, [batch, units], a copy is on its way to the CPU.
    """

    method: MethodSpec
    answer: Scores | WhyformerError
    checks: Checks
    landing: Landing | None = None

    @classmethod
    def of(cls, method: MethodSpec, runs: Runs) -> "Asked":
        """Ask a method."""
        with postponed() as checks:
            try:
                answer = scores_by(method, runs.explained)
            except WhyformerError as error:
                return cls(method, error, checks)
        checks.land()
        runs.whole.land()
        scores = replace(answer, values=answer.total)
        return cls(method, scores, checks, Landing(scores.values))

    def scores(self) -> Scores:
        """The scores, or the error that there is in place of them."""
        if isinstance(self.answer, WhyformerError):
            raise self.answer
        self.checks.make()
        return self.answer


@dataclass
class AskedBatch:
    """Items that every method was asked about; the metrics are not yet, because they need the scores."""

    items: Sequence[Item]
    runs: Runs
    logits: Landing
    turn: int
    asked: list[Asked] = field(default_factory=list)  # of which no metric was asked
    others: dict[tuple[int, ...], Prediction] = field(default_factory=dict)  # for other classes
