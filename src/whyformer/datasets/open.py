"""`open_dataset`: a file, a folder, a recipe, a name of the hub, or rows in memory → Dataset."""

import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whyformer.datasets import text_files
from whyformer.datasets.columns import ColumnNames, Columns, find_columns
from whyformer.datasets.dataset import Dataset, OnError, RowChoice
from whyformer.datasets.eraser import EraserFolder, eraser_splits, is_eraser
from whyformer.datasets.hub import HubData, SavedData, default_split, is_saved
from whyformer.datasets.images import (
    CocoFile,
    ImageFolder,
    coco_files,
    image_folder,
    is_coco,
    is_image_folder,
    is_unsplit,
)
from whyformer.datasets.memory import RowSequence, rows_in_memory
from whyformer.datasets.parquet import ParquetFile, Shards
from whyformer.datasets.recipes import RECIPES, Recipe
from whyformer.datasets.source import Source
from whyformer.datasets.synsets import CLASS_LISTS, SOLUTION
from whyformer.errors import BadInput, BadOption, nearest, shown
from whyformer.registry.names import Registry
from whyformer.registry.options import validated
from whyformer.storage.files import LONGEST_NAME, mode_of, regular, spooled

Data = str | Path | RowSequence
LONGEST_HUB_NAME = 96  # characters
READERS: Registry[Callable[[Path, str], Source]] = Registry("data format", "data_formats")
for name, reader in (
    ("csv", text_files.CSVFile),
    ("tsv", lambda path, name: text_files.CSVFile(path, name, "\t")),
    ("jsonl", text_files.JSONLines),
    ("parquet", ParquetFile),
    ("conll", text_files.RationaleColumns),
    ("squad", text_files.SquadJSON),
    ("coco", CocoFile),
):
    READERS.add(name, reader, __name__)
LISTS = (*CLASS_LISTS, SOLUTION)  # they say something about images, and are no data


@validated
def open_dataset(
    source: Data,
    *,
    split: str | None = None,
    columns: ColumnNames | None = None,
    limit: int | None = None,
    sample: int | None = None,
    on_error: OnError = "refuse",
    labels: Sequence[str] | None = None,
    local: str | Path | None = None,
    category: str | None = None,
) -> Dataset:
    """Named or local data as a stream of Examples.

    | parameter | meaning |
    |---|---|
    | `source` | a file or folder, a recipe (`sst2@attcat`), or `hub:NAME[:CONFIG]`, looked for in this order |
    | | or rows in memory: a list of texts, of (text, label) or of dictionaries, a DataFrame, a Dataset of `datasets` |
    | `split` | the split of a folder or of a hub data set |
    | `columns` | what has no conventional name: `{"text": "body", "label": "y"}`; `{"text": ("a", "b")}` for pairs |
    | `limit` | how many examples are given out; it makes a random sample smaller |
    | `sample` | how many rows are drawn at random, the same ones each time |
    | `on_error` | `"refuse"` raises at a bad row, `"skip"` leaves it out and lists it in `Dataset.skipped` |
    | `labels` | the model's: then a label becomes its index, and other labels are bad rows |
    | `local` | for recipes, a folder or file in place of the hub |
    | `category` | for masks, the one whose pixels are foreground, by name (objects) or number; without it all are |
    """
    recipe = _recipe(source)
    if recipe is None and local is not None:
        raise BadOption(f"local= is for recipes; {_shown(source)} is none: {nearest(_shown(source), RECIPES)}")
    choice = RowChoice(limit=limit, sample=sample)
    if recipe is not None:
        choice = replace(
            recipe.choice, limit=limit, min_tokens=recipe.min_tokens, min_probability=recipe.min_probability
        )
        choice = choice if sample is None else replace(choice, sample=sample)
        stored = _open_recipe(recipe, split, local)
        if columns is None and local is None:
            columns = recipe.columns
    else:
        stored = _open(source, split)
    if isinstance(stored, ImageFolder):
        stored = stored.for_labels(labels)
    used = _of_category(find_columns(stored.columns(), columns, stored.where), category, stored)
    if choice.keep and used.label is None:
        raise BadInput(f"{stored.where}: the recipe keeps rows by their label, and no label column was found")
    name = recipe.name if recipe else _shown(source)
    return Dataset(stored, used, name=name, choice=choice, on_error=on_error, labels=labels)


def _of_category(used: Columns, category: str | None, stored: Source) -> Columns:
    """The columns with the category whose pixels are foreground."""
    if category is None:
        return used
    if used.images is None or used.images.mask is None:
        raise BadOption(f"category={category!r} chooses pixels of masks, and {stored.where} has no column of masks")
    if isinstance(stored, CocoFile):
        stored.check(category)
    return replace(used, images=replace(used.images, category=str(category)))


