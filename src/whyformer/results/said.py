"""What a model said of a batch, and what of that is explained: classes, or answers to questions."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import UnsupportedModel
from whyformer.inputs.encoding import NO_ANSWER, TextInput
from whyformer.models.loading import Task, is_regression
from whyformer.prediction import Prediction
from whyformer.tasks.label import AnswerSpan, Label, Predicted
from whyformer.tasks.outputs import ANSWER_LENGTH

Targets = list[Any] | None  # one for each example; None for what the model says


@dataclass(frozen=True)
class Said:
    """What a run of the model gave: what it said of each example, and what of that is explained."""

    prediction: Prediction
    said: list[Predicted]
    targets: list[Label]
    versus: list[Label] | None


def said_of(prediction: Prediction, task: Task, target: Targets = None, versus: Targets = None) -> Said:
    """What was said; the prediction is turned towards the targets, or towards what the model says."""
    return (_answers if task == "answer" else _classes)(prediction, target, versus)


def check_classes(prediction: Prediction) -> None:
    """Raise for a model with several outputs that are scores, or whose labels are not those of its outputs."""
    name, outputs = type(prediction.model).__name__, prediction.trace.logits.shape[-1]
    if outputs > 1 and is_regression(prediction.model):
        raise UnsupportedModel(
            f"{name} predicts {outputs} scores (problem_type is 'regression'), not classes with probabilities: explain "
            "one of them from tensors, whyformer.attribute(model, inputs, target=0)"
        )
    if len(prediction.labels) not in (0, outputs):
        raise UnsupportedModel(
            f"{name} has {outputs} outputs, and its configuration names {len(prediction.labels)} labels: set "
            "model.config.id2label to one name for each output"
        )


def _classes(prediction: Prediction, target: Targets, versus: Targets) -> Said:
    """What a classifier said: of each example a class."""
    check_classes(prediction)
    chosen = prediction.towards(target, versus)
    rows = range(len(prediction.batch.examples))
    return Said(
        chosen,
        [_predicted_class(prediction, row) for row in rows],
        [_class(prediction, int(index)) for index in chosen.target],
        None if chosen.versus is None else [_class(prediction, int(index)) for index in chosen.versus],
    )


def _class(prediction: Prediction, index: int) -> Label:
    labels = prediction.labels
    return Label(index, labels[index] if index < len(labels) else str(index))


def _predicted_class(prediction: Prediction, row: int) -> Predicted:
    logits = prediction.trace.logits[row].detach().double().cpu()
    problem = getattr(getattr(prediction.model, "config", None), "problem_type", None)
    if is_regression(prediction.model) or (len(logits) == 1 and problem != "multi_label_classification"):
        probabilities = None
    elif problem == "multi_label_classification":
        probabilities = tuple(torch.sigmoid(logits).tolist())
    else:
        probabilities = tuple(torch.softmax(logits, -1).tolist())
    index = int(prediction.predicted[row])
    probability = None if probabilities is None else probabilities[index]
    names = tuple(_class(prediction, i).name for i in range(len(logits)))
    return Predicted(names[index], index, probability, tuple(logits.tolist()), probabilities, names)


def _answers(prediction: Prediction, target: Targets, versus: Targets) -> Said:
    """What a question-answering model said: of each example where the answer starts and ends."""
    examples = prediction.batch.examples
    logits = prediction.trace.logits.detach().double().cpu()  # [batch, 2, units]
    best = [best_answer(row[:, : len(e.units)], e) for row, e in zip(logits, examples, strict=True)]
    given = best if target is None else [b if t is None else t for b, t in zip(best, target, strict=True)]
    chosen = [e.answer(t) for e, t in zip(examples, given, strict=True)]
    against = None if versus is None else [e.answer(t) for e, t in zip(examples, versus, strict=True)]
    return Said(
        prediction.towards(chosen, against),
        [_predicted_answer(*found) for found in zip(logits, examples, best, strict=True)],
        [_answer(*found) for found in zip(examples, chosen, strict=True)],
        None if against is None else [_answer(*found) for found in zip(examples, against, strict=True)],
    )


def _answer(example: TextInput, answer: tuple[int, int]) -> Label:
    characters = example.characters(*answer)
    if answer[0] == example.no_answer:
        name = NO_ANSWER
    elif characters is None:
        name = " ".join(unit.text for unit in example.units[answer[0] : answer[1] + 1])
    else:
        name = example.texts[1][slice(*characters)]
    return Label(None, name, AnswerSpan(answer, characters))


def _predicted_answer(logits: Tensor, example: TextInput, answer: tuple[int, int]) -> Predicted:
    label = _answer(example, answer)
    places = torch.tensor(answer)[:, None]
    outputs = logits.gather(1, places).squeeze(1)
    shares = logits[:, : len(example.units)].softmax(-1).gather(1, places).squeeze(1)
    numbers = tuple(outputs.tolist()), tuple(shares.tolist())
    return Predicted(label.name, None, float(shares.prod()), *numbers, ("start", "end"), label.span)


def best_answer(logits: Tensor, example: TextInput) -> tuple[int, int]:
    """The best span in the context, at most `ANSWER_LENGTH` tokens long, or no answer where that scores higher.

    `logits` are those of the start and the end, [2, units]. The answer is given by its first and last token.
    """
    context, none = example.context, example.no_answer
    start, end = logits[:, context]
    both = start[:, None] + end
    allowed = torch.ones_like(both).triu().tril(ANSWER_LENGTH - 1).bool()
    both = both.masked_fill(~allowed, -torch.inf)
    if none is not None and logits[:, none].sum() > both.max():
        return none, none
    first, last = divmod(int(both.argmax()), len(context))
    return context[first], context[last]
