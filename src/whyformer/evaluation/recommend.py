"""Rank methods, or the layers of one, on your own texts or images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from whyformer.datasets import Data, Dataset
from whyformer.errors import BadInput, BadOption
from whyformer.escapes import visible
from whyformer.evaluation.evaluate import Table, evaluate
from whyformer.inputs.batch import collate, encode
from whyformer.methods.default import effort_named, methods_for, with_effort
from whyformer.methods.method import FAST, MethodSpec, method_specs
from whyformer.metrics.metric import MetricSpec, metric_specs
from whyformer.models.load import Subject
from whyformer.prediction import Prediction
from whyformer.registry.options import validated
from whyformer.registry.specs import Written
from whyformer.results.evaluation import REFERENCES, SMALL, TOO_FEW, Difference, TableCell

BASELINE = "random"
TEXTS = 100
METRIC = "aopc"
LAYERED, LAYER_METRIC = "decoded_grad_cam", "hiding_game"  # whose layers are ranked, and by what


@dataclass(frozen=True)
class Recommendation:
    """Methods, or layers of one, ranked by one metric."""

    table: Table
    metric: str
    winner: str
    tied: tuple[str, ...]  # those that cannot be told from it
    better_than_random: bool
    ranked: Literal["method", "layer"] = "method"
    examples: Literal["texts", "images"] = "texts"
    stepped: str | None = None  # the winner with more effort, if that was asked for
    gain: Difference | None = None  # by how much that is better

    def __repr__(self) -> str:
        return f"<Recommendation: {self.sentence}>"

    @property
    def sentence(self) -> str:
        """What to do, in one sentence."""
        cell = self.table[self.winner, self.metric]
        assert cell is not None
        if not self.better_than_random:
            return (
                f"No {self.ranked} is reliably better than a random order here ({self.metric}, {self._count(cell.n)})."
            )
        beside = f"; {', '.join(self.tied)} cannot be told apart from it" if self.tied else ""
        told = f"{self.metric} {cell.mean:.3f}{_bounds(cell)}, {self._count(cell.n)}"
        return f"Use {self.winner}: {told}{beside}.{self._of_steps}"

    def __str__(self) -> str:
        lines = [str(self.table), "", visible(self.sentence)]
        if self.better_than_random:
            lines.append(
                visible(f"In Python: explain(text, {self.winner!r}). In a terminal: --method '{self.winner}'.")
            )
        return "\n".join(lines)

    def _count(self, count: int) -> str:
        remark = ", too few to rely on" if count < TOO_FEW else ", a small sample" if count < SMALL else ""
        return f"{count} {self.examples}{remark}"

    @property
    def _of_steps(self) -> str:
        if self.stepped is None or self.gain is None:
            return ""
        gain = self.gain
        worth = "is worth it" if gain.low > 0 else "makes it worse" if gain.high < 0 else "cannot be told to help"
        return f" More effort {worth}: {self.stepped} is better by {gain.mean:+.3f}{_bounds(gain, '+')}."


def _bounds(numbers: TableCell | Difference, sign: str = "") -> str:
    return "" if math.isnan(numbers.low) else f" [{numbers.low:{sign}.3f}, {numbers.high:{sign}.3f}]"


@validated
def recommend(
    subject: Subject,
    data: Dataset | Data,
    methods: Written = FAST,
    metric: str | None = None,
    *,
    layers: bool = False,
    effort: str | None = None,
    **options: Any,
) -> Recommendation:
    """Rank methods by a metric on your own texts or images.

    Other options are those of `evaluate`. Without `limit` or `sample`, 100 rows of a file or name are drawn at random.
    `random` is always among the methods. A winner that is not reliably better, or that refuses some texts, is not
    recommended. The default metric is `aopc`. With `layers` the layers of one method are ranked instead: see
    `recommend_layer`. With an `effort`, the winner is measured in the steps of that effort too.
    """
    way = None if effort is None else effort_named(effort)
    if layers and way is not None:
        raise BadOption("effort is for methods, and layers are ranked: leave one out")
    if layers:
        method, by = LAYERED if methods == FAST else methods, metric or LAYER_METRIC
        return recommend_layer(subject, data, method, by, **options)
    chosen, options = _ranking(metric or METRIC), _with_sample(data, options)
    ranking = _ranked(subject, data, methods_for(subject, methods), chosen, options)
    ranking = replace(ranking, table=_in_order(ranking.table, chosen.label))
    if way in (None, "fast") or not ranking.better_than_random:
        return ranking
    winner = ranking.winner
    stepped = with_effort(method_specs([winner])[0], way).label
    table = evaluate(subject, data, [winner, stepped], [chosen.label], **options)
    pair = (stepped, winner)[:: 1 if chosen.of.higher_is_better else -1]
    return replace(ranking, stepped=stepped, gain=table.compare(chosen.label, *pair))


@validated
def recommend_layer(
    subject: Subject,
    data: Dataset | Data,
    method: Written = LAYERED,
    metric: str = LAYER_METRIC,
    **options: Any,
) -> Recommendation:
    """Rank the layers of a model by a metric on your own texts.

    Every hidden state is tried, from the embedding output, 0, to the last layer's output. `method` is one that reads
    a layer, with its other options: `decoded_grad_cam(lm_head=FOLDER)`. The rest is as for `recommend`; the default
    metric is `hiding_game`, `revealing_game` is the other one of the paper.
    """
    if subject.takes_images:
        raise BadOption("layers are ranked on texts, and this model reads images: rank methods (leave layers out)")
    specs = method_specs(method)
    if len(specs) != 1 or "layer" not in specs[0].of.options:
        raise BadOption(f"layers are ranked for one method that has the option layer; found {method!r}")
    if "layer" in specs[0].options:
        raise BadOption(f"{specs[0].label} names a layer, and the layers are to be ranked: leave it out")
    chosen = _ranking(metric)
    ranking = _ranked(subject, data, _of_each_layer(subject, specs[0]), chosen, _with_sample(data, options))
    return replace(ranking, ranked="layer")


def _of_each_layer(subject: Subject, spec: MethodSpec) -> list[MethodSpec]:
    """The method at every layer; a model that it refuses, as one without an LM head, is refused here."""
    text = ("a", "a") if subject.task == "answer" else "a"
    prediction = Prediction(subject.model, collate(subject, [encode(subject, text)]), needs=spec.needs)
    of_layers = [MethodSpec(spec.of, {**spec.options, "layer": n}) for n in range(len(prediction.hidden))]
    _ = of_layers[-1](prediction)
    return of_layers


def _ranking(metric: str) -> MetricSpec:
    """The metric, if methods can be ranked by it."""
    chosen = metric_specs([metric])[0]
    if chosen.of.level == "corpus":
        raise BadOption(f"{chosen.of.name} has no number for each example, by which methods could be compared in pairs")
    if "classes" in chosen.of.needs:
        raise BadOption(f"{chosen.of.name} does not say how good a method is: rank by aopc or another metric")
    return chosen


def _with_sample(data: Dataset | Data, options: dict[str, Any]) -> dict[str, Any]:
    """Options of `evaluate`, with a random sample of a file or name unless rows are chosen already."""
    is_chosen = isinstance(data, Dataset) or options.get("limit") is not None or options.get("sample") is not None
    return options if is_chosen else {**options, "sample": TEXTS}


def _ranked(
    subject: Subject,
    data: Dataset | Data,
    methods: Sequence[MethodSpec],
    metric: MetricSpec,
    options: dict[str, Any],
) -> Recommendation:
    """Measure the methods and `random`."""
    names = list(dict.fromkeys([*(spec.label for spec in methods), BASELINE]))
    table = evaluate(subject, data, names, [metric.label], **options)
    winner = table.best(metric.label, names)
    if winner is None:
        raise BadInput("no method could explain any of these examples: see the table's footer")
    gap = None if winner == BASELINE else table.compare(metric.label, winner, BASELINE)
    reliable = gap is not None and (gap.low > 0 if metric.of.higher_is_better else gap.high < 0)
    cell = table[winner, metric.label]
    reliable = reliable and cell is not None and not cell.refused
    tied = tuple(name for name in table.tied(metric.label, names) if name != BASELINE)
    examples: Literal["texts", "images"] = "images" if subject.takes_images else "texts"
    return Recommendation(table, metric.label, winner, tied, reliable, examples=examples)


def _in_order(table: Table, metric: str) -> Table:
    """The same table with the best method first; those without a number, and what is no method, come last."""
    cells = {m: cell for m in table.methods if m not in REFERENCES and (cell := table[m, metric])}
    order = table.ranked(metric, {m: cell.mean for m, cell in cells.items() if not math.isnan(cell.mean)})
    return replace(table, methods=(*order, *(method for method in table.methods if method not in order)))
