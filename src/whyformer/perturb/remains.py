"""What remains of a prediction once units are hidden: a smaller prediction of the same outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from whyformer.errors import BadOption
from whyformer.inputs.encoding import Batch, TextInput
from whyformer.inputs.hiding import Hide
from whyformer.inputs.images import ImageInput
from whyformer.inputs.input import Kind, Numbers, Places, TensorInput, together
from whyformer.prediction import Prediction
from whyformer.recorder import Needs


@dataclass(frozen=True, eq=False)
class Hideable:
    """One text of a batch and the units of it that may be hidden.

    A *place* is counted in the text without padding, a *position* in the padded batch. `number` says which of the batch
    it is, `positions` where its places stand there, and `units` which places each unit has.
    """

    number: int
    input: TensorInput
    positions: Numbers
    units: tuple[Places, ...]

    def places_left(self, gone: Places, hide: Hide) -> list[int]:
        """The places that are still there once some are hidden: what stands in their stead counts."""
        if not hide.shortens or isinstance(self.input, ImageInput):
            return list(range(len(self.input)))
        away = set(gone)
        return [place for place in range(len(self.input)) if place not in away]


def hideable(prediction: Prediction, units: Kind, hide: Hide) -> tuple[Hideable, ...]:
    """The texts of a prediction, each with the units that may be hidden: tokens that are not special, or words.

    An output that is said at a position, as an answer or the next token, needs that position: the unit there stays,
    unless a token that is attended to takes its place. What stands behind it in a causal model cannot matter to it,
    and stays too.
    """
    texts = []
    for number, (one, padding) in enumerate(zip(prediction.inputs, prediction.padding.cpu().numpy(), strict=True)):
        positions = np.flatnonzero(~padding)
        kept = _needed(prediction, number, positions, hide)
        groups = tuple(group for group in one.groups(units) if not kept.intersection(group))
        texts.append(Hideable(number, one, positions, groups))
    return tuple(texts)


def remains(
    prediction: Prediction,
    texts: Sequence[Hideable],
    gone: Sequence[Places],
    hide: Hide,
    *,
    needs: Needs | None = None,
) -> Prediction:
    """The prediction of the same outputs for some of its texts, each with the places hidden that are gone."""
    rows = [text.input.without(away, hide) for text, away in zip(texts, gone, strict=True)]
    if any(row.gone is not None for row in rows):
        raise BadOption(
            f"hide={hide.name!r} is not possible: it exchanges embeddings, and what is left is explained from its "
            "tokens; use hide='mask' or 'delete'"
        )
    left = [text.places_left(away, hide) for text, away in zip(texts, gone, strict=True)]
    batch, padding = _batch_of(prediction, rows)
    versus = None if prediction.versus is None else _moved(prediction, prediction.versus, texts, left)
    return Prediction(
        prediction.model,
        batch,
        chosen=(_moved(prediction, prediction.target, texts, left), versus),
        padding=padding if hide.attended else None,
        needs=needs,
    )


def _batch_of(prediction: Prediction, rows: Sequence[TensorInput]) -> tuple[Batch, Tensor]:
    """What is left of some examples of a prediction as one batch, and which positions are padding."""
    device, whole = prediction.padding.device, prediction.batch
    tensors = together(rows, device)
    if whole.is_images:
        images = tuple(row.settled(device) for row in rows if isinstance(row, ImageInput)) if whole.examples else ()
        first = [0] * len(rows)  # images have the same special units, and no padding
        return replace(whole.rows(first), tensors=tensors, examples=images), prediction.padding[first]
    shape = tuple(tensors["input_ids"].shape)
    special, padding = np.zeros(shape, dtype=bool), np.ones(shape, dtype=bool)
    for n, row in enumerate(rows):
        padding[n, : len(row)] = False
        if row.special is not None:  # not so where one token stands for nothing
            special[n, : len(row)] = row.special
    examples = tuple(row for row in rows if isinstance(row, TextInput))
    batch = Batch(
        tensors,
        tensors["attention_mask"].eq(0),
        None if whole.special is None else torch.from_numpy(special).to(device),
        examples if len(examples) == len(rows) else (),
        whole.tokenizer,
    )
    return batch, torch.from_numpy(padding).to(device)


def _needed(prediction: Prediction, number: int, positions: Numbers, hide: Hide) -> set[int]:
    """The places that are never hidden, because the explained output is said there or before."""
    order, said_at = positions.tolist(), prediction.said_at(number)
    stays = said_at if hide.shortens or not hide.attended else []
    behind = [p for p in order if prediction.task.causal and said_at and p > max(said_at)]
    return {order.index(p) for p in (*stays, *behind)}


def _moved(prediction: Prediction, target: Tensor, texts: Sequence[Hideable], left: Sequence[list[int]]) -> Tensor:
    """The target of each text, with its positions as they are counted in what is left."""
    places = [
        {int(position): place for place, position in enumerate(text.positions[remaining])}
        for text, remaining in zip(texts, left, strict=True)
    ]
    return prediction.task.moved(target[[text.number for text in texts]], places)
