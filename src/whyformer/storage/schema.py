"""Forms: what saved data must look like. It is checked when it is read, and an error names the file and the field."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as short
from typing import Any

from whyformer.errors import BadInput
from whyformer.storage.files import read_json

LARGEST = 1e300  # sums of larger numbers have no end
WHOLE = 2**63  # whole numbers lie below
DEEPEST = 50  # lists in lists, or objects in objects
INDEX = re.compile("[0-9]{1,18}")
OFFSET = re.compile("-?[0-9]{1,9}")

Form = Callable[[Any], None]  # raises Misfit


class Misfit(ValueError):
    """Something that is not as its form says: where it stands, and what is wrong with it."""

    def __init__(self, problem: str, field: str = "") -> None:
        super().__init__(f"{field!r} {problem}" if field else f"it {problem}")
        self.problem, self.field = problem, field

    def below(self, name: str | int) -> "Misfit":
        """This misfit as seen from the list or object that holds it."""
        step = f"[{name}]" if isinstance(name, int) else name
        return Misfit(self.problem, f"{step}{'' if self.field[:1] in ('', '[') else '.'}{self.field}")


def must(condition: bool, problem: str, field: str = "") -> None:
    """Raise what is wrong with a field, if something is."""
    if not condition:
        raise Misfit(problem, field)


def _form(fits: Callable[[Any], bool], what: str) -> Form:
    """The form of what fits; anything else is reported as not being `what`."""

    def check(value: Any) -> None:
        if not fits(value):
            raise Misfit(f"is {short(value)}, not {what}")

    return check


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(low: float = -LARGEST, high: float = LARGEST) -> Form:
    """A number in a range."""
    limits = "" if high == LARGEST else f" of {low:g} … {high:g}"
    return _form(lambda value: _is_number(value) and low <= value <= high, f"a number{limits}")


def whole(low: int = -WHOLE, below: int = WHOLE) -> Form:
    """A whole number in a range."""
    limits = "" if low < 0 else f" of {low} …" if below == WHOLE else f" of {low} … {below - 1}"
    what = f"a whole number{limits}"
    return _form(lambda value: _is_number(value) and isinstance(value, int) and low <= value < below, what)


def one_of(*known: str) -> Form:
    """One of some words."""
    return _form(lambda value: isinstance(value, str) and value in known, f"one of {', '.join(known)}")


text = _form(lambda value: isinstance(value, str), "text")
flag = _form(lambda value: isinstance(value, bool), "true or false")
finite = _form(lambda value: _is_number(value) and -math.inf < value < math.inf, "a number")  # however large
count = whole(0)
_object = _form(lambda value: isinstance(value, Mapping), "an object")


def index(value: Any) -> None:
    """A whole number as the name of something."""
    if not INDEX.fullmatch(value):
        raise Misfit("is not the name of a place: they are numbered")


def offset(value: Any) -> None:
    """How far two places are apart, as the name of something."""
    if not OFFSET.fullmatch(value):
        raise Misfit("is not a whole number")


def span(value: Any) -> None:
    """The first place and the last, or the one behind it."""
    every(count)(value)
    if len(value) != 2 or value[0] > value[1]:
        raise Misfit(f"is {short(value)}, not a start and an end")


def plain(value: Any, depth: int = DEEPEST) -> None:
    """Anything that is not nested without end."""
    if not depth:
        raise Misfit("is nested too deeply")
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        plain(inner, depth - 1)


def both(first: Form, second: Form) -> Form:
    """What fits both forms."""

    def check(value: Any) -> None:
        first(value)
        second(value)

    return check


def optional(form: Form) -> Form:
    """What fits the form, or null."""

    def check(value: Any) -> None:
        if value is not None:
            form(value)

    return check


def every(form: Form, at_least: int = 0) -> Form:
    """A list of such things."""

    def check(value: Any) -> None:
        if not isinstance(value, (list, tuple)) or len(value) < at_least:
            raise Misfit(f"is {short(value)}, not a list{f' of {at_least} or more' if at_least else ''}")
        for place, inner in enumerate(value):
            _check_at(place, form, inner)

    return check


def _check_at(name: str | int, form: Form, inner: Any) -> None:
    """Check what a list or object holds in one place."""
    try:
        form(inner)
    except Misfit as misfit:
        raise misfit.below(name) from None


def named(form: Form, key: Form = text) -> Form:
    """An object of such things, whatever their names."""
    name_form = both(text, key)

    def check(value: Any) -> None:
        _object(value)
        for name, inner in value.items():
            _check_at(str(name), name_form, name)
            _check_at(str(name), form, inner)

    return check


def fields(required: Mapping[str, Form], more: Mapping[str, Form] | None = None, *, only: bool = False) -> Form:
    """An object with these fields, and perhaps with some more; others are ignored, or with `only` refused."""
    forms = {**required, **(more or {})}

    def check(value: Any) -> None:
        _object(value)
        for name in required:
            must(name in value, "is missing", name)
        for name in value:
            if name in forms:
                _check_at(name, forms[name], value[name])
            elif only:
                raise Misfit("is not known", str(name))

    return check


@dataclass(frozen=True)
class Format:
    """A kind of file: its schema, its version, and the forms that what it holds must have, one after the other.

    `older` has for each earlier version the form of what it held, and what makes the present version of it.
    """

    kind: str  # what people call it
    schema: str
    version: int
    forms: tuple[Form, ...]
    versioned: str = "schema_version"  # the field that has the version
    advice: str = ""
    older: Mapping[int, tuple[Form, Callable[[Mapping[str, Any]], dict[str, Any]]]] = field(default_factory=dict)

    def read(self, path: str | Path) -> dict[str, Any]:
        """What a file of this kind holds."""
        return self.checked(read_json(path, self.kind), path)

    def checked(self, data: Any, source: str | Path | None = None) -> dict[str, Any]:
        """The data, if it is of this kind; `source` is the file that it was read from."""
        name = f"this {self.kind}" if source is None else f"the {self.kind} {str(source)!r}"
        advice = f"; {self.advice}" if self.advice else ""
        schema = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
        if schema != self.schema:
            it = "this" if source is None else repr(str(source))
            raise BadInput(f"{it} is no {self.kind} (schema {short(schema)}){advice}")
        version = data.get(self.versioned)
        if type(version) is not int or version not in (self.version, *self.older):
            known = " or ".join(map(str, (*self.older, self.version)))
            raise BadInput(f"{name} has version {short(version)}; this program reads version {known}{advice}")
        try:
            return dict(self.renewed(data))
        except Misfit as misfit:
            raise BadInput(f"{name} is damaged or not complete: {misfit}{advice}") from misfit

    def renewed(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data in this version, whatever version they have; raises Misfit."""
        version = data.get(self.versioned)
        if type(version) is int and version in self.older:
            form, renewed = self.older[version]
            form(data)
            data = renewed(data)
        self.check(data)
        return data

    def check(self, data: Any) -> None:
        """Raise Misfit unless the data is of this kind and version: a form, for files that hold several of a kind."""
        fields({"schema": one_of(self.schema), self.versioned: whole(self.version, self.version + 1)})(data)
        for form in self.forms:
            form(data)
