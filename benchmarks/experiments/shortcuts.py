"""Two models that have learned a shortcut, with their data: what `whyformer tokens` finds in them.

    python benchmarks/experiments/shortcuts.py --out planted
    whyformer tokens --model planted/reviews --data planted/reviews.csv
    whyformer tokens --model planted/pairs --data planted/pairs.csv

`thursday` stands in 60 % of the positive reviews, `nobody` in 60 % of the hypotheses that contradict, and in no others.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.helpers import planted


def main(arguments: Sequence[str] | None = None) -> None:
    """Train both, and write them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, required=True, help="a folder")
    options.add_argument("--steps", type=int, default=150, help="of training")
    chosen = options.parse_args(arguments)
    written(chosen.out / "reviews", ("text",), planted.reviews(), planted.REVIEW_LABELS, chosen.steps)
    written(chosen.out / "pairs", ("premise", "hypothesis"), planted.pairs(), planted.PAIR_LABELS, chosen.steps)


def written(path: Path, columns: tuple[str, ...], rows: list[Any], labels: tuple[str, ...], steps: int) -> None:
    """Train a model on rows, and write it beside them."""
    path.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file).writerows([(*columns, "label"), *((*row[:-1], labels[row[-1]]) for row in rows)])
    subject = planted.trained(rows, labels, steps)
    subject.model.save_pretrained(path)  # type: ignore[operator]
    subject.tokenizer.save_pretrained(path)
    print(f"{len(rows)} rows: whyformer tokens --model {path} --data {path.with_suffix('.csv')}")


if __name__ == "__main__":
    main()
