"""Plausibility: whether the units that an explanation ranks highest are those that people point at."""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from whyformer.arrays import FloatArray
from whyformer.errors import BadOption
from whyformer.inputs.batch import TextInput
from whyformer.metrics.case import Case, RationaleWords, TargetClass
from whyformer.metrics.metric import Measured, metric

RATIONALE_SIZES = list(range(10, 81, 10))


def mean_or_ratio(
    records: Sequence[dict[str, Any]], *, k: int | list[int] = 20, measure: Literal["count", "ratio"] = "count"
) -> float:
    """The mean count of answer tokens, or the ratio of that to the mean answer length; the mean over several k."""
    if not records:
        return float("nan")
    counts = torch.tensor([record["counts"] for record in records], dtype=torch.float64).mean()
    lengths = torch.tensor([record["length"] for record in records], dtype=torch.float64).mean()
    return float(counts if measure == "count" else counts / lengths)


@metric(
    family="plausibility",
    higher_is_better=True,
    bounds=(0, float("inf")),
    needs={"answer"},
    level="corpus",
    reduce=mean_or_ratio,
    takes="texts",
    paper="Qiang et al. 2022; Song et al. 2024",
)
def precision_at_k(case: Case, *, k: int | list[int] = 20, measure: Literal["count", "ratio"] = "count") -> Measured:
    """How many tokens of the gold answer are among the top k tokens of question and context.

    `measure="count"` (AttCAT) is the mean count; the largest attainable one is the mean answer length, of which
    `diagnostics["length"]` has each. `"ratio"` (Mask-LRP) divides the mean count by the mean length. The explained
    answer is the predicted one. Questions without an answer are left out. Of a long context one window is explained,
    and answer tokens outside of it are missed.
    """
    sizes = _sizes(k)
    curve = torch.full((len(case), len(sizes)), torch.nan, dtype=torch.float64)
    records: list[dict[str, Any] | None] = []
    examples = zip(case.without_padding(case.scores), case.rankable, case.annotations, strict=True)
    for row, (scores, rankable, annotation) in enumerate(examples):
        if annotation.answer is None and annotation.answer_length is None:
            records.append(None)
            continue
        order = sorted(rankable, key=lambda place: -float(scores[place]))
        answer = () if annotation.answer is None else range(annotation.answer[0], annotation.answer[1] + 1)
        counts = [len(set(order[:size]) & set(answer)) for size in sizes]
        curve[row] = torch.tensor(counts, dtype=torch.float64)
        records.append({"counts": counts, "length": annotation.answer_length or len(answer)})
    lengths = [float("nan") if record is None else float(record["length"]) for record in records]
    at = tuple(float(size) for size in sizes)
    return Measured(curve.mean(1), curve, at, {"length": torch.tensor(lengths)}, tuple(records))


@metric(
    family="plausibility",
    higher_is_better=True,
    bounds=(0, 1),
    needs={"rationale"},
    explains="gold",
    takes="texts",
    paper="DeYoung et al. 2020",
)
def token_f1(
    case: Case,
    *,
    k: int | list[int] | None = None,
    target: TargetClass = "gold",
    window: Literal["whole", "inside"] = "whole",
) -> Measured:
    """How well the top k words agree with the human rationale: F1, on average over k = 10, 20, …, 80.

    Words are those of the data set; a word's score is the highest of its tokens. Evidence beyond the model's window is
    missed, as in ERASER: it counts in recall, and a text with no other has 0. `window="inside"` counts the evidence
    that the model saw, and leaves texts without any out. The share beyond is `diagnostics["beyond_window"]`. Texts
    without evidence are left out.
    """
    sizes = _sizes(RATIONALE_SIZES if k is None else k)
    curve = torch.full((len(case), len(sizes)), torch.nan, dtype=torch.float64)
    beyond = torch.full((len(case),), torch.nan, dtype=torch.float64)
    examples = zip(case.scores_of(case.chosen(target)), case.examples, case.annotations, strict=True)
    for row, (scores, example, annotation) in enumerate(examples):
        rationale = annotation.rationale
        if rationale is None or not rationale.evidence:
            continue
        words = _words(rationale, example, scores)
        inside = rationale.evidence & set(words)
        beyond[row] = 1 - len(inside) / len(rationale.evidence)
        if evidence := inside if window == "inside" else rationale.evidence:
            order = sorted(words, key=lambda word: -words[word])
            curve[row] = torch.tensor([_f1(set(order[:size]), evidence) for size in sizes], dtype=torch.float64)
    return Measured(curve.mean(1), curve, tuple(float(size) for size in sizes), {"beyond_window": beyond})


def _words(rationale: RationaleWords, example: TextInput, scores: FloatArray) -> dict[int, float]:
    """The words that the model saw, by number, each with the highest score of its tokens."""
    highest: dict[int, float] = {}
    parts = rationale.parts or (0,) * len(rationale.words)
    for part in sorted(set(parts)):
        tokens = [(p, u.span) for p, u in enumerate(example.units) if u.part == part and u.span]
        first = 0
        for number, (start, end) in ((n, w) for n, w in enumerate(rationale.words) if parts[n] == part):
            while first < len(tokens) and tokens[first][1][1] <= start:
                first += 1
            for place, span in tokens[first:]:
                if span[0] >= end:
                    break
                highest[number] = max(highest.get(number, -float("inf")), float(scores[place]))
    return highest


def _f1(chosen: set[int], evidence: frozenset[int]) -> float:
    right = len(chosen & evidence)
    return 2 * right / (len(chosen) + len(evidence))


def _sizes(k: int | list[int]) -> list[int]:
    sizes = [k] if isinstance(k, int) else k
    if min(sizes) < 1:
        raise BadOption(f"k must be at least 1; found {min(sizes)}")
    return sizes
