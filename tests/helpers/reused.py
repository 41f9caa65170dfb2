"""Inputs that share a prefix, and their outputs with and without reuse of that prefix."""

from typing import Any

from torch import Tensor, nn

from tests.helpers import zoo
from whyformer.inputs.input import Fillers, TensorInput
from whyformer.perturb import hide_named, prefixes
from whyformer.perturb.engine import Runner

LENGTH = 12
PLACES = ([0], [1], [4], [5, 6], [3, 9], [10], [11])  # with the first and the last


def read(output: Any) -> Tensor:
    """The logits of each input in one row."""
    return output.logits.flatten(1)


def whole_of(model: nn.Module, length: int = LENGTH) -> TensorInput:
    """Random tokens; a model without a padding token uses another token in its place."""
    tensors, fillers = zoo.batch(model, (length,)), Fillers.of(model, None)
    fillers = Fillers(pad=3, alone=1) if fillers.pad is None else fillers
    return TensorInput({name: values[0].numpy() for name, values in tensors.items()}, fillers=fillers)


def hidden(whole: TensorInput, *hides: str) -> list[TensorInput]:
    """The input, followed by copies with different units hidden."""
    within = [places for places in PLACES if max(places) < len(whole)]
    return [whole, *(whole.without(places, hide_named(hide)) for hide in hides for places in within)]


def both_runs(model: nn.Module, inputs: list[TensorInput], kept: int | None = None) -> tuple[Runner, Tensor, Tensor]:
    """The engine that may reuse prefixes, its outputs, and the outputs of whole runs."""
    with prefixes.running_whole(model):
        whole = Runner(model, read, kept=kept, reuse=True)
        expected = whole.logits(inputs, 1)
    assert whole.counts.reused == 0
    engine = Runner(model, read, kept=kept, reuse=True)
    return engine, engine.logits(inputs, 1), expected
