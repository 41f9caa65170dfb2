"""Rehearsal: a GPU loads what an evaluation will compute with, while it has nothing else to do.

A process loads kernels and libraries when they are first used. Where a GPU is busy, which an evaluation sees to, it
finishes all that it was given before it loads another one; whoever asked for that waits, and then the GPU does. So,
while the first texts are read, some are explained by every method that takes one pass, and products of several sizes
are computed, since libraries choose among kernels by size. Nothing of it is kept.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import torch
import torch.nn.functional as F
from torch import nn

from whyformer.datasets import Example
from whyformer.errors import WhyformerError
from whyformer.evaluation.plan import Plan
from whyformer.inputs.encoding import collate
from whyformer.prediction import Prediction
from whyformer.progress import listening
from whyformer.recorder import Needs
from whyformer.recorder.captures import capturing

EXAMPLES = 3  # of which some are padded
SHAPES = 4  # of linear maps: those of a layer
COUNTS = (64, 512, 2048, 8192)  # tokens
LENGTHS = (8, 16, 32, 64, 128, 256, 512)  # over which a softmax goes


def rehearsed(plan: Plan, examples: Sequence[Example]) -> None:
    """Compute on the model's device what most evaluations need, and what this one asks of its first examples."""
    _multiplied(plan.subject.model, plan.subject.device)
    _softened(plan.subject.device)
    with capturing(False), listening(None):
        _explained(plan, examples)


def _explained(plan: Plan, examples: Sequence[Example]) -> None:
    """Every method that takes one pass; what it refuses is told when it is measured."""
    methods = [spec for spec in plan.methods if spec.of.passes == "one"]
    pending = plan.pending(0, len(examples), examples, {}, ())
    items = [item.ready(plan.subject) for item in pending.items if not item.windows]
    needs = replace(Needs.of_all([spec.needs for spec in methods]), once=False)
    prediction = Prediction(plan.subject.model, collate(plan.subject, [item.encoded for item in items]), needs=needs)
    for spec in methods:
        with suppress(WhyformerError):
            spec(prediction)


def _multiplied(model: nn.Module, device: torch.device) -> None:
    """Products with weights of the model, as forward and backward passes take them."""
    weights = (module.weight.detach() for module in model.modules() if isinstance(module, nn.Linear))
    by_shape = {w.shape: w for w in weights if w.is_floating_point() and w.device == device}  # neither packed nor away
    for weight in islice(by_shape.values(), SHAPES):
        for count in COUNTS:
            given = torch.ones(count, weight.shape[1], dtype=weight.dtype, device=device)
            torch.mm(F.linear(given, weight, weight[:, 0].contiguous()), weight)


def _softened(device: torch.device) -> None:
    """Softmax, and its backward pass."""
    for length in LENGTHS:
        scores = torch.ones(1, length, device=device, requires_grad=True)
        torch.autograd.grad(scores.softmax(-1)[0, 0], scores)
