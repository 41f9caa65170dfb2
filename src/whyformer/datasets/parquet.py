"""Parquet files, and data that is spread over several files."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.datasets.source import DataFile, Source, StoredRow, extra, foreign
from whyformer.errors import BadInput, listed, reason_of

BATCH = 256  # rows decoded at once
IMAGES = 16  # rows decoded at once where there are images
BUFFER = 1 << 16  # bytes; without it a row group is held whole


class ParquetFile(DataFile):
    """A Parquet file, decoded a few rows at a time and only the columns that are needed."""

    format = "parquet"
    seekable = True

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with (
            foreign(self.where, "Parquet"),
            extra("pyarrow.parquet").ParquetFile(self.path, pre_buffer=False, buffer_size=BUFFER) as file,
        ):
            yield file

    def columns(self) -> list[str]:
        """The names of the columns."""
        with self._open() as file:
            names = list(file.schema_arrow.names)
        if len(set(names)) < len(names):
            raise BadInput(f"{self.where} needs a different name for each column; found {listed(names)}")
        return names

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The rows from number `start` on; whole row groups before it are not read."""
        with self._open() as file:
            groups = list(range(file.num_row_groups))
            while groups and start >= (rows := file.metadata.row_group(groups[0]).num_rows):
                start -= rows
                groups = groups[1:]
            needed = None if columns is None else list(dict.fromkeys([*columns, *_plain_columns(file.schema_arrow)]))
            size = IMAGES if _has_bytes(file.schema_arrow, needed) else BATCH
            for group in groups:  # one at a time: together they would be held in memory
                for batch in file.iter_batches(size, row_groups=[group], columns=needed):
                    if start < len(batch):
                        yield from _records(batch.slice(start))
                    start = max(0, start - len(batch))

    def count(self) -> int | None:
        """As the file itself says."""
        with self._open() as file:
            return int(file.metadata.num_rows)


def _records(batch: Any) -> list[StoredRow]:
    """The rows of a batch; if one cannot be decoded (text that is not UTF-8, a date of no year), the others can."""
    try:
        return list(batch.to_pylist())
    except (ValueError, TypeError, ArithmeticError, NotImplementedError) as error:
        if len(batch) == 1:
            return [f"not readable: {reason_of(error)}"]
    return [row for place in range(len(batch)) for row in _records(batch.slice(place, 1))]


def _has_bytes(schema: Any, needed: Sequence[str] | None) -> bool:
    """Whether one of the columns holds bytes, or a structure of bytes and a path."""
    types = extra("pyarrow").types
    fields = [field for field in schema if needed is None or field.name in needed]
    inner = [kind for f in fields for kind in ([part.type for part in f.type] if types.is_struct(f.type) else [f.type])]
    return any(types.is_binary(kind) or types.is_large_binary(kind) for kind in inner)


def _plain_columns(schema: Any) -> list[str]:
    """Columns of texts and numbers: what costs little to read along."""
    types = extra("pyarrow").types
    plain = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    return [field.name for field in schema if any(check(field.type) for check in plain)]


@dataclass
class Shards(Source):
    """Several files of one format, one after the other."""

    sources: Sequence[Source]

    @property
    def where(self) -> str:
        """The first file, for messages."""
        return f"{self.sources[0].where} and {len(self.sources) - 1} more"

    @property
    def format(self) -> str:
        """The format of all of them."""
        return self.sources[0].format

    @property
    def seekable(self) -> bool:
        """Whether whole files can be passed over."""
        return self.sources[0].seekable

    def columns(self) -> list[str]:
        """The columns of the first file."""
        return self.sources[0].columns()

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The rows from number `start` on."""
        for source in self.sources:
            rows = source.count() if start else 0
            if rows is None:
                for row in source.read(0, columns):
                    if not start:
                        yield row
                    start = max(0, start - 1)
            elif start < rows or not start:
                yield from source.read(start, columns)
                start = 0
            else:
                start -= rows

    def file(self, name: str) -> Path:
        """The file of that name beside the first of these files."""
        return self.sources[0].file(name)

    def place(self, row: int) -> str:
        """The file in which a row stands, and its number there."""
        before = 0
        for source in self.sources[:-1]:
            rows = source.count()
            rows = sum(1 for _ in source.read()) if rows is None else rows
            if row < before + rows:
                return f"{source.place(row - before)}, row {row} of all files"
            before += rows
        return f"{self.sources[-1].place(row - before)}, row {row} of all files"

    def count(self) -> int | None:
        """The sum, if all are known."""
        counts = [source.count() for source in self.sources]
        return None if None in counts else sum(count or 0 for count in counts)

    def digest(self) -> str:
        """A hash of the content of all."""
        return hashlib.blake2b("".join(s.digest() for s in self.sources).encode(), digest_size=16).hexdigest()
