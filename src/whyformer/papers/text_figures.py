"""Figures of single texts: several methods, several layers, or differences between methods."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from whyformer.datasets import Dataset
from whyformer.errors import BadInput, UnsupportedModel, WhyformerError
from whyformer.explain.explainer import Explainer
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.inputs.encoding import Text
from whyformer.methods.specs import MethodSpec, method_specs
from whyformer.models.loading import Subject
from whyformer.papers.recipe import Column, LeftOut, Reproduction, Row
from whyformer.papers.result import Part, ReadyColumn, Reproduced
from whyformer.results.explanation import Array
from whyformer.show.grid import Grid

UNITS = ("name", "column", "text", "row", "unit", "score")


class LookedUp(NamedTuple):
    """An example of a figure: a question that is looked up in the column's data."""

    question: str


@dataclass(frozen=True, kw_only=True)
class TextFigure(Reproduction):
    """A picture of single texts: an explanation for each row.

    `examples` are the texts by column; without any, the first texts of the data stand in.
    """

    examples: Mapping[str, tuple[Text | LookedUp, ...]] = field(default_factory=lambda: MappingProxyType({}))

    searches_all: ClassVar[bool] = True

    def reads_data(self, column: Column, texts: Sequence[Text], *, searched: bool) -> bool:
        """Unless all texts are known, and the head mask is not taken from the data."""
        known = texts or self.examples.get(column.label, ())
        return searched or not known or any(isinstance(text, LookedUp) for text in known)

    def texts(self, column: Column, data: Dataset | None, count: int) -> tuple[Text, ...]:
        """The texts of a column; questions are looked up in the data."""
        known = self.examples.get(column.label)
        if known is None:
            assert data is not None
            return tuple(example.text for example in islice(data, count))
        return tuple(_looked_up(text, data) if isinstance(text, LookedUp) else text for text in known)

    def shows_printed_texts(self, column: Column) -> bool:
        """Where the texts are known, and not taken from the data."""
        return column.label in self.examples

    def run_column(self, column: ReadyColumn) -> Part:
        """Explain each text by each row, under the paper's labels."""
        rows = self.rows_of(column.column)
        try:
            examples = tuple(self._compared(column.subject, text, rows) for text in column.opened.texts)
        except (BadInput, UnsupportedModel) as error:
            raise LeftOut(str(error)) from error
        return column.part(self, examples=examples)

    def _compared(self, subject: Subject, text: Text, rows: Sequence[Row]) -> Comparison:
        """The explanations of one text, and the rows that were refused."""
        done: dict[str, Explanation] = {}
        refused: list[tuple[str, str]] = []
        for row in rows:
            spec = method_specs([row.method])[0]
            try:
                done[row.label] = explained(subject, text, spec)
            except WhyformerError as error:
                refused.append((f"{row.label}, {spec.label}", str(error)))
        needed = [f"{label}: {reason}" for label, reason in refused if label.partition(",")[0] in self.essential]
        if needed or not done:
            raise BadInput(f"{self.name} cannot explain {text!r}: {'; '.join(needed or [r for _, r in refused])}")
        return Comparison(tuple(self.shown(done)), tuple(refused))

    @abstractmethod
    def shown(self, done: dict[str, Explanation]) -> Iterator[Explanation]:
        """What the figure shows of one text, from the explanations by row."""

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """No table: the texts themselves are shown."""
        return []

    def csv_lines(self, reproduced: Reproduced) -> Iterator[Sequence[object]]:
        """One line for each unit of each explanation."""
        yield UNITS
        for part in reproduced.parts:
            for number, comparison in enumerate(part.examples):
                for explanation in comparison:
                    for unit, score in zip(explanation.units, explanation.scores, strict=True):
                        yield self.name, part.column.label, number, explanation.method, unit.text, float(score)


@dataclass(frozen=True, kw_only=True)
class MethodFigure(TextFigure):
    """A text by several methods."""

    def shown(self, done: dict[str, Explanation]) -> Iterator[Explanation]:
        """Every row."""
        return (_called(label, explanation) for label, explanation in done.items())


@dataclass(frozen=True, kw_only=True)
class LayerFigure(TextFigure):
    """A text layer by layer."""

    def shown(self, done: dict[str, Explanation]) -> Iterator[Explanation]:
        """The layers of the essential row, L0 first; then the other rows; then the essential row, their sum."""
        whole = done.pop(self.essential[0])
        if whole.layers is None:
            raise BadInput(f"{self.name} needs the scores of each layer, which {whole.method} does not give")
        for number, scores in enumerate(whole.layers):
            yield replace(_called(f"L{number}", whole), scores=scores)
        for label, explanation in done.items():
            yield _called(label, explanation)
        yield _called(self.essential[0], whole)


@dataclass(frozen=True, kw_only=True)
class DifferenceFigure(TextFigure):
    """How the essential row differs from the others."""

    def shown(self, done: dict[str, Explanation]) -> Iterator[Explanation]:
        """The essential row's scores less those of each other row, both as shares of the sum of their sizes."""
        theirs = done.pop(self.essential[0])
        yield _called(self.essential[0], theirs)
        for label, explanation in done.items():
            difference = shares(theirs) - shares(explanation)
            yield replace(_called(f"less {label}", theirs), scores=difference, signed=True)


def explained(subject: Subject, text: Text, spec: MethodSpec) -> Explanation:
    """One text by one method."""
    asked: dict[str, Any] = {"text": text}
    if subject.task == "answer":
        asked = dict(zip(("question", "context"), text, strict=True))
    explanation: Explanation = Explainer(subject).explain(method=spec.of.name, **asked, **spec.options)
    return explanation


def _looked_up(wanted: LookedUp, data: Dataset | None) -> Text:
    assert data is not None
    question = _letters(wanted.question)
    for example in data:
        if example.question is not None and _letters(example.question) == question:
            return example.text
    raise BadInput(f"the question {wanted.question!r} is not in {data.name} ({data.source.where})")


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def shares(explanation: Explanation) -> Array:
    """Scores divided by the sum of their sizes over the units that are not special; those score 0."""
    counted = np.array([not unit.special for unit in explanation.units])
    scores = np.where(counted, explanation.scores, 0.0)
    total = np.abs(scores).sum()
    return scores / total if total > 0 else scores


def _called(label: str, explanation: Explanation) -> Explanation:
    """The explanation under a label of the paper."""
    return replace(explanation, method=label, options={}, layers=None)
