"""Targets: how an output is written before a task finds its numbers, and the labels that people read."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, SupportsIndex

from torch import Tensor

from whyformer.errors import BadOption, listed, nearest, shown
from whyformer.inputs.units import Span

SingleTarget = int | str | tuple[int | str | None, ...]


@dataclass(frozen=True)
class Settled:
    """Targets that were looked at before, by `ModelOutputs.chosen`: a device need not wait for another look."""

    numbers: Tensor


Target = SingleTarget | Sequence[SingleTarget] | Tensor | Settled | None

LARGEST = 2**63 - 1  # a whole number that a tensor can hold


def plain_target(target: Target) -> Any:
    """A target given as any kind of number, array or sequence, as plain numbers, names, tuples and lists."""
    if target is None or isinstance(target, str):
        return target
    if hasattr(target, "tolist") and not isinstance(target, type):  # of torch and numpy
        listed = target.tolist()
        if isinstance(listed, list):
            return [tuple(t) if isinstance(t, list) else _plain_number(t) for t in listed]
        return _plain_number(listed)
    if isinstance(target, Iterable) and not isinstance(target, Mapping | Set | bytes):
        plain = [plain_target(t) for t in target]
        return tuple(plain) if isinstance(target, tuple) else plain
    return _plain_number(target)


def _plain_number(target: Any) -> int | str:
    if isinstance(target, str):
        return target
    if isinstance(target, bool | type) or not isinstance(target, SupportsIndex) or abs(target.__index__()) > LARGEST:
        raise BadOption(f"target {shown(target)} is no output of a model: give a name or a whole number")
    return target.__index__()


@dataclass(frozen=True)
class AnswerSpan:
    """Where an answer stands: its first and last token, and its characters in the context.

    Tokens are counted as the model sees them, special ones included. No answer has no characters.
    """

    tokens: tuple[int, int]
    characters: Span | None


@dataclass(frozen=True)
class OutputPosition:
    """Where an output is said: at which token, special ones counted; for which characters of the text number `part`.

    A next token has the characters of the token that follows, and none behind the end of the text.
    """

    token: int
    part: int | None = None
    characters: Span | None = None


@dataclass(frozen=True)
class Label:
    """What is explained: an output of the model by its index, or an answer (`name` is its text) by its span.

    An output that is said at a token has a `place`, and a `title`: its name with where it stands (`Paris → B-LOC`).
    """

    index: int | None
    name: str
    span: AnswerSpan | None = None
    place: OutputPosition | None = None
    title: str | None = None


@dataclass(frozen=True)
class Predicted:
    """What the model said, how sure it was, and the outputs behind it.

    The outputs are those of all classes. `probability` and `probabilities` are None for a regression model. An answer
    has a `span` and no index; its outputs are two, labelled `start` and `end`: the logit of each where the answer has
    it, the probability among all tokens, and `probability` is their product. What is said at a token has a `place` and
    a `title`. Of a whole vocabulary only the likeliest outputs are kept, and those that are explained: `indices` says
    which.
    """

    label: str
    index: int | None
    probability: float | None
    logits: tuple[float, ...]
    probabilities: tuple[float, ...] | None
    labels: tuple[str, ...]
    span: AnswerSpan | None = None
    place: OutputPosition | None = None
    title: str | None = None
    indices: tuple[int, ...] | None = None


SHORTEST_BEGINNING = 3  # letters of a label's beginning that stand for the whole
NUMBER = re.compile(r"\s*[-+]?\d+(\.\d*)?\s*", re.ASCII)
_INDEX = re.compile(r"\s*0*(\d{1,18})\s*", re.ASCII)


def indices_of(name: str, labels: Sequence[str]) -> list[int]:
    """The indices of the classes that a name means: one, or none, or several where the name is not clear.

    A name is found as it is written, else without regard to capitals, else also without punctuation (`Sci/Tech` is
    `Sci-Tech`), else as the beginning of a label (`NEG` is `NEGATIVE`). A number that is no name is an index.
    """
    exact = [i for i, label in enumerate(labels) if label == name]
    alike = exact or [i for i, label in enumerate(labels) if label.casefold() == name.casefold()]
    if alike:
        return alike
    if NUMBER.fullmatch(name):
        index = _INDEX.fullmatch(name)
        return [int(index[1])] if index and int(index[1]) < len(labels) else []
    wanted, plain = _plain(name), [_plain(label) for label in labels]
    if same := [i for i, label in enumerate(plain) if wanted and label == wanted]:
        return same
    return [i for i, label in enumerate(plain) if label.startswith(wanted) and len(wanted) >= SHORTEST_BEGINNING]


def numbered(labels: Sequence[str], indices: Sequence[int] | None = None) -> str:
    """Classes for a message: `0 = NEGATIVE, 1 = POSITIVE`."""
    return listed([f"{i} = {labels[i]}" for i in (range(len(labels)) if indices is None else indices)])


def class_index(target: Any, labels: Sequence[str], classes: int) -> int:
    """The index of a class given by name, as `indices_of` finds it, or by index."""
    names = list(labels) if len(labels) == classes else [str(i) for i in range(classes)]
    if isinstance(target, str):
        indices = indices_of(target, names)
        if not indices and NUMBER.fullmatch(target):
            raise BadOption(f"target {shown(target)[1:-1]} is no class of this model; it has {numbered(names)}")
        if not indices:
            raise BadOption(f"target {shown(target)} is no label of this model; {nearest(target, names)}")
        if len(indices) > 1:
            raise BadOption(f"target {shown(target)} may be any of {numbered(names, indices)}: give the index")
        return indices[0]
    if not isinstance(target, int):
        raise BadOption(f"target {shown(target)} is no class: give its name or its index")
    if not 0 <= target < classes:
        raise BadOption(f"target {target} is no class of this model; it has {numbered(names)}")
    return target


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
