"""Measuring one chunk of examples: what metrics ask of the model is noted first, and then run at once."""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whyformer.errors import BadOption, UnsupportedModel, WhyformerError
from whyformer.evaluation.asked import MetricCall, Others, Runs
from whyformer.evaluation.examples import Item, batches
from whyformer.evaluation.plan import PendingChunk, Plan
from whyformer.evaluation.protocols import as_explained
from whyformer.evaluation.references import References
from whyformer.inputs.encoding import collate
from whyformer.methods.documents import Document
from whyformer.methods.registry import Scores
from whyformer.methods.specs import MethodSpec
from whyformer.metrics.case import PIXELS, Case
from whyformer.metrics.class_scores import ClassScores, DocumentScores, scores_by
from whyformer.metrics.registry import Measured
from whyformer.models.limits import limits_of
from whyformer.models.memory import collect_now, uncollected
from whyformer.perturb import Outcomes, in_parts, with_fewer
from whyformer.perturb.flights import AHEAD
from whyformer.perturb.probe import probe
from whyformer.perturb.windows import WindowRunner
from whyformer.prediction import Prediction
from whyformer.progress import listening
from whyformer.recorder import Needs
from whyformer.recorder.captures import capturing
from whyformer.results.kept import KEPT, gold_answer, row_facts, score_facts
from whyformer.results.records import Chunk, Record
from whyformer.results.table import Pair
from whyformer.tasks.classes import Classes
from whyformer.tasks.task import ExampleOutputs, Explains

ScoresFor = ClassScores | DocumentScores


def measured_chunk(plan: Plan, pending: PendingChunk) -> Chunk:
    """The numbers of a chunk that are missing; records in order of row, method and metric."""
    run = ChunkRun(plan, pending)
    with uncollected():
        run.ask()
        return run.result()


def measured_chunks(plan: Plan, pending: Iterable[PendingChunk]) -> Iterator[Chunk]:
    """Chunks one after the other; a GPU runs what the metrics of one ask while the next one is explained.

    Whatever ends it while the next one is read or explained, the one before is measured still.
    """
    most = 2 if plan.subject.device.type in AHEAD else 1
    going: deque[ChunkRun] = deque()
    chunks = iter(pending)
    while True:
        try:
            chunk = next(chunks, None)
            if chunk is None:
                break
            going.append(ChunkRun(plan, chunk, partial(_advance, going)))
            going[-1].ask()
        except (Exception, KeyboardInterrupt):
            if going and going[0].is_asked:
                yield going.popleft().result()
            raise
        _advance(going)
        if len(going) == most:
            yield going.popleft().result()
    while going:
        yield going.popleft().result()


def _advance(going: Iterable["ChunkRun"]) -> None:
    """Keep a GPU busy with the chunks of which everything was asked; `result` raises what is wrong with one."""
    for run in going:
        if run.is_asked:
            with listening(None), suppress(Exception):
                run.outcomes.advance()


class Numbers(NamedTuple):
    """What a metric found of one example: a number, those that it is the mean of, and what a corpus metric needs."""

    value: float
    curve: Sequence[float]
    detail: Any


