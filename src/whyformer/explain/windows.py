"""Long texts: the window of a context in which the answer stands, and documents explained by all their windows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from whyformer.errors import BadOption
from whyformer.explain.questions import ExplainedOutput, asked_pairs, labels_of_output, numbering
from whyformer.inputs.encoding import TextInput
from whyformer.inputs.windows import Windows
from whyformer.methods.documents import Document
from whyformer.methods.registry import Scores
from whyformer.methods.specs import MethodSpec
from whyformer.models.loading import Subject
from whyformer.perturb.windows import WindowRunner
from whyformer.tasks.task import Asked, ExampleOutputs, Task

Rows = tuple[list[TextInput], list[list[Asked]], list[int | None]]  # what is asked of each, and its number


def check_windows(subject: Subject, task: Task, windows: Windows) -> None:
    """Raise if a model's texts are not read in windows as they are asked for."""
    if subject.takes_images and windows != Windows():
        raise BadOption("windows, window_size and overlap are for long texts; an image is read whole: leave them out")
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
    """What is asked of a document, with the scores of its units, by all its windows: `size` are run at a time."""
    document = Document(subject, task, whole, parts, size=size, needs=spec.needs)
    of = ExampleOutputs(document.outputs, 0, whole, subject.tokenizer)
    if any(one.explains == "log_odds" for one in asked):
        raise BadOption(
            "explains='log_odds' is not for windows='merge': logits are merged as a mean, and log-odds are none; leave "
            "one of the two out"
        )
    pairs = [pair for one in asked for pair in asked_pairs(of, replace(one, explains="logit"))]
    for (chosen, versus), scores in zip(pairs, document.scores(spec, pairs), strict=True):
        yield ExplainedOutput(0, 0, whole, *labels_of_output(of, chosen, versus)), scores
