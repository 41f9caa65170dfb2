"""Are explanations specific to a class? Two photographs of different breeds side by side, explained for either breed.

    python benchmarks/tables/two_pets.py --model pets --data pets/test_400.parquet --out runs [--device cuda]

Each photograph is squeezed to half its width. The share of a method is the positive score on the half that shows the
target, of all positive score; special units do not count. Over both targets the mean is 50 % for a method that does not
know the target, whatever it marks. Intervals are over pairs, by resampling them. What is measured of a method is kept
in `out`, and not measured again.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.tables.shared import lines
from whyformer import Explainer, WhyformerError
from whyformer.datasets import open_dataset
from whyformer.images.composing import pairs_of, side_by_side
from whyformer.results.explanation import ExplanationData

METHODS = (
    "random,centre,raw_attention,rollout,lrp,partial_lrp,grad_cam,transformer_attribution,gae,attcat(states=inputs),"
    "attcat(states=inputs, book=conservative),attcat(states=inputs, book=attn),full_grad(book=conservative),"
    "full_grad(book=attn),legrad,cp_lrp,attn_lrp"
)
TOP = 5
RESAMPLES = 2000

Floats = NDArray[np.float64]


def parser_of() -> argparse.ArgumentParser:
    """What it is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pets")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=16)
    return parser


def composed(data: Path, labels: tuple[str, ...], count: int) -> tuple[list[Image.Image], list[tuple[int, int]]]:
    """The images of two, and the classes of their left and right half."""
    examples = [(one.image, int(one.label or 0)) for one in open_dataset(data, labels=labels) if one.image is not None]
    classes = [label for _, label in examples]
    pairs = pairs_of(classes, count)
    opened = {n: examples[n][0].open() for pair in pairs for n in pair}
    images = [side_by_side(opened[left], opened[right]) for left, right in pairs]
    return images, [(classes[left], classes[right]) for left, right in pairs]


def share(explanation: ExplanationData, half: int) -> float:
    """How much of the positive score lies in the left (0) or the right (1) half."""
    assert explanation.image is not None
    middle = explanation.image.size[1] / 2
    halves = [0.0, 0.0]
    for unit, score in zip(explanation.units, explanation.scores, strict=True):
        if unit.box is not None and score > 0:
            right = min(1.0, max(0.0, (unit.box[2] - middle) / (unit.box[2] - unit.box[0])))
            halves[0] += float(score) * (1 - right)
            halves[1] += float(score) * right
    total = sum(halves)
    return halves[half] / total if total else 0.5


def measured(
    explainer: Explainer, images: list[Image.Image], classes: list[tuple[int, int]], method: str, size: int
) -> Any:
    """The shares of each pair for its two targets, [pairs, 2]; a sentence where the method is refused."""
    spec = explainer.method(method)
    try:
        both = [
            explainer.explain(
                images, spec.of.name, target=[pair[half] for pair in classes], batch_size=size, **spec.options
            )
            for half in (0, 1)
        ]
    except WhyformerError as error:
        return str(error)
    return [[share(e, half) for half, e in enumerate(pair)] for pair in zip(*both, strict=True)]


def interval(shares: Floats) -> str:
    """The mean over pairs in percent, with a 95 % interval."""
    means = shares.mean(1)
    drawn = np.random.default_rng(0).integers(len(means), size=(RESAMPLES, len(means)))
    low, high = np.quantile(means[drawn].mean(1), [0.025, 0.975])
    return f"{100 * means.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def both_near(explainer: Explainer, images: list[Image.Image], classes: list[tuple[int, int]]) -> NDArray[np.bool_]:
    """The pairs of which both breeds are among the likeliest."""
    explained = explainer.explain(images, "random")
    likeliest = [np.argsort(-np.array(e.prediction.logits))[:TOP].tolist() for e in explained]
    return np.array([set(pair) <= set(top) for pair, top in zip(classes, likeliest, strict=True)])


def main() -> None:
    """Measure, and print the table."""
    chosen = parser_of().parse_args()
    explainer = Explainer.load(chosen.model, device=chosen.device)
    images, classes = composed(chosen.data, explainer.subject.labels, chosen.pairs)
    path = chosen.out / "two_pets.json"
    done = json.loads(path.read_text()) if path.is_file() else {}
    chosen.out.mkdir(parents=True, exist_ok=True)
    for method in explainer._specs(chosen.methods, None):
        if method.label not in done:
            done[method.label] = measured(explainer, images, classes, method.label, chosen.batch)
            path.write_text(json.dumps(done))
    near = both_near(explainer, images, classes)
    print(f"{len(images)} pairs; of {int(near.sum())} both breeds are among the {TOP} likeliest\n")
    rows, refused = [], []
    for method, shares in done.items():
        if isinstance(shares, str):
            refused.append(f"- `{method}`: {shares}")
            continue
        of_all = np.array(shares)
        rows.append((float(of_all.mean()), method, interval(of_all), interval(of_all[near]) if near.any() else "–"))
    ordered = [(f"`{method}`", all_pairs, both) for _, method, all_pairs, both in sorted(rows, reverse=True)]
    print(lines(("method", "all pairs, %", f"both in the top {TOP}, %"), ordered))
    print("\n".join(refused))


if __name__ == "__main__":
    main()
