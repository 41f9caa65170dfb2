"""Overlap: whether an explanation points at the same words for every class."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal, NamedTuple

import torch

from whyformer.arrays import FloatArray
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.units import Unit, join_words
from whyformer.metrics.case import Case
from whyformer.metrics.metric import Measured, metric
from whyformer.registry.options import Added
from whyformer_papers.words.idf import Idf

Counted = Literal["word", "token"]
Totals = dict[int, dict[str, float]]  # of each predicted class its words with their weighted sums
Scored = tuple[str, str, float]  # a word as it is summed, the letters that its rarity is looked up by, its score


class Counting(NamedTuple):
    """What is summed of a text: lower-cased words, or tokens as the tokenizer spells them.

    Each counts as often as it stands there, or, with `once`, each distinct one once, with the mean over its places.
    """

    units: Counted = "word"
    once: bool = False

    def __str__(self) -> str:
        return f"{self.units}s, each once a text" if self.once else f"{self.units}s"

    @property
    def provenance(self) -> dict[str, Any]:
        """What a table says of it: nothing, if it is the default."""
        return {} if self == Counting() else {"counted": str(self)}

    def record(self, predicted: int, units: Sequence[Unit], texts: Sequence[str], scores: FloatArray) -> dict[str, Any]:
        """What one text adds to the sums: its class, and its words with their scores.

        Where a word is not spelled as its rarity is looked up, as of a token with marks, `letters` has both.
        """
        scored = _tokens(units, scores) if self.units == "token" else _words(units, texts, scores)
        words = [(word, score) for word, _, score in scored]
        record = {"class": predicted, "words": _means(words) if self.once else [list(word) for word in words]}
        letters = {word: looked_up for word, looked_up, _ in scored if looked_up != word}
        return {**record, "letters": letters} if letters else record


def _words(units: Sequence[Unit], texts: Sequence[str], scores: FloatArray) -> list[Scored]:
    """The words in small letters, each with the sum of its tokens' scores."""
    words = [(unit.text.lower(), float(scores[members].sum())) for unit, members in join_words(units, texts)]
    return [(word, word, score) for word, score in words]


def _tokens(units: Sequence[Unit], scores: FloatArray) -> list[Scored]:
    """The tokens with their marks for spaces and continuations, which are no letters: `##ing`, `Ġfilm`."""
    tokens: list[Scored] = []
    for unit, score in zip(units, scores, strict=True):
        if unit.special:
            continue
        if unit.piece is None:
            raise BadInput(
                f"units='token' counts tokens as the tokenizer spells them, and {unit.text!r} is a {unit.kind} without "
                "such a spelling: explain tokens (not by_word()), or count words (units='word')"
            )
        tokens.append((unit.piece, unit.text.strip(), float(score)))
    return tokens


def _means(weighted: Iterable[tuple[str, float]]) -> list[list[Any]]:
    """Each distinct word with the mean over its places, in order of the first."""
    places: defaultdict[str, list[float]] = defaultdict(list)
    for word, score in weighted:
        places[word].append(score)
    return [[word, math.fsum(scores) / len(scores)] for word, scores in places.items()]


class WordSums:
    """Of each predicted class the sums of its words' scores, and its number of texts, as records come in."""

    def __init__(self) -> None:
        self.texts: Counter[int] = Counter()
        self._letters: dict[str, str] = {}
        self._sums: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in what `Counting.record` gave of one text."""
        self.texts[record["class"]] += 1
        self._letters |= record.get("letters", {})
        sums = self._sums[record["class"]]
        for word, score in record["words"]:
            sums[word] += score

    def totals(self, idf: Idf) -> Totals:
        """The sums so far, each times how rare its word is."""
        return {
            index: {word: score * idf[self._letters.get(word, word)] for word, score in self._sums[index].items()}
            for index in sorted(self._sums)
        }


def word_totals(records: Iterable[Mapping[str, Any]], idf: Idf) -> Totals:
    """Of each class the words with the sum of their weighted scores."""
    sums = WordSums()
    for record in records:
        sums.add(record)
    return sums.totals(idf)


def top_words(totals: Mapping[str, float], k: int) -> list[str]:
    """The k words with the highest sums, of equal ones the first by the alphabet."""
    return sorted(totals, key=lambda word: (-totals[word], word))[: _checked(k)]


def shared_share(tops: Iterable[Sequence[str]], k: int) -> float:
    """Of the top k words of each class, the share that two have in common: shared count / (C(C, 2) · k)."""
    pairs = list(combinations([frozenset(top[: _checked(k)]) for top in tops], 2))
    return sum(len(a & b) for a, b in pairs) / (len(pairs) * k) if pairs else math.nan


def _checked(k: int) -> int:
    if k < 1:
        raise BadOption(f"k must be at least 1; found {k}")
    return k


def shared_top_words(records: Sequence[Mapping[str, Any]], *, k: int = 10, **counting: Any) -> float:
    """The share of the top k words that two classes have in common, from the records of all texts.

    The records know how they were counted. Words are weighted by the bundled table.
    """
    return shared_share([top_words(totals, k) for totals in word_totals(records, Idf.bundled()).values()], k)


@metric(
    family="overlap",
    higher_is_better=False,
    bounds=(0, 1),
    level="corpus",
    reduce=shared_top_words,
    takes="texts",
    resampled=False,  # a resample has fewer distinct texts, and so fewer words in common
    paper="Decoded layer saliency 2023",
)
def token_overlap(
    case: Case, *, k: int = 10, units: Annotated[Counted, Added()] = "word", once: Annotated[bool, Added()] = False
) -> Measured:
    """Share of the k highest words of each predicted class that two classes have in common.

    Scores are summed per lower-cased word over all examples of a predicted class, times the word's inverse document
    frequency in the bundled table. `units="token"` sums tokens as the tokenizer spells them, and `once` counts each
    distinct one of a text once, with the mean of its scores there: both together are the paper's own reading. There is
    no number for a single example. `whyformer words --from` weights the words of an evaluation by any other table.
    """
    predicted, counting = case.chosen("predicted"), Counting(units, once)
    examples = zip(predicted.tolist(), case.scores_of(predicted), case.examples, strict=True)
    records = tuple(counting.record(index, text.units, text.texts, scores) for index, scores, text in examples)
    return Measured(torch.full((len(case),), torch.nan, dtype=torch.float64), records=records)
