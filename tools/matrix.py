"""Which architectures are explained by which methods.

    python tools/matrix.py                   # all of them; writes docs/architectures.md and its page by task
    python tools/matrix.py bert llama        # some, printed only
    python tools/matrix.py --head multiple   # one head, printed only
    python tools/matrix.py --keep FILE       # rows are kept there, and a run that was stopped goes on

Every architecture for which transformers has a sequence classifier is built tiny, with random weights, in float64
(CANINE in float32: its mask is NaN in double precision), and explained by every method. A row holds what was found:

* the logits of the recorded run beside those of the stock model;
* which methods give scores, and for the others the error;
* the sum of relevance under `z_plus`, which should be 1;
* how far the scores of an example in a padded batch are from those of the example alone, where the stock model's own
  logits are the same in both.

So are image classifiers. The other heads (token classification, language models, multiple choice, question answering)
are explained by the methods that need one run of the model.
"""

import argparse
import importlib.metadata
import json
import logging
import sys
import warnings
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[1])

import torch
from torch import Tensor
from transformers import PreTrainedModel

import whyformer
from tests.helpers import zoo
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import Method
from whyformer.prediction import Prediction
from whyformer.recorder import Layers
from whyformer.tasks import task_of
from whyformer.tolerance import ROUNDING, arithmetic, distance

PAGE = Path(__file__).parents[1] / "docs" / "architectures.md"
PAGE_BY_TASK = PAGE.with_name("architectures_by_task.md")
POSITION = 3  # that is explained where there is an output for each
LABEL = 1
TARGETS: dict[zoo.Head, Any] = {  # what is explained of each example; of causal models the last position
    zoo.SEQUENCE: LABEL,
    zoo.TOKEN: (LABEL, POSITION),
    zoo.MASKED: (LABEL, POSITION),
    zoo.CHOICE: 0,  # the one logit of each row
    zoo.ANSWER: (LABEL, POSITION),
    zoo.IMAGE: LABEL,
}
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

AMPLIFIED = 10  # times the rounding of a model, as `lrp` may make of it
OPENED = ("supported", "tokens", "patches")
FLOAT32 = (  # what the mark of `_batch` means
    "*(float32)*: the model itself takes softmaxes or norms in float32, whatever the type of its weights. Its own",
    "logits move by that rounding when padding makes a sum longer (how far depends on the machine); `lrp`, whose",
    "denominators cancel, multiplies it.",
)
BY_ALL = (zoo.SEQUENCE.name, zoo.IMAGE.name)  # heads that are explained by every method, not by those of one run alone


@dataclass
class Row:
    """What was found for one architecture."""

    name: str
    head: str = zoo.SEQUENCE.name
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
    failed: str = ""  # an error without a name of ours: a bug

    @property
    def verdict(self) -> str:
        """In one word."""
        if self.failed:
            return "failed"
        if self.built:
            return "not built"
        if self.layers:
            tried = set(TOKEN_METHODS) if self.head in BY_ALL else set(TOKEN_METHODS) - set(PERTURBING)
            opened = "patches" if self.head == zoo.IMAGE.name else "tokens"
            return opened if tried - set(self.refused) - {"random"} else "refused"
        return "supported"


def look(name: str, head: zoo.Head = zoo.SEQUENCE) -> Row:
    """Build one architecture and explain it: a sequence classifier by every method, others by those of one run."""
    build = zoo.build if head is zoo.SEQUENCE else zoo.build_for
    try:
        model = build(name, head=head)
    except zoo.NotBuildable as reason:
        return Row(name, head.name, built=str(reason))
    row = explained(name, model, None, head)
    if row.layers and model.config._attn_implementation != "eager":
        try:
            again = explained(name, build(name, attention="eager", head=head), "eager", head)
        except (whyformer.WhyformerError, zoo.NotBuildable):  # NaN in transformers' own eager attention
            return row
        row = row if again.layers else again
    return row


def methods_for(head: zoo.Head) -> dict[str, Method]:
    """The methods by which a head is explained here."""
    methods = {n: m for n, m in whyformer.list_methods().items() if head is zoo.IMAGE or not m.images_only}
    return {name: m for name, m in methods.items() if head.name in BY_ALL or m.passes == "one"}


