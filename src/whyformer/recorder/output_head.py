"""What a model does after its last layer, as a function of hidden states: of any layer's, not only of the last."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whyformer.errors import UnsupportedModel
from whyformer.models.lend import borrowed
from whyformer.recorder.function_mode import in_this_thread
from whyformer.recorder.trace import Layers, Trace
from whyformer.tasks.task import call_of, output_of, said_by
from whyformer.tolerance import distance

NEAR = 1e-3  # of the peak: two runs of the same arithmetic, of which one is fused


@dataclass(frozen=True)
class _Step:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


@dataclass
class Tail:
    """The calls that a model makes after its last layer, from the states that this layer gave to the logits."""

    states: Tensor
    logits: Tensor
    steps: list[_Step] = field(repr=False)

    @classmethod
    def of(cls, model: nn.Module, inputs: Mapping[str, Tensor], trace: Trace) -> "Tail":
        """Run the model once more, without a graph, and note what it does after its last layer.

        What is noted must give the logits of the recorded run from that run's states, or it is refused. What the head
        reads beside the last layer's output stays as it was.
        """
        assert isinstance(trace.layers, Layers)
        notes = _Notes(trace.layers.calls[-1])
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            lent, kwargs = stack.enter_context(borrowed(model, inputs))
            if trace.outputs.kept is not None:
                kwargs["logits_to_keep"] = torch.tensor(trace.outputs.kept, device=trace.logits.device)
            notes.watch(lent, stack)
            with notes:
                outputs = said_by(lent, output_of(lent, call_of(lent, kwargs)()))
        name, last = type(model).__name__, trace.hidden[-1]
        near = max(NEAR, 8 * torch.finfo(last.dtype).eps)
        if notes.states is None or outputs is None or not _alike(notes.states, last, near):
            raise UnsupportedModel(f"what {name} does after its last layer was not seen, so no layer has a logit")
        tail = cls(notes.states, outputs[0], notes.steps)
        with torch.no_grad():
            again = tail(last)
        if not _alike(again, trace.logits, near):
            raise UnsupportedModel(
                f"what {name} does after its last layer is not the same in another run, so no other layer has a logit"
            )
        return tail

    def __call__(self, states: Tensor) -> Tensor:
        """The logits that the head makes of states [batch, units, width], in their graph."""
        made: dict[int, Any] = {id(self.states): states.to(self.states.dtype)}

        def exchanged(value: Any) -> Any:
            if isinstance(value, Tensor):
                return made.get(id(value), value.detach())
            if isinstance(value, (list, tuple)) and any(isinstance(v, (Tensor, list, tuple)) for v in value):
                return type(value)(map(exchanged, value))
            return value

        for step in self.steps:
            kwargs = {name: exchanged(value) for name, value in step.kwargs.items()}
            result = step.function(*map(exchanged, step.args), **kwargs)
            pairs = [(step.result, result)] if isinstance(result, Tensor) else _parts(step.result, result)
            made.update({id(before): after for before, after in pairs})
        logits: Tensor = made.get(id(self.logits), self.logits)
        return logits


def _alike(one: Tensor, other: Tensor, near: float) -> bool:
    return one.shape == other.shape and distance(one, other) <= near


def _parts(before: Any, after: Any) -> list[tuple[Any, Any]]:
    """The tensors of two results that hold several."""
    return list(zip(before, after, strict=True)) if isinstance(before, (list, tuple)) else []


class _Notes(TorchFunctionMode):
    """Notes every call of torch's functions after a numbered call of a module."""

    def __init__(self, last: int):
        super().__init__()
        self.last = last
        self.states: Tensor | None = None
        self.steps: list[_Step] = []
        self._entered = 0
        self._open: list[int] = []

    def watch(self, model: nn.Module, stack: ExitStack) -> None:
        """Count the runs of numbered modules, as the recorder does, through hooks that are gone afterwards."""
        for path, module in model.named_modules():
            if path.rpartition(".")[2].isdigit():
                stack.enter_context(module.register_forward_pre_hook(in_this_thread(self._enter)))
                stack.enter_context(module.register_forward_hook(in_this_thread(self._leave)))

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._open.append(self._entered)
        self._entered += 1

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._open.pop() == self.last:
            candidates = (output,) if isinstance(output, Tensor) else output
            self.states = next((c for c in candidates if isinstance(c, Tensor) and c.dim() == 3), None)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        attribute = func.__name__ == "__get__" and not isinstance(result, Tensor)
        if self.states is not None and not attribute:
            self.steps.append(_Step(func, args, kwargs or {}, result))
        return result
