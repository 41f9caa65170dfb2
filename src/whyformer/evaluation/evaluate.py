"""Evaluate methods by metrics on a data set. The journal keeps every number; the `Table` shows them."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import whyformer.methods  # noqa: F401  (registers the methods)
from whyformer.datasets import Data, Dataset, opened
from whyformer.datasets.columns import ColumnNames
from whyformer.datasets.dataset import OnError
from whyformer.errors import BadOption, shown
from whyformer.evaluation.examples import Item
from whyformer.evaluation.executors import engine_named
from whyformer.evaluation.journal import Journal
from whyformer.evaluation.plan import EvaluationPlan, EvaluationSettings, KnownKeys, PendingChunk
from whyformer.evaluation.protocols import protocol_named
from whyformer.evaluation.references import Way
from whyformer.inputs.batch import collate
from whyformer.inputs.windows import Mode, Windows
from whyformer.methods.default import methods_for
from whyformer.methods.method import SHORT, MethodSpec
from whyformer.metrics.metric import MetricSpec, metric_specs
from whyformer.models.load import Subject
from whyformer.models.memory import uncollected
from whyformer.perturb import ORDERS, Outcomes, hide_named
from whyformer.prediction import Prediction
from whyformer.progress import duration, listening, tell
from whyformer.registry.options import Count, validated
from whyformer.registry.specs import Written, names_of
from whyformer.results.evaluation import CEILING, Aggregate, MethodMetric, TableData
from whyformer.show.live import watching
from whyformer.show.render import Renderable, text_of
from whyformer.tasks.regression import classes_of
from whyformer.tasks.task import RUNNER_UP, Explains, task_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORTH_ANNOUNCING = 10.0  # seconds; work that takes less is not announced


def searched_inputs(units: int, beam: int, ways: int) -> int:
    """How many shortened texts the searches for the best order ask about, at most, and the random orders beside it."""
    return ways * beam * units * (units + 1) // 2 + ORDERS * units


def ceiling_estimate(plan: EvaluationPlan, first: PendingChunk, rows: int) -> str | None:
    """What the ceiling of so many rows will take, judged by the texts of the first chunk; None if that is little."""
    ways = {
        Way.of(metric, images=plan.subject.takes_images)
        for metric in plan.metrics
        if metric.of.ceiling and any((CEILING, metric.label) in missing for missing in first.missing.values())
    }
    searched = [item for item in first.items if item.searchable and item.row < plan.settings.ceiling]
    if not ways or not searched or plan.subject.takes_images:
        return None
    each = [searched_inputs(item.units, plan.settings.beam, len(ways)) for item in searched]
    total = sum(each) / len(first.items) * min(rows, plan.settings.ceiling)
    seconds = total * seconds_per_input(plan, sorted(searched, key=lambda item: item.units)[len(searched) // 2])
    if seconds < WORTH_ANNOUNCING:
        return None
    return (
        f"the ceiling asks the model about up to {total:,.0f} shortened texts, which takes about {duration(seconds)}; "
        "ceiling=N (--ceiling-rows N) searches the first N rows alone"
    )


def seconds_per_input(plan: EvaluationPlan, item: Item) -> float:
    """How long the model takes for one of many shortened texts, measured on halves of a text."""
    prediction = Prediction(plan.subject.model, collate(plan.subject, [item.text]))
    (whole,) = prediction.inputs
    halves = [whole.without([*range(first, len(whole), 2)][:-1], hide_named("delete")) for first in (0, 1)]
    shorter = [halves[0].without([place], hide_named("delete")) for place in range(len(halves[0]))]
    engine = Outcomes(plan.subject.model, tokens_per_batch=plan.settings.tokens_per_batch)
    with listening(None):
        engine.of(halves[1:], classes := prediction.outputs.logits.shape[-1])  # the first run is slower
        start = time.perf_counter()
        engine.of(shorter, classes)
        return (time.perf_counter() - start) / len(shorter)


@dataclass(frozen=True, eq=False)
class Table(Renderable, TableData):
    """Methods by metrics: means with 95 % intervals.

    Intervals come from drawing rows with replacement; where there are fewer than 30 rows, from Student's t.
    The reference rows `ceiling` and `chance` come last. `right` says of each example whether the model is, `skipped` of
    each row left out why. A difference or a share is over the rows that all its parts have, drawn together.
    """

    def __repr__(self) -> str:
        return f"<Table of {', '.join(self.methods)} by {', '.join(self.metrics)}, {len(self.right)} examples>"

    @property
    def footer(self) -> list[str]:
        """What a reader must know beside the numbers, in sentences."""
        from whyformer.show.tables import footer

        return footer(self)

    def to_markdown(self) -> str:
        """The table, the paired differences to the best, and the footer, as Markdown."""
        return text_of(self, "markdown")

    def to_csv(self) -> str:
        """One line for each method and metric, with every digit."""
        return text_of(self, "csv")

    def to_latex(self) -> str:
        """A tabular for the package booktabs."""
        return text_of(self, "latex")

    @validated
    def figure(self, metric: str) -> "Figure":
        """A matplotlib figure: the mean curve of every method."""
        from whyformer.show.curves import figure

        return figure(self, metric)

    @validated
    def save(self, folder: str | Path) -> list[Path]:  # type: ignore[override]
        """Write table.md, table.csv, table.tex, and curves: their points, and a picture of those of each metric."""
        from whyformer.show.curves import save

        return save(self, folder)

    def _repr_html_(self) -> str:
        from whyformer.show.tables import as_html

        return as_html(self)


class Results(Aggregate):
    """What the records of an evaluation say, as they come in, and the table of it."""

    @validated
    def table(self, resamples: int = 1000, seed: int = 0) -> Table:
        """The table; the order in which the chunks came does not matter."""
        return self.tabulated(Table, resamples, seed)


EVERY_ROW = 2**62
METRICS = "aopc,log_odds"
IMAGE_METRICS = "positive_perturbation,negative_perturbation"
MANY_CLASSES = 50  # for `all`: a metric that explains every class takes as many passes


@dataclass(frozen=True)
class Evaluation:
    """What is to be measured on which rows. A chunk is a fixed set of row numbers."""

    plan: EvaluationPlan
    data: Dataset
    rows_per_chunk: int

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """The chunks, as rows from … to before …."""
        return list(self.data.chunks(self.rows_per_chunk))

    @cached_property
    def run(self) -> dict[str, Any]:
        """What determines all numbers of a journal, and `about`: what people call it."""
        subject = self.plan.subject
        filters = {"shortest": self.data.choice.min_tokens, "likeliest": self.data.choice.min_probability}
        about: dict[str, Any] = {"model": subject.name, "revision": subject.revision, "data": self.data.name}
        about |= {"labels": list(subject.labels), "log_odds": self._has_log_odds}
        return {**self.plan.facts, "data": self.data.digest, **filters, "about": about}

    @property
    def _has_log_odds(self) -> bool:
        """Whether methods that declare log-odds explain them."""
        subject, settings = self.plan.subject, self.plan.settings
        if subject.takes_images or settings.windows.merge or (settings.explains or settings.versus):
            return False
        task = task_of(subject.model) or classes_of(subject.model)
        return task.log_odds_by_default(len(subject.labels))

    def pending(self, known: KnownKeys) -> Iterator[PendingChunk]:
        """What is missing of each chunk."""
        return self.plan.chunks(self.data, self.ranges, known)


@validated
def evaluate(
    subject: Subject,
    data: Dataset | Data,
    methods: Written = SHORT,
    metrics: Written | None = None,
    *,
    out: str | Path | None = None,
    split: str | None = None,
    columns: ColumnNames | None = None,
    limit: int | None = None,
    sample: int | None = None,
    on_error: OnError | None = None,
    ceiling: bool | int = False,
    beam: Annotated[int, Count(1, 1000, "each order is searched for in as many runs of the model")] = 1,
    effort: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    rows_per_chunk: Annotated[int | None, Count(1)] = None,
    tokens_per_batch: Annotated[int | None, Count(1)] = None,
    windows: Mode = "cut",
    window_size: int | None = None,
    overlap: int | None = None,
    keep_scores: bool = False,
    protocol: str | None = None,
    explains: Explains | None = None,
    versus: str | None = None,
    capture: bool = True,
    progress: bool = True,
) -> Table:
    """Measure how good the explanations of methods are, on a data set.

    | parameter | meaning |
    |---|---|
    | `subject` | the model and what reads its inputs, as `load` gives them (`Explainer.subject`) |
    | `data` | a `Dataset`, or what `open_dataset` opens |
    | `methods` | names, each with its options in brackets: `attcat(states=inputs)`; `short` (the default: `auto`, |
    | | `attn_lrp`, `transformer_attribution`, `attcat`, `random`), `fast` (all of one pass), or `all` |
    | `metrics` | the same; `all` are those that go with the model and the data. Default: aopc and log_odds, for |
    | | images positive_perturbation and negative_perturbation |
    | `out` | a folder for the journal and the tables: the same call goes on where it was stopped, and computes only |
    | | what is missing |
    | `split`, `columns`, `limit`, `sample`, `on_error` | those of `open_dataset`, for data that is not open |
    | `ceiling` | adds the best order that a search finds, for texts of at most 64 units, in images of the cells of a |
    | | grid of 8 × 8, and the mean of 20 random orders: True for all rows, or a number for the rows before it |
    | `beam` | how many orders that search follows |
    | `effort` | that of `auto` |
    | `engine`, `workers` | `local`, or `ray` with its workers |
    | `rows_per_chunk` | how many rows are measured and journalled together |
    | `tokens_per_batch` | how many tokens are in one run of the model |
    | `windows` | with `merge`, a document that does not fit is explained by all its windows, as in |
    | | `Explainer.explain`, by metrics that hide nothing; with `cut`, what does not fit is left out |
    | `window_size`, `overlap` | how contexts of questions, or merged documents, are read in windows |
    | `keep_scores` | whether the journal in `out` holds the scores and texts too, so that they can be drawn again |
    | | (`whyformer.explain.folder`); of what was measured before, the scores alone are computed |
    | `protocol` | runs the model as the authors' code does, without segment ids, and explains it with special tokens |
    | | (`attcat`) or separators (`mask_lrp`) out of attention; metrics hide units in the whole text, all attended to |
    | `explains` | what is explained of each predicted class: its `logit`, or its `log_odds` against all others; by |
    | | default the quantity that each method declares, as in `Explainer.explain` |
    | `versus` | `runner_up` explains each predicted class rather than the most probable other one |
    | `capture` | whether, on a GPU, what is done again with inputs of one shape is captured and replayed |
    | `progress` | whether a bar and the current table are shown, where a person is watching; elsewhere a line now |
    | | and then |
    """
    rows = {"split": split, "columns": columns, "limit": limit, "sample": sample}
    if on_error is not None:
        rows["on_error"] = on_error
    data = opened(data, labels=subject.labels if subject.task == "classes" else None, **rows)
    long = Windows.of(window_size, overlap, windows)
    if subject.task != "answer" and not long.merge and (window_size, overlap) != (None, None):
        raise BadOption("window_size and overlap are for the contexts of questions, and for windows='merge'")
    if keep_scores and out is None:
        raise BadOption("keep_scores: scores are kept in the journal, and there is none: give out= a folder (--out)")
    run: dict[str, Any] = {"beam": beam, "tokens_per_batch": tokens_per_batch}
    run |= {"keep_scores": keep_scores, "capture": capture}
    run |= {"protocol": protocol_named(protocol, subject.task)}
    if protocol is not None and long.merge:
        raise BadOption(f"protocol={protocol!r} cuts what does not fit, as the authors do: leave windows='merge' out")
    if explains not in (None, "logit") or versus is not None:
        beside = {"protocol": protocol is not None, "keep_scores": keep_scores, "windows='merge'": long.merge}
        _check_explained(subject, explains, versus, beside)
    run |= {"explains": explains, "versus": versus}
    settings = EvaluationSettings.of(data, ceiling=_rows(ceiling), windows=long, **run)
    named = methods_for(subject, methods, effort)
    if metrics is None:
        metrics = IMAGE_METRICS if subject.takes_images else METRICS
    chosen = (
        _fitting(subject, data, named, hiding=not long.merge) if names_of(metrics) == ["all"] else metric_specs(metrics)
    )
    plan = EvaluationPlan(subject, named, chosen, settings)
    size = rows_per_chunk or plan.rows_at_once(data, engine)
    return _table(Evaluation(plan, data, size), out, engine, workers, progress)


def _check_explained(subject: Subject, explains: Any, versus: str | None, beside: Mapping[str, bool]) -> None:
    """Raise if that is not explained of the predicted classes of a whole data set, or not `beside` other options."""
    if not (versus is None or (isinstance(versus, str) and versus == RUNNER_UP)):
        raise BadOption(f"versus={shown(versus)}: the predictions of a data set are set against {RUNNER_UP!r} alone")
    if subject.task != "classes":
        raise BadOption("explains and versus are for models that classify: leave them out")
    if used := [name for name, is_used in beside.items() if is_used]:
        raise BadOption(f"{used[0]} is for explanations of the logit: leave it, or explains and versus, out")


def _fitting(
    subject: Subject, data: Dataset, methods: tuple[MethodSpec, ...], *, hiding: bool
) -> tuple[MetricSpec, ...]:
    """All metrics that go with the model's task and with what the first example has; `hiding`: also those that do."""
    first = next(iter(data), None)
    gold = first is not None and first.label is not None
    available = {
        "gold": gold,
        "rationale": first is not None and first.rationale is not None and gold,
        "answer": first is not None and first.answers is not None and subject.task == "answer",
        "classes": len(subject.labels) <= MANY_CLASSES and any(method.of.class_specific for method in methods),
        "signs": any(method.signed for method in methods),
        "mask": first is not None and first.mask is not None,
        "images": subject.takes_images,
    }
    hiding = hiding and subject.task == "classes"
    return tuple(m for m in metric_specs("all") if m.of.refusal(available) is None and (hiding or not m.of.hides))


