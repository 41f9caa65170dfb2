"""Segmentation: whether a map of an image lies on what the image shows, as people marked it.

A map is taken as the method gives it, signs included, and scaled from its lowest to its highest score to 0 … 1: patches
upsampled bilinearly, or pixels of a method that scores them. Pixels that are not labelled count nowhere. Images without
a mask are left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from whyformer.metrics.case import Case, Explained, Floats
from whyformer.metrics.registry import Measured, metric
from whyformer.registry.options import Count

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
def pixel_accuracy(case: Case, *, target: Explained = "predicted") -> Measured:
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
def mean_iou(case: Case, *, target: Explained = "predicted") -> Measured:
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
def mean_average_precision(case: Case, *, target: Explained = "predicted") -> Measured:
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
def pointing_game(case: Case, *, target: Explained = "predicted", tolerance: Tolerance = 0) -> Measured:
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


def _maps(case: Case, target: Explained) -> Iterator[tuple[Floats, Mask]]:
    """The map and the mask of each image; where there is no mask, one without labels."""
    maps = case.maps(target).cpu().numpy()
    for scores, annotation in zip(maps, case.annotations, strict=True):
        nothing = np.full(scores.shape, UNLABELLED, dtype=np.uint8)
        yield scores, nothing if annotation.mask is None else annotation.mask


def _scaled(scores: Floats) -> Floats:
    """From the lowest to the highest as 0 … 1; all 0 where they are equal."""
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


def _of_records(records: Sequence[Any], reduce: Any) -> Measured:
    """Records for all images, and beside them the number of each alone."""
    values = [math.nan if record is None else reduce([record]) for record in records]
    return Measured(torch.tensor(values, dtype=torch.float64), records=tuple(records))
