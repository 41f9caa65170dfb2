"""The commands that explain: explain, compare, methods."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import (
    LARGEST_BATCH,
    CaptureOption,
    EffortOption,
    Loading,
    TextColumn,
    app,
    limited,
    put_registry,
    with_flags,
    with_model,
)
from whyformer.cli.flags import (
    AskedFlags,
    CheckOption,
    DataOption,
    LabelColumn,
    RowFlags,
    ShownFlags,
    TextArgument,
    TrustOption,
    WindowFlags,
    WordsOption,
    as_questions,
    explain_into,
    inputs_of,
    with_output,
    with_question,
    with_rows,
    with_windows,
)
from whyformer.cli.process import put, say
from whyformer.datasets import Dataset, Example
from whyformer.errors import BadOption
from whyformer.explain.explainer import Explainer
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.explain.explanations import Explanations
from whyformer.explain.folder import FolderOfExplanations
from whyformer.methods.default import AUTO_SENTENCE, Effort, auto_method, effort_named, methods_for
from whyformer.methods.method import EVERY, METHODS, SHORT, Method, MethodSpec, list_methods, method_specs
from whyformer.registry.options import Option
from whyformer.registry.specs import names_of


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
@with_rows
def explain(
    text: TextArgument = None,
    *,
    file: Annotated[
        Path | None, typer.Option(help="Explain each line of this file, or each text of a CSV, JSONL or Parquet file.")
    ] = None,
    data: DataOption = None,
    column: TextColumn = None,
    label: LabelColumn = None,
    method: Annotated[str, typer.Option(help="See `whyformer methods`.")] = "auto",
    effort: EffortOption = None,
    words: WordsOption = False,
    check: CheckOption = None,
    trust: TrustOption = False,
    memory: Annotated[str, typer.Option(help="low: run layers again instead of keeping what they computed.")] = "usual",
    capture: CaptureOption = True,
    batch_size: Annotated[int, typer.Option(help="Texts or images in one run of the model.")] = 16,
    asked: AskedFlags,
    rows: RowFlags,
    shown: ShownFlags,
    long: WindowFlags,
    loading: Loading,
    options: dict[str, str],
) -> None:
    """Explain a prediction: which tokens, or which patches of an image, made the model say that."""
    asked, text, data = asked.with_path(text, data)
    asked.check_images({"--file": file, "--data": data, "--text": column, "--words": words, **long.used})
    rows.check(data, label)
    check_untrusted(data, trust)
    way = None if effort is None else effort_named(effort)
    checked = {} if method == "auto" else _parsed(methods_for(None, [method], way)[0].of, options)
    limited("--batch-size", batch_size, LARGEST_BATCH, "texts in one run of the model")
    if data is None:
        inputs = asked.inputs(text, file, column, rows.on_error)
        shown.check(texts=len(inputs.get("text") or ()))
    else:
        asked.check_data({"TEXT": text, "--file": file})
        _ = shown.folder  # what is wrong with it is said before a model is loaded
    explainer = asked.explainer(loading, text, file if data is None else data)
    if file is not None and explainer.subject.task == "answer":
        inputs = as_questions(inputs["text"], file)
    chosen = explainer.method(method, way)
    if method == "auto":
        checked = _parsed(chosen.of, options)
    if words:
        checked = _word_steps(chosen) | checked
    checked |= {**asked.outputs, **vars(long), "batch_size": batch_size, "method": method, "effort": way}
    checked |= {"check": check, "memory": memory, "capture": capture}
    if data is not None:
        opened = rows.texts(data, column, label)
        _explain_data(explainer, opened, chosen, checked, words, shown)
        return
    finished = partial(_finished, explainer, words, trust)
    done: list[Explanation] = []
    try:
        if explainer.task.compares:
            stream = iter(explainer.explain(asked.image, text=text, **checked))
        else:
            stream = explainer.stream(**inputs, **checked, progress=not trust)
        while some := finished(list(islice(stream, max(1, batch_size)))):
            for explanation in some:
                done.append(explanation)
                shown.put([explanation], ("\n" if len(done) > 1 else "") + shown.text_of(explanation))
    finally:
        shown.write_page(done)
    if not done:
        say("nothing is explained: no word has a label")
    shown.save_many(done)


def check_untrusted(data: str | None, trust: bool) -> None:
    """Raise if trust is to be measured of a whole data set."""
    if data is not None and trust:
        raise BadOption(
            f"--trust is for single texts and images, and {data} is a whole data set: leave --trust out; `whyformer "
            "evaluate` measures how far to trust methods on a data set"
        )


def _finished(explainer: Explainer, words: bool, trust: bool, explanations: list[Explanation]) -> list[Explanation]:
    """Explanations as they are asked for: of words, and with what is measured of them."""
    done = [e.by_word() if words else e for e in explanations]
    if trust:
        explainer.trust(done)
    return done


def _explain_data(
    explainer: Explainer,
    data: Dataset,
    method: MethodSpec,
    options: dict[str, Any],
    words: bool,
    shown: ShownFlags,
) -> None:
    """Explain every text of a data set: into a folder, or all at once."""
    if shown.folder is None:
        many = explainer.explain(data, **options, on_error=data.on_error)
        shown.put_many(replace(many, explanations=tuple(_finished(explainer, words, False, list(many)))))
        return

    def explain(examples: Sequence[Example]) -> list[list[Comparison]]:
        outputs: list[list[Comparison]] = [[] for _ in examples]
        inputs = inputs_of(explainer.subject, examples, data.name)
        several: Explanations = explainer.explain(**inputs, **options, progress=False)  # type: ignore[call-overload]
        for row, explanation in zip(several.rows, _finished(explainer, words, False, list(several)), strict=True):
            outputs[row].append(Comparison((explanation,)))
        return outputs

    of_the_run = ("batch_size", "method", "effort", "memory", "capture")
    asked = {name: value for name, value in options.items() if name not in of_the_run}
    asked |= {"words": words}
    work = FolderOfExplanations(explainer.subject, data, (method,), explain, asked, options["batch_size"])
    explain_into(shown.folder, work)


@app.command()
@with_model
@with_windows
@with_output
@with_question
@with_rows
def compare(
    text: TextArgument = None,
    *,
    names: Annotated[
        str,
        typer.Option(
            "--methods", help="Names with commas between them; short: five; fast: all that run the model once; all."
        ),
    ] = SHORT,
    effort: EffortOption = None,
    words: WordsOption = False,
    check: CheckOption = 0,
    trust: TrustOption = False,
    data: DataOption = None,
    column: TextColumn = None,
    label: LabelColumn = None,
    asked: AskedFlags,
    rows: RowFlags,
    shown: ShownFlags,
    long: WindowFlags,
    loading: Loading,
) -> None:
    """Explain one prediction by several methods, one under the other; of an image, side by side."""
    asked, text, data = asked.with_path(text, data)
    asked.check_images({"--words": words, "--data": data, **long.used}, most=1)
    rows.check(data, label)
    check_untrusted(data, trust)
    for name in names_of(names):
        if name not in (*EVERY, "auto"):
            method_specs(name)  # what is wrong with a name is said before a model is loaded
    way = None if effort is None else effort_named(effort)
    if way is not None:
        methods_for(None, names, way)
    if data is None:
        shown.check()
        inputs = {name: values[0] for name, values in asked.inputs(text, column=column).items() if values}
    else:
        asked.check_data({"TEXT": text})
        if shown.folder is None:
            raise BadOption("--data is compared into a folder: give --out FOLDER")
    explainer = asked.explainer(loading, text, data)
    chosen = names if names in EVERY else [_written(explainer, name, way, words) for name in names_of(names)]
    finished = partial(_finished, explainer, words, trust)

    def compared(inputs: dict[str, Any]) -> Comparison:
        given = explainer.compare(
            inputs.pop("text", None), chosen, **asked.outputs, **inputs, **vars(long), check=check or 0
        )
        return Comparison(tuple(finished(list(given))), given.refused)

    if data is not None:
        opened = rows.texts(data, column, label)
        settings = {**asked.outputs, **vars(long), "words": words, "check": check}
        _compare_data(explainer, opened, methods_for(explainer.subject, chosen), compared, settings, shown)
        return
    comparison = compared(inputs)
    shown.put(comparison, shown.text_of(comparison))
    shown.write_page(comparison)
    shown.save(comparison)


def _compare_data(
    explainer: Explainer,
    data: Dataset,
    methods: tuple[MethodSpec, ...],
    compared: Callable[[dict[str, Any]], Comparison],
    asked: dict[str, Any],
    shown: ShownFlags,
) -> None:
    """Compare methods on every text of a data set, into a folder."""

    def explain(examples: Sequence[Example]) -> list[list[Comparison]]:
        each = [inputs_of(explainer.subject, [example], data.name) for example in examples]
        return [[compared({name: values[0] for name, values in inputs.items()})] for inputs in each]

    assert shown.folder is not None
    explain_into(shown.folder, FolderOfExplanations(explainer.subject, data, methods, explain, asked))


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
    """List the methods, or describe one; auto: the default."""
    if name == "auto":
        put(f"{AUTO_SENTENCE}\n")
        name = auto_method().of.name
    put_registry(METHODS, name, ("method", "family", "signed", "class", "what it gives", "paper"), _listed)
    if name is None:
        put(f"\n{AUTO_SENTENCE}")


def _listed(method: Method) -> tuple[str, ...]:
    marks = ("±" if method.signed else "", "yes" if method.class_specific else "")
    return method.name, method.family, *marks, method.summary, method.paper


def _parsed(method: Method, options: dict[str, str]) -> dict[str, Any]:
    method.checked({name: None for name in options if name not in method.options})  # raises if there are any
    return {name: method.options[name].parsed(text) for name, text in options.items()}
