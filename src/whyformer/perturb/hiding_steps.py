"""What was seen of a model while units of one input were hidden step by step."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Seen:
    """What a model said of one input after each step of hiding; step 0 is the whole input.

    `hidden_in` is the step in which each position was hidden, 0 for those that never were. `outputs` is the explained
    output after each step, and `probabilities` those of all classes, of a model that gives some; None for a step that
    was skipped. `target` is the explained class.
    """

    hide: str
    hidden_in: tuple[int, ...]
    outputs: tuple[float | None, ...]
    probabilities: tuple[tuple[float, ...] | None, ...] | None = None
    target: int | None = None

    def cut(self, length: int) -> "Seen":
        """What was seen, without the padding of the batch that stands behind the input."""
        return replace(self, hidden_in=self.hidden_in[:length])

    @property
    def probability(self) -> tuple[float | None, ...] | None:
        """The probability of the explained class after each step."""
        if self.probabilities is None or self.target is None:
            return None
        return tuple(None if shares is None else shares[self.target] for shares in self.probabilities)
