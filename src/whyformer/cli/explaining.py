"""The commands that explain: explain, compare, methods."""

import inspect
import re
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import (
    LARGEST_BATCH,
    Command,
    EffortOption,
    ErrorOption,
    HtmlOption,
    Loading,
    NoCacheOption,
    TextColumn,
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
from whyformer.storage.files import read, write

TextArgument = Annotated[str | None, typer.Argument(help="The text; without it, or with -, standard input is read.")]
PairOption = Annotated[str | None, typer.Option(help="The second text of a pair.")]
QuestionOption = Annotated[str | None, typer.Option(help="A question, for a model that answers them; see --context.")]
ContextOption = Annotated[str | None, typer.Option(help="The text in which the answer stands.")]
ContextFileOption = Annotated[Path | None, typer.Option(help="Read the context from this file.")]
TargetOption = Annotated[
    str | None,
    typer.Option(
        help="The class to explain, or the token of a language model; or the answer: its text (where it first stands "
        "in the context), or START,END: its first and last token. The predicted one if left out."
    ),
]
VersusOption = Annotated[
    str | None,
    typer.Option(
        help="Explain the target rather than this class, answer or token; runner_up is the most probable other."
    ),
]
ChoiceOption = Annotated[
    list[str] | None,
    typer.Option(help="Of a model that chooses among texts: one of them; give this option for each."),
]
WordOption = Annotated[
    str | None,
    typer.Option(
        help="Of a model that labels tokens: the word, where it first stands; WORD,2 for the second time, the index "
        "of a word, or all that have a label."
    ),
]
PositionOption = Annotated[
    int | None,
    typer.Option(help="Which mask of several, or the token behind which a language model goes on; counted from 0."),
]
WordsOption = Annotated[bool, typer.Option("--words", help="Whole words instead of tokens.")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Measure how far to believe it, beside random orders and the best order found.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one line for each text.")]


def with_method_options(command: Command) -> Command:
    """Give a command a flag for every option of every method; it gets those that were used as `options`."""
    owners: dict[str, list[tuple[Method, Option]]] = {}
    for method in list_methods().values():
        for option in method.options.values():
            owners.setdefault(option.name, []).append((method, option))
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_flag(users))
        for name, users in sorted(owners.items())
    ]
    return with_flags(command, "options", flags, made=_used)


def _used(flags: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in flags.items() if value is not None}


def _flag(users: list[tuple[Method, Option]]) -> Any:
    takes = sorted({option.takes for _, option in users})
    text = f"{', '.join(m.name for m, _ in users)}: {'; '.join(takes)}"
    return Annotated[
        str | None, typer.Option(users[0][1].flag, help=text, metavar="VALUE", rich_help_panel="Options of the methods")
    ]


@app.command()
@with_method_options
@with_model
def explain(
    text: TextArgument = None,
    *,
    pair: PairOption = None,
    question: QuestionOption = None,
    context: ContextOption = None,
    context_file: ContextFileOption = None,
    choice: ChoiceOption = None,
    file: Annotated[
        Path | None, typer.Option(help="Explain each line of this file, or each text of a CSV, JSONL or Parquet file.")
    ] = None,
    column: TextColumn = None,
    on_error: ErrorOption = "refuse",
    method: Annotated[str, typer.Option(help="See `whyformer methods`.")] = "auto",
    effort: EffortOption = None,
    target: TargetOption = None,
    versus: VersusOption = None,
    word: WordOption = None,
    position: PositionOption = None,
    words: WordsOption = False,
    trust: TrustOption = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    batch_size: Annotated[int, typer.Option(help="Texts in one run of the model.")] = 16,
    no_cache: NoCacheOption = False,
    loading: Loading,
    options: dict[str, str],
) -> None:
    """Explain a prediction: which tokens made the model say that."""
    way = None if effort is None else effort_named(effort)
    checked = {} if method == "auto" else _parsed(methods_for(None, [method], way)[0].of, options)
    check_files([html])
    limited("--batch-size", batch_size, LARGEST_BATCH, "texts in one run of the model")
    given = _given(question, context, context_file, text=text, pair=pair, file=file, column=column, on_error=on_error)
    explainer = loading.explainer(choices=not no_cache)
    if file is not None and explainer.subject.task == "answer":
        given = as_questions(given["text"], file)
    chosen = explainer.method(method, way)
    if method == "auto":
        checked = _parsed(chosen.of, options)
    if words and chosen.of.name == "stepwise" and "units" not in chosen.options:
        checked = {"units": "word"} | checked  # its steps hide what is shown
    done: list[Explanation] = []
    try:
        checked |= {"target": target, "versus": versus, "word": _word(word), "position": position}
        checked |= {"choices": choice or None, "batch_size": batch_size, "progress": not trust}
        stream = explainer.stream(method=method, effort=way, **given, **checked)
        while some := [e.by_word() if words else e for e in islice(stream, max(1, batch_size))]:
            if trust:
                explainer.trust(some)
            for explanation in some:
                done.append(explanation)
                _show(explanation, as_json, first=len(done) == 1)
    finally:
        if html and done:
            _write_page(done, html)
    if not done:
        say("nothing is explained: no word has a label")


