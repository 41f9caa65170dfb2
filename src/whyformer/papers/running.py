"""Running a recipe: column by column, the model and the data are opened, then measured or explained."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from whyformer.attention_heads import parsed_by
from whyformer.errors import BadInput, BadOption, UnsupportedModel, WhyformerError
from whyformer.evaluation.table import Table
from whyformer.explain.explanation import Comparison
from whyformer.inputs.encoding import Text
from whyformer.models.loading import Subject, load
from whyformer.papers.examples import Explain, explained
from whyformer.papers.filled import filled, left_out_rows
from whyformer.papers.lm_heads import ColumnHead, column_head, lm_heads_of_columns
from whyformer.papers.masks import ColumnMask, check_parse, column_mask, heads_of_columns
from whyformer.papers.recipe import EXAMPLES, MASKS, Column, Reproduction, Row
from whyformer.papers.reproduced import Entry, Part, Reproduced, entries_of
from whyformer.papers.sources import Given, Opened, Sources, chosen_columns, nothing_left, opened_columns
from whyformer.show.clouds import wordcloud_class

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
    heads: Given | None = None,
    spacy: Any = None,
    lm_heads: Given | None = None,
    load: Load = load,
) -> Reproduced:
    """Do a table or figure again: what can be run of it, for every column whose model and data are at hand.

    `models` and `data` are folders in place of the hub; `instead` gives columns, by their folder, other models; `only`
    chooses columns by their folder. `limit` takes fewer texts, `seeds` fewer runs of random rows, and `texts` other
    examples for a figure. `heads` gives columns, by their folder, files of head masks (one file, if there is one
    column); other masks are found in the column's texts, parsed by `spacy`, a pipeline or the name of one. `lm_heads`
    gives columns, by their folder, folders or hub ids of the pretrained models whose LM heads decode layers (one for
    all, if it is one). A column whose model or data is not there is left out, and the result says why; so are rows
    whose method is not there yet, whose head mask has no heads for them, or whose layer or LM head the model does not
    have. `evaluate` measures, as `evaluation.evaluate` does, with a journal for each column in a folder below `out`;
    `explain` explains one text by one method.
    """
    if recipe.refusal:
        raise BadOption(recipe.refusal)
    if seeds is not None and seeds < 1:
        raise BadOption(f"seeds={seeds}: a random row needs at least one run")
    folders = [None if folder is None else Path(folder) for folder in (models, data)]
    sources = Sources(folders[0], folders[1], limit, instead or {}, tuple(texts))
    columns = chosen_columns(recipe, only, sources)
    if recipe.kind == "clouds" and out is not None:
        wordcloud_class()  # raises before anything is measured
    sources = replace(
        sources,
        heads=heads_of_columns(recipe, columns, heads or {}),
        pipeline=_pipeline(recipe, spacy),
        lm_heads=lm_heads_of_columns(recipe, columns, lm_heads or {}),
    )
    opened, left_out = opened_columns(recipe, columns, sources)
    parts = []
    with _room(out) as room:
        for one in opened:
            try:
                ready = _ready(recipe, one, sources, room / slug(one.column.label), load)
                shown = ready.shown(explain)
            except (BadInput, UnsupportedModel) as error:
                left_out[one.column.label] = str(error)
                continue
            folder = None if out is None else room / slug(one.column.label)
            parts.append(shown or ready.measured(folder, limit, seeds, _given(evaluate, "evaluate")))
    if not parts:
        raise nothing_left(recipe, left_out)
    return Reproduced(recipe, tuple(parts), left_out, recipe.waiting)


@contextmanager
def _room(out: str | Path | None) -> Iterator[Path]:
    """The folder below which each column has its own; one for the time being, where none is given."""
    if out is not None:
        yield Path(out)
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def _pipeline(recipe: Reproduction, spacy: Any) -> Any:
    if spacy is None:
        return None
    if not recipe.masked:
        raise BadOption(f"{recipe.name} needs no parse: leave --spacy (spacy=) out")
    return parsed_by(spacy, ()).pipeline


@dataclass(frozen=True, eq=False)
class _Ready:
    """A column, its model, the recipe with the column's head mask or LM head in it, and the departures known so far."""

    one: Opened
    subject: Subject
    recipe: Reproduction
    found: ColumnMask | None
    said: tuple[str, ...]

    def shown(self, explain: Explain | None) -> Part | None:
        """The column of a figure of texts or heads."""
        examples: tuple[Comparison, ...] = ()
        if self.recipe.kind in EXAMPLES:
            explain = _given(explain, "explain")
            examples = explained(self.recipe, self.one.column, self.subject, self.one.texts, explain)
        elif self.recipe.kind not in MASKS:
            return None
        return self._part(examples=examples)

    def measured(self, folder: Path | None, limit: int | None, seeds: int | None, evaluate: Evaluate) -> Part:
        """The column of a table or curve."""
        column = self.one.column
        table = _measured(self.recipe, self.one, self.subject, folder, seeds, evaluate)
        entries = entries_of(self.recipe, column, table, seeds)
        return self._part(_counted(self.recipe, column, entries, limit, seeds), table=table, entries=entries)

    def _part(self, said: Sequence[str] = (), **found: Any) -> Part:
        mask = None if self.found is None else self.found.mask
        rows, departures = self.recipe.rows_of(self.one.column), (*self.said, *said)
        return Part(self.one.column, self.subject.name, departures=departures, rows=rows, mask=mask, **found)


def _ready(recipe: Reproduction, one: Opened, sources: Sources, folder: Path, load: Load) -> _Ready:
    check_parse(recipe, one.column, sources)
    subject = load(one.model)
    mask = _mask(recipe, one, subject, sources, folder) if recipe.masked else None
    head = column_head(one, subject, sources) if any(row.decoded for row in recipe.rows_of(one.column)) else None
    own = filled(recipe, one.column, mask, head)
    found = [one.sentence for one in (mask, head) if isinstance(one, (ColumnMask, ColumnHead))]
    said = [*one.departures(sources, subject), *found, *left_out_rows(recipe, own, one.column)]
    return _Ready(one, subject, own, mask if isinstance(mask, ColumnMask) else None, tuple(said))


def _mask(recipe: Reproduction, one: Opened, subject: Subject, sources: Sources, folder: Path) -> ColumnMask | str:
    """The head mask of a column, or why there is none."""
    try:
        return column_mask(recipe, one, subject, sources, folder)
    except (BadInput, UnsupportedModel) as error:
        if recipe.kind in MASKS:
            raise
        return f"there is no head mask ({error})"


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
    methods = [method for row in rows for reading in row.seeded(seeds) for method in reading]
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
    return [f"{measured:,} texts were measured{limited}{without}{theirs}", *_fewer_runs(recipe.rows_of(column), seeds)]


def _fewer_runs(rows: Sequence[Row], seeds: int | None) -> list[str]:
    by_runs: dict[tuple[int, int], list[str]] = {}
    for row in rows:
        done = len(row.seeded(seeds)[0])
        if done < row.runs:
            by_runs.setdefault((done, row.runs), []).append(row.label)
    return [
        f"{', '.join(labels)} {'is the mean' if len(labels) == 1 else 'are means'} of {done} "
        f"{'run' if done == 1 else 'runs'}, not {asked}"
        for (done, asked), labels in by_runs.items()
    ]
