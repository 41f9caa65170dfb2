"""Score: a number that is no class, of regression models and of rerankers with one logit."""

from dataclasses import dataclass

from torch import Tensor, nn

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.tasks.classification import Classification, is_multi_label
from whyformer.tasks.task import ModelOutputs, register

UNNAMED = ("LABEL_0",)  # what transformers calls an output that has no name
VALUE = "score"


def is_regression(model: nn.Module) -> bool:
    """Whether a model predicts scores and not classes: it says so, or has one output and does not say otherwise."""
    config = getattr(model, "config", None)
    problem = getattr(config, "problem_type", None)
    return problem == "regression" or (problem is None and getattr(config, "num_labels", None) == 1)


def classes_of(model: nn.Module) -> Classification:
    """What a model says whose logits are [batch, classes]: classes, or scores."""
    return (Regression if Regression.fits(model) else Classification).of(model)


@register
@dataclass(frozen=True)
class Regression(Classification):
    """The value of the model's output, which has no probability. Logits are [batch, scores].

    People are told of one score. From ready tensors each of several scores can be explained, by its index or name.
    """

    name, head, gives = "score", "SequenceClassification", "scores"
    does = "gives a score"

    @classmethod
    def fits(cls, model: nn.Module) -> bool:
        """Whether it is a regression, or has one output that is no independent label."""
        one = getattr(getattr(model, "config", None), "num_labels", None) == 1
        return is_regression(model) or (one and not is_multi_label(model))

    def check(self, outputs: ModelOutputs, model: nn.Module) -> None:
        """Raise for a model with several scores, or whose labels are not those of its outputs."""
        count = outputs.logits.shape[-1]
        if count > 1:
            raise UnsupportedModel(
                f"{type(model).__name__} predicts {count} scores (problem_type is 'regression'), not classes with "
                "probabilities: explain one of them from tensors, whyformer.attribute(model, inputs, target=0)"
            )
        super().check(outputs, model)

    def probabilities(self, logits: Tensor) -> None:
        """A score has no probability."""
        return

    def log_odds_misfit(self, classes: int) -> str | None:
        """A score has no odds."""
        return f"this one {self.does}: leave it out"

    def loss(self, logits: Tensor, chosen: Tensor, versus: Tensor | None) -> Tensor:
        """A score has no cross-entropy."""
        raise BadOption("a model of scores, or with one output, has no cross-entropy: explain the logit")

    def called(self, chosen: int) -> str:
        """The name in the configuration, or "score"."""
        return VALUE if self.labels == UNNAMED else super().called(chosen)
