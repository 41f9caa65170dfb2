"""COCO: a JSON file of images, categories, and the outlines of objects in them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whyformer.datasets.source import DataFile, StoredRow
from whyformer.errors import BadInput, BadOption, nearest, shown
from whyformer.storage.files import inside, mode_of, naming, read_json, regular

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
