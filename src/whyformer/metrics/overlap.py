"""Overlap: whether an explanation points at the same words for every class."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch

from whyformer.errors import BadOption
from whyformer.metrics.case import Case
from whyformer.registry import Measured, metric
from whyformer.units import join_words


def word_totals(records: Sequence[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Of each class the words with the sum of their weighted scores; it feeds word clouds too."""
    totals: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for record in records:
        own = totals[record["class"]]
        for word, score in record["words"]:
            own[word] += score
    return {index: dict(totals[index]) for index in sorted(totals)}


def shared_top_words(records: Sequence[dict[str, Any]], *, k: int = 10) -> float:
    """The share of the top k words that two classes have in common: shared count / (C(C, 2) · k)."""
    if k < 1:
        raise BadOption(f"k must be at least 1; found {k}")
    tops = [_top(totals, k) for totals in word_totals(records).values()]
    pairs = list(combinations(tops, 2))
    return sum(len(a & b) for a, b in pairs) / (len(pairs) * k) if pairs else float("nan")


def _top(totals: dict[str, float], k: int) -> set[str]:
    return set(sorted(totals, key=lambda word: (-totals[word], word))[:k])


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
    records = []
    predicted = case.chosen("predicted")
    for index, scores, example in zip(predicted.tolist(), case.scores_of(predicted), case.examples, strict=True):
        words = [(unit.text.lower(), float(scores[m].sum())) for unit, m in join_words(example.units, example.texts)]
        assert case.idf is not None
        records.append({"class": index, "words": [[word, score * case.idf[word]] for word, score in words]})
    return Measured(torch.full((len(case),), torch.nan, dtype=torch.float64), records=tuple(records))
