"""The commands that explain: explain, compare, methods."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import (
    LARGEST_BATCH,
    EffortOption,
    ErrorOption,
    HtmlOption,
    Loading,
    NoCacheOption,
    OverlapOption,
    TextColumn,
    WindowSizeOption,
    app,
    check_files,
    limited,
    put_registry,
    with_flags,
    with_model,
)
from whyformer.cli.streams import put, put_json, say
from whyformer.cli.texts import as_questions, standard_input, texts_of
from whyformer.errors import BadOption
from whyformer.explain.explainer import Explainer
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.inputs.encoding import Text
from whyformer.methods.default import Effort, auto_method, effort_named, methods_for
from whyformer.methods.registry import METHODS, Method, list_methods
from whyformer.methods.specs import EVERY, FAST, MethodSpec, method_specs
from whyformer.registry.options import Option
from whyformer.registry.specs import names_of
from whyformer.show.render import format_of
from whyformer.storage.files import read, write

TextArgument = Annotated[str | None, typer.Argument(help="The text; without it, or with -, standard input is read.")]
WordsOption = Annotated[bool, typer.Option("--words", help="Whole words instead of tokens.")]
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
        typer.Option(help="Explain this image file, in place of a text; give this option for each of several."),
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

    def explainer(self, loading: Loading, text: str | None, *, choices: bool = True) -> Explainer:
        """The model, if it reads what is to be explained; TEXT beside an image is for models that compare the two."""
        explainer = loading.explainer(choices=choices, images=bool(self.image))
        takes, name = explainer.subject.takes_images, type(explainer.subject.model).__name__
        compares = explainer.task.compares
        if self.image and not takes:
            raise BadOption(f"{name} reads texts: --image needs a model that takes images")
        if takes and not self.image:
            raise BadOption(f"{name} takes images: give --image FILE{' and a TEXT' if compares else ', and no text'}")
        if self.image and compares != (text is not None):
            how = "compares images with texts: give a TEXT too" if compares else "takes images alone: leave TEXT out"
            raise BadOption(f"{name} {how}")
        return explainer

    @property
    def outputs(self) -> dict[str, Any]:
        """Which output is explained, as `Explainer.explain` takes it."""
        where = {"word": _word(self.word), "position": self.position, "choices": self.choice or None}
        return {"target": self.target, "versus": self.versus, **where}


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
        typer.Option(help="Write it to this file, whose ending tells the format: .png, .svg, .pdf, .csv, .md, .json …"),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each text or image.")] = False

    def check(self) -> None:
        """Raise before any work is done if a result could not be written."""
        check_files([self.html, self.out])
        if self.out is not None:
            format_of(self.out)

    def put(self, explanations: Iterable[Explanation], text: str) -> None:
        """Print explanations as JSON, or as the text of them."""
        if not self.as_json:
            put(text, coloured=True)
            return
        for explanation in explanations:
            put_json(explanation.to_dict())

    def write_page(self, explanations: Sequence[Explanation]) -> None:
        """Write a page of them, if one is asked for."""
        if self.html and explanations:
            from whyformer.show.html import page

            say(f"wrote {write(self.html, page(explanations))}")

    def save(self, results: Sequence[Explanation | Comparison]) -> None:
        """Write the one result to a file, if that is asked for."""
        if self.out is None:
            return
        if len(results) != 1:
            raise BadOption(f"--out writes one explanation, and {len(results)} were made: use --html or --json")
        say(f"wrote {results[0].save(self.out)}")


with_windows = with_flags("long", WindowFlags)
with_output = with_flags("shown", ShownFlags)
with_question = with_flags("asked", AskedFlags, first=len(fields(AskedFlags)))


def _method_options() -> Callable[..., dict[str, str]]:
    """A function with a parameter for every option of every method, which gives those that were used."""
    users: dict[str, dict[str, Option]] = {}
    for method in list_methods().values():
        for option in method.options.values():
            users.setdefault(option.name, {})[method.name] = option
    flags = []
    for name, options in sorted(users.items()):
        first, *_ = options.values()
        text = f"{', '.join(options)}: {'; '.join(sorted({option.takes for option in options.values()}))}"
        shown = typer.Option(first.flag, help=text, metavar="VALUE", rich_help_panel="Options of the methods")
        annotation = Annotated[str | None, shown]
        flags.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))

    def used(**values: str | None) -> dict[str, str]:
        return {name: value for name, value in values.items() if value is not None}

    used.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    return used


@app.command()
@with_flags("options", _method_options())
@with_model
@with_windows
@with_output
@with_question
def explain(
    text: TextArgument = None,
    *,
    file: Annotated[
        Path | None, typer.Option(help="Explain each line of this file, or each text of a CSV, JSONL or Parquet file.")
    ] = None,
    column: TextColumn = None,
    on_error: ErrorOption = "refuse",
    method: Annotated[str, typer.Option(help="See `whyformer methods`.")] = "auto",
    effort: EffortOption = None,
    words: WordsOption = False,
    trust: TrustOption = False,
    batch_size: Annotated[int, typer.Option(help="Texts or images in one run of the model.")] = 16,
    no_cache: NoCacheOption = False,
    asked: AskedFlags,
    shown: ShownFlags,
    long: WindowFlags,
    loading: Loading,
    options: dict[str, str],
) -> None:
    """Explain a prediction: which tokens, or which patches of an image, made the model say that."""
    asked.check_images({"--file": file, "--text": column, "--words": words, **long.used})
    way = None if effort is None else effort_named(effort)
    checked = {} if method == "auto" else _parsed(methods_for(None, [method], way)[0].of, options)
    shown.check()
    limited("--batch-size", batch_size, LARGEST_BATCH, "texts in one run of the model")
    inputs = asked.inputs(text, file, column, on_error)
    explainer = asked.explainer(loading, text, choices=not no_cache)
    if file is not None and explainer.subject.task == "answer":
        inputs = as_questions(inputs["text"], file)
    chosen = explainer.method(method, way)
    if method == "auto":
        checked = _parsed(chosen.of, options)
    if words:
        checked = _word_steps(chosen) | checked
    done: list[Explanation] = []
    try:
        checked |= {**asked.outputs, **vars(long), "batch_size": batch_size, "method": method, "effort": way}
        if explainer.task.compares:
            stream = iter(explainer.explain(asked.image, text=text, **checked))
        else:
            stream = explainer.stream(**inputs, **checked, progress=not trust)
        while some := [e.by_word() if words else e for e in islice(stream, max(1, batch_size))]:
            if trust:
                explainer.trust(some)
            for explanation in some:
                done.append(explanation)
                shown.put([explanation], ("\n" if len(done) > 1 else "") + str(explanation))
    finally:
        shown.write_page(done)
    if not done:
        say("nothing is explained: no word has a label")
    shown.save(done)


@app.command()
@with_model
@with_windows
@with_output
@with_question
def compare(
    text: TextArgument = None,
    *,
    names: Annotated[
        str, typer.Option("--methods", help="Names with commas between them, all, or fast: those of one pass.")
    ] = FAST,
    effort: EffortOption = None,
    words: WordsOption = False,
    trust: TrustOption = False,
    asked: AskedFlags,
    shown: ShownFlags,
    long: WindowFlags,
    loading: Loading,
) -> None:
    """Explain one prediction by several methods, one under the other; of an image, side by side."""
    asked.check_images({"--words": words, **long.used}, most=1)
    for name in names_of(names):
        if name not in (*EVERY, "auto"):
            method_specs(name)  # what is wrong with a name is said before a model is loaded
    way = None if effort is None else effort_named(effort)
    if way is not None:
        methods_for(None, names, way)
    shown.check()
    inputs = {name: values[0] for name, values in asked.inputs(text).items() if values}
    explainer = asked.explainer(loading, text)
    chosen = names if names in EVERY else [_written(explainer, name, way, words) for name in names_of(names)]
    comparison = explainer.compare(inputs.pop("text", None), chosen, **asked.outputs, **inputs, **vars(long))
    if words:
        comparison = Comparison(tuple(e.by_word() for e in comparison), comparison.refused)
    if trust:
        explainer.trust(comparison)
    shown.put(comparison, str(comparison))
    shown.write_page(comparison)
    shown.save([comparison])


def _written(explainer: Explainer, name: str, effort: Effort | None, words: bool) -> str:
    """A method as it is written with its options."""
    if name in EVERY:
        return name
    spec = explainer.method(name, effort if name == "auto" else None)
    return replace(spec, options={**spec.options, **_word_steps(spec)}).label if words else spec.label


def _word_steps(spec: MethodSpec) -> dict[str, Any]:
    """What lets the steps of `stepwise` hide what is shown where that is words, unless its options say otherwise."""
    return {"units": "word"} if spec.of.name == "stepwise" and "units" not in spec.options else {}


@app.command("methods")
def methods_command(name: Annotated[str | None, typer.Argument(help="One method, with its options.")] = None) -> None:
    """List the methods, or describe one."""
    put_registry(METHODS, name, ("method", "family", "signed", "class", "what it gives", "paper"), _listed)


def _listed(method: Method) -> tuple[str, ...]:
    name = method.name + (" (auto)" if method is auto_method().of else "")
    marks = ("±" if method.signed else "", "yes" if method.class_specific else "")
    return name, method.family, *marks, method.summary, method.paper


def _parsed(method: Method, options: dict[str, str]) -> dict[str, Any]:
    method.checked({name: None for name in options if name not in method.options})  # raises if there are any
    return {name: method.options[name].parsed(text) for name, text in options.items()}


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
