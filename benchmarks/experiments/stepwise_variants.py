"""Whether something does better than `stepwise` at equal cost: relevance of several layers, uneven steps, candidates.

    python benchmarks/experiments/stepwise_variants.py --model MODEL --texts FILE --rows 0,1000 --words 10 --limit 150
    python benchmarks/experiments/stepwise_variants.py --model MODEL --texts FILE --rows 400,500 --variants NAME NAME

Variants, each as a method of its own, and beside each what costs about the same. With a forward pass f on the whole
text and a backward pass of 2 f, one pass costs 3 f and n steps (n + 1) / 2 · 3 f, because inputs shrink.

* `layers(book, first)`: the relevance of `attn_lrp` (`book=attn`) or `cp_lrp` (`book=conservative`) at the inputs of
  the first layers, added up, in place of that at the token embeddings; the cost is the same.
* `uneven(steps, power)`: after step j, (j / steps) ** power of the units are gone: small steps first. Inputs shrink
  later: 10 steps with the power 1.5 cost as much as 12 even ones, with the power 2 as much as 13.
* `candidates(steps, by=books)`: in each step `attn_lrp` and `cp_lrp` each propose what to hide, both are tried, and the
  one after which the probability is lower is kept. A step costs 7 f: two backward passes, two texts tried without a
  graph, one forward pass for the next explanation.
* `candidates(steps, by=places)`: the proposals come from one backward pass, at the token embeddings, at the embedding
  output, and summed over the inputs of the first three layers: 6 f a step, three of them for texts that are tried.

Texts as in stepwise_check.py; `--words` leaves shorter ones out. Differences are paired, intervals are 95 % of a
bootstrap.
"""

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])


import torch
from torch import Tensor

import whyformer
from benchmarks.texts import texts_of
from whyformer import method
from whyformer.methods.registry import method_named
from whyformer.methods.specs import method_specs
from whyformer.perturb import Hideable, hide_named, hideable, remains
from whyformer.prediction import Prediction
from whyformer.recorder import RELEVANCE, Needs

VARIANTS = {  # each beside what it has to beat
    "attn_lrp": "attn_lrp",
    "layers(first=1)": "attn_lrp",
    "layers(first=2)": "attn_lrp",
    "layers(first=3)": "attn_lrp",
    "cp_lrp": "attn_lrp",
    "layers(book=conservative, first=1)": "cp_lrp",
    "layers(book=conservative, first=3)": "cp_lrp",
    "stepwise(of=attn_lrp, steps=3)": "attn_lrp",
    "stepwise(of=layers(first=1), steps=3)": "stepwise(of=attn_lrp, steps=3)",
    "stepwise(of=layers(first=3), steps=3)": "stepwise(of=attn_lrp, steps=3)",
    "stepwise(of=layers(book=conservative, first=3), steps=3)": "stepwise(of=attn_lrp, steps=3)",
    "stepwise(of=attn_lrp, steps=4)": "stepwise(of=attn_lrp, steps=3)",
    "uneven(power=2.0, steps=3)": "stepwise(of=attn_lrp, steps=4)",
    "stepwise(of=attn_lrp, steps=7)": "stepwise(of=attn_lrp, steps=3)",
    "candidates(by=places, steps=3)": "stepwise(of=attn_lrp, steps=7)",
    "stepwise(of=attn_lrp, steps=8)": "stepwise(of=attn_lrp, steps=3)",
    "candidates(by=books, steps=3)": "stepwise(of=attn_lrp, steps=8)",
    "stepwise(of=attn_lrp, steps=10)": "attn_lrp",
    "stepwise(of=layers(first=1), steps=10)": "stepwise(of=attn_lrp, steps=10)",
    "stepwise(of=layers(first=3), steps=10)": "stepwise(of=attn_lrp, steps=10)",
    "stepwise(of=layers(book=conservative, first=3), steps=10)": "stepwise(of=attn_lrp, steps=10)",
    "stepwise(of=attn_lrp, steps=12)": "stepwise(of=attn_lrp, steps=10)",
    "uneven(power=1.5, steps=10)": "stepwise(of=attn_lrp, steps=12)",
    "stepwise(of=attn_lrp, steps=13)": "stepwise(of=attn_lrp, steps=10)",
    "uneven(power=2.0, steps=10)": "stepwise(of=attn_lrp, steps=13)",
    "candidates(by=books, steps=5)": "stepwise(of=attn_lrp, steps=13)",
    "candidates(by=places, steps=6)": "stepwise(of=attn_lrp, steps=13)",
}
METRICS = ("aopc", "aopc(hide=mask)")


@method(family="relevance", signed=True, class_specific=True, paper="-", needs=RELEVANCE)
def layers(prediction: Prediction, *, book: Literal["attn", "conservative"] = "attn", first: int = 0) -> Tensor:
    """Relevance at the inputs of the first layers, added up."""
    states = prediction.traced.hidden[:first]
    found = prediction.trace.relevance(states, book, prediction.target, prediction.versus)
    return torch.stack([relevances.sum(-1) for relevances in found])


def left_of(prediction: Prediction, texts: Sequence[Hideable], gone: Sequence[list[int]]) -> Prediction:
    """What remains once units are deleted."""
    places = [[p for unit in own for p in text.units[unit]] for text, own in zip(texts, gone, strict=True)]
    return remains(prediction, texts, places, hide_named("delete"), needs=Needs(sites=True))


