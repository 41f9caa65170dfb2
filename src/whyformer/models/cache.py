"""The cache of each model: facts that were found out about it, forgotten when the model changes."""

import weakref
from collections.abc import Callable
from operator import attrgetter
from threading import Lock
from typing import Any, TypeVar

from torch import nn

from whyformer.models.load import unwrapped
from whyformer.models.snapshot import State

T = TypeVar("T")

_SIZE = attrgetter("shape", "dtype", "device")


class Structure:
    """A snapshot of a model's structure: its modules, its configuration, and the sizes and places of its parameters.

    Values of weights do not count. Neither do buffers, hooks and `train()`, which a run of the model may change.
    Modules are referenced weakly, so that a snapshot keeps no model alive.
    """

    def __init__(self, model: nn.Module):
        self._model = weakref.ref(model)
        self._config = list(_attributes(model).values())  # alive, so that no other object gets the id of one of them
        self._parts = _parts(model)

    def holds(self) -> bool:
        """Return True if the structure has not changed since."""
        model = self._model()
        return model is not None and _parts(model) == self._parts


class Facts(dict[str, Any]):
    """Facts about a model by name. They are true while its snapshot holds."""

    def __init__(self, snapshot: Structure | State):
        super().__init__()
        self.snapshot = snapshot

    def once(self, name: str, find: Callable[[], T]) -> T:
        """Return a fact, found by a call the first time. If two threads find it, both use the first answer."""
        found: T = self[name] if name in self else self.setdefault(name, find())
        return found


_LOCK = Lock()  # held while facts are looked up, never while a model runs
_BY_STRUCTURE: weakref.WeakKeyDictionary[nn.Module, Facts] = weakref.WeakKeyDictionary()
_BY_STATE: weakref.WeakKeyDictionary[nn.Module, Facts] = weakref.WeakKeyDictionary()


def known(model: nn.Module, *, weights: bool = False) -> Facts:
    """Return the facts that are known about a model. There are none after its structure changed.

    Facts that were found by comparing numbers belong to `weights=True`. They are forgotten after any change: also when
    weights are edited in place, and when hooks or attributes of modules are exchanged.
    """
    model = unwrapped(model)
    of_models, snapshot = (_BY_STATE, State) if weights else (_BY_STRUCTURE, Structure)
    with _LOCK:
        facts = of_models.get(model)
    if facts is not None and facts.snapshot.holds():
        return facts
    new = Facts(snapshot(model))
    with _LOCK:
        if of_models.get(model) is facts:
            of_models[model] = new
        return of_models[model]  # those of another thread, if it was faster


def _parts(model: nn.Module) -> tuple[list[Any], list[Any], list[int]]:
    """Everything that a `Structure` compares: modules, sizes of parameters, and identities of configured values."""
    modules, parameters = [model], []
    for module in modules:  # it grows while it is walked through
        if module._modules:
            modules += [child for child in module._modules.values() if child is not None]
        if module._parameters:
            parameters += [parameter for parameter in module._parameters.values() if parameter is not None]
    return list(map(weakref.ref, modules)), list(map(_SIZE, parameters)), list(map(id, _attributes(model).values()))


def _attributes(model: nn.Module) -> dict[str, Any]:
    """The attributes of a model's configuration, without the padding token, which `borrowed` may set for a run."""
    attributes = getattr(getattr(model, "config", None), "__dict__", {})
    return {name: value for name, value in attributes.items() if name != "pad_token_id"}
