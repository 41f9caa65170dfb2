"""Targets: how the output to be explained is written, before a task says which of its numbers that is."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, SupportsIndex

from torch import Tensor

from whyformer.errors import BadOption, shown

Choice = int | str | tuple[int | str | None, ...]


@dataclass(frozen=True)
class Settled:
    """Targets that were looked at before, as `Outputs.chosen` gives them: a device need not wait for another look."""

    numbers: Tensor


Target = Choice | Sequence[Choice] | Tensor | Settled | None

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
