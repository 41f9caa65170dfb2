"""From a record with an image, as a file holds it, to the image and the mask of an Example."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.datasets.columns import ImageColumns
from whyformer.datasets.examples import Example, Unusable
from whyformer.datasets.masks import Drawing, StoredMask, drawing
from whyformer.datasets.source import RowFields, Source
from whyformer.errors import BadInput, BadOption, shown
from whyformer.inputs.pictures import Stored, StoredArray, StoredImage, is_picture

LARGEST = 1 << 28  # pixels of a mask that is drawn


def illustrated(example: Example, record: RowFields, columns: ImageColumns, source: Source) -> Example:
    """The example with the image and the mask of its record, neither of them decoded; `Unusable` says why not."""
    value = record.get(columns.image)
    if value is None:
        raise Unusable(f"no value for {columns.image!r}")
    of_row = f"of row {example.row} (counted from 0) of {source.where}"
    stored = _stored(value, columns.image, source)
    image = StoredImage(stored, _name("image", of_row, stored))
    drawn = None if columns.mask is None else _numbers(record.get(columns.mask), columns.mask)
    if columns.mask is None or drawn is None:
        return replace(example, image=image)
    if isinstance(drawn, list) or (isinstance(drawn, Mapping) and not _is_file(drawn)):
        outlined = _outlined(drawn, record, columns, image)
        mask = None if outlined is None else StoredMask(outlined, _name("mask", of_row, outlined))
    else:
        stored = _stored(drawn, columns.mask, source)
        mask = StoredMask(stored, _name("mask", of_row, stored), columns.trimap, _number(columns))
    return replace(example, image=image, mask=mask)


def _name(kind: str, of_row: str, stored: Stored) -> str:
    """What messages call an image or mask; files are called by their paths."""
    return "" if isinstance(stored, Path) else f"the {kind} {of_row}"


def _numbers(value: Any, name: str) -> Any:
    """Rows of label numbers as an array; all else as it is."""
    if not isinstance(value, list) or not value or not all(isinstance(row, list) for row in value):
        return value
    try:
        return np.array(value)
    except ValueError as error:
        raise Unusable(f"{name!r} is no mask: its rows are not of one length") from error


def _is_file(value: Mapping[str, Any]) -> bool:
    """Whether it is what `datasets` writes for a file."""
    return bool({"bytes", "path"} & set(value))


def _stored(value: Any, name: str, source: Source) -> Stored:
    """The bytes, the file, or the object that holds an image or mask; `datasets` writes {bytes, path}."""
    if isinstance(value, Mapping) and _is_file(value):
        value = value.get("path") if value.get("bytes") is None else value["bytes"]
    if isinstance(value, bytes | bytearray):
        if not value:
            raise Unusable(f"{name!r} is empty (0 bytes)")
        return bytes(value)
    if isinstance(value, str | Path):
        try:
            return source.file(str(value))
        except BadInput as error:
            raise Unusable(f"{name!r}: {error}") from None
    if isinstance(value, StoredArray | np.ndarray) or (is_picture(value) and not isinstance(value, StoredImage)):
        return value if not hasattr(value, "detach") else value.detach().cpu().numpy()
    raise Unusable(f"{name!r} is {shown(value)}, where the bytes or the path of an image are needed")


def _outlined(objects: Any, record: RowFields, columns: ImageColumns, image: StoredImage) -> Drawing | None:
    width, height = record.get("width"), record.get("height")
    size = (width, height) if type(width) is type(height) is int and min(width, height) > 0 else None
    if size is not None and size[0] * size[1] > LARGEST:
        raise Unusable(
            f"the image is said to be {width:,} × {height:,}, more than the {LARGEST:,} pixels of the largest"
        )
    try:
        return drawing(objects, columns.category, size, image)
    except ValueError as error:
        raise Unusable(f"{columns.mask!r}: {error}") from None


def _number(columns: ImageColumns) -> int | None:
    """The label number that is foreground, if one was asked for."""
    if columns.category is None:
        return None
    if columns.trimap or not columns.category.isdecimal() or not 0 < int(columns.category) <= 255:
        kind = (
            "a trimap has one object" if columns.trimap else f"the masks in {columns.mask!r} have numbers from 1 to 255"
        )
        raise BadOption(f"category={columns.category!r}: {kind}; names are those of objects with polygons")
    return int(columns.category)
