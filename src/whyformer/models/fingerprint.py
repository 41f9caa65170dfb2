"""Hashes of a model: of its shape, which is known at once, and of everything that determines what it says."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

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
