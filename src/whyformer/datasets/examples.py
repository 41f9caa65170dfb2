"""Example: one row of a data set, the same for every task; and how its label is found among a model's labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whyformer.errors import BadInput, listed, nearest, shown
from whyformer.inputs.encoding import Text
from whyformer.inputs.pictures import StoredImage
from whyformer.inputs.units import Span, Unit
from whyformer.tasks.labels import indices_of, numbered

if TYPE_CHECKING:
    from whyformer.datasets.masks import StoredMask


@dataclass(frozen=True)
class Answer:
    """A gold answer and the character of the context where it starts."""

    text: str
    start: int

    @property
    def span(self) -> Span:
        """Where the answer stands in the context, in characters."""
        return self.start, self.start + len(self.text)


@dataclass(frozen=True)
class Rationale:
    """What people marked as the reason for the label.

    `units`: the data set's own tokens, each with its span and part in the text. `spans`: the marked ones, as
    positions in `units` from … to before ….
    """

    units: tuple[Unit, ...]
    spans: tuple[Span, ...]

    @property
    def marked(self) -> tuple[bool, ...]:
        """For each unit whether it is part of the rationale."""
        inside = {i for start, end in self.spans for i in range(start, end)}
        return tuple(i in inside for i in range(len(self.units)))


@dataclass(frozen=True)
class Example:
    """One row of a data set.

    `row`: its number in the data, counted from 0. `text`: a text, or a pair; for a question, (question, context).
    `answers`: None if the row is no question, () if it has no answer. `meta`: the other short values of the row.
    `image` and `mask` are decoded when they are opened; the text of an image is empty, unless a column is named for it.
    `unreadable_label`: why the label of the row counts as none, if it has one that cannot be read.
    """

    row: int
    text: Text
    label: int | str | None = None
    rationale: Rationale | None = None
    answers: tuple[Answer, ...] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)
    image: StoredImage | None = field(default=None, hash=False)
    mask: "StoredMask | None" = field(default=None, hash=False)
    unreadable_label: str | None = None

    @property
    def input(self) -> Text | StoredImage:
        """What a model is given: the image, or else the text or pair."""
        return self.text if self.image is None else self.image

    @property
    def content(self) -> Text | dict[str, str | Text]:
        """What is in the row, for a hash of it: the text or pair, or hashes of the image and of its mask."""
        if self.image is None:
            return self.text
        hashes: dict[str, str | Text] = {"image": self.image.digest}
        if self.mask is not None:
            hashes["mask"] = self.mask.digest
        return {**hashes, "text": self.text} if self.text else hashes

    @property
    def question(self) -> str | None:
        """The question, if the row is one."""
        return self.text[0] if self.answers is not None else None

    @property
    def context(self) -> str | None:
        """Where the answer to the question is looked for."""
        return self.text[1] if self.answers is not None else None


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used, and why."""

    row: int
    reason: str


class Unusable(Exception):
    """Raised while one row is read; its message is the reason in BadRow."""


def label_index(label: int | str, labels: Sequence[str]) -> int:
    """The index of a label of the data among a model's labels, as `indices_of` finds it; a number is an index."""
    if isinstance(label, int) and not isinstance(label, bool):
        written = shown(label)
        if written in labels and list(labels).index(written) != label:
            named = list(labels).index(written)
            raise BadInput(f"label {label} may be the class of that name (index {named}) or of that index: give names")
        if 0 <= label < len(labels):
            return label
        raise BadInput(f"label {written} is outside 0 … {len(labels) - 1} ({listed(labels)})")
    if not isinstance(label, str):
        raise BadInput(f"a label is a name or an index; found {shown(label)}")
    indices = indices_of(label, labels)
    if len(indices) > 1:
        raise BadInput(f"label {shown(label)} may be any of {numbered(labels, indices)}: give names that are clear")
    if not indices:
        raise BadInput(f"label {shown(label)} is none of the labels: {nearest(label, labels)}")
    return indices[0]
