"""The rows of a table as texts, the rows of a run that one explanation shows, and the windows of long texts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from whyformer.arrays import FloatArray
from whyformer.datasets import Dataset, Example, label_index, open_dataset
from whyformer.datasets.columns import IMAGES, ColumnNames
from whyformer.datasets.dataset import OnError
from whyformer.errors import BadInput, BadOption, shown
from whyformer.explain.request import ExplainedOutput, asked_pairs, labels_of_output, numbering
from whyformer.inputs.batch import NO_ANSWER, ReadInput, TextInput
from whyformer.inputs.units import Unit
from whyformer.inputs.windows import Windows
from whyformer.methods.long_texts import Document
from whyformer.methods.method import MethodSpec, Scores
from whyformer.models.load import Subject
from whyformer.perturb.engine import WindowRunner
from whyformer.prediction import Prediction
from whyformer.recorder import Needs
from whyformer.tasks.targets import Target, class_index, plain_target
from whyformer.tasks.task import Asked, ExampleOutputs, Task

T = TypeVar("T")
LOOKED_AT = 100  # rows in which a column of texts is looked for


@dataclass
class TableOfTexts:
    """The rows of a data set that is explained: `rows` has the number of each text that was given out so far."""

    data: Dataset
    labels: Sequence[str]  # those of the model
    rows: list[int] = field(default_factory=list)
    golds: dict[int, str | None] = field(default_factory=dict)
    columns: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, held: Any, columns: ColumnNames | None, on_error: OnError, labels: Sequence[str]
    ) -> "TableOfTexts | None":
        """What a table, or a data set, holds; None for anything else."""
        if on_error not in ("refuse", "skip"):
            raise BadOption(f"on_error={on_error!r}: known: refuse, skip")
        if isinstance(held, Dataset):
            if columns is not None:
                raise BadOption("columns= is for a table: this data set was opened already, give them there")
            return cls(held, labels)
        if columns is None and not _is_table(held):
            return None
        if columns is not None and isinstance(held, str | tuple):
            raise BadOption(f"columns={shown(columns)} names columns of a table; found {shown(held)}")
        names = dict(columns or {})
        if "text" not in names and "image" not in names and _is_table(held):
            texts = _columns_of_texts(held)
            if not texts and not _is_pictured(held):
                return None
            names |= {"text": texts[0]} if len(texts) == 1 else {}
        return cls(open_dataset(held, columns=names or None, on_error=on_error).for_texts(), labels)

    def inputs(self) -> Iterator[Any]:
        """The texts, pairs or images."""
        for example in self.data:
            self.rows.append(example.row)
            self.golds[example.row] = gold_name(example, self.labels)
            self.columns[example.row] = example.meta
            yield example.input
        self.data.warn_of_labels()

    def questions(self) -> tuple[list[str], list[str]]:
        """The questions and their contexts, for a model that answers them."""
        pairs = list(self.inputs())
        if not all(isinstance(pair, tuple) for pair in pairs):
            raise BadInput(f"this model answers questions: {self.data.name} needs the columns question and context")
        return [question for question, _ in pairs], [context for _, context in pairs]

    def skipped(self, among: Mapping[int, str]) -> dict[int, str]:
        """The rows left out: those that could not be read, and those that were read and could not be explained."""
        return {bad.row: bad.reason for bad in self.data.skipped} | {self.rows[n]: why for n, why in among.items()}


def gold_name(example: Example, labels: Sequence[str]) -> str | None:
    """The label of an example by its name among the model's; one that the model does not have as it is written."""
    if example.answers is not None:
        return example.answers[0].text if example.answers else NO_ANSWER
    if example.label is None:
        return None
    try:
        return labels[label_index(example.label, labels)] if labels else str(example.label)
    except BadInput:
        return str(example.label)


def _is_table(held: Any) -> bool:
    """Whether it is a DataFrame of pandas, or one split of `datasets`."""
    frame = hasattr(held, "notna") and hasattr(held, "columns")
    return frame or (hasattr(held, "column_names") and hasattr(held, "features") and hasattr(held, "__len__"))


def _names(table: Any) -> list[Any]:
    names = getattr(table, "column_names", None)
    return list(table.columns if names is None else names)


def _is_pictured(table: Any) -> bool:
    return any(str(name).casefold() in IMAGES for name in _names(table))


def _columns_of_texts(table: Any) -> list[str]:
    first = {name: islice(table[name], LOOKED_AT) for name in _names(table)}
    return [str(name) for name, values in first.items() if any(isinstance(value, str) for value in values)]


