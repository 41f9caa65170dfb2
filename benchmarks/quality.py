"""How good explanations of a real model are, on texts of your own.

    python benchmarks/quality.py deletion  --texts reviews.txt   # do the highest units matter more than random ones?
    python benchmarks/quality.py precision --texts reviews.txt   # does a less precise model give the same explanation?

Texts: one per line, or a Parquet file with a column `sentence` or `text` (needs pyarrow).
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from scipy.stats import spearmanr

import whyformer
from whyformer import Explainer, Explanation

SHARE = 0.2


def texts_of(path: Path, limit: int | None) -> list[str]:
    """The texts of a file."""
    if path.suffix == ".parquet":
        from pyarrow.parquet import read_table

        table = read_table(path)
        column = next(name for name in ("sentence", "text") if name in table.column_names)
        return table[column].to_pylist()[:limit]
    return path.read_text(encoding="utf-8").splitlines()[:limit]


def probability_without(explainer: Explainer, explanation: Explanation, hidden: list[int]) -> float:
    """The probability of the explained class when some tokens are deleted."""
    ids = explainer.subject.tokenizer(explanation.texts[0])["input_ids"]
    kept = torch.tensor([[t for i, t in enumerate(ids) if i not in hidden]])
    with torch.no_grad():
        logits = explainer.subject.model(input_ids=kept, attention_mask=torch.ones_like(kept)).logits
    return float(logits.softmax(-1)[0, explanation.target.index])


def deletion(explainer: Explainer, texts: list[str], method: str) -> None:
    """Print how far the prediction falls without the highest 20 % of the tokens, and without a random 20 %."""
    drops = []
    generator = np.random.default_rng(0)
    for text in track(texts, "deletion", transient=True):
        explanation = explainer.explain(text, method)
        count = math.floor(SHARE * len(explanation.ranked) + 0.5)
        chance = generator.permutation(explanation.ranked)[:count].tolist()
        before = explanation.prediction.probability
        drops.append(
            [
                before - probability_without(explainer, explanation, hidden)
                for hidden in (explanation.ranked[:count], chance)
            ]
        )
    by_method, by_chance = np.array(drops).T
    difference = by_method - by_chance
    samples = generator.choice(difference, (10_000, len(difference))).mean(1)
    low, high = np.quantile(samples, [0.025, 0.975])
    print(f"{len(texts)} texts, {SHARE:.0%} of the tokens deleted, fall of the predicted class's probability")
    print(f"  highest by {method}: {by_method.mean():.4f}")
    print(f"  at random: {by_chance.mean():.4f}")
    print(f"  difference: {difference.mean():.4f}, paired 95 % bootstrap interval [{low:.4f}, {high:.4f}]")


def precision(name: str, texts: list[str], methods: list[str], reference: str, others: list[str]) -> None:
    """Print how far the scores of each method in other precisions are from those in the reference."""
    expected = Explainer.load(name, dtype=reference)
    compared = {dtype: Explainer.load(name, dtype=dtype) for dtype in others}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for text in track(texts, "precision", transient=True):
        exact = {e.method: e for e in expected.compare(text, methods)}
        for dtype, explainer in compared.items():
            rounded = explainer.compare(text, "all")
            for explanation in rounded:
                if explanation.method in exact:
                    pair = _distance(explanation, exact[explanation.method])
                    found.setdefault((explanation.method, dtype), []).append(pair)
    print(f"{len(texts)} texts, scores beside those in {reference}; distances are relative to the peak")
    print("| method | precision | Spearman, median | lowest | distance, median | largest |")
    print("|---|---|---|---|---|---|")
    for (method, dtype), pairs in sorted(found.items()):
        ranks, distances = np.array(pairs).T
        print(
            f"| `{method}` | {dtype} | {np.nanmedian(ranks):.5f} | {np.nanmin(ranks):.5f} "
            f"| {np.median(distances):.0e} | {distances.max():.0e} |"
        )


def _distance(found: Explanation, expected: Explanation) -> tuple[float, float]:
    """Rank correlation over the units that are not special, and the largest distance relative to the peak."""
    ranked = expected.ranked
    varies = len(ranked) > 1 and bool(np.ptp(expected.scores[ranked])) and bool(np.ptp(found.scores[ranked]))
    rank = spearmanr(found.scores[ranked], expected.scores[ranked]).statistic if varies else math.nan
    peak = np.abs(expected.scores).max()
    distance = np.abs(found.scores - expected.scores).max()
    return rank, float(distance / peak) if distance else 0.0


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["deletion", "precision"])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", default="sentiment")
    parser.add_argument("--method", default="attcat")
    parser.add_argument("--methods", default="all", help="for precision: all, or names with commas")
    parser.add_argument("--reference", default="float64", help="for precision")
    parser.add_argument("--dtypes", default="float32", help="for precision, with commas")
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    texts = texts_of(arguments.texts, arguments.limit)
    if arguments.what == "deletion":
        deletion(Explainer.load(arguments.model), texts, arguments.method)
    else:
        names = list(whyformer.methods()) if arguments.methods == "all" else arguments.methods.split(",")
        precision(arguments.model, texts, names, arguments.reference, arguments.dtypes.split(","))


if __name__ == "__main__":
    main()
