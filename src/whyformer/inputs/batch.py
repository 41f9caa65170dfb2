"""From texts, pairs, questions or tensors to a Batch: what the model is given, and the unit behind each position."""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from whyformer.arrays import BoolArray
from whyformer.async_copy import sent
from whyformer.caching import cached_property
from whyformer.errors import BadInput, TruncationWarning, UnknownWordsWarning, listed, shown
from whyformer.inputs.images import ImageInput, Patches
from whyformer.inputs.input import Fillers, Kind, Numbers, TensorInput, changed
from whyformer.inputs.tensors import (
    accepts,
    batch_and_units,
    check_ids,
    check_one_text,
    check_shapes,
    check_tables,
    check_width,
    near,
    rows_of,
    tables,
    tensors_of,
)
from whyformer.inputs.text import Text as Text
from whyformer.inputs.units import Span, Unit, join_words, search_spans, split_words, trim
from whyformer.models.auto_classes import task_name
from whyformer.models.load import Subject, device_of, text_config, vocabulary_size

NO_ANSWER = "(no answer)"
NO_LIMIT = 10**30  # tokens, as transformers writes it
MOST_WINDOWS = 256  # in which a text is read
COUNTED = 100_000  # characters; the tokens of a longer text are not counted to the end
CHARACTERS_PER_TOKEN = 16  # more than most texts have
DROPPED = "dropped_tokens"  # the key of diagnostics that says how many tokens of a text did not fit
ROWS = 8  # rows that a warning names
UNKNOWN_WORDS = 0.2  # more than this share of a text's words, and more than one, is worth a warning

_TOKENIZING = Lock()  # a tokenizer keeps how it truncates between two calls, so threads wait for each other


@dataclass(frozen=True, eq=False)
class Window:
    """A part of a text that is read in several: which of how many, and where its tokens stand in the whole.

    `answered`: over all windows of the context there is an answer, whatever this one alone says of no answer.
    """

    number: int
    count: int
    places: NDArray[np.intp]
    answered: bool = False


