"""From a name, a folder, or objects in hand to a Subject: the model, its tokenizer and its labels."""

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import nn

from whyformer.errors import BadInput, BadOption, UnsupportedModel

Task = Literal["classes", "answer"]

BUNDLED = Path(__file__).parent / "bundled"
HEADS: dict[str, Task] = {"ForSequenceClassification": "classes", "ForQuestionAnswering": "answer"}  # in class names
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "merges.txt",
)


@dataclass(frozen=True)
class Subject:
    """What is explained: a model, its tokenizer, the names of its classes, and where it came from."""

    model: nn.Module
    tokenizer: Any
    labels: tuple[str, ...]
    name: str
    revision: str | None = None
    _hashed: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def task(self) -> Task:
        """What the model says: a class, or the answer to a question. A wrapped model says what is in it."""
        return task_of(type(module).__name__ for module in self.model.modules()) or "classes"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def shape(self) -> str:
        """A hash of configuration, tokenizer and the shapes of the weights: known at once."""
        if self._hashed.get("tokenizer") is not self.tokenizer:
            self._hashed.update(tokenizer=self.tokenizer, words=_hash(_tokenizer_facts(self.tokenizer)))
        shapes = [(name, str(w.dtype), list(w.shape)) for name, w in _weights(self.model)]
        return _hash([type(self.model).__name__, _config_facts(self.model), self._hashed["words"], shapes])

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines what the model says: `shape`, and every weight as it is now."""
        digest = hashlib.blake2b(self.shape.encode(), digest_size=16)
        for _, weight in _weights(self.model):
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @property
    def last_fingerprint(self) -> str:
        """The fingerprint, hashed again only after a training step: changes through `.data` go unnoticed."""
        state = (self.shape, *((weight.data_ptr(), weight._version) for _, weight in _weights(self.model)))
        if self._hashed.get("state") != state:
            self._hashed.update(state=state, digest=self.fingerprint)
        return str(self._hashed["digest"])

    @property
    def provenance(self) -> dict[str, Any]:
        """What an explanation has to say about the model, as plain data."""
        packages = {name: importlib.metadata.version(name) for name in ("whyformer", "torch", "transformers")}
        dtype = str(next(self.model.parameters()).dtype).removeprefix("torch.")
        origin = {"model": self.name, "revision": self.revision, "dtype": dtype}
        return {**origin, "device": str(self.device), "packages": packages}


def _weights(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return sorted((name, w) for name, w in model.state_dict().items() if isinstance(w, torch.Tensor))


def _config_facts(model: nn.Module) -> Any:
    config: Any = getattr(model, "config", None)
    facts = config.to_dict() if hasattr(config, "to_dict") else {}
    beside = ("architectures", "dtype", "torch_dtype", "transformers_version")  # saving a model sets some of these
    return {name: fact for name, fact in facts.items() if name[0] != "_" and name not in beside}


def _tokenizer_facts(tokenizer: Any) -> Any:
    """The tokenizer as plain data, without the padding and truncation that its last call left behind."""
    names = [type(tokenizer).__name__, str(getattr(tokenizer, "special_tokens_map", ""))]
    if not getattr(tokenizer, "is_fast", False):
        return [*names, sorted(tokenizer.get_vocab().items())]
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    return [*names, {k: v for k, v in backend.items() if k not in ("padding", "truncation")}]


def _hash(facts: Any) -> str:
    return hashlib.blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def bundled_models() -> tuple[str, ...]:
    """The names of the models that come with this package."""
    return tuple(sorted(p.name for p in BUNDLED.iterdir() if (p / "config.json").exists()))


def subject_of(model: Any, tokenizer: Any = None) -> Subject:
    """The subject for a model and a tokenizer in hand, or for a Hugging Face pipeline."""
    if tokenizer is None and hasattr(model, "tokenizer") and hasattr(model, "model"):
        model, tokenizer = model.model, model.tokenizer
    model = getattr(model, "_orig_mod", model)  # a compiled model runs as the model it was made from
    if not isinstance(model, nn.Module):
        raise BadInput(f"a model is needed, found {type(model).__name__}; to load one by name use Explainer.load")
    if tokenizer is None:
        raise BadInput("a tokenizer is needed beside the model; for ready tensors use whyformer.attribute")
    config = getattr(model, "config", None)
    name = getattr(config, "_name_or_path", "") or type(model).__name__
    return Subject(model, tokenizer, labels_of(model), name, getattr(config, "_commit_hash", None))


def task_of(classes: Iterable[str]) -> Task | None:
    """What a model says, by the first of these class names that tells."""
    return next((task for name in classes for head, task in HEADS.items() if head in name), None)


def labels_of(model: nn.Module) -> tuple[str, ...]:
    """The names of the model's classes, by index."""
    names = getattr(getattr(model, "config", None), "id2label", None) or {}
    return tuple(str(names[i]) for i in sorted(names, key=int))


