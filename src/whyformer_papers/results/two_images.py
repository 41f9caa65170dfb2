"""Two images side by side: how much of the positive score lies on the half that shows the target."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whyformer import Dataset, Explainer, WhyformerError
from whyformer.images.reading import pairs_of, side_by_side
from whyformer_papers.results.checked import Share
from whyformer_papers.results.study import Study

FILE = "shares.json"
TOP = 5
MEASURES = ("share_on_target", f"share_on_target(top={TOP})")
RESAMPLES = 1000
BATCH = 16

ClassIndices = list[tuple[int, int]]  # of the left and the right half


class Pairs(NamedTuple):
    """The composed images, and the classes of their halves."""

    images: list[Image.Image]
    classes: ClassIndices


def measure(study: Study, explainer: Explainer, data: Dataset, folder: Path) -> None:
    """Explain each pair for the class of either half. Methods that the folder has already are not run again."""
    pairs = compose(data, study.limit)
    folder.mkdir(parents=True, exist_ok=True)
    found = read(folder)
    if found.get("pairs", len(pairs.images)) != len(pairs.images):
        raise WhyformerError(f"{folder} holds {found['pairs']} pairs, not {len(pairs.images)}: give another folder")
    found.setdefault("pairs", len(pairs.images))
    found.setdefault("top", _in_top(explainer, pairs))
    for method in study.methods:
        if method not in found["shares"]:
            found["shares"][method] = _shares(explainer, pairs, method)
            (folder / FILE).write_text(json.dumps(found), encoding="utf-8")


def compose(data: Dataset, count: int) -> Pairs:
    """Pairs of images of different classes, each squeezed to half its width."""
    examples = [(one.image, int(one.label or 0)) for one in data if one.image is not None]
    labels = [label for _, label in examples]
    pairs = pairs_of(labels, count)
    images = [side_by_side(examples[left][0].open(), examples[right][0].open()) for left, right in pairs]
    return Pairs(images, [(labels[left], labels[right]) for left, right in pairs])


def read(folder: Path) -> dict[str, Any]:
    """What was measured so far: the shares of each method, [pairs, 2], or why it failed."""
    file = folder / FILE
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"shares": {}}
    return found


def shares(folder: Path) -> dict[tuple[str, str], Share]:
    """The share of each method: over all pairs, and over pairs whose classes are both among the five likeliest."""
    found = read(folder)
    top = np.array(found.get("top", []), dtype=bool)
    of_methods = {method: np.array(each).mean(1) for method, each in found["shares"].items() if isinstance(each, list)}
    return {
        (method, measure): _mean(of_pairs)
        for method, each in of_methods.items()
        for measure, of_pairs in zip(MEASURES, (each, each[top]), strict=True)
        if len(of_pairs)
    }


def _in_top(explainer: Explainer, pairs: Pairs) -> list[bool]:
    explained = explainer.explain(pairs.images, "random", batch_size=BATCH)
    likeliest = [set(np.argsort(-np.array(one.prediction.logits))[:TOP].tolist()) for one in explained]
    return [set(pair) <= top for pair, top in zip(pairs.classes, likeliest, strict=True)]


def _shares(explainer: Explainer, pairs: Pairs, method: str) -> list[list[float]] | str:
    try:
        both = [
            explainer.explain(
                pairs.images, method, target=[classes[half] for classes in pairs.classes], batch_size=BATCH
            )
            for half in (0, 1)
        ]
    except WhyformerError as error:
        return str(error)
    return [[on_half(one, half) for half, one in enumerate(pair)] for pair in zip(*both, strict=True)]


def on_half(explanation: Any, half: int) -> float:
    """The share of the positive score on the left (0) or the right (1) half; special units do not count."""
    middle = explanation.image.size[1] / 2
    halves = [0.0, 0.0]
    for unit, score in zip(explanation.units, explanation.scores, strict=True):
        if unit.box is not None and score > 0:
            right = min(1.0, max(0.0, (unit.box[2] - middle) / (unit.box[2] - unit.box[0])))
            halves[0] += float(score) * (1 - right)
            halves[1] += float(score) * right
    total = sum(halves)
    return halves[half] / total if total else 0.5


def _mean(values: NDArray[np.float64] | Sequence[float]) -> Share:
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.asarray(values)[drawn].mean(1), [0.025, 0.975])
    return Share(float(np.mean(values)), float(low), float(high), len(values))
