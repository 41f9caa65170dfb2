"""Parquet files, and data that is spread over several files."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.datasets.source import Row, Source, content_hash, extra
from whyformer.errors import BadInput

BATCH = 256  # rows decoded at once
BUFFER = 1 << 16  # bytes; without it a row group is held whole


@dataclass
class ParquetFile:
    """A Parquet file, decoded a few rows at a time and only the columns that are needed."""

    path: Path
    format = "parquet"
    seekable = True

    @property
    def where(self) -> str:
        """The file, for messages."""
        return str(self.path)

    def _open(self) -> Any:
        try:
            return extra("pyarrow.parquet").ParquetFile(self.path, pre_buffer=False, buffer_size=BUFFER)
        except extra("pyarrow").ArrowException as error:
            raise BadInput(f"{self.where} cannot be read as Parquet: {error}") from error

    def columns(self) -> list[str]:
        """The names of the columns."""
        with self._open() as file:
            return list(file.schema_arrow.names)

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows from number `start` on; whole row groups before it are not read."""
        with self._open() as file:
            groups = list(range(file.num_row_groups))
            while groups and start >= (rows := file.metadata.row_group(groups[0]).num_rows):
                start -= rows
                groups = groups[1:]
            needed = None if columns is None else list(dict.fromkeys([*columns, *_plain_columns(file.schema_arrow)]))
            for group in groups:  # one at a time: together they would be held in memory
                for batch in file.iter_batches(BATCH, row_groups=[group], columns=needed):
                    if start < len(batch):
                        yield from batch.slice(start).to_pylist()
                    start = max(0, start - len(batch))

    def count(self) -> int | None:
        """As the file itself says."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def digest(self) -> str:
        """A hash of the content."""
        return content_hash([self.path])


def _plain_columns(schema: Any) -> list[str]:
    """Columns of texts and numbers: what costs little to read along."""
    types = extra("pyarrow").types
    plain = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    return [field.name for field in schema if any(check(field.type) for check in plain)]


@dataclass
class Shards:
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

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
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

    def count(self) -> int | None:
        """The sum, if all are known."""
        counts = [source.count() for source in self.sources]
        return None if None in counts else sum(count or 0 for count in counts)

    def digest(self) -> str:
        """A hash of the content of all."""
        return hashlib.blake2b("".join(s.digest() for s in self.sources).encode(), digest_size=16).hexdigest()
