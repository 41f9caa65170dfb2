"""Everything at once: every table and figure that can be run on the models and data at hand, and one page of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whyformer.errors import BadOption, WhyformerError, nearest
from whyformer.show.grid import one_line
from whyformer.storage import files
from whyformer.storage.files import make_folder, regular
from whyformer_papers.reproduce.catalogue import reproductions
from whyformer_papers.reproduce.output import write
from whyformer_papers.reproduce.page import RecipePage, as_html, as_markdown
from whyformer_papers.reproduce.recipe import Reproduction
from whyformer_papers.reproduce.runner import run
from whyformer_papers.reproduce.sources import Given, Limit

BY_COLUMN = ("data", "heads", "lm_heads", "instead")  # options that name columns, not all of which a recipe has
OF_MASKS = ("heads", "spacy", "treebank", "search")
OF_HEADS = ("lm_heads",)


@dataclass
class Everything:
    """What was done so far, in the order of the papers, and why the other tables and figures were not."""

    done: dict[str, RecipePage] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def run_all(
    out: str | Path,
    *,
    only: Sequence[str] | None = None,
    limit: Limit = None,
    printed_texts: bool = False,
    say: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Everything:
    """Do every table and figure again that can be run, each as `run` does it, and write one page of them.

    The same call goes on where it was stopped: recipes of the same data and models share their journals, below `out`.
    The page, `index.html` and `index.md`, is written anew after each recipe.

    | parameter | meaning |
    |---|---|
    | `out` | the folder of the page, of what each recipe writes, and of the journals |
    | `only` | the columns to run, by their folder; recipes that have none of them are left out |
    | `limit` | how many texts are taken, for tables and curves; figures of texts show one of each kind |
    | `printed_texts` | leaves out columns whose texts come from a data set: the papers print the others themselves |
    | `say` | is told of each recipe, before it is run |
    | other options | those of `run`, where a recipe takes them |
    """
    folder = make_folder(out)
    recipes = reproductions()
    _check_names(recipes.values(), only, limit, options)
    everything = Everything()
    for number, (name, recipe) in enumerate(recipes.items(), 1):
        columns = _columns(recipe, only, printed_texts=printed_texts)
        if columns is None:
            continue
        say(f"{name} ({number} of {len(recipes)})")
        try:
            if recipe.refusal is not None:
                raise BadOption(recipe.refusal)
            if not columns:
                raise BadOption("its texts are those of a data set, and the paper prints others")
            how = _options(recipe, columns, limit, options)
            reproduced = run(recipe, out=folder, only=columns, **how)
        except WhyformerError as error:
            everything.refused[name] = one_line(str(error)).removeprefix(f"{name} ")
        else:
            pictures = [path.name for path in write(reproduced, folder) if path.suffix == ".png"]
            everything.done[name] = RecipePage(reproduced, tuple(pictures))
        _write_page(everything, folder)
    return everything


def _write_page(everything: Everything, folder: Path) -> None:
    for name, written in (("index.html", as_html), ("index.md", as_markdown)):
        files.write(regular(folder / name), written(everything.done, everything.refused))


def _columns(recipe: Reproduction, only: Sequence[str] | None, *, printed_texts: bool) -> list[str] | None:
    """The columns of a recipe that are run; None if it has none of those that are asked for."""
    asked = [column for column in recipe.columns if only is None or column.folder in only]
    if not asked:
        return None
    return list(dict.fromkeys(c.folder for c in asked if not printed_texts or recipe.shows_printed_texts(c)))


def _options(recipe: Reproduction, columns: Sequence[str], limit: Limit, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a recipe takes, for the columns that are run."""
    left_out = (*(() if recipe.masked else OF_MASKS), *(() if recipe.decoded else OF_HEADS))
    taken = {name: value for name, value in options.items() if name not in left_out}
    for name in BY_COLUMN:
        if isinstance(taken.get(name), Mapping):
            taken[name] = {column: value for column, value in taken[name].items() if column in (None, *columns)}
    if recipe.searches_all:
        limit = None
    elif isinstance(limit, Mapping):
        limit = {column: number for column, number in limit.items() if column is None or column in columns}
    return {**taken, "limit": limit}


def _check_names(recipes: Any, only: Sequence[str] | None, limit: Limit, options: Mapping[str, Given | Any]) -> None:
    """Raise if a column is named that no recipe has."""
    known = list(dict.fromkeys(column.folder for recipe in recipes for column in recipe.columns))
    named = [*(only or ()), *(name for name in (limit if isinstance(limit, Mapping) else ()) if name is not None)]
    for option in BY_COLUMN:
        value = options.get(option)
        if isinstance(value, (str, Path)) and option == "heads":
            raise BadOption(f"{str(value)!r} is one head mask, and there are many columns: write COLUMN=FILE")
        named += [column for column in value if column is not None] if isinstance(value, Mapping) else []
    for name in named:
        if name not in known:
            raise BadOption(f"no recipe has a column {name!r}; {nearest(name, known)}")
