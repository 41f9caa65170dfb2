"""A method's scores for other classes than the one that was explained."""

import warnings
from dataclasses import dataclass

from torch import Tensor

from whyformer.errors import CompletenessWarning
from whyformer.methods.registry import Scores
from whyformer.methods.specs import MethodSpec
from whyformer.prediction import Prediction


@dataclass(frozen=True, eq=False)
class ClassScores:
    """What `Case.scores_for` calls; `by_class` keeps the predictions of each choice of classes for other methods."""

    method: MethodSpec
    prediction: Prediction
    by_class: dict[tuple[int, ...], Prediction]

    def __call__(self, classes: Tensor) -> Tensor:
        """The scores of each example for its class."""
        key = tuple(classes.tolist())
        if key not in self.by_class:
            self.by_class[key] = self.prediction.towards(list(key))
        return scores_by(self.method, self.by_class[key]).total


def scores_by(method: MethodSpec, prediction: Prediction) -> Scores:
    """What a method gives; that scores do not add up is not reported for every batch: how good they are is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompletenessWarning)
        return method(prediction)
