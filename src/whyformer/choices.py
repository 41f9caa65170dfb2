"""Choices: the method and the layer that were found best for a model, in a small file of the user's."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from whyformer.errors import BadInput, BadOption
from whyformer.load import BUNDLED, Subject, bundled_models
from whyformer.registry import Method
from whyformer.specs import Spec, method_specs

SCHEMA = "whyformer/choices"
SCHEMA_VERSION = 1
SHIPPED_LAYER = "layer.json"


@dataclass(frozen=True)
class Choice:
    """The method that was found best for a model, as it is written, and the numbers that speak for it."""

    method: str
    metric: str
    mean: float
    low: float
    high: float
    n: int
    data: str

    @property
    def spec(self) -> Spec[Method]:
        """The method with its options."""
        try:
            return method_specs([self.method])[0]
        except BadOption as error:
            advice = "recommend again, or leave it aside (--no-cache)"
            raise BadOption(f"{error}; it was recorded for this model in {str(choices_file())!r}: {advice}") from error


@dataclass(frozen=True)
class LayerChoice:
    """The layer that was found best for a model, the method that read it, and the numbers that speak for it."""

    layer: int
    method: str
    metric: str
    mean: float
    low: float
    high: float
    n: int
    data: str


def choices_file() -> Path:
    """`$WHYFORMER_CACHE/choices.json`, else `$XDG_CACHE_HOME/whyformer/…`, else `~/.cache/whyformer/…`."""
    own = os.environ.get("WHYFORMER_CACHE")
    folder = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whyformer"
    return folder / "choices.json"


def recorded(subject: Subject) -> Choice | None:
    """What was recorded for this very model, if anything was; its weights are looked at only if its shape is known."""
    found = _of(_read()["models"], subject)
    try:
        return None if found is None else Choice(**found)
    except TypeError as error:
        raise _odd() from error


def recorded_layer(model: nn.Module) -> LayerChoice | None:
    """The layer that was recorded for this very model, if one was; it does not depend on a tokenizer."""
    held = _read()["layers"]
    found = _of(held, _alone(model)) if held else None
    try:
        return None if found is None else LayerChoice(**found)
    except TypeError as error:
        raise _odd() from error


def shipped_layer(model: nn.Module) -> LayerChoice | None:
    """The layer that a bundled model comes with."""
    folder = Path(getattr(getattr(model, "config", None), "_name_or_path", ""))
    file = folder / SHIPPED_LAYER
    if folder.parent != BUNDLED or folder.name not in bundled_models() or not file.exists():
        return None
    return LayerChoice(**json.loads(file.read_text(encoding="utf-8")))


def best_layer(model: nn.Module) -> int:
    """The layer that was recorded for this model, or that it comes with, or an error that says how to record one."""
    found = recorded_layer(model) or shipped_layer(model)
    if found is None:
        raise BadOption(
            "layer='best' is the layer that was recorded for this model, and none is: have one chosen on texts of your "
            "own, `whyformer recommend --layers --data FILE` (an LM head is given as --methods "
            "'decoded_grad_cam(lm_head=FOLDER)') or recommend(data, layers=True), or give a number"
        )
    return found.layer


def record(subject: Subject, choice: Choice) -> Path:
    """Record the choice for this model; the file is replaced at once, so that nobody reads half of it."""
    return _recorded("models", subject, choice)


def record_layer(model: nn.Module, choice: LayerChoice) -> Path:
    """Record the layer for this model, likewise."""
    return _recorded("layers", _alone(model), choice)


def forget(subject: Subject) -> bool:
    """Forget the method and the layer that were recorded for this model; whether there was something."""
    held = _read()
    of_method = held["models"].get(subject.shape, {}).pop(subject.fingerprint, None)
    alone = _alone(subject.model)
    of_layer = held["layers"].get(alone.shape, {}).pop(alone.fingerprint, None) if held["layers"] else None
    found = of_method is not None or of_layer is not None
    if found:
        _write(held)
    return found


class _NoTokenizer:
    """In place of a tokenizer, for what depends on a model alone."""

    def get_vocab(self) -> dict[str, int]:
        return {}


_NO_TOKENIZER = _NoTokenizer()
_HASHED: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()


def _alone(model: nn.Module) -> Subject:
    """The model without a tokenizer. What it hashes is kept with the model: methods ask for every batch."""
    alone = Subject(getattr(model, "_orig_mod", model), _NO_TOKENIZER, (), "")
    object.__setattr__(alone, "_hashed", _HASHED.setdefault(alone.model, {}))
    return alone


def _of(held: Mapping[str, Any], subject: Subject) -> Any:
    of_shape = held.get(subject.shape) if held else None
    return of_shape.get(subject.last_fingerprint) if of_shape else None


def _recorded(kind: str, subject: Subject, choice: Choice | LayerChoice) -> Path:
    held = _read()
    held[kind].setdefault(subject.shape, {})[subject.fingerprint] = asdict(choice)
    return _write(held)


def _odd() -> BadInput:
    return BadInput(f"{str(choices_file())!r} holds no choice of this version of whyformer: remove it")


def _read() -> dict[str, dict[str, Any]]:
    """The methods (`models`) and the `layers` that are recorded, by shape and fingerprint."""
    path = choices_file()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"models": {}, "layers": {}}
    except (OSError, ValueError) as error:
        raise BadInput(f"could not read {str(path)!r} ({error}): mend it, or remove it") from error
    known = isinstance(data, Mapping) and (data.get("schema"), data.get("schema_version")) == (SCHEMA, SCHEMA_VERSION)
    held: dict[str, Any] = {"models": data.get("models"), "layers": data.get("layers", {})} if known else {"": None}
    if not all(isinstance(part, Mapping) for part in held.values()):
        raise BadInput(f"{str(path)!r} holds no choices of this version of whyformer: remove it")
    return {name: dict(part) for name, part in held.items()}


def _write(held: Mapping[str, Mapping[str, Any]]) -> Path:
    path = choices_file()
    layers = {"layers": held["layers"]} if held["layers"] else {}  # earlier versions did not know these
    data = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "models": held["models"], **layers}
    new = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(data, indent=1), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise BadInput(f"could not write {str(path)!r}: {error.strerror}") from error
    return path
