"""Choices: what was found best for a model, in a small file of the user's."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whyformer.errors import BadInput, BadOption
from whyformer.load import Subject
from whyformer.registry import Method
from whyformer.specs import Spec, method_specs

SCHEMA = "whyformer/choices"
SCHEMA_VERSION = 1


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


def choices_file() -> Path:
    """`$WHYFORMER_CACHE/choices.json`, else `$XDG_CACHE_HOME/whyformer/…`, else `~/.cache/whyformer/…`."""
    own = os.environ.get("WHYFORMER_CACHE")
    folder = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whyformer"
    return folder / "choices.json"


def recorded(subject: Subject) -> Choice | None:
    """What was recorded for this very model, if anything was; its weights are looked at only if its shape is known."""
    models = _read()
    of_shape = models.get(subject.shape) if models else None
    found = of_shape.get(subject.last_fingerprint) if of_shape else None
    try:
        return None if found is None else Choice(**found)
    except TypeError as error:
        raise BadInput(f"{str(choices_file())!r} holds no choice of this version of whyformer: remove it") from error


def record(subject: Subject, choice: Choice) -> Path:
    """Record the choice for this model; the file is replaced at once, so that nobody reads half of it."""
    models = _read()
    models.setdefault(subject.shape, {})[subject.fingerprint] = asdict(choice)
    return _write(models)


def forget(subject: Subject) -> bool:
    """Forget what was recorded for this model; whether there was something."""
    models = _read()
    found = models.get(subject.shape, {}).pop(subject.fingerprint, None)
    if found is not None:
        _write(models)
    return found is not None


def _read() -> dict[str, dict[str, Any]]:
    path = choices_file()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadInput(f"could not read {str(path)!r} ({error}): mend it, or remove it") from error
    known = isinstance(data, Mapping) and (data.get("schema"), data.get("schema_version")) == (SCHEMA, SCHEMA_VERSION)
    if not known or not isinstance(data.get("models"), Mapping):
        raise BadInput(f"{str(path)!r} holds no choices of this version of whyformer: remove it")
    return dict(data["models"])


def _write(models: Mapping[str, Any]) -> Path:
    path = choices_file()
    data = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "models": models}
    new = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(data, indent=1), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise BadInput(f"could not write {str(path)!r}: {error.strerror}") from error
    return path
