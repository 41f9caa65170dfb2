"""Running a recipe: column by column, the model and the data are opened, then measured or explained."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from whyformer.errors import BadInput, BadOption, UnsupportedModel, WhyformerError
from whyformer.inputs import Text
from whyformer.load import Subject, load
from whyformer.reproduce.examples import Explain, explained
from whyformer.reproduce.recipe import EXAMPLES, Column, Reproduction
from whyformer.reproduce.reproduced import Entry, Part, Reproduced, entries_of
from whyformer.reproduce.sources import Opened, Sources, chosen_columns, nothing_left, opened_columns
from whyformer.table import Table

Evaluate = Callable[..., Table]
Load = Callable[[str | Path], Subject]


def run(
    recipe: Reproduction,
    *,
    out: str | Path | None = None,
    evaluate: Evaluate | None = None,
    explain: Explain | None = None,
    models: str | Path | None = None,
    data: str | Path | None = None,
    limit: int | None = None,
    instead: Mapping[str, str] | None = None,
    only: Sequence[str] | None = None,
    seeds: int | None = None,
    texts: Sequence[Text] = (),
    load: Load = load,
) -> Reproduced:
    """Do a table or figure again: what can be run of it, for every column whose model and data are at hand.

    `models` and `data` are folders in place of the hub; `instead` gives columns, by their folder, other models; `only`
    chooses columns by their folder. `limit` takes fewer texts, `seeds` fewer runs of random rows, and `texts` other
    examples for a figure. A column whose model or data is not there is left out, and the result says why; so are rows
    whose method is not there yet. `evaluate` measures, as `whyformer.evaluate.evaluate` does, with a journal for each
    column in a folder below `out`; `explain` explains one text by one method.
    """
    if recipe.refusal:
        raise BadOption(recipe.refusal)
    if seeds is not None and seeds < 1:
        raise BadOption(f"seeds={seeds}: a random row needs at least one run")
    folders = [None if folder is None else Path(folder) for folder in (models, data)]
    sources = Sources(folders[0], folders[1], limit, instead or {}, tuple(texts))
    opened, left_out = opened_columns(recipe, chosen_columns(recipe, only, sources), sources)
    parts = []
    for one in opened:
        try:
            subject = load(one.model)
            said = one.departures(sources, subject)
            if recipe.kind in EXAMPLES:
                examples = explained(recipe, one.column, subject, one.texts, _given(explain, "explain"))
                parts.append(Part(one.column, subject.name, examples=examples, departures=tuple(said)))
                continue
        except (BadInput, UnsupportedModel) as error:
            left_out[one.column.label] = str(error)
            continue
        folder = None if out is None else Path(out) / slug(one.column.label)
        table = _measured(recipe, one, subject, folder, seeds, _given(evaluate, "evaluate"))
        entries = entries_of(recipe, one.column, table, seeds)
        said += _counted(recipe, one.column, entries, limit, seeds)
        parts.append(Part(one.column, subject.name, table, entries, departures=tuple(said)))
    if not parts:
        raise nothing_left(recipe, left_out)
    return Reproduced(recipe, tuple(parts), left_out, recipe.waiting)


def slug(label: str) -> str:
    """A label as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", label.casefold()).strip("-")


def _given(function: Any, name: str) -> Any:
    if function is None:
        raise BadOption(f"this recipe needs {name}=")
    return function


def _measured(
    recipe: Reproduction, one: Opened, subject: Subject, out: Path | None, seeds: int | None, evaluate: Evaluate
) -> Table:
    rows = recipe.rows_of(one.column)
    methods = [method for row in rows for method in (*row.seeded(seeds), *row.also)]
    metrics = [measure.metric for measure in recipe.ready_measures] + [row.metric for row in rows if row.metric]
    try:
        return evaluate(subject, one.data, methods=methods, metrics=metrics, out=out)
    except WhyformerError as error:
        raise type(error)(f"{one.column.label}: {error}") from error


def _counted(
    recipe: Reproduction, column: Column, entries: Sequence[Entry], limit: int | None, seeds: int | None
) -> list[str]:
    """How many texts were measured, beside how many the paper has; and how many runs of random rows."""
    cells = [entry.ours for entry in entries if entry.ours]
    measured = max((cell.n for cell in cells), default=0)
    left_out = max((cell.left_out for cell in cells if cell.n == measured), default=0)
    limited = f" (at most {limit} were asked for)" if limit is not None else ""
    without = f", {left_out:,} left out by the metric" if left_out else ""
    theirs = f"; the paper has {column.texts:,}" if column.texts else ""
    fewer = [row for row in recipe.rows_of(column) if row.runs > len(row.seeded(seeds))]
    runs = [f"{row.label} is the mean of {len(row.seeded(seeds))} runs, not {row.runs}" for row in fewer]
    return [f"{measured:,} texts were measured{limited}{without}{theirs}", *runs]
