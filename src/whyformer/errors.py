"""The exceptions that this package raises.

WhyformerError
 ├─ UnsupportedModel          the model cannot be explained
 │   ├─ UncoveredOperation    it calls a function that has no rule
 │   └─ NoAttention           it computes no attention that could be seen
 ├─ BadInput                  there is something wrong with the text or tensors
 ├─ BadOption                 a method, target, label or option that does not exist
 └─ MissingExtra              an optional package is not installed

A message says what was asked, what was found, and what to do. Two warnings: `TruncationWarning` tells how many
tokens did not fit into the model's window, `RandomnessWarning` that a model says something else each time it is run.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class WhyformerError(Exception):
    """Any error that this package raises on purpose."""


class UnsupportedModel(WhyformerError):
    """The model cannot be explained, or not by this method."""


class UncoveredOperation(UnsupportedModel):
    """The model calls a differentiable function for which the rule book has no rule."""


class NoAttention(UnsupportedModel):
    """The model was run, and no attention was seen."""


class BadInput(WhyformerError):
    """The text or the tensors to be explained cannot be used."""


class BadOption(WhyformerError):
    """A method, target, label or option that does not exist, or a value that it does not take."""


class MissingExtra(WhyformerError):
    """An optional package is needed and not installed."""


class TruncationWarning(UserWarning):
    """Some tokens did not fit into the model's window and were dropped."""


class RandomnessWarning(UserWarning):
    """The model draws random numbers in eval mode, so its explanations differ from run to run."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The sentence that helps someone who mistyped a name: the nearest known one, then all of them."""
    names = sorted(known)
    folded = {known_name.casefold(): known_name for known_name in names}
    close = get_close_matches(name.casefold(), folded, n=1)
    hint = f"did you mean {folded[close[0]]!r}? " if close else ""
    return f"{hint}known: {', '.join(names) or 'none'}"
