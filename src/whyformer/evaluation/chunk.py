"""Asking: what metrics want to know of a model about one chunk of examples, noted first and then answered at once."""

import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import BadOption, CompletenessWarning, UnsupportedModel, WhyformerError
from whyformer.evaluation.examples import Item
from whyformer.inputs.encoding import collate
from whyformer.methods.registry import Scores, method_named
from whyformer.methods.specs import MethodSpec
from whyformer.metrics.case import Case
from whyformer.metrics.faithfulness import hide_of
from whyformer.metrics.idf import Idf
from whyformer.metrics.registry import Measured
from whyformer.metrics.specs import MetricSpec
from whyformer.models.loading import Subject
from whyformer.perturb import ORDERS, Outcomes, fits_in_memory
from whyformer.prediction import Prediction
from whyformer.results.records import Record
from whyformer.results.table import CEILING, CHANCE, Pair
from whyformer.tasks.score import Score
from whyformer.tasks.task import TASKS, ExampleOutputs


@dataclass(frozen=True)
class Settings:
    """What is measured beside methods and metrics.

    The rows before `ceiling` get the ceiling and the chance. Texts of fewer than `shortest` tokens, and texts whose
    predicted class is less probable than `likeliest`, are left out.
    """

    ceiling: int = 0
    beam: int = 1
    shortest: int | None = None
    likeliest: float | None = None
    skip_bad_rows: bool = False
    tokens_per_batch: int | None = None


@dataclass(frozen=True)
class Wanted:
    """What is wanted of every example: one number for each method and each metric that goes with it."""

    subject: Subject
    methods: tuple[MethodSpec, ...]
    metrics: tuple[MetricSpec, ...]
    settings: Settings = field(default_factory=Settings)
    idf: Idf | None = None

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if Score.fits(self.subject.model):
                raise BadOption(f"{metric.of.name} is for models that classify; this one is of regression")
            does = TASKS[self.subject.task].does
            if "answer" not in metric.of.needs and self.subject.task != "classes":
                raise BadOption(f"{metric.of.name} is for models that classify; this one {does}")
            if "answer" in metric.of.needs and self.subject.task != "answer":
                raise BadOption(f"{metric.of.name} is for models that answer questions; this one {does}")
            if not any(label == metric.label for _, label in self.pairs):
                raise BadOption(f"{metric.of.name} needs a method whose scores depend on the class; none is named")

    @cached_property
    def pairs(self) -> list[Pair]:
        """The methods and metrics that go together, by their labels."""
        found = [
            (method.label, metric.label)
            for method in self.methods
            for metric in self.metrics
            if method.class_specific or "classes" not in metric.of.needs
        ]
        if self.settings.ceiling:
            found += [(way, metric.label) for way in (CHANCE, CEILING) for metric in self.metrics if metric.of.ceiling]
        return found


@dataclass(frozen=True)
class Question:
    """A metric that is asked about a method's explanations of some items."""

    method: str
    metric: MetricSpec
    case: Case
    items: Sequence[Item]


