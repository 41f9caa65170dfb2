"""Inputs: what a model is given for one example, without padding; its units, and how some of them are hidden."""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.caching import cached_property
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.fillers import Fillers
from whyformer.inputs.units import Unit

if TYPE_CHECKING:
    from whyformer.inputs.hiding import Hide

Numbers = NDArray[Any]
Flags = NDArray[np.bool_]
Places = Sequence[int]  # of units, counted without padding
Kind = Literal["token", "word"]  # what is ranked and hidden as one

NOTHING_LEFT = (
    "hiding leaves nothing to run, and there is no BOS, EOS or padding token in the vocabulary that could stand for "
    "it: name one, as config.bos_token_id"
)
TWICE = "units of this input are hidden already: hide all of them at once"


class Input(Protocol):
    """One example as a model is given it, without padding: what hiding, metrics and the engine know of it."""

    @property
    def units(self) -> tuple[Unit, ...]:
        """What gets a score, in order; ready tensors do not say."""

    @property
    def source(self) -> Any:
        """What people read or see: the texts, or an image."""

    @property
    def tensors(self) -> Mapping[str, Numbers | Tensor]:
        """What the model is given, by name."""

    def groups(self, kind: Any) -> list[list[int]]:
        """The places that are ranked and hidden as one: each token, or the tokens of each word, or each patch."""

    def without(self, places: Places, hide: "Hide") -> "Input":
        """The same input with the units at some places hidden."""

    def __len__(self) -> int:
        """How many units there are."""


@dataclass(frozen=True, eq=False)
class TensorInput:
    """Ready tensors of one example, without padding.

    What a model is given for each token, whole numbers, is an array [units, …]; anything else, as embeddings or pixels,
    is a tensor [1, …]. `special` marks special tokens, which are never hidden; None where nobody can tell. `gone` marks
    the units whose embedding is exchanged for that of the token `instead`, or for zeros.
    """

    tensors: Mapping[str, Numbers | Tensor]
    units: tuple[Unit, ...] = field(default=(), kw_only=True)  # ready tensors do not say
    special: Flags | None = field(default=None, kw_only=True)
    fillers: Fillers = field(default_factory=Fillers, kw_only=True)
    length: int | None = field(default=None, kw_only=True)  # where the tensors do not say it
    gone: Flags | None = field(default=None, kw_only=True)
    instead: int | None = field(default=None, kw_only=True)
    whole: "TensorInput | None" = field(default=None, kw_only=True)  # the same with nothing hidden

    def __len__(self) -> int:
        return len(self.tensors["input_ids"]) if self.length is None else self.length

    @property
    def source(self) -> Any:
        """The tensors."""
        return self.tensors

    def groups(self, kind: Kind) -> list[list[int]]:
        """The places of what is ranked and hidden as one: units that are not special."""
        if kind != "token":
            raise BadInput("words need texts: ready tensors have tokens only (units='token')")
        return self._tokens

    @cached_property
    def _tokens(self) -> list[list[int]]:
        places = range(len(self)) if self.special is None else np.flatnonzero(~self.special).tolist()
        return [[place] for place in places]

    @cached_property
    def key(self) -> bytes:
        """The tensors themselves; inputs of one model with the same key are the same."""
        if self.whole is not None and self.gone is not None:
            return self.whole.key + self.gone.tobytes() + str(self.instead).encode()
        return b"".join(_bytes(self.tensors[name]) for name in sorted(self.tensors))

    @property
    def kind(self) -> Hashable:
        """Inputs of one kind can be run as one batch: others exchange other embeddings, or cannot be padded."""
        odd = any(isinstance(values, Tensor) for values in self.tensors.values())
        return self.gone is not None, self.instead, id(self.tensors) if odd else None

    def without(self, places: Places, hide: "Hide") -> "TensorInput":
        """The same input with the units at some places hidden; itself if there are none."""
        return hide.apply(self, places) if len(places) else self

    def deleted(self, places: Places) -> "TensorInput":
        """Without some tokens; where nothing is left to attend to, there is one token, attended to."""
        kept = ~self._at(places)
        arrays = self._arrays
        tensors = {name: array[kept] for name, array in arrays.items()}
        if "position_ids" in tensors:  # what is left is counted anew
            tensors["position_ids"] = arrays["position_ids"][: len(tensors["input_ids"])]
        return self._changed(tensors, kept)

    def filled(self, places: Places, token: int, attended: bool = True) -> "TensorInput":
        """With a token in some places, attended to or not."""
        where, arrays = self._at(places), self._arrays
        tensors = {**arrays, "input_ids": np.where(where, token, arrays["input_ids"])}
        if not attended:
            tensors["attention_mask"] = np.where(where, 0, arrays["attention_mask"])
        return self._changed(tensors, None)

    def exchanged(self, places: Places, instead: int | None) -> "TensorInput":
        """With the embedding of a token, or zeros, in some places; tokens, positions and what the head reads stay."""
        if self.gone is not None:
            raise BadOption(TWICE)
        if "pixel_values" in self.tensors:
            raise BadInput("patches of an image are hidden where it is known which pixels each stands for")
        facts = {"special": self.special, "fillers": self.fillers, "length": self.length}
        return TensorInput(self.tensors, gone=self._at(places), instead=instead, whole=self, **facts)  # type: ignore[arg-type]

    @staticmethod
    def joined(inputs: Sequence[Any], device: torch.device) -> dict[str, Tensor]:
        """Inputs of one kind as one batch, padded on the right with tokens that are not attended to.

        Embeddings that are gone are zeros in it; tokens that are gone are still there.
        """
        first, count = inputs[0], len(inputs)
        if all(one.tensors is first.tensors for one in inputs):
            batch = {name: repeated(values, count, device) for name, values in first.tensors.items()}
        else:
            batch = _padded(inputs, device)
        there = present(inputs, device)
        if there is not None and "inputs_embeds" in batch:
            batch["inputs_embeds"] = batch["inputs_embeds"] * there[:, :, None]
        return batch

    def _at(self, places: Places) -> Flags:
        where = np.zeros(len(self), dtype=bool)
        where[np.asarray(places, dtype=np.intp)] = True
        return where

    @cached_property
    def _arrays(self) -> dict[str, Numbers]:
        """The tensors, if they say something for each token and nothing else."""
        arrays = {name: values for name, values in self.tensors.items() if not isinstance(values, Tensor)}
        if len(arrays) < len(self.tensors) or "input_ids" not in arrays:
            odd = ", ".join(sorted(self.tensors.keys() - arrays.keys())) or "nothing"
            raise BadInput(
                f"units are hidden in texts: input_ids, and whole numbers [batch, units] beside; found {odd}"
            )
        if self.gone is not None:
            raise BadOption(TWICE)
        if "attention_mask" not in arrays:
            arrays["attention_mask"] = np.ones(len(self), dtype=np.int64)
        return arrays

    def _changed(self, tensors: Mapping[str, Numbers], kept: Flags | None) -> "TensorInput":
        if not tensors["attention_mask"].any():
            return self._alone()
        return self._with(tensors, kept, self if self.whole is None else self.whole)

    def _with(self, tensors: Mapping[str, Numbers], kept: Flags | None, whole: "TensorInput") -> "TensorInput":
        """The input with other tensors, of the units that are kept."""
        special = self.special if kept is None or self.special is None else self.special[kept]
        return TensorInput(tensors, special=special, fillers=self.fillers, whole=whole)

    def _alone(self) -> "TensorInput":
        """One token that stands for nothing."""
        if self.fillers.alone is None:
            raise BadOption(NOTHING_LEFT)
        arrays = self._arrays
        one = {name: np.zeros_like(array[:1]) for name, array in arrays.items()}
        one |= {"input_ids": one["input_ids"] + self.fillers.alone, "attention_mask": one["attention_mask"] + 1}
        first = {"position_ids": arrays["position_ids"][:1]} if "position_ids" in one else {}
        return TensorInput(one | first, fillers=self.fillers)


