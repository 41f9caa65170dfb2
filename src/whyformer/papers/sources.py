"""Where the models and the data of a recipe come from: folders at hand, or the hub."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whyformer.datasets import Dataset, open_dataset, recipes
from whyformer.errors import BadInput, BadOption, nearest
from whyformer.inputs.encoding import Text
from whyformer.models.loading import Subject, text_config
from whyformer.papers.recipe import Column, Reproduction

Given = Mapping[str, str | Path] | str | Path  # files or folders by column, or one alone


@dataclass(frozen=True)
class Sources:
    """Folders in place of the hub, fewer texts, other models, other texts for a figure, head masks, LM heads.

    `instead` has other models by a column's folder: a folder below `models`, or whatever can be loaded. `limit` is how
    many texts of the data are taken. `heads` has files of head masks by a column's folder; the masks of other columns
    are found in their texts, parsed by the spaCy `pipeline` if there is one. `lm_heads` has folders or hub ids of LM
    heads by a column's folder.
    """

    models: Path | None = None
    data: Path | None = None
    limit: int | None = None
    instead: Mapping[str, str] = field(default_factory=dict)
    texts: tuple[Text, ...] = ()
    heads: Mapping[str, Path] = field(default_factory=dict)
    pipeline: Any = None
    lm_heads: Mapping[str, str] = field(default_factory=dict)

    def model(self, column: Column) -> str | Path:
        """The model of a column; `BadInput` says what was looked for."""
        folder, asked = column.folder, self.instead.get(column.folder)
        if asked is not None:
            below = self.models / asked if self.models else None
            return below if below and below.is_dir() else asked
        if self.models is not None and not (self.models / folder).is_dir():
            named = f"{column.model} of the hub would be used" if column.model else "the paper names no model"
            raise BadInput(
                f"there is no folder {str(self.models / folder)!r}; without --models, {named}; --model {folder}=NAME "
                "takes another model"
            )
        if self.models is None and column.model is None:
            raise BadInput(
                f"the paper does not name its {column.architecture} model: --models DIR takes the folder {folder!r} in "
                f"DIR, --model {folder}=NAME any model"
            )
        return column.model or folder if self.models is None else self.models / folder

    def rows(self, recipe: Reproduction, column: Column, *, alone: bool) -> Dataset | None:
        """The data of a column; None for a figure whose texts are known. A question is looked for in all of it.

        So are the heads for a figure of texts. A column that is not alone must have a folder of its own, so that it
        does not read another's data.
        """
        searched = recipe.masked and column.folder not in self.heads
        if not recipe.reads_data(column, self.texts, searched=searched):
            return None
        own = self.data / recipes()[column.data].folder if self.data and not alone else None
        if own is not None and not own.is_dir():
            raise BadInput(
                f"there is no folder {str(own)!r}; --only {column.folder} takes the data of {str(self.data)!r}"
            )
        return open_dataset(column.data, local=self.data, limit=None if recipe.searches_all else self.limit)


@dataclass(frozen=True, eq=False)
class Opened:
    """A column whose model and data are at hand; `texts` are those of a figure."""

    column: Column
    model: str | Path
    data: Dataset | None
    texts: tuple[Text, ...] = ()

    def departures(self, sources: Sources, subject: Subject) -> list[str]:
        """How model, data and texts differ from the paper's, in sentences."""
        said = []
        if self.model != self.column.model:
            stands = f", in place of {self.column.folder}" if self.column.folder in sources.instead else ""
            theirs = f"{self.column.architecture}, {self.column.model or 'not named'}"
            said.append(f"the model is {self.model} ({_shape(subject)}){stands}; the paper's is {theirs}")
        if self.data is not None and sources.data is not None:
            about = recipes()[self.column.data]
            hub = ":".join(filter(None, (about.hub, about.config)))
            said.append(f"the data is {self.data.source.where}, in place of {hub}, split {about.split}")
        if sources.texts:
            said.append("the texts are others than the paper's")
        return said


