"""Whether something does better than `layer_lrp` at the cost of one pass: other layers, weights, books.

    python benchmarks/experiments/layered.py --models DIR --data DIR --out search [--only sst2,mnli] [--limit 300]
    python benchmarks/experiments/layered.py --out search --summary

DIR of the models has the folders sst2, nli and qqp; DIR of the data sst2, mnli and qqp. The rows are none of those that
docs/results.md reports: sentences of ten words and more of SST-2's train split, MNLI from row 5,000 on, QQP from row
3,000 on. A run that was stopped goes on where it was. The variants, each a method of its own:

* `layered(start, count)`: the relevance at the inputs of so many layers from `start` on. With six layers `count=3` is
  `layer_lrp(depth=0.5)`, and `start=3, count=1` the fourth layer alone.
* `weights`: all layers alike, the lower ones more (n, n - 1, …, 1), or the higher ones.
* `embeddings=true`: the token embeddings are one layer more.
* `share`: which part of what a product of attention and values passes on goes to the attention, and through its softmax
  to queries and keys: 0 is the book `conservative`, 0.5 the book `attn`.

The summary says of every variant how it compares with `layer_lrp(depth=0.5)`, paired, and how far it is behind the best
in its worst case; of the best that is 0, of a random order 100.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor

from benchmarks.tables.layered import compared, worst_cases
from benchmarks.tables.shared import RUNS, Run, journals_of, parser_of, source, tables_of
from whyformer import method
from whyformer.datasets import Example, open_dataset
from whyformer.evaluation.evaluate import evaluate
from whyformer.methods.specs import method_specs
from whyformer.models.loading import load
from whyformer.prediction import Prediction
from whyformer.recorder import RELEVANCE, Book
from whyformer.recorder.lrp.books import ATTN, CONSERVATIVE
from whyformer.recorder.lrp.sites import Finish, Site

METRICS = "aopc,comprehensiveness,sufficiency,log_odds"
BASE = "layer_lrp(depth=0.5)"  # where the search began; the default is what it found
REFERENCES = ("random", "attn_lrp", "cp_lrp", BASE)
KIN = tuple(f"{name}book=conservative)" for name in ("cat(states=inputs, ", "attcat(states=inputs, ", "full_grad("))
VARIANTS = (
    *(f"layered(count={count})" for count in (1, 2, 4, 5, 6)),
    *(f"layered(start={start}, count=1)" for start in (1, 2, 3, 4, 5)),
    *("layered(start=1, count=2)", "layered(start=1, count=3)"),
    *("layered(weights=falling)", "layered(weights=rising)"),
    *("layered(count=6, weights=falling)", "layered(count=4, weights=rising)"),
    *("layered(embeddings=true)", "layered(count=2, embeddings=true)", "layered(count=4, embeddings=true)"),
    *(f"layered(share={share})" for share in (0.05, 0.1, 0.2, 0.3, 0.5)),
    *("layered(count=2, share=0.1)", "layered(count=4, share=0.1)", "layered(count=4, share=0.2)"),
)
METHODS = ",".join((*REFERENCES, *VARIANTS, *KIN))


@dataclass(frozen=True)
class Tuning:
    """The rows that one data set is searched on: from a row on, of so many words at least."""

    run: Run
    start: int = 0
    words: int = 0


TUNING = {
    "sst2": Tuning(replace(RUNS["sst2"], split="train"), words=10),
    "mnli": Tuning(RUNS["mnli"], start=5000),
    "qqp": Tuning(Run("QQP", "qqp", "qqp", None), start=3000),
}


@method(family="relevance", signed=True, class_specific=True, paper="–", needs=RELEVANCE)
def layered(
    prediction: Prediction,
    *,
    start: int = 0,
    count: int = 3,
    weights: Literal["even", "falling", "rising"] = "even",
    embeddings: bool = False,
    share: float = 0.0,
) -> Tensor:
    """The relevance of each unit at the inputs of some layers, weighted."""
    book, last = shared_book(share), start + count
    products = zip(prediction.hidden[start:last], prediction.gradients(book).hidden[start:last], strict=True)
    places = [(state * gradient).sum(-1) for state, gradient in products]
    if embeddings:
        places = [prediction.token_relevances(book).sum(-1), *places]
    n = len(places)
    by_place = {"even": [1.0] * n, "falling": [float(n - i) for i in range(n)], "rising": [i + 1.0 for i in range(n)]}
    return torch.stack([weight * place for weight, place in zip(by_place[weights], places, strict=True)])


@cache
def shared_book(share: float) -> Book:
    """The book between `conservative` and `attn` in which attention gets a share of what its products pass on."""
    if not share:
        return CONSERVATIVE

    def split(site: Site, gradient: Tensor) -> tuple[Tensor, Finish]:
        return gradient, lambda position, sent: sent * (1 - share if position else share)

    return replace(ATTN, name=f"attn({share:g})", rules={**ATTN.rules, "attend": split})


def examples_of(folder: Path, tuning: Tuning, words: int) -> Iterator[Example]:
    """The rows of a search, without end."""
    path, split = source(folder, tuning.run)
    for example in islice(open_dataset(path, split=split, on_error="skip"), tuning.start, None):
        if isinstance(example.text, tuple) or len(example.text.split()) >= words:
            yield example


def search(name: str, chosen: argparse.Namespace) -> None:
    """Measure every variant on the rows of one data set."""
    tuning = TUNING[name]
    words = tuning.words if chosen.words is None else chosen.words
    rows = [example.text for example in islice(examples_of(chosen.data, tuning, words), chosen.limit)]
    if not rows:
        raise SystemExit(f"{chosen.data} has no {tuning.run.data} from row {tuning.start} on")
    subject = load(chosen.models / tuning.run.model, device=chosen.device, dtype="float32")
    columns = [{"text": t} if isinstance(t, str) else {"premise": t[0], "hypothesis": t[1]} for t in rows]
    begun = time.perf_counter()
    table = evaluate(subject, columns, chosen.methods, METRICS, out=chosen.out / name)
    print(f"## {name}: {time.perf_counter() - begun:.0f} s on {subject.device}\n\n{table.to_markdown()}", flush=True)


def summarise(out: Path) -> Iterator[str]:
    """Every variant beside `layer_lrp`, on each data set, and its worst case over all of them."""
    tables = tables_of(journals_of(out, TUNING))
    for name, table in tables.items():
        n = max(cell.n for other in table.methods if (cell := table[other, "aopc"]))
        yield f"## {TUNING[name].run.title}, {n} rows\n\n{compared(table, method_specs([BASE])[0].label)}"
    yield f"## The worst case\n\n{worst_cases({TUNING[name].run.title: table for name, table in tables.items()})}"


def main() -> None:
    """Search on the data sets that were asked for, or summarise what was measured."""
    parser = parser_of(__doc__, TUNING)
    parser.add_argument("--limit", type=int, default=300, help="how many rows of each")
    parser.add_argument("--words", type=int, help="the fewest words of a sentence")
    parser.add_argument("--methods", default=METHODS)
    chosen = parser.parse_args()
    for name in () if chosen.summary else chosen.only.split(","):
        search(name, chosen)
    if chosen.summary:
        print("\n\n".join(summarise(chosen.out)))


if __name__ == "__main__":
    main()
