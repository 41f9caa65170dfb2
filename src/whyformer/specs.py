"""Spec: a method or metric with its options, as it is written: `attcat(states=inputs)`."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from whyformer.errors import BadOption
from whyformer.registry import Method, Metric, R, method_named, methods, metric_named, metrics

Written = str | Sequence[str]
LONGEST_PATH = 4096  # characters


@dataclass(frozen=True)
class Spec(Generic[R]):
    """A registered function and the options that it is called with; those left out have their defaults."""

    of: R
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """As it is written, options in order of their names; two specs of the same label are the same."""
        defaults = self.of.options
        given = {k: v for k, v in sorted(self.options.items()) if v != defaults[k].default}
        written = ", ".join(f"{name}={_text(value)}" for name, value in given.items())
        return f"{self.of.name}({written})" if written else self.of.name

    @property
    def facts(self) -> dict[str, Any]:
        """The name and all options, defaults included, and what files named there hold: what determines a number."""
        options = {name: option.default for name, option in sorted(self.of.options.items())} | dict(self.options)
        files = {name: _digest(value) for name, value in options.items() if isinstance(value, str) and _is_file(value)}
        return {"name": self.of.name, "options": options, **({"files": files} if files else {})}

    def __call__(self, given: Any) -> Any:
        """Call it with these options."""
        return self.of(given, **self.options)  # type: ignore[operator]


def method_specs(written: Written) -> tuple[Spec[Method], ...]:
    """The methods named, `all` for every one; a name may have options behind it, in brackets."""
    return _specs(list(methods()) if written == "all" else written, method_named)


def metric_specs(written: Written) -> tuple[Spec[Metric], ...]:
    """The metrics named, `all` for every one."""
    return _specs(list(metrics()) if written == "all" else written, metric_named)


def names_of(written: Written) -> list[str]:
    """The names in a text with commas between them, each with its options."""
    parts = re.split(r",(?![^(]*\))", written) if isinstance(written, str) else list(written)
    if odd := [part for part in parts if not isinstance(part, str)]:
        raise BadOption(f"a method or metric is given by its name; found {odd[0]!r}")
    return [part.strip() for part in parts if part.strip()]


def _specs(written: Written, named: Callable[[str], R]) -> tuple[Spec[R], ...]:
    found = [_spec(part, named) for part in names_of(written)]
    if not found:
        raise BadOption("nothing is named: give at least one name, or `all`")
    return tuple({spec.label: spec for spec in found}.values())


def _spec(written: str, named: Callable[[str], R]) -> Spec[R]:
    shape = re.fullmatch(r"([^()]*)(?:\((.*)\))?", written, re.DOTALL)
    if shape is None:
        raise BadOption(f"{written!r} is not written as name or name(option=value, option=value)")
    of = named(shape[1].strip())
    options: dict[str, Any] = {}
    for part in re.split(r",(?=\s*\w+\s*=)", shape[2]) if shape[2] else []:
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign:
            raise BadOption(f"{written!r}: an option is written as name=value; found {part.strip()!r}")
        if name in options:
            raise BadOption(f"{written!r}: {name} is given twice")
        of.checked({name: None} if name not in of.options else {})  # raises if there is no such option
        options[name] = of.options[name].parsed(value)
    return Spec(of, options)


def _is_file(value: str) -> bool:
    return len(value) < LONGEST_PATH and Path(value).is_file()


def _digest(value: str) -> str:
    return hashlib.blake2b(Path(value).read_bytes(), digest_size=16).hexdigest()


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
