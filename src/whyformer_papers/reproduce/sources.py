"""Where the models and the data of a recipe come from: local folders, or the hub."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.datasets import RECIPES, Dataset, open_dataset
from whyformer.datasets.dataset import OnError
from whyformer.errors import BadInput, BadOption, nearest
from whyformer.inputs.batch import Text
from whyformer.models.load import Subject, text_config
from whyformer_papers.heads import HeadSearch, Treebank
from whyformer_papers.reproduce.recipe import RecipeColumn, Reproduction

Given = Mapping[str, str | Path] | str | Path  # files or folders by column, or one alone
DataGiven = Mapping[str | None, str | Path] | str | Path | None  # by column, with None for the others, or of all
Limit = Mapping[str | None, int] | int | None  # how many texts: by column, with None for the others, or of each


@dataclass(frozen=True)
class ReproductionSettings:
    """What a run is given beside its recipe: where models, data, head masks and LM heads come from, how much is run.

    `instead` has other models by a column's folder: a folder below `models`, or whatever can be loaded; `other_data`
    has other data likewise, whatever can be opened. `heads` has
    files of head masks by a column's folder; the masks of other columns are found by the `search` in the `treebank` if
    there is one, else in their texts, parsed by the spaCy `pipeline` if there is one. `lm_heads` has folders or hub ids
    of LM heads by a column's folder. `limit` is how many texts are taken, of each column or by its folder, `seeds` how
    often random rows are run. `engine`, `workers`, `on_error`, `window_size` and `overlap` are those of `evaluate`. If
    `measured`, journals are read and nothing is measured.
    """

    models: Path | None
    data: Path | None
    other_data: Mapping[str, Path]
    instead: Mapping[str, str]
    texts: tuple[Text, ...]
    heads: Mapping[str, Path]
    pipeline: Any
    treebank: Treebank | None
    search: HeadSearch
    lm_heads: Mapping[str, str]
    limit: Limit
    seeds: int | None
    engine: str
    workers: int | None
    device: str | None
    dtype: str | None
    on_error: OnError
    window_size: int | None
    overlap: int | None
    measured: bool

    def limit_of(self, column: RecipeColumn) -> int | None:
        """How many texts of a column are taken; None for all."""
        if self.limit is None or isinstance(self.limit, int):
            return self.limit
        return self.limit.get(column.folder, self.limit.get(None))

    def model(self, column: RecipeColumn) -> str | Path:
        """The model of a column; `BadInput` says what was looked for."""
        folder, asked = column.folder, self.instead.get(column.folder)
        if asked is not None:
            below = self.models / asked if self.models else None
            return below if below and below.is_dir() else asked
        if self.models is None:
            if column.model is not None:
                return column.model
            raise BadInput(
                f"the paper does not name its {column.architecture} model: --models DIR takes the folder {folder!r} in "
                f"DIR, --model {folder}=NAME any model"
            )
        path = self.models / folder
        if not path.is_dir():
            named = f"{column.model} of the hub would be used" if column.model else "the paper names no model"
            raise BadInput(
                f"there is no folder {str(path)!r}; without --models, {named}; --model {folder}=NAME takes another "
                "model"
            )
        return path

    def rows(self, recipe: Reproduction, column: RecipeColumn, *, alone: bool) -> Dataset | None:
        """The data of a column; None for a figure whose texts are known.

        All of it is opened where a question is looked up in it, or heads for a figure of texts. A column that is not
        alone must have a folder of its own, so that it does not read another's data.
        """
        searched = recipe.masked and column.folder not in self.heads and self.treebank is None
        if not recipe.reads_data(column, self.texts, searched=searched):
            return None
        limit = None if recipe.searches_all else self.limit_of(column)
        if (other := self.other_data.get(column.folder)) is not None:
            return open_dataset(other, limit=limit, on_error=self.on_error)
        folder = self.data / RECIPES[column.data].folder if self.data and not alone else None
        if folder is not None and not folder.is_dir():
            raise BadInput(
                f"there is no folder {str(folder)!r}; --only {column.folder} takes the data of {str(self.data)!r}"
            )
        return open_dataset(column.data, local=self.data, limit=limit, on_error=self.on_error)


@dataclass(frozen=True, eq=False)
class Opened:
    """A column whose model and data are available; `texts` are those of a figure."""

    column: RecipeColumn
    model: str | Path
    data: Dataset | None
    texts: tuple[Text, ...] = ()

    def departures(self, settings: ReproductionSettings, subject: Subject) -> list[str]:
        """How model, data and texts differ from the paper's, in sentences."""
        sentences = []
        if self.model != self.column.model:
            stands = f", in place of {self.column.folder}" if self.column.folder in settings.instead else ""
            theirs = f"{self.column.architecture}, {self.column.model or 'not named'}"
            sentences.append(f"the model is {self.model} ({_shape(subject)}){stands}; the paper's is {theirs}")
        if self.data is not None and (settings.data is not None or self.column.folder in settings.other_data):
            about = RECIPES[self.column.data]
            hub = ":".join(filter(None, (about.hub, about.config))) or about.name
            sentences.append(f"the data is {self.data.source.where}, in place of {hub}, split {about.split}")
        if settings.texts:
            sentences.append("the texts are others than the paper's")
        return sentences