def ranked(scores: Tensor, texts: Sequence[Hideable], gone: Sequence[list[int]]) -> list[list[int]]:
    """The units that are left of each text, strongest first."""
    found = []
    for row, text, own in zip(scores.double().cpu().tolist(), texts, gone, strict=True):
        away = {p for unit in own for p in text.units[unit]}
        by_place = dict(zip((p for p in range(len(text.input)) if p not in away), row, strict=False))
        rest = [unit for unit in range(len(text.units)) if unit not in own]
        found.append(sorted(rest, key=lambda unit: -sum(by_place[p] for p in text.units[unit])))
    return found


def ordered(prediction: Prediction, texts: Sequence[Hideable], orders: Sequence[list[int]]) -> Tensor:
    """Scores that have these orders."""
    scores = torch.zeros(prediction.padding.shape, dtype=torch.float64)
    for text, order in zip(texts, orders, strict=True):
        for rank, unit in enumerate(order):
            scores[text.number, text.positions[list(text.units[unit])]] = float(len(order) - rank)
    return scores.to(prediction.padding.device)


def shares(texts: Sequence[Hideable], steps: int, power: float) -> list[list[int]]:
    """How many units of each text are gone after each step."""
    return [[int(len(t.units) * (step / steps) ** power + 0.5) for step in range(1, steps + 1)] for t in texts]


@method(family="perturbation", signed=False, class_specific=True, paper="-", needs=RELEVANCE)
def uneven(prediction: Prediction, *, steps: int = 1, power: float = 1.0) -> Tensor:
    """Stepwise with small steps first."""
    texts = hideable(prediction, "token", hide_named("delete"))
    counts, current = shares(texts, steps, power), prediction
    gone: list[list[int]] = [[] for _ in texts]
    for step in range(steps):
        current = left_of(prediction, texts, gone) if step else prediction
        orders = ranked(method_named("attn_lrp")(current).total, texts, gone)
        gone = [own + order[: count[step] - len(own)] for own, order, count in zip(gone, orders, counts, strict=True)]
    return ordered(prediction, texts, gone)


@method(family="perturbation", signed=False, class_specific=True, paper="-", needs=RELEVANCE)
def candidates(prediction: Prediction, *, steps: int = 1, by: Literal["books", "places", "none"] = "none") -> Tensor:
    """Stepwise with several proposals in each step, of which the best is kept."""
    texts = hideable(prediction, "token", hide_named("delete"))
    counts, current = shares(texts, steps, 1.0), prediction
    gone: list[list[int]] = [[] for _ in texts]
    for step in range(steps):
        proposed = []
        for scores in _proposals(current, by):
            orders = ranked(scores, texts, gone)
            proposed.append([own + o[: c[step] - len(own)] for own, o, c in zip(gone, orders, counts, strict=True)])
        tried = [left_of(prediction, texts, way) for way in proposed]
        best = torch.stack([_probability(one) for one in tried]).argmin(0).tolist()
        gone = [proposed[way][n] for n, way in enumerate(best)]
        current = left_of(prediction, texts, gone)
    return ordered(prediction, texts, gone)


def _proposals(current: Prediction, by: str) -> list[Tensor]:
    if by == "books":
        return [method_named(of)(current).total for of in ("attn_lrp", "cp_lrp")]
    trace = current.traced
    assert trace.embeddings is not None
    places = (trace.embeddings, *trace.hidden[:3])
    found = [r.sum(-1) for r in trace.relevance(places, "attn", current.target, current.versus)]
    return [found[0], found[1], torch.stack(found[1:]).sum(0)]


def _probability(prediction: Prediction) -> Tensor:
    found = prediction.task.probabilities(prediction.trace.logits.detach())
    assert found is not None
    return found.gather(1, prediction.target[:, None].to(found.device)).squeeze(1).cpu()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder or a hub id")
    parser.add_argument("--texts", required=True, type=Path)
    parser.add_argument("--rows", default="0,100", help="from, to before")
    parser.add_argument("--words", type=int, default=0, help="the fewest words of a text")
    parser.add_argument("--limit", type=int, help="the first of these texts")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--out", help="a folder in which what was measured is kept")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    start, stop = (int(row) for row in arguments.rows.split(","))
    texts = [t for t in texts_of(arguments.texts, stop)[start:] if len(t.split()) >= arguments.words]
    texts = texts[: arguments.limit]
    explainer = whyformer.Explainer.load(arguments.model, device=arguments.device)
    named = [name for variant in arguments.variants for name in (VARIANTS[variant], variant)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts)])
        table = explainer.evaluate(path, list(dict.fromkeys(named)), metrics=list(METRICS), out=arguments.out)
    print(f"{len(texts)} texts of {arguments.texts.name}, rows {start} … {stop - 1}")
    print("| | beside | aopc | difference | aopc(hide=mask) | difference |\n|---|---|---|---|---|---|")
    for variant in arguments.variants:
        name, kin = (method_specs([written])[0].label for written in (variant, VARIANTS[variant]))
        cells = [f"`{name}`", f"`{kin}`" if kin != name else ""]
        for metric in table.metrics:
            cell, gap = table[name, metric], table.compare(metric, name, kin)
            assert cell is not None
            assert gap is not None
            told = f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
            cells += [f"{cell.mean:.3f}", told if kin != name else ""]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
