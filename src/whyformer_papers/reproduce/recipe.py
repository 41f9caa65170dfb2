"""Reproduction: a table or figure of a paper as a recipe, with the numbers that were published."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from whyformer.datasets import RECIPES
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.batch import Text
from whyformer.methods.method import list_methods, method_specs
from whyformer.metrics.metric import list_metrics, metric_specs
from whyformer_papers.reproduce.published import Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from whyformer.datasets import Dataset
    from whyformer.show.grid import Grid
    from whyformer_papers.reproduce.result import Part, ReadyColumn, Reproduced

METHOD = "the method "


@dataclass(frozen=True)
class RecipeColumn:
    """One data set of a table, and the model that is explained on it.

    `data` is a name that `open_dataset` takes. `folder` is the model's below a folder of models, and the column's own
    name on the command line. `model` is a hub id, None where the paper names none. `texts` is how many the paper has.
    `lm_head` is the hub id of the pretrained model whose LM head the paper decodes with.
    """

    label: str
    data: str
    folder: str
    model: str | None = None
    architecture: str = "BERT-base"
    texts: int | None = None
    lm_head: str | None = None

    @property
    def of_pairs(self) -> bool:
        """Whether the data are pairs of texts."""
        return self.data in RECIPES and isinstance(RECIPES[self.data].columns.get("text"), tuple)

    @property
    def slug(self) -> str:
        """The label as the name of a file."""
        return _slug(self.label)

    @property
    def journal(self) -> str:
        """The folder of its journal, which columns of several recipes share that have the same data and model."""
        return _slug(f"{self.data} {self.folder}")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")


@dataclass(frozen=True)
class RecipeRow:
    """One method of a table: the paper's label, and the method here that stands for it.

    `also` are other readings of the same row: what the paper's text defines where its code does something else. With
    `runs`, a reading is the mean over that many seeds, written `{seed}` in it. `{heads}` stands for the file of the
    column's head mask, `{rate}` for the share of heads that it keeps, `{lm_head}` for the column's LM head. A
    `syntactic` row is the paper's only where the head mask comes from a parse. `columns` are the labels of those that
    have this row, all if empty. A row of what is attainable has a `metric` of its own, and no rank. `at` is where a
    curve over several rows has it.
    """

    label: str
    method: str
    also: tuple[str, ...] = ()
    runs: int = 1
    columns: tuple[str, ...] = ()
    metric: str | None = None
    waits_for: str | None = None
    at: float | None = None
    syntactic: bool = False

    def seeded(self, runs: int | None = None) -> tuple[tuple[str, ...], ...]:
        """Of every reading, the method once for each seed."""
        seeds = range(min(self.runs, runs or self.runs))
        return tuple(
            tuple(written.replace("{seed}", str(seed)) for seed in seeds) if "{seed}" in written else (written,)
            for written in (self.method, *self.also)
        )

    @property
    def readings(self) -> tuple[str, ...]:
        """Every method that the row needs, one seed of each, with some rate."""
        return tuple(methods[0].replace("{rate}", "0.5") for methods in self.seeded(1))

    @property
    def masked(self) -> bool:
        """Whether the row needs the column's head mask."""
        return self._has("{heads}", "{rate}")

    @property
    def decoded(self) -> bool:
        """Whether the row needs the column's LM head."""
        return self._has("{lm_head}")

    def _has(self, *names: str) -> bool:
        return any(name in written for written in (self.method, *self.also) for name in names)


@dataclass(frozen=True)
class RecipeMetric:
    """One number of a table: the paper's label and the metric here.

    `scale` turns the metric's numbers into the paper's unit. A measure with a `protocol` is taken while the model is
    run and explained as in the authors' code; with `pairs`, another metric is theirs on pairs of texts. A second
    reading of a measure stands `beside` the published numbers of that one. `columns` are the labels of those that
    have it, all if empty.
    """

    label: str
    metric: str
    higher_is_better: bool = True
    scale: float = 1
    protocol: str | None = None
    pairs: str | None = None
    beside: str | None = None
    columns: tuple[str, ...] = ()


class LeftOutRow(BadInput):
    """Why a column of a recipe cannot be shown; the other columns are."""


