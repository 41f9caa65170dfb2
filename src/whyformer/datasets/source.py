"""What all sources of rows have in common."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from whyformer.errors import BadInput, MissingExtra, WhyformerError, reason_of, shown
from whyformer.storage.files import inside, naming

RowFields = Mapping[str, Any]
StoredRow = RowFields | str  # a record, or the reason why there is none


class Source(Protocol):
    """Where rows come from. Every call of `read` starts anew, and holds a few rows at a time."""

    @property
    def where(self) -> str:
        """What messages call it."""

    @property
    def format(self) -> str:
        """How the data is stored."""

    @property
    def seekable(self) -> bool:
        """Whether `read(start)` costs little."""
        return False

    def columns(self) -> list[str]:
        """The names of the columns."""

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The rows from number `start` on; `columns` are those that are needed, others may be left out."""

    def count(self) -> int | None:
        """How many rows there are, if that is known without reading them."""
        return None

    def digest(self) -> str:
        """A hash of the content."""

    def file(self, name: str) -> Path:
        """The file that a row names; names in data stay in the folder of the data."""
        raise BadInput(f"{self.where} names the file {shown(name)}, and has no folder for it: images come as bytes")

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.where}, row {row} (counted from 0)"


@dataclass
class DataFile(Source):
    """A file; `name` is what messages call it."""

    path: Path
    name: str = ""

    @property
    def where(self) -> str:
        """The file, for messages."""
        return self.name or str(self.path)

    def file(self, name: str) -> Path:
        """The file of that name beside this one, or in a folder beside it."""
        return inside(Path(self.where).parent, name)

    def digest(self) -> str:
        """A hash of the content."""
        return content_hash([self.path])


def extra(module: str, what: str = "this data") -> Any:
    """An optional package, or `MissingExtra` with `what` needs it and the line that installs it."""
    try:
        return import_module(module)
    except ImportError:
        name = module.split(".")[0]
        raise MissingExtra(f"{what} needs {name}: pip install {name}") from None


@contextmanager
def foreign(where: str, kind: str) -> Iterator[None]:
    """Whatever a library raises while it reads data is a BadInput that names the data."""
    try:
        yield
    except WhyformerError:
        raise
    except Exception as error:
        raise BadInput(f"{where} cannot be read as {kind}: {reason_of(error)}") from error


def content_hash(paths: Sequence[Path]) -> str:
    """A hash of what files hold, whatever they are called."""
    total = hashlib.blake2b(digest_size=16)
    for path in paths:
        with naming(path, "read"), path.open("rb") as file:
            total.update(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest())
    return total.hexdigest()
