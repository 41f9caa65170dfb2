"""Data sets: examples that are read one after the other, as often as needed, each with the number of its row."""

import hashlib
import heapq
import random
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Self

from whyformer.datasets.columns import Columns
from whyformer.datasets.source import Source, StoredRow
from whyformer.errors import BadInput, BadOption, LabelWarning, listed, nearest, shown
from whyformer.inputs.batch import Text
from whyformer.inputs.images import StoredImage
from whyformer.inputs.units import Span, Unit
from whyformer.tasks.targets import indices_of, numbered

if TYPE_CHECKING:
    from whyformer.datasets.images import StoredMask


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


OnError = Literal["refuse", "skip"]
FAR = 10_000  # rows; over more than that a source that can jump is opened anew


NAMED = 3  # labels that a warning quotes


@dataclass(frozen=True)
class RowChoice:
    """Which rows are taken: those with a label, as it is written in the data; a random sample; the first ones.

    A limit makes a random sample smaller, so that it stays random. `min_tokens` and `min_probability` need the model,
    and are for an evaluation to apply: texts of fewer tokens are left out, and those whose class is less probable.
    """

    keep: tuple[str, ...] = ()
    sample: int | None = None
    seed: int = 0
    limit: int | None = None
    min_tokens: int | None = None
    min_probability: float | None = None


