"""What a model says of inputs with some units hidden, for any task: the explained output, and how probable it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from whyformer.errors import UnsupportedModel
from whyformer.inputs.hiding import Hide
from whyformer.inputs.input import Places
from whyformer.models.borrow import borrowed
from whyformer.models.limits import limits_of, may_pad
from whyformer.models.loading import unwrapped
from whyformer.perturb.out_of_memory import in_halves
from whyformer.perturb.remains import Hideable, remains
from whyformer.prediction import Prediction
from whyformer.tasks.task import Outputs, Task, call_of, output_of


@dataclass(frozen=True)
class Outcome:
    """What was said of one input: the explained output, and of the target its probability and its log-odds.

    The log-odds of a target that is set against another output are those of the two alone. Without a probability there
    are no log-odds.
    """

    output: float
    probability: float | None = None
    log_odds: float | None = None


@dataclass(frozen=True)
class Hidden:
    """Some places of a text that are hidden."""

    text: Hideable
    places: Places


def outcomes_of(prediction: Prediction) -> list[Outcome]:
    """What is said of each whole input."""
    return _outcomes(replace(prediction.outputs, attended=~prediction.padding), prediction)


def outcomes_without(prediction: Prediction, hidden: Sequence[Hidden], hide: Hide) -> list[Outcome]:
    """What is said once units are hidden, a few inputs at a time, by the plain model without a graph."""
    done: list[Outcome] = []

    def run(some: Sequence[Hidden]) -> None:
        texts, places = [one.text for one in some], [one.places for one in some]
        done.extend(_run(prediction.task, remains(prediction, texts, places, hide)))

    for batch in _batches(prediction, hidden):
        in_halves(run, batch)
    return done


def _run(task: Task, left: Prediction) -> list[Outcome]:
    """What the plain model says of what is left, which nobody records."""
    model, tensors = unwrapped(left.model), left.batch.tensors
    with torch.no_grad(), borrowed(model, tensors) as (lent, arguments):
        logits = task.logits(output_of(lent, call_of(lent, arguments)()))
    if logits is None or not bool(torch.isfinite(logits).all()):
        raise UnsupportedModel(f"{type(model).__name__} returns logits that are not numbers once units are hidden")
    mask = tensors.get("attention_mask", logits.new_ones(len(logits), 1))
    return _outcomes(Outputs(logits, task, mask.bool()), left)


def _outcomes(outputs: Outputs, of: Prediction) -> list[Outcome]:
    """For the targets of a prediction."""
    task, target, versus = outputs.task, of.target, of.versus
    rows = outputs.in_rows(target), None if versus is None else outputs.in_rows(versus)
    explained = task.output(outputs.logits.detach(), *rows).double().tolist()
    odds = task.odds(outputs, target)
    if odds is None:
        return [Outcome(output) for output in explained]
    of_two = odds if versus is None else task.output(outputs.logits.detach().double(), *rows)
    shares = odds.sigmoid().tolist()
    return [Outcome(*numbers) for numbers in zip(explained, shares, of_two.tolist(), strict=True)]


def _batches(prediction: Prediction, hidden: Sequence[Hidden]) -> Iterator[Sequence[Hidden]]:
    """As many as the device runs at once."""
    logits, units = prediction.outputs.logits, prediction.padding.shape[1]
    limits = limits_of(logits.device)
    most = limits.tokens // units
    if prediction.task.form == "token":
        most = min(most, limits.logits // (units * logits.shape[-1]))
    most = most if may_pad(prediction.model) else 1
    for start in range(0, len(hidden), max(1, most)):
        yield hidden[start : start + max(1, most)]
