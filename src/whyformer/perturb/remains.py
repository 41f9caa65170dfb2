"""What remains of a prediction once units are hidden: a smaller prediction of the same outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whyformer.errors import BadInput
from whyformer.inputs.encoding import Batch, Encoded
from whyformer.inputs.units import join_words
from whyformer.perturb.hiding import Fillers, Hide, Numbers, Positions, Row, hidden, padded, rows_of
from whyformer.prediction import Prediction

UNATTENDED = ("pad", "mask_unattended")  # these take a place out of attention


@dataclass(frozen=True, eq=False)
class Hideable:
    """One text of a batch and the units of it that may be hidden.

    A *place* is counted in the text without padding, a *position* in the padded batch. `number` says which of the batch
    it is, `positions` where its places stand there, and `units` which places each unit has.
    """

    number: int
    row: Row
    positions: Numbers
    units: tuple[Positions, ...]

    def places_left(self, gone: Positions, hide: Hide) -> list[int]:
        """The places that are still there once some are hidden: what stands in their stead counts."""
        if hide != "delete":
            return list(range(len(self.row)))
        away = set(gone)
        return [place for place in range(len(self.row)) if place not in away]


def hideable(prediction: Prediction, units: Literal["token", "word"], hide: Hide) -> tuple[Hideable, ...]:
    """The texts of a prediction, each with the units that may be hidden: tokens that are not special, or words.

    An output that is said at a position, as an answer or the next token, needs that position: the unit there stays,
    unless a token that is attended to takes its place. What stands behind it in a causal model cannot matter to it,
    and stays too.
    """
    rows, batch = rows_of(prediction), prediction.batch
    if units == "word" and not batch.examples:
        raise BadInput("words need texts: ready tensors have tokens only (units='token')")
    special = np.zeros(prediction.padding.shape, dtype=bool) if batch.special is None else batch.special.cpu().numpy()
    found = []
    for number, (row, padding) in enumerate(zip(rows, prediction.padding.cpu().numpy(), strict=True)):
        positions = np.flatnonzero(~padding)
        if units == "word":
            example = batch.examples[number]
            groups = [members for _, members in join_words(example.units, example.texts)]
        else:
            groups = [[place] for place, position in enumerate(positions) if not special[number, position]]
        kept = _needed(prediction, number, positions, hide)
        found.append(Hideable(number, row, positions, tuple(g for g in groups if not kept.intersection(g))))
    return tuple(found)


def remains(
    prediction: Prediction,
    texts: Sequence[Hideable],
    gone: Sequence[Positions],
    hide: Hide,
    fillers: Fillers,
    *,
    relevance: bool = False,
) -> Prediction:
    """The prediction of the same outputs for some of its texts, each with the places hidden that are gone."""
    rows = [hidden(text.row, away, hide, fillers) for text, away in zip(texts, gone, strict=True)]
    left = [text.places_left(away, hide) for text, away in zip(texts, gone, strict=True)]
    device = prediction.padding.device
    tensors = padded(rows, fillers, device)
    shape = tuple(tensors["input_ids"].shape)
    special, padding = np.zeros(shape, dtype=bool), np.ones(shape, dtype=bool)
    flags = None if prediction.batch.special is None else prediction.batch.special.cpu().numpy()
    for n, (text, row, places) in enumerate(zip(texts, rows, left, strict=True)):
        padding[n, : len(row)] = False
        if flags is not None and len(row) == len(places):  # not so where one token stands for nothing
            special[n, : len(row)] = flags[text.number, text.positions[places]]
    batch = Batch(
        tensors,
        tensors["attention_mask"].eq(0),
        None if flags is None else torch.from_numpy(special).to(device),
        _examples(prediction, texts, rows, left),
        prediction.batch.tokenizer,
    )
    versus = None if prediction.versus is None else _moved(prediction, prediction.versus, texts, left)
    return Prediction(
        prediction.model,
        batch,
        chosen=(_moved(prediction, prediction.target, texts, left), versus),
        padding=None if hide in UNATTENDED else torch.from_numpy(padding).to(device),
        relevance=relevance,
    )


def _examples(
    prediction: Prediction, texts: Sequence[Hideable], rows: Sequence[Row], left: Sequence[list[int]]
) -> tuple[Encoded, ...]:
    """The encoded texts with the units that are left; none where one token stands for nothing."""
    whole = prediction.batch.examples
    if not whole or any(len(row) != len(places) for row, places in zip(rows, left, strict=True)):
        return ()
    found = []
    for text, row, places in zip(texts, rows, left, strict=True):
        example = whole[text.number]
        tensors = {name: row.tensors[name].tolist() for name in example.tensors}
        none = None if example.no_answer is None else places.index(example.no_answer)
        found.append(replace(example, tensors=tensors, units=tuple(example.units[p] for p in places), no_answer=none))
    return tuple(found)


def _needed(prediction: Prediction, number: int, positions: Numbers, hide: Hide) -> set[int]:
    """The places that are never hidden, because the explained output is said there or before."""
    outputs = prediction.trace.outputs
    if outputs.task == "classes":
        return set()
    targets = [t for t in (prediction.target, prediction.versus) if t is not None]
    columns = slice(0, 2) if outputs.task == "answer" else slice(1, 2)
    said = [int(p) for target in targets for p in target[number, columns] if p >= 0]
    stays = said if hide == "delete" or hide in UNATTENDED else []
    behind = [p for p in positions.tolist() if outputs.task == "token" and outputs.causal and p > max(said)]
    return {positions.tolist().index(p) for p in (*stays, *behind)}


def _moved(prediction: Prediction, target: Tensor, texts: Sequence[Hideable], left: Sequence[list[int]]) -> Tensor:
    """The target of each text, with its positions as they are counted in what is left."""
    own = target[[text.number for text in texts]]
    if prediction.trace.outputs.task == "classes":
        return own
    first = 0 if prediction.trace.outputs.task == "answer" else 1
    moved = own.tolist()
    for targets, text, places in zip(moved, texts, left, strict=True):
        for column in range(first, 2):
            if targets[column] >= 0:
                targets[column] = text.positions[places].tolist().index(targets[column])
    return torch.tensor(moved, device=target.device)
