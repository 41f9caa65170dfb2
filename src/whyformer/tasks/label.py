"""What people read of a prediction: the name of what was predicted, and the numbers behind it."""

from dataclasses import dataclass

from whyformer.inputs.units import Span


@dataclass(frozen=True)
class AnswerSpan:
    """Where an answer stands: its first and last token, and its characters in the context.

    Tokens are counted as the model sees them, special ones included. No answer has no characters.
    """

    tokens: tuple[int, int]
    characters: Span | None


@dataclass(frozen=True)
class Label:
    """What is explained: a class of the model by its index, or an answer (`name` is its text) by its span."""

    index: int | None
    name: str
    span: AnswerSpan | None = None


@dataclass(frozen=True)
class Predicted:
    """What the model said, how sure it was, and the outputs behind it.

    The outputs are those of all classes. `probability` and `probabilities` are None for a regression model. An answer
    has a `span` and no index; its outputs are two, labelled `start` and `end`: the logit of each where the answer has
    it, the probability among all tokens, and `probability` is their product.
    """

    label: str
    index: int | None
    probability: float | None
    logits: tuple[float, ...]
    probabilities: tuple[float, ...] | None
    labels: tuple[str, ...]
    span: AnswerSpan | None = None
