"""Metrics of images: what the model says while pixels or patches are hidden, and whether a map covers the object.

For segmentation, a map is taken as the method gives it, signs included, and scaled to 0 … 1 from its lowest to its
highest score. Scores of patches are upsampled bilinearly. Pixels without a label do not count. Images without a mask
are left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.arrays import BoolArray, FloatArray
from whyformer.metrics.case import Case, TargetClass
from whyformer.metrics.faithfulness import TENTHS, Deletion, area_weights, flat
from whyformer.metrics.metric import Measured, metric
from whyformer.perturb import HideName
from whyformer.registry.options import Count

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
    target: TargetClass = "predicted",
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
    target: TargetClass = "predicted",
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
    case: Case, *, hide: HideName = "zero", fractions: list[float] | None = None, target: TargetClass = "predicted"
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
    case: Case, *, hide: HideName = "blur", fractions: list[float] | None = None, target: TargetClass = "predicted"
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
    target: TargetClass = "predicted",
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


def _lowest(ranks: Tensor, at: Sequence[float]) -> list[BoolArray]:
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


UNLABELLED = 255
Mask = NDArray[np.uint8]
Tolerance = Annotated[int, Count(0, 10_000, "no image is larger")]


def share_of_right_pixels(records: Sequence[Mapping[str, int]], **_: Any) -> float:
    """Pixels that are right / pixels that are labelled, over all images."""
    labelled = sum(record["labelled"] for record in records)
    return sum(record["right"] for record in records) / labelled if labelled else math.nan


def mean_of_two_ious(records: Sequence[Mapping[str, Sequence[int]]], **_: Any) -> float:
    """The mean over background and foreground of what both have / what either has, each over all images."""
    both, either = (np.sum([record[name] for record in records], axis=0) for name in ("both", "either"))
    return float(np.mean(both[either > 0] / either[either > 0])) if np.any(either) else math.nan


@metric(
    family="segmentation",
    higher_is_better=True,
    bounds=(0, 1),
    needs={"mask"},
    level="corpus",
    reduce=share_of_right_pixels,
    takes="images",
    paper="Chefer et al. 2021",
)
def pixel_accuracy(case: Case, *, target: TargetClass = "predicted") -> Measured:
    """Share of the pixels on the right side: those above the map's mean are foreground.

    Pixels are pooled: right ones / labelled ones over all images. The mean is that of all pixels, labelled or not.
    """
    records = []
    for scores, mask in _maps(case, target):
        labelled = mask != UNLABELLED
        right = ((scores > scores.mean()) == (mask == 1))[labelled]
        records.append({"right": int(right.sum()), "labelled": int(labelled.sum())} if labelled.any() else None)
    return _of_records(records, share_of_right_pixels)


@metric(
    family="segmentation",
    higher_is_better=True,
    bounds=(0, 1),
    needs={"mask"},
    level="corpus",
    reduce=mean_of_two_ious,
    takes="images",
    paper="Chefer et al. 2021",
)
def mean_iou(case: Case, *, target: TargetClass = "predicted") -> Measured:
    """Intersection over union of map and mask, the mean of background and foreground.

    Each is pooled: the sum of intersections / the sum of unions over all images. Foreground is what lies above the
    map's mean.
    """
    records = []
    for scores, mask in _maps(case, target):
        labelled = mask != UNLABELLED
        foreground, marked = (scores > scores.mean())[labelled], (mask == 1)[labelled]
        sides = [(~foreground, ~marked), (foreground, marked)]
        counts = {
            "both": [int((one & other).sum()) for one, other in sides],
            "either": [int((one | other).sum()) for one, other in sides],
        }
        records.append(counts if labelled.any() else None)
    return _of_records(records, mean_of_two_ious)


@metric(
    family="segmentation",
    higher_is_better=True,
    bounds=(0, 1),
    needs={"mask"},
    takes="images",
    paper="Chefer et al. 2021",
)
def mean_average_precision(case: Case, *, target: TargetClass = "predicted") -> Measured:
    """Average precision of the map against the mask, the mean over images.

    One average precision of each image: of the scores 1 - R and R of its pixels, flattened together, against where
    background and foreground are, as the authors' code has it.
    """
    from sklearn.metrics import average_precision_score

    values = []
    for scores, mask in _maps(case, target):
        labelled = mask != UNLABELLED
        scaled, marked = _scaled(scores)[labelled], (mask == 1)[labelled]
        both = np.concatenate((~marked, marked)), np.concatenate((1 - scaled, scaled))
        values.append(float(average_precision_score(*both)) if labelled.any() else math.nan)
    return Measured(torch.tensor(values, dtype=torch.float64))


@metric(
    family="segmentation",
    higher_is_better=True,
    bounds=(0, 1),
    needs={"mask"},
    takes="images",
    paper="Zhang et al. 2018",
)
def pointing_game(case: Case, *, target: TargetClass = "predicted", tolerance: Tolerance = 0) -> Measured:
    """Share of images whose highest labelled pixel lies in the foreground, or at most `tolerance` pixels away.

    Of several highest pixels it is the first. Images whose mask has no foreground are left out. By chance it is the
    share of the foreground.
    """
    values = []
    for scores, mask in _maps(case, target):
        rows, columns = np.nonzero(mask == 1)
        if not len(rows):
            values.append(math.nan)
            continue
        highest = np.where(mask == UNLABELLED, -np.inf, scores).argmax()
        row, column = np.unravel_index(highest, mask.shape)
        nearest = ((rows - row) ** 2 + (columns - column) ** 2).min()
        values.append(float(nearest <= tolerance**2))
    return Measured(torch.tensor(values, dtype=torch.float64))


def _maps(case: Case, target: TargetClass) -> Iterator[tuple[FloatArray, Mask]]:
    """The map and the mask of each image; where there is no mask, one without labels."""
    maps = case.maps(target).cpu().numpy()
    for scores, annotation in zip(maps, case.annotations, strict=True):
        nothing = np.full(scores.shape, UNLABELLED, dtype=np.uint8)
        yield scores, nothing if annotation.mask is None else annotation.mask


def _scaled(scores: FloatArray) -> FloatArray:
    """From the lowest to the highest as 0 … 1; all 0 where they are equal."""
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


def _of_records(records: Sequence[Any], reduce: Any) -> Measured:
    """Records for all images, and beside them the number of each alone."""
    values = [math.nan if record is None else reduce([record]) for record in records]
    return Measured(torch.tensor(values, dtype=torch.float64), records=tuple(records))
