"""Tables that are to be explained: their texts, and of each the row and the label."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from whyformer.datasets import Dataset, Example, label_index, open_dataset
from whyformer.datasets.columns import IMAGES, ColumnNames
from whyformer.datasets.dataset import OnError
from whyformer.errors import BadInput, BadOption, shown
from whyformer.inputs.encoding import NO_ANSWER

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
