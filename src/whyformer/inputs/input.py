"""Inputs: the tensors of one example without padding, its units, and the tokens that can replace a unit."""

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from whyformer.arrays import BoolArray
from whyformer.async_copy import sent
from whyformer.caching import cached_property
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.units import Unit
from whyformer.models.load import text_config, vocabulary_size

if TYPE_CHECKING:
    from whyformer.inputs.hiding import Hide

WORDS = {"pad": "padding", "mask": "mask", "unk": "unknown"}


@dataclass(frozen=True)
class Fillers:
    """The tokens that stand where a unit was: `mask`, `pad`, `unk`, and `alone` where nothing is left; None: no such.

    `alone` is the tokenizer's BOS, else EOS, else padding token. A token that the model cannot look up, because it lies
    beyond the vocabulary, is none; a padding token of this kind is `beyond`. `stated` are the tokens as they are named,
    and `owner` is who names them.
    """

    mask: int | None = None
    pad: int | None = None
    alone: int | None = None
    beyond: int | None = None
    unk: int | None = None
    stated: Mapping[str, int] = field(default_factory=dict, compare=False)
    owner: str | None = field(default=None, compare=False)  # None: the tokenizer
    vocabulary: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None) -> "Fillers":
        """The fillers of a model and its tokenizer; of the model's configuration alone where there is no tokenizer."""
        config, size = text_config(model), vocabulary_size(model)
        owners = (config,) if tokenizer is None else (tokenizer,)
        named = {
            "pad": _tokens(("pad_token_id",), config, tokenizer),
            "mask": _tokens(("mask_token_id",), *owners),
            "unk": _tokens(("unk_token_id",), *owners),
            "alone": _tokens(("bos_token_id", "eos_token_id"), *owners),
        }
        known = {name: _known(tokens, size) for name, tokens in named.items()}
        if known["alone"] is None:
            known["alone"] = known["pad"]
        padding = getattr(config, "pad_token_id", None)
        beyond = padding if isinstance(padding, int) and not _is_known(padding, size) else None
        stated = {name: tokens[0] for name, tokens in named.items() if tokens}
        owner = None if tokenizer is not None else f"the configuration of {type(model).__name__}"
        return cls(**known, beyond=beyond, stated=stated, owner=owner, vocabulary=size)

    def first(self, names: Sequence[str]) -> int | None:
        """The first of several tokens that there is: of `pad`, `mask`, `unk`."""
        for name in names:
            token: int | None = getattr(self, name)
            if token is not None:
                return token
        return None

    def baseline(self, name: str, asked: str) -> int:
        """The token whose embedding takes the place of a unit, for what was `asked` for; it has no substitute."""
        token: int | None = getattr(self, name)
        if token is not None:
            return token
        what, use = f"{asked} is not possible", "use baseline='zero'"
        if name in self.stated:
            raise BadOption(
                f"{what}: the {WORDS[name]} token {self.stated[name]} lies beyond the model's vocabulary of "
                f"{self.vocabulary}; {use}"
            )
        if self.owner is not None:
            raise BadOption(
                f"{what}: {self.owner} names no {WORDS[name]} token; {use}, or explain texts with an Explainer, which "
                "knows the tokenizer's"
            )
        raise BadOption(f"{what}: the tokenizer has no {WORDS[name]} token; {use}")


def _tokens(names: Sequence[str], *owners: Any) -> list[int]:
    tokens = (getattr(owner, name, None) for name in names for owner in owners)
    return [int(token) for token in tokens if isinstance(token, int)]


def _known(tokens: Sequence[int], size: int | None) -> int | None:
    return next((token for token in tokens if _is_known(token, size)), None)


def _is_known(token: int, size: int | None) -> bool:
    """Whether a token lies within a vocabulary of this size."""
    return token >= 0 and (size is None or token < size)


