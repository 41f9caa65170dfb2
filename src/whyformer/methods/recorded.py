"""Choices: the method and the layer that were found best for a model, in a small file of the user's."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import nn

from whyformer.errors import BadInput, BadOption
from whyformer.methods.specs import MethodSpec, method_specs
from whyformer.models.fingerprint import fingerprint, last_fingerprint, shape_of
from whyformer.models.loading import BUNDLED, Subject, bundled_models, unwrapped
from whyformer.storage.files import naming, read_json, regular, write
from whyformer.storage.forms import Format, count, fields, named, number, text

SCHEMA = "whyformer/choices"
SCHEMA_VERSION = 1
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
class LayerChoice(Choice):
    """The layer that was found best for a model, the method that read it, and the numbers that speak for it."""

    layer: int


def choices_file() -> Path:
    """`$WHYFORMER_CACHE/choices.json`, else `$XDG_CACHE_HOME/whyformer/…`, else `~/.cache/whyformer/…`."""
    if folder := os.environ.get("WHYFORMER_CACHE"):
        return Path(folder) / "choices.json"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whyformer" / "choices.json"


def recorded(subject: Subject) -> Choice | None:
    """What was recorded for this very model, if anything was; its weights are looked at only if its shape is known."""
    numbers = _of(_read()["models"], subject.model, subject.tokenizer)
    return None if numbers is None else Choice(**numbers)


def recorded_layer(model: nn.Module) -> LayerChoice | None:
    """The layer that was recorded for this very model, if one was; it does not depend on a tokenizer."""
    numbers = _of(_read()["layers"], unwrapped(model))
    return None if numbers is None else LayerChoice(**numbers)


def shipped_file(model: nn.Module, name: str) -> Path | None:
    """The file of that name that a bundled model comes with, if it comes with one."""
    folder = Path(getattr(getattr(model, "config", None), "_name_or_path", ""))
    is_bundled = folder.parent == BUNDLED and folder.name in bundled_models()
    return folder / name if is_bundled and (folder / name).exists() else None


def shipped_layer(model: nn.Module) -> LayerChoice | None:
    """The layer that a bundled model comes with."""
    file = shipped_file(model, "layer.json")
    return None if file is None else LayerChoice(**read_json(file))


def best_layer(model: nn.Module) -> int:
    """The layer that was recorded for this model, or that it comes with, or an error that says how to record one."""
    choice = recorded_layer(model) or shipped_layer(model)
    if choice is None:
        raise BadOption(
            "layer='best' is the layer that was recorded for this model, and none is: have one chosen on texts of your "
            "own, `whyformer recommend --layers --data FILE` (an LM head is given as --methods "
            "'decoded_grad_cam(lm_head=FOLDER)') or recommend(data, layers=True), or give a number"
        )
    return choice.layer


def record(subject: Subject, choice: Choice) -> Path:
    """Record the choice for this model; the file is replaced at once, so that nobody reads half of it."""
    return _recorded("models", choice, subject.model, subject.tokenizer)


def record_layer(model: nn.Module, choice: LayerChoice) -> Path:
    """Record the layer for this model, as `record` does the method."""
    return _recorded("layers", choice, unwrapped(model))


def forget(subject: Subject) -> bool:
    """Forget the method and the layer that were recorded for this model; whether there was something."""
    if not choices_file().exists():
        return False
    keys = {"models": _keys(subject.model, subject.tokenizer), "layers": _keys(unwrapped(subject.model))}
    with _changing() as held:
        known = [held[kind].get(shape, {}).pop(digest, None) for kind, (shape, digest) in keys.items()]
    return any(numbers is not None for numbers in known)


def _keys(model: nn.Module, tokenizer: Any = None) -> tuple[str, str]:
    return shape_of(model, tokenizer), fingerprint(model, tokenizer)


def _of(held: Mapping[str, Any], model: nn.Module, tokenizer: Any = None) -> Any:
    of_shape = held.get(shape_of(model, tokenizer)) if held else None
    return of_shape.get(last_fingerprint(model, tokenizer)) if of_shape else None


def _recorded(kind: str, choice: Choice | LayerChoice, model: nn.Module, tokenizer: Any = None) -> Path:
    shape, digest = _keys(model, tokenizer)  # hashed before anybody has to wait
    with _changing() as held:
        held[kind].setdefault(shape, {})[digest] = asdict(choice)
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
            layers = {"layers": held["layers"]} if held["layers"] else {}  # earlier versions did not know these
            data = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "models": held["models"], **layers}
            write(path, json.dumps(data, indent=1))
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
