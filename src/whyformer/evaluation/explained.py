"""Items with what the model predicts for them, and their scores: a batch of inputs, or one document in windows."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from whyformer.caching import cached_property
from whyformer.errors import CompletenessWarning, UnsupportedModel
from whyformer.evaluation.examples import Item
from whyformer.evaluation.plan import EvaluationPlan
from whyformer.evaluation.protocols import as_explained
from whyformer.inputs.batch import collate
from whyformer.methods.long_texts import Document
from whyformer.methods.method import MethodSpec, Scores
from whyformer.prediction import Prediction
from whyformer.recorder import Needs
from whyformer.tasks.classification import Classification
from whyformer.tasks.task import ExampleOutputs, Explains, are_all_others


class Explained(Protocol):
    """Items that are explained together. `settled` is their prediction without its autograd graph."""

    items: Sequence[Item]
    prediction: Prediction

    @property
    def settled(self) -> Prediction:
        """The prediction without its graph, which metrics may keep."""
        ...

    def quantity_of(self, method: MethodSpec) -> Explains:
        """Return the quantity that a method explains here."""
        ...

    def scores(self, method: MethodSpec, classes: Tensor | None = None) -> Scores:
        """Return the scores for the explained outputs, or for another class of each item."""
        ...


class ExplainedBatch:
    """Items in one batch. Under a protocol, methods explain another run than the one that is measured."""

    def __init__(self, plan: EvaluationPlan, items: Sequence[Item], methods: Sequence[MethodSpec]):
        protocol, self._settings = plan.settings.protocol, plan.settings
        needs = replace(Needs.of_all([method.needs for method in methods]), once=False)  # metrics may ask for classes
        self.items = items
        self.prediction = self._run = _prediction(plan, items, needs if protocol is None else Needs(maps=False))
        if protocol is not None:
            run = Prediction(plan.subject.model, as_explained(self.prediction.batch, protocol), needs=needs)
            self._run = run.towards(self.prediction.target.tolist())
        # Methods that explain the same quantity, or the same classes, share a prediction.
        self._by_quantity: dict[Explains, Prediction] = {}
        self._by_classes: dict[tuple[Explains, tuple[int, ...]], Prediction] = {}

    @cached_property
    def settled(self) -> Prediction:
        """The prediction without its graph, which metrics may keep."""
        return self.prediction.settled()

    def quantity_of(self, method: MethodSpec) -> Explains:
        """Return the quantity that a method explains here."""
        return "log_odds" if are_all_others(self._explained_by(method).versus) else "logit"

    def scores(self, method: MethodSpec, classes: Tensor | None = None) -> Scores:
        """Return the scores for the explained outputs, or for another class of each item."""
        prediction = self._explained_by(method)
        if classes is not None:
            key = method.quantity, tuple(classes.tolist())
            if key not in self._by_classes:
                self._by_classes[key] = prediction.of_classes(list(key[1]))
            prediction = self._by_classes[key]
        with _without_completeness_warnings():
            return method(prediction)

    def _explained_by(self, method: MethodSpec) -> Prediction:
        """Return the run as a method explains it: by the settings, or by the quantity that the method declares."""
        if self._run.task.name != "classes":
            return self._run
        if method.quantity not in self._by_quantity:
            settings = self._settings
            versus = self._run.outputs.explained(settings.explains, settings.versus, method.quantity)
            self._by_quantity[method.quantity] = self._run if versus is None else self._run.set_against(versus)
        return self._by_quantity[method.quantity]


class ExplainedDocument:
    """A document that is longer than the model's window, explained by all its windows, `size` of them at a time."""

    def __init__(self, plan: EvaluationPlan, item: Item, methods: Sequence[MethodSpec], *, size: int):
        subject, needs = plan.subject, Needs.of_all([method.needs for method in methods])
        self._document = Document(
            subject, Classification.of(subject.model), item.text, item.windows, size=size, needs=needs
        )
        self.items: Sequence[Item] = [item]
        self.prediction = self._document.prediction

    @property
    def settled(self) -> Prediction:
        """The prediction, which has no graph: no run holds the whole document."""
        return self.prediction

    def quantity_of(self, method: MethodSpec) -> Explains:
        """Return the quantity that a method explains here: logits are merged."""
        return "logit"

    def scores(self, method: MethodSpec, classes: Tensor | None = None) -> Scores:
        """Return the scores for the predicted class, or for another one."""
        index = int(self.prediction.predicted if classes is None else classes)
        with _without_completeness_warnings():
            return self._document.scores(method, [(index, None)])[0]


@contextmanager
def _without_completeness_warnings() -> Iterator[None]:
    """Ignore that scores do not add up: how good they are is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompletenessWarning)
        yield


def _prediction(plan: EvaluationPlan, items: Sequence[Item], needs: Needs) -> Prediction:
    """Run the model on a batch. The explained output of an item is what the model predicts."""
    model, settings = plan.subject.model, plan.settings
    batch = collate(plan.subject, [item.encoded for item in items])
    prediction = Prediction(model, batch, needs=needs)
    outputs, task = prediction.outputs, prediction.task
    if task.name not in ("classes", "answer"):
        raise UnsupportedModel(f"{type(model).__name__} neither classifies nor answers questions")
    task.check(outputs, model)
    if task.name == "classes":
        _ = outputs.explained(settings.explains, settings.versus)  # raises if the settings do not fit the model
        return prediction
    each = (ExampleOutputs(outputs, row, example) for row, example in enumerate(batch.examples))
    return prediction.towards([task.best_in(one) for one in each])
