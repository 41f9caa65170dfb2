"""Data sets of the hub, streamed by name, and those that `datasets` saved to disk."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whyformer.datasets.source import Row, content_hash, extra
from whyformer.errors import BadInput


def default_split(splits: Sequence[str], asked: str | None, where: str) -> str:
    """The split that was asked for, or the one there is, or else validation before test."""
    alike = ("validation", "val", "dev", "valid")
    wanted = [asked] if asked else list(splits) if len(splits) == 1 else [*alike, "test"]
    if asked in alike:
        wanted += alike
    for name in wanted:
        if name in splits:
            return str(name)
    problem = f"no split {asked!r}" if asked else "several splits: name one with split= (--split)"
    raise BadInput(f"{where} has {problem}; found {', '.join(splits) or 'none'}")


@dataclass
class HubData:
    """A data set by its name on the hub (or any other name that `datasets.load_dataset` takes), streamed."""

    name: str
    config: str | None
    split: str | None
    format = "hub"
    seekable = False

    @property
    def where(self) -> str:
        """The data set and its split, for messages."""
        return ":".join(["hub", *filter(None, (self.name, self.config, self.split))])

    @cached_property
    def _builder(self) -> Any:
        datasets = extra("datasets")
        try:
            return datasets.load_dataset_builder(self.name, self.config)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BadInput(f"the data set {self.name!r} is no local file, nor found on the hub: {reason}") from error

    @cached_property
    def _chosen(self) -> tuple[str, Any]:
        streams = self._builder.as_streaming_dataset()
        split = default_split(list(streams), self.split, self.where)
        return split, streams[split]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_builder", "_chosen")}

    def columns(self) -> list[str]:
        """As the data set declares them, or as its first row has them."""
        stream = self._chosen[1]
        return list(stream.column_names or next(iter(stream), {}))

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows from number `start` on."""
        return iter(self._chosen[1].skip(start) if start else self._chosen[1])

    def count(self) -> int | None:
        """As the data set's card says, if it does."""
        split, _ = self._chosen
        known = (self._builder.info.splits or {}).get(split)
        return int(known.num_examples) if known is not None and known.num_examples else None

    def digest(self) -> str:
        """A hash of the name and of the revision that `datasets` found."""
        builder = self._builder
        facts = (self.name, self.config, self._chosen[0], builder.config_id, builder.hash, str(builder.info.version))
        return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


@dataclass
class SavedData:
    """A folder that `datasets` wrote with `save_to_disk`; it stays on the disk while it is read."""

    folder: Path
    split: str | None
    format = "saved"
    seekable = True

    @property
    def where(self) -> str:
        """The folder, for messages."""
        return str(self.folder)

    @cached_property
    def _table(self) -> Any:
        loaded = extra("datasets").load_from_disk(str(self.folder))
        if isinstance(loaded, dict):
            return loaded[default_split(list(loaded), self.split, self.where)]
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_table"}

    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows from number `start` on."""
        table = self._table
        return iter(table.select(range(start, len(table))))

    def count(self) -> int | None:
        """As the folder says."""
        return len(self._table)

    def digest(self) -> str:
        """A hash of the content."""
        return content_hash([Path(file["filename"]) for file in self._table.cache_files])


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()
