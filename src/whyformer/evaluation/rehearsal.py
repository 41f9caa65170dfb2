"""Rehearsal: a GPU loads what an evaluation will compute with, while it has nothing else to do.

A process loads kernels and libraries when they are first used. Where a GPU is busy, which an evaluation sees to, it
finishes all that it was given before it loads another one; whoever asked for that waits, and then the GPU does. So,
while the first texts are read, some are explained by every method that takes one pass, and products of several sizes
are computed, since libraries choose among kernels by size. Nothing of it is kept.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from threading import Event
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whyformer.datasets import Example
from whyformer.errors import BadInput, WhyformerError
from whyformer.evaluation.beforehand import beforehand
from whyformer.evaluation.examples import Item, batches
from whyformer.evaluation.plan import Plan
from whyformer.inputs.encoding import collate
from whyformer.models.limits import limits_of
from whyformer.prediction import Prediction
from whyformer.recorder import Needs
from whyformer.recorder.captures import capturing

EXAMPLES = 3
SHAPES = 4  # of linear maps: those of a layer
COUNTS = (64, 512, 2048, 8192)  # tokens
LENGTHS = (8, 16, 32, 64, 128, 256, 512)  # over which a softmax goes

_REHEARSED: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()  # the methods, by the model


class Rehearsal:
    """What another thread computes with the first texts; images are read once, so nothing is rehearsed with them."""

    def __init__(self, plan: Plan, examples: Sequence[Example]):
        items: tuple[Item, ...] = ()
        if not plan.subject.takes_images:
            with suppress(BadInput):  # which is told when all are read
                items = plan.pending(0, len(examples), examples, {}, ()).items
        self._ended = Event()
        self._thread = beforehand(lambda: rehearse(plan, items, self._ended.is_set))

    def wait(self) -> None:
        """Wait until everything is loaded."""
        self._thread.join()

    def end(self) -> None:
        """Leave out what is not loaded yet."""
        self._ended.set()
        self._thread.join()


def rehearse(plan: Plan, items: Sequence[Item], is_ended: Callable[[], bool] = lambda: False) -> None:
    """Compute on the model's device what this evaluation needs, with some items; once for a model and its methods."""
    known = _REHEARSED.setdefault(plan.subject.model, set())
    labels = {spec.label for spec in plan.methods}
    if labels <= known:
        return
    with capturing(False):
        for step in _steps(plan, items):
            if is_ended():
                return
            with suppress(WhyformerError, RuntimeError):  # whoever measures meets it again
                step()
    known |= labels
    gc.collect(1)  # graphs hold memory of the device


def _steps(plan: Plan, items: Sequence[Item]) -> Iterator[Callable[[], object]]:
    """Products with weights of the model, softmaxes, and every method that takes one pass."""
    subject = plan.subject
    weights = [module.weight.detach() for module in subject.model.modules() if isinstance(module, nn.Linear)]
    usable = [w for w in weights if w.is_floating_point() and w.device == subject.device]  # not packed, not offloaded
    by_shape = {weight.shape: weight for weight in usable}
    for weight in islice(by_shape.values(), SHAPES):
        yield from (partial(_multiplied, weight, count) for count in COUNTS)
    for weight in usable[:1]:
        yield from (partial(_softened, weight, length) for length in LENGTHS)
    whole = [item for item in items if not item.windows]
    methods = [spec for spec in plan.methods if spec.of.passes == "one"]
    for some in islice(batches(whole, limits_of(subject.device, subject.model), 0), 1):
        needs = replace(Needs.of_all([spec.needs for spec in methods]), once=False)
        prediction = Prediction(subject.model, collate(subject, [item.encoded for item in some]), needs=needs)
        yield from (partial(spec, prediction) for spec in methods)


def _multiplied(weight: Tensor, count: int) -> None:
    """A linear map of so many tokens, and the product that takes a gradient back through it."""
    states = torch.ones(count, weight.shape[1], dtype=weight.dtype, device=weight.device)
    torch.mm(F.linear(states, weight, weight[:, 0].contiguous()), weight)


def _softened(like: Tensor, length: int) -> None:
    """A softmax over so many scores, of the type and on the device of a weight, and its gradient."""
    scores = torch.ones(1, length, dtype=like.dtype, device=like.device, requires_grad=True)
    torch.autograd.grad(scores.softmax(-1)[0, 0], scores)