Numbers = NDArray[Any]
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
    special: BoolArray | None = field(default=None, kw_only=True)
    fillers: Fillers = field(default_factory=Fillers, kw_only=True)
    length: int | None = field(default=None, kw_only=True)  # where the tensors do not say it
    gone: BoolArray | None = field(default=None, kw_only=True)
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
        return b"".join([_bytes(self.tensors[name]) for name in sorted(self.tensors)])

    @cached_property
    def kind(self) -> Hashable:
        """Inputs of one kind can be run as one batch: others exchange other embeddings, or cannot be padded."""
        odd = any(isinstance(values, Tensor) for values in self.tensors.values())
        return self.gone is not None, self.instead, id(self.tensors) if odd else None

    def without(self, places: Places, hide: "Hide") -> "TensorInput":
        """The same input with the units at some places hidden; itself if there are none."""
        return hide.apply(self, places) if len(places) else self

    def without_each(self, gone: BoolArray, hide: "Hide") -> list["TensorInput"]:
        """The same input with other units hidden in each, [inputs, units]; itself where there are none.

        Many are made together, for the model alone: they do not say what their units are.
        """
        some: BoolArray = np.any(gone, axis=1)
        hidden = iter(hide.apply_each(self, gone[some]))
        return [next(hidden) if is_hidden else self for is_hidden in some]

    def deleted(self, places: Places) -> "TensorInput":
        """Without some tokens; where nothing is left to attend to, there is one token, attended to."""
        gone = self._at(places)
        (tensors,) = self._left(gone[None])
        return self._alone() if tensors is None else self._with(tensors, ~gone)

    def each_deleted(self, gone: BoolArray) -> list["TensorInput"]:
        """The same of many, [inputs, units]."""
        return self._each_with(self._left(gone))

    def filled(self, places: Places, token: int, attended: bool = True) -> "TensorInput":
        """With a token in some places, attended to or not."""
        (tensors,) = self._filled(self._at(places)[None], token, attended)
        return self._alone() if tensors is None else self._with(tensors, None)

    def each_filled(self, gone: BoolArray, token: int, attended: bool = True) -> list["TensorInput"]:
        """The same of many, [inputs, units]."""
        return self._each_with(self._filled(gone, token, attended))

    def _left(self, gone: BoolArray) -> Iterator[dict[str, Numbers] | None]:
        """The tensors without some tokens, each time others; None where nothing is left to attend to."""
        arrays, kept = self._arrays, ~gone
        places, ends = kept.nonzero()[1], kept.sum(1).cumsum().tolist()
        left = {name: array[places] for name, array in arrays.items()}
        attended = (kept & (arrays["attention_mask"] != 0)).any(1).tolist()
        for start, end, is_attended in zip((0, *ends), ends, attended, strict=False):
            tensors = {name: array[start:end] for name, array in left.items()}
            if "position_ids" in tensors:  # what is left is counted anew
                tensors["position_ids"] = arrays["position_ids"][: end - start]
            yield tensors if is_attended else None

    def _filled(self, gone: BoolArray, token: int, attended: bool) -> Iterator[dict[str, Numbers] | None]:
        """The tensors with a token in some places, each time others; None where nothing is left to attend to."""
        arrays = self._arrays
        mask = arrays["attention_mask"]
        masks = repeat(mask, len(gone)) if attended else iter(np.where(gone, 0, mask))
        for ids, of_one in zip(np.where(gone, token, arrays["input_ids"]), masks, strict=True):
            tensors = {**arrays, "input_ids": ids, "attention_mask": of_one}
            yield tensors if attended or of_one.any() else None

    def _each_with(self, each: Iterable[Mapping[str, Numbers] | None]) -> list["TensorInput"]:
        """Inputs with other tensors; one token that stands for nothing where there are none."""
        bare = TensorInput({}, fillers=self.fillers, whole=self._nothing_hidden)
        return [
            self._alone()
            if tensors is None
            else changed(bare, tensors=tensors, length=len(tensors["input_ids"]), kind=bare.kind)
            for tensors in each
        ]

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

    def _at(self, places: Places) -> BoolArray:
        return np.frombuffer(flags_at(places, len(self)), dtype=bool)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        """What it was made of, without what was computed of that since."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

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

    def _with(self, tensors: Mapping[str, Numbers], kept: BoolArray | None) -> "TensorInput":
        """The input with other tensors, of the units that are kept."""
        special = self.special if kept is None or self.special is None else self.special[kept]
        return TensorInput(tensors, special=special, fillers=self.fillers, whole=self._nothing_hidden)

    @property
    def _nothing_hidden(self) -> "TensorInput":
        return self if self.whole is None else self.whole

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
    made.__dict__.update(one._fields)
    made.__dict__.update(facts)
    return made


def flags_at(places: Places, units: int) -> bytes:
    """Which of so many units are at some places, as the bytes of an array of flags: few are marked faster by hand."""
    flags = bytearray(units)
    for place in places:
        flags[place] = 1
    return bytes(flags)


def flags_of(several: Sequence[Places], units: int) -> BoolArray:
    """Which of so many units are at some places, each time others, [times, units]."""
    flags = b"".join([flags_at(places, units) for places in several])
    return np.frombuffer(flags, dtype=bool).reshape(len(several), units)


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
    return sent(torch.from_numpy(there), device)


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
        batch[name] = sent(torch.from_numpy(filled), device)
    return batch
