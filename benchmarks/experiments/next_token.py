"""Compare methods that explain a next token: do they blame the first token, and do they agree with deletion?

    python benchmarks/experiments/next_token.py --model DIR --data DIR/ag_news/test.parquet [--rows 5000,5030]

Two sets of prompts: the first 12 words of AG News texts, and thirty everyday beginnings. For each prompt the predicted
token is explained, and each token but the last is deleted by itself. The last one cannot be deleted: the model predicts
after it. The table counts in how many prompts the first token has the largest score by size, of all tokens and of those
that can be deleted, and in how many the last one has it. It gives the mean rank correlation of scores with the fall of
the log-odds, with its 95 % interval (bootstrap over prompts).
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import numpy as np
import torch
from scipy.stats import spearmanr

from whyformer import Explainer, open_dataset

WORDS = 12
HEAD = "| method | quantity | first of all | first but for the last | last of all | rank correlation with deletion |"
METHODS = (
    ("layer_lrp", "logit"),
    ("layer_lrp", "log_odds"),
    ("layer_lrp(book=attn)", "logit"),
    ("layer_lrp(book=attn)", "log_odds"),
    ("attn_lrp", "logit"),
    ("attn_lrp", "log_odds"),
)
EVERYDAY = (
    "The capital of France is",
    "The opposite of hot is",
    "She opened the door and saw a",
    "My favorite color is",
    "Two plus two equals",
    "The sun rises in the",
    "He poured a cup of",
    "The dog chased the",
    "Water boils at one hundred degrees",
    "The first president of the United States was George",
    "In winter it is very",
    "They went to the beach to",
    "The chef cooked a delicious",
    "I need to charge my",
    "Birds can fly because they have",
    "The largest planet in the solar system is",
    "Please turn off the",
    "The movie was so funny that everyone started to",
    "A week has seven",
    "The teacher wrote on the",
    "The train arrived at the",
    "After the rain there was a",
    "You can read a book at the",
    "The doctor told him to stop",
    "The color of the sky is",
    "Romeo and",
    "Once upon a",
    "To be or not to",
    "The cat sat on the",
    "Happy birthday to",
)


def news(path: Path, first: int, last: int) -> list[str]:
    """The first words of the texts in these rows."""
    return [" ".join(str(row.text).split()[:WORDS]) for row in open_dataset(path).rows(first, last)]


@torch.inference_mode()
def falls(explainer: Explainer, prompt: str) -> np.ndarray:
    """The fall of the predicted token's log-odds without each token but the last, [tokens - 1]."""
    model = explainer.subject.model
    ids = torch.tensor([explainer.subject.tokenizer(prompt)["input_ids"]], device=explainer.subject.device)
    whole = model(input_ids=ids).logits[0, -1].double()
    token = int(whole.argmax())

    def odds(logits: torch.Tensor) -> float:
        others = logits.clone()
        others[token] = -torch.inf
        return float(logits[token] - others.logsumexp(0))

    shorter = [torch.cat((ids[0, :place], ids[0, place + 1 :])) for place in range(ids.shape[1] - 1)]
    after = model(input_ids=torch.stack(shorter)).logits[:, -1].double()
    return np.array([odds(whole) - odds(one) for one in after])


def interval(values: Sequence[float]) -> str:
    """The mean, and the percentiles of the means of resamples."""
    numbers = np.array(values)
    drawn = np.random.default_rng(0).integers(len(numbers), size=(2000, len(numbers)))
    low, high = np.quantile(numbers[drawn].mean(1), [0.025, 0.975])
    return f"{numbers.mean():.2f} [{low:.2f}, {high:.2f}]"


def rows(explainer: Explainer, prompts: Sequence[str]) -> Iterator[str]:
    """A line of Markdown for each method, and one for deletion itself."""
    effects = [falls(explainer, prompt) for prompt in prompts]
    largest = sum(int(np.abs(effect).argmax() == 0) for effect in effects)
    yield f"| deletion | | – | {largest} of {len(prompts)} | – | 1 |"
    for method, quantity in METHODS:
        found = explainer.explain(prompts, method, explains=quantity, check=0, progress=False)
        scores = [explanation.scores for explanation in found]
        firsts = sum(int(np.abs(one).argmax() == 0) for one in scores)
        largest = sum(int(np.abs(one[:-1]).argmax() == 0) for one in scores)
        ends = sum(int(np.abs(one).argmax() == len(one) - 1) for one in scores)
        agreement = [spearmanr(one[:-1], effect).statistic for one, effect in zip(scores, effects, strict=True)]
        numbers = [float(one) for one in agreement if np.isfinite(one)]
        counts = " | ".join(f"{count} of {len(prompts)}" for count in (firsts, largest, ends))
        yield f"| `{method}` | {quantity} | {counts} | {interval(numbers)} |"


def main() -> None:
    """Print a table for each set of prompts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", default="5000,5030", help="from this row to before that one")
    parser.add_argument("--limit", type=int, default=len(EVERYDAY), help="everyday prompts")
    chosen = parser.parse_args()
    explainer = Explainer.load(chosen.model, dtype="float32")
    start, stop = map(int, chosen.rows.split(","))
    print(f"{explainer.subject.name}, by default {explainer.method().label}\n")
    for title, prompts in (("AG News", news(chosen.data, start, stop)), ("everyday", EVERYDAY[: chosen.limit])):
        print(f"## {title}, {len(prompts)} prompts\n")
        print(HEAD)
        print("|---|---|---:|---:|---:|---:|")
        for line in rows(explainer, list(prompts)):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
