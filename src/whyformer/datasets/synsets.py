"""ImageNet's classes: synsets of WordNet, their words and numbers, and the files that tell them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whyformer.datasets.text_files import CSVFile
from whyformer.errors import BadInput, listed, reason_of
from whyformer.storage.files import read, regular

ILSVRC = 1000  # classes; so many folders are all of them
SYNSET = re.compile(r"n\d{8}")
CLASS_LISTS = ("LOC_synset_mapping.txt", "synset_words.txt", "labels.csv")  # all classes of the data, and no others
WORDS = ("words.txt",)  # of all WordNet
SOLUTION, ANNOTATIONS = "LOC_val_solution.csv", "val_annotations.txt"
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
DEVKIT = ("", "data", "ILSVRC2012_devkit_t12/data", "devkit/data")  # where the ground truth may lie
_NUMBER = re.compile(r".*_val_0*(\d+)")


@dataclass(frozen=True)
class SynsetTable:
    """The synsets that have a folder, the words of each, and the numbers of the classes if they are known."""

    folders: tuple[str, ...]
    words: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def beside(cls, folder: Path, names: Sequence[str]) -> "SynsetTable":
        """The classes, sorted, with what a file in the folder, or in the one above it, says about them."""
        for path in _files(folder, CLASS_LISTS):
            words = dict(_table(path) if path.suffix == ".csv" else _lines(path))
            missing = [name for name in names if name not in words]
            if missing:
                raise BadInput(f"{str(path)!r} has no line for {missing[0]}, and there is a folder of that name")
            return cls(tuple(names), words, {name: number for number, name in enumerate(sorted(words))})
        numbers = {name: number for number, name in enumerate(names)} if len(names) == ILSVRC else {}
        known = set(names)
        for path in _files(folder, WORDS):
            return cls(tuple(names), {name: words for name, words in _lines(path) if name in known}, numbers)
        return cls(tuple(names), {}, numbers)

    def label(self, synset: str, labels: Sequence[str]) -> int | str:
        """A class among a model's labels: by its synset, its words, the first of them, or the number of the class.

        The number counts if there are as many labels as classes. Without labels it is the number, or else the synset.
        """
        words = self.words.get(synset, synset)
        for name in (synset, words, words.split(",")[0]):
            if list(labels).count(name) == 1:
                return list(labels).index(name)
        numbers = self.numbers or {name: number for number, name in enumerate(self.folders)}
        if len(labels) == len(numbers):
            return numbers[synset]
        return words if labels else self.numbers.get(synset, synset)

    def about(self, synset: str) -> dict[str, str]:
        """What people know a class by."""
        return {"synset": synset, "name": self.words.get(synset, synset)}


def true_synsets(folder: Path, stems: Sequence[str]) -> dict[str, str]:
    """The synset of each image of a folder by the name of its file, if a file beside tells it; else none."""
    for path in _files(folder, (SOLUTION, ANNOTATIONS)):
        return dict(_solved(path))
    for path in _files(folder, [f"{place}/{GROUND_TRUTH}".lstrip("/") for place in DEVKIT]):
        return _by_number(path, stems)
    return {}


def _files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """The files of these names in the folder, in the one above it, and where Kaggle's archive has them."""
    places = [folder, folder.parent]
    if folder.parent.name == "CLS-LOC" and len(folder.parents) > 3:
        places.append(folder.parents[3])
    for place in places:
        for name in names:
            if regular(place / name).is_file():
                yield place / name


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """`n01440764 tench, Tinca tinca`, with a space or a tab between them."""
    for number, line in enumerate(read(path, "list of synsets").splitlines(), 1):
        name, *rest = line.split(maxsplit=1)
        if not line.strip():
            continue
        if not SYNSET.fullmatch(name):
            raise BadInput(f"line {number} of {str(path)!r} does not begin with a synset such as n01440764")
        yield name, rest[0].strip() if rest else name


def _table(path: Path) -> Iterator[tuple[str, str]]:
    """A table with a column of synsets, and one of their words."""
    table = CSVFile(path)
    words = next((name for name in ("words", "name", "label_name") if name in table.columns()), None)
    for number, row in enumerate(table.rows()):
        if isinstance(row, str):
            raise BadInput(f"{table.place(number)}: {row}")
        synset = next(filter(SYNSET.fullmatch, row.values()), None)
        if synset is None or words is None:
            names = listed(table.columns())
            raise BadInput(
                f"{table.place(number)}: a synset such as n01440764 is needed, and a column called words or name; "
                f"found {names}"
            )
        yield synset, row[words]


def _solved(path: Path) -> Iterator[tuple[str, str]]:
    """The synset behind the name of each image: `ILSVRC2012_val_00048981,n03995372 85 1 499 272`."""
    for line in read(path, "list of labels").splitlines():
        name, *rest = re.split(r"[,\s]+", line.strip())
        if rest and SYNSET.fullmatch(rest[0]):
            yield Path(name).stem, rest[0]


def _by_number(path: Path, stems: Sequence[str]) -> dict[str, str]:
    """The synsets of images that are numbered; a line has the number of a class as the development kit counts them."""
    numbers = read(path, "list of labels").split()
    synsets = _of_devkit(path.parent / "meta.mat", path)
    truth = {}
    for stem in stems:
        place = _NUMBER.fullmatch(stem)
        if place is None or not 1 <= int(place[1]) <= len(numbers) or numbers[int(place[1]) - 1] not in synsets:
            raise BadInput(f"{str(path)!r} has no class for the image {stem!r}: it is of another set of images")
        truth[stem] = synsets[numbers[int(place[1]) - 1]]
    return truth


def _of_devkit(meta: Path, truth: Path) -> dict[str, str]:
    """The synset of each number in ImageNet's development kit."""
    if not regular(meta).is_file():
        raise BadInput(
            f"{str(truth)!r} counts the classes as ImageNet's development kit does: put its meta.mat beside it, or "
            f"{SOLUTION} beside the images"
        )
    from scipy.io import loadmat

    try:
        rows = loadmat(meta, squeeze_me=True)["synsets"]
        return {str(int(row["ILSVRC2012_ID"])): str(row["WNID"]) for row in rows}
    except Exception as error:  # whatever a library raises for a damaged file
        raise BadInput(f"{str(meta)!r} cannot be read as the development kit's: {reason_of(error)}") from error