def chosen_columns(recipe: Reproduction, only: Sequence[str] | None, sources: Sources) -> tuple[Column, ...]:
    """The columns that are asked for, by their folders."""
    folders = check_columns(recipe, (*(only or ()), *sources.instead))
    columns = tuple(column for column in recipe.columns if only is None or column.folder in only)
    if sources.data and sources.data.is_file() and len(columns) > 1:
        raise BadOption(
            f"{str(sources.data)!r} is one file, and there are several columns: choose one (--only) of "
            f"{', '.join(folders)}"
        )
    return columns


def check_columns(recipe: Reproduction, names: Iterable[str]) -> list[str]:
    """The folders of all columns; `BadOption` if a name is not among them."""
    folders = list(dict.fromkeys(column.folder for column in recipe.columns))
    for name in names:
        if name not in folders:
            raise BadOption(f"{recipe.name} has no column {name!r}; {nearest(name, folders)}")
    return folders


def opened_columns(
    recipe: Reproduction, columns: Sequence[Column], sources: Sources
) -> tuple[list[Opened], dict[str, str]]:
    """The columns whose model and data are at hand, and why the others are not."""
    opened: list[Opened] = []
    left_out: dict[str, str] = {}
    for column in columns:
        if not recipe.shows_masks and not recipe.rows_of(column):
            left_out[column.label] = "none of its rows can be run yet"
            continue
        try:
            opened.append(_opened(recipe, column, sources, alone=len(columns) == 1))
        except BadInput as error:
            left_out[column.label] = str(error)
    if not opened:
        raise nothing_left(recipe, left_out)
    return opened, left_out


def nothing_left(recipe: Reproduction, left_out: Mapping[str, str]) -> BadInput:
    """The error where every column is left out."""
    reasons = "; ".join(f"{label}: {reason}" for label, reason in left_out.items())
    return BadInput(f"no column of {recipe.name} can be run: {reasons}")


def other_models(written: Sequence[str]) -> dict[str, str]:
    """Other models as they are written on the command line, `yelp=imdb`: by column."""
    return _by_column(written, "another model is written as COLUMN=NAME, such as yelp=imdb")


def given_heads(written: Sequence[str]) -> Given:
    """Head masks as they are written on the command line: `sst2=heads.json` for a column, or one file alone."""
    return _one_or_by_column(written, "a head mask is written as COLUMN=FILE, such as sst2=heads.json")


def given_lm_heads(written: Sequence[str]) -> Given:
    """LM heads as they are written on the command line: `sst2=FOLDER` for a column, or one folder for all."""
    return _one_or_by_column(written, "an LM head is written as COLUMN=FOLDER, such as sst2=roberta-base")


def _by_column(written: Sequence[str], rule: str) -> dict[str, str]:
    """What is given for some columns as it is written on the command line; `rule` says how."""
    wrong = [one for one in written if not all(part.strip() for part in one.partition("="))]
    if wrong:
        raise BadOption(f"{rule}; found {wrong[0]!r}")
    return {column.strip(): name.strip() for column, _, name in (one.partition("=") for one in written)}


def _one_or_by_column(written: Sequence[str], rule: str) -> Given:
    """The same, or one file or folder alone."""
    if len(written) == 1 and "=" not in written[0] and written[0].strip():
        return written[0].strip()
    return _by_column(written, rule)


def _opened(recipe: Reproduction, column: Column, sources: Sources, *, alone: bool) -> Opened:
    model, data = sources.model(column), sources.rows(recipe, column, alone=alone)
    return Opened(column, model, data, sources.texts or recipe.texts(column, data, sources.limit or 1))


def _shape(subject: Subject) -> str:
    config = text_config(subject.model)
    layers, width = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    kind = str(getattr(config, "model_type", type(subject.model).__name__))
    return f"{kind}, {layers} layers of width {width}" if layers and width else kind
