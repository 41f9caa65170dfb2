"""The data of the papers, as each of them uses it: which rows, and which texts are left out."""

from dataclasses import replace

from whyformer.datasets.dataset import RowChoice
from whyformer.datasets.recipes import RECIPES, Recipe

_WHOLE = RowChoice()
_RANDOM = RowChoice(sample=2000)
_DUPLICATES = RowChoice(keep=("1",))


def _as(paper: str, data: str, choice: RowChoice = _WHOLE, **filters: float | int | str) -> Recipe:
    return replace(RECIPES.known[data], paper=paper, choice=choice, **filters)  # type: ignore[arg-type]


_PAPERS = (
    *(_as("attcat", data, min_tokens=10) for data in ("sst2", "qqp", "mnli")),
    *(_as("attcat", data, _RANDOM, min_tokens=10, note="2,000 random rows") for data in ("amazon", "yelp", "imdb")),
    *(_as("attcat", data) for data in ("squad", "squad_v2")),
    *(_as("mask_lrp", data, min_tokens=20) for data in ("sst2", "imdb", "yelp")),
    _as("mask_lrp", "mnli", min_tokens=20, min_probability=0.34, note="matched only, as in the authors' code"),
    _as("mask_lrp", "qqp", _DUPLICATES, min_tokens=20, min_probability=0.3, note="duplicates only"),
    *(_as("mask_lrp", data) for data in ("squad", "squad_v2")),
    _as("transformer_attribution", "movies"),
    *(_as("decoded", data) for data in ("sst2", "ag_news")),
)
for recipe in _PAPERS:
    RECIPES.add(recipe.name, recipe, __name__)
