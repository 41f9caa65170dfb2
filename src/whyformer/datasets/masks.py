"""Masks: which pixels of an image are what it shows, as people marked them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from whyformer.errors import BadInput, shown
from whyformer.inputs.pictures import Stored, StoredImage, loaded, open_mask, stored_digest

FOREGROUND, BACKGROUND, UNLABELLED = 1, 0, 255
TRIMAP = {1: FOREGROUND, 2: BACKGROUND, 3: UNLABELLED}
OUTLINES = ("polygon", "polygons", "segmentation")  # what objects call them
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
        labels = open_mask(loaded(self.source), self.name)
        if self.trimap:
            return self._of_trimap(labels)
        wanted = labels != BACKGROUND if self.category is None else labels == self.category
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


@dataclass(frozen=True)
class Drawing:
    """A mask that is drawn from outlines.

    Numbers that are all from 0 to 1 are fractions of width and height, others are pixels of an image of `size` (width,
    height); if that is not known, it is the size of the image.
    """

    outlines: tuple[Outline, ...]
    size: tuple[int, int] | None
    image: StoredImage

    def array(self) -> NDArray[np.uint8]:
        """1 inside of an outline, 255 in a crowd, 0 elsewhere."""
        size = self.size or self.image.open().size
        canvas = Image.new("L", size, BACKGROUND)
        points = list(chain.from_iterable(polygon for outline in self.outlines for polygon in outline.polygons))
        scale = size if points and max(points) <= 1 + _SLACK else (1, 1)
        for outline in sorted(self.outlines, key=lambda outline: not outline.crowd):  # an object in a crowd is one
            fill = UNLABELLED if outline.crowd else FOREGROUND
            for polygon in outline.polygons:
                places = [(x * scale[0], y * scale[1]) for x, y in zip(polygon[::2], polygon[1::2], strict=True)]
                ImageDraw.Draw(canvas).polygon(places, fill=fill)
            if outline.runs:
                canvas.paste(fill, (0, 0), Image.fromarray(_of_runs(outline.runs, size)))
        return np.asarray(canvas)


def _of_runs(runs: Sequence[int], size: tuple[int, int]) -> NDArray[np.uint8]:
    """255 where the runs mark a pixel: as many are out, then as many in, and so on, column after column."""
    width, height = size
    if sum(runs) != width * height:
        raise BadInput(f"the runs of a mask cover {sum(runs):,} pixels, and the image has {width} × {height}")
    marks = np.repeat(np.arange(len(runs)) % 2, runs)
    return (marks.reshape(width, height).T * 255).astype(np.uint8)


def outlines(objects: Any, category: str | None) -> tuple[Outline, ...] | None:
    """The outlines of the objects of a row, of one category or of all; None if they have boxes at most.

    `objects` is a list of dictionaries, or a dictionary of lists as `datasets` gives it. ValueError says what is wrong.
    """
    if isinstance(objects, Mapping):
        columns = {name: values for name, values in objects.items() if isinstance(values, list)}
        objects = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if not isinstance(objects, list) or not all(isinstance(each, Mapping) for each in objects):
        raise ValueError(f"the objects are {shown(objects)}, not a list of dictionaries")
    if objects and not any(name in each for each in objects for name in OUTLINES):
        return None
    return tuple(_outline(each) for each in objects if category is None or category in _names(each))


def _names(each: Mapping[str, Any]) -> Iterator[str]:
    """What the category of an object may be called."""
    return (str(each[name]) for name in ("category", "category_name", "category_id", "label") if name in each)


def _outline(each: Mapping[str, Any]) -> Outline:
    shape = next((each[name] for name in OUTLINES if each.get(name) is not None), [])
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
    if len(numbers) < 6 or len(numbers) % 2 or not np.isfinite(numbers).all():
        raise ValueError(f"a polygon of {len(numbers)} numbers is no area: three points have six numbers")
    return tuple(map(float, numbers))
