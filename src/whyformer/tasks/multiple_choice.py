"""Choice: which of several texts goes best with a text, each choice in a row of its own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import BadInput, BadOption, shown
from whyformer.inputs.text import Text, texts_of
from whyformer.tasks.targets import Label, Predicted, indices_of, numbered
from whyformer.tasks.task import RUNNER_UP, Asked, Chosen, ExampleOutputs, ModelOutputs, Task, register


@dataclass(frozen=True)
class Alternatives:
    """A text, and the choices of which one is to go with it."""

    text: str
    choices: tuple[str, ...]


@register
@dataclass(frozen=True)
class MultipleChoice(Task):
    """One of several choices. A target is a choice by its index or text, of which the beginning will do.

    The model reads the text with each choice in a row of its own, and gives each row one logit, which depends on no
    other row. So rows are run as a batch, [rows, units]; logits are [rows, 1]; and the logit of a choice is explained
    by the units of its row.
    """

    name, head, gives = "choice", "MultipleChoice", "the logits of choices"
    does = "chooses among texts"
    by_rows = True

    def arguments(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Each row as an example with one choice, [rows, 1, units]."""
        return {name: t.unsqueeze(1) if isinstance(t, Tensor) else t for name, t in tensors.items()}

    def logits(self, output: Any) -> Tensor | None:
        """One logit for each row, [rows, 1]."""
        logits = getattr(output, "logits", None)
        return logits if isinstance(logits, Tensor) and logits.dim() == 2 and logits.shape[1] == 1 else None

    def inputs(self, text: Any, question: Any, context: Any, choices: Any) -> tuple[Iterable[Any], bool]:
        """Texts with their choices; several texts have the same choices, or each a list of its own."""
        if question is not None or context is not None:
            raise BadInput("this model answers no questions, it chooses among texts: give a text and choices=")
        if text is None or choices is None or isinstance(choices, str):
            raise BadInput("this model chooses among texts: give a text, and its choices as a list (choices=)")
        several, each = texts_of(text), list(choices)
        if several is None:
            return [_checked(text, each)], True
        pairs = _paired(several, each)
        return (list(pairs) if isinstance(several, list) else pairs), False

    def rows(self, text: Any) -> list[Text]:
        """The text with each of its choices, as a pair."""
        return [(text.text, choice) for choice in text.choices]

    def best(self, outputs: ModelOutputs) -> Tensor:
        """A row has one logit."""
        return torch.zeros(len(outputs.logits), dtype=torch.long, device=outputs.logits.device)

    def parsed(self, target: Any, outputs: ModelOutputs, row: int) -> int:
        """A row has one logit, whatever its choice is."""
        if target != 0:
            raise BadOption(f"target {shown(target)}: a row of a model that chooses among texts has one logit, 0")
        return 0

    def runners_up(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor:
        """A row has no other logit."""
        raise BadOption(
            "versus: a row of a model that chooses among texts has one logit, and nothing to set it against"
        )

    def parts(self, logits: Tensor, chosen: Tensor) -> list[Tensor]:
        """The logit of the row."""
        return [chosen]

    def questions(self, of: ExampleOutputs, asked: Asked) -> list[tuple[Chosen, Chosen | None]]:
        """The explained choice, and the one that it is set against."""
        self.refuse_places(asked)
        logits = of.of_rows
        chosen = int(logits.argmax()) if asked.target is None else self.written(asked.target, of)
        if asked.versus is None:
            return [(chosen, None)]
        others = logits.index_fill(0, torch.tensor([chosen]), -torch.inf)
        versus = int(others.argmax()) if asked.versus == RUNNER_UP else self.written(asked.versus, of)
        if versus == chosen:
            raise BadOption(
                f"target and versus are the same, {_choices(of)[chosen]}, so there is nothing to explain: give "
                "another, or leave versus out"
            )
        return [(chosen, versus)]

    def written(self, target: Any, of: ExampleOutputs) -> int:
        """The index of a choice, given by index or text."""
        choices = _choices(of)
        indices = indices_of(target, choices) if isinstance(target, str) else [target]
        if len(indices) > 1:
            raise BadOption(f"target {shown(target)} may be any of {numbered(choices, indices)}: give the index")
        if not indices or not isinstance(indices[0], int) or not 0 <= indices[0] < len(choices):
            raise BadOption(f"target {shown(target)} is none of the choices: {numbered(choices)}")
        return indices[0]

    def label(self, of: ExampleOutputs, chosen: Chosen, beside: Chosen | None = None) -> Label:
        """The text of the choice."""
        assert isinstance(chosen, int)
        return Label(chosen, _choices(of)[chosen])

    def predicted(self, of: ExampleOutputs, chosen: Chosen, versus: Chosen | None) -> Predicted:
        """The choice with the highest logit; probabilities are the softmax over the rows of the text."""
        choices, logits = _choices(of), of.of_rows
        probabilities = logits.softmax(-1)
        index = int(logits.argmax())
        numbers = tuple(logits.tolist()), tuple(probabilities.tolist())
        return Predicted(choices[index], index, float(probabilities[index]), *numbers, choices)


def _choices(of: ExampleOutputs) -> tuple[str, ...]:
    return tuple(example.texts[1] for example in of.examples)


def _paired(texts: Iterable[Any], choices: Sequence[Any]) -> Iterator[Alternatives]:
    """Each text with its own list of choices, or with the same."""
    same, count = all(isinstance(choice, str) for choice in choices), 0
    for text in texts:
        if same or count < len(choices):
            yield _checked(text, choices if same else choices[count])
        count += 1
    if not same and count != len(choices):
        raise BadInput(f"{len(choices)} lists of choices for {count} texts: give one for each, or one for all")


def _checked(text: Any, choices: Any) -> Alternatives:
    """A text with its choices, as they have to be."""
    if not isinstance(text, str):
        raise BadInput(f"a model that chooses among texts takes one text beside them; found {shown(text)}")
    alternatives = () if isinstance(choices, str) or not isinstance(choices, Iterable) else tuple(choices)
    if len(alternatives) < 2 or not all(isinstance(choice, str) for choice in alternatives):
        raise BadInput(f"at least two texts to choose from are needed (choices=); found {shown(choices)}")
    return Alternatives(str(text), tuple(str(choice) for choice in alternatives))
