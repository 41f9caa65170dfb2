"""Data sets of images: folders, COCO files, and the masks that people drew."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whyformer.datasets.columns import ImageColumns
from whyformer.datasets.dataset import Example, Unusable
from whyformer.datasets.hub import default_split
from whyformer.datasets.source import DataFile, RowFields, Source, StoredRow
from whyformer.datasets.synsets import SYNSET, SynsetTable, true_synsets
from whyformer.errors import BadInput, BadOption, nearest, shown
from whyformer.inputs.images import (
    ENDINGS,
    Stored,
    StoredArray,
    StoredImage,
    is_picture,
    loaded,
    open_mask,
    stored_digest,
)
from whyformer.storage.files import inside, mode_of, naming, read_json, regular

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
class DrawnMask:
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


def drawing(objects: Any, category: str | None, size: tuple[int, int] | None, image: StoredImage) -> DrawnMask | None:
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
    return DrawnMask(tuple(kept), fractions, size, image)


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


HEAD = 1 << 16  # bytes by which the file is recognised
_SPLIT = re.compile(r"(?:instances|annotations)_(.+)")
ANNOTATIONS = "annotations"
LISTS = ("images", "annotations", "categories")


@dataclass
class CocoFile(DataFile):
    """`instances_val2017.json`; its images lie beside it, or in `val2017` or `images` beside its folder."""

    format = "coco"
    seekable = True

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_content", "_by_image", "folder")}

    @cached_property
    def _content(self) -> dict[str, list[dict[str, Any]]]:
        content = read_json(self.path, "COCO file")
        lists: dict[str, Any] = {name: content.get(name, []) if isinstance(content, dict) else None for name in LISTS}
        for name, values in lists.items():
            if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
                raise BadInput(f"{self.where} is not COCO's: {name!r} is {shown(values)}, not a list of objects")
        return lists

    @cached_property
    def categories(self) -> dict[str, str]:
        """The names of the categories by their numbers, which are written out here as those of images are."""
        return {str(each.get("id")): str(each.get("name")) for each in self._content["categories"]}

    @cached_property
    def _by_image(self) -> dict[str, list[dict[str, Any]]]:
        objects: dict[str, list[dict[str, Any]]] = {}
        for each in self._content["annotations"]:
            category = str(each.get("category_id"))
            kept = {"category": category, "category_name": self.categories.get(category, category)}
            outline = {name: each.get(name) for name in ("segmentation", "iscrowd")}
            objects.setdefault(str(each.get("image_id")), []).append(kept | outline)
        return objects

    def check(self, category: str | None) -> None:
        """Raise if there is no category of that name or number."""
        known = {*self.categories.values(), *self.categories}
        if category is not None and category not in known:
            names = nearest(category, self.categories.values())
            raise BadOption(f"category={category!r}: {self.where} has none of that name; {names}")

    def columns(self) -> list[str]:
        """The image and its objects."""
        return ["image", "objects", "width", "height", "image_id"]

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The images from number `start` on."""
        for image in self._content["images"][start:]:
            if not isinstance(image.get("file_name"), str):
                yield f"the image {shown(image.get('id'))} has no 'file_name'"
                continue
            sides = {name: image.get(name) for name in ("width", "height")}
            objects = self._by_image.get(str(image.get("id")), [])
            yield {"image": image["file_name"], "objects": objects, **sides, "image_id": image.get("id")}

    def count(self) -> int | None:
        """All images."""
        return len(self._content["images"])

    @cached_property
    def folder(self) -> Path:
        """Where the images lie: the first place that holds the first of them."""
        beside = Path(self.where).parent
        split = _SPLIT.fullmatch(Path(self.where).stem)
        above = [beside.parent, beside.parent / "images"] if beside.name == ANNOTATIONS else []
        roots = [beside, beside / "images", *above]
        places = [*([root / split[1] for root in roots] if split else []), *roots]
        names = [str(image.get("file_name")) for image in self._content["images"][:1]]
        for place in places:
            if all(mode_of(place / name) for name in names):
                return place
        tried = ", ".join(map(str, dict.fromkeys(places)))
        raise BadInput(f"the images of {self.where} were looked for in {tried}; put them into one of these")

    def file(self, name: str) -> Path:
        """An image of the folder."""
        return inside(self.folder, name)


def is_coco(path: Path) -> bool:
    """Whether a JSON file begins like COCO's."""
    with naming(path, "read"), path.open("rb") as file:
        head = file.read(HEAD)
    keys = {match[1].decode() for match in re.finditer(rb'"(\w+)"\s*:\s*\[', head)}
    return bool(keys & set(LISTS)) and "data" not in keys


def coco_files(folder: Path) -> dict[str, Path]:
    """The files of outlines in COCO's own folder, by their splits; keypoints and captions are no outlines."""
    paths = sorted((folder / ANNOTATIONS).glob("instances_*.json"))
    return {path.stem.removeprefix("instances_"): path for path in paths if regular(path).is_file()}


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


def _outlined(objects: Any, record: RowFields, columns: ImageColumns, image: StoredImage) -> DrawnMask | None:
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
    def _classes(self) -> SynsetTable | None:
        names = sorted({name for _, name in self._listed if name})
        return SynsetTable.beside(self.folder, names) if names and all(map(SYNSET.fullmatch, names)) else None

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
