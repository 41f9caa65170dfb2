"""Measure how much time and memory methods take on a model."""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from whyformer.errors import (
    BadInput,
    BadOption,
    TooLarge,
    UnsupportedModel,
    WhyformerError,
    WhyformerWarning,
    listed,
    shown,
)
from whyformer.inputs.batch import Batch, Window, collate, encode, window_of
from whyformer.inputs.input_types import read
from whyformer.methods.method import MethodSpec
from whyformer.models.lend import borrowed, frozen, parameters_of
from whyformer.models.load import Subject, input_embeddings
from whyformer.models.memory import free_memory, peak_memory
from whyformer.prediction import Prediction
from whyformer.progress import counting, listening, part
from whyformer.recorder import differentiating
from whyformer.recorder.capture.captures import capturing
from whyformer.results.cost import BACKWARD, FORWARD, STOCK, Cost, CostTableData
from whyformer.show.render import Renderable, text_of
from whyformer.tasks import task_of
from whyformer.tasks.task import call_of, output_of, said_by

TOKENS = 512  # the default length, if the model takes that many
SECONDS = 60.0  # the default time limit
RUNS = 3  # timed runs at most
ENOUGH = 0.2  # seconds; no further run is timed after that
LONGEST = 86_400.0  # seconds
LARGEST_BATCH = 10_000
WORD = "film"  # texts of any length repeat it
PIXELS = 224  # width and height of an image, which the model's own processor resizes


@dataclass(frozen=True)
class CostTable(Renderable, CostTableData):
    """Time and peak memory of methods on a model, at each number of tokens, or at the model's own image size.

    `table["attcat", 512]` is one `Cost`. Its `missing` says why it was not measured, and is empty if it was.
    """

    def __repr__(self) -> str:
        methods = [name for name in self.names if name not in STOCK]
        what = "units of an image" if self.of_images else "tokens"
        return f"<CostTable of {listed(methods) or 'no method'}: {', '.join(map(str, self.units))} {what}>"

    def to_markdown(self) -> str:
        """Return a table for each number of tokens, with notes below."""
        return text_of(self, "markdown")

    def to_csv(self) -> str:
        """Return one line for each method and number of tokens, with every digit."""
        return text_of(self, "csv")


def measure_costs(
    subject: Subject,
    specs: Sequence[MethodSpec],
    *,
    tokens: int | Sequence[int] | None = None,
    batch: int = 1,
    seconds: float = SECONDS,
) -> CostTable:
    """Measure methods on a model, and the stock model's forward pass and forward and backward pass.

    `tokens` are the lengths of the texts: 512 by default, or the model's context window if it is shorter. Images have
    the model's own size. `seconds` limits the whole measurement. A method that is refused, runs out of memory or is
    not finished in time gets a row that says so.
    """
    batch, limit = _checked_size(batch), _checked_time(seconds)
    lengths = _image_sizes(subject, tokens) if subject.takes_images else _checked_tokens(subject, tokens)
    batches = {units: _batch(subject, batch, units) for units in lengths}
    workloads = {FORWARD: partial(_forward, subject.model), BACKWARD: partial(_backward, subject.model)}
    workloads |= {spec.label: partial(_explained, subject.model, spec) for spec in specs}
    free, weights = free_memory(subject.device), [*subject.model.parameters(), *subject.model.buffers()]
    deadline, costs = time.perf_counter() + limit, []
    with capturing(False), counting("cost"):  # the cost of a first call, without CUDA graphs
        for number, (units, (name, work)) in enumerate(product(lengths, workloads.items())):
            inputs = batches[units]
            known = [*weights, *inputs.tensors.values()]
            measure = partial(_measure, partial(_silently, work, inputs), subject.device, known, free, deadline)
            with part(number, len(lengths) * len(workloads)):
                costs.append(_cost(name, units, measure))
    return CostTable(tuple(costs), batch, free, limit, subject.takes_images, _facts(subject))


def _cost(name: str, units: int, measure: Callable[[], tuple[float, int | None]]) -> Cost:
    """Return the measured cost, or a cost that says why it is missing."""
    try:
        seconds, memory = measure()
    except _TimeLimit:
        return Cost(name, units, missing="time limit")
    except torch.OutOfMemoryError:
        return Cost(name, units, missing="out of memory")
    except TooLarge as error:
        return Cost(name, units, missing="out of memory", reason=str(error))
    except WhyformerError as error:
        return Cost(name, units, missing="refused", reason=str(error))
    return Cost(name, units, seconds, memory)


def _measure(
    call: Callable[[], object], device: torch.device, known: Sequence[Tensor], free: int | None, deadline: float
) -> tuple[float, int | None]:
    """Return the seconds of the fastest run and the peak memory of a run that is not timed."""
    start = time.perf_counter()
    if start > deadline:
        raise _TimeLimit
    with part(0, 2), _Deadline(deadline):
        memory = peak_memory(call, device, known, limit=free)
    now = time.perf_counter()
    if now + (now - start) > deadline:
        raise _TimeLimit
    with part(1, 2):
        return _fastest(call, device), memory


