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
class Place:
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
    place: Place | None = None
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
    place: Place | None = None
    title: str | None = None
    indices: tuple[int, ...] | None = None
