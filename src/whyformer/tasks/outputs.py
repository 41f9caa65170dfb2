"""Outputs: the numbers that a model can be asked about, and which of them a target means."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

import torch
from torch import Tensor

from whyformer.errors import BadOption, nearest, shown
from whyformer.tasks.labels import NUMBER, indices_of, numbered

Task = Literal["classes", "answer", "token"]
Choice = int | str | tuple[int | None, int | None]
Target = Choice | Sequence[Choice] | Tensor | None

ANSWER_LENGTH = 30  # a predicted answer is no longer; as in transformers' own pipeline
LARGEST = 2**63 - 1  # a whole number that a tensor can hold


@dataclass(frozen=True)
class Outputs:
    """A model's logits, in the graph, and how a target chooses among them.

    | task | logits | a target is |
    |---|---|---|
    | `"classes"` | [batch, classes] | a class, by index or name |
    | `"answer"` | [batch, 2, units]: where the answer starts and ends | `(start, end)`; either may be None |
    | `"token"` | [batch, units, vocabulary] | a vocabulary id at the last real position, or `(id, position)` |

    A tuple is one target, a list holds one for each example.
    """

    logits: Tensor
    task: Task
    attended: Tensor  # [batch, units]: what is no padding
    labels: tuple[str, ...] = ()
    causal: bool = True  # whether the last position is the one that speaks

    @property
    def predicted(self) -> Tensor:
        """The predicted targets, as `chosen` gives them."""
        if self.task == "classes":
            return self.logits.detach().argmax(-1)
        if self.task == "token":
            positions = self._last()
            rows = self.logits.detach()[torch.arange(len(positions), device=positions.device), positions]
            return torch.stack((rows.argmax(-1), positions), 1)
        return self._best_answers()

    def chosen(self, target: Target) -> Tensor:
        """A target for each example: [batch] for classes, [batch, 2] otherwise, with -1 for a part left out."""
        given = plain_target(target)
        if given is None:
            return self.predicted
        batch = len(self.logits)
        if self.task == "classes":
            given = list(given) if isinstance(given, tuple) else given
        elif isinstance(given, list) and len(given) == 2 and self.task == "answer" and not _nested(given):
            given = tuple(given)
        each = given if isinstance(given, list) else [given] * batch
        if len(each) != batch:
            raise BadOption(f"{len(each)} targets for {batch} examples: give one, or one for each")
        choose = {"classes": self._class, "answer": self._answer, "token": self._token}[self.task]
        chosen = torch.tensor([choose(one, row) for row, one in enumerate(each)], device=self.logits.device)
        if self.task == "answer" and bool((chosen < 0).any(0).ne((chosen < 0).all(0)).any()):
            raise BadOption(f"targets {shown(target)}: leave out the same part, start or end, of every example")
        return chosen

    def set_against(self, chosen: Tensor, versus: Target) -> Tensor:
        """What the chosen outputs are set against, in the same form: of every example another output."""
        against = self.chosen(versus)
        if self.task == "answer" and not torch.equal(against < 0, chosen < 0):
            raise BadOption("target and versus: give the same parts of an answer, start, end, or both")
        same = (against == chosen).reshape(len(chosen), -1).all(1).nonzero().flatten().tolist()
        if same:
            output: Any = chosen[same[0]].tolist()
            name = self.labels[output] if self.task == "classes" and output < len(self.labels) else output
            example = f" of example {same[0]}" if len(chosen) > 1 else ""
            raise BadOption(
                f"target and versus{example} are the same, {name}, so there is nothing to explain: give another, "
                "or leave versus out"
            )
        return against

    def parts(self, chosen: Tensor) -> list[Tensor]:
        """The explained numbers, each [batch] as an index of the flattened logits; an answer has two."""
        if self.task == "classes":
            return [chosen]
        if self.task == "token":
            return [chosen[:, 1] * self.logits.shape[-1] + chosen[:, 0]]
        units = self.logits.shape[-1]
        return [chosen[:, n] + n * units for n in range(2) if bool((chosen[:, n] >= 0).all())]

    def _class(self, target: Any, row: int) -> int:
        return class_index(target, self.labels, self.logits.shape[-1])

    def _answer(self, target: Any, row: int) -> tuple[int, int]:
        if not isinstance(target, tuple) or len(target) != 2 or all(p in (None, -1) for p in target):
            raise BadOption(f"target {shown(target)}: the answer of a question is given as (start, end), in tokens")
        return tuple(-1 if p in (None, -1) else self._position(p, target, row) for p in target)  # type: ignore[return-value]

    def _token(self, target: Any, row: int) -> tuple[int, int]:
        vocabulary = self.logits.shape[-1]
        index, position = target if isinstance(target, tuple) and len(target) == 2 else (target, None)
        if not isinstance(index, int) or not 0 <= index < vocabulary:
            raise BadOption(f"target {shown(target)} is no output of this model: give an id of 0 … {vocabulary - 1}")
        return index, int(self._last()[row]) if position is None else self._position(position, target, row)

    def _position(self, position: Any, target: Any, row: int) -> int:
        units = self.attended.shape[1]
        if not isinstance(position, int) or not 0 <= position < units:
            raise BadOption(f"target {shown(target)}: positions are 0 … {units - 1}")
        if not bool(self.attended[row, position]):
            raise BadOption(f"target {shown(target)}: position {position} of example {row} is padding")
        return position

    def _last(self) -> Tensor:
        """The last real position of each example, [batch]."""
        if not self.causal:
            raise BadOption("this model gives outputs at every position: give a target (index, position)")
        places = torch.arange(self.attended.shape[1], device=self.attended.device)
        return (self.attended * (places + 1)).argmax(1)

    def _best_answers(self) -> Tensor:
        """The best span that ends where it starts or later, and is no longer than `ANSWER_LENGTH`."""
        blocked = torch.finfo(self.logits.dtype).min
        start, end = self.logits.detach().masked_fill(~self.attended[:, None], blocked).unbind(1)
        both = start[:, :, None] + end[:, None, :]
        places = torch.arange(start.shape[1], device=start.device)
        length = places[None, :] - places[:, None]
        both = both.masked_fill((length < 0) | (length >= ANSWER_LENGTH), -torch.inf)
        best = both.flatten(1).argmax(1)
        return torch.stack((best // start.shape[1], best % start.shape[1]), 1)


def plain_target(target: Target) -> Any:
    """A target given as any kind of number, array or sequence, as plain numbers, names, tuples and lists."""
    if target is None or isinstance(target, str):
        return target
    given: Any = target
    if hasattr(given, "tolist"):  # of torch and numpy
        listed = given.tolist()
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
    if isinstance(target, bool) or not isinstance(target, SupportsIndex) or abs(target.__index__()) > LARGEST:
        raise BadOption(f"target {shown(target)} is no output of a model: give a name or a whole number")
    return target.__index__()


def _nested(given: list[Any]) -> bool:
    return any(isinstance(g, (tuple, list)) for g in given)


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
