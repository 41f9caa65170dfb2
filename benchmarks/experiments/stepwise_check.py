"""Deletion AOPC of one pass and of 3 and 10 steps, computed anew: none of whyformer's perturbation or metric code.

    python benchmarks/experiments/stepwise_check.py --model MODEL --texts validation.parquet
    python benchmarks/experiments/stepwise_check.py --model MODEL --texts FILE --rows 0,100 --of cp_lrp --steps 1,3

The scores come from whyformer; everything else is plain transformers: each text is tokenised, its tokens are deleted
from the tokenizer's numbers, highest score first, and the stock model is run on what is left, one text at a time. The
AOPC of a text is the mean over 0, 10, …, 100 % of its tokens, rounded half up, of how far the probability of the
predicted class has fallen. Special tokens stay. `--hide mask` puts the mask token in place of each instead, which the
steps did not do.

Texts: one per line, or a Parquet file with a column `sentence` or `text` (needs pyarrow). Intervals are 95 % of 10,000
bootstrap samples of the texts; a difference is that of the same texts.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])


import numpy as np
import torch
from rich.progress import track
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import whyformer
from benchmarks.texts import texts_of

SAMPLES = 10_000


class Plain:
    """A stock model and its tokenizer."""

    def __init__(self, name: str, device: str):
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.model = AutoModelForSequenceClassification.from_pretrained(name).to(device).eval()

    def numbers(self, text: str) -> tuple[dict[str, list[int]], list[bool]]:
        """What the model is given for a text, and which of it is special."""
        found = self.tokenizer(text, return_special_tokens_mask=True, truncation=True)
        special = [bool(flag) for flag in found.pop("special_tokens_mask")]
        return dict(found), special

    def probabilities(self, numbers: dict[str, list[int]]) -> np.ndarray[Any, Any]:
        """What it says."""
        inputs = {name: torch.tensor([row], device=self.model.device) for name, row in numbers.items()}
        with torch.no_grad():
            shares: np.ndarray[Any, Any] = self.model(**inputs).logits[0].double().softmax(-1).cpu().numpy()
        return shares

    def aopc(self, text: str, scores: list[float], hide: str) -> float:
        """How far the probability of the predicted class falls, on average."""
        numbers, special = self.numbers(text)
        assert len(scores) == len(special)
        places = [place for place, flag in enumerate(special) if not flag]
        order = sorted(places, key=lambda place: -scores[place])
        whole = self.probabilities(numbers)
        predicted = int(whole.argmax())
        falls = []
        for tenth in range(11):
            gone = order[: (2 * tenth * len(order) + 10) // 20]
            if hide == "mask":
                ids = [self.tokenizer.mask_token_id if p in gone else n for p, n in enumerate(numbers["input_ids"])]
                left = {**numbers, "input_ids": ids}
            else:
                left = {name: [n for p, n in enumerate(row) if p not in gone] for name, row in numbers.items()}
            falls.append(whole[predicted] - self.probabilities(left)[predicted])
        return float(np.mean(falls))


def interval(values: np.ndarray[Any, Any]) -> str:
    """The mean and its 95 % bootstrap interval."""
    draws = np.random.default_rng(0).integers(len(values), size=(SAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(1), (0.025, 0.975))
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder or a hub id")
    parser.add_argument("--texts", required=True, type=Path)
    parser.add_argument("--rows", default="300,400", help="from, to before")
    parser.add_argument("--of", default="attn_lrp")
    parser.add_argument("--steps", default="1,3,10")
    parser.add_argument("--hide", default="delete", choices=("delete", "mask"))
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    start, stop = (int(row) for row in arguments.rows.split(","))
    texts = texts_of(arguments.texts, stop)[start:]
    plain = Plain(arguments.model, arguments.device)
    explainer = whyformer.Explainer.load(arguments.model, device=arguments.device)
    found: dict[str, list[float]] = {}
    for text in track(texts, "checking", transient=True):
        for steps in arguments.steps.split(","):
            one = steps == "1"
            name = arguments.of if one else f"stepwise(of={arguments.of}, steps={steps})"
            scores = explainer.explain(text, name).scores.tolist()
            found.setdefault(name, []).append(plain.aopc(text, scores, arguments.hide))
    first = np.array(next(iter(found.values())))
    print(f"rows {start} … {stop - 1} of {arguments.texts.name}, {len(texts)} texts, hide={arguments.hide}")
    print(f"| | AOPC | above {next(iter(found))} |\n|---|---|---|")
    for name, values in found.items():
        print(f"| `{name}` | {interval(np.array(values))} | {interval(np.array(values) - first)} |")


if __name__ == "__main__":
    main()
