"""The exceptions that this package raises.

WhyformerError
 ├─ UnsupportedModel          the model cannot be explained
 │   ├─ UncoveredOperation    it calls a function that has no rule
 │   └─ NoAttention           it computes no attention that could be seen
 ├─ BadInput                  there is something wrong with the text or tensors
 ├─ BadOption                 a method, target, label or option that does not exist
 └─ MissingExtra              an optional package is not installed

A message says what was asked, what was found, and what to do. What is worth knowing but not wrong is a warning:

WhyformerWarning
 └─ TruncationWarning         tokens did not fit into the model's window
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from reprlib import Repr

_LONGEST_QUOTE = 80  # characters
_LONGEST_REASON = 300
_FIRST_FEW = 10


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


class WhyformerWarning(UserWarning):
    """Any warning that this package gives; the command line shows them all."""


class TruncationWarning(WhyformerWarning):
    """Some tokens did not fit into the model's window and were dropped."""


def shown(value: object, longest: int = _LONGEST_QUOTE) -> str:
    """A value as messages show it: on one line, and short, however long or deep it is."""
    short = Repr()
    short.maxstring = short.maxother = short.maxlong = longest
    try:
        text = short.repr(value)
    except ValueError:  # Python writes no whole number of more than some thousand digits
        return f"a number of {value.bit_length():,} bits" if isinstance(value, int) else type(value).__name__
    text = " ".join(text.split()) if "\n" in text else text  # of objects that write themselves on several lines
    return text if len(text) <= longest + 2 else f"{text[:longest]}…"


def reason_of(error: Exception) -> str:
    """What another library says is wrong, in one line, and the kind of its error."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{first[:_LONGEST_REASON]} ({type(error).__name__})" if first else type(error).__name__


def listed(names: Sequence[object]) -> str:
    """Names for a message, each on one line and short; of many the first few, and how many more there are."""
    first = [" ".join(str(name).split()) for name in names[:_FIRST_FEW]]
    short = [name if len(name) <= _LONGEST_QUOTE else f"{name[:_LONGEST_QUOTE]}…" for name in first]
    return ", ".join(short) + (f", … and {len(names) - _FIRST_FEW:,} more" if len(names) > _FIRST_FEW else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """The sentence that helps someone who mistyped a name: the nearest known one, then all of them."""
    names = sorted(known)
    folded = {known_name.casefold(): known_name for known_name in names}
    close = get_close_matches(name.casefold(), folded, n=1)
    hint = f"did you mean {folded[close[0]]!r}? " if close else ""
    return f"{hint}known: {', '.join(names) or 'none'}"
