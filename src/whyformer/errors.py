"""The exceptions that this package raises.

WhyformerError
 ├─ UnsupportedModel          the model cannot be explained
 │   ├─ UncoveredOperation    it calls a function that has no rule
 │   └─ NoAttention           it computes no attention that could be seen
 ├─ BadInput                  there is something wrong with the text or tensors
 │   └─ UnknownWord           a word that is not in the text; a KeyError too
 ├─ BadOption                 a method, target, label or option that does not exist
 ├─ TooLarge                  it would take more memory than there is; a MemoryError too
 └─ MissingExtra              an optional package is not installed

A message says what was asked, what was found, and what to do. What is worth knowing but not wrong is a warning:

WhyformerWarning
 ├─ TruncationWarning         tokens did not fit into the model's window
 ├─ UnknownWordsWarning       many words are unknown to the model's tokenizer
 ├─ CompletenessWarning       scores do not add up to what they should
 ├─ RandomnessWarning         the model gives another output each time it is run
 ├─ PaddingWarning            the model gives another output when a text is padded
 ├─ LabelWarning              labels of a table cannot be read
 ├─ AnimationWarning          of several frames of an image one is taken
 └─ PluginWarning             a plug-in cannot be loaded
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from heapq import nsmallest
from reprlib import Repr

LISTED = 40  # as many names are listed in full
FEW = 12  # beside a name that was mistyped
CLOSEST = 8  # of more names, so many are listed
PART = 3  # letters of a name that may be a part of a known one
COMPARED = 2000  # more names are not compared letter by letter
LONGEST = 80  # characters that are shown of a name or value
LONGEST_REASON = 300


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


class UnknownWord(BadInput, KeyError):
    """A word that is not in the text."""

    __str__ = Exception.__str__  # a KeyError shows its message in quotes


class BadOption(WhyformerError):
    """A method, target, label or option that does not exist, or a value that it does not take."""


class TooLarge(WhyformerError, MemoryError):
    """What was asked for would take more memory than is free; nothing was allocated for it."""


class MissingExtra(WhyformerError):
    """An optional package is needed and not installed."""


class WhyformerWarning(UserWarning):
    """Any warning that this package gives; the command line shows them all."""


class TruncationWarning(WhyformerWarning):
    """Some tokens did not fit into the model's window and were dropped."""


class UnknownWordsWarning(WhyformerWarning):
    """Many words of a text are unknown to the model's tokenizer."""


class CompletenessWarning(WhyformerWarning):
    """Scores that should add up to the difference of two outputs do not."""


class RandomnessWarning(WhyformerWarning):
    """The model draws random numbers in eval mode, so its explanations differ from run to run."""


class PaddingWarning(WhyformerWarning):
    """The model's output depends on padding, so texts of different lengths are run one at a time."""


class LabelWarning(WhyformerWarning):
    """Labels of a table cannot be read, and count as none."""


class AnimationWarning(WhyformerWarning):
    """An image has several frames or pages, and one of them is taken."""


class PluginWarning(WhyformerWarning):
    """A plug-in of another distribution could not be loaded, and is left out."""


def shown(value: object, longest: int = LONGEST) -> str:
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
    return f"{first[:LONGEST_REASON]} ({type(error).__name__})" if first else type(error).__name__


def listed(names: Sequence[object], most: int = LISTED) -> str:
    """Names for a message, each on one line and short; of very many the first few, and how many more there are."""
    first = [" ".join(str(name).split()) for name in names[:most]]
    short = [name if len(name) <= LONGEST else f"{name[:LONGEST]}…" for name in first]
    if len(names) > most or sum(map(len, short)) > LONGEST_REASON * 3:
        short = short[:CLOSEST]
    return ", ".join(short) + (f", … and {len(names) - len(short):,} more" if len(names) > len(short) else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """The sentence that helps someone who mistyped a name: the nearest known one, then all, or the nearest ones."""
    names, wanted = sorted(set(known)), name[:LONGEST].casefold()
    compared = names if len(names) <= COMPARED else nsmallest(COMPARED, names, key=lambda each: -_shared(each, wanted))
    folded = {each.casefold(): each for each in compared}
    close = [folded[each] for each in get_close_matches(wanted, folded, n=CLOSEST)]
    if not close and len(wanted) >= PART:
        close = [folded[each] for each in folded if wanted in each][:CLOSEST]
    if len(names) > FEW:
        first = [*close, *(each for each in compared if each not in close)][:CLOSEST]
        names = [*first, *set(names).difference(first)]
    hint = f"did you mean {shown(close[0])}? " if close else ""
    return f"{hint}known: {listed(names, FEW) or 'none'}"


def _shared(name: str, wanted: str) -> int:
    """How many letters two names have in common at their beginning."""
    pairs = enumerate(zip(name.casefold(), wanted, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(name), len(wanted)))
