"""Measure one chunk of examples.

`ChunkRun.ask` explains the items and calls every metric once. A metric that hides units is given placeholders, and the
engine notes which inputs it needs. `ChunkRun.result` runs these inputs in dense batches and calls the metrics again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch

from whyformer.errors import BadOption, WhyformerError
from whyformer.evaluation.examples import Item, batches
from whyformer.evaluation.explained import Explained, ExplainedBatch, ExplainedDocument
from whyformer.evaluation.ledger import Ledger
from whyformer.evaluation.plan import EvaluationPlan, PendingChunk
from whyformer.evaluation.references import reference_cases
from whyformer.methods.method import MethodSpec, Scores
from whyformer.metrics.case import PIXELS, Case
from whyformer.metrics.metric import MetricSpec
from whyformer.models.memory import collect_now, limits_of, uncollected
from whyformer.perturb import Outcomes, in_halves
from whyformer.perturb.engine import AHEAD, WindowRunner
from whyformer.perturb.probe import probe
from whyformer.progress import listening
from whyformer.recorder.capture.captures import capturing
from whyformer.results.evaluation import Chunk
from whyformer.results.explanations import KEPT


def measured_chunk(plan: EvaluationPlan, pending: PendingChunk) -> Chunk:
    """Measure the missing numbers of a chunk. Records are in order of row, method and metric."""
    run = ChunkRun(plan, pending)
    with uncollected():
        run.ask()
        return run.result()


def measured_chunks(plan: EvaluationPlan, pending: Iterable[PendingChunk]) -> Iterator[Chunk]:
    """Measure chunks in order. A GPU runs the inputs of one chunk while the next chunk is explained.

    If reading or explaining a chunk fails, the chunk before it is still measured.
    """
    most = 2 if plan.subject.device.type in AHEAD else 1
    running: deque[ChunkRun] = deque()
    chunks = iter(pending)
    while True:
        try:
            chunk = next(chunks, None)
            if chunk is None:
                break
            running.append(ChunkRun(plan, chunk, keep_busy=partial(_advance, running)))
            running[-1].ask()
        except (Exception, KeyboardInterrupt):
            if running and running[0].is_asked:
                yield running.popleft().result()
            raise
        _advance(running)
        if len(running) == most:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


def _advance(running: Iterable["ChunkRun"]) -> None:
    """Launch inputs of the chunks that are explained. `ChunkRun.result` meets any error again, and raises it."""
    for run in running:
        if run.is_asked:
            with listening(None), suppress(Exception):
                run.outcomes.advance()


@dataclass(frozen=True)
class MetricCall:
    """A metric, and the explanations of some items by one method that it measures."""

    method: str
    metric: MetricSpec
    case: Case
    items: Sequence[Item]


class ChunkRun:
    """One chunk while it is measured. `keep_busy` lets a GPU go on with the chunk before it."""

    def __init__(self, plan: EvaluationPlan, pending: PendingChunk, keep_busy: Callable[[], None] = lambda: None):
        self.plan, self.pending, self.keep_busy = plan, pending, keep_busy
        self.pairs = {pair for of_row in pending.missing.values() for pair in of_row}
        self.outcomes = Outcomes(plan.subject.model, tokens_per_batch=plan.settings.tokens_per_batch)
        self.ledger = Ledger(plan)
        self.waiting: list[MetricCall] = []
        self.items: list[Item] = []
        self.is_asked = False

    def ask(self) -> None:
        """Explain all items, and note which inputs the metrics need."""
        subject, settings = self.plan.subject, self.plan.settings
        probe(subject)
        limits = limits_of(subject.device, subject.model)
        with self._quietly():
            wanted = [item.ready(subject) for item in self.pending.items if self.pending.missing[item.row]]
            self.items = wanted if settings.windows.merge else self._in_windows(wanted)
            documents = [item for item in self.items if settings.windows.merge and item.windows]
            others = [item for item in self.items if not (settings.windows.merge and item.windows)]
            for batch in batches(others, limits, settings.ceiling):
                in_halves(self._explain_batch, batch)
            for item in documents:
                size = max(1, min(limits.texts, limits.traced_tokens // len(item.windows[0])))
                self._explain(ExplainedDocument(self.plan, item, self._methods, size=size))
        self.is_asked = True

    def result(self) -> Chunk:
        """Run the inputs that were noted, and return the numbers."""
        with self._quietly():
            self.measure()
        return self.ledger.chunk(self.pending, self.items, vars(self.outcomes.counts))

    def measure(self) -> None:
        """Call the waiting metrics again, in order. The engine runs inputs until each call has its answers."""
        for call in self.waiting:
            self.ledger.add(call.method, call.metric, call.items, call.metric(call.case))
            self.keep_busy()
        self.waiting.clear()
        self.outcomes.forget()

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Capture as the settings say, and report no steps of methods: chunks are counted."""
        with capturing(self.plan.settings.capture), listening(None):
            yield

    @property
    def _methods(self) -> list[MethodSpec]:
        """The methods with missing numbers. Those that run the model often come last: they wait for the GPU."""
        missing = [spec for spec in self.plan.methods if any(method == spec.label for method, _ in self.pairs)]
        return sorted(missing, key=lambda spec: spec.of.passes == "many" or spec.of.family == "perturbation")

    def _in_windows(self, items: Sequence[Item]) -> list[Item]:
        """Replace each context that does not fit by its window with the best answer."""
        windows = [window for item in items for window in item.windows]
        engine = WindowRunner(self.plan.subject.model, windows, tokens_per_batch=self.plan.settings.tokens_per_batch)
        return [item.in_window(engine.explained(item.windows)) if item.windows else item for item in items]

    def _explain_batch(self, items: Sequence[Item]) -> None:
        """Explain items in one batch. If memory runs out, what was asked about them is forgotten."""
        try:
            self._explain(ExplainedBatch(self.plan, items, self._methods))
        except torch.OutOfMemoryError:
            rows = {item.row for item in items}
            self.waiting = [call for call in self.waiting if not rows.issuperset(item.row for item in call.items)]
            self.ledger.forget(rows)
            raise
        collect_now()  # autograd graphs in reference cycles hold memory of the device

    def _explain(self, explained: Explained) -> None:
        """Explain items by every method, and ask every metric about the scores and about reference orders."""
        self.ledger.note(explained, keep=any(metric == KEPT for _, metric in self.pairs))
        self._ask(explained, self._methods, self.plan.metrics)
        for label, metric, case in reference_cases(self.plan, self.pairs, self.outcomes, explained):
            self._ask_metric(MetricCall(label, metric, case, explained.items), explained, None)

    def _ask(self, explained: Explained, methods: Sequence[MethodSpec], metrics: Sequence[MetricSpec]) -> None:
        """Ask metrics about the scores of methods. A method that refuses a batch is asked about each item alone."""
        for method in methods:
            try:
                scores = explained.scores(method)
            except WhyformerError as error:
                if not self._ask_one_by_one(explained, method, metrics):
                    self.ledger.refuse(explained.items, (method.label,), error)
                continue
            if (method.label, KEPT) in self.pairs:
                self.ledger.keep(explained, method, scores)
            case = self._case(explained, method, scores)
            for metric in metrics:
                if (method.label, metric.label) in self.pairs:
                    self._ask_metric(MetricCall(method.label, metric, case, explained.items), explained, method)

    def _ask_one_by_one(self, explained: Explained, method: MethodSpec, metrics: Sequence[MetricSpec]) -> bool:
        """Ask about each of several items alone. Return False for a single item."""
        if len(explained.items) == 1:
            return False
        for item in explained.items:
            self._ask(ExplainedBatch(self.plan, [item], [method]), [method], metrics)
        return True

    def _ask_metric(self, call: MetricCall, explained: Explained, method: MethodSpec | None) -> None:
        """Call a metric once. One that hides units waits for its answers, and keeps no autograd graph."""
        metric = call.metric
        try:
            with self.outcomes.planning():
                measured = metric(call.case)
        except BadOption as error:
            raise BadOption(f"{metric.label}: {error}") from error
        except WhyformerError as error:
            if method is None or not self._ask_one_by_one(explained, method, [metric]):
                self.ledger.refuse(call.items, (call.method, metric.label), error)
            return
        if metric.of.hides:
            self.waiting.append(replace(call, case=call.case.settled(explained.settled)))
        else:
            self.ledger.add(call.method, metric, call.items, measured)
        self.keep_busy()

    def _case(self, explained: Explained, method: MethodSpec, scores: Scores) -> Case:
        return Case(
            explained.prediction,
            scores.total,
            self.outcomes,
            [item.annotation for item in explained.items],
            scores_for=partial(explained.scores, method) if method.class_specific else None,
            ranks=scores.ranks,
            pixels=scores.diagnostics.get(PIXELS),
            signed=bool(scores.signed),
        )