def chosen_columns(
    recipe: Reproduction, only: Sequence[str] | None, instead: Iterable[str], data: Path | None
) -> tuple[RecipeColumn, ...]:
    """The columns that are asked for, by their folders."""
    folders = check_columns(recipe, (*(only or ()), *instead))
    columns = tuple(column for column in recipe.columns if only is None or column.folder in only)
    if data and data.is_file() and len(columns) > 1:
        raise BadOption(
            f"{str(data)!r} is one file, and there are several columns: choose one (--only) of {', '.join(folders)}"
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
    recipe: Reproduction, columns: Sequence[RecipeColumn], settings: ReproductionSettings
) -> tuple[list[Opened], dict[str, str]]:
    """The columns whose model and data are available, and why the others are not."""
    opened: list[Opened] = []
    left_out: dict[str, str] = {}
    for column in columns:
        if not recipe.shows_masks and not recipe.rows_of(column):
            left_out[column.label] = "none of its rows can be run yet"
            continue
        try:
            model, data = settings.model(column), settings.rows(recipe, column, alone=len(columns) == 1)
            texts = settings.texts or recipe.texts(column, data, settings.limit_of(column) or 1)
        except BadInput as error:
            left_out[column.label] = str(error)
        else:
            opened.append(Opened(column, model, data, texts))
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


def given_data(written: Sequence[str]) -> DataGiven:
    """Data as it is written on the command line: one folder for all columns, `imagenet=FILE` for one of them."""
    by_column: dict[str | None, str] = {}
    for one in written:
        column, sign, path = one.partition("=")  # a file may have the sign in its name
        column, path = (column, path) if sign else ("", column)
        if not path.strip() or (sign and not column.strip()):
            raise BadOption(f"data is written as FOLDER, or as COLUMN=FILE for one column; found {one!r}")
        by_column[column.strip() or None] = path.strip()
    return by_column or None


def given_limits(written: Sequence[str]) -> Limit:
    """How many texts are taken, as it is written on the command line: `500` of each column, `sst2=872` of one."""
    rule = "a number of texts is written as N, or as COLUMN=N for one column, such as sst2=872"
    limits: dict[str | None, int] = {}
    for one in written:
        column, _, number = one.rpartition("=")
        if not number.strip().isdecimal() or int(number) < 1 or ("=" in one and not column.strip()):
            raise BadOption(f"{rule}; found {one!r}")
        limits[column.strip() or None] = int(number)
    return limits or None


def given_lm_heads(written: Sequence[str]) -> Given:
    """LM heads as they are written on the command line: `sst2=FOLDER` for a column, or one folder for all."""
    return _one_or_by_column(written, "an LM head is written as COLUMN=FOLDER, such as sst2=roberta-base")


def _by_column(written: Sequence[str], rule: str) -> dict[str, str]:
    """Names by column, from `COLUMN=NAME` on the command line; `rule` says how that is written."""
    wrong = [one for one in written if not all(part.strip() for part in one.partition("="))]
    if wrong:
        raise BadOption(f"{rule}; found {wrong[0]!r}")
    return {column.strip(): name.strip() for column, _, name in (one.partition("=") for one in written)}


def _one_or_by_column(written: Sequence[str], rule: str) -> Given:
    """One file or folder that is written alone, or several by column."""
    if len(written) == 1 and "=" not in written[0] and written[0].strip():
        return written[0].strip()
    return _by_column(written, rule)


def _shape(subject: Subject) -> str:
    config = text_config(subject.model)
    layers, width = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    kind = str(getattr(config, "model_type", type(subject.model).__name__))
    return f"{kind}, {layers} layers of width {width}" if layers and width else kind
