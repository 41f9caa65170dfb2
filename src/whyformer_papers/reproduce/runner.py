"""Running a recipe: column by column, the model and the data are opened, then measured or explained."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from whyformer.datasets.dataset import OnError
from whyformer.errors import BadInput, BadOption, UnsupportedModel
from whyformer.inputs.batch import Text
from whyformer.models.load import load
from whyformer_papers.heads import AUTHORS_SEARCH, HeadSearch, Treebank, parsed_by
from whyformer_papers.reproduce.lm_heads import ColumnHead, column_head, lm_heads_of_columns
from whyformer_papers.reproduce.masks import ColumnMask, check_parse, column_mask, heads_of_columns
from whyformer_papers.reproduce.placeholders import filled
from whyformer_papers.reproduce.recipe import LeftOutRow, Reproduction
from whyformer_papers.reproduce.result import Part, ReadyColumn, Reproduced
from whyformer_papers.reproduce.sources import (
    DataGiven,
    Given,
    Limit,
    Opened,
    ReproductionSettings,
    check_columns,
    chosen_columns,
    nothing_left,
    opened_columns,
)


def run(
    recipe: Reproduction,
    *,
    out: str | Path | None = None,
    models: str | Path | None = None,
    data: DataGiven = None,
    limit: Limit = None,
    instead: Mapping[str, str] | None = None,
    only: Sequence[str] | None = None,
    seeds: int | None = None,
    texts: Sequence[Text] = (),
    heads: Given | None = None,
    spacy: Any = None,
    treebank: str | Path | None = None,
    search: HeadSearch = AUTHORS_SEARCH,
    lm_heads: Given | None = None,
    engine: str = "local",
    workers: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    on_error: OnError = "refuse",
    window_size: int | None = None,
    overlap: int | None = None,
    measured: bool = False,
) -> Reproduced:
    """Do a table or figure again: what can be run of it, for every column whose model and data are available.

    A column whose model or data is missing is left out, and the result says why; so are rows whose method does not
    exist yet, whose head mask has no heads for them, or whose layer or LM head the model does not have.

    | parameter | meaning |
    |---|---|
    | `recipe` | one of `reproductions()` |
    | `out` | a folder: each column has its journal and its head mask in a folder below, which recipes of the same |
    | | data and model share; the same call goes on there |
    | `models`, `data` | folders of models and data sets in place of the hub; data may be given by the folder of a |
    | | column too: whatever `open_dataset` opens |
    | `limit` | how many texts of each column are taken, or numbers by the folder of a column |
    | `instead` | other models, by the folder of a column: a folder below `models`, or whatever can be loaded |
    | `only` | the columns to run, by their folder; by default all |
    | `seeds` | how many runs random rows have; by default as many as the paper's |
    | `texts` | other examples for a figure of texts |
    | `heads` | files of head masks by the folder of a column, or one file if there is one column |
    | `spacy` | the pipeline, or its name, that parses texts where the head mask of a column is counted in them |
    | `treebank` | a CoNLL-U file whose sentences the head masks are counted in, in place of the texts |
    | `search` | how heads are looked for; by default as in the code of Mask-LRP's authors |
    | `lm_heads` | the pretrained models whose LM heads decode layers: folders or hub ids by column, or one for all |
    | `engine`, `workers` | where numbers are measured, as for `evaluate` |
    | `device`, `dtype` | where and how models are loaded |
    | `on_error` | `"skip"` leaves bad rows of the data out, and counts them |
    | `window_size`, `overlap` | how contexts of questions that do not fit are read, as in `evaluate` |
    | `measured` | measures nothing: tables and curves are of what the journals in `out` hold, on whatever machine |
    """
    if recipe.refusal:
        raise BadOption(recipe.refusal)
    if measured and out is None:
        raise BadOption("measured=True (--measured) shows what a folder holds: give out= (--out)")
    if seeds is not None and seeds < 1:
        raise BadOption(f"seeds={seeds}: a random row needs at least one run")
    by_column = data if isinstance(data, Mapping) else {None: data}
    other_data = {name: Path(path) for name, path in by_column.items() if name is not None and path is not None}
    models, data = (None if folder is None else Path(folder) for folder in (models, by_column.get(None)))
    columns = chosen_columns(recipe, only, (*(instead or ()), *other_data), data)
    if isinstance(limit, Mapping):
        check_columns(recipe, (name for name in limit if name is not None))
    if out is not None:
        recipe.check_drawing()
    settings = ReproductionSettings(
        models=models,
        data=data,
        other_data=other_data,
        instead=instead or {},
        texts=tuple(texts),
        heads=heads_of_columns(recipe, columns, heads or {}),
        pipeline=_pipeline(recipe, spacy),
        treebank=_treebank(recipe, treebank, spacy),
        search=search,
        lm_heads=lm_heads_of_columns(recipe, columns, lm_heads or {}),
        limit=limit,
        seeds=seeds,
        engine=engine,
        workers=workers,
        device=device,
        dtype=dtype,
        on_error=on_error,
        window_size=window_size,
        overlap=overlap,
        measured=measured,
    )
    opened, left_out = opened_columns(recipe, columns, settings)
    parts = []
    with TemporaryDirectory() if out is None else nullcontext(out) as folder:
        for column in opened:
            below = Path(folder) / column.column.journal
            try:
                parts.append(_run_column(recipe, column, settings, below, journalled=out is not None))
            except LeftOutRow as reason:
                left_out[column.column.label] = str(reason)
    if not parts:
        raise nothing_left(recipe, left_out)
    return Reproduced(recipe, tuple(parts), left_out, recipe.waiting)


def _pipeline(recipe: Reproduction, spacy: Any) -> Any:
    if spacy is None:
        return None
    if not recipe.masked:
        raise BadOption(f"{recipe.name} needs no parse: leave --spacy (spacy=) out")
    return parsed_by(spacy, ()).pipeline


def _treebank(recipe: Reproduction, path: str | Path | None, spacy: Any) -> Treebank | None:
    if path is None:
        return None
    if not recipe.masked:
        raise BadOption(f"{recipe.name} uses no head mask: leave --treebank (treebank=) out")
    if spacy is not None:
        raise BadOption("heads are counted in a treebank or in parsed texts: give --treebank or --spacy, not both")
    return Treebank(Path(path))


def _run_column(
    recipe: Reproduction, opened: Opened, settings: ReproductionSettings, folder: Path, *, journalled: bool
) -> Part:
    """One column, with its head mask and LM head in the rows that need them."""
    column = opened.column
    try:
        check_parse(recipe, column, settings)
        subject = load(opened.model, device=settings.device, dtype=settings.dtype)
        mask = column_mask(recipe, opened, subject, settings, folder) if recipe.masked else None
        decoded = any(row.decoded for row in recipe.rows_of(column))
        head = column_head(opened, subject, settings) if decoded else None
        column_recipe, left_out = filled(recipe, column, mask, head)
    except (BadInput, UnsupportedModel) as error:
        raise LeftOutRow(str(error)) from error
    used = [source.sentence for source in (mask, head) if isinstance(source, (ColumnMask, ColumnHead))]
    departures = (*opened.departures(settings, subject), *used, *left_out)
    known = mask.mask if isinstance(mask, ColumnMask) else None
    ready = ReadyColumn(opened, subject, known, folder if journalled else None, departures, settings)
    return column_recipe.run_column(ready)
