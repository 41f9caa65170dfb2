"""Parsed sentences, and which of a tokenizer's tokens make up each of their words."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from whyformer.errors import BadInput, shown
from whyformer.inputs.units import Span, Unit
from whyformer.methods.head_mask import RELATIONS

_SAME = {"obj": "dobj"}
_PASSIVE = {"nsubjpass": "nsubj"}


@dataclass(frozen=True)
class Sentence:
    """A text with its words, in order, and the relations between them.

    `words` are spans of the text; words that are written as one (Spanish "del" = de + el) share theirs. A relation
    is (dependent, head, label): two indices of words, and the label as the parse has it. The root has none.
    """

    text: str
    words: tuple[Span, ...]
    relations: tuple[tuple[int, int, str], ...]

    def __post_init__(self) -> None:
        count = len(self.words)
        if any(not 0 <= start < end <= len(self.text) for start, end in self.words):
            raise BadInput(f"a word lies outside its text {shown(self.text)}: {shown(self.words)}")
        if any(not (0 <= d < count and 0 <= h < count and d != h) for d, h, _ in self.relations):
            wrong = f"a relation is not between two of the {count} words of {shown(self.text)}"
            raise BadInput(f"{wrong}: {shown(self.relations)}")


@dataclass(frozen=True)
class Arc:
    """A relation between two words that the model reads as different ones.

    `dependent` and `head` number joined words, `offset` is the dependent's place counted from its head in words of
    the parse, `relation` an index into `RELATIONS`.
    """

    dependent: int
    head: int
    offset: int
    relation: int


@dataclass(frozen=True)
class Aligned:
    """For each token the number of the joined word that it belongs to, or -1; the arcs that can be asked about."""

    words: tuple[int, ...]
    arcs: tuple[Arc, ...]
    lost: int  # arcs of which a word has no token, or whose two words share one


def relation_of(label: str, *, subtypes: bool = False) -> str | None:
    """Which of `RELATIONS` a label stands for: `obj` is `dobj`; `nsubj:pass` is `nsubj` only with `subtypes`."""
    if subtypes:
        label = label.partition(":")[0]
        label = _PASSIVE.get(label, label)
    label = _SAME.get(label, label)
    return label if label in RELATIONS else None


def align(sentence: Sentence, units: Sequence[Unit], *, subtypes: bool = False) -> Aligned:
    """Join tokens into the words of the parse: a token belongs to the word that it overlaps in the text.

    Words that share a token are one for the model, so they get one number. A word without tokens (cut off, or dropped
    by the tokenizer) gets none, and no arc to or from it can be asked about.
    """
    touched = _touched(sentence.words, units)
    leader = list(range(len(sentence.words)))
    for words in touched:
        for word in words[1:]:
            leader[_led(leader, word)] = _led(leader, words[0])
    seen = sorted({_led(leader, word) for words in touched for word in words})
    number = {word: n for n, word in enumerate(seen)}
    joined = [number.get(_led(leader, word), -1) for word in range(len(sentence.words))]
    arcs, lost = [], 0
    for dependent, head, label in sentence.relations:
        relation = relation_of(label, subtypes=subtypes)
        if relation is None:
            continue
        if joined[dependent] == joined[head] or -1 in (joined[dependent], joined[head]):
            lost += 1
        else:
            arcs.append(Arc(joined[dependent], joined[head], dependent - head, RELATIONS.index(relation)))
    return Aligned(tuple(joined[words[0]] if words else -1 for words in touched), tuple(arcs), lost)


def _touched(words: Sequence[Span], units: Sequence[Unit]) -> list[list[int]]:
    """For each token the words that it overlaps."""
    order = sorted(range(len(words)), key=lambda n: words[n])
    starts, ends = [words[n][0] for n in order], [words[n][1] for n in order]
    spans = [None if unit.special else unit.span for unit in units]
    return [order[bisect_right(ends, span[0]) : bisect_left(starts, span[1])] if span else [] for span in spans]


def _led(leader: list[int], word: int) -> int:
    while leader[word] != word:
        word = leader[word]
    return word
