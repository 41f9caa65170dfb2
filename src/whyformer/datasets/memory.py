"""Rows in memory: a list, a pandas DataFrame, a Dataset of `datasets`."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.datasets.hub import undecoded
from whyformer.datasets.source import Source, StoredRow, foreign
from whyformer.errors import BadInput, listed, shown
from whyformer.inputs.images import is_picture, stored_digest
from whyformer.storage.files import path_of

ACCEPTED = "a list of texts, of (text, label) or of dictionaries, a DataFrame, or one split of `datasets`"
RowSequence = Sequence[Any] | Sized  # the latter is a pandas DataFrame, or a Dataset of `datasets`


@dataclass
class MemoryRows(Source):
    """Rows that are in memory already; `held` gives one for each index."""

    held: Any
    name: str
    format = "memory"
    seekable = True

    @property
    def where(self) -> str:
        """The kind of the object, for messages."""
        return f"the {self.name}"

    def columns(self) -> list[str]:
        """The names in the first row that can be read."""
        reason = ""
        for row in self.read():
            if not isinstance(row, str):
                return list(row)
            reason = reason or f": row 0 is {row}"
        raise BadInput(f"{self.where} holds no rows{' that can be used' * bool(reason)}{reason}")

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The rows from number `start` on."""
        with foreign(self.where, "rows"):
            for place in range(start, len(self.held)):
                yield _record(self.held[place])

    def file(self, name: str) -> Path:
        """The file of that name, wherever it is: who gives rows names the files too."""
        return path_of(name)

    def count(self) -> int | None:
        """All of them."""
        return len(self.held)

    def digest(self) -> str:
        """A hash of the content."""
        total = hashlib.blake2b(digest_size=16)
        with foreign(self.where, "rows"):
            for row in self.read():
                total.update(json.dumps(row, sort_keys=True, default=_written).encode() + b"\n")
        return total.hexdigest()


def rows_in_memory(held: Any) -> MemoryRows:
    """A list, DataFrame or Dataset as a source of rows."""
    name = type(held).__name__
    if hasattr(held, "to_dict") and hasattr(held, "notna"):
        held = _of_pandas(held)
    elif hasattr(held, "column_names") and hasattr(held, "__len__") and not isinstance(held, Mapping):
        return MemoryRows(undecoded(held), name)
    elif not isinstance(held, Sequence) or isinstance(held, str | bytes | bytearray):
        raise BadInput(f"data cannot be a {name}; give a path or a name, {ACCEPTED}")
    return MemoryRows(list(held), name)


def _of_pandas(held: Any) -> Sequence[Any]:
    """The rows of a DataFrame, or the values of a Series; what is missing (NaN, NaT, NA) is None."""
    with foreign(f"the {type(held).__name__}", "rows"):
        values = held.astype(object).where(held.notna(), None)
        if not hasattr(held, "columns"):
            return list(values)
        if not held.columns.is_unique:
            raise BadInput(f"the DataFrame needs a different name for each column; found {listed(list(held.columns))}")
        return list(values.to_dict("records"))


def _record(row: Any) -> StoredRow:
    """A row as files give it: a text or image, (text, label) where the text may be a pair, or a dictionary."""
    if isinstance(row, str):
        return {"text": row}
    if is_picture(row):
        return {"image": row}
    if isinstance(row, Mapping):
        return {str(name): _plain(value) for name, value in row.items()} or "an empty dictionary"
    if _is_pair(row):
        text, label = row
        if not isinstance(text, str) and is_picture(text):
            return {"image": text, "label": _plain(label)}
        parts = dict(zip(("text1", "text2"), text, strict=False)) if _is_pair(text) else {"text": text}
        return {**parts, "label": _plain(label)}
    return f"{shown(row)}, where a text, (text, label) or a dictionary is needed"


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _plain(value: Any) -> Any:
    """A value as files give it: what numpy and pandas hold becomes numbers and lists, a tuple a list.

    What may be an image stays as it is.
    """
    if is_picture(value):
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(held) for name, held in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _written(value: Any) -> str:
    """What JSON cannot hold: bytes as they are, images by a hash, all else by its kind: no example is made of it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    return stored_digest(value) if is_picture(value) else type(value).__name__