class Asked:
    """What is asked of the model about one chunk, and what was answered."""

    def __init__(self, of: Wanted, pairs: set[Pair]):
        self.of, self.pairs = of, pairs
        subject = of.subject
        self.outcomes = Outcomes(subject.model, subject.tokenizer, tokens_per_batch=of.settings.tokens_per_batch)
        self.waiting: list[Question] = []
        self.found: dict[tuple[int, Pair], list[tuple[Measured, int]]] = defaultdict(list)  # with the place in its case
        self.refused: dict[tuple[int | str, ...], str] = {}  # by row and method, or row, method and metric
        self.said: dict[int, dict[str, Any]] = {}
        self.left_out: dict[int, str] = {}
        self.metric_facts: dict[str, dict[str, Any]] = {}

    def explain(self, items: Sequence[Item]) -> None:
        """Run the model on a batch, explain it by every method, and note what the metrics ask."""
        if fits_in_memory(lambda: self._explain(items), len(items)):
            return
        self.explain(items[: len(items) // 2])
        self.explain(items[len(items) // 2 :])

    def _explain(self, items: Sequence[Item]) -> None:
        wanted = [spec for spec in self.of.methods if any(method == spec.label for method, _ in self.pairs)]
        prediction = self._prediction(items, relevance=any(spec.of.relevance for spec in wanted))
        self._note(prediction, items)
        others: dict[tuple[int, ...], Prediction] = {}
        asked: list[Question] = []
        for spec in wanted:
            asked += self._questions(spec, prediction, items, others)
        settled = prediction.settled()
        asked += self._references(settled, items)
        for question in asked:
            self._plan(question, settled if question.case.prediction is prediction else None)

    def _prediction(self, items: Sequence[Item], relevance: bool) -> Prediction:
        subject = self.of.subject
        batch = collate(subject, [item.encoded for item in items])
        prediction = Prediction(subject.model, batch, relevance=relevance)
        outputs, task = prediction.trace.outputs, prediction.task
        if task.name not in ("classes", "answer"):
            raise UnsupportedModel(f"{type(subject.model).__name__} neither classifies nor answers questions")
        task.check(outputs, subject.model)
        if task.name == "classes":
            return prediction
        each = (ExampleOutputs(outputs, row, example) for row, example in enumerate(batch.examples))
        return prediction.towards([task.best_in(one) for one in each])

    def _note(self, prediction: Prediction, items: Sequence[Item]) -> None:
        logits = prediction.trace.logits.detach().double().cpu()
        probabilities = prediction.task.probabilities(logits) if prediction.task.name == "classes" else None
        for place, item in enumerate(items):
            said: dict[str, Any] = {"row": item.row, "units": item.units, "gold": item.said.gold}
            if item.encoded.dropped:
                said["dropped"] = item.encoded.dropped
            if probabilities is not None:
                index = int(prediction.predicted[place])
                probability = float(probabilities[place, index])
                said |= {"predicted": index, "probability": probability}
                likeliest = self.of.settings.likeliest
                if likeliest is not None and probability < likeliest:
                    self.left_out[item.row] = f"the predicted class is less probable than {likeliest}"
            self.said[item.row] = said

    def _questions(
        self,
        spec: MethodSpec,
        prediction: Prediction,
        items: Sequence[Item],
        others: dict[tuple[int, ...], Prediction],
    ) -> Iterator[Question]:
        """Every metric about one method; what it refuses as a batch is tried example by example."""
        try:
            scores = _scores(spec, prediction)
        except WhyformerError as error:
            if len(items) == 1:
                self.refused |= {(item.row, spec.label): str(error) for item in items}
                return
            for item in items:
                yield from self._questions(spec, self._prediction([item], spec.of.relevance), [item], {})
            return

        def scores_for(classes: Tensor) -> Tensor:
            key = tuple(classes.tolist())
            if key not in others:
                others[key] = prediction.towards(list(key))
            return _scores(spec, others[key]).total

        case = self._case(prediction, scores.total, items, scores_for if spec.class_specific else None)
        case = replace(case, ranks=bool(scores.diagnostics.get("ranks")))
        for metric in self.of.metrics:
            if (spec.label, metric.label) in self.pairs:
                yield Question(spec.label, metric, case, items)

    def _case(self, prediction: Prediction, scores: Tensor, items: Sequence[Item], scores_for: Any = None) -> Case:
        said = [item.said for item in items]
        return Case(prediction, scores, self.outcomes, said, scores_for, self.of.idf)

    def _references(self, prediction: Prediction, items: Sequence[Item]) -> Iterator[Question]:
        """Random orders and the best one that a search finds, for texts that are short enough."""
        if items[0].row >= self.of.settings.ceiling or not items[0].searchable:
            return  # batches hold one kind only
        chance = method_named("random")
        cases = [self._case(prediction, chance(prediction, seed=seed).total, items) for seed in range(ORDERS)]
        searched: dict[tuple[str, ...], Case] = {}
        for metric in self.of.metrics:
            if not metric.of.ceiling:
                continue
            options = metric.facts["options"]
            units, combine = options["units"], options["combine"]
            if (CHANCE, metric.label) in self.pairs:
                yield from (Question(CHANCE, metric, case.shuffled(units, combine), items) for case in cases)
            if (CEILING, metric.label) in self.pairs:
                hide = hide_of(options["hide"], options.get("protocol"))
                way = (options["target"], hide, units, combine)
                if way not in searched:
                    beam = self.of.settings.beam
                    searched[way] = cases[0].best(way[0], hide=hide, units=units, combine=combine, beam=beam)
                yield Question(CEILING, metric, searched[way], items)

    def _plan(self, question: Question, settled: Prediction | None) -> None:
        """Ask once, and let go of the graph; a metric that hides nothing is done with that."""
        metric, case = question.metric, question.case
        try:
            with self.outcomes.planning():
                measured = metric(case)
        except BadOption as error:
            raise BadOption(f"{metric.label}: {error}") from error
        except WhyformerError as error:
            self._refuse(question, error)
            return
        if metric.of.hides:
            kept = case.prediction.settled() if settled is None else settled
            self.waiting.append(replace(question, case=replace(case, prediction=kept)))
        else:
            self._keep(question, measured)

    def _refuse(self, question: Question, error: WhyformerError) -> None:
        """A metric that could not be had for a batch is tried example by example."""
        spec = next((spec for spec in self.of.methods if spec.label == question.method), None)
        if spec is None or len(question.items) == 1:
            self.refused |= {(item.row, question.method, question.metric.label): str(error) for item in question.items}
            return
        for item in question.items:
            alone = self._questions(spec, self._prediction([item], spec.of.relevance), [item], {})
            for one in (one for one in alone if one.metric is question.metric):
                self._plan(one, None)

    def answer(self) -> None:
        """Run the model on all that was asked, and measure."""
        self.outcomes.run()
        for question in self.waiting:
            self._keep(question, question.metric(question.case))
        self.waiting.clear()

    def _keep(self, question: Question, measured: Measured) -> None:
        spec = question.metric
        self.metric_facts[spec.label] = {
            **spec.facts,
            "higher_is_better": spec.of.higher_is_better,
            "level": spec.of.level,
            "at": list(measured.at),
        }
        for place, item in enumerate(question.items):
            self.found[item.row, (question.method, spec.label)].append((measured, place))

    def record(self, item: Item, pair: Pair, key: str) -> Record:
        """What was found for one item: a mean where several orders were tried."""
        found = self.found.get((item.row, pair), [])
        if not found:
            reason = self.refused.get((item.row, pair[0])) or self.refused.get((item.row, *pair))
            return Record(key, item.row, *pair, None, refused=reason)
        value = torch.stack([m.values[place] for m, place in found]).double().mean()
        curves = [m.curve[place] for m, place in found if m.curve is not None]
        curve = torch.stack(curves).double().mean(0).tolist() if curves else []
        records = found[0][0].records
        detail = records[found[0][1]] if records else None
        return Record(key, item.row, *pair, _number(value.item()), tuple(map(_number, curve)), detail)


def _scores(spec: MethodSpec, prediction: Prediction) -> Scores:
    """What a method gives; that scores do not add up is not told of every batch: how good they are is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompletenessWarning)
        scores: Scores = spec(prediction)
    return scores


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None  # left out
