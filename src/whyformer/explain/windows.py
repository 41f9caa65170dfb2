"""Long texts: the window of a context in which the answer stands, and documents explained by all their windows."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.explain.questions import ExplainedOutput, labels_of_output, numbering
from whyformer.inputs.encoding import TextInput, collate
from whyformer.inputs.windows import Windows
from whyformer.methods.registry import Scores
from whyformer.methods.specs import MethodSpec
from whyformer.models.loading import Subject
from whyformer.perturb.runner import Runner
from whyformer.perturb.windows import WindowRunner, attended
from whyformer.prediction import Prediction
from whyformer.progress import part
from whyformer.tasks.task import Asked, ExampleOutputs, Outputs, Task

Rows = tuple[list[TextInput], list[list[Asked]], list[int | None]]  # what is asked of each, and its number


def check_windows(task: Task, windows: Windows) -> None:
    """Raise if a model's texts are not read in windows as they are asked for."""
    if windows.merge and (task.form != "classes" or task.by_rows):
        raise BadOption(f"windows='merge' is for models that give one output for a text; this one {task.does}")
    if task.name != "answer" and not windows.merge and (windows.size, windows.overlap) != (None, None):
        raise BadOption("window_size and overlap are for the contexts of questions, and for windows='merge'")


def in_windows(
    subject: Subject,
    windows: Windows,
    examples: Sequence[TextInput],
    asked: Sequence[list[Asked]],
    numbers: Sequence[int | None],
) -> Rows:
    """Questions with their contexts as the model can take them: of a long context the window that is explained.

    Several answers to one question may stand in several windows, so each has a row of its own.
    """
    parts = []
    for example, number in zip(examples, numbers, strict=True):
        with numbering(number):
            parts.append(windows.parts(subject, example))
    engine = WindowRunner(subject.model, [one for several in parts if len(several) > 1 for one in several])
    rows: Rows = ([], [], [])
    for several, of_text, number in zip(parts, asked, numbers, strict=True):
        for each in [of_text] if len(several) == 1 else [[one] for one in of_text]:
            with numbering(number):
                rows[0].append(engine.explained(several, each[0].target))
            rows[1].append(each)
            rows[2].append(number)
    return rows


def merged_outputs(
    subject: Subject,
    task: Task,
    whole: TextInput,
    parts: Sequence[TextInput],
    asked: Sequence[Asked],
    spec: MethodSpec,
    size: int,
) -> Iterator[tuple[ExplainedOutput, Scores]]:
    """What is asked of a document, with the scores of its units: the mean over the windows in which each stands.

    The document's logits are the mean over the windows; every window is explained towards the document's output.
    `size` windows are run at a time.
    """
    engine = Runner(subject.model, lambda output: _logits(task, subject, output))
    logits = engine.logits([attended(window) for window in parts], 1).mean(0, keepdim=True)
    outputs = Outputs(logits, task, torch.ones(1, len(whole), dtype=torch.bool))
    task.check(outputs, subject.model)
    of = ExampleOutputs(outputs, 0, whole, subject.tokenizer)
    pairs = [pair for one in asked for pair in task.questions(of, one)]
    merged = [Merged(len(whole), spec) for _ in pairs]
    for start in range(0, len(parts), size):
        batch = parts[start : start + size]
        with part(start // size, -(-len(parts) // size)):
            prediction = Prediction(subject.model, collate(subject, batch), relevance=spec.of.relevance)
            for (chosen, versus), document in zip(pairs, merged, strict=True):
                against = None if versus is None else [versus] * len(batch)
                document.add(spec(prediction.towards([chosen] * len(batch), against)), batch)
    for (chosen, versus), document in zip(pairs, merged, strict=True):
        yield ExplainedOutput(0, 0, whole, *labels_of_output(of, chosen, versus)), document.scores


def _logits(task: Task, subject: Subject, output: Any) -> Tensor:
    logits = task.logits(output)
    if logits is None:
        raise UnsupportedModel(f"{type(subject.model).__name__} does not give {task.gives}")
    return logits


class Merged:
    """The scores of a document, as those of its windows come in."""

    def __init__(self, units: int, spec: MethodSpec):
        self.spec, self.windows = spec, 0
        self.signed: bool | None = None
        self.counts = torch.zeros(units, dtype=torch.float64)
        self.sums: Tensor | None = None  # [units], or [layers, units]

    def add(self, scores: Scores, windows: Sequence[TextInput]) -> None:
        """Take in the scores of some windows."""
        if scores.ranks:
            raise BadOption(
                f"windows='merge' takes means of scores, and {self.spec.label} ranks the units of one window: give "
                "another method"
            )
        values = scores.values.double().cpu()
        if self.sums is None:
            self.signed, self.sums = scores.signed, torch.zeros(*values.shape[:-2], len(self.counts)).double()
        for row, window in enumerate(windows):
            places = torch.arange(len(window)) if window.window is None else torch.from_numpy(window.window.places)
            self.counts[places] += 1
            self.sums[..., places] += values[..., row, : len(window)]
        self.windows += len(windows)

    @property
    def scores(self) -> Scores:
        """The means over the windows."""
        assert self.sums is not None
        return Scores((self.sums / self.counts).unsqueeze(-2), {"windows": self.windows}, self.signed)
