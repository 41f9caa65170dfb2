"""The rows of a run that an explanation shows: that of a text, or two rows of one text of which it has several."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whyformer.errors import BadOption
from whyformer.explain.questions import ExplainedOutput
from whyformer.inputs.encoding import ReadInput
from whyformer.inputs.units import Unit
from whyformer.methods.registry import Scores
from whyformer.prediction import Prediction
from whyformer.recorder import Needs
from whyformer.tasks.labels import class_index
from whyformer.tasks.targets import Target, plain_target

Floats = NDArray[np.float64]
ShownUnits = tuple[tuple[Unit, ...], tuple[str, ...], Floats, Floats | None]  # with texts, scores, and scores by layer


def shown_units(question: ExplainedOutput, scores: Scores) -> ShownUnits:
    """The units of the row that is explained, or of two rows whose outputs are set against each other.

    The two rows hold the same text, and each its own choice. The explained number is o(first) - o(second), and the
    output o of a row depends on the units of that row alone. So a unit of the text, which stands in both, gets the
    difference of its two scores; one of the first choice its score; one of the second its score with the other sign.
    Scores without a sign say how much a unit matters, and not which way: there they are added.
    """
    total = scores.total.double().cpu().numpy()
    layers = None if scores.layers is None else scores.layers.double().cpu().numpy()
    example, row, length = question.example, question.row, len(question.example.units)
    if question.other is None:
        in_layers = None if layers is None else layers[:, row, :length]
        return example.units, example.texts, total[row, :length], in_layers
    if scores.ranks or scores.seen is not None:
        raise BadOption(
            "versus: this method ranks the units of one row, and two choices stand in two: leave versus out"
        )
    against, other = question.other
    units, moved = _both(example, other)

    def difference(numbers: Floats) -> Floats:
        combined = np.zeros((*numbers.shape[:-2], len(units)))
        combined[..., :length] = numbers[..., row, :length]
        combined[..., moved] += numbers[..., against, : len(other.units)] * (-1 if scores.signed else 1)
        return combined

    texts = (*example.texts, other.texts[1])
    return units, texts, difference(total), None if layers is None else difference(layers)


def of_chosen_rows(prediction: Prediction, target: Target, versus: Target, needs: Needs) -> Prediction:
    """The prediction of the row of one choice of each example: the target, or that with the highest logit."""
    if versus is not None:
        raise BadOption("versus: the units of two choices stand in two rows; explain each by its target, and compare")
    logits = prediction.outputs.logits.detach().reshape(-1, prediction.batch.choices or 1)
    written = plain_target(target)
    each = logits.argmax(-1).tolist() if written is None else written
    each = each if isinstance(each, list) else [each] * len(logits)
    if len(each) != len(logits):
        raise BadOption(f"{len(each)} targets for {len(logits)} examples: give one, or one for each")
    count = logits.shape[1]
    rows = [example * count + class_index(choice, (), count) for example, choice in enumerate(each)]
    return Prediction(prediction.model, prediction.batch.rows(rows), needs=needs)


def _both(first: ReadInput, second: ReadInput) -> tuple[tuple[Unit, ...], list[int]]:
    """The units of the first row, then those that the second has beside them; where each unit of the second stands."""
    places = {key: place for place, key in enumerate(_keys(first.units)) if key is not None}
    units, moved = list(first.units), []
    for unit, key in zip(second.units, _keys(second.units), strict=True):
        place = None if key is None else places.get(key)
        moved.append(len(units) if place is None else place)
        if place is None:
            units.append(replace(unit, part=2) if unit.part == 1 else unit)
    return tuple(units), moved


def _keys(units: Sequence[Unit]) -> list[tuple[object, ...] | None]:
    """What tells the units of the text and the special tokens up to the choice apart; None from the choice on."""
    choice = next((place for place, unit in enumerate(units) if unit.part == 1), len(units))
    keys: list[tuple[object, ...] | None] = []
    for place, unit in enumerate(units):
        which = sum(before.special for before in units[:place]) if unit.special else unit.span
        keys.append((which, unit.piece) if place < choice or unit.part == 0 else None)
    return keys
