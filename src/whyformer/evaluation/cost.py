"""What methods cost on a model, before anyone pays for it: measured on short texts, extrapolated to long ones."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.errors import BadInput, BadOption, UnsupportedModel, WhyformerError, WhyformerWarning, listed, shown
from whyformer.evaluation.ladder import Budget, Call, Point, climb, cost_at, steps_to
from whyformer.inputs.encoding import Batch, Window, collate, encode, window_of
from whyformer.inputs.kinds import read
from whyformer.methods.specs import MethodSpec
from whyformer.models.borrow import borrowed, frozen, parameters_of
from whyformer.models.loading import Subject, input_embeddings
from whyformer.models.memory import free_memory
from whyformer.prediction import Prediction
from whyformer.progress import counting, listening, part
from whyformer.recorder import differentiating
from whyformer.recorder.captures import capturing
from whyformer.recorder.memory import check_fits, maps_estimate
from whyformer.results.cost import BACKWARD, FORWARD, STOCK, Cost, CostTableData
from whyformer.show.render import Shown, text_of
from whyformer.tasks import task_of
from whyformer.tasks.task import call_of, output_of, said_by

TOKENS = 512  # by default, if the model takes so many
SECONDS = 60.0  # in which everything is measured, by default
LONGEST = 86_400.0  # seconds
LARGEST_BATCH = 10_000
WORD = "film"  # which texts of any length are made of
PIXELS = 224  # a side, of an image that the model's own processor resizes


@dataclass(frozen=True)
class CostTable(Shown, CostTableData):
    """What methods cost on a model: time and peak memory at each number of tokens, or at a model's own size of images.

    `table["attcat", 512]` is one `Cost`; `fits` says whether there is memory for it.
    """

    def __repr__(self) -> str:
        methods = [name for name in self.names if name not in STOCK]
        what = "units of an image" if self.of_images else "tokens"
        return f"<CostTable of {listed(methods) or 'no method'}: {', '.join(map(str, self.units))} {what}>"

    def to_markdown(self) -> str:
        """A table for each number of tokens, and what a reader must know beside it."""
        return text_of(self, "markdown")

    def to_csv(self) -> str:
        """One line for each method and number of tokens, with every digit."""
        return text_of(self, "csv")


def measure_costs(
    subject: Subject,
    specs: Sequence[MethodSpec],
    *,
    tokens: int | Sequence[int] | None = None,
    batch: int = 1,
    seconds: float = SECONDS,
) -> CostTable:
    """Time and memory of methods on a model, beside the stock model's own forward, and forward with backward.

    Texts of at most 256 tokens are run; what longer ones take is extrapolated from those. `tokens` is by default 512,
    or what the model takes if that is less; images have the model's own size. All is to be measured within `seconds`;
    a method whose shortest text takes longer than its part of them is run on that alone.
    """
    batch, seconds = _checked_size(batch), _checked_time(seconds)
    asked = _image_sizes(subject, tokens) if subject.takes_images else _checked_tokens(subject, tokens)
    lengths = asked if subject.takes_images else steps_to(asked)
    name = type(subject.model).__name__
    check_fits(maps_estimate(subject.model, batch, lengths[0], 1), subject.device, f"{name} on a batch of {batch}")
    batches = cache(partial(_batch, subject, batch))
    batches(lengths[0])  # raises if so few tokens are no text
    workloads = {FORWARD: partial(_forward, subject.model), BACKWARD: partial(_backward, subject.model)}
    workloads |= {spec.label: partial(_explained, subject.model, spec) for spec in specs}
    free = free_memory(subject.device)
    with capturing(False):  # what is paid the first time
        costs, refused = _measured(subject, workloads, batches, lengths, asked, seconds, free)
    return CostTable(tuple(costs), tuple(refused), batch, free, seconds, subject.takes_images, _facts(subject))


def _measured(
    subject: Subject,
    workloads: Mapping[str, Callable[[Batch], object]],
    batches: Callable[[int], Batch],
    lengths: Sequence[int],
    asked: Sequence[int],
    seconds: float,
    free: int | None,
) -> tuple[list[Cost], list[tuple[str, str]]]:
    """The costs of all workloads, and those that were refused with the reason."""
    costs: list[Cost] = []
    refused: list[tuple[str, str]] = []
    budget = Budget(seconds, len(workloads))
    weights = [*subject.model.parameters(), *subject.model.buffers()]

    def prepared(work: Callable[[Batch], object], units: int) -> Call:
        return partial(_silently, work, batches(units))

    def points_of(work: Callable[[Batch], object]) -> list[Point]:
        known = [*weights, *(tensor for units in lengths for tensor in batches(units).tensors.values())]
        return climb(partial(prepared, work), lengths, budget.begin(), subject.device, known, free)

    with counting("cost"):
        for number, (name, work) in enumerate(workloads.items()):
            try:
                with part(number, len(workloads)):
                    points = points_of(work)
            except WhyformerError as error:
                refused.append((name, str(error)))
            except torch.OutOfMemoryError:
                refused.append((name, f"out of memory at {lengths[0]} units"))
            else:
                costs += [cost_at(name, units, points) for units in asked]
    return costs, refused


def _silently(work: Callable[[Batch], object], batch: Batch) -> None:
    """One run of a workload: what it warns of, and how far it is, is not what is asked here."""
    with listening(None), warnings.catch_warnings():
        warnings.simplefilter("ignore", WhyformerWarning)
        work(batch)


def _explained(model: nn.Module, spec: MethodSpec, batch: Batch) -> Tensor:
    """An explanation of what the model says, run anew; of a model that says something at every token, at the last."""
    run = Prediction(model, batch, needs=replace(spec.needs, last=True))
    named = run.task.form == "token" and not run.task.causal
    target = (0, run.padding.shape[1] - 1) if named else None
    return spec(run.towards(target, run.outputs.explained(None, None))).total


def _forward(model: nn.Module, batch: Batch) -> Any:
    """The stock model without gradients."""
    with torch.no_grad(), borrowed(model, batch.tensors) as (lent, arguments):
        return call_of(lent, arguments | _behind_the_last(lent))()


def _behind_the_last(model: nn.Module) -> dict[str, int]:
    """Of a language model, the logits behind the last token are asked for alone, as methods do."""
    return {"logits_to_keep": 1} if "logits_to_keep" in parameters_of(model) else {}


def _backward(model: nn.Module, batch: Batch) -> Tensor:
    """The stock model, and the gradient of its highest outputs at the embeddings, or at the pixels of images."""
    leaves: list[Tensor] = []

    def leaf(tensor: Tensor) -> Tensor:
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1]

    with differentiating(), borrowed(model, batch.tensors) as (lent, arguments), frozen(lent):
        hook = None
        if "pixel_values" in arguments:
            arguments["pixel_values"] = leaf(arguments["pixel_values"])
        elif isinstance(embeddings := input_embeddings(lent), nn.Module):
            hook = embeddings.register_forward_hook(lambda module, taken, made: leaf(made))
        try:
            answer = said_by(lent, output_of(lent, call_of(lent, arguments | _behind_the_last(lent))()))
        finally:
            if hook is not None:
                hook.remove()
        if answer is None or not leaves:
            raise UnsupportedModel(f"{type(model).__name__} has no logits, or no embeddings, to go back from and to")
        return torch.autograd.grad(answer[0].flatten(1).amax(-1).sum(), leaves[0])[0]


def _batch(subject: Subject, count: int, units: int) -> Batch:
    """A batch of the same text, of so many tokens; or of the same image."""
    if subject.takes_images:
        return collate(subject, [_image(subject)] * count)
    text, pair = " ".join([WORD] * units), subject.task in ("answer", "choice")
    whole = encode(subject, (WORD, text) if pair else text, whole=True)
    surplus = len(whole) - units
    droppable = [place for place, unit in enumerate(whole.units) if not unit.special and unit.part == int(pair)][1:]
    if surplus > len(droppable):
        least = len(whole) - len(droppable)
        raise BadOption(f"tokens={units}: at least {least} are needed for a text and what the tokenizer adds to it")
    kept = np.setdiff1d(np.arange(len(whole)), droppable[len(droppable) - surplus :])
    return collate(subject, [whole.part(Window(0, 1, kept))] * count)


def _image(subject: Subject) -> Any:
    """Coloured noise, as the model sees it."""
    pixels = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3), dtype=np.uint8)
    return read(subject, pixels)


def _image_sizes(subject: Subject, tokens: object) -> tuple[int, ...]:
    """How many units an image of the model's own size has."""
    name = type(subject.model).__name__
    task = task_of(subject.model)
    if task is not None and task.compares:
        raise BadInput(f"{name} compares images with texts, and costs are measured of models that read one of them")
    image = _image(subject)
    if tokens is not None:
        raise BadOption(
            f"tokens (--tokens) are for models of texts: {name} reads images of one size, {len(image)} units: leave it "
            "out"
        )
    return (len(image),)


