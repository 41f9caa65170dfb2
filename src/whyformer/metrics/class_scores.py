"""A method's scores for other classes than the one that was explained."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from whyformer.errors import CompletenessWarning
from whyformer.methods.documents import Document
from whyformer.methods.registry import Scores
from whyformer.methods.specs import MethodSpec
from whyformer.prediction import Prediction


@dataclass(frozen=True, eq=False)
class ClassScores:
    """What `Case.scores_for` calls; `by_class` keeps the predictions of each choice of classes for other methods."""

    method: MethodSpec
    prediction: Prediction
    by_class: dict[tuple[int, ...], Prediction]

    def __call__(self, classes: Tensor) -> Scores:
        """The scores of each example for its class."""
        key = tuple(classes.tolist())
        if key not in self.by_class:
            self.by_class[key] = self.prediction.of_classes(list(key))
        return scores_by(self.method, self.by_class[key])


def scores_by(method: MethodSpec, prediction: Prediction) -> Scores:
    """What a method gives."""
    with incomplete_unsaid():
        return method(prediction)


@contextmanager
def incomplete_unsaid() -> Iterator[None]:
    """Within it, that scores do not add up is not reported for every batch: how good they are is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompletenessWarning)
        yield


@dataclass(frozen=True, eq=False)
class DocumentScores:
    """What `Case.scores_for` calls for a document in windows."""

    method: MethodSpec
    document: Document

    def __call__(self, classes: Tensor) -> Scores:
        """The scores for a class, of [1, units]."""
        return self.of(int(classes))

    def of(self, index: int) -> Scores:
        """The method's scores for a class, by its index."""
        with incomplete_unsaid():
            return self.document.scores(self.method, [(index, None)])[0]
