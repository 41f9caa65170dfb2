"""Masks: which pixels of an image are what it shows, as people marked them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whyformer.errors import BadInput, shown
from whyformer.inputs.pictures import Stored, StoredArray, StoredImage, loaded, open_mask, stored_digest

FOREGROUND, BACKGROUND, UNLABELLED = 1, 0, 255
TRIMAP = {1: FOREGROUND, 2: BACKGROUND, 3: UNLABELLED}
COCO = "segmentation"
OUTLINES = ("polygon", "polygons", COCO)  # what objects call them
FARTHEST = 1 << 30  # a point that no image has
_SLACK = 1e-3  # fractions of an image may be rounded


@dataclass(frozen=True)
class StoredMask:
    """A mask of a data set, decoded when it is asked for; `name` is what messages call it.

    `trimap`: 1 is the object, 2 the background, 3 the border, which is nobody's. Other masks have 0 for the background
    and 255 for what is not labelled; all else is foreground, or only the number `category`.
    """

    source: Stored = field(repr=False)
    name: str = ""
    trimap: bool = False
    category: int | None = None

    def open(self) -> NDArray[np.uint8]:
        """1 for the foreground, 0 for the background, 255 for what is not labelled: [height, width] of the mask."""
        try:
            labels = open_mask(loaded(self.source), self.name)
        except ValueError as error:
            raise BadInput(f"{self.name or 'the mask'} cannot be drawn: {error}") from None
        if self.trimap:
            return self._of_trimap(labels)
        drawn = isinstance(self.source, StoredArray)  # with a crowd alone, for one
        if self.category is None and not drawn and set(np.unique(labels).tolist()) == {BACKGROUND, UNLABELLED}:
            raise BadInput(
                f"{self.name or 'the mask'} holds 0 and 255 alone, and 255 means that a pixel is not labelled: save "
                "the foreground as 1, or name it, category='255'"
            )
        wanted = labels != BACKGROUND if self.category is None else labels == self.category
        if self.category == UNLABELLED:
            return np.asarray(wanted, dtype=np.uint8)
        return np.where(labels == UNLABELLED, UNLABELLED, wanted).astype(np.uint8)

    def _of_trimap(self, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        others = sorted(set(np.unique(labels).tolist()) - set(TRIMAP))
        if others:
            raise BadInput(
                f"{self.name or 'the trimap'} holds {shown(others)}: a trimap has 1 for the object, 2 for the "
                "background and 3 for the border; read it as columns={'mask': …} if it is none"
            )
        return np.array([0, *TRIMAP.values()], np.uint8)[labels]

    @property
    def digest(self) -> str:
        """A hash of the mask as it is stored, and of how it is read."""
        return f"{stored_digest(self.source)}{':trimap' * self.trimap}{f':{self.category}' if self.category else ''}"


@dataclass(frozen=True)
class Outline:
    """One object: its polygons (x1 y1 x2 y2 …), or runs of pixels down the columns; a crowd is not labelled."""

    polygons: tuple[tuple[float, ...], ...] = ()
    runs: tuple[int, ...] = ()
    crowd: bool = False

    def covers(self, size: tuple[int, int], scale: tuple[int, int]) -> NDArray[np.bool_]:
        """Whether each pixel of an image of this size belongs to the object."""
        if self.runs:
            return _of_runs(self.runs, size)
        inside = np.zeros(size[::-1], bool)
        for polygon in self.polygons:
            inside |= _filled(np.reshape(polygon, (-1, 2)) * scale, size)
        return inside


@dataclass(frozen=True)
class Drawing:
    """A mask that is drawn from outlines, in fractions of width and height or in pixels.

    `size` is the width and height of the image to which the outlines belong; if it is not known, the image is opened.
    """

    outlines: tuple[Outline, ...]
    fractions: bool
    size: tuple[int, int] | None
    image: StoredImage

    def array(self) -> NDArray[np.uint8]:
        """1 inside of an outline, 255 in a crowd, 0 elsewhere."""
        size = self.size or self.image.open().size
        canvas = np.full(size[::-1], BACKGROUND, np.uint8)
        for outline in sorted(self.outlines, key=lambda outline: not outline.crowd):  # an object in a crowd is one
            fill = UNLABELLED if outline.crowd else FOREGROUND
            canvas[outline.covers(size, size if self.fractions else (1, 1))] = fill
        return canvas


def _filled(points: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.bool_]:
    """The pixels whose centre lies in a polygon: those before which its edges cross the row an odd number of times."""
    width, height = size
    x, y = points.T
    next_x, next_y = np.roll(points, -1, axis=0).T
    rows = np.arange(height)[:, None] + 0.5
    row, edge = np.nonzero((y <= rows) != (next_y <= rows))
    at = x[edge] + (rows[row, 0] - y[edge]) * (next_x - x)[edge] / (next_y - y)[edge]
    crossings = np.zeros((height, width + 1), np.uint8)  # 256 are as even as none
    np.add.at(crossings, (row, np.clip(np.ceil(at - 0.5), 0, width).astype(np.int64)), 1)
    return np.asarray(crossings.cumsum(axis=1, dtype=np.uint8)[:, :width] % 2 == 1)


def _of_runs(runs: Sequence[int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Which pixels the runs mark: as many are out, then as many in, and so on, column after column."""
    width, height = size
    if sum(runs) != width * height:
        raise ValueError(f"its runs cover {sum(runs):,} pixels, and the image has {width} × {height}")
    return np.asarray(np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T)


