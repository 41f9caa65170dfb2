"""Asked: what methods and metrics were asked about a batch of examples, and may not have answered yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from whyformer.caching import cached_property
from whyformer.evaluation.examples import Item
from whyformer.methods.specs import MethodSpec
from whyformer.metrics.case import Case
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


Others = dict[Explains, dict[tuple[int, ...], Prediction]]  # predictions for other classes, by quantity
