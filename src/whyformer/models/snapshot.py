"""Snapshots of a model: whether a part of it was exchanged, and hashes of what determines its outputs.

A snapshot does not look at the numbers. A fingerprint hashes them.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from whyformer.models.load import text_config

WATCHED = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
WATCHED_BACKWARD = ("_backward_hooks", "_backward_pre_hooks")
OF_TORCH = frozenset(vars(nn.Module()))  # what every module has; of these, those above are looked into


class State:
    """What a model was made of at one moment: its modules, their attributes and hooks, and where its weights lie.

    Whoever puts another object in place of one of these, or changes a weight, makes another state: moved or trained
    weights, adapters that are switched, hooks, `train()`, exchanged submodules or functions.
    """

    def __init__(self, model: nn.Module):
        self._owners: list[tuple[dict[str, Any], tuple[Any, ...]]] = []  # attributes, and what they were
        self._containers: list[tuple[Any, tuple[Any, ...]]] = []  # what is looked into, and what was there
        self._tensors: list[Tensor] = []
        for module in model.modules():
            own = vars(module)
            self._own(own)
            looked_into = [own[name] for name in (*WATCHED, *WATCHED_BACKWARD)]
            others = [value for name, value in own.items() if name not in OF_TORCH and type(value) in (list, dict, set)]
            self._containers += [(each, _content(each)) for each in (*looked_into, *others)]
            weights = (*own["_parameters"].values(), *own["_buffers"].values())
            self._tensors += [tensor for tensor in weights if isinstance(tensor, Tensor)]
        self._counted = [tensor for tensor in self._tensors if not tensor.is_inference()]  # of others nobody counts
        self._places, self._versions = self._now()
        configs = {id(config): config for config in (getattr(model, "config", None), text_config(model))}
        for config in configs.values():
            self._own(getattr(config, "__dict__", {}))

    def _own(self, attributes: dict[str, Any]) -> None:
        self._owners.append((attributes, tuple(attributes.values())))

    def _now(self) -> tuple[list[int], list[int]]:
        """Where each weight lies, and how often it was changed."""
        return list(map(Tensor.data_ptr, self._tensors)), list(map(_version, self._counted))

    def lies_still(self) -> bool:
        """Whether all weights lie where they did."""
        return list(map(Tensor.data_ptr, self._tensors)) == self._places

    def holds(self) -> bool:
        """Whether the model is still made of that."""
        for now, then in self._owners:
            if len(now) != len(then) or not all(map(is_, now.values(), then)):
                return False
        for now, then in self._containers:
            if len(now) != len(then) or (then and not all(map(is_, _each(now), then))):
                return False
        return self._now() == (self._places, self._versions)


def surroundings() -> tuple[Any, ...]:
    """What numbers depend on beside a model and its inputs: how torch multiplies, which kernels it may take."""
    cuda = torch.backends.cuda
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.are_deterministic_algorithms_enabled(),
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
        torch.get_default_dtype(),
        len(nn.modules.module._global_forward_hooks),
        len(nn.modules.module._global_forward_pre_hooks),
    )


def _content(container: Any) -> tuple[Any, ...]:
    return tuple(_each(container))


def _each(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


_version = attrgetter("_version")  # how often a tensor was changed in place


NO_TOKENIZER = ["_NoTokenizer", "", []]  # as recorded hashes of models alone have it


@dataclass
class _Hashed:
    """What was hashed of a model and a tokenizer, and when."""

    tokenizer: Any
    words: str


_HASHED: WeakKeyDictionary[nn.Module, dict[bool, _Hashed]] = WeakKeyDictionary()  # with a tokenizer, and without


def shape_of(model: nn.Module, tokenizer: Any = None, processor: Any = None) -> str:
    """A hash of configuration, tokenizer, image processor and the shapes of the weights."""
    shapes = [(name, str(w.dtype), list(w.shape)) for name, w in _weights(model)]
    facts = [type(model).__name__, _config_facts(model), _hashed(model, tokenizer).words, shapes]
    return _hash(facts if processor is None else [*facts, _processor_facts(processor)])


def fingerprint(model: nn.Module, tokenizer: Any = None, processor: Any = None) -> str:
    """A hash of everything that determines what a model says: its shape, and every weight as it is now."""
    digest = hashlib.blake2b(shape_of(model, tokenizer, processor).encode(), digest_size=16)
    for _, weight in _weights(model):
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _hashed(model: nn.Module, tokenizer: Any) -> _Hashed:
    """What is known of a model with this tokenizer: to hash its words takes long."""
    known = _HASHED.setdefault(model, {})
    hashed = known.get(tokenizer is None)
    if hashed is None or hashed.tokenizer is not tokenizer:
        hashed = known[tokenizer is None] = _Hashed(tokenizer, _hash(_tokenizer_facts(tokenizer)))
    return hashed


def _weights(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return sorted((name, w) for name, w in model.state_dict().items() if isinstance(w, torch.Tensor))


def _config_facts(model: nn.Module) -> Any:
    config: Any = getattr(model, "config", None)
    facts = config.to_dict() if hasattr(config, "to_dict") else {}
    beside = ("architectures", "dtype", "torch_dtype", "transformers_version")  # saving a model sets some of these
    return {name: fact for name, fact in facts.items() if name[0] != "_" and name not in beside}


def _tokenizer_facts(tokenizer: Any) -> Any:
    """The tokenizer as plain data, without the padding and truncation that its last call left behind."""
    if tokenizer is None:
        return NO_TOKENIZER
    names = [type(tokenizer).__name__, str(getattr(tokenizer, "special_tokens_map", ""))]
    if not getattr(tokenizer, "is_fast", False):
        return [*names, sorted(tokenizer.get_vocab().items())]
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    return [*names, {k: v for k, v in backend.items() if k not in ("padding", "truncation")}]


def _processor_facts(processor: Any) -> Any:
    """What an image processor does, as plain data; a function is known by what it says of itself."""
    if not hasattr(processor, "to_dict"):
        return [type(processor).__name__, repr(processor)]
    return {name: fact for name, fact in processor.to_dict().items() if name[0] != "_"}


def _hash(facts: Any) -> str:
    return hashlib.blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()
