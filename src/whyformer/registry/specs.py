"""Spec: a method or metric with its options, as it is written: `attcat(states=inputs)`."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from whyformer.errors import BadOption
from whyformer.registry.declared import Method, Metric, R, list_methods, list_metrics, method_named, metric_named
from whyformer.registry.own_code import code_of

Written = str | Sequence[str]
FAST = "fast"  # every method that runs the model once, forward and backward
EVERY = ("all", FAST)
LONGEST_PATH = 4096  # characters


@dataclass(frozen=True)
class Spec(Generic[R]):
    """A registered function and the options that it is called with; those left out have their defaults."""

    of: R
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """As it is written, options in order of their names; two specs of the same label are the same."""
        known = self.of.options
        stated = {
            k: v for k, v in sorted(self.options.items()) if known[k].in_key(v) != known[k].in_key(known[k].default)
        }
        written = ", ".join(f"{name}={_text(value)}" for name, value in stated.items())
        return f"{self.of.name}({written})" if written else self.of.name

    @property
    def facts(self) -> dict[str, Any]:
        """What determines a number: the name, all options with their defaults, what files named there hold, and code.

        Code is hashed where a method or metric is not of this package, whose version stands for it.
        """
        known = self.of.options
        options = {name: option.default for name, option in sorted(known.items())} | dict(self.options)
        named = {name: _files(value) for name, value in options.items() if known[name].is_path(value)}
        files = {name: _digest(paths) for name, paths in named.items() if paths}
        facts: dict[str, Any] = {"name": self.of.name}
        facts["options"] = {name: known[name].in_key(value) for name, value in options.items()}
        code = code_of(self.of.function, getattr(self.of, "reduce", None))
        beside = {"files": files or None, "code": code, "made_of": self.made_of and self.made_of.facts}
        return facts | {name: fact for name, fact in beside.items() if fact is not None}

    @property
    def of_option(self) -> str | None:
        """The name of the option that says which method this one is made of, if it is made of one."""
        return next((name for name, option in self.of.options.items() if option.names_method), None)

    @property
    def made_of(self) -> "Spec[Method] | None":
        """The method that this one is made of: what an option of type `MethodName` names."""
        if self.of_option is None:
            return None
        option = self.of.options[self.of_option]
        spec = method_specs([self.options.get(option.name, option.default)])[0]
        if spec.of.name == self.of.name:
            raise BadOption(
                f"{self.of.name} cannot be made of itself: give {option.name}= a method that explains in one pass"
            )
        return spec

    def made_of_label(self, label: str) -> "Spec[R]":
        """The same, made of the method that is written so."""
        return self if self.of_option is None else Spec(self.of, {**self.options, self.of_option: label})

    @property
    def class_specific(self) -> bool:
        """Whether a method's scores depend on the class: not if those of the method that it is made of do not."""
        own: bool = getattr(self.of, "class_specific", False)
        return own and (self.made_of is None or self.made_of.class_specific)

    def __call__(self, given: Any) -> Any:
        """Call it with these options."""
        return self.of(given, **self.options)  # type: ignore[operator]


def method_specs(written: Written) -> tuple[Spec[Method], ...]:
    """The methods named, `all` for every one, `fast` for those of one pass; options follow a name in brackets."""
    return _specs([name for part in names_of(written) for name in _meant(part)], method_named)


def _meant(name: str) -> list[str]:
    """The methods that a word for several stands for, or the one that is named."""
    if name not in EVERY:
        return [name]
    return [own for own, method in list_methods().items() if name == "all" or method.passes == "one"]


def metric_specs(written: Written) -> tuple[Spec[Metric], ...]:
    """The metrics named, `all` for every one."""
    return _specs(list(list_metrics()) if written == "all" else written, metric_named)


def names_of(written: Written) -> list[str]:
    """The names in a text with commas between them, each with its options."""
    parts = _split(written, r",") if isinstance(written, str) else list(written)
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
    for part in _split(shape[2], r",(?=\s*\w+\s*=)") if shape[2] else []:
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign:
            raise BadOption(f"{written!r}: an option is written as name=value; found {part.strip()!r}")
        if name in options:
            raise BadOption(f"{written!r}: {name} is given twice")
        of.checked({name: None} if name not in of.options else {})  # raises if there is no such option
        options[name] = of.options[name].parsed(value)
    spec = Spec(of, options)
    made_of = spec.made_of  # raises if it cannot be made of that
    return spec if made_of is None or spec.of_option not in options else spec.made_of_label(made_of.label)


def _split(text: str, at: str) -> list[str]:
    """The parts of a text between commas, outside of brackets."""
    parts, start = [], 0
    for comma in re.finditer(at, text):
        before = text[: comma.start()]
        if before.count("(") <= before.count(")"):
            parts.append(text[start : comma.start()])
            start = comma.end()
    return [*parts, text[start:]]


def _files(value: str) -> list[Path]:
    """The file of that name, or those of the model in a folder of that name."""
    path = Path(value)
    if len(value) >= LONGEST_PATH or not path.exists():
        return []
    model = [path / "config.json", *sorted(path.glob("*.safetensors"))]
    return [path] if path.is_file() else model if model[0].is_file() else []


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with file.open("rb") as opened:
            while block := opened.read(2**24):
                digest.update(block)
    return digest.hexdigest()


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