def without_bad(
    explain: Callable[[Sequence[Any], int], list[T]], texts: Sequence[Any], first: int, skipped: dict[int, str] | None
) -> list[T]:
    """What is made of texts together; if one of them is bad, of each by itself, without those that are.

    `skipped` gets the bad ones by their numbers; without it what is wrong is raised.
    """
    try:
        return explain(texts, first)
    except BadInput as error:
        if skipped is None:
            raise
        if len(texts) == 1:
            skipped[first] = str(error.__cause__ or error)
            return []
    return [one for number, text in enumerate(texts, first) for one in without_bad(explain, [text], number, skipped)]


ShownUnits = tuple[
    tuple[Unit, ...], tuple[str, ...], FloatArray, FloatArray | None
]  # with texts, scores, and scores by layer


def shown_units(question: ExplainedOutput, scores: Scores) -> ShownUnits:
    """The units of the row that is explained, or of two rows whose outputs are set against each other.

    The two rows hold the same text, and each its own choice. The explained number is o(first) - o(second), and the
    output o of a row depends on the units of that row alone. So a unit of the text, which stands in both, gets the
    difference of its two scores; one of the first choice its score; one of the second its score with the other sign.
    Scores without a sign say how much a unit matters, and not which way: there they are added.
    """
    total = scores.total.double().cpu().numpy()
    layers = None if scores.layers is None else scores.layers.double().cpu().numpy()
    example, row, length = question.example, question.row, len(question.example.units)
    if question.other is None:
        in_layers = None if layers is None else layers[:, row, :length]
        return example.units, example.texts, total[row, :length], in_layers
    if scores.ranks or scores.seen is not None:
        raise BadOption(
            "versus: this method ranks the units of one row, and two choices stand in two: leave versus out"
        )
    against, other = question.other
    units, moved = _both(example, other)

    def difference(numbers: FloatArray) -> FloatArray:
        combined = np.zeros((*numbers.shape[:-2], len(units)))
        combined[..., :length] = numbers[..., row, :length]
        combined[..., moved] += numbers[..., against, : len(other.units)] * (-1 if scores.signed else 1)
        return combined

    texts = (*example.texts, other.texts[1])
    return units, texts, difference(total), None if layers is None else difference(layers)


def of_chosen_rows(prediction: Prediction, target: Target, versus: Target, needs: Needs) -> Prediction:
    """The prediction of the row of one choice of each example: the target, or that with the highest logit."""
    if versus is not None:
        raise BadOption("versus: the units of two choices stand in two rows; explain each by its target, and compare")
    logits = prediction.outputs.logits.detach().reshape(-1, prediction.batch.choices or 1)
    written = plain_target(target)
    each = logits.argmax(-1).tolist() if written is None else written
    each = each if isinstance(each, list) else [each] * len(logits)
    if len(each) != len(logits):
        raise BadOption(f"{len(each)} targets for {len(logits)} examples: give one, or one for each")
    count = logits.shape[1]
    rows = [example * count + class_index(choice, (), count) for example, choice in enumerate(each)]
    return Prediction(prediction.model, prediction.batch.rows(rows), needs=needs)


def _both(first: ReadInput, second: ReadInput) -> tuple[tuple[Unit, ...], list[int]]:
    """The units of the first row, then those that the second has beside them; where each unit of the second stands."""
    places = {key: place for place, key in enumerate(_keys(first.units)) if key is not None}
    units, moved = list(first.units), []
    for unit, key in zip(second.units, _keys(second.units), strict=True):
        place = None if key is None else places.get(key)
        moved.append(len(units) if place is None else place)
        if place is None:
            units.append(replace(unit, part=2) if unit.part == 1 else unit)
    return tuple(units), moved


def _keys(units: Sequence[Unit]) -> list[tuple[object, ...] | None]:
    """What tells the units of the text and the special tokens up to the choice apart; None from the choice on."""
    choice = next((place for place, unit in enumerate(units) if unit.part == 1), len(units))
    keys: list[tuple[object, ...] | None] = []
    for place, unit in enumerate(units):
        which = sum(before.special for before in units[:place]) if unit.special else unit.span
        keys.append((which, unit.piece) if place < choice or unit.part == 0 else None)
    return keys


WindowRows = tuple[list[TextInput], list[list[Asked]], list[int | None]]  # what is asked of each, and its number


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
) -> WindowRows:
    """Questions with their contexts as the model can take them: of a long context the window that is explained.

    Several answers to one question may stand in several windows, so each has a row of its own.
    """
    parts = []
    for example, number in zip(examples, numbers, strict=True):
        with numbering(number):
            parts.append(windows.parts(subject, example))
    engine = WindowRunner(subject.model, [one for several in parts if len(several) > 1 for one in several])
    rows: WindowRows = ([], [], [])
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
