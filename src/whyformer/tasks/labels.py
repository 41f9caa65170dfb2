"""Labels: which of a model's classes a name means, for targets and for the labels of data alike."""

import re
from collections.abc import Sequence
from typing import Any

from whyformer.errors import BadOption, listed, nearest, shown

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