def _table(evaluation: Evaluation, out: str | Path | None, engine: str, workers: int | None, progress: bool) -> Table:
    with uncollected():  # else Python looks through all inputs that wait, time and again
        results = _results(evaluation, out, engine, workers, progress)
        results.run = dict(evaluation.run)
        table = results.table()
        if out is not None:
            table.save(out)
        return table


def _results(
    evaluation: Evaluation, out: str | Path | None, engine: str, workers: int | None, progress: bool
) -> Results:
    results, measure = Results(), engine_named(engine)
    _ = evaluation.data.digest  # what is wrong with the data is said before anything is measured
    with ExitStack() as stack:
        journal = None if out is None else stack.enter_context(Journal.open(out, lambda: evaluation.run))
        for chunk in () if journal is None else journal.chunks():
            results.add(chunk)
        before = results.rows()
        name = f"{evaluation.data.name}, {evaluation.rows_per_chunk} rows at a time"
        advance = stack.enter_context(watching(len(evaluation.ranges), results, name, shown=progress))

        announced = not progress

        def pending() -> Iterator[PendingChunk]:
            nonlocal announced
            for chunk in evaluation.pending(frozenset() if journal is None else journal):
                open_rows = {row for row, missing in chunk.missing.items() if missing} - results.skipped.keys()
                if not open_rows and set(chunk.left_out) <= results.skipped.keys():
                    advance()
                    continue
                _refuse_two_ways(chunk, before, out)
                if not announced and evaluation.plan.settings.ceiling:
                    _announce(evaluation, chunk)
                announced = True
                yield chunk

        for chunk in measure(evaluation.plan, pending(), workers):
            if journal is not None:
                journal.append(chunk)
            results.add(chunk)
            advance()
    return results


def _announce(evaluation: Evaluation, first: PendingChunk) -> None:
    """Say what the ceiling will take, from the first chunk that is measured on."""
    ceiling = evaluation.plan.settings.ceiling
    rows = sum(max(0, min(stop, ceiling) - start) for start, stop in evaluation.ranges if start >= first.start)
    if told := ceiling_estimate(evaluation.plan, first, rows):
        tell(told)


def _refuse_two_ways(
    chunk: PendingChunk, measured: Mapping[MethodMetric, frozenset[int]], out: str | Path | None
) -> None:
    """Raise if a number is about to be measured that the folder has, but measured in another way."""
    for row, missing in chunk.missing.items():
        for pair in missing:
            if row in measured.get(pair, ()):
                raise BadOption(
                    f"{pair[1]} of {pair[0]} is in {str(out)!r} already, measured in another way (another beam or "
                    "window, other code of a method or metric of your own, or other texts behind the inverse document "
                    "frequency): give another folder"
                )


def _rows(ceiling: bool | int) -> int:
    """The rows before this number have a ceiling."""
    if ceiling is True:
        return EVERY_ROW
    if ceiling < 0:
        raise BadOption(f"ceiling={ceiling}: the number of rows that get one, or True for all")
    return int(ceiling)