class Dataset:
    """A stream of Examples that can be read several times; a few rows are held at a time.

    `format` is csv, jsonl, parquet, eraser, conll, squad, coco, mat, images, hub, saved or memory. `source` gives the
    rows as stored. `skipped` lists the bad rows that were met so far with `on_error="skip"`.
    """

    def __init__(
        self,
        source: Source,
        columns: Columns,
        *,
        name: str | None = None,
        choice: RowChoice | None = None,
        on_error: OnError = "refuse",
        labels: Sequence[str] | None = None,
    ) -> None:
        if on_error not in ("refuse", "skip"):
            raise BadOption(f"on_error={on_error!r}: known: refuse, skip")
        self.source, self.columns = source, columns
        self.name = name or source.where
        self.choice = choice or RowChoice()
        for option in ("limit", "sample"):
            _check_rows(option, getattr(self.choice, option))
        self.on_error, self.labels = on_error, labels
        self._skipped: dict[int, str] = {}
        self._unreadable_labels: dict[int, str] = {}
        self._cursor: tuple[int, Iterator[StoredRow]] | None = None  # the next row, and the rows from there on

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, format={self.format!r}, columns={', '.join(self.columns.used)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cursor": None}

    def for_texts(self) -> Self:
        """The same rows for their texts alone: one whose label is missing or of no use has none, and is no bad row."""
        return type(self)(
            self.source,
            replace(self.columns, needs_label=False),
            name=self.name,
            choice=self.choice,
            on_error=self.on_error,
            labels=self.labels,
        )

    @property
    def format(self) -> str:
        """How the data is stored."""
        return self.source.format

    @cached_property
    def digest(self) -> str:
        """A hash of the content and of the columns that are used; the same rows have the same under any path."""
        facts: tuple[Any, ...] = (self.source.digest(), self.format, self.columns)
        if self.columns.images is not None:
            facts += (self.columns.images,)
        return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()

    @property
    def skipped(self) -> tuple[BadRow, ...]:
        """The bad rows met so far, in order of their numbers."""
        return tuple(BadRow(row, reason) for row, reason in sorted(self._skipped.items()))

    def warn_of_labels(self) -> None:
        """Warn of the labels met so far that cannot be read, and so count as none."""
        unreadable = self._unreadable_labels
        if unreadable:
            first = "; ".join(f"row {row}: {reason}" for row, reason in islice(sorted(unreadable.items()), NAMED))
            more = f"; and {len(unreadable) - NAMED} more" if len(unreadable) > NAMED else ""
            count = "1 label" if len(unreadable) == 1 else f"{len(unreadable)} labels"
            warnings.warn(
                f"{self.name}: {count} cannot be read, so nothing is called right or wrong there ({first}{more})",
                LabelWarning,
                stacklevel=3,
            )

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        total = self.source.count()
        if total is None or self.choice.keep or self.on_error == "skip":
            raise TypeError("how many examples there are is known only after they were read")
        return min([total, *(n for n in (self.choice.sample, self.choice.limit) if n is not None)])

    def __iter__(self) -> Iterator[Example]:
        numbered = enumerate(self.source.read(0, self.columns.used))
        return islice(self._examples(self._taken(numbered)), min(self.choice.limit or sys.maxsize, sys.maxsize))

    def rows(self, start: int, stop: int) -> list[Example]:
        """The examples among the rows `start` to before `stop`; a call goes on where the last one ended."""
        stop = min(stop, self._end, sys.maxsize)
        if start >= stop:
            return []
        row, rows = self._rows_from(start)
        numbered = list(enumerate(islice(rows, start - row, stop - row), start))
        if len(numbered) == stop - start:  # else there are no more
            self._cursor = (stop, rows)
        return list(self._examples(self._taken(numbered)))

    def chunks(self, size: int) -> Iterator[tuple[int, int]]:
        """Row numbers from … to before …, `size` rows each after random choice; `rows(*chunk)` gives their examples."""
        if not self.total():
            raise BadInput(f"{self.source.where} holds no rows")
        if self._sample is not None:
            inside = [row for row in sorted(self._sample) if row < self._end]
            groups = [inside[i : i + size] for i in range(0, len(inside), size)]
            yield from ((group[0], group[-1] + 1) for group in groups)
            return
        total = min(self.total(), self._end)
        yield from ((start, min(start + size, total)) for start in range(0, total, size))

    def total(self) -> int:
        """How many rows the source has, bad ones and those not chosen included; counted once where it does not say."""
        return self._total

    @cached_property
    def _total(self) -> int:
        known = self.source.count()
        return sum(1 for _ in self.source.read()) if known is None else known

    def _rows_from(self, start: int) -> tuple[int, Iterator[StoredRow]]:
        cursor, self._cursor = self._cursor, None
        if cursor and cursor[0] <= start and (not self.source.seekable or start - cursor[0] <= FAR):
            return cursor
        return start, self.source.read(start, self.columns.used)

    @cached_property
    def _end(self) -> int:
        """The row after the last that the limit allows."""
        limit = self.choice.limit
        if limit is None:
            return sys.maxsize
        if self.on_error == "refuse" and not self.choice.keep and self.choice.sample is None:
            return limit
        last = -1
        for one in self:
            last = one.row
        return last + 1

    @cached_property
    def _sample(self) -> frozenset[int] | None:
        """The random rows: those with the smallest of as many random numbers, the same on every machine."""
        if self.choice.sample is None:
            return None
        size = min(self.choice.sample, self.choice.limit or self.choice.sample, self.total())
        numbers = random.Random(self.choice.seed)
        drawn = ((numbers.random(), row) for row in range(self.total()))
        return frozenset(row for _, row in heapq.nsmallest(size, drawn))

    def _taken(self, numbered: Iterable[tuple[int, StoredRow]]) -> Iterator[tuple[int, StoredRow]]:
        sample, keep, label = self._sample, self.choice.keep, self.columns.label
        for row, record in numbered:
            if sample is not None and row not in sample:
                continue
            if keep and label and not isinstance(record, str) and _is_other(record.get(label), keep):
                continue
            yield row, record

    def _examples(self, numbered: Iterable[tuple[int, StoredRow]]) -> Iterator[Example]:
        from whyformer.datasets.images import illustrated
        from whyformer.datasets.parsing import example

        for row, record in numbered:
            try:
                if isinstance(record, str):
                    raise Unusable(record)
                one = example(row, record, self.columns, self.labels)
                if one.unreadable_label is not None:
                    self._unreadable_labels[row] = one.unreadable_label
                images = self.columns.images
                yield one if images is None else illustrated(one, record, images, self.source)
            except Unusable as reason:
                if self.on_error == "refuse":
                    raise BadInput(
                        f"{self.source.place(row)}: {reason}; on_error='skip' (--on-error skip) leaves such rows out"
                    ) from None
                self._skipped[row] = str(reason)


def _check_rows(option: str, rows: int | None) -> None:
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int)):
        raise BadOption(f"{option}={shown(rows)}: a whole number of rows is needed")
    if rows is not None and rows < 1:
        raise BadOption(f"{option}={rows}: at least one row is needed")


def _is_other(label: Any, keep: Sequence[str]) -> bool:
    """Whether a label is none of those kept; what cannot be a label is left for `example` to refuse."""
    return label is None or (isinstance(label, str | int | float) and str(label) not in keep)
