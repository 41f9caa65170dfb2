"""The exceptions that this package raises.

WhyformerError
 ├─ UnsupportedModel          the model cannot be explained
 │   ├─ UncoveredOperation    it calls a function that has no rule
 │   └─ NoAttention           it computes no attention that could be seen
 ├─ BadInput                  there is something wrong with the text or tensors
 ├─ BadOption                 a method, target, label or option that does not exist
 └─ MissingExtra              an optional package is not installed

A message says what was asked, what was found, and what to do. Two warnings: `TruncationWarning` tells how many tokens
did not fit into the model's window, `UnknownWordsWarning` that the tokenizer does not know many of the words.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from heapq import nsmallest

LISTED = 40  # as many names are listed in full
CLOSEST = 8  # of more names, so many are listed
COMPARED = 2000  # more names are not compared letter by letter
LONGEST = 80  # characters that are shown of a name or value


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


class UnknownWordsWarning(UserWarning):
    """Many words of a text are unknown to the model's tokenizer."""


def shown(value: object, longest: int = LONGEST) -> str:
    """A value for a message: as it is written in Python, cut where that is long."""
    try:
        text = repr(value[: longest + 1] if isinstance(value, str | bytes) else value)
    except ValueError:  # Python does not write numbers of more than 4,300 digits
        text = f"({type(value).__name__}, too long to be written)"
    return text if len(text) <= longest + 2 else f"{text[:longest]}…"


def listed(names: Sequence[str], most: int = LISTED) -> str:
    """Names for a message; of very many the first few, and how many more there are."""
    count = len(names) if len(names) <= most else CLOSEST
    some = ", ".join(name if len(name) <= LONGEST else f"{name[:LONGEST]}…" for name in names[:count])
    return some + (f", … and {len(names) - count:,} more" if len(names) > count else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """The sentence that helps someone who mistyped a name: the nearest known one, then all, or the nearest ones."""
    names, wanted = sorted(set(known)), name[:LONGEST].casefold()
    compared = names if len(names) <= COMPARED else nsmallest(COMPARED, names, key=lambda each: -_shared(each, wanted))
    folded = {each.casefold(): each for each in compared}
    close = [folded[each] for each in get_close_matches(wanted, folded, n=CLOSEST)]
    if len(names) > LISTED:
        first = [*close, *(each for each in compared if each not in close)][:CLOSEST]
        names = [*first, *set(names).difference(first)]
    hint = f"did you mean {shown(close[0])}? " if close else ""
    return f"{hint}known: {listed(names) or 'none'}"


def _shared(name: str, wanted: str) -> int:
    """How many letters two names have in common at their beginning."""
    pairs = enumerate(zip(name.casefold(), wanted, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(name), len(wanted)))
