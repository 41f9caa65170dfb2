"""Which layers a model ran through, found by watching it: no list of architectures."""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from torch import Tensor, nn


@dataclass
class Call:
    """One run of a numbered submodule: a member of a list or sequence of modules, such as `encoder.layer.3`."""

    path: str
    input: Tensor | None
    output: Tensor | None = None
    attentions: list[int] = field(default_factory=list)  # positions in the list of attention maps
    versions: list[tuple[Tensor, int]] = field(default_factory=list)  # of its input and output, as torch counts changes

    def keep(self, states: Tensor | None) -> Tensor | None:
        """The states, remembered with their version."""
        if states is not None:
            self.versions.append((states, states._version))
        return states

    @property
    def overwritten(self) -> bool:
        """Whether its input or output was changed in place since."""
        return any(states._version != version for states, version in self.versions)


def in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook for runs of the thread that asks; another thread, which may share the module, passes it by.

    A hook that is just being set or removed may be called in another thread without its keyword arguments.
    """
    thread = threading.get_ident()
    return lambda *args: hook(*args) if threading.get_ident() == thread else None


class Calls(ExitStack):
    """Watches the numbered submodules while a model runs, through hooks that are gone afterwards.

    A *layer* is the outermost numbered call that holds exactly one attention map. This finds `encoder.layer.i`,
    `transformer.h.i`, `model.layers.i`, and a shared layer that is called many times.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], body: nn.Module | None, edits: dict[int, Callable[[Tensor], Tensor]]
    ):
        super().__init__()
        self.modules = modules  # by path
        self.body = body  # the model without its head, if there is such a module
        self.final: Tensor | None = None  # its output
        self.edits = edits  # number of the call -> what replaces its input
        self.made: list[Call] = []
        self._open: list[Call] = []

    def __enter__(self) -> Self:
        for path, module in self.modules.items():
            if path.rpartition(".")[2].isdigit():
                enter = in_this_thread(partial(self._enter, path))
                self.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
                self.enter_context(module.register_forward_hook(in_this_thread(self._leave)))
        if self.body is not None:
            self.enter_context(self.body.register_forward_hook(in_this_thread(self._finish)))
        return self

    @property
    def path(self) -> str:
        """The path of the innermost numbered submodule that is running."""
        return self._open[-1].path if self._open else "outside all layers"

    def attention_seen(self, position: int) -> None:
        """Attention map number `position` was computed inside all the calls that are open now."""
        for call in self._open:
            call.attentions.append(position)

    def holds_alone(self, position: int) -> bool:
        """Whether some call holds this attention map and no other."""
        return any(call.attentions == [position] for call in self.made)

    def layers(self, attentions: int) -> list[int] | None:
        """For each attention map the number of its layer's call, or None if one has no layer of its own."""
        numbers = []
        for position in range(attentions):
            number = next((n for n, c in enumerate(self.made) if c.attentions == [position]), None)
            if number is None or self.made[number].input is None or self.made[number].output is None:
                return None
            numbers.append(number)
        return numbers

    def hidden(self, numbers: Sequence[int]) -> list[Tensor]:
        """The states between the layers: what enters the first, each next one, and what leaves the last.

        Where nothing that leaves a layer enters the next as it is (XLM numbers its attention alone), what leaves the
        last is the output of the body.
        """
        made = [self.made[number] for number in numbers]
        joined = [before.output is after.input for before, after in itertools.pairwise(made)]
        last = made[-1].output if any(joined) or not joined else self.final
        return [state for state in (*(call.input for call in made), last) if state is not None]

    def _finish(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.final = _hidden_states(_values(output))

    def _enter(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        states = _hidden_states([*args, *kwargs.values()])
        edit = self.edits.get(len(self.made))
        edited = None
        if edit is not None and states is not None:
            old, states = states, edit(states)
            args = tuple(states if a is old else a for a in args)
            edited = args, {k: states if v is old else v for k, v in kwargs.items()}
        call = Call(path, states)
        call.keep(states)
        self.made.append(call)
        self._open.append(call)
        return edited

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        call = self._open.pop()
        call.output = call.keep(_hidden_states(_values(output)))


def _values(output: Any) -> Iterable[Any]:
    if isinstance(output, Tensor):
        return (output,)
    return output.values() if isinstance(output, Mapping) else output or ()


def _hidden_states(candidates: Iterable[Any]) -> Tensor | None:
    """The first that can be hidden states: [batch, units, width], in the graph."""
    return next((c for c in candidates if isinstance(c, Tensor) and c.dim() == 3 and c.requires_grad), None)
