"""Tampering: copies of JSON data, each with one thing wrong, always the same and in the same order."""

import copy
import math
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]


def nested(depth: int) -> Any:
    """A list in a list in a list …."""
    inner: Any = []
    for _ in range(depth):
        inner = [inner]
    return inner


ODD: dict[str, Any] = {
    "null": None,
    "true": True,
    "-1": -1,
    "99": 99,
    "0.5": 0.5,
    "NaN": math.nan,
    "infinity": -math.inf,
    "1e308": 1e308,
    "10^30": 10**30,
    "no text": "",
    "a lone surrogate": "\ud800",
    "an empty list": [],
    "a list of a list": [[]],
    "an empty object": {},
    "an object": {"x": {"y": 1}},
    "200 brackets": nested(200),
}


def tampered(data: Any) -> Iterator[tuple[str, Any]]:
    """What was done, and the data after that; the data itself stays as it is."""
    for path in _paths(data):
        where = "".join(f"[{step!r}]" for step in path) or "all"
        value = _at(data, path)
        for name, odd in (ODD | _changed(value)).items():
            yield f"{where} is {name}", _with(data, path, odd)
        if path:
            yield f"{where} is dropped", _without(data, path)


def _changed(value: Any) -> dict[str, Any]:
    """The same kind of thing, not the same."""
    if isinstance(value, dict):
        return {"with another name": {**value, "\ud800=x": 1}}
    if isinstance(value, list):
        return {"doubled": value * 2, "reversed": value[::-1], "shortened": value[:-1]}
    if isinstance(value, str):
        return {"longer": value + "x" * 1000, "a formula": f"=HYPERLINK({value})", "control": f"\x1b[2J{value}"}
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"negated": -value, "text": str(value), "one more": value + 1}
    return {}


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The way to everything in the data; of long lists the first, the second and the last."""
    yield path
    if isinstance(value, dict):
        for name in value:
            yield from _paths(value[name], (*path, name))
    elif isinstance(value, list):
        for place in sorted({0, 1, len(value) - 1} & set(range(len(value)))):
            yield from _paths(value[place], (*path, place))


def _at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def _with(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return copy.deepcopy(value)
    changed = copy.deepcopy(data)
    _at(changed, path[:-1])[path[-1]] = copy.deepcopy(value)
    return changed


def _without(data: Any, path: Path) -> Any:
    changed = copy.deepcopy(data)
    del _at(changed, path[:-1])[path[-1]]
    return changed
