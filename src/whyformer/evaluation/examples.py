"""Items: the examples of a data set as a model takes them, and which of them are run together."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whyformer.datasets import Example, label_index
from whyformer.inputs.encoding import TextInput, encode
from whyformer.inputs.units import Span
from whyformer.inputs.windows import CUT, Windows
from whyformer.metrics.case import Annotation, Rationale, answer_tokens
from whyformer.models.limits import limits_of
from whyformer.models.loading import Subject
from whyformer.perturb import LONGEST_SEARCH


@dataclass(frozen=True)
class Item:
    """An example as the model takes it, with what people annotated."""

    row: int
    encoded: TextInput
    annotation: Annotation
    content: str  # a hash of the example
    windows: tuple[TextInput, ...] = ()  # of a context or document that does not fit
    answer: Span | None = None  # the characters of the gold answer

    @property
    def units(self) -> int:
        """How many units can be ranked."""
        return sum(not unit.special for unit in self.encoded.units)

    @property
    def searchable(self) -> bool:
        """Whether the text is short enough for a search of the best order."""
        return self.units <= LONGEST_SEARCH

    def in_window(self, window: TextInput) -> "Item":
        """The example with one window of its context; an answer that stands outside of it is missed."""
        tokens = None if self.answer is None else answer_tokens(window, self.answer)
        whole = self.annotation.answer
        length = None if whole is None else whole[1] - whole[0] + 1
        return replace(self, encoded=window, annotation=replace(self.annotation, answer=tokens, answer_length=length))


def item_of(subject: Subject, example: Example, windows: Windows = CUT) -> Item:
    """An example, encoded; `BadInput` says what is wrong with it.

    A long context is read in windows, and so is a long document if `windows` are merged.
    """
    whole = subject.task == "answer" or windows.merge
    encoded = encode(subject, example.text, whole=whole)
    parts = windows.parts(subject, encoded) if whole else (encoded,)
    gold = None if example.label is None else label_index(example.label, subject.labels)
    first = example.answers[0].span if example.answers else None
    answer = None if first is None else answer_tokens(encoded, first)
    annotation = Annotation(
        gold, answer, _rationale(example), unanswered=example.answers is not None and answer is None
    )
    tensors = {name: numbers.tolist() for name, numbers in encoded.tensors.items()}
    seen = [tensors, [unit.special for unit in encoded.units]]  # what is cut off depends on the tokenizer
    if len(parts) > 1:
        seen.append([part.window.places.tolist() for part in parts if part.window is not None])
    content = hashed([example.text, gold, first, _marked(example), seen])
    return Item(example.row, encoded, annotation, content, parts if len(parts) > 1 else (), first)


def batches(items: Sequence[Item], device: str, ceiling: int) -> Iterator[list[Item]]:
    """Items of nearly the same length; those that have a ceiling stand alone."""
    limits = limits_of(device)
    for searched in (True, False):
        of_kind = [item for item in items if (item.row < ceiling and item.searchable) is searched]
        batch: list[Item] = []
        for item in sorted(of_kind, key=lambda item: len(item.encoded.units)):
            units = len(item.encoded.units)
            if batch and (len(batch) == limits.texts or (len(batch) + 1) * units > limits.traced_tokens):
                yield batch
                batch = []
            batch.append(item)
        if batch:
            yield batch


def _rationale(example: Example) -> Rationale | None:
    if example.rationale is None:
        return None
    units = [(n, unit) for n, unit in enumerate(example.rationale.units) if unit.span]
    marked = example.rationale.marked
    return Rationale(
        tuple(unit.span for _, unit in units if unit.span),
        frozenset(place for place, (n, _) in enumerate(units) if marked[n]),
        tuple(unit.part or 0 for _, unit in units),
    )


def _marked(example: Example) -> Any:
    rationale = example.rationale
    return rationale and [[[unit.span, unit.part] for unit in rationale.units], rationale.spans]


def hashed(facts: Any) -> str:
    """A hash of plain data."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
