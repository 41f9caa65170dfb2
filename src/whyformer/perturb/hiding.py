"""Ways to hide units of a text: deleted, or with a mask or padding token in their place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from whyformer.errors import BadInput, BadOption
from whyformer.models.loading import text_config, vocabulary_size
from whyformer.prediction import Prediction

Hide = Literal["delete", "mask", "mask_unattended", "pad", "pad_attended"]
Positions = Sequence[int]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Row:
    """One text as the model takes it, without padding: for each name a number, or several, at every position."""

    tensors: Mapping[str, Numbers]

    def __len__(self) -> int:
        return len(self.tensors["input_ids"])

    @cached_property
    def key(self) -> bytes:
        """The tensors themselves; rows of one model with the same key are the same."""
        return b"".join(self.tensors[name].tobytes() for name in sorted(self.tensors))


def rows_of(prediction: Prediction) -> tuple[Row, ...]:
    """The texts of a prediction's batch, each without its padding."""
    tensors = prediction.batch.tensors
    ids = tensors.get("input_ids")
    odd = sorted(name for name, tensor in tensors.items() if ids is None or not _by_token(name, tensor, ids))
    if ids is None or odd:
        found = ", ".join(odd) or "nothing"
        raise BadInput(f"units are hidden in texts: input_ids, and whole numbers [batch, units] beside; found {found}")
    given = {"attention_mask": torch.ones_like(ids), **tensors}
    arrays = {name: tensor.cpu().numpy().astype(np.int64) for name, tensor in given.items()}
    real = (~prediction.padding).cpu().numpy()
    return tuple(Row({name: array[n][real[n]] for name, array in arrays.items()}) for n in range(len(ids)))


def _by_token(name: str, tensor: Tensor, ids: Tensor) -> bool:
    """Whether a tensor has something for each token that goes with it."""
    if name == "attention_mask":
        return tensor.shape == ids.shape
    return tensor.shape[:2] == ids.shape and not tensor.is_floating_point()


@dataclass(frozen=True)
class Fillers:
    """The tokens that stand where a unit was: `mask`, `pad`, and `alone` where nothing is left. None if there is none.

    `mask` is the tokenizer's mask token, else its unknown token; `alone` its BOS, else EOS, else padding token. A token
    that the model cannot look up, because it lies beyond the vocabulary, is none; a padding token of this kind is
    `beyond`.
    """

    mask: int | None
    pad: int | None
    alone: int | None
    beyond: int | None = None

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None) -> "Fillers":
        """Those of a model and its tokenizer; of the model's configuration alone where there is no tokenizer."""
        config = text_config(model)
        owners = (config,) if tokenizer is None else (tokenizer,)
        size = vocabulary_size(model)
        pad = _token(("pad_token_id",), size, config, tokenizer)
        alone = _token(("bos_token_id", "eos_token_id"), size, *owners)
        mask = _token(("mask_token_id", "unk_token_id"), size, *owners)
        named = getattr(config, "pad_token_id", None)
        beyond = named if isinstance(named, int) and not is_known(named, size) else None
        return cls(mask, pad, pad if alone is None else alone, beyond)

    def instead(self, hide: Hide) -> int:
        """The token that takes the place of a hidden one."""
        found, what = (self.pad, "padding") if hide.startswith("pad") else (self.mask, "mask or unknown")
        if found is None:
            raise BadOption(f"hide={hide!r} is not possible: the vocabulary has no {what} token; use hide='delete'")
        return found


def _token(names: Sequence[str], size: int | None, *owners: Any) -> int | None:
    tokens = (getattr(owner, name, None) for name in names for owner in owners)
    return next((int(token) for token in tokens if isinstance(token, int) and is_known(token, size)), None)


def is_known(token: int, size: int | None) -> bool:
    """Whether a token lies within a vocabulary of this size."""
    return token >= 0 and (size is None or token < size)


def hidden(row: Row, positions: Positions, hide: Hide, fillers: Fillers) -> Row:
    """The text without some of its tokens.

    `delete` takes them out; `mask` and `pad_attended` put a mask or padding token in their place; `mask_unattended` and
    `pad` also take that place out of attention. Where nothing is left to attend to, there is one token, attended to.
    """
    if not len(positions):
        return row
    where = np.zeros(len(row), dtype=bool)
    where[list(positions)] = True
    if hide == "delete":
        tensors = {name: array[~where] for name, array in row.tensors.items()}
        if "position_ids" in tensors:  # what is left is counted anew
            tensors["position_ids"] = row.tensors["position_ids"][: len(tensors["input_ids"])]
    else:
        filled = np.where(where, fillers.instead(hide), row.tensors["input_ids"])
        attended = row.tensors["attention_mask"]
        if hide in ("pad", "mask_unattended"):
            attended = np.where(where, 0, attended)
        tensors = {**row.tensors, "input_ids": filled, "attention_mask": attended}
    return Row(tensors) if tensors["attention_mask"].any() else _alone(row, fillers)


def _alone(row: Row, fillers: Fillers) -> Row:
    if fillers.alone is None:
        raise BadOption(
            "hiding leaves nothing to run, and there is no BOS, EOS or padding token in the vocabulary that could "
            "stand for it: name one, as config.bos_token_id"
        )
    one = {name: np.zeros_like(array[:1]) for name, array in row.tensors.items()}
    one |= {"input_ids": one["input_ids"] + fillers.alone, "attention_mask": one["attention_mask"] + 1}
    first = {"position_ids": row.tensors["position_ids"][:1]} if "position_ids" in one else {}
    return Row(one | first)


def padded(rows: Sequence[Row], fillers: Fillers, device: torch.device) -> dict[str, Tensor]:
    """Rows as one batch, with padding on the right that is not attended to."""
    length = max(len(row) for row in rows)
    if fillers.beyond is not None and any(len(row) < length for row in rows):
        raise BadInput(
            f"texts of different lengths need padding, and the model's padding token {fillers.beyond} lies beyond its "
            "vocabulary: set config.pad_token_id to a token that it has, or explain texts one by one"
        )
    found = {}
    for name, first in rows[0].tensors.items():
        filler = (fillers.pad or 0) if name == "input_ids" else 0
        filled = np.full((len(rows), length, *first.shape[1:]), filler, dtype=np.int64)
        for target, row in zip(filled, rows, strict=True):
            target[: len(row)] = row.tensors[name]
        found[name] = torch.from_numpy(filled).to(device)
    return found


def count_of(share: float, units: int, up: bool = False) -> int:
    """A share of the units as a count: the nearest, half up; or the next higher."""
    exact = round(share * units, 9)  # 0.7 * 45 is 31.5, whatever binary fractions say
    return math.ceil(exact) if up else math.floor(exact + 0.5)
