"""The words that a model relies on: how often each is among the strongest of a text, and what makes it a shortcut."""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar

from whyformer.arrays import FloatArray
from whyformer.errors import BadInput
from whyformer.inputs.units import Span, Unit, join_words
from whyformer.methods.method import MethodSpec, list_methods, method_named
from whyformer.results.checked import LITTLE
from whyformer.results.explanation import ExplanationData
from whyformer.storage.schema import (
    Format,
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
    plain,
    span,
    text,
    whole,
)

SCHEMA, SCHEMA_OF_SEVERAL = "whyformer/shortcut-report", "whyformer/shortcut-reports"
SCHEMA_VERSION = 1
MOST_CLASSES = 1_000_000  # of a model whose labels are not known

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


def scored_words(
    units: Sequence[Unit], texts: Sequence[str], scores: FloatArray, ranks: bool
) -> tuple[ScoredWord, ...]:
    """The words of a text with the sum of their tokens' scores; of mere ranks, the highest."""
    joined = [(unit, scores[members]) for unit, members in join_words(units, texts)]
    return tuple(ScoredWord(u.text, u.part, u.span, float(own.max() if ranks else own.sum())) for u, own in joined)


@dataclass(frozen=True)
class ClassStats:
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
class ShortcutWord:
    """A word (of one side of a pair) that the model relies on.

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
    classes: Mapping[int, ClassStats]
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


@dataclass(frozen=True, kw_only=True)
class ShortcutReportData:
    """What a `ShortcutReport` is made of, which says what the fields mean, and what is computed from it."""

    method: str
    labels: tuple[str, ...]
    words: tuple[ShortcutWord, ...]
    texts: Mapping[int, int]
    golds: Mapping[int, int] = field(default_factory=dict)
    examples: Mapping[int, ExplainedText] = field(default_factory=dict)
    wrong: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.texts:
            raise BadInput("a report on shortcuts needs at least one text")

    @classmethod
    def of(cls, explanations: Iterable[ExplanationData]) -> Self:
        """Count the words of explanations of what a model predicted, by one method; they may come as a stream."""
        counter = ShortcutCounter()
        method, labels, provenance = "", tuple[str, ...](), dict[str, Any]()
        for row, explanation, predicted in of_one_method(explanations):
            if not row:
                method, labels = written(explanation), explanation.prediction.labels
                provenance = dict(explanation.provenance)
            counter.add(_explained(row, predicted, explanation))
        return counter.report(cls, method, labels, provenance)

    def name_of(self, index: int) -> str:
        """The name of a class; its index where there are no names."""
        return self.labels[index] if index < len(self.labels) else str(index)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `save` writes it."""
        return {
            "schema": SCHEMA,
            "version": SCHEMA_VERSION,
            "method": self.method,
            "labels": list(self.labels),
            "texts": {str(index): n for index, n in sorted(self.texts.items())},
            "golds": {str(index): n for index, n in sorted(self.golds.items())},
            "wrong": self.wrong,
            "words": [_plain(word) for word in self.words],
            "examples": [asdict(example) for example in self.examples.values()],
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The report that `to_dict` gave."""
        return cls.of_checked(REPORT.checked(data))

    @classmethod
    def of_checked(cls, data: Mapping[str, Any]) -> Self:
        """From data that was checked."""
        texts, golds = ({int(index): n for index, n in data[name].items()} for name in ("texts", "golds"))
        examples = {example["row"]: _example(example) for example in data["examples"]}
        return cls(
            method=data["method"],
            labels=tuple(data["labels"]),
            words=tuple(map(_word, data["words"])),
            texts=texts,
            golds=golds,
            examples=examples,
            wrong=data["wrong"],
            provenance=data["provenance"],
        )

    def with_effects(self, effects: Mapping[tuple[str | None, str], WordEffect]) -> Self:
        """With what the model says without some words, given by their sides and themselves."""
        words = (replace(word, effect=effects.get((word.side, word.word))) for word in self.words)
        judged = tuple(replace(word, look=is_striking(word, self.texts)) for word in words)
        return replace(self, words=judged)


R = TypeVar("R", bound=ShortcutReportData)


def of_one_method(explanations: Iterable[ExplanationData]) -> Iterator[tuple[int, ExplanationData, int]]:
    """Explanations with their place and the class that was predicted and explained; all by one method, of one model."""
    first: tuple[Any, ...] = ()
    for row, explanation in enumerate(explanations):
        predicted, found = _predicted(explanation), (written(explanation), explanation.prediction.labels)
        first = first or found
        if found != first:
            raise BadInput(
                f"words are counted for one method and one model; found explanations by {first[0]} for the classes "
                f"{', '.join(first[1])} and by {found[0]} for {', '.join(found[1])}"
            )
        yield row, explanation, predicted
    if not first:
        raise BadInput("there is no explanation to count")


def written(explanation: ExplanationData) -> str:
    """The method as it is written; one that is not registered here, with all its options."""
    if explanation.method in list_methods():
        return MethodSpec(method_named(explanation.method), explanation.options).label
    options = ", ".join(f"{name}={value}" for name, value in sorted(explanation.options.items()))
    return f"{explanation.method}({options})" if options else explanation.method


def _predicted(explanation: ExplanationData) -> int:
    """The index of the predicted class, which has to be the one that is explained."""
    prediction, target = explanation.prediction, explanation.target
    if prediction.index is None or prediction.probabilities is None:
        raise BadInput(
            "words are counted by predicted class: a model that answers questions, or has one output, has none"
        )
    if target.index != prediction.index or explanation.versus is not None:
        raise BadInput(
            f"words are counted by predicted class, here {prediction.label}, and this explains {target.name}"
            f"{'' if explanation.versus is None else f' rather than {explanation.versus.name}'}: leave the target out"
        )
    return prediction.index


def _explained(row: int, predicted: int, explanation: ExplanationData) -> ExplainedText:
    """What words are counted in, of an explanation that stands at some place of a stream."""
    words = scored_words(explanation.units, explanation.texts, explanation.scores, explanation.ranks)
    probability = explanation.prediction.probability
    return ExplainedText(row, explanation.texts, words, predicted, probability, signed=explanation.signed)


def is_striking(word: ShortcutWord, texts: Mapping[int, int]) -> bool:
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


class ShortcutCounter:
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

    def report(
        self,
        kind: type[R],
        method: str,
        labels: tuple[str, ...],
        provenance: Mapping[str, Any] | None = None,
        words: int = WORDS,
    ) -> R:
        """The words that were relied on most, and all that are to be looked at."""
        counted = {key: sums for key, sums in self._words.items() if sums.texts}
        every = sorted((self._word(*key, sums) for key, sums in counted.items()), key=_most_first)
        shown = tuple(word for place, word in enumerate(every) if place < words or word.look)
        rows = sorted({row for word in shown for row in word.rows})
        return kind(
            method=method,
            labels=labels,
            words=shown,
            texts=dict(self.texts),
            golds=dict(self.labels),
            examples={row: self._held[row] for row in rows if row in self._held},
            wrong=self.wrong,
            provenance=provenance or {},
        )

    def _word(self, side: str | None, word: str, sums: _Sums) -> ShortcutWord:
        classes = {i: ClassStats(int(n), int(top), score) for i, (n, top, score) in sorted(sums.classes.items())}
        made = ShortcutWord(
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


def _most_first(word: ShortcutWord) -> tuple[Any, ...]:
    return -word.reliance, word.side or "", word.word


def _plain(word: ShortcutWord) -> dict[str, Any]:
    classes = {str(index): asdict(of) for index, of in word.classes.items()}
    return {**asdict(word), "classes": classes, "rows": list(word.rows)}


def _word(data: Mapping[str, Any]) -> ShortcutWord:
    classes = {int(index): ClassStats(**of) for index, of in data["classes"].items()}
    label = None if data["label"] is None else Association(**data["label"])
    effect = None if data["effect"] is None else WordEffect(**data["effect"])
    more = {"classes": classes, "rows": tuple(data["rows"]), "label": label, "effect": effect}
    return ShortcutWord(**{name: data[name] for name in ShortcutWord.__dataclass_fields__} | more)


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
_REPORT = fields(
    {
        "method": text,
        "labels": every(text),
        "texts": named(whole(1), index),
        "golds": named(whole(1), index),
        "wrong": flag,
        "words": every(_WORD),
        "examples": every(_EXAMPLE),
        "provenance": both(plain, fields({}, {"refused": named(count)})),
    }
)


def _classes_are_known(data: Mapping[str, Any]) -> None:
    """Every class that is named has a number of texts, and a name where there are names."""
    counted = {int(at) for at in data["texts"]}
    must(bool(counted), "has no class", "texts")
    must(all(word["classes"] for word in data["words"]), "has a word of no class", "words")
    named_there = {int(at) for word in data["words"] for at in word["classes"]}
    must(named_there <= counted, "has a class that is not in 'texts'", "words")
    must({e["predicted"] for e in data["examples"]} <= counted, "has a class that is not in 'texts'", "examples")
    told = {word["label"]["label"] for word in data["words"] if word["label"]}
    golds = {int(at) for at in data["golds"]} | told
    golds |= {example["gold"] for example in data["examples"] if example["gold"] is not None}
    labels = len(data["labels"]) or MOST_CLASSES
    highest = max(counted | golds)
    must(highest < labels, f"has a class {highest}, and there are {labels} labels", "texts")


def _are_of_several_methods(data: Mapping[str, Any]) -> None:
    methods = [report["method"] for report in data["reports"]]
    must(len(set(methods)) == len(methods), "has two reports of one method", "reports")


_WRITTEN_BY = ("version", "`whyformer tokens --out` writes one")
REPORT = Format("saved report on shortcuts", SCHEMA, SCHEMA_VERSION, (_REPORT, _classes_are_known), *_WRITTEN_BY)
_REPORTS = (fields({"reports": every(REPORT.check, at_least=1)}), _are_of_several_methods)
REPORTS = Format("file of saved reports on shortcuts", SCHEMA_OF_SEVERAL, SCHEMA_VERSION, _REPORTS, *_WRITTEN_BY)
