"""Asked: what methods and metrics were asked about a batch of examples, and may not have answered yet."""

from collections import defaultdict
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
from whyformer.tasks.task import Explains, are_all_others


@dataclass(frozen=True)
class MetricCall:
    """A metric that is called for a method's explanations of some items."""

    method: str
    metric: MetricSpec
    case: Case
    items: Sequence[Item]


@dataclass(frozen=True)
class Runs:
    """What the model says of some items, and the run that is explained: another one only where a protocol asks it.

    `explains` and `versus` are those of the evaluation. Without them, each method explains the quantity it declares.
    """

    whole: Prediction
    explained: Prediction
    explains: Explains | None = None
    versus: str | None = None
    _by_quantity: dict[Explains, Prediction] = field(default_factory=dict)

    def explained_by(self, method: MethodSpec) -> Prediction:
        """The run as a method explains it. Methods that explain the same quantity share it."""
        if self.explained.task.name != "classes":
            return self.explained
        if method.quantity not in self._by_quantity:
            versus = self.explained.outputs.explained(self.explains, self.versus, method.quantity)
            turned = self.explained if versus is None else self.explained.set_against(versus)
            self._by_quantity[method.quantity] = turned
        return self._by_quantity[method.quantity]

    def quantity_of(self, method: MethodSpec) -> Explains:
        """The quantity that a method explains here."""
        return "log_odds" if are_all_others(self.explained_by(method).versus) else "logit"

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
                answer = scores_by(method, runs.explained_by(method))
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


Others = dict[Explains, dict[tuple[int, ...], Prediction]]  # predictions for other classes, by quantity


@dataclass
class AskedBatch:
    """Items that every method was asked about; the metrics are not yet, because they need the scores."""

    items: Sequence[Item]
    runs: Runs
    logits: Landing
    turn: int
    asked: list[Asked] = field(default_factory=list)  # of which no metric was asked
    others: Others = field(default_factory=lambda: defaultdict(dict))
