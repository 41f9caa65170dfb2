"""The command that sums up words by class: tokens."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import (
    HtmlOption,
    Loading,
    MethodsOption,
    TextColumn,
    app,
    check_files,
    limited,
    save_picture,
    with_model,
)
from whyformer.cli.data import LabelColumn, Rows, with_rows
from whyformer.cli.evaluating import EngineOption, WorkersOption
from whyformer.cli.streams import put, say
from whyformer.cli.texts import columns_of
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.journal import Journal
from whyformer.evaluation.shortcuts import CHECK, idf_called, token_tables
from whyformer.evaluation.table import Results
from whyformer.evaluation.word_table import TokenTable, load_tables, save_tables, tables_of
from whyformer.metrics.overlap import Counting
from whyformer.metrics.registry import metric_named
from whyformer.progress import counting
from whyformer.results.word_table import LINES, METRIC, TOP
from whyformer.show.grid import as_csv
from whyformer.show.shortcuts import numbers
from whyformer.storage.files import write

Tables = Mapping[str, TokenTable]
FORMS = {"text": TokenTable.to_text, "markdown": TokenTable.to_markdown}


@app.command("tokens")
@with_model
@with_rows
def tokens_command(
    *,
    data: Annotated[str | None, typer.Option("--data", help="Texts, as for `evaluate`. See docs/datasets.md.")] = None,
    methods: MethodsOption = "auto",
    made: Annotated[
        Path | None, typer.Option("--from", help="What --out wrote, or the folder of `evaluate`: nothing is run.")
    ] = None,
    idf: Annotated[
        str | None,
        typer.Option(help="How words are weighted: a table FILE, data, corpus:DATA or none. Default: Wikipedia."),
    ] = None,
    units: Annotated[
        str | None, typer.Option(help="What is summed: word (default), or token, as the tokenizer spells it.")
    ] = None,
    once: Annotated[
        bool | None, typer.Option("--once/--no-once", help="Count each distinct word of a text once. Default: no.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many words of each class are compared and drawn.")] = TOP,
    lines: Annotated[int, typer.Option(help="How many of them are printed.")] = LINES,
    form: Annotated[str, typer.Option("--format", help="text or markdown, on standard output.")] = "text",
    wrong: Annotated[
        bool,
        typer.Option("--wrong", help="Count only the texts of which the model says another class than their label."),
    ] = False,
    check: Annotated[
        int | None,
        typer.Option(help=f"From how many texts a word is deleted, to see what the model says then. Default: {CHECK}."),
    ] = None,
    html: HtmlOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the tables to this file, JSON; .csv: the words that are leant on.")
    ] = None,
    overlap: Annotated[Path | None, typer.Option(help="Draw the share of common words, k = 1 … TOP.")] = None,
    shared: Annotated[Path | None, typer.Option(help="Draw how many words each two classes share.")] = None,
    clouds: Annotated[Path | None, typer.Option(help="Draw word clouds, one for each class and method.")] = None,
    font: Annotated[Path | None, typer.Option(help="A font file for the clouds.")] = None,
    seed: Annotated[int, typer.Option(help="For the places of words in the clouds.")] = 0,
    text: TextColumn = None,
    label: LabelColumn = None,
    chunk: Annotated[int | None, typer.Option("--chunk", help="Rows that are explained together.")] = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    rows: Rows,
    loading: Loading,
) -> None:
    """Find the words that a model leans on over many texts, those of each class, and those that classes share."""
    if (data is None) == (made is None):
        raise BadOption("give --data, the texts to be explained, or --from, what was summed up before")
    if made is not None:
        _refuse_beside_sums(idf=idf, wrong=wrong or None, check=check, label=label)
    if form not in FORMS:
        raise BadOption(f"--format {form}: known are {', '.join(FORMS)}")
    if top < 1 or lines < 1:
        raise BadOption(f"--top and --lines are at least 1; found {top} and {lines}")
    figures = (overlap, shared, clouds)
    check_files([out, html], figures)
    _check_figures(*figures, top, font)
    way = _way(units, once)
    if made is not None:
        tables = _loaded(made, way)
    else:
        assert data is not None
        subject = loading.explainer(data).subject
        opened = open_dataset(data, columns=columns_of(text, label), **vars(rows))
        options: dict[str, Any] = {"engine": engine, "workers": workers, "rows_at_once": chunk, "wrong": wrong}
        options |= {"check": CHECK if check is None else check, "counting": way or Counting()}
        with counting("tokens"):
            tables = token_tables(subject, opened, methods, idf=idf_called(idf, opened), **options)
    put("\n\n".join(FORMS[form](table, top, lines) for table in tables.values()))
    _remarks(tables)
    if out is not None:
        say(f"wrote {_written(tables, out)}")
    if html is not None:
        from whyformer.show.shortcuts_page import leaning_page

        say(f"wrote {write(html, leaning_page(tables))}")
    if any(figures):
        _draw(tables, figures, top, seed=seed, font=font)


def _refuse_beside_sums(**options: Any) -> None:
    """Raise for what is done while texts are explained, where only sums are read."""
    if stated := [name for name, value in options.items() if value is not None]:
        raise BadOption(f"--{stated[0]} is for texts that are explained, and --from has sums: leave one out")


def _check_figures(overlap: Path | None, shared: Path | None, clouds: Path | None, top: int, font: Path | None) -> None:
    if overlap or shared:
        from whyformer.show.overlaps import MOST

        limited("--top", top, MOST, "words of each class, which curves are drawn of")
    if clouds is not None:
        _check_clouds(font)


def _written(tables: Tables, path: Path) -> Path:
    """Write the tables; to a spreadsheet, the words that the model leans on."""
    if path.suffix.casefold() != ".csv":
        return save_tables(tables, path)
    if not any(table.leaning for table in tables.values()):
        raise BadInput(
            f"{str(path)!r} would have no rows: here are sums alone, as of an evaluation; write them to .json"
        )
    return write(path, as_csv(numbers(tables.values())))


def _way(units: str | None, once: bool | None) -> Counting | None:
    """How words are counted; None if nothing is said of it."""
    stated = {name: value for name, value in (("units", units), ("once", once)) if value is not None}
    return Counting(**metric_named(METRIC).checked(stated)) if stated else None


def _loaded(path: Path, way: Counting | None) -> Tables:
    if not path.is_dir():
        if way is not None:
            raise BadOption("--units and --once say what is summed up, and --from has a file of sums: leave them out")
        return load_tables(path)
    journal = Journal.read(path)
    return tables_of(Results.of(journal.chunks(), journal.run).table(), way)


def _check_clouds(font: Path | None) -> None:
    """Raise before any work is done if clouds cannot be drawn, or not in this font."""
    from whyformer.show.clouds import wordcloud_class

    wordcloud_class()
    if font is None:
        return
    from PIL import ImageFont

    try:
        ImageFont.truetype(str(font))
    except OSError as error:
        raise BadInput(f"could not read the font {str(font)!r}: {error}") from error


def _remarks(tables: Tables) -> None:
    """What a reader must know beside the words."""
    about = next(iter(tables.values())).provenance
    if about.get("interrupted"):
        say(f"interrupted: this is of the first {about['rows']} texts")
    if about.get("skipped"):
        first = about.get("first_skipped")
        say(f"{about['skipped']} rows were skipped (counted from 0), the first is {first}")
    if about.get("cut"):
        say(f"{about['cut']} texts were cut at the model's window")
    if about.get("unlabelled"):
        say(f"{about['unlabelled']} texts have no label of this model, the first is {about['first_unlabelled']}")
    for method, table in tables.items():
        for reason, count in table.provenance.get("refused", {}).items():
            say(f"{method} refused {count} texts: {reason}")


def _draw(tables: Tables, figures: Iterable[Path | None], top: int, **options: Any) -> None:
    """Draw the shares, the counts and the clouds, each to its file if there is one."""
    from whyformer.show.clouds import clouds_figure
    from whyformer.show.overlaps import overlap_figure, shared_figure

    drawn: tuple[Callable[..., Any], ...] = (overlap_figure, shared_figure, partial(clouds_figure, **options))
    for path, draw in zip(figures, drawn, strict=True):
        if path is not None:
            save_picture(draw(tables, top), path)
