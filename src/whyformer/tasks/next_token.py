"""The next token of a causal language model."""

from dataclasses import dataclass

from whyformer.tasks.targets import OutputPosition
from whyformer.tasks.task import Asked, ExampleOutputs, ModelOutputs, register
from whyformer.tasks.token_classification import position_of
from whyformer.tasks.vocabulary import Vocabulary, quoted


@register
@dataclass(frozen=True)
class NextToken(Vocabulary):
    """The token that comes next: behind the last one, or behind that at `position`.

    A target is a token, by its text or id. In ready tensors it is an id, or `(id, position)`.
    """

    name, head, gives = "next_token", "CausalLM", "the logits of the next token"
    does, takes = "tells which token comes next", frozenset({"position"})
    causal = True

    def spoken_at(self, outputs: ModelOutputs, row: int) -> int:
        """The last position that is no padding."""
        return int(outputs.attended[row].nonzero().max())

    def log_odds_by_default(self, classes: int) -> bool:
        """Always: a logit that rises with all others makes no token more probable."""
        return self.log_odds_misfit(classes) is None

    def places(self, of: ExampleOutputs, asked: Asked) -> list[int]:
        """The last token, or the one behind which the next is explained."""
        return [len(of.example.units) - 1 if asked.position is None else position_of(of, asked.position)]

    def follows_a_word(self, position: int, of: ExampleOutputs) -> bool:
        """Whether the token stands behind a word: always, unless the text ends with a space there."""
        unit = of.example.units[position]
        if unit.span is None or unit.part is None:
            return False
        text, last = of.example.texts[unit.part], position == len(of.example.units) - 1
        return not last or not text[-1].isspace()

    def place_of(self, position: int, of: ExampleOutputs) -> OutputPosition:
        """Where the token that follows stands; behind the end of the text nothing does."""
        units = of.example.units
        follows = units[position + 1] if position + 1 < len(units) else None
        return OutputPosition(position) if follows is None else OutputPosition(position, follows.part, follows.span)

    def title_of(self, name: str, position: int, of: ExampleOutputs, *, alone: bool) -> str:
        """The token in quotes, because a space in front of it counts."""
        if alone:
            return quoted(name)
        units = of.example.units
        behind = f" after {quoted(units[position].text)}" if position < len(units) - 1 else ""
        return f"next token {quoted(name)}{behind}"
