"""Tokens: outputs at every position, of which one at one position is explained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import BadOption, shown
from whyformer.tasks.answers import position_in
from whyformer.tasks.label import Label, Predicted
from whyformer.tasks.task import Chosen, ExampleOutputs, Outputs, Task, register


@register
@dataclass(frozen=True)
class Tokens(Task):
    """An output at a position. Logits are [batch, units, outputs], a target is `(output, position)`.

    Models of tasks that are not known by name have this one; it has no words for people.
    """

    name, gives = "token", "logits at every position"
    does = "gives outputs at every position"
    form = "token"

    def logits(self, output: Any) -> Tensor | None:
        """Logits [batch, units, outputs]."""
        logits = getattr(output, "logits", None)
        return logits if isinstance(logits, Tensor) and logits.dim() == 3 else None

    def spoken_at(self, outputs: Outputs, row: int) -> int:
        """The position that is meant if none is given."""
        raise BadOption("this model gives outputs at every position: give a target (index, position)")

    def best(self, outputs: Outputs) -> Tensor:
        """The output with the highest logit at the position that is meant."""
        rows = range(len(outputs.logits))
        positions = torch.tensor([self.spoken_at(outputs, row) for row in rows], device=outputs.logits.device)
        return torch.stack((outputs.logits.detach()[list(rows), positions].argmax(-1), positions), 1)

    def parsed(self, target: Any, outputs: Outputs, row: int) -> tuple[int, int]:
        """An output and its position."""
        name, position = target if isinstance(target, tuple) and len(target) == 2 else (target, None)
        index = self.index_of(name, outputs.logits.shape[-1], target)
        place = self.spoken_at(outputs, row) if position is None else position_in(outputs, position, target, row)
        return index, place

    def index_of(self, name: Any, count: int, target: Any) -> int:
        """The output that a name means: by default its index."""
        if not isinstance(name, int) or not 0 <= name < count:
            raise BadOption(f"target {shown(target)} is no output of this model: give an id of 0 … {count - 1}")
        return name

    def runners_up(self, outputs: Outputs, chosen: Tensor) -> Tensor:
        """The output with the highest logit but one at the same position."""
        rows = outputs.logits.detach()[torch.arange(len(chosen), device=chosen.device), chosen[:, 1]]
        others = rows.scatter(1, chosen[:, :1], -torch.inf).argmax(-1)
        return torch.stack((others, chosen[:, 1]), 1)

    def parts(self, logits: Tensor, chosen: Tensor) -> list[Tensor]:
        """The logit of the output at its position."""
        return [chosen[:, 1] * logits.shape[-1] + chosen[:, 0]]

    def positions(self, chosen: Tensor) -> Tensor:
        """The one position."""
        return chosen[:, 1:]

    def moved(self, chosen: Tensor, places: Sequence[Mapping[int, int]]) -> Tensor:
        """The same output where the position stands now."""
        rows = [[index, new[p]] for (index, p), new in zip(chosen.tolist(), places, strict=True)]
        return torch.tensor(rows, device=chosen.device)

    def read_by(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """The logits of the position."""
        return logits[torch.arange(len(chosen), device=chosen.device), chosen[:, 1]]

    def probabilities(self, logits: Tensor) -> Tensor | None:
        """Softmax over the outputs of a position."""
        return logits.double().softmax(-1)

    def any_in(self, of: ExampleOutputs) -> tuple[int, int]:
        """The first output at the first position."""
        return 0, 0

    def label(self, of: ExampleOutputs, chosen: Chosen, beside: Chosen | None = None) -> Label:
        """Outputs without a name are explained from tensors alone."""
        raise BadOption(f"{self.gives} have no names: explain them from tensors, with whyformer.attribute")

    def predicted(self, of: ExampleOutputs, chosen: Chosen, versus: Chosen | None) -> Predicted:
        """Outputs without a name are explained from tensors alone."""
        raise BadOption(f"{self.gives} have no names: explain them from tensors, with whyformer.attribute")
