"""ImageNet-Segmentation (`gtsegs_ijcv.mat`): images and masks in a MATLAB file, which is HDF5."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whyformer.datasets.open import READERS
from whyformer.datasets.source import DataFile, StoredRow, extra, foreign
from whyformer.errors import BadInput

KIND = "a MATLAB file of version 7.3"
FIELDS = {"image": "value/img", "mask": "value/gt"}
DEEPEST = 4  # cells in cells
LARGEST = 1 << 30  # numbers of one image


@contextmanager
def _opened(path: Path, where: str) -> Iterator[Any]:
    with foreign(where, KIND), extra("h5py").File(path, "r") as file:
        yield file


@dataclass(frozen=True)
class MatlabArray:
    """One image or mask of the file, read when it is asked for. MATLAB stores the columns of an array first."""

    path: Path
    field: str
    place: int

    def array(self) -> NDArray[Any]:
        """[height, width] or [height, width, 3]."""
        with _opened(self.path, str(self.path)) as file:
            value = file[_flat(file[self.field])[self.place]]
            for _ in range(DEEPEST):
                if value.dtype != object:
                    break
                value = file[_flat(value)[0]]  # a mask lies in a cell of its own
            _check(value, file, str(self.path))
            return np.asarray(value).T


class MatlabSegmentation(DataFile):
    """Images with a mask each: `/value/img` and `/value/gt` hold references to arrays."""

    format = "mat"
    seekable = True

    def columns(self) -> list[str]:
        """The image and its mask."""
        self.count()
        return list(FIELDS)

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The images from number `start` on, none of them read yet."""
        for place in range(start, self.count()):
            yield {role: MatlabArray(self.path, field, place) for role, field in FIELDS.items()}

    def count(self) -> int:
        """As many as there are images; there must be as many masks."""
        with _opened(self.path, self.where) as file:
            for field in FIELDS.values():
                if field not in file or not hasattr(file[field], "dtype") or file[field].dtype != object:
                    raise BadInput(f"{self.where} has no /{field} of references: it is not laid out as gtsegs_ijcv.mat")
                _check(file[field], file, self.where)
            images, masks = (file[field].size for field in FIELDS.values())
            if images != masks:
                raise BadInput(f"{self.where} has {images:,} images and {masks:,} masks: is the file whole?")
            return int(images)


def _check(value: Any, file: Any, where: str) -> None:
    """Raise for what does not lie in this file, which HDF5 would fetch from others, and for what no image can be."""
    if value.file.filename != file.filename or value.external or value.is_virtual:
        raise BadInput(f"{where} has {value.name!r} in another file: data must stay in their file")
    if value.size > LARGEST:
        raise BadInput(f"{where} has {value.size:,} numbers in {value.name!r}, more than an image has: is it damaged?")


def _flat(references: Any) -> Any:
    """References in order, whether they are written in a row or in a column."""
    return np.asarray(references).ravel()


READERS.add("mat", MatlabSegmentation, __name__)