def opened(data: Dataset | Data, *, labels: Sequence[str] | None = None, **options: Any) -> Dataset:
    """The data set, opened unless it is open; then it takes no option of `open_dataset` but None."""
    if not isinstance(data, Dataset):
        return open_dataset(data, labels=labels, **options)
    if stated := [name for name, value in options.items() if value is not None]:
        raise BadOption(f"{stated[0]}= is for a file or name: this data set was opened already, give it there")
    return data


def file_endings() -> dict[str, str]:
    """The endings of data files, with the format of each."""
    return {**{f".{name}": name for name in READERS}, ".ndjson": "jsonl", ".json": "squad", ".pq": "parquet"}


def _shown(source: Data) -> str:
    return str(source) if isinstance(source, str | Path) else type(source).__name__


def _recipe(source: Data) -> Recipe | None:
    """The recipe of that name, unless a file or folder has it."""
    if not isinstance(source, str) or mode_of(Path(source)):
        return None
    if source not in RECIPES and re.fullmatch(r"\w+@\w+", source):
        raise BadInput(f"there is no recipe {source!r}: {nearest(source, RECIPES)}")
    return RECIPES.get(source)


def _open_recipe(recipe: Recipe, split: str | None, local: str | Path | None) -> Source:
    if local is None and not recipe.hub:
        raise BadInput(f"{recipe.name} is not on the hub: give local= a file or folder of it. {recipe.note}")
    if local is None:
        if mode_of(Path(recipe.hub)):  # `datasets` would read it in place of the hub
            raise BadInput(
                f"{recipe.name} is {recipe.hub!r} of the hub, and there is a folder of that name: give local="
            )
        return HubData(recipe.hub, recipe.config, split or recipe.split)
    path = Path(local)
    if path.is_file():
        return _open_file(path)
    path = path / recipe.folder if (path / recipe.folder).is_dir() else path
    return _open(path, split if path.is_dir() and is_unsplit(path) else split or recipe.split)


def _open(source: Data, split: str | None) -> Source:
    if not isinstance(source, str | Path):
        if split is not None:
            raise BadOption(f"split={split!r}: rows in memory have no splits; give those of one split")
        return rows_in_memory(source)
    kind, sign, rest = str(source).partition(":")
    if isinstance(source, str) and sign and kind == "hub":
        name, _, config = rest.partition(":")
        if not name:
            raise BadInput("hub: needs the name of a data set behind it, such as hub:stanfordnlp/imdb")
        return HubData(name, config or None, split)
    if isinstance(source, str) and sign and kind in READERS:
        return _open_file(Path(rest), kind, split)
    path = Path(source)
    if stat.S_ISDIR(mode_of(path)):
        return _open_folder(path, split)
    if mode_of(path):
        return _open_file(path, None, split)
    named = isinstance(source, str) and len(source) <= LONGEST_HUB_NAME and path.suffix not in file_endings()
    if isinstance(source, str) and named and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source):
        return HubData(source, None, split)
    raise BadInput(f"there is no file or folder {shown(str(source), LONGEST_NAME)}")


def _open_file(path: Path, kind: str | None = None, split: str | None = None) -> Source:
    if not (mode := mode_of(path)) or stat.S_ISDIR(mode):
        raise BadInput(f"there is no file {shown(str(path), LONGEST_NAME)}")
    if split is not None:
        raise BadOption(f"split={split!r}: the file {path} has no splits; give its folder, or leave split out")
    ending = file_endings().get(path.suffix.casefold())
    if kind is None and ending is None:
        known = ", ".join(f"{name}:" for name in READERS)
        raise BadInput(f"the format of {path} is not known by its ending; write it before the path: {known}")
    held = spooled(path)
    if kind is None and ending == "squad" and is_coco(held):
        ending = "coco"
    return READERS[kind or str(ending)](held, str(path))


def _open_folder(folder: Path, split: str | None) -> Source:
    if is_saved(folder):
        return SavedData(folder, split)
    if is_eraser(folder):
        return EraserFolder(folder, default_split(eraser_splits(folder), split, str(folder)))
    if annotated := coco_files(folder):
        return _open_file(annotated[default_split(list(annotated), split, str(folder))])
    splits = _split_files(folder) or _split_files(folder / "data")
    if not splits and is_image_folder(folder):
        return image_folder(folder, split)
    if not splits:
        raise BadInput(f"the folder {folder} holds no data: known endings are {', '.join(file_endings())}")
    parts = [name for name in splits if split and re.match(rf"{re.escape(split)}[-_.]", name)]
    if split is not None and split not in splits and len(parts) == 1:
        split = parts[0]  # `test_2000.parquet` is what there is of `test`
    shards = [_open_file(path) for path in splits[default_split(list(splits), split, str(folder))]]
    return shards[0] if len(shards) == 1 else Shards(shards)


def _split_files(folder: Path) -> dict[str, list[Path]]:
    """The files of each split; those called `test-00000-of-00002` belong together."""
    splits: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*")):
        if path.suffix.casefold() in file_endings() and path.name not in LISTS and regular(path).is_file():
            splits.setdefault(re.sub(r"-\d+-of-\d+$", "", path.stem), []).append(path)
    return splits