@dataclass(frozen=True, eq=False)
class TextInput(TensorInput):
    """One text, pair, or question with its context, as the model sees it before it is padded."""

    texts: tuple[str, ...]
    dropped: int = 0  # tokens that did not fit into the window
    no_answer: int | None = None  # the position that says that there is no answer
    counted: bool = True  # else at least `dropped` tokens did not fit: a very long text is not read to its end
    window: Window | None = None

    @property
    def source(self) -> tuple[str, ...]:
        """The texts."""
        return self.texts

    @cached_property
    def words(self) -> list[tuple[Unit, list[int]]]:
        """The words, each with the places of its tokens."""
        return join_words(self.units, self.texts)

    def groups(self, kind: Kind) -> list[list[int]]:
        """The places of what is ranked and hidden as one: each token that is not special, or the tokens of a word."""
        return [members for _, members in self.words] if kind == "word" else super().groups(kind)

    def _with(self, tensors: Mapping[str, Numbers], kept: BoolArray | None) -> "TextInput":
        whole = self._nothing_hidden
        if kept is None:
            return changed(self, tensors=tensors, whole=whole)
        units, special = tuple(compress(self.units, kept)), None if self.special is None else self.special[kept]
        none = None if self.no_answer is None else int(np.count_nonzero(kept[: self.no_answer]))
        return changed(self, tensors=tensors, units=units, special=special, no_answer=none, whole=whole)

    def part(self, window: Window) -> "TextInput":
        """One window of it."""
        places = window.places
        none = None if self.no_answer is None else int(np.searchsorted(places, self.no_answer))
        return replace(
            self,
            tensors={name: values[places] for name, values in self.tensors.items()},
            units=tuple(self.units[place] for place in places),
            special=None if self.special is None else self.special[places],
            no_answer=none,
            window=window,
        )

    @property
    def context(self) -> list[int]:
        """The positions of the second text: where the answer to a question stands."""
        return [i for i, unit in enumerate(self.units) if unit.part == 1]

    @property
    def unknown(self) -> tuple[list[str], int]:
        """The words that the tokenizer does not know, or leaves out; and how many words were read."""
        words = [unit for unit, _ in self.words]
        unknown = [word.text for word in words if word.unknown]
        left_out = []
        for part, text in enumerate(self.texts):
            spans = [unit.span for unit in words if unit.part == part and unit.span]
            end = max((b for _, b in spans), default=0) if self.dropped else len(text)
            covered = {a for span in spans for a in range(*span)}
            places = [] if len(text) > COUNTED else split_words(text[:end])
            left_out += [text[a:b] for a, b in places if a not in covered and text[a:b].isalnum()]
        return unknown + left_out, len(words) + len(left_out)

    def warn(self, alone: bool = True) -> None:
        """Warn of what the model does not see of the text; of tokens that do not fit, only of a text `alone`."""
        if self.dropped and alone:
            count, window = len(self.units) + self.dropped, len(self.units)
            more, least = ("", "") if self.counted else ("more than ", "at least ")
            warnings.warn(
                f"{more}{count} tokens, but the model's window holds {window}: {least}{self.dropped} were dropped",
                TruncationWarning,
                stacklevel=3,
            )
        unknown, count = self.unknown
        if len(unknown) > max(1, UNKNOWN_WORDS * count):
            warnings.warn(
                f"{len(unknown)} of {count} words are unknown to the tokenizer ({listed(unknown, 8)}), and the model "
                "sees the same token for each: take a model for texts of this kind",
                UnknownWordsWarning,
                stacklevel=3,
            )

    def characters(self, start: int, end: int) -> Span | None:
        """Where the tokens from `start` to `end` stand in their text; None for special tokens."""
        spans = [unit.span for unit in self.units[start : end + 1] if unit.span]
        return (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None


def warn_of_truncated(dropped: Mapping[int, int], texts: int) -> None:
    """Warn once of all texts that do not fit: how many tokens were dropped, by row."""
    if not dropped:
        return
    be = ("is", "was", "row") if len(dropped) == 1 else ("are", "were", "rows")
    message = (
        f"{len(dropped):,} of {texts:,} texts {be[0]} longer than the model's window and {be[1]} truncated, "
        f"by up to {max(dropped.values()):,} tokens: {be[2]} {listed(sorted(dropped), ROWS)} (counted from 0)"
    )
    warnings.warn(message, TruncationWarning, stacklevel=3)


ReadInput = TextInput | ImageInput  # what an example is read as


@dataclass(frozen=True)
class Batch:
    """The tensors for the model's forward, and which of its positions are not text.

    `masked`: not attended to; None for images, which have no padding. `special`: special tokens, or None where nobody
    can tell (ready tensors). `examples` and `tokenizer` are those of texts; ready tensors have none. `choices`: how
    many rows each example of ready tensors has, for a model that chooses among texts.
    """

    tensors: dict[str, Tensor]
    masked: Tensor | None  # [batch, units]
    special: Tensor | None  # [batch, units]
    examples: "tuple[ReadInput, ...]" = ()
    tokenizer: Any = None
    choices: int | None = None

    def rows(self, numbers: Sequence[int]) -> "Batch":
        """Some rows of it."""
        chosen = list(numbers)
        return Batch(
            {name: tensor[chosen] for name, tensor in self.tensors.items()},
            None if self.masked is None else self.masked[chosen],
            None if self.special is None else self.special[chosen],
            tuple(self.examples[number] for number in chosen) if self.examples else (),
            self.tokenizer,
        )

    @cached_property
    def is_padded(self) -> bool:
        """Whether any position is masked."""
        return self.masked is not None and bool(self.masked.any())

    @property
    def is_known_to_be_padded(self) -> bool:
        """Whether any position is masked, and somebody found out already."""
        return bool(self.__dict__.get("is_padded"))

    def known(
        self, *, is_padded: bool, by_token: dict[str, Numbers] | None = None, special: BoolArray | None = None
    ) -> "Batch":
        """The same, of which it is known what others would wait for a device to tell.

        That is whether it is padded, and what there is for each token, if these lie on the CPU.
        """
        batch = replace(self)
        batch.__dict__["is_padded"] = is_padded
        if by_token is not None:
            batch.__dict__.update(by_token=by_token, _special=special)
        return batch

    def padding(self, reader: Tensor, pad_token_id: int | None) -> Tensor:
        """Masked positions that are neither special tokens nor read by the head, [batch, units].

        A masked padding token is padding, also where a tokenizer's mask calls it special.
        """
        if self.masked is None:
            return torch.zeros_like(reader, dtype=torch.bool)
        padding = self.masked & (reader == 0)
        if self.special is None:
            return padding
        special = self.special
        if not self.examples and pad_token_id is not None and "input_ids" in self.tensors:
            special = special & (self.tensors["input_ids"] != pad_token_id)  # texts know it better than such a mask
        return padding & ~special

    def inputs(self, padding: Tensor, fillers: Fillers, patches: Patches | None = None) -> tuple[TensorInput, ...]:
        """The examples, each without its padding; images with their patches."""
        rows = enumerate((~padding).cpu().numpy())
        facts: Any = {"patches": patches, "attended": True}
        return tuple(self.alone(n, np.flatnonzero(row), len(row), fillers, **facts) for n, row in rows)

    @property
    def is_images(self) -> bool:
        """Whether the examples are images, and nothing but images."""
        return "pixel_values" in self.tensors and not {"input_ids", "inputs_embeds"} & self.tensors.keys()

    def alone(
        self,
        row: int,
        positions: NDArray[np.intp],
        units: int,
        fillers: Fillers,
        *,
        patches: Patches | None = None,
        attended: bool = False,
    ) -> TensorInput:
        """One example with what stands at some positions of its `units`; by default tokens are `attended` to."""
        by_token, special = self.by_token, None if self._special is None else self._special[row][positions]
        tensors: dict[str, Numbers | Tensor] = {
            name: by_token[name][row][positions] if name in by_token else _cut(name, tensor, row, positions, units)
            for name, tensor in self.tensors.items()
        }
        facts: Any = {"special": special, "fillers": fillers}
        if patches is not None:
            image = self.examples[row] if self.examples else None
            return image if isinstance(image, ImageInput) else ImageInput(tensors, patches, **facts)
        if attended and "input_ids" in by_token and "attention_mask" not in tensors:
            tensors["attention_mask"] = np.ones(len(positions), dtype=np.int64)
        if "input_ids" not in by_token:
            return TensorInput(tensors, **facts, length=len(positions))
        if self.examples:
            return replace(self.examples[row], tensors=tensors, **facts)
        return TensorInput(tensors, **facts)

    @cached_property
    def by_token(self) -> dict[str, Numbers]:
        """What there is for each token, [batch, units, …] of whole numbers, on the CPU."""
        ids = self.tensors.get("input_ids")
        if ids is None:
            return {}
        return {
            name: (tensor.long() if tensor.is_floating_point() else tensor).cpu().numpy()
            for name, tensor in self.tensors.items()
            if _is_by_token(name, tensor, ids)
        }

    @cached_property
    def _special(self) -> BoolArray | None:
        return None if self.special is None else self.special.bool().cpu().numpy()


def _is_by_token(name: str, tensor: Tensor, ids: Tensor) -> bool:
    """Whether a tensor has something for each token that goes with it."""
    if name == "attention_mask":
        return tensor.shape == ids.shape
    whole_numbers = not name.startswith("decoder_") and not tensor.is_floating_point()
    return whole_numbers and tensor.shape[:2] == ids.shape


def _cut(name: str, tensor: Tensor, row: int, positions: NDArray[np.intp], units: int) -> Tensor:
    """What the model is given for one example, at some of its positions where there is something for each."""
    example = tensor[row : row + 1] if tensor.dim() else tensor
    by_unit = units in tensor.shape[1:] and not name.startswith(("decoder_", "pixel_values"))
    if not by_unit or len(positions) == units:
        return example
    if "mask" in name and units in tensor.shape[2:]:  # others have a row for each token, by chance as wide
        raise BadInput(f"padding cannot be taken out of {name} {tuple(tensor.shape)}: give texts one by one")
    return example[:, torch.from_numpy(positions).to(example.device)]


def places(text: str, context: str) -> list[Span]:
    """Where a text stands: as whole words, or else inside them; as it is written, or else with other capitals."""
    plain = re.escape(text)
    for pattern in (rf"(?<!\w){plain}(?!\w)", plain) if text else ():
        for flags in (re.NOFLAG, re.IGNORECASE):
            if spans := [match.span() for match in re.finditer(pattern, context, flags)]:
                return spans
    return []


def encode(subject: Subject, text: Text, *, answers: bool | None = None, whole: bool = False) -> TextInput:
    """Tokenise one text or pair; `answers` says whether it is a question with its context, unless the model tells.

    Tokens beyond the model's window are dropped and counted, but for the context of a question, because the answer may
    stand in what is dropped: that has to fit. Of a text of more than `COUNTED` characters no more is tokenised than
    fills the window twice. With `whole`, all tokens are there, whether they fit or not: `inputs.windows` cuts them into
    parts that do, of which there may be `MOST_WINDOWS`.
    """
    answers = subject.task == "answer" if answers is None else answers
    texts = _checked(text, answers)
    tokenizer, window = subject.tokenizer, window_of(subject) * (MOST_WINDOWS if whole else 1)
    reach = [_reach(tokenizer, each, window) for each in texts]
    encoding = _tokenised(tokenizer, _read(texts, reach), verbose=False)
    count, counted = len(encoding["input_ids"]), _read(texts, reach) == texts
    dropped = max(0, count - window)
    if dropped and whole:
        raise BadInput(
            f"the text is {'' if counted else 'more than '}{count} tokens, more than {MOST_WINDOWS} windows of the "
            "model, each of which is a run of it: give a part of the text"
        )
    if dropped and answers:
        raise BadInput(
            f"the question and its context are {'' if counted else 'more than '}{count} tokens, but the model's window "
            f"holds {window}: give the part that holds the answer"
        )
    if dropped:
        reach = _shorter(tokenizer, encoding, reach, window)
        encoding = _tokenised(tokenizer, _read(texts, reach), truncation="longest_first", max_length=window)
    units = _units(tokenizer, encoding, _read(texts, reach))
    parts = {unit.part for unit in units if not unit.special}
    if dropped and (len(units) > window or len(parts) < len(texts)):
        raise BadInput(
            f"the model's window holds {window} {'token' if window == 1 else 'tokens'}, too few for "
            f"{'the text' if len(texts) == 1 else 'both texts'} beside the special tokens: set the tokenizer's "
            "model_max_length"
        )
    if not parts or (answers and 1 not in parts):
        raise BadInput(f"the tokenizer finds no token in {shown(text)}")
    _check_vocabulary(subject.model, tokenizer, encoding["input_ids"])
    tensors = {k: np.array(encoding[k]) for k in ("input_ids", "token_type_ids") if k in encoding}
    if not accepts(subject.model, "token_type_ids"):
        tensors.pop("token_type_ids", None)
    units = tuple(_moved(unit, reach) for unit in units) if any(start for start, _ in reach) else units
    return TextInput(
        tensors,
        texts,
        dropped,
        _no_answer(tokenizer, units),
        counted,
        units=units,
        special=np.array([unit.special for unit in units]),
        fillers=Fillers.of(subject.model, tokenizer),
    )


def _reach(tokenizer: Any, text: str, window: int) -> Span:
    """Which part of a text is tokenised: all of it, or of a very long one so much that it fills the window twice.

    The window then holds the same tokens as if the whole text had been read, because a tokenizer looks ahead only a
    little. The part is the end of the text for tokenizers that cut at the beginning.
    """
    size, most = CHARACTERS_PER_TOKEN * window, max(COUNTED, 1024 * window)
    while len(text) > max(COUNTED, size):
        part = (len(text) - size, len(text)) if getattr(tokenizer, "truncation_side", "") == "left" else (0, size)
        count = len(_tokenised(tokenizer, (text[slice(*part)],), verbose=False)["input_ids"])
        if count > 2 * window:
            return part
        if size >= most:
            raise BadInput(
                f"{size:,} of the text's {len(text):,} characters are only {count} tokens ({shown(text, 40)}): the "
                "tokenizer finds no words in it; give less of it"
            )
        size *= 4
    return 0, len(text)


def _shorter(tokenizer: Any, encoding: Any, reach: list[Span], window: int) -> list[Span]:
    """The parts of a pair's texts that are enough to fill the window, with the longer text still the longer one.

    A tokenizer that truncates a pair makes every combination of what is left over from both texts.
    """
    if len(reach) == 1 or not getattr(tokenizer, "is_fast", False):
        return reach
    parts = encoding.sequence_ids()
    offsets = [[o for o, p in zip(encoding["offset_mapping"], parts, strict=True) if p == part] for part in (0, 1)]
    longer = 0 if len(offsets[0]) > len(offsets[1]) else 1
    shorter = []
    for part, (start, end) in enumerate(reach):
        kept, count = (4 if part == longer else 2) * window, len(offsets[part])
        if count <= kept:
            shorter.append((start, end))
        elif tokenizer.truncation_side == "left":
            shorter.append((start + offsets[part][-kept][0], end))
        else:
            shorter.append((start, start + offsets[part][kept - 1][1]))
    return shorter


def _read(texts: tuple[str, ...], reach: Sequence[Span]) -> tuple[str, ...]:
    return tuple(text[slice(*part)] for text, part in zip(texts, reach, strict=True))


def _moved(unit: Unit, reach: Sequence[Span]) -> Unit:
    """A unit of the part that was read, where it stands in the whole text."""
    if unit.span is None or unit.part is None:
        return unit
    start = reach[unit.part][0]
    return replace(unit, span=(unit.span[0] + start, unit.span[1] + start))


def _tokenised(tokenizer: Any, texts: tuple[str, ...], **options: Any) -> Any:
    """What the tokenizer gives for a text or pair."""
    options |= {"return_special_tokens_mask": True, "return_offsets_mapping": getattr(tokenizer, "is_fast", False)}
    try:
        with _TOKENIZING:
            return tokenizer(*texts, **options)
    except Exception as error:  # of any class: tokenizers are not ours, and written in several languages
        reason = " ".join(str(error).split())[:300]
        raise BadInput(
            f"the tokenizer ({type(tokenizer).__name__}) could not read {shown(texts[0])}: {reason}"
        ) from error


def _check_vocabulary(model: nn.Module, tokenizer: Any, ids: Sequence[int]) -> None:
    rows = vocabulary_size(model)
    beyond = [i for i in ids if rows is not None and not 0 <= i < rows]
    if beyond:
        piece = tokenizer.convert_ids_to_tokens(beyond[:1])[0]
        raise BadInput(
            f"the tokenizer gives {shown(piece)} the id {beyond[0]}, but the model has embeddings for the ids 0 … "
            f"{(rows or 0) - 1}: give the tokenizer of this model, or resize its embeddings (resize_token_embeddings)"
        )


def collate(subject: Subject, inputs: Sequence[ReadInput]) -> Batch:
    """One batch of texts, or of images of one size.

    Texts are padded on the right, so that the positions of a text do not depend on the others.
    """
    images = [one for one in inputs if isinstance(one, ImageInput)]
    examples = [one for one in inputs if isinstance(one, TextInput)]
    if images:
        tensors = ImageInput.joined(images, subject.device)
        special = torch.from_numpy(np.stack([~one.patches.free for one in images])).to(subject.device)
        return Batch(tensors, None, special, tuple(images))
    length = max(len(e.units) for e in examples)
    padded = any(len(e.units) < length for e in examples)
    fill = {"input_ids": _pad_token_id(subject) if padded else 0, "token_type_ids": 0}
    tensors = {
        name: torch.tensor([e.tensors[name].tolist() + [fill[name]] * (length - len(e.units)) for e in examples])
        for name in examples[0].tensors
    }
    attended = torch.tensor([[1] * len(e.units) + [0] * (length - len(e.units)) for e in examples])
    special = torch.tensor([[u.special for u in e.units] + [False] * (length - len(e.units)) for e in examples])
    tensors["attention_mask"] = attended
    far = {name: sent(tensor, subject.device) for name, tensor in tensors.items()}
    masked = sent(attended.eq(0), subject.device)
    batch = Batch(far, masked, sent(special, subject.device), tuple(examples), subject.tokenizer)
    near = {name: tensor.numpy() for name, tensor in tensors.items()}
    return batch.known(is_padded=padded, by_token=near, special=special.numpy())


def batch_of(
    model: nn.Module,
    inputs: Mapping[str, Tensor] | Tensor | tuple[Tensor, ...],
) -> Batch:
    """A batch from ready tensors. `special_tokens_mask`, as tokenizers return it, may be among them."""
    given, choices = tensors_of(model, inputs), None
    if task_name(model) == "choice":
        given, choices = rows_of(given)
    check_one_text(given.get("input_ids"))
    device = device_of(model)
    tensors = {name: tensor.to(device) for name, tensor in given.items()}
    if Batch(tensors, None, None).is_images:
        pixels = tensors["pixel_values"]
        if pixels.dim() != 4 or not pixels.is_floating_point():
            form = f"{pixels.dtype} of shape {tuple(pixels.shape)}"
            raise BadInput(f"pixel_values are fractions [batch, channels, height, width]; found {form}")
        return Batch(tensors, None, None)
    shape = batch_and_units(tensors)
    if "position_ids" in tensors and tensors["position_ids"].shape == (1, shape[1]):  # the same for all
        given["position_ids"] = given["position_ids"].expand(shape)
        tensors["position_ids"] = tensors["position_ids"].expand(shape)
    seen = near(given)
    check_ids(model, seen.get("input_ids"))
    check_width(model, seen.get("inputs_embeds"))
    check_shapes(seen, shape)
    check_tables(model, seen, shape)
    special, attended = tensors.pop("special_tokens_mask", None), tensors.get("attention_mask")
    if attended is None or attended.shape != shape:
        attended = torch.ones(shape, device=next(iter(tensors.values())).device)
        is_padded = False
    else:
        is_padded = not bool(seen["attention_mask"].all())
    special = None if special is None else special.bool()
    return Batch(tensors, attended.eq(0), special, choices=choices).known(is_padded=is_padded)


def window_of(subject: Subject) -> int:
    """How many tokens the model can take: the smallest of what tokenizer, configuration and position table say."""
    stated = getattr(subject.tokenizer, "model_max_length", None)
    if stated is not None and (isinstance(stated, bool) or not isinstance(stated, int | float) or not stated >= 1):
        raise BadInput(
            f"the tokenizer's model_max_length is {shown(stated)}: set it to the number of tokens that the model takes"
        )
    limits = [NO_LIMIT if stated is None or stated == math.inf else int(stated)]
    return min(*limits, longest_for(subject.model))


def longest_for(model: nn.Module) -> int:
    """How many tokens a model can take: the smaller of what its configuration and its position table say."""
    limits = [NO_LIMIT]
    configured = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if isinstance(configured, int) and configured > 0:  # XLNet says -1: any number
        limits.append(configured)
    if "position_ids" in (of_model := tables(model)):
        limits.append(of_model["position_ids"].rows - of_model["position_ids"].reserved)
    return min(limits)


def _checked(text: Any, answers: bool) -> tuple[str, ...]:
    texts = (text,) if isinstance(text, str) else text
    if not isinstance(texts, tuple) or len(texts) not in (1, 2) or not all(isinstance(t, str) for t in texts):
        needed = "one question and its context are" if answers else "a text or a pair (text, text) is"
        several = " (several texts are given as a list)" if isinstance(text, tuple) else ""
        raise BadInput(f"{needed} needed{several}, found {shown(text)}")
    if not all(t.strip() for t in texts):
        if answers:
            raise BadInput("the context is empty" if texts[0].strip() else "the question is empty")
        raise BadInput("the text is empty" if len(texts) == 1 else f"a text of the pair is empty: {shown(text)}")
    half = next(filter(None, (re.search("[\ud800-\udfff]", t) for t in texts)), None)
    if half:
        raise BadInput(f"the text holds half a character (a lone surrogate, {half[0]!r}) at character {half.start()}")
    return tuple(str(t) for t in texts)  # numpy's own are texts too


def _no_answer(tokenizer: Any, units: Sequence[Unit]) -> int | None:
    """Where models say that a question has no answer: at the classification token, or else the first special one."""
    special = [i for i, unit in enumerate(units) if unit.special]
    classifying = [i for i in special if units[i].piece == getattr(tokenizer, "cls_token", None)]
    return next(iter(classifying + special), None)


def _units(tokenizer: Any, encoding: Any, texts: tuple[str, ...]) -> tuple[Unit, ...]:
    ids = list(encoding["input_ids"])
    pieces = tokenizer.convert_ids_to_tokens(ids)
    special = [bool(s) for s in encoding["special_tokens_mask"]]
    fast = getattr(tokenizer, "is_fast", False)
    parts = encoding.sequence_ids() if fast else _parts(tokenizer, special, texts)
    if fast:
        rows = zip(encoding["offset_mapping"], special, parts, strict=True)
        spans = [None if flag else trim(tuple(offsets), texts[part or 0]) for offsets, flag, part in rows]
    else:
        spans = _searched(tokenizer, ids, special, parts, texts)
    units = []
    stands_for_unknown = getattr(tokenizer, "unk_token_id", None)
    for index, piece, flag, part, span in zip(ids, pieces, special, parts, spans, strict=True):
        if flag or part is None:
            units.append(Unit(str(piece), special=True, piece=str(piece)))
        else:
            surface = texts[part][slice(*span)] if span else str(piece)
            unknown = index == stands_for_unknown and surface != piece  # GPT-2's is its end of text, written out
            units.append(Unit(surface, "token", span, part, False, str(piece), unknown))
    return tuple(units)


def _parts(tokenizer: Any, special: list[bool], texts: tuple[str, ...]) -> list[int | None]:
    """Which text each position belongs to: counted, or, where a text was cut, by the special tokens between them."""
    options = {"add_special_tokens": False, "verbose": False}
    counts = [len(_tokenised(tokenizer, (text,), **options)["input_ids"]) for text in texts]
    if sum(counts) == special.count(False):
        numbers = iter([number for number, count in enumerate(counts) for _ in range(count)])
        return [None if flag else next(numbers) for flag in special]
    parts: list[int | None] = []
    part, started = 0, False
    for flag in special:
        if flag and started:
            part, started = min(part + 1, 1), False
        started = started or not flag
        parts.append(None if flag else part)
    return parts


def _searched(
    tokenizer: Any, ids: list[int], special: list[bool], parts: list[int | None], texts: tuple[str, ...]
) -> list[Span | None]:
    spans: list[Span | None] = [None] * len(ids)
    for part, text in enumerate(texts):
        positions = [i for i, p in enumerate(parts) if p == part and not special[i]]
        pieces = [tokenizer.decode([ids[i]]).removeprefix("##") for i in positions]
        searched = search_spans(pieces, text, backwards=getattr(tokenizer, "truncation_side", "") == "left")
        for number, position in enumerate(positions):
            unknown = ids[position] == tokenizer.unk_token_id
            spans[position] = _gap(searched, number, text) if unknown else searched[number]
    return spans


def _gap(spans: list[Span | None], number: int, text: str) -> Span:
    """What lies between the nearest pieces that were found: there an unknown token must stand."""
    start = max((s[1] for s in spans[:number] if s), default=0)
    end = min((s[0] for s in spans[number:] if s), default=len(text))
    return trim((start, end), text)


def _pad_token_id(subject: Subject) -> int:
    """Which token to pad with; a model without one gets a stand-in from the recorder."""
    rows = vocabulary_size(subject.model)
    index = getattr(text_config(subject.model), "pad_token_id", None)
    if index is not None and rows is not None and not 0 <= index < rows:
        raise BadInput(
            f"texts of several lengths are padded with the id {index} (pad_token_id), but the model has embeddings for "
            f"the ids 0 … {rows - 1}: explain one at a time (batch_size=1), or set its pad_token_id"
        )
    index = getattr(subject.tokenizer, "pad_token_id", None) if index is None else index
    return int(index) if index is not None and (rows is None or 0 <= index < rows) else 0