One = TypeVar("One", bound=TensorInput)


def changed(one: One, **facts: Any) -> One:
    """As `dataclasses.replace`, which takes longer than hiding the units: nothing is computed when one is made."""
    made = object.__new__(type(one))
    made.__dict__.update({name: one.__dict__[name] for name in one.__dataclass_fields__})
    made.__dict__.update(facts)
    return made


def _bytes(values: Numbers | Tensor) -> bytes:
    if not isinstance(values, Tensor):
        return values.tobytes()
    plain = values.detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.blake2b(plain.numpy().tobytes(), digest_size=16).digest()


def together(inputs: Sequence[TensorInput], device: torch.device) -> dict[str, Tensor]:
    """Inputs of one kind as one batch."""
    return type(inputs[0]).joined(inputs, device)


def present(inputs: Sequence[TensorInput], device: torch.device) -> Tensor | None:
    """Which units of a batch are there, [batch, units]; None if all of them are."""
    if inputs[0].gone is None and len({one.gone is None for one in inputs}) == 1:
        return None
    there = np.ones((len(inputs), max(map(len, inputs))), dtype=bool)
    for row, one in zip(there, inputs, strict=True):
        if one.gone is not None:
            row[: len(one)] = ~one.gone
    return on_device(there, device)


def repeated(values: Numbers | Tensor, count: int, device: torch.device) -> Tensor:
    """What a model is given for one example, for so many."""
    tensor = (values if isinstance(values, Tensor) else torch.from_numpy(values)[None]).to(device)
    return tensor.repeat(count, *(1 for _ in tensor.shape[1:])) if tensor.dim() else tensor


def _padded(inputs: Sequence[TensorInput], device: torch.device) -> dict[str, Tensor]:
    lengths, fillers = np.array([len(one) for one in inputs]), inputs[0].fillers
    length = int(lengths.max())
    if fillers.beyond is not None and lengths.min() < length:
        raise BadInput(
            f"texts of different lengths need padding, and the model's padding token {fillers.beyond} lies beyond its "
            "vocabulary: set config.pad_token_id to a token that it has, or explain texts one by one"
        )
    there, batch = np.arange(length) < lengths[:, None], {}
    for name, values in inputs[0].tensors.items():
        filler = (fillers.pad or 0) if name == "input_ids" else 0
        filled = np.full((len(inputs), length, *values.shape[1:]), filler, dtype=np.int64)
        filled[there] = np.concatenate([one.tensors[name] for one in inputs])
        batch[name] = on_device(filled, device)
    return batch


def on_device(values: Numbers, device: torch.device) -> Tensor:
    """Numbers as a tensor there; a GPU is not waited for, which takes memory that is pinned."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