def device_of(model: nn.Module) -> torch.device:
    """Where a model is; one on `meta` has no weights."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if device.type == "meta":
        raise UnsupportedModel(
            f"{type(model).__name__} is on the device meta, where it has no weights: load them with from_pretrained, "
            "or move it with to_empty and load_state_dict"
        )
    return device


def input_embeddings(model: nn.Module) -> Any:
    """The module that embeds tokens; None if the model does not say."""
    get: Any = getattr(model, "get_input_embeddings", lambda: None)
    try:
        return get()
    except NotImplementedError:  # transformers' way to say that there are none, or several (CANINE)
        return None


def text_config(model: nn.Module) -> Any:
    """The configuration of the text model; None for a module that has none."""
    config = getattr(model, "config", None)
    return config.get_text_config() if config is not None and hasattr(config, "get_text_config") else config


def load(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Subject:
    """Load a bundled model, a folder, or a hub id.

    Weights in pickle files can run code when they are read: they are refused unless `allow_pickle`. So is code that
    a repository brings along, unless `trust_remote_code`.
    """
    bundled, folder = BUNDLED / str(name), Path(name)
    if str(name) in bundled_models():
        source, local = str(bundled), True
    elif folder.is_dir():
        source, local = str(folder), True
    else:
        source, local = str(name), False
        if folder.exists() or folder.is_absolute() or str(name).startswith("."):
            raise BadInput(f"there is no folder {str(name)!r}" + (", but a file" if folder.exists() else ""))
    if local:
        _check_folder(Path(source), allow_pickle)
    trust = {"trust_remote_code": trust_remote_code, "local_files_only": local, "revision": revision}
    with _explained(str(name), allow_pickle):
        model, tokenizer = _from_pretrained(source, _dtype(dtype), allow_pickle, trust)
    if device is not None:
        try:
            model = model.to(device)
        except (AssertionError, RuntimeError) as error:  # torch has no class of its own for this
            raise BadOption(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from error
    return Subject(model, tokenizer, labels_of(model), str(name), getattr(model.config, "_commit_hash", None))


def _from_pretrained(
    source: str, dtype: torch.dtype | None, allow_pickle: bool, trust: dict[str, Any]
) -> tuple[Any, Any]:
    from transformers import (
        AutoConfig,
        AutoModelForQuestionAnswering,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )

    trust = {k: v for k, v in trust.items() if v is not None}
    config = AutoConfig.from_pretrained(source, **trust)
    architectures = config.architectures or []
    task = task_of(architectures)
    if task is None:
        raise UnsupportedModel(
            f"{source!r} holds {' or '.join(architectures) or 'a model that does not say its class'}; a sequence "
            "classifier (…ForSequenceClassification) or question-answering model (…ForQuestionAnswering) is needed"
        )
    kind = AutoModelForQuestionAnswering if task == "answer" else AutoModelForSequenceClassification
    model, report = kind.from_pretrained(
        source,
        dtype=dtype or "auto",
        use_safetensors=None if allow_pickle else True,
        output_loading_info=True,
        **trust,
    )
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise UnsupportedModel(f"the weights of {source!r} are not complete: {missing} would be random")
    return model.eval(), AutoTokenizer.from_pretrained(source, **trust)


def _check_folder(folder: Path, allow_pickle: bool) -> None:
    if not (folder / "config.json").exists():
        raise BadInput(f"{str(folder)!r} has no config.json: save a model there with save_pretrained")
    pickles = sorted(p.name for p in folder.glob("pytorch_model*.bin"))
    if not any(folder.glob("*.safetensors")) and not (pickles and allow_pickle):
        if pickles:
            raise UnsupportedModel(
                f"{str(folder)!r} has its weights only in pickle files ({pickles[0]}), which can run code when they "
                "are read: convert them to safetensors, or pass allow_pickle (--allow-pickle) if you trust them"
            )
        raise BadInput(f"{str(folder)!r} has no weights (*.safetensors)")
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise BadInput(f"{str(folder)!r} has no tokenizer: save it there too, with tokenizer.save_pretrained")


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise BadOption(f"dtype {dtype!r} is not known; use float64, float32, bfloat16 or float16")
    return found


@contextmanager
def _explained(name: str, allow_pickle: bool) -> Iterator[None]:
    """Quiet loading, with the hub's and transformers' errors in one sentence of ours."""
    from transformers.utils import logging

    bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    except (OSError, RuntimeError, SafetensorError, ValueError) as error:
        reason = " ".join(str(error).split())
        if "trust_remote_code" in reason:
            raise UnsupportedModel(
                f"{name!r} brings its own code, which is only run if you pass trust_remote_code (--trust-remote-code)"
            ) from error
        hint = "" if allow_pickle else " (weights in pickle files need allow_pickle)"
        raise BadInput(f"could not load {name!r}{hint}: {reason[:300]}") from error
    finally:
        if bar:
            logging.enable_progress_bar()
