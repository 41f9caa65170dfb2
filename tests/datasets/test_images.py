"""Images in tables, in folders and in memory: nothing is decoded before it is asked for."""

import csv
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers.pictures import BLUE, GREEN, RED, mask_file, plain, write_images
from tests.helpers.rows import write_csv, write_jsonl, write_parquet
from whyformer.datasets import Example, StoredImage, StoredMask, open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.images import is_picture, open_picture

COLOURS = (RED, GREEN, BLUE)
TRIMAP = [[1, 2, 3], [2, 2, 1]]
ROWS = [
    {
        "image": {"bytes": plain(colour), "path": None},
        "trimap": {"bytes": mask_file(TRIMAP), "path": "a.png"},
        "label": number,
        "breed": f"breed {number}",
    }
    for number, colour in enumerate(COLOURS)
]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every image that is opened."""
    opened: list[Any] = []
    whole = Image.open

    def noting(source: Any, *rest: Any) -> Image.Image:
        opened.append(source)
        return whole(source, *rest)

    monkeypatch.setattr(Image, "open", noting)
    return opened


def colours(examples: Any) -> list[Any]:
    return [example.image.open().getpixel((0, 0)) for example in examples]


def test_a_table_of_images_and_trimaps(tmp_path: Path, decoded: list[Any]) -> None:
    data = open_dataset(write_parquet(tmp_path / "a.parquet", ROWS))
    examples = list(data)
    assert data.columns.used == ("label", "image", "trimap")
    assert [(e.row, e.text, e.label, e.meta) for e in examples] == [
        (i, "", i, {"breed": f"breed {i}"}) for i in range(3)
    ]
    assert len(data) == 3
    assert data.digest
    assert [e.content for e in examples]
    assert not decoded, "nothing was decoded"
    assert colours(examples[:1]) == [RED]
    assert len(decoded) == 1
    assert examples[0].mask.open().tolist() == [[1, 0, 255], [0, 0, 1]]
    assert colours(data.rows(1, 3)) == [GREEN, BLUE]
    assert pickle.loads(pickle.dumps(examples)) == examples
    assert examples[0].input is examples[0].image
    assert is_picture(examples[0].input)
    assert open_picture(examples[0].input).size == (6, 4)
    assert Example(0, "a text").input == Example(0, "a text").content == "a text"


def test_the_content_of_a_row_is_that_of_image_and_mask(tmp_path: Path) -> None:
    def content(image: bytes, trimap: bytes, **options: Any) -> Any:
        row = {"image": image, "trimap": trimap, "words": "a red square"}
        return next(iter(open_dataset([row], **options))).content

    first = content(plain(), mask_file(TRIMAP))
    assert first == content(plain(), mask_file(TRIMAP))
    assert json.dumps(first)
    row = {"image": plain(), "borders": mask_file(TRIMAP)}
    readings = [open_dataset([row], columns={"image": "image", role: "borders"}) for role in ("mask", "trimap")]
    assert len({next(iter(data)).content["mask"] for data in readings}) == 2, "how it is read counts too"
    named = {"image": "image", "text": "words"}
    others = [
        content(plain(GREEN), mask_file(TRIMAP)),
        content(plain(), mask_file([[1, 2, 2], [2, 2, 1]])),
        content(plain(), mask_file(TRIMAP), columns={"image": "image", "mask": "image"}),
        content(plain(), mask_file(TRIMAP), columns=named),
    ]
    assert all(other != first for other in others)


@pytest.mark.parametrize("write", [write_csv, write_jsonl])
def test_files_that_a_table_names_lie_beside_it(tmp_path: Path, write: Callable[..., Path]) -> None:
    (tmp_path / "secret.png").write_bytes(plain())
    folder = write_images(tmp_path / "data", ["cats/a.png", "b.png"])
    rows = [{"image": "cats/a.png", "label": "cat"}, {"image": "b.png", "label": "dog"}]
    ending = write.__name__.removeprefix("write_")
    data = open_dataset(write(folder / f"a.{ending}", rows))
    assert [(e.label, e.image.open().getpixel((0, 0))[0]) for e in data] == [("cat", 0), ("dog", 1)]
    for name in ("../secret.png", str(tmp_path / "secret.png")):
        bad = open_dataset(write(folder / f"b.{ending}", [*rows, {"image": name, "label": "x"}]), on_error="skip")
        assert len(list(bad)) == 2
        assert "lies outside" in bad.skipped[0].reason
    missing = open_dataset(write(folder / f"c.{ending}", [{"image": "none.png", "label": "x"}]))
    with pytest.raises(BadInput, match=r"there is no file '.*data/none\.png': check the path"):
        next(iter(missing)).image.open()


@pytest.mark.parametrize(
    "value",
    [
        Image.new("RGB", (6, 4), RED),
        np.full((4, 6, 3), RED, np.uint8),
        torch.from_numpy(np.full((4, 6, 3), RED, np.uint8)),
        plain(),
        {"bytes": plain(), "path": None},
    ],
    ids=lambda value: type(value).__name__,
)
def test_images_in_memory(value: Any, tmp_path: Path) -> None:
    rows: list[Any] = [{"image": value, "label": 1}]
    if not isinstance(value, dict):
        rows += [(value, 1)]
    for row in rows:
        data = open_dataset([row])
        assert colours(data) == [RED]
        assert next(iter(data)).label == 1
        assert data.digest == open_dataset([row]).digest
        assert data.digest != open_dataset([{"image": plain(GREEN), "label": 1}]).digest
    if not isinstance(value, dict):
        assert colours(open_dataset([value, value])) == [RED, RED]


def test_paths_in_memory(tmp_path: Path) -> None:
    write_images(tmp_path, ["a.png", "b.png"])
    for rows in (
        [tmp_path / "a.png", tmp_path / "b.png"],
        [(tmp_path / "a.png", "x"), (tmp_path / "b.png", "y")],
        [{"image": str(tmp_path / "a.png")}, {"image": tmp_path / "b.png"}],
    ):
        assert [one[0] for one in colours(open_dataset(rows))] == [0, 1]
        assert open_dataset(rows).digest
    assert next(iter(open_dataset(["a.png"]))).text == "a.png", "a text is a text"


def test_tables_of_datasets_are_not_decoded(tmp_path: Path, decoded: list[Any]) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"image": [{"bytes": plain(c), "path": None} for c in COLOURS], "label": [0, 1, 2]}
    table = datasets.Dataset.from_dict(rows, features=features)
    table.save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "hub").mkdir()
    table.to_parquet(str(tmp_path / "hub" / "test.parquet"))
    for source in (table, tmp_path / "saved", f"hub:{tmp_path / 'hub'}"):
        data = open_dataset(source)
        examples = list(data)
        assert data.digest
        assert not decoded
        assert colours(examples) == list(COLOURS)
        decoded.clear()


def test_a_column_of_images_does_not_take_the_place_of_a_text(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"text": "a fine film", "image": "http://poster", "label": 1}])
    assert list(open_dataset(path)) == [Example(0, "a fine film", 1, meta={"image": "http://poster"})]
    write_images(tmp_path, ["a.png"])
    both = write_jsonl(tmp_path / "b.jsonl", [{"caption": "a square", "image": "a.png", "text": "x"}])
    captioned = next(iter(open_dataset(both, columns={"image": "image", "text": "caption"})))
    assert (captioned.text, captioned.image.open().size) == ("a square", (6, 4))
    assert next(iter(open_dataset(both, columns={"image": "image"}))).text == ""


def test_the_digest_of_texts_is_what_it_was() -> None:
    assert open_dataset([("a", 0)]).digest == "55132cb2715088d075312df17a2901fc"


BAD = [
    ({"image": None}, "no value for 'image'"),
    ({"image": b""}, r"'image' is empty \(0 bytes\)"),
    ({"image": 5}, "'image' is 5, where the bytes or the path of an image are needed"),
    ({"image": {"bytes": None, "path": None}}, "'image' is None, where"),
    ({"image": plain(), "mask": 7}, "'mask' is 7, where"),
    ({"image": plain(), "mask": [[1], [1, 2]]}, "'mask' is no mask: its rows are not of one length"),
    ({"image": plain(), "mask": [5]}, "'mask': the objects are .*, not a list of dictionaries"),
    ({"image": plain(), "mask": [{"polygon": [1, 2, 3, 4]}]}, "a polygon of 4 numbers is no area"),
    ({"image": plain(), "mask": [{"polygon": [1, 2, 3, 4, 5]}]}, "a polygon of 5 numbers is no area"),
    ({"image": plain(), "mask": [{"polygon": [0, 0, 1, 0, 1, float("nan")]}]}, "is no area"),
    ({"image": plain(), "mask": [{"polygon": ["a"] * 6}]}, "not x1, y1, x2, y2"),
    ({"image": plain(), "mask": [{"segmentation": {"counts": "PYX", "size": [4, 6]}}]}, "compressed runs: write poly"),
    (
        {"image": plain(), "mask": [], "width": 10**6, "height": 10**6},
        "more than the 268,435,456 pixels of the largest",
    ),
    ({"image": plain(), "mask": [{"polygon": "0 0 1 1"}]}, "the outline of an object is '0 0 1 1'"),
]


@pytest.mark.parametrize(("row", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_bad_rows_of_images(row: dict[str, Any], reason: str) -> None:
    good = {"image": plain(), "mask": mask_file([[1]])}
    data = open_dataset([good, row, good], on_error="skip")
    assert [e.row for e in data] == [0, 2]
    with pytest.raises(BadInput, match=reason):
        raise BadInput(data.skipped[0].reason)
    with pytest.raises(BadInput, match=rf"row 1 \(counted from 0\): .*{reason}"):
        list(open_dataset([good, row]))


def test_an_image_that_is_damaged_is_named_when_it_is_opened(tmp_path: Path) -> None:
    data = open_dataset(write_parquet(tmp_path / "a.parquet", [{"image": b"no image"}]))
    with pytest.raises(BadInput, match=r"the image of row 0 \(counted from 0\) of .*a\.parquet is no image"):
        next(iter(data)).image.open()


def test_columns_of_images_by_name(tmp_path: Path) -> None:
    row = {"front": plain(), "back": plain(GREEN), "borders": mask_file(TRIMAP), "mask": mask_file([[0, 1, 255, 9]])}
    first = next(iter(open_dataset([row], columns={"image": "back"})))
    assert first.image.open().getpixel((0, 0)) == GREEN
    assert first.mask.open().tolist() == [[0, 1, 255, 1]]
    trimapped = next(iter(open_dataset([row], columns={"image": "front", "trimap": "borders"})))
    assert trimapped.mask.open().tolist() == [[1, 0, 255], [0, 0, 1]]
    wrong = next(iter(open_dataset([row], columns={"image": "front", "trimap": "mask"})))
    with pytest.raises(BadInput, match=r"the mask of row 0 .* holds \[0, 9, 255\]: a trimap has 1 for the object"):
        wrong.mask.open()
    with pytest.raises(BadInput, match=r"the image may be 'image' or 'photo'; name it: columns=\{'image': 'image'\}"):
        open_dataset([{"image": plain(), "photo": plain()}])
    with pytest.raises(BadInput, match="a mask needs an image beside it"):
        open_dataset([{"text": "a", "mask": plain()}], columns={"mask": "mask"})
    with pytest.raises(BadOption, match="either a 'mask' or a 'trimap'"):
        open_dataset([row], columns={"image": "front", "mask": "mask", "trimap": "borders"})
    with pytest.raises(BadInput, match="no column 'x' for image"):
        open_dataset([row], columns={"image": "x"})


def test_one_label_of_a_mask_is_foreground() -> None:
    row = {"image": plain(), "mask": mask_file([[0, 1, 255, 9]])}
    assert next(iter(open_dataset([row], category="9"))).mask.open().tolist() == [[0, 0, 255, 1]]
    assert open_dataset([row], category="9").digest != open_dataset([row]).digest
    for category in ("dog", "0", "256"):
        with pytest.raises(BadOption, match=f"category='{category}': the masks in 'mask' have numbers from 1 to 255"):
            list(open_dataset([row], category=category))
    with pytest.raises(BadOption, match="a trimap has one object"):
        list(open_dataset([{"image": plain(), "trimap": mask_file(TRIMAP)}], category="1"))
    with pytest.raises(BadOption, match="has no column of masks"):
        open_dataset([{"image": plain()}], category="1")


@pytest.mark.parametrize("kind", [bool, np.int64, np.uint8, list])
def test_masks_in_memory(kind: Any) -> None:
    labels = [[True, False], [False, False]]
    mask = labels if kind is list else np.array(labels).astype(kind)
    assert next(iter(open_dataset([{"image": plain(), "mask": mask}]))).mask.open().tolist() == [[1, 0], [0, 0]]


def test_a_row_without_a_mask_has_none() -> None:
    rows = [{"image": plain(), "mask": None}, {"image": plain(), "mask": mask_file([[1]])}]
    assert [e.mask is None for e in open_dataset(rows)] == [True, False]


def test_stored_images_and_masks_show_no_bytes() -> None:
    assert "bytes" not in repr(StoredImage(b"bytes")) + repr(StoredMask(b"bytes"))


# Outlines

SQUARE = [2, 1, 4, 1, 4, 3, 2, 3]


def drawn(objects: Any, size: tuple[int, int] = (8, 5), **rest: Any) -> np.ndarray:
    row = {"image": plain(size=size), "objects": objects, **rest}
    options = {"category": rest.pop("category")} if "category" in rest else {}
    return next(iter(open_dataset([row], **options))).mask.open()


def test_polygons_are_drawn_in_pixels_or_in_fractions() -> None:
    mask = drawn([{"category": 1, "polygon": SQUARE}])
    assert mask.shape == (5, 8)
    assert mask.dtype == np.uint8
    assert [(int(y), int(x)) for y, x in np.argwhere(mask)] == [(y, x) for y in (1, 2) for x in (2, 3)]
    fractions = [n / (5 if i % 2 else 8) for i, n in enumerate(SQUARE)]
    assert drawn([{"polygon": fractions}]).tolist() == mask.tolist()
    assert drawn([{"polygon": [0, 0, 1, 0, 1, 1, 0, 1]}]).all()
    assert not drawn([]).any()
    tiny = drawn([{"segmentation": [[0, 0, 1, 0, 1, 1, 0, 1]]}])
    assert tiny.sum() == tiny[0, 0] == 1, "COCO's are in pixels"
    beyond = drawn([{"polygon": [-3, -3, 20, -3, 20, 2, -3, 2]}])
    assert beyond[:2].all()
    assert not beyond[2:].any()
    assert drawn([{"polygon": SQUARE}], width=16, height=10).shape == (10, 16)
    assert drawn([{"polygon": SQUARE}], width=True, height="10").shape == (5, 8), "no size: that of the image"


def test_the_pixels_of_a_polygon_are_those_whose_centre_is_in_it() -> None:
    from matplotlib.path import Path as Outlined

    numbers = np.random.default_rng(1)
    for _ in range(20):
        points = numbers.uniform(0, (16, 11), (5, 2))
        centres = np.stack(np.meshgrid(np.arange(16) + 0.5, np.arange(11) + 0.5), -1).reshape(-1, 2)
        turn = points - points.mean(0)
        points = points[np.argsort(np.arctan2(turn[:, 1], turn[:, 0]))]  # no edge crosses another
        expected = Outlined(points).contains_points(centres).reshape(11, 16)
        assert np.array_equal(drawn([{"polygon": points.ravel().tolist()}], (16, 11)), expected)


def test_several_objects_and_one_category() -> None:
    dog = {"category": 16, "category_name": "dog", "polygon": SQUARE}
    cat = {"category": 15, "category_name": "cat", "polygon": [0, 0, 2, 0, 0, 3]}
    both = drawn([dog, cat])
    assert both.sum() == drawn([dog]).sum() + drawn([cat]).sum()
    assert drawn([dog, cat], category="dog").tolist() == drawn([dog]).tolist()
    assert drawn([dog, cat], category="15").tolist() == drawn([cat]).tolist()
    assert not drawn([dog], category="cat").any()
    columns = {name: [dog[name], cat[name]] for name in dog}
    assert drawn(columns).tolist() == both.tolist(), "as `datasets` gives lists of dictionaries"
    assert drawn([{"segmentation": [SQUARE, cat["polygon"]]}]).tolist() == both.tolist()


def test_a_crowd_is_not_labelled() -> None:
    runs = [5, 5, 30]  # the second column of an image of 8 × 5
    crowd = {"iscrowd": 1, "segmentation": {"counts": runs, "size": [5, 8]}}
    mask = drawn([crowd])
    assert (mask[:, 1] == 255).all()
    assert not mask[:, [0, *range(2, 8)]].any()
    inside = drawn([{"polygon": [1, 0, 1, 2, 2, 2, 2, 0]}, crowd])
    assert inside[1, 1] == 1, "an object in a crowd is one"
    assert inside[4, 1] == 255
    with pytest.raises(
        BadInput, match=r"the mask of row 0 .* cannot be drawn: its runs cover 10 pixels, and the image has 8 × 5"
    ):
        drawn([{"segmentation": {"counts": [5, 5], "size": [5, 8]}}])


def test_boxes_are_no_masks() -> None:
    row = {"image": plain(), "objects": [{"bbox": [0, 0, 1, 1], "category": 1}]}
    assert next(iter(open_dataset([row]))).mask is None


# COCO's files

COCO = {
    "info": {"description": "a few"},
    "images": [{"id": 7, "file_name": "a.png", "width": 8, "height": 5}, {"id": 9, "file_name": "b.png"}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 18, "segmentation": [SQUARE], "iscrowd": 0, "bbox": [2, 1, 2, 2]},
        {"id": 2, "image_id": 7, "category_id": 17, "segmentation": [[0, 0, 2, 0, 0, 3]], "iscrowd": 0},
    ],
    "categories": [{"id": 17, "name": "cat"}, {"id": 18, "name": "dog"}],
}


def write_coco(folder: Path, content: Any = COCO, images: str = "val2017") -> Path:
    (folder / images).mkdir(parents=True)
    for name in ("a.png", "b.png"):
        (folder / images / name).write_bytes(plain(size=(8, 5)))
    (folder / "annotations").mkdir(exist_ok=True)
    path = folder / "annotations" / "instances_val2017.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("images", ["val2017", "images", "images/val2017", "annotations/images"])
def test_coco(tmp_path: Path, images: str) -> None:
    path = write_coco(tmp_path, images=images)
    for source in (path, tmp_path, f"coco:{path}"):
        data = open_dataset(source)
        assert data.format == "coco"
        assert len(data) == 2
        first, second = data
        assert first.meta == {"width": 8, "height": 5, "image_id": 7}
        assert first.mask.open().tolist() == drawn([{"polygon": SQUARE}, {"polygon": [0, 0, 2, 0, 0, 3]}]).tolist()
        assert second.image.open().size == (8, 5)
        assert not second.mask.open().any()
    dogs = open_dataset(tmp_path, split="val2017", category="dog")
    assert next(iter(dogs)).mask.open().tolist() == drawn([{"polygon": SQUARE}]).tolist()
    assert pickle.loads(pickle.dumps(dogs)).rows(0, 1) == dogs.rows(0, 1)
    with pytest.raises(BadOption, match=r"category='dgo': .*did you mean 'dog'\? known: cat, dog"):
        open_dataset(tmp_path, category="dgo")


def test_coco_files_that_are_damaged(tmp_path: Path) -> None:
    path = write_coco(tmp_path / "a", {**COCO, "images": [{"id": 7}]})
    with pytest.raises(BadInput, match=r"row 0 \(counted from 0\): the image 7 has no 'file_name'"):
        list(open_dataset(path))
    with pytest.raises(BadInput, match="'images' is 5, not a list of objects"):
        list(open_dataset(f"coco:{write_coco(tmp_path / 'b', {**COCO, 'images': 5})}"))
    long = write_coco(tmp_path / "d", {**COCO, "images": [{"id": 7, "file_name": "x" * 5_000}]})
    with pytest.raises(BadInput, match="were looked for in") as error:
        list(open_dataset(long))
    assert len(str(error.value)) < 2_000
    outside = write_coco(tmp_path / "c", {**COCO, "images": [*COCO["images"], {"id": 1, "file_name": "../../x.png"}]})
    with pytest.raises(BadInput, match="lies outside"):
        list(open_dataset(outside))
    for file in (tmp_path / "c" / "val2017").iterdir():
        file.unlink()
    with pytest.raises(BadInput, match=r"were looked for in .*val2017, .*; put them into one of these"):
        list(open_dataset(outside))


# Folders


def test_a_folder_for_each_class(tmp_path: Path, decoded: list[Any]) -> None:
    write_images(tmp_path, ["dog/b.jpg", "cat/z.PNG", "cat/a.png", "cat/notes", "dog/.hidden.png", "empty/notes"])
    data = open_dataset(tmp_path)
    assert data.format == "images"
    assert [(e.label, e.meta["file"]) for e in data] == [
        ("cat", "cat/a.png"),
        ("cat", "cat/z.PNG"),
        ("dog", "dog/b.jpg"),
    ]
    assert len(data) == 3
    assert data.digest
    assert not decoded
    assert [c[0] for c in colours(data)] == [2, 1, 0]
    assert [e.label for e in open_dataset(tmp_path, labels=["DOG", "CAT"])] == [1, 1, 0]
    assert [e.row for e in data.rows(1, 3)] == [1, 2]
    assert pickle.loads(pickle.dumps(data)).rows(1, 2) == data.rows(1, 2)


def test_a_folder_of_images_without_labels(tmp_path: Path) -> None:
    write_images(tmp_path, ["b.jpg", "a.webp", "notes"])
    examples = list(open_dataset(tmp_path))
    assert [(e.label, e.meta) for e in examples] == [(None, {"file": "a.webp"}), (None, {"file": "b.jpg"})]


def test_the_digest_of_a_folder_is_of_names_and_sizes(tmp_path: Path) -> None:
    names = ["cat/a.png", "dog/b.png"]
    first = open_dataset(write_images(tmp_path / "one", names)).digest
    assert open_dataset(write_images(tmp_path / "two", names)).digest == first
    other = write_images(tmp_path / "three", names)
    (other / "dog/b.png").write_bytes(plain(size=(50, 50)))
    assert open_dataset(other).digest != first
    assert open_dataset(write_images(tmp_path / "four", ["cat/a.png", "cow/b.png"])).digest != first


def test_splits_of_a_folder(tmp_path: Path) -> None:
    write_images(tmp_path, ["train/cat/a.png", "val/cat/b.png", "val/dog/c.png", "extra/notes"])
    assert len(open_dataset(tmp_path)) == len(open_dataset(tmp_path, split="validation")) == 2
    assert len(open_dataset(tmp_path, split="train")) == 1
    assert len(open_dataset(tmp_path / "val", split="val")) == 2
    with pytest.raises(BadInput, match="has no split 'test'; found train, val"):
        open_dataset(tmp_path, split="test")
    with pytest.raises(BadInput, match="has no split 'test'; found val"):
        open_dataset(tmp_path / "val", split="test")


def test_folders_that_cannot_be_data(tmp_path: Path) -> None:
    write_images(tmp_path, ["cat/a.png", "b.png"])
    with pytest.raises(BadInput, match="holds images and folders of images"):
        open_dataset(tmp_path)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BadInput, match="holds no data"):
        open_dataset(tmp_path / "nothing")


# ImageNet

SYNSETS = {
    "n01440764": "tench, Tinca tinca",
    "n02012849": "crane",
    "n03126707": "crane",
    "n02123045": "tabby, tabby cat",
}


def write_imagenet(root: Path, listing: str | None = "LOC_synset_mapping.txt", split: str = "val") -> Path:
    write_images(root / split, [f"{synset}/{synset}_{i}.JPEG" for synset in SYNSETS for i in range(2)])
    if listing == "labels.csv":
        rows = [{"label": i, "wnid": s, "words": w} for i, (s, w) in enumerate(SYNSETS.items())]
        with (root / listing).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif listing is not None:
        between = "\t" if listing == "words.txt" else " "
        (root / listing).write_text("".join(f"{s}{between}{w}\n" for s, w in SYNSETS.items()))
    return root


def labels_of(data: Any) -> list[Any]:
    return [example.label for example in data][::2]


@pytest.mark.parametrize("listing", ["LOC_synset_mapping.txt", "synset_words.txt", "labels.csv"])
def test_synsets_are_numbered_in_their_order(tmp_path: Path, listing: str) -> None:
    data = open_dataset("imagenet", local=write_imagenet(tmp_path, listing))
    assert labels_of(data) == [0, 1, 2, 3]
    assert next(iter(data)).meta == {
        "file": "n01440764/n01440764_0.JPEG",
        "synset": "n01440764",
        "name": "tench, Tinca tinca",
    }
    for names in (["tench", "crane", "tabby", "crane"], [f"LABEL_{i}" for i in range(4)]):
        assert labels_of(open_dataset(tmp_path, labels=names)) == [0, 1, 2, 3], "as many classes as synsets"
    turned = ["n03126707", "tabby", "n02012849", "tench, Tinca tinca", "other"]
    assert labels_of(open_dataset(tmp_path, labels=turned)) == [3, 2, 1, 0], "synsets or words"
    with pytest.raises(BadInput, match="label 'crane' is none of the labels"):
        list(open_dataset(tmp_path, labels=["tench", "tabby"]))
    for folder in (tmp_path / "val", tmp_path):
        assert labels_of(open_dataset("imagenet", local=folder)) == [0, 1, 2, 3]


def test_synsets_that_nobody_lists(tmp_path: Path) -> None:
    data = open_dataset(write_imagenet(tmp_path, None))
    assert labels_of(data) == sorted(SYNSETS)
    assert labels_of(open_dataset(tmp_path, labels=["a", "b", "c", "d"])) == [0, 1, 2, 3]
    write_imagenet(tmp_path, "words.txt")
    with (tmp_path / "words.txt").open("a") as file:
        file.write("n00001740\tentity\n")
    assert labels_of(open_dataset(tmp_path)) == sorted(SYNSETS), "words.txt lists more than the classes"
    assert labels_of(open_dataset(tmp_path, labels=["entity", "tabby", "tench", "a", "b"], on_error="skip")) == [2, 1]


def test_a_class_that_the_list_does_not_have(tmp_path: Path) -> None:
    write_images(write_imagenet(tmp_path) / "val", ["n99999999/a.png"])
    with pytest.raises(BadInput, match=r"LOC_synset_mapping\.txt' has no line for n99999999"):
        open_dataset(tmp_path)
    (tmp_path / "labels.csv").write_text("wnid,words\nn01440764\n")
    (tmp_path / "LOC_synset_mapping.txt").unlink()
    with pytest.raises(BadInput, match=r"labels\.csv, row 0 .*: 1 fields where the header has 2"):
        open_dataset(tmp_path)
    (tmp_path / "labels.csv").write_text("number,words\n1,tench\n")
    with pytest.raises(BadInput, match=r"a synset such as n01440764 is needed.* found number, words"):
        open_dataset(tmp_path)
    (tmp_path / "LOC_synset_mapping.txt").write_text("tench n01440764\n")
    with pytest.raises(BadInput, match=r"line 1 of .* does not begin with a synset"):
        open_dataset(tmp_path)


def test_the_layout_of_kaggle(tmp_path: Path) -> None:
    write_images(tmp_path / "ILSVRC/Data/CLS-LOC/val", ["ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG"])
    (tmp_path / "LOC_synset_mapping.txt").write_text("n01440764 tench\nn02123045 tabby, tabby cat\n")
    lines = [
        "ImageId,PredictionString",
        "ILSVRC2012_val_00000001,n02123045 1 2 3 4",
        "ILSVRC2012_val_00000002,n01440764 1 2 3 4 ",
    ]
    (tmp_path / "LOC_val_solution.csv").write_text("\n".join(lines))
    assert [(e.label, e.meta["synset"]) for e in open_dataset("imagenet", local=tmp_path)] == [
        (1, "n02123045"),
        (0, "n01440764"),
    ]


def test_the_layout_of_tiny_imagenet(tmp_path: Path) -> None:
    write_images(tmp_path, ["val/images/val_0.JPEG", "val/images/val_1.JPEG", "train/n01440764/images/a.JPEG"])
    (tmp_path / "val/val_annotations.txt").write_text("val_0.JPEG\tn02123045\t0\t32\nval_1.JPEG\tn01440764\t0\t32\n")
    assert [e.label for e in open_dataset("tiny_imagenet", local=tmp_path)] == ["n02123045", "n01440764"]
    assert [e.label for e in open_dataset(tmp_path, split="train")] == ["n01440764"]


def test_the_ground_truth_of_the_development_kit(tmp_path: Path) -> None:
    from scipy.io import savemat

    write_images(tmp_path / "val", ["ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG"])
    kit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("2\n1\n")
    with pytest.raises(BadInput, match=r"counts the classes as ImageNet's development kit does: put its meta\.mat"):
        open_dataset("imagenet", local=tmp_path)
    (kit / "meta.mat").write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"meta\.mat' cannot be read as the development kit's"):
        open_dataset("imagenet", local=tmp_path)
    synsets = np.array([(1, "n02123045"), (2, "n01440764")], dtype=[("ILSVRC2012_ID", object), ("WNID", object)])
    savemat(kit / "meta.mat", {"synsets": synsets})
    assert [e.label for e in open_dataset("imagenet", local=tmp_path)] == ["n01440764", "n02123045"]
    (tmp_path / "val" / "ILSVRC2012_val_00000003.JPEG").write_bytes(plain())
    with pytest.raises(BadInput, match="has no class for the image 'ILSVRC2012_val_00000003'"):
        open_dataset("imagenet", local=tmp_path)


def test_a_thousand_synsets_are_all_of_them(tmp_path: Path) -> None:
    write_images(tmp_path, [f"n{i:08}/a.png" for i in range(5, 1005)])
    assert [e.label for e in open_dataset(tmp_path)] == list(range(1000))


def test_a_mask_of_0_and_255_alone_is_asked_about() -> None:
    rows = [{"image": np.zeros((4, 4, 3), np.uint8), "mask": np.array([[0, 255], [255, 0]], np.uint8)}]
    (example,) = open_dataset(rows)
    assert example.mask is not None
    with pytest.raises(BadInput, match=r"holds 0 and 255 alone.*category='255'"):
        example.mask.open()
    (named,) = open_dataset(rows, category="255")
    assert named.mask is not None
    assert named.mask.open().tolist() == [[0, 1], [1, 0]]
