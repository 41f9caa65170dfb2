"""The command that looks at attention heads: heads."""

from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import (
    LARGEST_BATCH,
    DirectionOption,
    Loading,
    PiecesOption,
    SpecialOption,
    SubtypesOption,
    app,
    check_files,
    limited,
    save_picture,
    with_model,
)
from whyformer.cli.flags import texts_of
from whyformer.cli.process import put, say
from whyformer.errors import BadInput, BadOption
from whyformer.progress import counting
from whyformer_papers.heads import ParsedTexts, Treebank, head_statistics, parsed_by, positional_statistics
from whyformer_papers.heads.figures import heads_figure, positions_figure


@app.command()
@with_model
def heads(
    *,
    treebank: Annotated[Path | None, typer.Option(help="Parsed sentences, CoNLL-U.")] = None,
    texts: Annotated[
        Path | None, typer.Option(help="Texts, one a line, or a data file: positional heads only, without --spacy.")
    ] = None,
    spacy: Annotated[str | None, typer.Option(help="A spaCy pipeline that parses the texts.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the head mask to this file, for --head-mask.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the grid of heads to this file.")] = None,
    positions: Annotated[Path | None, typer.Option(help="Draw where dependents stand to this file.")] = None,
    limit: Annotated[int | None, typer.Option(help="How many sentences are taken.")] = None,
    direction: DirectionOption = "either",
    pieces: PiecesOption = "joined",
    special_tokens: SpecialOption = False,
    subtypes: SubtypesOption = False,
    positional: Annotated[float, typer.Option(help="The threshold of positional heads.")] = 0.8,
    syntactic: Annotated[float, typer.Option(help="The threshold of syntactic heads.")] = 0.1,
    batch_size: Annotated[int, typer.Option(help="Sentences in one run of the model.")] = 32,
    loading: Loading,
) -> None:
    """Find the heads that follow syntax or positions, for the method mask_lrp."""
    if (treebank is None) == (texts is None) or (spacy is not None and texts is None):
        raise BadOption("give --treebank FILE.conllu, or --texts FILE, with --spacy NAME if they are to be parsed")
    check_files([out], [figure, positions])
    limited("--batch-size", batch_size, LARGEST_BATCH, "sentences in one run of the model")
    subject = loading.explainer().subject
    options: dict[str, Any] = {"limit": limit, "positional": positional, "batch_size": batch_size}
    options |= {"special_tokens": special_tokens}
    with counting("heads"):
        if texts is not None and spacy is None:
            mask = positional_statistics(subject, texts_of(texts, on_error="skip"), **options)
        else:
            options |= {"direction": direction, "pieces": pieces, "subtypes": subtypes, "syntactic": syntactic}
            mask = head_statistics(subject, _parsed(treebank, texts, spacy), **options)
    put(repr(mask))
    if mask.provenance.get("interrupted"):
        say(f"interrupted: this is of the first {mask.provenance['sentences']} sentences")
    if out is not None:
        say(f"wrote {mask.save(out) or out}")
    for path, draw in ((figure, heads_figure), (positions, positions_figure)):
        if path is not None:
            save_picture(draw(mask), path)


def _parsed(treebank: Path | None, texts: Path | None, spacy: str | None) -> Treebank | ParsedTexts:
    if treebank is not None:
        return Treebank(treebank)
    assert texts is not None
    lines = texts_of(texts, on_error="skip")
    plain = [line for line in lines if isinstance(line, str)]
    if len(plain) < len(lines):
        raise BadInput(f"{str(texts)!r} holds pairs of texts: --spacy parses single ones")
    return parsed_by(spacy, plain)
