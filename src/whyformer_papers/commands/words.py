"""The command that sums up words by class: words."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import (
    Loading,
    MethodsOption,
    TextColumn,
    app,
    check_files,
    limited,
    save_picture,
    with_model,
)
from whyformer.cli.evaluate import EngineOption, WorkersOption
from whyformer.cli.flags import RowFlags, columns_of, with_rows
from whyformer.cli.process import put, say
from whyformer.cli.tokens import put_remarks
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import Results
from whyformer.evaluation.journal import Journal
from whyformer.metrics.metric import metric_named
from whyformer.progress import counting
from whyformer_papers.words.overlap import Counting
from whyformer_papers.words.table import LINES, METRIC, TOP, WordTable, load_tables, save_tables, tables_of
from whyformer_papers.words.tally import CORPUS, OWN, idf_called, word_tables

WordTables = Mapping[str, WordTable]
FORMS = {"text": WordTable.to_text, "markdown": WordTable.to_markdown}


@app.command("words")
@with_model
@with_rows
def words_command(
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
    out: Annotated[Path | None, typer.Option(help="Write the tables to this file, JSON.")] = None,
    overlap: Annotated[Path | None, typer.Option(help="Draw the share of common words, k = 1 … TOP.")] = None,
    shared: Annotated[Path | None, typer.Option(help="Draw how many words each two classes share.")] = None,
    clouds: Annotated[Path | None, typer.Option(help="Draw word clouds, one for each class and method.")] = None,
    font: Annotated[Path | None, typer.Option(help="A font file for the clouds.")] = None,
    seed: Annotated[int, typer.Option(help="For the places of words in the clouds.")] = 0,
    text: TextColumn = None,
    chunk: Annotated[int | None, typer.Option("--chunk", help="RowFlags that are explained together.")] = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    rows: RowFlags,
    loading: Loading,
) -> None:
    """Sum up the words that speak for each class over many texts, and those that classes share."""
    if (data is None) == (made is None):
        raise BadOption("give --data, the texts to be explained, or --from, what was summed up before")
    if form not in FORMS:
        raise BadOption(f"--format {form}: known are {', '.join(FORMS)}")
    if top < 1 or lines < 1:
        raise BadOption(f"--top and --lines are at least 1; found {top} and {lines}")
    figures = (overlap, shared, clouds)
    check_files([out], figures)
    _check_figures(*figures, top, font)
    way = _way(units, once)
    if made is not None:
        tables = _loaded(made, way, idf)
    else:
        assert data is not None
        subject = loading.explainer(data).subject
        opened = open_dataset(data, columns=columns_of(text, None), **vars(rows))
        options: dict[str, Any] = {"engine": engine, "workers": workers, "rows_at_once": chunk}
        with counting("words"):
            weights = idf_called(idf, opened)
            tables = word_tables(subject, opened, methods, idf=weights, counting=way or Counting(), **options)
    put("\n\n".join(FORMS[form](table, top, lines) for table in tables.values()))
    put_remarks({method: table.provenance for method, table in tables.items()})
    if out is not None:
        say(f"wrote {save_tables(tables, out)}")
    if any(figures):
        _draw(tables, figures, top, seed=seed, font=font)


def _check_figures(overlap: Path | None, shared: Path | None, clouds: Path | None, top: int, font: Path | None) -> None:
    if overlap or shared:
        from whyformer_papers.words.curves import MOST

        limited("--top", top, MOST, "words of each class, which curves are drawn of")
    if clouds is not None:
        _check_clouds(font)


def _way(units: str | None, once: bool | None) -> Counting | None:
    """How words are counted; None if nothing is said of it."""
    stated = {name: value for name, value in (("units", units), ("once", once)) if value is not None}
    return Counting(**metric_named(METRIC).checked(stated)) if stated else None


def _loaded(path: Path, way: Counting | None, idf: str | None) -> WordTables:
    if not path.is_dir():
        if way is not None or idf is not None:
            raise BadOption(
                "--units, --once and --idf say what is summed up, and --from has a file of sums: leave them out"
            )
        return load_tables(path)
    if idf == OWN:
        raise BadOption(f"--idf {OWN} counts words in --data, which --from takes the place of: give {CORPUS}DATA")
    journal = Journal.read(path)
    return tables_of(Results.of(journal.chunks(), journal.run).table(), way, idf_called(idf))


def _check_clouds(font: Path | None) -> None:
    """Raise before any work is done if clouds cannot be drawn, or not in this font."""
    from whyformer_papers.words.clouds import wordcloud_class

    wordcloud_class()
    if font is None:
        return
    from PIL import ImageFont

    try:
        ImageFont.truetype(str(font))
    except OSError as error:
        raise BadInput(f"could not read the font {str(font)!r}: {error}") from error


def _draw(tables: WordTables, figures: Iterable[Path | None], top: int, **options: Any) -> None:
    """Draw the shares, the counts and the clouds, each to its file if there is one."""
    from whyformer_papers.words.clouds import clouds_figure
    from whyformer_papers.words.curves import overlap_figure, shared_figure

    drawn: tuple[Callable[..., Any], ...] = (overlap_figure, shared_figure, partial(clouds_figure, **options))
    for path, draw in zip(figures, drawn, strict=True):
        if path is not None:
            save_picture(draw(tables, top), path)
