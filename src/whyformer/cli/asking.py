"""What `explain` and `compare` are asked, and where their results go: the flags that they share."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import HtmlOption, Loading, OverlapOption, WindowSizeOption, check_files, with_flags
from whyformer.cli.streams import put, put_json, say
from whyformer.cli.texts import existing, images_at, standard_input, texts_of
from whyformer.datasets.opening import file_endings
from whyformer.errors import BadOption, shown
from whyformer.explain.explainer import Explainer
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.explain.explanations import Explanations
from whyformer.inputs import pictures
from whyformer.inputs.encoding import Text
from whyformer.show.render import PICTURES, endings, format_of
from whyformer.storage.files import read, write

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
