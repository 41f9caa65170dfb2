"""The next token of a causal language model."""

from dataclasses import dataclass

from whyformer.tasks.task import Outputs, register
from whyformer.tasks.tokens import Tokens


@register
@dataclass(frozen=True)
class NextToken(Tokens):
    """The token that comes next. A target is a token of the vocabulary, after the last one or `(token, position)`."""

    name, head, gives = "next_token", "CausalLM", "the logits of the next token"
    does = "tells which token comes next"
    causal = True

    def spoken_at(self, outputs: Outputs, row: int) -> int:
        """The last position that is no padding."""
        return int(outputs.attended[row].nonzero().max())
