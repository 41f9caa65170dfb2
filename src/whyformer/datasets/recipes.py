"""Well-known data sets by name: where each is, which split, which rows."""

from dataclasses import dataclass, replace

from whyformer.datasets.columns import QUESTION, ColumnNames
from whyformer.datasets.dataset import RowChoice
from whyformer.registry.names import Registry

_ALL = RowChoice()


@dataclass(frozen=True)
class Recipe:
    """One data set, or, where `paper` is given, the part of it that a paper uses. See `RECIPES`.

    `folder`: its name below a local data folder. `min_tokens` and `min_probability` are filters that need the model,
    applied by an evaluation and not here: texts of fewer tokens are left out, and rows whose predicted class is less
    probable.
    """

    data: str
    paper: str | None
    hub: str
    config: str | None
    split: str
    columns: ColumnNames
    folder: str
    choice: RowChoice = _ALL
    min_tokens: int | None = None
    min_probability: float | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """As `open_dataset` takes it: `sst2@attcat`, or `sst2` for the whole split."""
        return f"{self.data}@{self.paper}" if self.paper else self.data


def _plain(data: str, hub: str, split: str, text: str | tuple[str, str], folder: str | None = None) -> Recipe:
    name, _, config = hub.partition(":")
    annotated = {"answers": "answers"} if "squad" in data else {"label": "label"}
    return Recipe(data, None, name, config or None, split, {"text": text, **annotated}, folder or data)


_LABELLED: ColumnNames = {"image": "image", "label": "label"}
_MASKED: ColumnNames = {"image": "image", "mask": "mask"}
_GTSEGS = (
    "It is gtsegs_ijcv.mat of Guillaumin, Küttel and Ferrari (ImageNet auto-annotation with segmentation propagation)"
)
_PLAIN = (
    _plain("sst2", "nyu-mll/glue:sst2", "validation", "sentence"),
    _plain("imdb", "stanfordnlp/imdb", "test", "text"),
    _plain("yelp", "fancyzhx/yelp_polarity", "test", "text", folder="yelp_polarity"),
    _plain("amazon", "fancyzhx/amazon_polarity", "test", "content", folder="amazon_polarity"),
    _plain("ag_news", "fancyzhx/ag_news", "test", "text"),
    _plain("mnli", "nyu-mll/glue:mnli", "validation_matched", ("premise", "hypothesis")),
    _plain("qqp", "nyu-mll/glue:qqp", "validation", ("question1", "question2")),
    _plain("squad", "rajpurkar/squad", "validation", QUESTION),
    _plain("squad_v2", "rajpurkar/squad_v2", "validation", QUESTION),
    replace(
        _plain("movies", "eraser-benchmark/movie_rationales", "test", "review", folder="eraser_movies"),
        note="the rationales are looked up in the review; an ERASER folder gives their tokens",
    ),
)
_IMAGES = (
    Recipe("imagenet", None, "ILSVRC/imagenet-1k", None, "validation", _LABELLED, "imagenet"),
    Recipe("imagenet_segmentation", None, "", None, "gtsegs_ijcv", _MASKED, "imagenet_segmentation", note=_GTSEGS),
    Recipe("pets", None, "timm/oxford-iiit-pet", None, "test", _LABELLED, "pets", note="with trimaps only by local="),
    Recipe("tiny_imagenet", None, "zh-plus/tiny-imagenet", None, "validation", _LABELLED, "tiny_imagenet"),
)

RECIPES: Registry[Recipe] = Registry("recipe", "recipes")
for recipe in (*_PLAIN, *_IMAGES):
    RECIPES.add(recipe.name, recipe, __name__)
