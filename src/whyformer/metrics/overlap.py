"""Overlap: whether an explanation points at the same words for every class."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch

from whyformer.errors import BadOption
from whyformer.inputs.units import Unit, join_words
from whyformer.metrics.case import Case, Floats
from whyformer.metrics.idf import Idf
from whyformer.metrics.registry import Measured, metric

Totals = dict[int, dict[str, float]]  # of each predicted class its words with their sums


def word_record(
    predicted: int, units: Sequence[Unit], texts: Sequence[str], scores: Floats, idf: Idf
) -> dict[str, Any]:
    """What one text adds to the sums: its class, and its words with the sum of their tokens' scores times the idf."""
    words = [(unit.text.lower(), float(scores[members].sum())) for unit, members in join_words(units, texts)]
    return {"class": predicted, "words": [[word, score * idf[word]] for word, score in words]}


class WordSums:
    """Of each predicted class the sums of its words' weighted scores, and its number of texts, as records come in."""

    def __init__(self) -> None:
        self.texts: Counter[int] = Counter()
        self._sums: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in what `word_record` gave of one text."""
        self.texts[record["class"]] += 1
        sums = self._sums[record["class"]]
        for word, score in record["words"]:
            sums[word] += score

    @property
    def totals(self) -> Totals:
        """The sums so far."""
        return {index: dict(self._sums[index]) for index in sorted(self._sums)}


def word_totals(records: Iterable[Mapping[str, Any]]) -> Totals:
    """Of each class the words with the sum of their weighted scores; it feeds word clouds too."""
    sums = WordSums()
    for record in records:
        sums.add(record)
    return sums.totals


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


def shared_top_words(records: Sequence[Mapping[str, Any]], *, k: int = 10) -> float:
    """The share of the top k words that two classes have in common, from the records of all texts."""
    return shared_share([top_words(totals, k) for totals in word_totals(records).values()], k)


@metric(
    family="overlap",
    higher_is_better=False,
    bounds=(0, 1),
    needs={"idf"},
    level="corpus",
    reduce=shared_top_words,
    paper="Decoded layer saliency 2023",
)
def token_overlap(case: Case, *, k: int = 10) -> Measured:
    """Share of the k highest words of each predicted class that two classes have in common.

    Scores are summed per lower-cased word over all examples of a predicted class, times the word's inverse document
    frequency. There is no number for a single example.
    """
    assert case.idf is not None
    predicted = case.chosen("predicted")
    examples = zip(predicted.tolist(), case.scores_of(predicted), case.examples, strict=True)
    records = tuple(word_record(index, text.units, text.texts, scores, case.idf) for index, scores, text in examples)
    return Measured(torch.full((len(case),), torch.nan, dtype=torch.float64), records=records)