class ChunkRun:
    """One chunk while it is measured: the metrics that wait for the model, and what they found."""

    def __init__(self, plan: Plan, pending: PendingChunk, meanwhile: Callable[[], None] = lambda: None):
        self.plan, self.pending, self.meanwhile = plan, pending, meanwhile
        self.pairs = {pair for of_row in pending.missing.values() for pair in of_row}
        self.outcomes = Outcomes(plan.subject.model, tokens_per_batch=plan.settings.tokens_per_batch)
        self.waiting: list[MetricCall] = []
        self.measured: dict[tuple[int, Pair], list[Numbers]] = defaultdict(list)
        self.refused: dict[tuple[int | str, ...], str] = {}  # by row and method, or row, method and metric
        self.kept: dict[tuple[int, str], dict[str, Any]] = {}  # by row and method
        self.example_facts: dict[int, dict[str, Any]] = {}
        self.left_out: dict[int, str] = {}
        self.metric_facts: dict[str, dict[str, Any]] = {}
        self.is_asked = False

    def ask(self) -> None:
        """Explain everything that is wanted, and note what the metrics ask of the model."""
        plan = self.plan
        probe(plan.subject)
        with self._quietly():
            wanted = [item.ready(plan.subject) for item in self.pending.items if self.pending.missing[item.row]]
            self.wanted = self.in_windows(wanted)
            texts = [item for item in self.wanted if not self.is_merged(item)]
            for batch in batches(texts, limits_of(plan.subject.device, plan.subject.model), plan.settings.ceiling):
                self.explain(batch)
            for item in self.wanted:
                if self.is_merged(item):
                    self.explain_document(item)
        self.is_asked = True

    def result(self) -> Chunk:
        """The numbers, once everything was asked."""
        pending = self.pending
        with self._quietly():
            self.measure()
        left_out = {**pending.left_out, **self.left_out}
        records = [
            self.record(item, pair, keys[pair])
            for item in pending.items
            if item.row not in left_out and (keys := self.plan.keys(item))
            for pair in pending.missing[item.row]
        ]
        examples = tuple(self.example_facts[item.row] for item in self.wanted)
        counts = vars(self.outcomes.counts)
        return Chunk(pending.start, pending.stop, tuple(records), self.metric_facts, examples, left_out, counts)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """In it, whoever counts chunks is not told of the steps of every method."""
        with capturing(self.plan.settings.capture), listening(None):
            yield

    def in_windows(self, items: Sequence[Item]) -> list[Item]:
        """The items, each with the window of its context that is explained, where that does not fit as a whole."""
        if self.plan.settings.windows.merge:
            return list(items)
        windows = [window for item in items for window in item.windows]
        engine = WindowRunner(self.plan.subject.model, windows, tokens_per_batch=self.plan.settings.tokens_per_batch)
        return [item.in_window(engine.explained(item.windows)) if item.windows else item for item in items]

    def is_merged(self, item: Item) -> bool:
        """Whether it is a document that is explained by all its windows."""
        return self.plan.settings.windows.merge and bool(item.windows)

    def explain(self, items: Sequence[Item]) -> None:
        """Run the model on a batch, explain it by every method, and note what the metrics ask."""
        for attempt in in_parts(items):
            with attempt as part:
                try:
                    self._explain(part)
                except torch.OutOfMemoryError:  # whatever was asked about these items is asked again
                    self._forget(part)
                    raise
            collect_now()  # graphs hold memory of the device

    def _forget(self, items: Sequence[Item]) -> None:
        """Forget what was asked about some items, and found."""
        rows = {item.row for item in items}
        self.waiting = [call for call in self.waiting if not rows.issuperset(item.row for item in call.items)]
        for key in [key for key in self.measured if key[0] in rows]:
            del self.measured[key]

    def _explain(self, items: Sequence[Item]) -> None:
        wanted = self._missing_methods
        runs = self._runs(items, Needs.of_all([spec.needs for spec in wanted]))
        self._note(runs.whole, items)
        others: Others = defaultdict(dict)
        for spec in wanted:
            self._plan_all(self._calls(spec, runs, items, others), runs)
        self._plan_all(References(self.plan, self.pairs, self.outcomes).calls(runs.settled, items), runs)

    def _plan_all(self, calls: Iterable[MetricCall], runs: Runs) -> None:
        """Ask every metric once; what is asked about a prediction is kept without its graph."""
        for call in calls:
            self._plan(call, runs.settled if call.case.prediction is runs.whole else None)
            self.meanwhile()

    def _runs(self, items: Sequence[Item], needs: Needs) -> Runs:
        protocol = self.plan.settings.protocol
        needs = replace(needs, once=False)  # metrics may ask about other classes
        whole = self._prediction(items, needs if protocol is None else Needs(maps=False))
        explained, settings = whole, self.plan.settings
        _ = whole.outputs.explained(settings.explains, settings.versus)  # what is wrong with them ends the evaluation
        if protocol is not None:
            batch = as_explained(whole.batch, protocol)
            explained = Prediction(self.plan.subject.model, batch, needs=needs).towards(whole.target.tolist())
        return Runs(whole, explained, settings.explains, settings.versus)

    @property
    def _missing_methods(self) -> list[MethodSpec]:
        """The methods of which something is missing; last those that run the model often, or draw: they wait for it."""
        wanted = [spec for spec in self.plan.methods if any(method == spec.label for method, _ in self.pairs)]
        return sorted(wanted, key=lambda spec: spec.of.passes == "many" or spec.of.family == "perturbation")

    def explain_document(self, item: Item) -> None:
        """Explain a document by all its windows, by every method, and measure; fewer at once where memory is short."""
        limits = limits_of(self.plan.subject.device, self.plan.subject.model)
        size = max(1, min(limits.texts, limits.traced_tokens // len(item.windows[0])))
        for attempt in with_fewer(size):
            with attempt as some:
                try:
                    self._explain_document(item, len(some))
                except torch.OutOfMemoryError:
                    self._forget([item])
                    raise

    def _explain_document(self, item: Item, size: int) -> None:
        """The same by so many windows at a time."""
        subject = self.plan.subject
        needs = Needs.of_all([spec.needs for spec in self._missing_methods])
        document = Document(subject, Classes.of(subject.model), item.text, item.windows, size=size, needs=needs)
        self._note(document.prediction, [item])
        for spec in self._missing_methods:
            by_class = DocumentScores(spec, document)
            try:
                scores = by_class.of(int(document.prediction.predicted))
            except WhyformerError as error:
                self.refused[item.row, spec.label] = str(error)
                continue
            if (spec.label, KEPT) in self.pairs:
                self._keep_scores(spec.label, scores, [item])
            for call in self._metric_calls(spec, document.prediction, scores, [item], by_class):
                self._plan(call, document.prediction)

    def _prediction(self, items: Sequence[Item], needs: Needs) -> Prediction:
        subject = self.plan.subject
        batch = collate(subject, [item.encoded for item in items])
        prediction = Prediction(subject.model, batch, needs=needs)
        outputs, task = prediction.outputs, prediction.task
        if task.name not in ("classes", "answer"):
            raise UnsupportedModel(f"{type(subject.model).__name__} neither classifies nor answers questions")
        task.check(outputs, subject.model)
        if task.name == "classes":
            return prediction
        each = (ExampleOutputs(outputs, row, example) for row, example in enumerate(batch.examples))
        return prediction.towards([task.best_in(one) for one in each])

    def _note(self, prediction: Prediction, items: Sequence[Item]) -> None:
        task, predicted = prediction.task, prediction.predicted.tolist()
        logits = prediction.outputs.logits.detach().double().cpu()
        probabilities = task.probabilities(logits) if task.name == "classes" else None
        for place, item in enumerate(items):
            facts: dict[str, Any] = {"row": item.row, "units": item.units, "gold": item.annotation.gold}
            if item.encoded.dropped:
                facts["dropped"] = item.encoded.dropped
            if probabilities is not None:
                index = predicted[place]
                probability = float(probabilities[place, index])
                facts |= {"predicted": index, "probability": probability}
                if reason := self._improbable(item, probabilities[place], index):
                    self.left_out[item.row] = reason
            if any(metric == KEPT for _, metric in self.pairs):
                facts["kept"] = self._kept_row(prediction, place, item)
            self.example_facts[item.row] = facts

    def _improbable(self, item: Item, probabilities: Tensor, predicted: int) -> str | None:
        """Why the example is left out, if its predicted class (the authors' code: its gold one) is not probable."""
        least, protocol = self.plan.settings.min_probability, self.plan.settings.protocol
        gold = None if protocol is None else item.annotation.gold
        which, index = ("predicted", predicted) if gold is None else ("gold", gold)
        if least is None or probabilities[index] >= least:
            return None
        return f"the {which} class is less probable than {least}"

    def _kept_row(self, prediction: Prediction, place: int, item: Item) -> dict[str, Any]:
        of = ExampleOutputs(prediction.outputs, place, item.encoded, prediction.batch.tokenizer)
        target = prediction.target[place].tolist()
        predicted = prediction.task.predicted(of, tuple(target) if isinstance(target, list) else target, None)
        facts = row_facts(item.text, predicted, self.plan.subject.labels)
        if self.is_merged(item):
            facts["windows"] = len(item.windows)
        answer = gold_answer(item.answer, item.annotation.unanswered, item.text.texts)
        return facts | ({} if answer is None else {"answer": answer})

    def _calls(self, spec: MethodSpec, runs: Runs, items: Sequence[Item], others: Others) -> Iterator[MetricCall]:
        """Every metric about one method; what it refuses as a batch is tried example by example."""
        try:
            scores = scores_by(spec, runs.explained_by(spec))
        except WhyformerError as error:
            if len(items) == 1:
                self.refused |= {(item.row, spec.label): str(error) for item in items}
                return
            for item in items:
                yield from self._calls_alone(spec, item)
            return
        if (spec.label, KEPT) in self.pairs:
            self._keep_scores(spec.label, scores, items, runs.quantity_of(spec))
        by_class = ClassScores(spec, runs.explained_by(spec), others[spec.quantity])
        yield from self._metric_calls(spec, runs.whole, scores, items, by_class)

    def _calls_alone(self, spec: MethodSpec, item: Item) -> Iterator[MetricCall]:
        """The same about one item."""
        return self._calls(spec, self._runs([item], spec.needs), [item], defaultdict(dict))

    def _metric_calls(
        self,
        spec: MethodSpec,
        prediction: Prediction,
        scores: Scores,
        items: Sequence[Item],
        by_class: ScoresFor,
    ) -> Iterator[MetricCall]:
        """Every metric about the scores of one method."""
        case = self._case(prediction, scores.total, items, by_class if spec.class_specific else None)
        pixels = scores.diagnostics.get(PIXELS)
        case = replace(case, ranks=scores.ranks, signed=bool(scores.signed), pixels=pixels)
        for metric in self.plan.metrics:
            if (spec.label, metric.label) in self.pairs:
                yield MetricCall(spec.label, metric, case, items)

    def _keep_scores(self, label: str, scores: Scores, items: Sequence[Item], explains: Explains = "logit") -> None:
        for place, item in enumerate(items):
            try:
                self.kept[item.row, label] = score_facts(scores, place, len(item.encoded.units), explains)
            except UnsupportedModel as error:
                self.refused[item.row, label, KEPT] = str(error)

    def _case(
        self, prediction: Prediction, scores: Tensor, items: Sequence[Item], scores_for: ScoresFor | None = None
    ) -> Case:
        annotations = [item.annotation for item in items]
        return Case(prediction, scores, self.outcomes, annotations, scores_for, self.plan.idf)

    def _plan(self, call: MetricCall, settled: Prediction | None) -> None:
        """Ask once, and let go of the graph; a metric that hides nothing is done with that."""
        metric, case = call.metric, call.case
        try:
            with self.outcomes.planning():
                measured = metric(case)
        except BadOption as error:
            raise BadOption(f"{metric.label}: {error}") from error
        except WhyformerError as error:
            self._refuse(call, error)
            return
        if metric.of.hides:
            kept = case.prediction.settled() if settled is None else settled
            self.waiting.append(replace(call, case=case.settled(kept)))
        else:
            self._keep(call, measured)

    def _refuse(self, call: MetricCall, error: WhyformerError) -> None:
        """A metric that could not be had for a batch is tried example by example."""
        spec = next((spec for spec in self.plan.methods if spec.label == call.method), None)
        if spec is None or len(call.items) == 1:
            self.refused |= {(item.row, call.method, call.metric.label): str(error) for item in call.items}
            return
        for item in call.items:
            for one in (one for one in self._calls_alone(spec, item) if one.metric is call.metric):
                self._plan(one, None)

    def measure(self) -> None:
        """Measure, while the model runs on what was asked about later calls."""
        for call in self.waiting:
            self._keep(call, call.metric(call.case))
            self.meanwhile()
        self.waiting.clear()
        self.outcomes.forget()

    def _keep(self, call: MetricCall, measured: Measured) -> None:
        spec = call.metric
        self.metric_facts[spec.label] = {
            **spec.facts,
            "higher_is_better": spec.of.higher_is_better,
            "level": spec.of.level,
            "at": list(measured.at),
        }
        pair, details = (call.method, spec.label), measured.records or [None] * len(call.items)
        values = measured.values.double().tolist()
        curves = [[]] * len(values) if measured.curve is None else measured.curve.double().tolist()
        for item, *numbers in zip(call.items, values, curves, details, strict=True):
            self.measured[item.row, pair].append(Numbers(*numbers))

    def record(self, item: Item, pair: Pair, key: str) -> Record:
        """What was measured of one item: a mean where several orders were tried."""
        results = self.measured.get((item.row, pair), [])
        if kept := self.kept.get((item.row, pair[0])) if pair[1] == KEPT else None:
            return Record(key, item.row, *pair, None, detail=kept)
        if not results:
            reason = self.refused.get((item.row, pair[0])) or self.refused.get((item.row, *pair))
            return Record(key, item.row, *pair, None, refused=reason)
        value, curve = results[0].value, results[0].curve
        if len(results) > 1:
            value = _mean([numbers.value for numbers in results])
            curve = [_mean(points) for points in zip(*(numbers.curve for numbers in results), strict=True)]
        return Record(key, item.row, *pair, _finite(value), tuple(map(_finite, curve)), results[0].detail)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # left out
