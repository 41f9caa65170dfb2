"""Whether a less precise model gives the same explanation, on texts of your own.

    python benchmarks/cost/precision.py --texts reviews.txt
    python benchmarks/cost/precision.py --texts reviews.txt --reference float32 --dtypes bfloat16 --methods attcat

Texts: one per line, or a Parquet file with a column `sentence` or `text` (needs pyarrow).
"""

import argparse
import math
import sys
from pathlib import Path

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])


import numpy as np
from rich.progress import track
from scipy.stats import spearmanr

from benchmarks.texts import texts_of
from whyformer import Explainer, Explanation


def precision(name: str, texts: list[str], methods: str, reference: str, others: list[str]) -> None:
    """Print how far the scores of each method in other precisions are from those in the reference."""
    expected = Explainer.load(name, dtype=reference)
    compared = {dtype: Explainer.load(name, dtype=dtype) for dtype in others}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for text in track(texts, "precision", transient=True):
        exact = {e.method: e for e in expected.compare(text, methods)}
        for dtype, explainer in compared.items():
            rounded = explainer.compare(text, methods)
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
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", default="sentiment")
    parser.add_argument("--methods", default="all", help="all, or names with commas")
    parser.add_argument("--reference", default="float64")
    parser.add_argument("--dtypes", default="float32", help="with commas")
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    texts = texts_of(arguments.texts, arguments.limit)
    precision(arguments.model, texts, arguments.methods, arguments.reference, arguments.dtypes.split(","))


if __name__ == "__main__":
    main()
