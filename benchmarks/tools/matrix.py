"""Which architectures are explained by which methods.

    python benchmarks/tools/matrix.py                   # all of them; writes docs/architectures.md
    python benchmarks/tools/matrix.py bert llama        # some, printed only

Every architecture for which transformers has a sequence classifier is built tiny, with random weights, in float64
(CANINE in float32: its mask is NaN in double precision), and explained by every method. A row holds what was found:

* the logits of the recorded run beside those of the stock model;
* which methods give scores, and for the others the error;
* the sum of relevance under `z_plus`, which should be 1;
* how far the scores of an example in a padded batch are from those of the example alone, where the stock model's own
  logits are the same in both.
"""

import argparse
import importlib.metadata
import logging
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor
from transformers import PreTrainedModel

import whyformer
from tests.helpers import zoo
from whyformer.inputs.encoding import batch_of
from whyformer.prediction import Prediction
from whyformer.recorder import Layers
from whyformer.rounding import ROUNDING, arithmetic, distance

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
OPTIONS: dict[str, dict[str, Any]] = {
    "smooth_grad": {"samples": 2},
    "mask_lrp": {"head_mask": "random", "rate": 0.5},
    "cam": {"layer": 0},  # in two layers that begin with a norm, products above the first cancel: docs/methods.md
    "cat": {"states": "inputs"},
    "attcat": {"states": "inputs"},
    "decoded_grad_cam": {"decode": False, "layer": 0},  # which families have an LM head: docs/decoded.md
    "integrated_gradients": {"steps": 2, "baseline": "zero"},  # some have no padding token
    "gradient_shap": {"samples": 2, "baseline": "zero"},
    "deep_lift_shap": {"baseline": "zero"},
    "occlusion": {"baseline": "zero"},
    "lime": {"samples": 4, "baseline": "zero"},
    "shapley_value_sampling": {"samples": 1, "baseline": "zero"},
    "kernel_shap": {"samples": 4, "baseline": "zero"},
    "stepwise": {"steps": 2, "of": "saliency"},
}
PERTURBING = ("integrated_gradients", "kernel_shap", "lime", "occlusion", "shapley_value_sampling")
TOKEN_METHODS = ("attn_lrp", "cp_lrp", "input_x_gradient", "random", *PERTURBING)  # these need no layers


@dataclass
class Row:
    """What was found for one architecture."""

    name: str
    built: str = ""  # why not, if it was not
    rounding: float = 0.0  # of the coarsest dtype in which the model computes
    attention: str | None = None  # an implementation that is not the default, if it was needed
    layers: str = ""  # why there are none, if there are none
    logits: float = 0.0  # distance from the stock model's, relative to the largest
    refused: dict[str, str] = field(default_factory=dict)  # method -> error
    absent: list[str] = field(default_factory=list)  # methods whose package is not installed
    conservation: float | None = None  # distance of the sum of relevance from 1
    absorbed: float = 0.0
    invariance: float | None = None  # distance between batch and alone, relative to the peak

    @property
    def verdict(self) -> str:
        """In one word."""
        if self.built:
            return "not built"
        if self.layers:
            return "tokens" if set(TOKEN_METHODS) - set(self.refused) - {"random"} else "refused"
        return "supported"


def look(name: str) -> Row:
    """Build one architecture and explain it by every method."""
    try:
        model = zoo.build(name)
    except zoo.NotBuildable as reason:
        return Row(name, built=str(reason))
    row = explained(name, model, None)
    if row.layers and model.config._attn_implementation != "eager":
        try:
            again = explained(name, zoo.build(name, attention="eager"), "eager")
        except whyformer.WhyformerError:  # NaN in transformers' own eager attention
            return row
        row = row if again.layers else again
    return row


def explained(name: str, model: PreTrainedModel, attention: str | None) -> Row:
    """Explain a model by every method."""
    inputs = zoo.batch(model)
    with torch.no_grad():
        stock = model(**inputs).logits
    rounding = ROUNDING[arithmetic(lambda: model(**inputs))]
    prediction = Prediction(model, batch_of(model, inputs), 1, relevance=True)
    row = Row(name, attention=attention, rounding=rounding)
    try:
        row.logits = distance(prediction.trace.logits.detach(), stock)
    except whyformer.WhyformerError as error:
        row.layers = str(error)
        row.refused = dict.fromkeys(whyformer.list_methods(), f"{type(error).__name__}: {error}")
        return row
    layers = prediction.trace.layers
    row.layers = "" if isinstance(layers, Layers) else str(layers)
    scores = {}
    for method, run in whyformer.list_methods().items():
        try:
            scores[method] = run(prediction, **OPTIONS.get(method, {})).total
        except whyformer.errors.MissingExtra:
            row.absent.append(method)
        except whyformer.WhyformerError as error:
            row.refused[method] = f"{type(error).__name__}: {error}"
    if not row.layers:
        arrived = prediction.embedding_relevances("z_plus").flatten(1).sum(1)
        absorbed = prediction.relevances("z_plus").absorbed
        row.conservation = float((arrived + absorbed - 1).abs().max())
        row.absorbed = float(absorbed.abs().max())
    row.invariance = invariance(zoo.build(name, attention=attention), inputs, stock, scores, rounding)
    return row


