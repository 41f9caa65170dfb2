"""Copies of one example with units replaced, and its explained output as a plain function of which units are there."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.caching import cached_property
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.encoding import Batch
from whyformer.inputs.fillers import Fillers
from whyformer.inputs.hiding import Hide
from whyformer.inputs.images import Patches
from whyformer.inputs.input import TensorInput, together
from whyformer.models.borrow import parameters_of
from whyformer.models.limits import limits_of
from whyformer.models.loading import text_config, unwrapped
from whyformer.perturb.hides import hide_named
from whyformer.perturb.runner import Runner
from whyformer.prediction import Prediction
from whyformer.tasks.task import Task

WITH_GRADIENTS = 4  # a run that keeps a graph takes this many times the memory
LEEWAY = {torch.float64: 1e-8, torch.float32: 1e-4}  # between two runs of one text, as a share of its largest logit
ROUGH = 0.05  # in half precision, or where matrices are multiplied with less than float32


class Copies:
    """One example of a prediction, alone and without padding, and the explained output when units are hidden.

    `positions` says where its units stand in the batch; what a causal model cannot see from where it speaks is left
    out. `free` marks the units that may be hidden: all but special tokens. Where what takes their place has an
    embedding and is attended to, the embedding alone is exchanged: the model is told the same token ids, so neither
    positions nor what the head reads move. `evaluations` counts the copies that were run; each different one is run
    once.
    """

    def __init__(self, prediction: Prediction, row: int, hide: Hide, fillers: Fillers):
        self.model: nn.Module = unwrapped(prediction.model)
        self.hide, self.task = hide, prediction.task
        self.positions = _positions(prediction, row)
        self.patches = prediction.patches
        places = {position: place for place, position in enumerate(self.positions.tolist())}
        target, versus = prediction.target, prediction.versus
        self._said_at = {places[position] for position in prediction.said_at(row)}
        self.target = self.task.moved(target[row : row + 1], [places])
        self.versus = None if versus is None else self.task.moved(versus[row : row + 1], [places])
        self.units = len(self.positions)
        where, count = self.positions.numpy(), prediction.padding.shape[1]
        self.exchanges = hide.embeds and hide.attended
        self.input = prediction.batch.alone(
            row, where, count, fillers, patches=self.patches, attended=not self.exchanges
        )
        if hide.shortens and self._said_at:
            raise BadOption(
                f"baseline={hide.name!r} is not possible: the output is said at a position, which would move; use "
                "baseline='mask'"
            )
        self.free = _free(prediction, row, self.positions, self.patches)
        self.dtype = torch.promote_types(prediction.outputs.logits.dtype, torch.float32)
        self.device = prediction.outputs.logits.device
        self.vocabulary = prediction.outputs.logits.shape[-1] if self.task.form == "token" else 0
        kept = self._kept
        self.runner = Runner(
            self.model,
            partial(_explained, self.task, self.target, self.versus, kept),
            kept=kept,
            reuse=kept is not None or not self._said_at,
            most=self.at_once(whole_vocabulary=kept is None),
            expected=0,
        )
        if self.positions.tolist() != list(range(self.units)):
            self._keep_places(prediction, row)

    @property
    def evaluations(self) -> int:
        """How many copies were run."""
        return self.runner.counts.run + self.runner.elsewhere

    def ran(self, count: int) -> None:
        """Count copies that were run elsewhere, with their gradients."""
        self.runner.elsewhere += count
        self.runner.report(count, count)

    def _keep_places(self, prediction: Prediction, row: int) -> None:
        """Units that stood behind padding are told their old positions where these matter; raise if that is not all."""
        logits = prediction.outputs.logits[row].detach()
        exact = logits.dtype == torch.float64 or torch.get_float32_matmul_precision() == "highest"
        leeway = LEEWAY.get(logits.dtype, ROUGH) if exact else ROUGH
        due = float(prediction.trace.output(*prediction.asked)[row].detach())
        everything, within = torch.ones(1, self.units), leeway * float(logits.abs().max())
        output = float(self.outputs(everything))
        if abs(output - due) > within and "position_ids" in self._takes and "position_ids" not in self.input.tensors:
            self.input = replace(self.input, tensors={**self.input.tensors, "position_ids": self.positions.numpy()})
            self.runner.forget()
            output = float(self.outputs(everything))
        if abs(output - due) > within:
            raise BadInput(
                f"this method runs a text without its padding, and {type(self.model).__name__} then says {output:.6g} "
                f"instead of {due:.6g}: padding stands before or inside the text; pad on the right, or give texts one "
                "by one"
            )

    def seed(self, seed: int) -> int:
        """The seed of this example's own random stream: it depends on `seed` and on its tokens alone."""
        nothing = torch.zeros(1, self.units, dtype=torch.bool)
        alone = Prediction(self.model, Batch(self.copies(1), None, None), padding=nothing)
        return alone.generators(seed)[0].initial_seed()

    def at_once(self, *, gradients: bool = False, whole_vocabulary: bool = False) -> int:
        """How many copies are run together."""
        fitting = limits_of(self.device).tokens // (WITH_GRADIENTS if gradients else 1) // self.units
        if self.vocabulary and whole_vocabulary:
            fitting = min(fitting, limits_of(self.device).logits // (self.units * self.vocabulary))
        nameless = "input_ids" not in self.input.tensors and getattr(text_config(self.model), "pad_token_id", 0) is None
        return 1 if nameless and "inputs_embeds" in self.input.tensors else max(1, fitting)  # GPT-2 asks for padding

    def outputs(self, present: Tensor) -> Tensor:
        """The explained output, [copies], for copies with these units there, [copies, units] of zeros and ones."""
        gone = ((present.cpu() <= 0.5) & self.free).numpy()
        inputs = [self.without(np.flatnonzero(row).tolist()) for row in gone]
        return self.runner.logits(inputs, 1)[:, 0].to(self.dtype)

    def of_free(self, present: Tensor) -> Tensor:
        """The explained output, [copies], for copies with these of the free units there, [copies, free]."""
        rows = torch.ones(len(present), self.units, dtype=torch.float32)
        rows[:, self.free] = present.cpu().float()
        return self.outputs(rows)

    def without(self, places: list[int]) -> TensorInput:
        """A copy with the units at some places hidden."""
        return self.hide.exchange(self.input, places) if self.exchanges else self.input.without(places, self.hide)

    def copies(self, count: int) -> dict[str, Tensor]:
        """What the model is given for the example, so many times."""
        return together([self.input] * count, self.device)

    @cached_property
    def _takes(self) -> frozenset[str]:
        """The names of what the model's forward takes."""
        return frozenset(parameters_of(self.model))

    @cached_property
    def _kept(self) -> int | None:
        """The one position at which a model with a vocabulary at every position has to speak, if it can be told."""
        alone = self.task.form == "token" and len(self._said_at) == 1 and "logits_to_keep" in self._takes
        return next(iter(self._said_at)) if alone else None


def _explained(task: Task, target: Tensor, versus: Tensor | None, kept: int | None, output: Any) -> Tensor:
    """The explained output, [copies, 1], of what a model returns; `kept` is the one position that it kept."""
    logits = task.logits(output)
    assert logits is not None  # the same model gave some for the whole example
    if kept is not None and logits.shape[1] == 1:
        target, versus = task.moved(target, [{kept: 0}]), None if versus is None else task.moved(versus, [{kept: 0}])
    return task.output(logits, target, versus)[:, None]


def copies_of(prediction: Prediction, baseline: str | Hide, *, on_path: bool = False) -> Iterator[Copies]:
    """The examples of a prediction, one after the other; `on_path`: paths begin where units are hidden."""
    hide, fillers = hide_named(baseline), Fillers.of(prediction.model, prediction.batch.tokenizer)
    if on_path and not (hide.embeds and hide.attended):
        raise BadOption(
            f"baseline={hide.name!r} is not possible: a path begins at embeddings that take the place of the units, "
            "and there are none that are attended to; use baseline='zero', 'pad_attended', 'mask' or 'unk'"
        )
    return (Copies(prediction, row, hide, fillers) for row in range(len(prediction.padding)))


def _positions(prediction: Prediction, row: int) -> Tensor:
    """The positions of an example that are no padding, up to where a causal model speaks."""
    real = (~prediction.padding[row]).nonzero().flatten().cpu()
    last = max(prediction.said_at(row), default=len(prediction.padding[row]))
    later = real[real > last]
    if not len(later) or prediction.trace.embeddings is None:
        return real
    unseen = not bool(prediction.embedding_gradients[row, later.to(prediction.padding.device)].any())
    return real[real <= last] if unseen else real


def _free(prediction: Prediction, row: int, positions: Tensor, patches: Patches | None) -> Tensor:
    """Which units may be hidden, [units]."""
    free = torch.ones(len(positions), dtype=torch.bool) if patches is None else torch.from_numpy(patches.free).clone()
    if prediction.batch.special is not None:
        free &= ~prediction.batch.special[row].cpu().bool()[positions]
    return free
