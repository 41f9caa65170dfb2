"""The texts that a command is given: the lines of a file, the rows of a data file, or standard input."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from whyformer.cli.streams import say
from whyformer.datasets import open_dataset
from whyformer.datasets.columns import LABELS, PAIRS, TEXTS
from whyformer.datasets.dataset import OnError
from whyformer.datasets.opening import file_endings
from whyformer.errors import BadInput, BadOption
from whyformer.inputs import pictures
from whyformer.inputs.encoding import Text
from whyformer.storage.files import named_path, parsed_json, read

HEADINGS = {*TEXTS, *LABELS, *(name for pair in PAIRS for name in pair)}


def columns_of(text: str | None, label: str | None = None) -> dict[str, Any] | None:
    """The columns that are named on the command line, as `open_dataset` takes them."""
    columns: dict[str, Any] = {} if label is None else {"label": label}
    if text is not None:
        first, comma, second = text.partition(",")
        columns["text"] = (first.strip(), second.strip()) if comma else first
    return columns or None


def texts_of(file: Path, column: str | None = None, on_error: str = "refuse") -> list[Text]:
    """The texts of a data file (CSV, JSONL, Parquet …) without what else its rows hold; of other files the lines."""
    if on_error not in (known := get_args(OnError)):
        raise BadOption(f"--on-error {on_error}: known are {', '.join(known)}")
    if file.suffix.casefold() in pictures.ENDINGS:
        raise BadInput(f"{str(file)!r} is an image by its name, and --file is of texts: give --image {str(file)!r}")
    if file.suffix.casefold() in file_endings():
        data = open_dataset(file, columns=columns_of(column), on_error=cast(OnError, on_error))
        texts = [example.text for example in data]
        if data.skipped:
            first = data.skipped[0]
            say(f"rows that were skipped: {len(data.skipped)}; row {first.row} (counted from 0): {first.reason}")
    elif column is not None:
        endings = ", ".join(file_endings())
        raise BadOption(f"--text names a column, and {str(file)!r} has none: data files end in {endings}")
    else:
        texts = _lines(file, refuse=on_error == "refuse")
    if not texts:
        raise BadInput(f"{str(file)!r} holds no text")
    return texts


def _lines(file: Path, refuse: bool) -> list[Text]:
    lines = read(file).removesuffix("\n").split("\n")
    check_plain(lines[0], repr(str(file)))
    for number, line in enumerate(lines, 1):
        if refuse and lines != [""] and not line.strip():
            raise BadInput(f"line {number} of {str(file)!r} is empty; --on-error skip leaves such lines out")
    return [line for line in lines if line.strip()]


def existing(text: str) -> Path | None:
    """The file, or the folder of images, that a text names, or None."""
    path = named_path(text)
    if (
        path is None
        and re.fullmatch(r"\S+", text)
        and Path(text).suffix.casefold() in (*file_endings(), *pictures.ENDINGS)
    ):
        raise BadInput(f"there is no file {text!r}: check the path")
    if path is not None and path.is_dir() and not _holds_images(path):
        raise BadInput(
            f"{text!r} is a folder without image files: a model is given with -m, a data set with --data; a text that "
            "is the name of a folder too is read from standard input"
        )
    return path if path is not None and (path.is_file() or path.is_dir()) else None


def _holds_images(folder: Path) -> bool:
    """Whether there are images in a folder, or in its folders, as where each class has one."""
    return any(images_in(one) for one in (folder, *(one for one in folder.iterdir() if one.is_dir())))


def images_in(folder: Path) -> list[Path]:
    """The image files in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.casefold() in pictures.ENDINGS)


def images_at(path: Path) -> list[Path]:
    """An image file, or all in a folder."""
    if not path.is_dir():
        return [path]
    found = images_in(path)
    if not found:
        raise BadInput(f"{str(path)!r} holds no image files ({', '.join(pictures.ENDINGS)}); subfolders are not read")
    return found


def standard_input() -> str:
    """The text on standard input, unless a person sits there."""
    if sys.stdin.isatty():
        raise BadInput(
            "no text: give it as an argument, with --file, or on standard input; to a model that answers questions "
            "give --question and --context"
        )
    try:
        text = sys.stdin.read().removeprefix("\ufeff").strip()
    except UnicodeDecodeError as error:
        raise BadInput(f"the text on standard input is not {error.encoding.upper()}") from error
    first, line_break, _ = text.partition("\n")
    if line_break:
        check_plain(first, "the text on standard input")
    return text


def check_plain(first: str, where: str) -> None:
    """Raise if the first line is the beginning of a table: its headings and labels would be explained as text."""
    names = [name.strip(" \"'").casefold() for name in re.split(r"[,;\t]", first)]
    headed = len(HEADINGS & set(names)) > 1 and all(re.fullmatch(r"\w+", name) for name in names)
    if headed or _is_object(first):
        kind = "a table" if headed else "JSON lines"
        raise BadInput(
            f"{where} looks like {kind}: {first[:60]!r}; give a file that ends in .csv, .tsv or .jsonl to --file, and "
            "its texts alone are explained"
        )


def _is_object(line: str) -> bool:
    if not line.startswith("{"):
        return False
    try:
        return isinstance(parsed_json(line), Mapping)
    except ValueError:
        return False


def as_questions(texts: Sequence[Text], file: Path) -> dict[str, list[str]]:
    """Pairs as `Explainer.stream` takes them for a model that answers questions."""
    pairs = [text for text in texts if not isinstance(text, str)]
    if len(pairs) < len(texts):
        raise BadInput(f"this model answers questions: {str(file)!r} needs the columns question and context")
    questions, contexts = zip(*pairs, strict=True)
    return {"question": list(questions), "context": list(contexts)}
