"""LmHead: from hidden states to logits, a slice of the vocabulary at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

AT_ONCE = 2**22  # logits in one slice

Step = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LmHead:
    """Turns hidden states into logits of the vocabulary.

    `steps` come before the decoder. A final norm of the body is among them, so that any layer is read as the last one.
    Numbers are computed in the precision of the states that are given; the weights stay as they are.
    """

    name: str
    width: int  # of the hidden states
    steps: tuple[Step, ...]
    weight: Tensor  # [vocabulary, width of the decoder]
    bias: Tensor | None  # [vocabulary]

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows."""
        return self.weight.shape[0]

    def states(self, hidden: Tensor) -> Tensor:
        """What the decoder is given, [..., width of the decoder]."""
        parameters = [p for step in self.steps if isinstance(step, nn.Module) for p in step.parameters()]
        states = hidden.to(parameters[0]) if parameters else hidden
        for step in self.steps:
            states = step(states)
        return states.to(self.weight.device, hidden.dtype)

    def logits(self, states: Tensor, tokens: slice = slice(None)) -> Tensor:
        """The logits of some tokens at each position, [positions, tokens]; of all by default."""
        weight = self.weight[tokens].to(states.dtype)
        if self.bias is None:
            return states @ weight.mT
        return torch.addmm(self.bias[tokens].to(states.dtype), states, weight.mT)

    def of_tokens(self, states: Tensor, tokens: Tensor) -> Tensor:
        """The logits of each example's own tokens [batch, tokens] at its positions, [batch, tokens, units]."""
        logits = self.weight[tokens].to(states.dtype) @ states.mT
        return logits if self.bias is None else logits + self.bias[tokens].to(states.dtype)[..., None]

    def log_normaliser(self, states: Tensor) -> Tensor:
        """`log Σ exp(logits)` over the whole vocabulary at each position, [positions]."""
        total = states.new_full(states.shape[:1], float("-inf"))
        for tokens in self._slices(len(states)):
            total = torch.logaddexp(total, self._log_sum(states, tokens))
        return total

    def most_likely(self, states: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The most likely tokens at each position and their logits, both [positions, count], best first."""
        values = states.new_full((len(states), count), float("-inf"))
        tokens = torch.full_like(values, -1, dtype=torch.long)
        for part in self._slices(len(states)):
            highest, places = self.logits(states, part).topk(min(count, part.stop - part.start))
            values, order = torch.cat((values, highest), 1).topk(count)
            tokens = torch.cat((tokens, places + part.start), 1).gather(1, order)
        return tokens, values

    def _log_sum(self, states: Tensor, tokens: slice) -> Tensor:
        """In place, so that no second slice is in memory."""
        logits = self.logits(states, tokens)
        peak = logits.amax(-1, keepdim=True)
        return logits.sub_(peak).exp_().sum(-1).log_() + peak.squeeze(-1)

    def _slices(self, positions: int) -> Iterator[slice]:
        size = max(1, AT_ONCE // max(1, positions))
        for start in range(0, self.vocabulary, size):
            yield slice(start, min(start + size, self.vocabulary))