def _checked_tokens(subject: Subject, tokens: Any) -> tuple[int, ...]:
    """The numbers of tokens, each once and in order, if the model takes so many."""
    window = window_of(subject)
    if tokens is None:
        return (min(TOKENS, window),)
    several = [tokens] if isinstance(tokens, int) else list(tokens) if isinstance(tokens, Sequence) else []
    if not several or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in several):
        raise BadOption(f"tokens (--tokens): whole numbers, at least 1, are needed; found {shown(tokens)}")
    if max(several) > window:
        raise BadOption(
            f"tokens (--tokens): {subject.name} takes at most {window:,} tokens, found {max(several):,}; a longer text "
            f"is cut, or read in windows, each of which costs what {window:,} tokens do"
        )
    return tuple(sorted(set(several)))


def _checked_size(batch: Any) -> int:
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= LARGEST_BATCH:
        raise BadOption(f"batch (--batch) is a whole number, 1 … {LARGEST_BATCH:,}; found {shown(batch)}")
    return batch


def _checked_time(seconds: Any) -> float:
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
    if not known or not 0 < seconds <= LONGEST:
        raise BadOption(f"seconds (--seconds) are more than 0, and at most {LONGEST:,.0f}; found {shown(seconds)}")
    return float(seconds)


def _facts(subject: Subject) -> dict[str, Any]:
    """The model, and where it runs."""
    threads = torch.get_num_threads() if subject.device.type == "cpu" else None
    return {**subject.provenance, "class": type(subject.model).__name__, "threads": threads}