@app.command()
@with_model
def compare(
    text: TextArgument = None,
    *,
    pair: PairOption = None,
    question: QuestionOption = None,
    context: ContextOption = None,
    context_file: ContextFileOption = None,
    choice: ChoiceOption = None,
    names: Annotated[
        str, typer.Option("--methods", help="Names with commas between them, all, or fast: those of one pass.")
    ] = FAST,
    effort: EffortOption = None,
    target: TargetOption = None,
    versus: VersusOption = None,
    word: WordOption = None,
    position: PositionOption = None,
    words: WordsOption = False,
    trust: TrustOption = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    loading: Loading,
) -> None:
    """Explain one prediction by several methods, one under the other."""
    for name in names_of(names):
        if name not in (*EVERY, "auto"):
            method_specs(name)  # what is wrong with a name is said before a model is loaded
    way = None if effort is None else effort_named(effort)
    if way is not None:
        methods_for(None, names, way)
    check_files([html])
    given = _given(question, context, context_file, text=text, pair=pair)
    explainer = loading.explainer()
    one = {name: each[0] for name, each in given.items() if each}
    chosen = names if names in EVERY else [_shown(explainer, name, way, words) for name in names_of(names)]
    asked: dict[str, Any] = {"choices": choice or None, "target": target, "versus": versus}
    asked |= {"word": _word(word), "position": position}
    found = explainer.compare(one.pop("text", None), chosen, **asked, **one)
    if words:
        found = Comparison(tuple(e.by_word() for e in found), found.refused)
    if trust:
        explainer.trust(found)
    if as_json:
        for explanation in found:
            _show(explanation, as_json=True, first=True)
    else:
        put(str(found), coloured=True)
    if html:
        found.to_html(html)
        say(f"wrote {html}")


def _shown(explainer: Explainer, name: str, effort: Effort | None, words: bool) -> str:
    """A method as it is written; the steps of `stepwise` hide what is shown, tokens or words."""
    if name in EVERY:
        return name
    spec = explainer.method(name, effort if name == "auto" else None)
    by_words = words and spec.of.name == "stepwise" and "units" not in spec.options
    return MethodSpec(spec.of, {**spec.options, "units": "word"}).label if by_words else spec.label


@app.command("methods")
def methods_command(
    name: Annotated[str | None, typer.Argument(help="One method, with its options.")] = None,
) -> None:
    """List the methods, or describe one."""
    put_registry(METHODS, name, ("method", "family", "signed", "class", "what it gives", "paper"), _listed)


def _listed(method: Method) -> tuple[str, ...]:
    name = method.name + (" (auto)" if method is auto_method().of else "")
    marks = ("±" if method.signed else "", "yes" if method.class_specific else "")
    return name, method.family, *marks, method.summary, method.paper


def _parsed(method: Method, options: dict[str, str]) -> dict[str, Any]:
    method.checked({name: None for name in options if name not in method.options})  # raises if there are any
    return {name: method.options[name].parsed(text) for name, text in options.items()}


def _given(
    question: str | None,
    context: str | None,
    context_file: Path | None,
    *,
    text: str | None,
    pair: str | None,
    file: Path | None = None,
    column: str | None = None,
    on_error: str = "refuse",
) -> dict[str, Any]:
    """What is to be explained, as `Explainer.stream` takes it: lists of texts, or of questions and contexts."""
    if (question, context, context_file) == (None, None, None):
        return {"text": _texts(text, pair, file, column, on_error)}
    if (text, pair, file, column) != (None, None, None, None):
        raise BadOption("--question and --context stand alone: leave TEXT, --pair and --file out")
    if context_file is not None:
        if context is not None:
            raise BadOption("the context is given twice: leave --context or --context-file out")
        context = read(context_file).strip()
    return {name: None if one is None else [one] for name, one in (("question", question), ("context", context))}


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


def _show(explanation: Explanation, as_json: bool, first: bool) -> None:
    if as_json:
        put_json(explanation.to_dict())
    else:
        put(("" if first else "\n") + str(explanation), coloured=True)


def _write_page(explanations: list[Explanation], path: Path) -> None:
    from whyformer.show.html import page

    write(path, page(explanations))
    say(f"wrote {path}")