def drawing(objects: Any, category: str | None, size: tuple[int, int] | None, image: StoredImage) -> Drawing | None:
    """The mask of the objects of a row, of one category or of all; None if they have boxes at most.

    COCO's `segmentation` is in pixels, and so is a `polygon`, unless all numbers of the row are from 0 to 1. ValueError
    says what is wrong.
    """
    held = _dictionaries(objects)
    if held and not any(name in each for each in held for name in OUTLINES):
        return None
    shapes = [_outline(each) for each in held]
    numbers = [number for shape in shapes for polygon in shape.polygons for number in polygon]
    in_pixels = any(COCO in each for each in held)
    fractions = not in_pixels and max(numbers, default=0) <= 1 + _SLACK
    kept = [shape for shape, each in zip(shapes, held, strict=True) if category is None or category in _names(each)]
    return Drawing(tuple(kept), fractions, size, image)


def _dictionaries(objects: Any) -> list[Mapping[str, Any]]:
    """A list of dictionaries, which `datasets` gives as a dictionary of lists."""
    if isinstance(objects, Mapping):
        columns = {name: values for name, values in objects.items() if isinstance(values, list)}
        objects = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if not isinstance(objects, list) or not all(isinstance(each, Mapping) for each in objects):
        raise ValueError(f"the objects are {shown(objects)}, not a list of dictionaries")
    return objects


def _names(each: Mapping[str, Any]) -> Iterator[str]:
    """What the category of an object may be called."""
    return (str(each[name]) for name in ("category", "category_name", "category_id", "label") if name in each)


def _outline(each: Mapping[str, Any]) -> Outline:
    shape: Any = next((each[name] for name in OUTLINES if each.get(name) is not None), [])
    crowd = bool(each.get("iscrowd"))
    if isinstance(shape, Mapping):
        counts = shape.get("counts")
        if not isinstance(counts, list) or not all(isinstance(run, int) and run >= 0 for run in counts):
            raise ValueError("the mask of an object is compressed runs: write polygons, or runs as a list of numbers")
        return Outline(runs=tuple(counts), crowd=crowd)
    if not isinstance(shape, list):
        raise ValueError(f"the outline of an object is {shown(shape)}, not a list of numbers")
    polygons = shape if shape and isinstance(shape[0], list) else [shape]
    return Outline(tuple(_polygon(polygon) for polygon in polygons if polygon), crowd=crowd)


def _polygon(numbers: Any) -> tuple[float, ...]:
    if not isinstance(numbers, list) or not all(isinstance(number, int | float) for number in numbers):
        raise ValueError(f"a polygon is {shown(numbers)}, not x1, y1, x2, y2 …")
    if len(numbers) < 6 or len(numbers) % 2 or not all(abs(number) < FARTHEST for number in numbers):  # NaN is neither
        raise ValueError(f"a polygon of {len(numbers)} numbers is no area: three points have six numbers")
    return tuple(map(float, numbers))
