"""The words that a model leans on: how often each is among the strongest of a text, and what speaks for a shortcut."""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

from whyformer.inputs.units import Span, Unit, join_words
from whyformer.results.checked import LITTLE
from whyformer.results.explanation import Array
from whyformer.storage.forms import (
    both,
    count,
    every,
    fields,
    flag,
    index,
    must,
    named,
    number,
    optional,
    span,
    text,
    whole,
)

WORDS = 20  # that are shown, checked and have examples
EXAMPLES = 5  # texts that are named for each of them
HELD = 500  # texts that are kept as examples while the others go by
STRONGEST = 3  # words of a text

LOOK_TEXTS = 5  # texts in which a word is among the strongest, at least, if it is to be looked at
LOOK_PART = 0.05  # of the texts of one class
LOOK_SHARE = 0.2  # of the explanation of a text, on average
LOOK_LIFT = 3.0  # times what an average word of these texts has
LOOK_EVERYWHERE = 0.9  # of the texts; a word that stands in more of them does not tell them apart

PARTS = ("first", "second")  # of a pair, where its columns have no names


class ScoredWord(NamedTuple):
    """A word of a text, where it stands, and its score."""

    text: str
    part: int | None
    span: Span | None
    score: float


@dataclass(frozen=True)
class ExplainedText:
    """A text with the scores of its words for the class that the model said."""

    row: int
    texts: tuple[str, ...]
    words: tuple[ScoredWord, ...]
    predicted: int
    probability: float | None = None
    gold: int | None = None
    signed: bool = True

    @property
    def is_wrong(self) -> bool:
        """Whether the model said another class than the gold one."""
        return self.gold is not None and self.gold != self.predicted


def scored_words(units: Sequence[Unit], texts: Sequence[str], scores: Array, ranks: bool) -> tuple[ScoredWord, ...]:
    """The words of a text with the sum of their tokens' scores; of mere ranks, the highest."""
    joined = [(unit, scores[members]) for unit, members in join_words(units, texts)]
    return tuple(ScoredWord(u.text, u.part, u.span, float(own.max() if ranks else own.sum())) for u, own in joined)


@dataclass(frozen=True)
class OfClass:
    """A word in the texts of one predicted class: how many these are, and the sum of its scores there."""

    texts: int
    strongest: int
    score: float

    @property
    def mean(self) -> float:
        """Its score in one of these texts."""
        return self.score / self.texts


@dataclass(frozen=True)
class Association:
    """How well a word tells the gold label by itself: the label that it speaks for most.

    `share` of the texts with the word have it, and `base` of all texts. `z` is how many standard errors these are
    apart, `(share − base) / sqrt(base (1 − base) / texts)` (Gardner et al. 2021).
    """

    label: int
    texts: int
    share: float
    base: float
    z: float


@dataclass(frozen=True)
class WordEffect:
    """What the model says without a word: means over some of the texts that hold it, of the class that it said."""

    texts: int
    before: float
    after: float
    log_odds: float  # how far those of the class fall: above 0, the word speaks for it


@dataclass(frozen=True)
class LeanWord:
    """A word (of one side of a pair) that the model leans on.

    It stands in `texts` texts, and is among the `STRONGEST` words of `strongest` of them. `share` is its part of the
    explanation, of all magnitudes in a text, on average; `lift` is how many times as much as an average word of these
    texts has. `reliance` is what words are ranked by: what it has more than its fair share, summed over the texts,
    times `log(all texts / its texts)`. `classes` has its texts and scores by predicted class. `look`: whether it is
    to be looked at, see `is_striking`. `rows` are the numbers of some texts that hold it, chosen at random.
    """

    word: str
    side: str | None
    texts: int
    strongest: int
    share: float
    lift: float
    reliance: float
    classes: Mapping[int, OfClass]
    rows: tuple[int, ...]
    label: Association | None = None
    effect: WordEffect | None = None
    look: bool = False

    @property
    def name(self) -> str:
        """The word, behind its side if it is of a pair."""
        return self.word if self.side is None else f"{self.side}: {self.word}"

    @property
    def leans_to(self) -> int:
        """The class among whose texts it is strong most often."""
        return max(self.classes, key=lambda index: (self.classes[index].strongest, self.classes[index].texts, -index))


