"""Named or local data → a stream of Examples: text, pair or image, gold label, human rationale or mask, answers."""

from whyformer.datasets.dataset import Answer, BadRow, Dataset, Example, Rationale, label_index
from whyformer.datasets.images import StoredMask
from whyformer.datasets.open import Data, open_dataset, opened
from whyformer.datasets.recipes import RECIPES, Recipe
from whyformer.inputs.images import StoredImage

__all__ = [
    "RECIPES",
    "Answer",
    "BadRow",
    "Data",
    "Dataset",
    "Example",
    "Rationale",
    "Recipe",
    "StoredImage",
    "StoredMask",
    "label_index",
    "open_dataset",
    "opened",
]
