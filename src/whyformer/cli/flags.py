"""Flags that several commands share, and the texts, images and data sets that they read."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from whyformer.cli.app import ErrorOption, HtmlOption, Loading, OverlapOption, WindowSizeOption, check_files, with_flags
from whyformer.cli.process import put, put_json, say
from whyformer.datasets import Dataset, Example, open_dataset
from whyformer.datasets.columns import LABELS, PAIRS, TEXTS
from whyformer.datasets.dataset import OnError
from whyformer.datasets.open import file_endings
from whyformer.errors import BadInput, BadOption, shown
from whyformer.evaluation.journal import FILE as JOURNAL
from whyformer.explain.explainer import Explainer
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.explain.explanations import Explanations
from whyformer.explain.folder import PAGE, TABLE, FolderOfExplanations, left_out, write_index
from whyformer.inputs import images as pictures
from whyformer.inputs.batch import Text
from whyformer.models.load import Subject
from whyformer.show.lists import rows_text
from whyformer.show.render import PICTURES, endings, format_of
from whyformer.storage.files import named_path, parsed_json, read, write

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


TextArgument = Annotated[
    str | None,
    typer.Argument(
        help="The text, an image, a folder of images, or a data file. Without it, or with -, standard input is read."
    ),
]
WordsOption = Annotated[
    bool,
    typer.Option("--words", help="Whole words instead of tokens in JSON too, in trust and in the steps of stepwise."),
]
CheckOption = Annotated[
    int | None,
    typer.Option(
        help="Number of the strongest words or image regions to check by hiding each one. 0 checks none. Default: 3 "
        "for texts of at most 128 units, and 0 for compare."
    ),
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Measure how far to believe it, beside random orders and the best order found.")
]


WindowsOption = Annotated[
    str,
    typer.Option(help="Of a long text: cut is what fits; merge the mean over windows, for a model that classifies."),
]


@dataclass(frozen=True, kw_only=True)
class AskedFlags:
    """What is explained: texts, images or a question, and which output."""

    image: Annotated[
        list[Path] | None,
        typer.Option(help="Explain this image file, or all in this folder; give this option for each of several."),
    ] = None
    pair: Annotated[str | None, typer.Option(help="The second text of a pair.")] = None
    question: Annotated[str | None, typer.Option(help="A question, for a model that answers them; see --context.")] = (
        None
    )
    context: Annotated[str | None, typer.Option(help="The text in which the answer stands.")] = None
    context_file: Annotated[Path | None, typer.Option(help="Read the context from this file.")] = None
    choice: Annotated[
        list[str] | None,
        typer.Option(help="Of a model that chooses among texts: one of them; give this option for each."),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            help="The class to explain, or the token of a language model; or the answer: its text (where it first "
            "stands in the context), or START,END: its first and last token. The predicted one if left out."
        ),
    ] = None
    versus: Annotated[
        str | None,
        typer.Option(
            help="Explain the target rather than this class, answer or token; runner_up is the most probable other."
        ),
    ] = None
    explains: Annotated[
        str | None,
        typer.Option(
            help="What is explained: logit, or log_odds against all others (default: the logit; for layer_lrp, and so "
            "for auto, log_odds for texts with over 2 classes and next tokens)."
        ),
    ] = None
    word: Annotated[
        str | None,
        typer.Option(
            help="Of a model that labels tokens: the word, where it first stands; WORD,2 for the second time, the "
            "index of a word, or all that have a label."
        ),
    ] = None
    position: Annotated[
        int | None,
        typer.Option(help="Which mask of several, or the token behind which a language model goes on; counted from 0."),
    ] = None

    def inputs(
        self, text: str | None, file: Path | None = None, column: str | None = None, on_error: str = "refuse"
    ) -> dict[str, Any]:
        """What is to be explained, as `Explainer.stream` takes it: lists of texts, or of questions and contexts."""
        if self.image:
            if on_error != "refuse":
                raise BadOption(f"--on-error {on_error} is for folders and data files: give the folder without --image")
            return {"text": list(self.image)}
        question, context = self.question, self.context
        if (question, context, self.context_file) == (None, None, None):
            return {"text": _texts(text, self.pair, file, column, on_error)}
        if (text, self.pair, file, column) != (None, None, None, None):
            raise BadOption("--question and --context stand alone: leave TEXT, --pair and --file out")
        if self.context_file is not None:
            if context is not None:
                raise BadOption("the context is given twice: leave --context or --context-file out")
            context = read(self.context_file).strip()
        return {name: None if one is None else [one] for name, one in (("question", question), ("context", context))}

    def check_data(self, beside: dict[str, Any]) -> None:
        """Raise if something stands beside a data set that names what is explained too."""
        names = ("image", "pair", "question", "context", "context_file")
        every = {f"--{name.replace('_', '-')}": getattr(self, name) for name in names} | beside
        if refused := [name for name, value in every.items() if value is not None]:
            raise BadOption(f"--data stands alone: leave {', '.join(refused)} out")

    def check_images(self, of_texts: dict[str, Any], most: int | None = None) -> None:
        """Raise if images are given, and something beside them that is of texts; or if there are too many images."""
        images = self.image or []
        if most is not None and len(images) > most:
            raise BadOption(f"one image is explained by several methods: give --image once; found {len(images)}")
        names = ("pair", "question", "context", "context_file", "choice", "word", "position")
        every = {f"--{name.replace('_', '-')}": getattr(self, name) for name in names} | of_texts
        refused = [name for name, value in every.items() if value or (value == 0 and value is not False)]
        if images and refused:
            raise BadOption(f"--image stands alone, and this is of texts: leave {', '.join(refused)} out")

    def with_path(self, text: str | None, data: str | None) -> "tuple[AskedFlags, str | None, str | None]":
        """These flags, TEXT and --data, where an existing path given as TEXT is read as what it is."""
        asked = self if self.image is None else replace(self, image=[f for path in self.image for f in images_at(path)])
        path = None if text is None else existing(text)
        if path is None:
            return asked, text, data
        if path.suffix.casefold() in pictures.ENDINGS and path.is_file():
            return replace(asked, image=[*(asked.image or []), path]), None, data
        if path.is_file() and path.suffix.casefold() not in file_endings():
            raise BadOption(f"{text!r} is a file: explain its lines with --file {text}")
        if data is not None:
            raise BadOption(f"{text!r} is data, and so is --data {data}: give one of the two")
        return asked, None, text

    def explainer(self, loading: Loading, text: str | None, data: str | Path | None = None) -> Explainer:
        """The model, if it reads what is to be explained; TEXT beside an image is for models that compare the two."""
        explainer = loading.explainer(data, images=bool(self.image))
        takes, name = explainer.subject.takes_images, type(explainer.subject.model).__name__
        compares = explainer.task.compares
        if self.image and not takes:
            raise BadOption(f"{name} reads texts: --image needs a model that takes images")
        if takes and not self.image and (data is None or compares):
            no_file = "" if text is None or compares else f", and there is no file or folder {shown(text)}"
            what = "an image file or a folder of them" if not compares else "an image file as --image, and a TEXT"
            raise BadOption(f"{name} takes images{no_file}: give {what}")
        if self.image and compares != (text is not None):
            how = "compares images with texts: give a TEXT too" if compares else "takes images alone: leave TEXT out"
            raise BadOption(f"{name} {how}")
        return explainer

    @property
    def outputs(self) -> dict[str, Any]:
        """Which output is explained, as `Explainer.explain` takes it."""
        where = {"word": _word(self.word), "position": self.position, "choices": self.choice or None}
        return {"target": self.target, "versus": self.versus, "explains": self.explains, **where}


@dataclass(frozen=True, kw_only=True)
class WindowFlags:
    """How long texts are read, by the names that `Explainer.explain` has."""

    windows: WindowsOption = "cut"
    window_size: WindowSizeOption = None
    overlap: OverlapOption = None

    @property
    def used(self) -> dict[str, Any]:
        """What is not as it is by default, by the names of the flags."""
        cut = None if self.windows == "cut" else self.windows
        return {"--windows": cut, "--window-size": self.window_size, "--overlap": self.overlap}


@dataclass(frozen=True, kw_only=True)
class ShownFlags:
    """Where explanations go: to standard output, as text or JSON, and to files."""

    html: HtmlOption = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write it to this file, whose ending tells the format: .png, .svg, .pdf, .csv, .md, .json …; of "
            "--data, a folder for all explanations, a page to search them and a table: run again to go on."
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each text or image.")] = False
    tokens: Annotated[bool, typer.Option("--tokens", help="Show the pieces of words that the model sees.")] = False

    def check(self, texts: int = 1) -> None:
        """Raise before any work is done if what is explained of so many texts could not be written."""
        check_files([self.html, self.out])
        if self.out is not None:
            format_of(self.out).check(Explanations if texts > 1 else Explanation)

    @property
    def folder(self) -> Path | None:
        """Where explanations of a data set go, unless `--out` is a file by its ending."""
        if self.out is None or (not self.out.is_dir() and self.out.suffix.casefold() in endings()):
            self.check(texts=2)
            return None
        if self.out.suffix and not self.out.exists() and not self.out.suffix[1:].isdigit():
            known = ", ".join(sorted(endings()))
            raise BadOption(
                f"--out {self.out}: {self.out.suffix} is no file ending that can be written; known: {known}. For a "
                "folder, which gets a page, a table and the data, give a name without an ending"
            )
        if self.html is not None or self.as_json:
            raise BadOption(f"--out {self.out} gets a page, a table and the data: leave --html and --json out")
        return self.out

    def put(self, explanations: Iterable[Explanation], text: str) -> None:
        """Print explanations as JSON, or as the text of them."""
        if not self.as_json:
            put(text, coloured=True)
            return
        for explanation in explanations:
            put_json(explanation.to_dict())

    def put_many(self, explanations: Explanations) -> None:
        """Print explanations of a data set, and write the files that are asked for."""
        for line in explanations.lines() if self.as_json else ():
            put_json(line)
        if not self.as_json:
            put(str(explanations), coloured=True)
        for path in filter(None, (self.html, self.out)):
            say(f"wrote {explanations.save(path)}")

    def text_of(self, result: Explanation | Comparison) -> str:
        """What the terminal shows of it."""
        return str(result.render("text", tokens=self.tokens))

    def write_page(self, explanations: Sequence[Explanation]) -> None:
        """Write a page of them, if one is asked for."""
        if self.html and explanations:
            from whyformer.show.html import page

            say(f"wrote {write(self.html, page(explanations, tokens=self.tokens))}")

    def save(self, result: Explanation | Comparison) -> None:
        """Write the result to a file, if that is asked for."""
        if self.out is not None:
            shown = {"tokens": True} if self.tokens and format_of(self.out).name in ("text", "html", *PICTURES) else {}
            say(f"wrote {result.save(self.out, **shown)}")

    def save_many(self, explanations: Sequence[Explanation]) -> None:
        """Write explanations to a file as a list, if that is asked for; one alone as what it is."""
        if len(explanations) == 1:
            self.save(explanations[0])
        elif self.out is not None and explanations:
            say(f"wrote {Explanations(tuple(explanations)).save(self.out)}")


with_windows = with_flags("long", WindowFlags)
with_output = with_flags("shown", ShownFlags)
with_question = with_flags("asked", AskedFlags, first=len(fields(AskedFlags)))


def _word(word: str | None) -> str | int | tuple[str, int] | None:
    """A word as `Explainer.explain` takes it: as it is written, with its occurrence, or by its index."""
    if word is None or not (parts := re.fullmatch(r"(?:(.+),)?([0-9]{1,9})", word)):
        return word
    return int(parts[2]) if parts[1] is None else (parts[1], int(parts[2]))


def _texts(text: str | None, pair: str | None, file: Path | None, column: str | None, on_error: str) -> list[Text]:
    if file is not None:
        if text is not None or pair is not None:
            raise BadOption("--file stands alone: leave TEXT and --pair out")
        return texts_of(file, column, on_error)
    if column is not None:
        raise BadOption("--text names a column of a data file: give that with --file")
    if text is None or text == "-":
        text = standard_input()
    return [text if pair is None else (text, pair)]


SplitOption = Annotated[str | None, typer.Option(help="The split of a folder or hub data set.")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="The column of the label.")]
LimitOption = Annotated[int | None, typer.Option(help="How many rows are taken, from the first one on.")]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Explain every text of a file, folder or data set, as `evaluate` takes it; see --out."),
]


@dataclass(frozen=True, kw_only=True)
class RowFlags:
    """Which rows of a data set are read: flags by the names that `open_dataset` has for them."""

    split: SplitOption = None
    limit: LimitOption = None
    sample: Annotated[int | None, typer.Option(help="How many rows are drawn at random, the same ones each time.")] = (
        None
    )
    on_error: ErrorOption = "refuse"

    def or_sampled(self, count: int) -> dict[str, Any]:
        """The same for `open_dataset`, with a random sample of this size unless rows are chosen."""
        is_chosen = self.limit is not None or self.sample is not None
        return vars(self) if is_chosen else {**vars(self), "sample": count}

    def texts(self, data: str, text: str | None, label: str | None) -> Dataset:
        """The rows of a data set that are to be explained, whatever their labels are."""
        return open_dataset(data, columns=columns_of(text, label), **vars(self)).for_texts()

    def check(self, data: str | None, label: str | None) -> None:
        """Raise if they are given, and no data set for them."""
        flags = {"--split": self.split, "--limit": self.limit, "--sample": self.sample, "--label": label}
        if data is None and (used := [name for name, value in flags.items() if value is not None]):
            raise BadOption(f"{used[0]} is of a data set: give that with --data")


with_rows = with_flags("rows", RowFlags)


def opened(subject: Subject, data: str, text: str | None, label: str | None, **options: Any) -> Dataset:
    """A data set with the labels of the model, where it classifies."""
    labels = subject.labels if subject.task == "classes" else None
    return open_dataset(data, columns=columns_of(text, label), labels=labels, **options)


def inputs_of(subject: Subject, examples: Sequence[Example], where: str) -> dict[str, list[Any]]:
    """Examples as `Explainer.explain` takes them."""
    if subject.task == "answer":
        return dict(as_questions([example.text for example in examples], Path(where)))
    return {"text": [example.input for example in examples]}


def left_in(folder: Path) -> str:
    """What an interrupted run left in its folder."""
    if any(folder.rglob(JOURNAL)):
        return f"what is done is in {folder}; the same command goes on"
    return f"nothing was finished yet, so {folder} holds no results: the same command starts again"


def explain_into(folder: Path, work: FolderOfExplanations) -> None:
    """Explain the rows of a data set that a folder does not hold yet, and show the first of them."""
    try:
        work.fill(folder)
        rows, bad = write_index(folder), left_out(folder)
    except KeyboardInterrupt:
        say(left_in(folder))
        raise
    put(
        rows_text(rows, len(bad)) if rows else "nothing is explained: no row is left, or no word has a label",
        coloured=True,
    )
    if bad:
        first = min(bad)
        say(f"rows that were skipped: {len(bad):,}; row {first} (counted from 0): {bad[first]}")
    say(f"wrote {PAGE} and {TABLE} to {folder}")
