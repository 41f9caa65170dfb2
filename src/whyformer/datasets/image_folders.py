"""Folders of images: one folder for each class, or images without labels; ImageNet's, with their synsets."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from whyformer.datasets.hub import default_split
from whyformer.datasets.source import Source, StoredRow
from whyformer.datasets.synsets import SYNSET, Classes, true_synsets
from whyformer.errors import BadInput
from whyformer.inputs.pictures import ENDINGS
from whyformer.storage.files import inside, naming

SPLITS = ("train", "val", "validation", "valid", "dev", "test")
KAGGLE = ("ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")  # where ImageNet's splits lie below its folder
NESTED = "images"  # Tiny-ImageNet has the images of a class one folder deeper


@dataclass
class ImageFolder(Source):
    """`CLASS/*.jpg`, or `*.jpg` without labels, in order of their names.

    A class that is a synset of WordNet gets the number of its class, in order of the synsets, if a file beside tells
    which classes there are, and else its name. `labels` are the model's, among which it is looked up by the synset, by
    its words, and by that number.
    """

    folder: Path
    labels: tuple[str, ...] = ()
    format = "images"
    seekable = True

    @property
    def where(self) -> str:
        """The folder, for messages."""
        return str(self.folder)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_listed", "_classes")}

    def for_labels(self, labels: Sequence[str] | None) -> "ImageFolder":
        """The same images, for a model with these labels."""
        return replace(self, labels=tuple(labels or ()))

    @cached_property
    def _listed(self) -> list[tuple[str, str | None]]:
        """The path of each image in the folder, and its class."""
        alone, folders = _inside(self.folder)
        if folders == [NESTED] and not alone:
            alone, folders = _images_of(self.folder), []
        classes: list[tuple[str, str | None]]
        classes = [(f"{name}/{image}", name) for name in folders for image in _images_of(self.folder / name)]
        if alone and classes:
            raise BadInput(f"{self.where} holds images and folders of images: give a folder that holds one of both")
        if not alone and not classes:
            raise BadInput(f"{self.where} holds no images: known endings are {', '.join(sorted(ENDINGS))}")
        if classes:
            return classes
        truth = true_synsets(self.folder, [Path(name).stem for name in alone])
        return [(name, truth.get(Path(name).stem)) for name in alone]

    @cached_property
    def _classes(self) -> Classes | None:
        names = sorted({name for _, name in self._listed if name})
        return Classes.beside(self.folder, names) if names and all(map(SYNSET.fullmatch, names)) else None

    def columns(self) -> list[str]:
        """The image, and what is known of its class."""
        labelled = any(name for _, name in self._listed)
        return ["image", *(["label"] if labelled else []), *(["synset", "name"] if self._classes else [])]

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The images from number `start` on, none of them opened."""
        for path, name in self._listed[start:]:
            row: dict[str, Any] = {"image": path, "label": name, "file": path}
            if self._classes is not None and name is not None:
                row |= {"label": self._classes.label(name, self.labels), **self._classes.about(name)}
            yield row

    def file(self, name: str) -> Path:
        """An image of the folder."""
        return inside(self.folder, name)

    def count(self) -> int | None:
        """As many as there are files."""
        return len(self._listed)

    def digest(self) -> str:
        """A hash of the names, classes and sizes of all files; what is in them is not read."""
        total = hashlib.blake2b(digest_size=16)
        with naming(self.folder, "read"):
            for path, name in self._listed:
                total.update(repr((path, name, (self.folder / path).stat().st_size)).encode("utf-8", "surrogateescape"))
        classes = [] if self._classes is None else [self._classes.label(name, ()) for name in self._classes.folders]
        total.update(repr(classes).encode())
        return total.hexdigest()


def is_image_folder(folder: Path) -> bool:
    """Whether a folder holds images, or folders of images, or splits of them."""
    return is_unsplit(folder) or bool(_splits(folder))


def is_unsplit(folder: Path) -> bool:
    """Whether a folder holds images, or folders of images that are no splits."""
    root = _root(folder)
    alone, folders = _inside(root)
    return bool(alone) or any(name not in SPLITS and _images_of(root / name) for name in folders)


def image_folder(folder: Path, split: str | None) -> ImageFolder:
    """The images of a folder, or of one of its splits."""
    if is_unsplit(folder):
        default_split([folder.resolve().name], split, str(folder))
        return ImageFolder(folder)
    return ImageFolder(_root(folder) / default_split(_splits(folder), split, str(folder)))


def _root(folder: Path) -> Path:
    return next((folder / name for name in KAGGLE if (folder / name).is_dir()), folder)


def _splits(folder: Path) -> list[str]:
    """The folders of the splits."""
    root = _root(folder)
    return [name for name in SPLITS if (root / name).is_dir() and is_unsplit(root / name)]


def _images_of(folder: Path) -> list[str]:
    """The images of a class."""
    alone, folders = _inside(folder)
    return alone or ([f"{NESTED}/{name}" for name in _inside(folder / NESTED)[0]] if NESTED in folders else [])


def _inside(folder: Path) -> tuple[list[str], list[str]]:
    """The names of the images and of the folders in a folder, in order; hidden ones are left out."""
    images, folders = [], []
    with naming(folder, "read"), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                folders.append(entry.name)
            elif os.path.splitext(entry.name)[1].casefold() in ENDINGS and stat.S_ISREG(entry.stat().st_mode):  # noqa: PTH122
                images.append(entry.name)
    return sorted(images), sorted(folders)