def _fastest(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of the fastest of a few runs. Only the first reports progress."""
    runs = [_seconds(call, device)]
    with listening(None):
        while len(runs) < RUNS and sum(runs) <= ENOUGH:
            runs.append(_seconds(call, device))
    return min(runs)


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


class _TimeLimit(Exception):
    """The time limit is reached."""


class _Deadline(TorchDispatchMode):
    """Stop a run at its first operation after the deadline, a moment of `time.perf_counter`."""

    def __init__(self, deadline: float):
        super().__init__()  # type: ignore[no-untyped-call]
        self._deadline = deadline

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if time.perf_counter() > self._deadline:
            raise _TimeLimit
        return func(*args, **(kwargs or {}))


def _silently(work: Callable[[Batch], object], batch: Batch) -> None:
    """Run a workload without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WhyformerWarning)
        work(batch)


def _explained(model: nn.Module, spec: MethodSpec, batch: Batch) -> Tensor:
    """Explain the prediction, including the forward pass. Token classifiers are explained at the last token."""
    run = Prediction(model, batch, needs=replace(spec.needs, last=True))
    named = run.task.form == "token" and not run.task.causal
    target = (0, run.padding.shape[1] - 1) if named else None
    return spec(run.towards(target, run.outputs.explained(None, None))).total


def _forward(model: nn.Module, batch: Batch) -> Any:
    """Run the stock model without gradients."""
    with torch.no_grad(), borrowed(model, batch.tensors) as (lent, arguments):
        return call_of(lent, arguments | _last_logits(lent))()


def _last_logits(model: nn.Module) -> dict[str, int]:
    """Ask a language model for the logits after the last token only, as methods do."""
    return {"logits_to_keep": 1} if "logits_to_keep" in parameters_of(model) else {}


def _backward(model: nn.Module, batch: Batch) -> Tensor:
    """Run the stock model, and return the gradient of its highest outputs at the embeddings or pixels."""
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
            answer = said_by(lent, output_of(lent, call_of(lent, arguments | _last_logits(lent))()))
        finally:
            if hook is not None:
                hook.remove()
        if answer is None or not leaves:
            raise UnsupportedModel(f"{type(model).__name__} has no logits or no embeddings for a backward pass")
        return torch.autograd.grad(answer[0].flatten(1).amax(-1).sum(), leaves[0])[0]


def _batch(subject: Subject, count: int, units: int) -> Batch:
    """Return a batch of copies of one text with `units` tokens, or of one image."""
    if subject.takes_images:
        return collate(subject, [_image(subject)] * count)
    text, pair = " ".join([WORD] * units), subject.task in ("answer", "choice")
    whole = encode(subject, (WORD, text) if pair else text, whole=True)
    surplus = len(whole) - units
    droppable = [place for place, unit in enumerate(whole.units) if not unit.special and unit.part == int(pair)][1:]
    if surplus > len(droppable):
        least = len(whole) - len(droppable)
        raise BadOption(f"tokens={units}: a text with special tokens has at least {least}")
    kept = np.setdiff1d(np.arange(len(whole)), droppable[len(droppable) - surplus :])
    return collate(subject, [whole.part(Window(0, 1, kept))] * count)


def _image(subject: Subject) -> Any:
    """Return random pixels as the model takes them."""
    pixels = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3), dtype=np.uint8)
    return read(subject, pixels)


def _image_sizes(subject: Subject, tokens: object) -> tuple[int, ...]:
    """Return the number of units of an image of the model's own size."""
    name = type(subject.model).__name__
    task = task_of(subject.model)
    if task is not None and task.compares:
        raise BadInput(f"{name} compares images with texts; cost measures models that take one of them")
    image = _image(subject)
    if tokens is not None:
        raise BadOption(
            f"tokens (--tokens) is for text models: {name} takes images of one size, {len(image)} units; leave it out"
        )
    return (len(image),)


def _checked_tokens(subject: Subject, tokens: Any) -> tuple[int, ...]:
    """Return the numbers of tokens, sorted and without repetitions, if the model takes that many."""
    window = window_of(subject)
    if tokens is None:
        return (min(TOKENS, window),)
    several = [tokens] if isinstance(tokens, int) else list(tokens) if isinstance(tokens, Sequence) else []
    if not several or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in several):
        raise BadOption(f"tokens (--tokens): whole numbers, at least 1, are needed; found {shown(tokens)}")
    if max(several) > window:
        raise BadOption(
            f"tokens (--tokens): {subject.name} takes at most {window:,} tokens, found {max(several):,}; a longer text "
            f"is truncated, or explained in windows of {window:,} tokens"
        )
    return tuple(sorted(set(several)))


def _checked_size(batch: Any) -> int:
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= LARGEST_BATCH:
        raise BadOption(f"batch (--batch) is a whole number, 1 … {LARGEST_BATCH:,}; found {shown(batch)}")
    return batch


def _checked_time(seconds: Any) -> float:
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
    if not known or not 0 < seconds <= LONGEST:
        raise BadOption(f"seconds (--seconds) is more than 0 and at most {LONGEST:,.0f}; found {shown(seconds)}")
    return float(seconds)


def _facts(subject: Subject) -> dict[str, Any]:
    """Describe the model and the device."""
    threads = torch.get_num_threads() if subject.device.type == "cpu" else None
    return {**subject.provenance, "class": type(subject.model).__name__, "threads": threads}
