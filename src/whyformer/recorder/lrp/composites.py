"""Composite modules: activations and norms that a model writes out in several functions, seen as one.

Function by function `0.5 x (1 + tanh(…))` or `x · rsqrt(mean(x²))` would split relevance among copies of the same
number and lose some of it. As a whole they change numbers one by one, and relevance passes them unchanged.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from whyformer.recorder.function_mode import Recorder, in_this_thread
from whyformer.recorder.lrp.forward_rules import NotWhileRunning
from whyformer.recorder.lrp.sites import Site, nodes_below

NORM_NAMES = ("RMSNorm", "LayerNorm")
ACTIVATION_NAMES = ("Gelu", "GELU")
MIXING = frozenset({"linear", "linear_map", "pixels", "attend", "matmul", "softmax"})  # no part of a norm or activation


class Composites(ExitStack):
    """Makes one site of each run of a composite module in this thread, while it is entered.

    The hooks are torch's global ones, because some models make their activation anew at each call.
    """

    def __init__(self, recorder: Recorder):
        super().__init__()
        self.recorder = recorder
        self._open: list[tuple[nn.Module, Tensor, int]] = []  # the alias that went in, and how many sites there were

    def __enter__(self) -> Self:
        self.enter_context(register_module_forward_pre_hook(in_this_thread(self._enter)))
        self.enter_context(register_module_forward_hook(in_this_thread(self._leave)))
        return self

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not is_composite(module):
            return None
        if not args or not isinstance(args[0], Tensor) or not args[0].requires_grad:
            return None
        alias = args[0].view_as(args[0])
        self._open.append((module, alias, len(self.recorder.sites)))
        return (alias, *args[1:])

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not self._open or self._open[-1][0] is not module or not args or args[0] is not self._open[-1][1]:
            return
        _, alias, before = self._open.pop()
        inside = tuple(self.recorder.sites[before:])
        if any(site.kind in MIXING for site in inside) or not isinstance(output, Tensor) or alias.grad_fn is None:
            return
        if output.grad_fn is not None and output.shape == alias.shape and _comes_from(output.grad_fn, alias.grad_fn):
            del self.recorder.sites[before:]  # what happened inside is this one step
            path, batch = self.recorder.calls.path, self.recorder.batch
            site = Site("norm_module", (), None, (alias.grad_fn,), output.grad_fn, path, batch, inside)
            if is_activation(module):
                values = (alias.detach(),)
                site = replace(site, kind="activation", operands=values, result=output.detach(), inside=())
                self.recorder.gates.changed(alias, output, activated=True)
            self.recorder.sites.append(site)


class RunningActivations(ExitStack):
    """Makes one step of each run of an activation module, under a book whose rules act while the model runs.

    The module is run without a graph. One that computes more than an activation does is not followed.
    """

    def __init__(self, recorder: Recorder):
        super().__init__()
        self.recorder = recorder
        self._open: list[tuple[nn.Module, Tensor, Tensor, int]] = []  # what went in, and how many products there were

    def __enter__(self) -> Self:
        self.enter_context(register_module_forward_pre_hook(in_this_thread(self._enter)))
        self.enter_context(register_module_forward_hook(in_this_thread(self._leave)))
        return self

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not self.recorder.governs_activations or not is_composite(module) or not is_activation(module):
            return None
        if not args or not isinstance(args[0], Tensor) or not args[0].requires_grad:
            return None
        inside = args[0].detach()
        self._open.append((module, args[0], inside, self.recorder.products))
        return (inside, *args[1:])

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Tensor | None:
        if not self._open or self._open[-1][0] is not module or not args or args[0] is not self._open[-1][2]:
            return None
        _, outside, _, products = self._open.pop()
        alone = isinstance(output, Tensor) and not output.requires_grad and output.shape == outside.shape
        if not alone or self.recorder.products != products:
            raise NotWhileRunning(f"{type(module).__name__} is more than an activation")
        assert self.recorder.running is not None
        alias = outside.view_as(outside)
        path = self.recorder.calls.path
        result = self.recorder.running.step("activation", lambda x: output, (alias,), (), path)
        self.recorder.gates.changed(alias, result, activated=True)
        return result


def _comes_from(node: Node, source: Node) -> bool:
    """Whether everything below a node that was made after `source` ends in `source`: no other input flows in."""
    between = (n for n in nodes_below([node], through=lambda n: n is not source) if n is not source)
    return all(n.next_functions and n._sequence_nr() >= source._sequence_nr() for n in between)


def is_composite(module: nn.Module) -> bool:
    """An activation or a norm that is no module of torch."""
    ours = not type(module).__module__.startswith("torch.")
    return ours and (is_activation(module) or type(module).__name__.endswith(NORM_NAMES))


def is_activation(module: nn.Module) -> bool:
    """An activation of transformers, or one named as such."""
    kind = type(module)
    return kind.__module__ == "transformers.activations" or kind.__name__.endswith(ACTIVATION_NAMES)