@dataclass(frozen=True)
class Leaning:
    """The words that a model leans on, the ones that it leans on most first, with texts that hold them.

    `texts` counts the texts of each predicted class, `labels` those of each gold label, where they are known.
    """

    words: tuple[LeanWord, ...]
    texts: Mapping[int, int]
    labels: Mapping[int, int] = field(default_factory=dict)
    examples: Mapping[int, ExplainedText] = field(default_factory=dict)
    wrong: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "texts": {str(index): n for index, n in sorted(self.texts.items())},
            "labels": {str(index): n for index, n in sorted(self.labels.items())},
            "wrong": self.wrong,
            "words": [_plain(word) for word in self.words],
            "examples": [asdict(example) for example in self.examples.values()],
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """From data that was checked."""
        texts, labels = ({int(index): n for index, n in data[name].items()} for name in ("texts", "labels"))
        examples = {example["row"]: _example(example) for example in data["examples"]}
        return cls(tuple(map(_word, data["words"])), texts, labels, examples, data["wrong"])

    def with_effects(self, effects: Mapping[tuple[str | None, str], WordEffect]) -> Self:
        """With what the model says without some words, given by their sides and themselves."""
        words = (replace(word, effect=effects.get((word.side, word.word))) for word in self.words)
        judged = tuple(replace(word, look=is_striking(word, self.texts)) for word in words)
        return replace(self, words=judged)


def is_striking(word: LeanWord, texts: Mapping[int, int]) -> bool:
    """Whether a word is to be looked at.

    It is among the strongest words in at least one in twenty texts of a class (and in 5), takes a fifth of the
    explanation on average and three times its fair share, does not stand in nearly all texts, and, if that was checked,
    the class loses at least 0.1 log-odds without it.
    """
    often = any(of.strongest >= max(LOOK_TEXTS, LOOK_PART * texts[index]) for index, of in word.classes.items())
    large = word.share >= LOOK_SHARE and word.lift >= LOOK_LIFT
    tells = word.texts <= LOOK_EVERYWHERE * sum(texts.values())
    return often and large and tells and (word.effect is None or word.effect.log_odds >= LITTLE)


class _Sums:
    """One word while texts are counted."""

    __slots__ = ("classes", "fair", "golds", "rows", "share", "texts")

    def __init__(self) -> None:
        self.texts = 0
        self.share = self.fair = 0.0
        self.classes: dict[int, list[float]] = {}  # texts, strongest, score
        self.golds: dict[int, int] = {}
        self.rows: list[tuple[int, int]] = []  # a heap


class LeaningSums:
    """Counts words text by text. What is held grows with the number of words, not with that of the texts.

    With `wrong`, the texts count where the model is wrong; of the others the labels alone.
    """

    def __init__(self, sides: Sequence[str] = PARTS, *, wrong: bool = False, examples: int = EXAMPLES) -> None:
        self.sides, self.wrong, self.size = tuple(sides), wrong, examples
        self.texts: Counter[int] = Counter()
        self.labels: Counter[int] = Counter()
        self._words: defaultdict[tuple[str | None, str], _Sums] = defaultdict(_Sums)
        self._held: dict[int, ExplainedText] = {}
        self._order: list[tuple[int, int]] = []  # a heap of the rows that are held

    def add(self, text: ExplainedText) -> None:
        """Count the words of a text, each distinct one once."""
        scores: defaultdict[tuple[str | None, str], float] = defaultdict(float)
        for word in text.words:
            side = self.sides[word.part] if len(text.texts) > 1 and word.part is not None else None
            scores[side, word.text.lower()] += word.score
        if text.gold is not None:
            self.labels[text.gold] += 1
            for key in scores:
                golds = self._words[key].golds
                golds[text.gold] = golds.get(text.gold, 0) + 1
        if scores and (text.is_wrong or not self.wrong):
            self._count(text, scores)

    def _count(self, text: ExplainedText, scores: Mapping[tuple[str | None, str], float]) -> None:
        self.texts[text.predicted] += 1
        whole = math.fsum(map(abs, scores.values()))
        strongest = set(heapq.nlargest(STRONGEST, (key for key in scores if scores[key]), key=lambda k: abs(scores[k])))
        for key, score in scores.items():
            sums = self._words[key]
            sums.texts += 1
            sums.share += abs(score) / whole if whole else 0.0
            sums.fair += 1 / len(scores)
            of_class = sums.classes.setdefault(text.predicted, [0, 0, 0.0])
            for place, more in enumerate((1, key in strongest, score)):
                of_class[place] += more
            _sampled(sums.rows, text.row, self.size)
        self._held[text.row] = text
        if (gone := _sampled(self._order, text.row, HELD)) is not None:
            del self._held[gone]

    def leaning(self, words: int = WORDS) -> Leaning:
        """The words that were leant on most, and all that are to be looked at."""
        if not self.texts:
            return Leaning((), {}, dict(self.labels), wrong=self.wrong)
        counted = {key: sums for key, sums in self._words.items() if sums.texts}
        every = sorted((self._word(*key, sums) for key, sums in counted.items()), key=_most_first)
        shown = tuple(word for place, word in enumerate(every) if place < words or word.look)
        rows = sorted({row for word in shown for row in word.rows})
        examples = {row: self._held[row] for row in rows if row in self._held}
        return Leaning(shown, dict(self.texts), dict(self.labels), examples, self.wrong)

    def _word(self, side: str | None, word: str, sums: _Sums) -> LeanWord:
        classes = {i: OfClass(int(n), int(top), score) for i, (n, top, score) in sorted(sums.classes.items())}
        made = LeanWord(
            word,
            side,
            sums.texts,
            sum(of.strongest for of in classes.values()),
            sums.share / sums.texts,
            sums.share / sums.fair,
            (sums.share - sums.fair) * math.log(sum(self.texts.values()) / sums.texts),
            classes,
            tuple(row for _, row in sorted(sums.rows, reverse=True)),
            self._association(sums.golds),
        )
        return replace(made, look=is_striking(made, self.texts))

    def _association(self, golds: Mapping[int, int]) -> Association | None:
        """The label that a word tells best; None where there are no labels, or only one."""
        everywhere, here = sum(self.labels.values()), sum(golds.values())
        if not here or len(self.labels) < 2:
            return None
        told = []
        for label, n in self.labels.items():
            share, base = golds.get(label, 0) / here, n / everywhere
            told.append(Association(label, here, share, base, (share - base) / math.sqrt(base * (1 - base) / here)))
        return max(told, key=lambda one: (one.z, -one.label))


