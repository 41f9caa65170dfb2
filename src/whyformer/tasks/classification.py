"""Classes: one of several, or any number of them where labels are independent."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.models.load import labels_of
from whyformer.tasks.targets import Label, Predicted, class_index
from whyformer.tasks.task import (
    Chosen,
    ExampleOutputs,
    ModelOutputs,
    Task,
    are_all_others,
    log_odds,
    log_odds_start,
    register,
)


def is_multi_label(model: nn.Module) -> bool:
    """Whether each class of a model is there or not, whatever the others are."""
    return getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"


@register
@dataclass(frozen=True)
class Classification(Task):
    """A class of the whole input. Logits are [batch, classes], a target is a class by index or name."""

    name, head, gives = "classes", "SequenceClassification", "the logits of classes"
    does = "classifies whole inputs"

    multi_label: bool = False  # whether each class is there or not, whatever the others are

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """The task with the names and the kind of the classes, as the configuration has them."""
        return cls(labels_of(model), is_multi_label(model))

    def logits(self, output: Any) -> Tensor | None:
        """Logits [batch, classes]; some models, as those of timm, return nothing else."""
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        return logits if isinstance(logits, Tensor) and logits.dim() == 2 else None

    def check(self, outputs: ModelOutputs, model: nn.Module) -> None:
        """Raise for a model whose labels are not those of its outputs."""
        name, count = type(model).__name__, outputs.logits.shape[-1]
        if len(self.labels) not in (0, count):
            raise UnsupportedModel(
                f"{name} has {count} outputs, and its configuration names {len(self.labels)} labels: set "
                "model.config.id2label to one name for each output"
            )

    def best(self, outputs: ModelOutputs) -> Tensor:
        """The class with the highest logit."""
        return outputs.logits.detach().argmax(-1)

    def parsed(self, target: Any, outputs: ModelOutputs, row: int) -> int:
        """The index of a class."""
        return class_index(target, self.labels, outputs.logits.shape[-1])

    def several(self, target: Any) -> Any:
        """A tuple is a list too: a class is one name or number."""
        return list(target) if isinstance(target, tuple) else target

    def runners_up(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor:
        """The class with the highest logit but one."""
        if outputs.logits.shape[-1] == 1:
            raise BadOption("versus='runner_up': this model has one output, and nothing to set it against")
        return outputs.logits.detach().scatter(1, chosen[:, None], -torch.inf).argmax(-1)

    def parts(self, logits: Tensor, chosen: Tensor) -> list[Tensor]:
        """The logit of the class."""
        return [chosen]

    def log_odds(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """`log(p / (1 - p))` of a class, [batch], from the logits [batch, classes]."""
        return super().output(logits, chosen) if self.multi_label else log_odds(logits, chosen)

    def log_odds_start(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """1 at the class, and at each other class minus its share among the others."""
        return log_odds_start(logits, chosen)

    def log_odds_by_default(self, classes: int) -> bool:
        """For more than two classes: of two, the other class is all the others."""
        return self.log_odds_misfit(classes) is None and classes > 2

    def log_odds_misfit(self, classes: int) -> str | None:
        """Labels that are independent, and a class without another, are not set against others."""
        if self.multi_label:
            return "the labels of this one are independent of each other: leave it out"
        return "this one has one output: leave it out" if classes < 2 else None

    def probabilities(self, logits: Tensor) -> Tensor | None:
        """Softmax, or sigmoid of independent labels."""
        if logits.dim() != 2 or (logits.shape[-1] == 1 and not self.multi_label):
            return None
        return logits.double().sigmoid() if self.multi_label else logits.double().softmax(-1)

    def odds(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor | None:
        """Of a class among the others, or of an independent label."""
        logits = outputs.logits.detach().double()
        return None if self.probabilities(logits) is None else self.log_odds(logits, chosen)

    def loss(self, logits: Tensor, chosen: Tensor, versus: Tensor | None) -> Tensor:
        """Cross-entropy of the class, which sets it against all others as its log-odds do."""
        if versus is not None and not are_all_others(versus):
            raise BadOption("the loss explains one class: leave `versus` out, or explain the logit")
        if logits.shape[-1] == 1:
            raise BadOption("a model of scores, or with one output, has no cross-entropy: explain the logit")
        if self.multi_label:
            return -nn.functional.logsigmoid(logits.gather(1, chosen[:, None]).squeeze(1))
        return nn.functional.cross_entropy(logits, chosen, reduction="none")

    def called(self, chosen: Any) -> str:
        """The name of a class."""
        return self.labels[chosen] if chosen < len(self.labels) else str(chosen)

    def label(self, of: ExampleOutputs, chosen: Chosen, beside: Chosen | None = None) -> Label:
        """The name of the class."""
        assert isinstance(chosen, int)
        return Label(chosen, self.called(chosen))

    def predicted(self, of: ExampleOutputs, chosen: Chosen, versus: Chosen | None) -> Predicted:
        """The predicted class, with the outputs of all."""
        logits = of.logits
        shares = self.probabilities(logits[None])
        probabilities = None if shares is None else tuple(shares[0].tolist())
        index = int(of.outputs.predicted[of.row])
        probability = None if probabilities is None else probabilities[index]
        names = tuple(self.called(i) for i in range(len(logits)))
        return Predicted(names[index], index, probability, tuple(logits.tolist()), probabilities, names)
