"""Confidence: whether an explanation tells classes apart, and whether its order decides what the model says."""

import warnings
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whyformer.arrays import FloatArray
from whyformer.errors import BadOption
from whyformer.metrics.case import Case, Combine, TargetClass, Units
from whyformer.metrics.faithfulness import TENTHS, Deletion, area_weights
from whyformer.metrics.metric import Measured, metric
from whyformer.perturb import HideName


@metric(
    family="confidence",
    higher_is_better=False,
    bounds=(-1, 1),
    needs={"classes"},
    paper="Kendall 1948; Qiang et al. 2022",
)
def kendall_tau(
    case: Case,
    *,
    target: TargetClass = "predicted",
    against: int | None = None,
    protocol: Literal["attcat"] | None = None,
) -> Tensor:
    """Rank correlation of the scores for the predicted class and for the other classes, on average over the others.

    `against` takes one other class, and leaves out the texts of that class. `protocol="attcat"` correlates the two
    lists of positions in order of their score, special tokens included, as the paper writes; that can turn the sign,
    so it is not the default.
    """
    if case.classes < 2:
        raise BadOption("kendall_tau compares classes: the model has one")
    chosen = case.chosen(target)
    scores = case.scores_of(chosen)
    values = []
    for other in _others(chosen, case.classes, against):
        pairs = zip(scores, case.scores_of(other), case.rankable, strict=True)
        values.append([_tau(first, second, rankable, protocol) for first, second, rankable in pairs])
    taus = torch.tensor(values, dtype=torch.float64).mean(0)  # of [others, batch]
    return taus if against is None else taus.masked_fill(chosen == against, torch.nan)


def _others(chosen: Tensor, classes: int, against: int | None) -> list[Tensor]:
    if against is None:
        return [(chosen + shift) % classes for shift in range(1, classes)]
    if not 0 <= against < classes:
        raise BadOption(f"against={against} is no class of this model: it has 0 … {classes - 1}")
    return [torch.full_like(chosen, against)]


def _tau(first: FloatArray, second: FloatArray, rankable: list[int], protocol: str | None) -> float:
    from scipy.stats import kendalltau

    ordered = protocol == "attcat"
    pair = [np.argsort(-scores, kind="stable") if ordered else scores[rankable] for scores in (first, second)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one unit, or of equal scores: there is no correlation
        return float(kendalltau(*pair).statistic) if len(pair[0]) > 1 else float("nan")


@metric(
    family="confidence",
    higher_is_better=False,
    bounds=(0, 1),
    hides=True,
    ceiling=True,
    takes="texts",
    paper="Decoded layer saliency 2023",
)
def hiding_game(
    case: Case,
    *,
    hide: HideName = "mask_unattended",
    fractions: list[float] | None = None,
    target: TargetClass = "predicted",
    units: Units = "token",
    combine: Combine = "sum",
) -> Measured:
    """Accuracy while the highest-ranked units are hidden first, as the area under the curve from 0 to 100 %.

    Hidden units become [MASK] and are taken out of attention. Accuracy is against the gold label, or against the
    prediction where there is none. The area is by trapezoids, divided by the range.
    """
    return _game(case, Deletion(hide, fractions, target, units, combine), revealing=False)


@metric(
    family="confidence",
    higher_is_better=True,
    bounds=(0, 1),
    hides=True,
    takes="texts",
    paper="Decoded layer saliency 2023",
)
def revealing_game(
    case: Case,
    *,
    hide: HideName = "mask_unattended",
    fractions: list[float] | None = None,
    target: TargetClass = "predicted",
    units: Units = "token",
    combine: Combine = "sum",
) -> Measured:
    """Accuracy while the highest-ranked units are revealed first, as the area under the curve from 0 to 100 %.

    It starts from a text with every unit hidden; otherwise as `hiding_game`.
    """
    return _game(case, Deletion(hide, fractions, target, units, combine), revealing=True)


def _game(case: Case, deletion: Deletion, revealing: bool) -> Measured:
    at = deletion.at(TENTHS)
    weights = area_weights(at)
    shares = case.probabilities(deletion.steps(case, at, revealing=revealing), deletion.hide)
    curve = torch.stack([(p.argmax(-1) == r).double() for p, r in zip(shares, case.right, strict=True)])
    return Measured((curve * weights).sum(1), curve, at)