def explained(name: str, model: PreTrainedModel, attention: str | None, head: zoo.Head = zoo.SEQUENCE) -> Row:
    """Explain a model by the methods of its head."""
    inputs = zoo.batch(model, head=head)
    rounding = ROUNDING[arithmetic(lambda: model(**inputs))]
    row = Row(name, head.name, attention=attention, rounding=rounding)
    methods = methods_for(head)
    try:
        prediction = Prediction(model, batch_of(model, inputs), target_of(model, head), relevance=True)
        _ = prediction.trace
        with torch.no_grad():
            stock = _logits(model(**inputs))
        row.logits = distance(prediction.trace.logits.detach().flatten(), stock.flatten())
    except whyformer.WhyformerError as error:
        row.layers = str(error)
        row.refused = dict.fromkeys(methods, f"{type(error).__name__}: {error}")
        return row
    layers = prediction.trace.layers
    row.layers = "" if isinstance(layers, Layers) else str(layers)
    scores = {}
    for method, run in methods.items():
        try:
            scores[method] = run(prediction, **OPTIONS.get(method, {})).total
        except whyformer.errors.MissingExtra:
            row.absent.append(method)
        except whyformer.WhyformerError as error:
            row.refused[method] = f"{type(error).__name__}: {error}"
    if not row.layers and "lrp" not in row.refused:
        arrived = prediction.embedding_relevances("z_plus").flatten(1).sum(1)
        absorbed = prediction.relevances("z_plus").absorbed
        row.conservation = float((arrived + absorbed - 1).abs().max())
        row.absorbed = float(absorbed.abs().max())
    again = zoo.build(name, attention=attention, head=head)
    row.invariance = invariance(again, inputs, stock, scores, rounding, head)
    return row


def invariance(
    model: PreTrainedModel,
    inputs: dict[str, Tensor],
    stock: Tensor,
    scores: dict[str, Tensor],
    rounding: float,
    head: zoo.Head,
) -> float | None:
    """The largest distance between an example's scores in the batch and alone; None if its logits differ already."""
    single = zoo.alone(inputs, 1)
    with torch.no_grad():
        logits = _logits(model(**single))[0]
    together = stock[1][tuple(slice(size) for size in logits.shape)]
    if distance(logits, together) > rounding:  # transformers itself depends on the batch
        return None
    prediction = Prediction(model, batch_of(model, single), target_of(model, head), relevance=True)
    worst = 0.0
    for method, batched in scores.items():
        alone = whyformer.list_methods()[method](prediction, **OPTIONS.get(method, {})).total
        rows, width = alone.shape  # as many rows as choices
        worst = max(worst, distance(batched[rows : 2 * rows, :width], alone))
    return worst


def target_of(model: PreTrainedModel, head: zoo.Head) -> Any:
    """What is explained; XLM's class has two heads, and its task is that of the masked one."""
    last = head is zoo.CAUSAL and getattr(task_of(model), "causal", False)
    return LABEL if last else (LABEL, POSITION) if head is zoo.CAUSAL else TARGETS[head]


def _logits(output: Any) -> Tensor:
    """What the stock model returned; an answer's two rows as one tensor."""
    if hasattr(output, "start_logits"):
        return torch.stack((output.start_logits, output.end_logits), 1)
    logits: Tensor = output.logits
    return logits


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
        f"Made by `make docs` with transformers {versions['transformers']} and torch {versions['torch']}: a tiny",
        f"random model of each of the {len(rows)} architectures for which transformers has a sequence classifier, in",
        f"float64 (`canine` in float32), explained by each of the {len(methods_for(zoo.SEQUENCE))} methods of texts.",
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
        *FLOAT32,
        "",
        "## Supported",
        "",
        "| architecture | logits | sum | batch | not defined |",
        "|---|---|---|---|---|",
        *(_line(r, _number(r.logits), _number(r.conservation), _batch(r), _refusals(r)) for r in supported),
        "",
        "## By their tokens",
        "",
        "| architecture | logits | batch | gives | why no layers | further refusals |",
        "|---|---|---|---|---|---|",
        *(_line(r, _number(r.logits), _batch(r), _given(r), _short(r.layers), _refusals(r)) for r in tokens),
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


