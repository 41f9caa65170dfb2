"""Named or local data → a stream of Examples: text or pair, gold label, human rationale, answers."""

from whyformer.datasets.dataset import Dataset
from whyformer.datasets.examples import Answer, BadRow, Example, Rationale, label_index
from whyformer.datasets.opening import Data, open_dataset, opened
from whyformer.datasets.recipes import Recipe, recipes

__all__ = [
    "Answer",
    "BadRow",
    "Data",
    "Dataset",
    "Example",
    "Rationale",
    "Recipe",
    "label_index",
    "open_dataset",
    "opened",
    "recipes",
]
