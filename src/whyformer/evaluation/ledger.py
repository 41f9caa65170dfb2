"""The numbers of one chunk as they come in, and the records that are made of them."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.evaluation.examples import Item
from whyformer.evaluation.explained import Explained
from whyformer.evaluation.plan import EvaluationPlan, PendingChunk
from whyformer.methods.method import MethodSpec, Scores
from whyformer.metrics.metric import Measured, MetricSpec
from whyformer.prediction import Prediction
from whyformer.results.evaluation import Chunk, MethodMetric, Record
from whyformer.results.explanations import KEPT, gold_answer, row_facts, score_facts
from whyformer.tasks.task import ExampleOutputs


class MetricValues(NamedTuple):
    """The result of a metric for one item: a value, the curve that it averages, and details for corpus metrics."""

    value: float
    curve: Sequence[float]
    detail: Any


class Ledger:
    """Everything found about the items of a chunk: predictions, numbers, kept scores, and reasons for missing ones."""

    def __init__(self, plan: EvaluationPlan):
        self.plan = plan
        self.numbers: dict[tuple[int, MethodMetric], list[MetricValues]] = defaultdict(list)
        self.refused: dict[tuple[int | str, ...], str] = {}  # by row and method, or row, method and metric
        self.kept: dict[tuple[int, str], dict[str, Any]] = {}  # by row and method
        self.examples: dict[int, dict[str, Any]] = {}
        self.left_out: dict[int, str] = {}
        self.metrics: dict[str, dict[str, Any]] = {}

    def note(self, explained: Explained, *, keep: bool) -> None:
        """Note the predictions. Items whose prediction is not probable enough are left out."""
        prediction = explained.prediction
        predicted, probabilities = prediction.predicted.tolist(), None
        if prediction.task.name == "classes":
            probabilities = prediction.task.probabilities(prediction.outputs.logits.detach().double().cpu())
        for place, item in enumerate(explained.items):
            facts: dict[str, Any] = {"row": item.row, "units": item.units, "gold": item.annotation.gold}
            if item.encoded.dropped:
                facts["dropped"] = item.encoded.dropped
            if probabilities is not None:
                index = predicted[place]
                facts |= {"predicted": index, "probability": float(probabilities[place, index])}
                if reason := self._improbable(item, probabilities[place], index):
                    self.left_out[item.row] = reason
            if keep:
                facts["kept"] = self._kept_facts(prediction, place, item)
            self.examples[item.row] = facts

    def keep(self, explained: Explained, method: MethodSpec, scores: Scores) -> None:
        """Keep the scores of a method themselves."""
        quantity = explained.quantity_of(method)
        for place, item in enumerate(explained.items):
            try:
                self.kept[item.row, method.label] = score_facts(scores, place, len(item.encoded.units), quantity)
            except UnsupportedModel as error:
                self.refused[item.row, method.label, KEPT] = str(error)

    def add(self, method: str, metric: MetricSpec, items: Sequence[Item], measured: Measured) -> None:
        """Add the numbers of a metric. Random orders give several for one item, which are averaged in its record."""
        self.metrics[metric.label] = {
            **metric.facts,
            "higher_is_better": metric.of.higher_is_better,
            "level": metric.of.level,
            "at": list(measured.at),
        }
        values, details = measured.values.double().tolist(), measured.records or [None] * len(items)
        curves = [[]] * len(values) if measured.curve is None else measured.curve.double().tolist()
        for item, *numbers in zip(items, values, curves, details, strict=True):
            self.numbers[item.row, (method, metric.label)].append(MetricValues(*numbers))

    def refuse(self, items: Sequence[Item], what: tuple[str, ...], error: WhyformerError) -> None:
        """Note why a method, or a metric of a method, has no number for some items."""
        self.refused |= {(item.row, *what): str(error) for item in items}

    def forget(self, rows: Collection[int]) -> None:
        """Drop the numbers of some rows, which are measured again."""
        for key in [key for key in self.numbers if key[0] in rows]:
            del self.numbers[key]

    def chunk(self, pending: PendingChunk, items: Sequence[Item], counts: Mapping[str, int]) -> Chunk:
        """Return the records of all items that are not left out, in order of row, method and metric."""
        left_out = {**pending.left_out, **self.left_out}
        records = [
            self._record(item, pair, keys[pair])
            for item in pending.items
            if item.row not in left_out and (keys := self.plan.keys(item))
            for pair in pending.missing[item.row]
        ]
        examples = tuple(self.examples[item.row] for item in items)
        return Chunk(pending.start, pending.stop, tuple(records), self.metrics, examples, left_out, counts)

    def _record(self, item: Item, pair: MethodMetric, key: str) -> Record:
        method, metric = pair
        if metric == KEPT and (item.row, method) in self.kept:
            return Record(key, item.row, *pair, None, detail=self.kept[item.row, method])
        results = self.numbers.get((item.row, pair))
        if not results:
            reason = self.refused.get((item.row, method)) or self.refused.get((item.row, *pair))
            return Record(key, item.row, *pair, None, refused=reason)
        value = _mean([numbers.value for numbers in results])
        curve = tuple(_mean(points) for points in zip(*(numbers.curve for numbers in results), strict=True))
        return Record(key, item.row, *pair, value, curve, results[0].detail)

    def _improbable(self, item: Item, probabilities: Tensor, predicted: int) -> str | None:
        """Return the reason to leave out an item: its predicted class is improbable, or its gold one by a protocol."""
        least, protocol = self.plan.settings.min_probability, self.plan.settings.protocol
        gold = None if protocol is None else item.annotation.gold
        which, index = ("predicted", predicted) if gold is None else ("gold", gold)
        if least is None or probabilities[index] >= least:
            return None
        return f"the {which} class is less probable than {least}"

    def _kept_facts(self, prediction: Prediction, place: int, item: Item) -> dict[str, Any]:
        of = ExampleOutputs(prediction.outputs, place, item.encoded, prediction.batch.tokenizer)
        target = prediction.target[place].tolist()
        predicted = prediction.task.predicted(of, tuple(target) if isinstance(target, list) else target, None)
        facts = row_facts(item.text, predicted, self.plan.subject.labels)
        if self.plan.settings.windows.merge and item.windows:
            facts["windows"] = len(item.windows)
        answer = gold_answer(item.answer, item.annotation.unanswered, item.text.texts)
        return facts | ({} if answer is None else {"answer": answer})


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None if a value is not finite: a metric leaves such items out, and JSON has no NaN."""
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else None