def page_by_task(rows: list[Row]) -> str:
    """The document of the other heads."""
    versions = {package: importlib.metadata.version(package) for package in ("torch", "transformers")}
    one_pass = methods_for(zoo.TOKEN)
    parts = [
        "# Architectures by task",
        "",
        f"Made by `make docs` with transformers {versions['transformers']} and torch {versions['torch']}, as",
        "[architectures.md](architectures.md), whose words it uses, for tasks other than sequence classification: a",
        f"tiny random model of each architecture, explained by each of the {len(one_pass)} methods that need one",
        f"run of the model, in float64 ({', '.join(f'`{name}`' for name in sorted(zoo.SINGLE))} in float32);",
        f"image classifiers by all {len(whyformer.list_methods())} methods.",
        "*Opened* is what is supported, or explained by its tokens or the patches of its images; every refusal is a",
        "named error.",
        "",
        *FLOAT32,
        "",
        "| task | architectures | opened | by all methods | refused | not built |",
        "|---|---|---|---|---|---|",
    ]
    sections = []
    for head in zoo.HEADS[1:]:
        of_head = [row for row in rows if row.head == head.name]
        if not of_head:
            continue
        opened = [row for row in of_head if row.verdict in OPENED]
        whole = [row for row in opened if not row.refused and not _varies(row)]
        refused = [row for row in of_head if row.verdict in ("refused", "failed")]
        not_built = [row for row in of_head if row.verdict == "not built"]
        counts = " | ".join(str(len(group)) for group in (of_head, opened, whole, refused, not_built))
        parts.append(f"| [{head.name}](#{head.name.replace(' ', '-')}) | {counts} |")
        sections += [
            "",
            f"## {head.name.capitalize()}",
            "",
            f"All methods: {', '.join(_name(row) for row in whole)}.",
            "",
            "| architecture | verdict | not defined, or why |",
            "|---|---|---|",
            *(_line(row, row.verdict, _why(row)) for row in of_head if row not in whole),
        ]
    return "\n".join([*parts, *sections, ""])


def _why(row: Row) -> str:
    if row.failed or row.built:
        return row.failed or row.built.replace("|", "\\|")
    if row.verdict == "refused":
        return _short(row.refused["input_x_gradient"])
    batch = f"scores depend on the batch: {_batch(row)}" if _varies(row) else ""
    others = f"gives {_given(row)}" if row.verdict == "patches" else _refusals(row)
    return "; ".join(reason for reason in (_short(row.layers), others, batch) if reason)


def _varies(row: Row) -> bool:
    return row.invariance is not None and row.invariance > row.rounding


def _number(value: float | None) -> str:
    return "–" if value is None else "0" if value == 0 else f"{value:.0e}"


def _batch(row: Row) -> str:
    """How far scores move with the batch, marked where that is rounding of a model that computes in float32."""
    finest = ROUNDING[torch.float64]
    rounded = row.invariance is not None and finest < row.invariance < AMPLIFIED * row.rounding
    return _number(row.invariance) + (" (float32)" if rounded and row.rounding > finest else "")


def _name(row: Row) -> str:
    how = f' (`attn_implementation="{row.attention}"`)' if row.attention else ""
    return f"`{row.name}`{how}"


def _line(row: Row, *cells: str) -> str:
    return f"| {_name(row)} | {' | '.join(cells)} |"


def _given(row: Row) -> str:
    tried = whyformer.list_methods() if row.head == zoo.IMAGE.name else TOKEN_METHODS
    return ", ".join(f"`{m}`" for m in tried if m not in row.refused)


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


def kept(path: Path | None) -> dict[tuple[str, str], Row]:
    """The rows of an earlier run, by head and name."""
    if path is None or not path.exists():
        return {}
    rows = [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(row.head, row.name): row for row in rows}


def looked_at(names: list[str], heads: list[zoo.Head], keep: Path | None) -> list[Row]:
    """The rows of all architectures, or of some."""
    known = kept(keep)
    wanted = [(head, name) for head in heads for name in zoo.names(head) if not names or name in names]
    for number, (head, name) in enumerate(wanted, 1):
        if (head.name, name) in known:
            continue
        try:
            row = look(name, head)
        except Exception as error:  # noqa: BLE001 (a bug in one architecture is a row, and the others go on)
            row = Row(name, head.name, failed=f"{type(error).__name__}: {error}")
        known[head.name, name] = row
        print(f"{number}/{len(wanted)} {head.name}, {name}: {row.verdict} {row.failed}", file=sys.stderr, flush=True)
        if keep is not None:
            with keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    return [known[head.name, name] for head, name in wanted]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="some architectures, to be printed")
    parser.add_argument("--head", default="", help="the beginning of a head's name, to be printed")
    parser.add_argument(
        "--keep", type=Path, help="where rows are kept, one in each line; those that are there are not run"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    heads = [head for head in zoo.HEADS if head.name.startswith(arguments.head)]
    rows = looked_at(arguments.names, heads, arguments.keep)
    absent = {method for row in rows for method in row.absent}
    if absent:
        sys.exit(f"packages are missing for {', '.join(sorted(absent))}: install them first")
    classifiers = [row for row in rows if row.head == zoo.SEQUENCE.name]
    if arguments.names or arguments.head:
        print(page(classifiers) + page_by_task(rows))
        return
    PAGE.write_text(page(classifiers), encoding="utf-8")
    PAGE_BY_TASK.write_text(page_by_task(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