@dataclass(frozen=True, kw_only=True)
class Reproduction(ABC):
    """A table or figure of a paper: data, models and methods as the paper has them, and what it published.

    Its subclasses say how a column is run, printed and drawn: `tables`, `text_figures`, `head_figures` and
    `word_figures` have them. `essential` are rows without which there is nothing to show. `notes` say how the settings
    differ from the paper or its code. `waits_for` is the task or figure that nothing here provides yet.
    """

    name: str
    paper: str
    title: str
    columns: tuple[RecipeColumn, ...]
    rows: tuple[RecipeRow, ...]
    measures: tuple[RecipeMetric, ...] = ()
    published: Published = field(default_factory=lambda: MappingProxyType({}))
    essential: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    waits_for: str | None = None

    shows_masks: ClassVar[bool] = False  # the head mask is what is shown, so a column without one is left out
    needs_parse: ClassVar[bool] = False
    searches_all: ClassVar[bool] = False  # texts are looked up, so the whole data set is opened

    @abstractmethod
    def run_column(self, column: "ReadyColumn") -> "Part":
        """Measure or explain one column; `LeftOutRow` says why it cannot be shown."""

    @abstractmethod
    def grids(self, reproduced: "Reproduced", part: "Part") -> "list[Grid]":
        """The tables of one column."""

    @abstractmethod
    def csv_lines(self, reproduced: "Reproduced") -> Iterator[Sequence[object]]:
        """What a spreadsheet has of all columns, with the titles first."""

    def drawing(self, reproduced: "Reproduced") -> "Figure | None":
        """The picture of all columns, if there is one."""
        return None

    def column_drawing(self, part: "Part") -> "Figure | None":
        """The picture of one column, if there is one."""
        return None

    def check_drawing(self) -> None:
        """Raise, before anything is measured, if a package is missing that draws the pictures."""
        return

    def reads_data(self, column: RecipeColumn, texts: Sequence[Text], *, searched: bool) -> bool:
        """Whether a column needs its data set; `searched` if its head mask is taken from the data."""
        return True

    def texts(self, column: RecipeColumn, data: "Dataset | None", count: int) -> tuple[Text, ...]:
        """The single texts that a column shows."""
        return ()

    def shows_printed_texts(self, column: RecipeColumn) -> bool:
        """Whether all texts that are shown of a column stand in the paper too; numbers and words show none."""
        return True

    @property
    def masked(self) -> bool:
        """Whether every column needs a head mask."""
        return self.shows_masks or any(row.masked for row in self.rows)

    @property
    def decoded(self) -> bool:
        """Whether some row needs an LM head."""
        return any(row.decoded for row in self.rows)

    @property
    def waiting(self) -> dict[str, str]:
        """The rows and measures that cannot be computed now, each with what it waits for."""
        methods, metrics = tuple((m.name, m.function) for m in list_methods().values()), tuple(list_metrics())
        rows = {row.label: _row_waits(row, methods) for row in self.rows}
        measures = {measure.label: _measure_waits(measure, metrics) for measure in self.measures}
        return {label: sentence for label, sentence in (rows | measures).items() if sentence}

    def rows_in(self, column: RecipeColumn) -> tuple[RecipeRow, ...]:
        """The rows of a column."""
        return tuple(row for row in self.rows if column.label in (row.columns or (column.label,)))

    def rows_of(self, column: RecipeColumn) -> tuple[RecipeRow, ...]:
        """The rows of a column that can be computed now."""
        waiting = self.waiting
        return tuple(row for row in self.rows_in(column) if row.label not in waiting)

    @property
    def ready_measures(self) -> tuple[RecipeMetric, ...]:
        """The measures that can be computed now."""
        waiting = self.waiting
        return tuple(measure for measure in self.measures if measure.label not in waiting)

    def measures_of(self, column: RecipeColumn) -> tuple[RecipeMetric, ...]:
        """The measures of a column that can be computed now."""
        return tuple(m for m in self.ready_measures if column.label in (m.columns or (column.label,)))

    @property
    def refusal(self) -> str | None:
        """Why nothing of this can be run now, if so."""
        if self.waits_for:
            return f"{self.name} waits for {self.waits_for}"
        waiting = self.waiting
        needed = [label for label in self.essential if label in waiting]
        if not needed and self._can_show(waiting):
            return None
        return f"{self.name} waits for {_joined(waiting[label] for label in needed or waiting)}"

    def _can_show(self, waiting: Mapping[str, str]) -> bool:
        """Whether a row is ready."""
        return any(row.label not in waiting for row in self.rows)

    @property
    def state(self) -> str:
        """What can be run of this now, in a few words."""
        if self.refusal:
            return self.refusal.removeprefix(f"{self.name} ")
        if not self.waiting:
            return "ready"
        return f"ready but for {', '.join(self.waiting)}: wait for {_joined(self.waiting.values())}"


@lru_cache(maxsize=1024)
def _row_waits(row: RecipeRow, methods: tuple[tuple[str, Callable[..., Any]], ...]) -> str | None:
    """What a row waits for while these methods are registered; a run asks for that hundreds of times."""
    if row.waits_for:
        return row.waits_for
    names = {name for name, _ in methods}
    for spec in row.readings:
        name = _name(spec)
        if name not in names:
            return f"{METHOD}{name}"
        try:
            method_specs([spec])
        except BadOption as error:
            return f"{name} to take {spec} ({error})"
    return None


@lru_cache(maxsize=1024)
def _measure_waits(measure: RecipeMetric, metrics: tuple[str, ...]) -> str | None:
    for written in filter(None, (measure.metric, measure.pairs)):
        name = _name(written)
        if name not in metrics:
            return f"the metric {name}"
        metric_specs([written])
    return None


def _name(written: str) -> str:
    return written.partition("(")[0]


def _joined(sentences: Iterable[str]) -> str:
    """The sentences, each once, with the methods that are missing in one of them."""
    every = list(dict.fromkeys(sentences))
    absent = [sentence.removeprefix(METHOD) for sentence in every if sentence.startswith(METHOD)]
    methods_absent = [f"the methods {', '.join(absent)}"] if len(absent) > 1 else [f"{METHOD}{n}" for n in absent]
    return "; ".join([*methods_absent, *(sentence for sentence in every if not sentence.startswith(METHOD))])
