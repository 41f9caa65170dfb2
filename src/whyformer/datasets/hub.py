"""Data sets of the hub, streamed by name, and those that `datasets` saved to disk."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whyformer.datasets.source import Source, StoredRow, content_hash, extra, foreign
from whyformer.errors import BadInput, listed, reason_of, shown
from whyformer.storage.files import inside, read_json, regular

SAVED = "a folder that save_to_disk wrote"


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
    raise BadInput(f"{where} has {problem}; found {listed(splits) or 'none'}")


@dataclass
class HubData(Source):
    """A data set by its name on the hub (or any other name that `datasets.load_dataset` takes), streamed."""

    name: str
    config: str | None
    split: str | None
    format = "hub"

    @property
    def where(self) -> str:
        """The data set and its split, for messages."""
        return ":".join(["hub", *filter(None, (self.name, self.config, self.split))])

    @cached_property
    def _builder(self) -> Any:
        datasets = extra("datasets")
        try:
            builder = datasets.load_dataset_builder(self.name, self.config)
        except Exception as error:  # datasets, and what it reads with, raise what they like
            missing = f"the data set {shown(self.name)} is no local file, nor found on the hub"
            raise BadInput(f"{missing}: {reason_of(error)}") from error
        with foreign(self.where, "a data set"):
            _check_files(builder, self.where)
        return builder

    @cached_property
    def _chosen(self) -> tuple[str, Any]:
        with foreign(self.where, "a data set"):
            streams = self._builder.as_streaming_dataset()
            split = default_split(list(streams), self.split, self.where)
            return split, undecoded(streams[split])

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_builder", "_chosen")}

    def columns(self) -> list[str]:
        """As the data set declares them, or as its first row has them."""
        stream = self._chosen[1]
        with foreign(self.where, "a data set"):
            return list(stream.column_names or next(iter(stream), {}))

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The rows from number `start` on."""
        with foreign(self.where, "a data set"):
            yield from self._chosen[1].skip(start) if start else self._chosen[1]

    def file(self, name: str) -> Path:
        """The file that `datasets` says an image lies in; what is stored elsewhere as single files is not fetched."""
        if _is_remote(name) or _is_remote(str(self._builder.base_path)):
            raise BadInput(f"{self.where} has its images as files of their own: download them, and give their folder")
        return inside(Path(self._builder.base_path), name)

    def count(self) -> int | None:
        """As the card on the hub says, if it does; that of a local folder is not trusted: its files may change."""
        split, _ = self._chosen
        known = (self._builder.info.splits or {}).get(split)
        remote = _is_remote(str(self._builder.base_path))
        return int(known.num_examples) if remote and known is not None and known.num_examples else None

    def digest(self) -> str:
        """A hash of the name and of the revision that `datasets` found."""
        builder = self._builder
        facts = (self.name, self.config, self._chosen[0], builder.config_id, builder.hash, str(builder.info.version))
        return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def undecoded(table: Any) -> Any:
    """A table or stream of `datasets` whose images are bytes or paths, and not decoded row by row."""
    features = getattr(table, "features", None) or {}
    for name, feature in features.items():
        if type(feature).__name__ == "Image":
            table = table.cast_column(name, type(feature)(decode=False))
    return table


def _is_remote(path: str) -> bool:
    return "://" in path


def _normal(path: str) -> Path:
    """The whole path without `..`; links are not followed, since the hub's own cache is made of them."""
    return Path(os.path.normpath(Path(path).absolute()))


def _check_files(builder: Any, where: str) -> None:
    """The files that a card names must lie in its folder; the card of a hub data set must name none of this machine."""
    if builder.base_path is None:  # a copy that `datasets` keeps, without a card
        return
    base = str(builder.base_path)
    folder = _normal(base)
    for names in (builder.config.data_files or {}).values():
        for name in names:
            path = str(name).rpartition("::")[2]  # what an archive is read from comes last
            if _is_remote(base):
                leaves = not _is_remote(path)
            else:
                leaves = _is_remote(path) or not _normal(path).is_relative_to(folder)
                regular(Path(path))
            if leaves:
                raise BadInput(f"{where}: its card names {shown(path)}, which lies outside {base!r}; give it by itself")


@dataclass
class SavedData(Source):
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
        datasets = extra("datasets")
        with foreign(self.where, SAVED):
            folder = self._of_split()
            state = read_json(inside(folder, "state.json"), "state of the saved data")
            for file in state["_data_files"]:
                inside(folder, file["filename"])
            table = datasets.load_from_disk(str(folder))
            table.data.validate(full=True)  # Arrow believes what it reads: damage would end the process later
            return undecoded(table)

    def _of_split(self) -> Path:
        splits = self.folder / "dataset_dict.json"
        if not splits.is_file():
            return self.folder
        names = read_json(splits, "list of splits")["splits"]
        return inside(self.folder, default_split(names, self.split, self.where))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_table"}

    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The rows from number `start` on."""
        table = self._table
        with foreign(self.where, SAVED):
            yield from table.select(range(min(start, len(table)), len(table)))

    def file(self, name: str) -> Path:
        """The file of that name in the folder."""
        return inside(self.folder, name)

    def count(self) -> int | None:
        """As the folder says."""
        return len(self._table)

    def digest(self) -> str:
        """A hash of the content."""
        return content_hash([Path(file["filename"]) for file in self._table.cache_files])


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return any(regular(folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
