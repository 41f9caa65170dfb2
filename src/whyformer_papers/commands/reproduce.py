"""The command `reproduce`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import (
    DeviceOption,
    DirectionOption,
    DtypeOption,
    ErrorOption,
    OverlapOption,
    PiecesOption,
    SpecialOption,
    SubtypesOption,
    WindowSizeOption,
    app,
    put_listing,
    quiet_loading,
    with_flags,
)
from whyformer.cli.evaluate import EngineOption, WorkersOption
from whyformer.cli.flags import left_in
from whyformer.cli.process import put, say
from whyformer.errors import BadOption
from whyformer_papers import reproduce as papers
from whyformer_papers.heads import AUTHORS_SEARCH, HeadSearch


@dataclass(frozen=True, kw_only=True)
class AuthorsSearch:
    """How heads are looked for: flags by the names that `HeadSearch` has for them, by default as in Mask-LRP's code."""

    direction: DirectionOption = AUTHORS_SEARCH.direction
    pieces: PiecesOption = AUTHORS_SEARCH.pieces
    special_tokens: SpecialOption = AUTHORS_SEARCH.special_tokens
    subtypes: SubtypesOption = AUTHORS_SEARCH.subtypes


@app.command("reproduce")
@with_flags("search", AuthorsSearch)
def reproduce_command(
    name: Annotated[str | None, typer.Argument(help="A table or figure, such as attcat-table-1.")] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="List the tables and figures.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="All that can be run, and one page of it in --out; run again to go on.")
    ] = False,
    measured: Annotated[
        bool, typer.Option("--measured", help="Show what the journals in --out hold, and measure nothing.")
    ] = False,
    printed_texts: Annotated[
        bool, typer.Option("--printed-texts", help="With --all: show no texts but those that the papers print.")
    ] = False,
    models: Annotated[Path | None, typer.Option(help="A folder of models in place of the hub.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="A folder of data sets in place of the hub; or COLUMN=FILE, other data for a column."),
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="How many texts are taken of each data set, or of a column: sst2=872.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="These columns only, by their folder, commas between.")] = None,
    instead: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="Another model for a column: yelp=imdb.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each random row.")] = None,
    heads: Annotated[
        list[str] | None, typer.Option("--heads", help="The head mask of a column, in place of its texts': sst2=FILE.")
    ] = None,
    spacy: Annotated[
        str | None, typer.Option(help="A spaCy pipeline that parses the texts for the head masks.")
    ] = None,
    treebank: Annotated[
        Path | None, typer.Option(help="Parsed sentences, CoNLL-U, for the head masks, in place of the texts.")
    ] = None,
    search: AuthorsSearch,
    lm_heads: Annotated[
        list[str] | None,
        typer.Option("--lm-head", help="The pretrained model whose LM head decodes layers: FOLDER, or sst2=FOLDER."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for journals, tables and pictures.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    on_error: ErrorOption = "refuse",
    window_size: WindowSizeOption = None,
    overlap: OverlapOption = None,
) -> None:
    """Do a table or figure of the papers again, our numbers beside the published ones."""
    if listed or (name is None and not every):
        put_listing(("name", "what it is", "state"), papers.listing())
        return

    quiet_loading()
    options: dict[str, Any] = {"models": models, "seeds": seeds, "spacy": spacy, "treebank": treebank}
    options |= {"data": papers.given_data(data or [])}
    options |= {"engine": engine, "workers": workers, "device": device, "dtype": dtype, "on_error": on_error}
    options |= {"window_size": window_size, "overlap": overlap, "search": HeadSearch(**vars(search))}
    options |= {"instead": papers.other_models(instead or []), "heads": papers.given_heads(heads or [])}
    options |= {"lm_heads": papers.given_lm_heads(lm_heads or []), "limit": papers.given_limits(limit or [])}
    options |= {"only": None if only is None else only.split(","), "measured": measured}
    if every:
        _reproduce_all(name, out, printed_texts, options)
        return
    if printed_texts:
        raise BadOption("--printed-texts is for --all")
    assert name is not None
    done = papers.run(papers.reproduction_named(name), out=out, **options)
    put(papers.text(done), coloured=True)
    if out is not None:
        say("wrote " + ", ".join(path.name for path in papers.write(done, out)) + f" to {out}")


def _reproduce_all(name: str | None, out: Path | None, printed_texts: bool, options: dict[str, Any]) -> None:
    if name is not None:
        raise BadOption(f"{name} or --all: one recipe, or all of them")
    if out is None:
        raise BadOption("--all needs --out FOLDER, for journals, tables, pictures and the page")
    try:
        everything = papers.run_all(out, printed_texts=printed_texts, say=say, **options)
    except KeyboardInterrupt:
        say(left_in(out))
        raise
    rows = [(name, "done") for name in everything.done] + list(everything.refused.items())
    put_listing(("name", "state"), rows)
    say(f"wrote index.html and index.md to {out}: {len(everything.done)} tables and figures")