def invariance(
    model: PreTrainedModel, inputs: dict[str, Tensor], stock: Tensor, scores: dict[str, Tensor], rounding: float
) -> float | None:
    """The largest distance between an example's scores in the batch and alone; None if its logits differ already."""
    single = zoo.alone(inputs, 1)
    with torch.no_grad():
        if distance(model(**single).logits[0], stock[1]) > rounding:  # transformers itself depends on the batch
            return None
    prediction = Prediction(model, batch_of(model, single), 1, relevance=True)
    worst = 0.0
    for method, batched in scores.items():
        alone = whyformer.list_methods()[method](prediction, **OPTIONS.get(method, {})).total[0]
        worst = max(worst, distance(batched[1, : len(alone)], alone))
    return worst


def page(rows: list[Row]) -> str:
    """The document."""
    versions = {package: importlib.metadata.version(package) for package in ("torch", "transformers")}
    by_verdict = defaultdict(list)
    for row in rows:
        by_verdict[row.verdict].append(row)
    supported, tokens = by_verdict["supported"], by_verdict["tokens"]
    whole = sum(not row.refused for row in supported)
    given = ", ".join(f"`{method}`" for method in TOKEN_METHODS)
    refused, not_built = by_verdict["refused"], by_verdict["not built"]
    parts = [
        "# Architectures",
        "",
        f"Made by `make matrix` with transformers {versions['transformers']} and torch {versions['torch']}: a tiny",
        f"random model of each of the {len(rows)} architectures for which transformers has a sequence classifier, in",
        f"float64 (`canine` in float32), explained by each of the {len(whyformer.list_methods())} methods.",
        "",
        f"* **{len(supported)} supported**: every method that is defined for them; {whole} of them all methods. The",
        "  table names those that are not defined, and why.",
        f"* **{len(tokens)} by their tokens**: they have no single stack of attention layers (encoder and decoder,",
        "  Mamba layers, several maps per layer …), so the methods that are made of attention maps or hidden states",
        f"  are not defined. Defined are {given}.",
        f"* **{len(refused)} refused** with a named error, and **{len(not_built)} not built** here.",
        "",
        "*logits*: distance of the recorded run from the stock model. *sum*: distance of relevance at the embedding",
        "output, plus what parameters absorbed, from 1 (`z_plus`). *batch*: the largest distance of any method's",
        "scores between an example in a padded batch and alone; – where transformers' own logits depend on the batch.",
        "All relative to the peak.",
        "",
        "## Supported",
        "",
        "| architecture | logits | sum | batch | not defined |",
        "|---|---|---|---|---|",
        *(_line(r, _number(r.logits), _number(r.conservation), _number(r.invariance), _refusals(r)) for r in supported),
        "",
        "## By their tokens",
        "",
        "| architecture | logits | batch | gives | why no layers | further refusals |",
        "|---|---|---|---|---|---|",
        *(
            _line(r, _number(r.logits), _number(r.invariance), _given(r), _short(r.layers), _refusals(r))
            for r in tokens
        ),
        "",
        "## Refused, or not built",
        "",
        "| architecture | why |",
        "|---|---|",
        *(_line(r, _short(r.refused["input_x_gradient"])) for r in refused),
        *(_line(r, f"not built: {r.built}") for r in not_built),
        "",
    ]
    return "\n".join(parts)


def _number(value: float | None) -> str:
    return "–" if value is None else "0" if value == 0 else f"{value:.0e}"


def _line(row: Row, *cells: str) -> str:
    how = f' (`attn_implementation="{row.attention}"`)' if row.attention else ""
    return f"| `{row.name}`{how} | {' | '.join(cells)} |"


def _given(row: Row) -> str:
    return ", ".join(f"`{m}`" for m in TOKEN_METHODS if m not in row.refused)


def _refusals(row: Row) -> str:
    """The methods by reason; for a model without layers, those that do not follow from that."""
    by_reason = defaultdict(list)
    for method, reason in row.refused.items():
        if not row.layers or method in TOKEN_METHODS:
            by_reason[_short(reason)].append(f"`{method}`")
    return "; ".join(f"{', '.join(methods)}: {reason}" for reason, methods in by_reason.items())


def _short(reason: str) -> str:
    """The first clause, without what is the same everywhere."""
    for said in ("UnsupportedModel: ", "NoAttention: "):
        reason = reason.removeprefix(said)
    reason = reason.split(". If it")[0].split(", so ")[0].split("; ")[0]
    return reason.replace("|", "\\|")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="some architectures, to be printed")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    rows = []
    names = arguments.names or zoo.names()
    for number, name in enumerate(names, 1):
        row = look(name)
        rows.append(row)
        print(f"{number}/{len(names)} {name}: {row.verdict}", file=sys.stderr)
    if rows[0].absent:
        sys.exit(f"packages are missing for {', '.join(rows[0].absent)}: install them first")
    if arguments.names:
        print(page(rows))
    else:
        PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
