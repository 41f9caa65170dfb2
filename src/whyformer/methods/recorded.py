"""Choices: the method and the layer that were found best for a model, in a small file of the user's."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from filelock import FileLock, Timeout
from torch import nn

from whyformer.errors import BadInput, BadOption
from whyformer.methods.specs import MethodSpec, method_specs
from whyformer.models.loading import BUNDLED, Subject, bundled_models, unwrapped
from whyformer.storage.files import naming, read_json, regular, write
from whyformer.storage.forms import Format, count, fields, named, number, text

SCHEMA = "whyformer/choices"
SCHEMA_VERSION = 1
SHIPPED_LAYER = "layer.json"
PATIENCE = 60  # seconds to wait for another process, which takes a moment


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
    def spec(self) -> MethodSpec:
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
    return None if found is None else Choice(**found)


def recorded_layer(model: nn.Module) -> LayerChoice | None:
    """The layer that was recorded for this very model, if one was; it does not depend on a tokenizer."""
    held = _read()["layers"]
    found = _of(held, _alone(model)) if held else None
    return None if found is None else LayerChoice(**found)


def shipped_layer(model: nn.Module) -> LayerChoice | None:
    """The layer that a bundled model comes with."""
    folder = Path(getattr(getattr(model, "config", None), "_name_or_path", ""))
    file = folder / SHIPPED_LAYER
    if folder.parent != BUNDLED or folder.name not in bundled_models() or not file.exists():
        return None
    return LayerChoice(**read_json(file))


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
    alone = _alone(subject.model)
    if not choices_file().exists():
        return False
    with _changing() as held:
        of_method = held["models"].get(subject.shape, {}).pop(subject.fingerprint, None)
        of_layer = held["layers"].get(alone.shape, {}).pop(alone.fingerprint, None) if held["layers"] else None
    return of_method is not None or of_layer is not None


class _NoTokenizer:
    """In place of a tokenizer, for what depends on a model alone."""

    def get_vocab(self) -> dict[str, int]:
        return {}


_NO_TOKENIZER = _NoTokenizer()
_HASHED: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()


def _alone(model: nn.Module) -> Subject:
    """The model without a tokenizer. What it hashes is kept with the model: methods ask for every batch."""
    alone = Subject(unwrapped(model), _NO_TOKENIZER, (), "")
    object.__setattr__(alone, "_hashed", _HASHED.setdefault(alone.model, {}))
    return alone


def _of(held: Mapping[str, Any], subject: Subject) -> Any:
    of_shape = held.get(subject.shape) if held else None
    return of_shape.get(subject.last_fingerprint) if of_shape else None


def _recorded(kind: str, subject: Subject, choice: Choice | LayerChoice) -> Path:
    shape, fingerprint = subject.shape, subject.fingerprint  # hashed before anybody has to wait
    with _changing() as held:
        held[kind].setdefault(shape, {})[fingerprint] = asdict(choice)
    return choices_file()


@contextmanager
def _changing() -> Iterator[dict[str, dict[str, Any]]]:
    """What is recorded, to be changed by one process at a time, and written if it was."""
    path = choices_file()
    with naming(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_suffix(".lock"))
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout as error:
            raise BadInput(f"could not write {str(path)!r}: another process has held it for {PATIENCE} s") from error
    try:
        held = _read()
        before = json.dumps(held)
        yield held
        if json.dumps(held) != before:
            _write(held)
    finally:
        lock.release()


def _read() -> dict[str, dict[str, Any]]:
    """The methods (`models`) and the `layers` that are recorded, by shape and fingerprint."""
    path = choices_file()
    if not os.path.lexists(path):
        return {"models": {}, "layers": {}}
    try:
        data = CHOICES.read(regular(path))
    except BadInput as error:
        raise BadInput(f"could not read {str(path)!r}: {error}; mend it, or remove it") from error
    return {"models": data["models"], "layers": data.get("layers", {})}


def _write(held: Mapping[str, Mapping[str, Any]]) -> Path:
    layers = {"layers": held["layers"]} if held["layers"] else {}  # earlier versions did not know these
    data = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "models": held["models"], **layers}
    return write(choices_file(), json.dumps(data, indent=1))


_NUMBERS = {
    "method": text,
    "metric": text,
    **dict.fromkeys(("mean", "low", "high"), number()),
    "n": count,
    "data": text,
}
_CHOICE, _LAYER = fields(_NUMBERS, only=True), fields({"layer": count, **_NUMBERS}, only=True)
_CHOICES = fields({"models": named(named(_CHOICE))}, {"layers": named(named(_LAYER))})
CHOICES = Format("file of choices", SCHEMA, SCHEMA_VERSION, (_CHOICES,))
