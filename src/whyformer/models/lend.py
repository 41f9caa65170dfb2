"""Borrowing a model: the one way to run it, alone and in eval mode, after which it is as it was."""

import inspect
import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.models.errors import named_failures
from whyformer.models.load import device_of, text_config, unwrapped

_GUARD = threading.Lock()  # held while locks are looked up, never while a model runs
_NUMBERS = itertools.count()
_LOCKS: dict[int, tuple[weakref.ref[Any], int, threading.RLock]] = {}  # by the id of a module or configuration


class _Several:
    """Locks that are taken together, by everybody in the same order."""

    def __init__(self, locks: Sequence[threading.RLock]):
        self.locks = locks

    def __enter__(self) -> None:
        for lock in self.locks:
            lock.acquire()

    def __exit__(self, *_: object) -> None:
        for lock in self.locks:
            lock.release()


def lock_of(model: nn.Module) -> AbstractContextManager[Any]:
    """What is held while a model runs, or while relevance or a gradient goes back over its graph; it is re-entrant.

    Running a model changes its modules (eval mode, hooks), and its configuration where that names no padding token. So
    models that share one of these share a lock: a wrapper and its model, or two heads of one body.
    """
    model = unwrapped(model)
    owners: list[Any] = list(model.modules())
    config = text_config(model)
    with _GUARD:
        if id(config) in _LOCKS or getattr(config, "pad_token_id", 0) is None:
            owners.append(config)
        locks = dict(_LOCKS[id(owner)][1:] for owner in owners if id(owner) in _LOCKS)
        if not locks:
            locks = {next(_NUMBERS): threading.RLock()}
        first = min(locks)
        for owner in owners:
            if id(owner) not in _LOCKS:
                _LOCKS[id(owner)] = _reference(owner, model), first, locks[first]
    ordered = [locks[number] for number in sorted(locks)]
    return ordered[0] if len(ordered) == 1 else _Several(ordered)


def _reference(owner: Any, model: nn.Module) -> weakref.ref[Any]:
    """To whom a lock belongs; a configuration whose class allows no weak reference is there as long as its model."""
    key = id(owner)
    try:
        return weakref.ref(owner, lambda _: _LOCKS.pop(key, None))
    except TypeError:
        return weakref.ref(model, lambda _: _LOCKS.pop(key, None))


def parameters_of(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a model's forward by name."""
    return inspect.signature(model.forward).parameters


@contextmanager
def borrowed(model: nn.Module, inputs: Mapping[str, Tensor], **more: Any) -> Iterator[tuple[nn.Module, dict[str, Any]]]:
    """The model in eval mode, and the arguments of its forward for a batch of tensors; then it is given back.

    A compiled model is borrowed as the model that it was made from. Threads that borrow the same model wait for each
    other; those that borrow different ones do not.
    """
    model = unwrapped(model)
    device = device_of(model)
    arguments: dict[str, Any] = {name: tensor.to(device) for name, tensor in inputs.items()} | more
    if "use_cache" in parameters_of(model):
        arguments.setdefault("use_cache", False)
    if getattr(getattr(model, "config", None), "return_dict", True) is False:
        arguments["return_dict"] = True
    with (
        lock_of(model),
        evaluating(model.modules()),
        _uncompiled(model),
        _with_padding_id(model, arguments) as known,
        named_failures(type(model).__name__),
    ):
        yield model, known


_EAGER = ExitStack()  # what keeps compiled parts from being run, while any model with such parts is lent
_EAGER_GUARD = threading.Lock()
_eager_runs = 0


@contextmanager
def _uncompiled(model: nn.Module) -> Iterator[None]:
    """Run parts that were compiled in place (`module.compile()`) as they were before: hooks cannot be compiled."""
    global _eager_runs
    if not any(module._compiled_call_impl or _is_compiled(vars(module).get("forward")) for module in model.modules()):
        yield
        return
    with _EAGER_GUARD:
        _eager_runs += 1
        if _eager_runs == 1:
            _EAGER.enter_context(torch.compiler.set_stance("force_eager"))
    try:
        yield
    finally:
        with _EAGER_GUARD:
            _eager_runs -= 1
            if not _eager_runs:
                _EAGER.close()


def _is_compiled(forward: Any) -> bool:
    return hasattr(forward, "_torchdynamo_orig_callable")


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """In eval mode, and then each submodule in the mode it was in."""
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Without gradients of its parameters, and then with those that it had."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_()


@contextmanager
def _with_padding_id(model: nn.Module, inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A batch for a model that knows no padding token, as GPT-2: its classifier looks for the last other token.

    For this run the padding token is one that no text of the batch holds.
    """
    config = text_config(model)
    if config is None or "input_ids" not in inputs or getattr(config, "pad_token_id", 0) is not None:
        yield inputs
        return
    ids = inputs["input_ids"]
    if len(ids) == 1 and "attention_mask" not in inputs:
        yield inputs
        return
    attended = inputs.get("attention_mask", torch.ones_like(ids)).bool()
    if attended.dim() == ids.dim() and inputs.get("past_key_values") is not None:
        attended = attended[:, -ids.shape[1] :]  # the mask is that of the whole text
    if attended.shape != ids.shape or (len(ids) == 1 and bool(attended.all())):
        yield inputs
        return
    used = set(ids[attended].tolist())
    unused = next(i for i in range(len(used) + 1) if i not in used)
    try:
        config.pad_token_id = unused
        yield {**inputs, "input_ids": ids.masked_fill(~attended, unused)}
    finally:
        config.pad_token_id = None
