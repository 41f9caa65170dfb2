"""Perturbation of images: what the model says while pixels or patches are hidden in the order of a map."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whyformer.inputs.input import Flags
from whyformer.metrics.case import Case, Explained
from whyformer.metrics.faithfulness import TENTHS, Deletion, area_weights, flat
from whyformer.metrics.registry import Measured, metric
from whyformer.perturb import HideName

NINE = TENTHS[1:-1]  # 10, 20, …, 90 %
Order = Literal["most", "least"]


@metric(
    family="faithfulness",
    higher_is_better=False,
    bounds=(0, 1),
    hides=True,
    ceiling=True,
    follows="right",
    takes="images",
    paper="Chefer et al. 2021",
)
def positive_perturbation(
    case: Case,
    *,
    hide: HideName = "black",
    fractions: list[float] | None = None,
    target: Explained = "predicted",
    normalised: bool = False,
) -> Measured:
    """Accuracy while the pixels with the highest scores are hidden first, area under the curve from 10 to 90 %.

    Pixels are ordered by the map of the class `target`: patches upsampled bilinearly, or the pixels of a method that
    scores them. `int(H · W · k)` pixels are black before colours are normalised, for k = 10, 20, …, 90 %. Accuracy is
    against the gold label, whatever the target, or against the prediction where there is none. The area is by
    trapezoids, 0 … 0.8 as it is; with `normalised`, divided by the range.
    """
    return _perturbed(case, Deletion(hide, fractions, target, "token", "sum"), normalised, lowest_first=False)


@metric(
    family="faithfulness",
    higher_is_better=True,
    bounds=(0, 1),
    hides=True,
    ceiling=True,
    lowest_first=True,
    follows="right",
    takes="images",
    paper="Chefer et al. 2021",
)
def negative_perturbation(
    case: Case,
    *,
    hide: HideName = "black",
    fractions: list[float] | None = None,
    target: Explained = "predicted",
    normalised: bool = False,
) -> Measured:
    """Accuracy while the pixels with the lowest scores are hidden first; otherwise as `positive_perturbation`."""
    return _perturbed(case, Deletion(hide, fractions, target, "token", "sum"), normalised, lowest_first=True)


@metric(
    family="faithfulness",
    higher_is_better=False,
    bounds=(0, 1),
    hides=True,
    ceiling=True,
    takes="images",
    paper="Petsiuk et al. 2018",
)
def deletion(
    case: Case, *, hide: HideName = "zero", fractions: list[float] | None = None, target: Explained = "predicted"
) -> Measured:
    """Probability of a class while its highest patches are hidden first, area under the curve from 0 to 100 %.

    The area is by trapezoids, divided by the range. Hidden patches are zeros of normalised colours, as in the authors'
    code, which hides pixels.
    """
    return _followed(case, Deletion(hide, fractions, target, "token", "sum"), revealing=False)


@metric(
    family="faithfulness",
    higher_is_better=True,
    bounds=(0, 1),
    hides=True,
    takes="images",
    paper="Petsiuk et al. 2018",
)
def insertion(
    case: Case, *, hide: HideName = "blur", fractions: list[float] | None = None, target: Explained = "predicted"
) -> Measured:
    """Probability of a class while its highest patches are shown first, from the blurred image on; as `deletion`."""
    return _followed(case, Deletion(hide, fractions, target, "token", "sum"), revealing=True)


@metric(
    family="faithfulness",
    higher_is_better=True,
    bounds=(0, 1),
    hides=True,
    takes="images",
    paper="Mehri et al. 2025",
)
def deletion_accuracy(
    case: Case,
    *,
    order: Order = "most",
    hide: HideName = "drop",
    fractions: list[float] | None = None,
    target: Explained = "predicted",
) -> Measured:
    """Share of images whose class is another once the most influential patches are dropped; mean over 10, …, 90 %.

    LibraGrad's deletion accuracy, as `decompv/x/ds/utils.py` of its code computes it: `masker_entrypoint` has the
    fractions 0.1, 0.2, …, 0.9; of N patches the top `int(k · N)` are taken out of the sequence behind their positions
    (`dsmap_predict_masked`), special units stay; accuracy is counted (`compute_cls_metrics`) and its mean over the nine
    taken (`xp_cls_metrics_to_table`). `order="most"`, most influential first, gives 1 - accuracy without the top;
    `order="least"` gives the accuracy with nothing but the top `int(k · N)`: higher is better in both. Accuracy is
    against the class whose map orders. Models that cannot do without units are given zeros in their place there, and
    are refused here: `hide="zero"` blanks patches.
    """
    at = Deletion(hide, fractions, target, "token", "sum").at(NINE)
    steps = []
    for patches in case.ranked(target):
        counts = [_floor(k, len(patches)) for k in at]
        steps.append([flat(patches[:n] if order == "most" else patches[n:]) for n in counts])
    right = _right(case.probabilities(steps, hide), case.chosen(target).tolist())
    curve = 1 - right if order == "most" else right
    return Measured(curve.mean(1), curve, at)


def _perturbed(case: Case, deletion: Deletion, normalised: bool, lowest_first: bool) -> Measured:
    at = deletion.at(NINE)
    weights = area_weights(at, normalised)
    covered = [_lowest(row, at) for row in _ranks(case.maps(deletion.target), lowest_first)]
    curve = _right(case.without_pixels(covered, deletion.hide), case.right)
    return Measured((curve * weights).sum(1), curve, at)


def _ranks(maps: Tensor, lowest_first: bool) -> Tensor:
    """When the turn of each pixel comes, [batch, height, width]; ties in order of position."""
    order = torch.argsort(maps.flatten(1), dim=1, descending=not lowest_first, stable=True)
    turns = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, turns).view(maps.shape).cpu()


def _lowest(ranks: Tensor, at: Sequence[float]) -> list[Flags]:
    """Which pixels are hidden at each step, [height, width] of each."""
    turns = ranks.numpy()
    return [np.asarray(turns < _floor(k, turns.size)) for k in at]


def _floor(share: float, count: int) -> int:
    """A share as a count, rounded down; 0.7 · 10 is 7, whatever binary fractions say."""
    return math.floor(round(share * count, 9))


def _right(shares: Sequence[Tensor], classes: Sequence[int]) -> Tensor:
    """1 where the model says the class of an example, [batch, steps]."""
    return torch.stack([(p.argmax(-1) == index).double() for p, index in zip(shares, classes, strict=True)])


def _followed(case: Case, deletion: Deletion, revealing: bool) -> Measured:
    at = deletion.at(TENTHS)
    weights = area_weights(at)
    shares = case.probabilities(deletion.steps(case, at, revealing=revealing), deletion.hide)
    classes = case.chosen(deletion.target).tolist()
    curve = torch.stack([p[:, index] for p, index in zip(shares, classes, strict=True)])
    return Measured((curve * weights).sum(1), curve, at)