def _sampled(heap: list[tuple[int, int]], row: int, size: int) -> int | None:
    """Keep a row among so many that are chosen as if at random, the same in any order; gives the one that goes."""
    entry = (-(row * 2654435761 % 2**32), row)  # a multiplier that scatters (Knuth)
    if len(heap) < size:
        heapq.heappush(heap, entry)
        return None
    return heapq.heappushpop(heap, entry)[1]


def _most_first(word: LeanWord) -> tuple[Any, ...]:
    return -word.reliance, word.side or "", word.word


def _plain(word: LeanWord) -> dict[str, Any]:
    classes = {str(index): asdict(of) for index, of in word.classes.items()}
    return {**asdict(word), "classes": classes, "rows": list(word.rows)}


def _word(data: Mapping[str, Any]) -> LeanWord:
    classes = {int(index): OfClass(**of) for index, of in data["classes"].items()}
    label = None if data["label"] is None else Association(**data["label"])
    effect = None if data["effect"] is None else WordEffect(**data["effect"])
    more = {"classes": classes, "rows": tuple(data["rows"]), "label": label, "effect": effect}
    return LeanWord(**{name: data[name] for name in LeanWord.__dataclass_fields__} | more)


def _example(data: Mapping[str, Any]) -> ExplainedText:
    words = tuple(ScoredWord(word, part, at and (at[0], at[1]), score) for word, part, at, score in data["words"])
    known = {name: data[name] for name in ExplainedText.__dataclass_fields__}
    return ExplainedText(**known | {"texts": tuple(data["texts"]), "words": words})


def _is_scored(value: Any) -> None:
    must(isinstance(value, (list, tuple)) and len(value) == 4, "is not a word, its part, its span and its score")
    for form, inner in zip((text, optional(whole(0, 2)), optional(span), number()), value, strict=True):
        form(inner)


def _are_within(data: Mapping[str, Any]) -> None:
    """The words stand in the texts that there are."""
    for _, part, at, _ in data["words"]:
        must(part is None or part < len(data["texts"]), "has a word of a text that is not there", "words")
        must(at is None or (part is not None and at[1] <= len(data["texts"][part])), "has a word outside", "words")


_SHARE = number(0, 1)
_EXAMPLE = both(
    fields(
        {
            "row": count,
            "texts": every(text, at_least=1),
            "words": every(_is_scored),
            "predicted": count,
            "probability": optional(_SHARE),
            "gold": optional(count),
            "signed": flag,
        }
    ),
    _are_within,
)
_WORD = fields(
    {
        "word": text,
        "side": optional(text),
        "texts": whole(1),
        "strongest": count,
        "share": number(0),
        "lift": number(0),
        "reliance": number(),
        "classes": named(fields({"texts": whole(1), "strongest": count, "score": number()}, only=True), index),
        "rows": every(count),
        "label": optional(
            fields({"label": count, "texts": whole(1), "share": _SHARE, "base": _SHARE, "z": number()}, only=True)
        ),
        "effect": optional(
            fields({"texts": whole(1), "before": _SHARE, "after": _SHARE, "log_odds": number()}, only=True)
        ),
        "look": flag,
    }
)
LEANING = fields(
    {
        "texts": named(whole(1), index),
        "labels": named(whole(1), index),
        "wrong": flag,
        "words": every(_WORD),
        "examples": every(_EXAMPLE),
    }
)
