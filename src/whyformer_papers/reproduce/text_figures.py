"""Figures of single texts: several methods, several layers, or differences between methods."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from whyformer.arrays import FloatArray
from whyformer.datasets import Dataset
from whyformer.errors import BadInput, UnsupportedModel, WhyformerError
from whyformer.explain.explainer import Explainer
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.inputs.batch import Text
from whyformer.methods.method import MethodSpec, method_specs
from whyformer.models.load import Subject
from whyformer.show.colors import Scale, largest
from whyformer.show.grid import Grid, plain_grid
from whyformer_papers.reproduce.class_texts import ClassText, EachClass
from whyformer_papers.reproduce.recipe import LeftOutRow, RecipeColumn, RecipeRow, Reproduction
from whyformer_papers.reproduce.result import Part, ReadyColumn, Reproduced

UNITS = ("name", "column", "text", "row", "unit", "score", "gold")


class LookedUp(NamedTuple):
    """An example of a figure that is looked up in the column's data: a question, or the text that begins so."""

    beginning: str


Examples = tuple[Text | LookedUp, ...] | EachClass


@dataclass(frozen=True, eq=False)
class ShownText(Comparison):
    """The explanations of a text that a figure shows; `gold` is its class in the data, if it stands in for that."""

    gold: str | None = None


@dataclass(frozen=True, kw_only=True)
class TextFigure(Reproduction):
    """A picture of single texts: an explanation for each row.

    `examples` are the texts by column; without any, texts of each class stand in. `scale` is that of the rows.
    """

    examples: Mapping[str, Examples] = field(default_factory=lambda: MappingProxyType({}))

    searches_all: ClassVar[bool] = True
    scale: ClassVar[Scale] = "row"

    def reads_data(self, column: RecipeColumn, texts: Sequence[Text], *, searched: bool) -> bool:
        """Unless all texts are known, and the head mask is not taken from the data."""
        known = texts or self._examples(column)
        return searched or isinstance(known, EachClass) or any(isinstance(text, LookedUp) for text in known)

    def texts(self, column: RecipeColumn, data: Dataset | None, count: int) -> tuple[Text, ...]:
        """The texts of a column that are known, questions looked up in the data; none where the model has to choose."""
        known = self._examples(column)
        if isinstance(known, EachClass):
            return ()
        return tuple(_looked_up(text, data) if isinstance(text, LookedUp) else text for text in known)

    def shows_printed_texts(self, column: RecipeColumn) -> bool:
        """Where the texts are known, and not taken from the data."""
        return column.label in self.examples

    def _examples(self, column: RecipeColumn) -> Examples:
        return self.examples.get(column.label, EachClass())

    def run_column(self, column: ReadyColumn) -> Part:
        """Explain each text by each row, under the paper's labels."""
        rows = self.rows_of(column.column)
        try:
            texts, few = self._chosen(column)
            examples = tuple(self._compared(column.subject, text, rows) for text in texts)
        except (BadInput, UnsupportedModel) as error:
            raise LeftOutRow(str(error)) from error
        return column.part(self, [*few, *filter(None, map(self.remark, examples))], examples=examples)

    def _chosen(self, column: ReadyColumn) -> tuple[list[ClassText], list[str]]:
        """The texts to show, and a sentence for each class that lacks some."""
        known, data = self._examples(column.column), column.opened.data
        if column.opened.texts or not isinstance(known, EachClass):
            return [ClassText(text) for text in column.opened.texts], []
        assert data is not None
        return known.texts(column.subject, data, column.settings.limit_of(column.column) or 1)

    def remark(self, comparison: Comparison) -> str | None:
        """What is to be said of one text beside its picture, if anything."""
        return None

    def _compared(self, subject: Subject, example: ClassText, rows: Sequence[RecipeRow]) -> ShownText:
        """The explanations of one text, and the rows that were refused."""
        text, gold = example
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
        return ShownText(tuple(self.shown(done)), tuple(refused), gold)

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
                    start = (self.name, part.column.label, number, explanation.method)
                    for unit, score in zip(explanation.units, explanation.scores, strict=True):
                        yield *start, unit.text, float(score), gold_of(comparison)


@dataclass(frozen=True, kw_only=True)
class MethodFigure(TextFigure):
    """A text by several methods."""

    def shown(self, done: dict[str, Explanation]) -> Iterator[Explanation]:
        """Every row."""
        return (called(label, explanation) for label, explanation in done.items())


@dataclass(frozen=True, kw_only=True)
class LayerFigure(TextFigure):
    """A text layer by layer, all on one scale."""

    scale: ClassVar[Scale] = "shared"

    def remark(self, comparison: Comparison) -> str:
        """How large the scores of the first and the last layer are beside those of the other rows."""
        layers = [e for e in comparison if e.method not in {row.label for row in self.rows}]
        ends = [layers[0], *layers[1:][-1:], *comparison[len(layers) :]]
        return f"the largest score is {', '.join(f'{largest(e):.2g} in {e.method}' for e in ends)}"

    def shown(self, done: dict[str, Explanation]) -> Iterator[Explanation]:
        """The layers of the essential row, L0 first; then the other rows; then the essential row, their sum."""
        whole = done.pop(self.essential[0])
        if whole.layers is None:
            raise BadInput(f"{self.name} needs the scores of each layer, which {whole.method} does not give")
        for number, scores in enumerate(whole.layers):
            yield replace(called(f"L{number}", whole), scores=scores)
        for label, explanation in done.items():
            yield called(label, explanation)
        yield called(self.essential[0], whole)


@dataclass(frozen=True, kw_only=True)
class DecodedFigure(LayerFigure):
    """A text layer by layer, and below it the token that an LM head reads at each position of each layer."""

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """The most likely tokens with their probabilities, a row for each layer."""
        return [_decoded_tokens(comparison[0]) for comparison in part.examples]


@dataclass(frozen=True, kw_only=True)
class DifferenceFigure(TextFigure):
    """How the essential row differs from the others, all on one scale."""

    scale: ClassVar[Scale] = "shared"

    def shown(self, done: dict[str, Explanation]) -> Iterator[Explanation]:
        """The essential row's scores, and these less those of each other row: all as shares of the sum of their sizes.

        Above 0 the essential row's share is higher than the other's, or than nothing.
        """
        theirs = done.pop(self.essential[0])
        share = shares(theirs)
        yield replace(called(self.essential[0], theirs), scores=share, signed=True)
        for label, explanation in done.items():
            yield replace(called(f"less {label}", theirs), scores=share - shares(explanation), signed=True)


def _decoded_tokens(explanation: Explanation) -> Grid:
    """The decoded tokens, [layers, units, 1], as a table."""
    decoded, subject = explanation.diagnostics["decoded"], vars(explanation)["subject"]
    lines = []
    for layer, ids, shares in zip(decoded["layer"], decoded["vocabulary"], decoded["probabilities"], strict=True):
        tokens = subject.tokenizer.convert_ids_to_tokens([first for first, *_ in ids])
        cells = [f"{token} {share:.2f}" for token, (share, *_) in zip(tokens, shares, strict=True)]
        lines.append((f"l{layer}", *cells))
    return plain_grid(("decoded", *(unit.text for unit in explanation.units)), lines)


def explained(subject: Subject, text: Text, spec: MethodSpec) -> Explanation:
    """One text by one method, as its paper defines it: no check of words by deletion recolors the picture."""
    asked: dict[str, Any] = {"text": text}
    if subject.task == "answer":
        asked = dict(zip(("question", "context"), text, strict=True))
    elif subject.task == "classes":
        asked |= {"explains": "logit"}
    explanation: Explanation = Explainer(subject).explain(method=spec.of.name, check=0, **asked, **spec.options)
    return explanation


def gold_of(comparison: Comparison) -> str | None:
    """The gold class of a text that stands in for its class."""
    return comparison.gold if isinstance(comparison, ShownText) else None


def _looked_up(wanted: LookedUp, data: Dataset | None) -> Text:
    assert data is not None
    beginning = _letters(wanted.beginning)
    for example in data:
        if example.question is not None and _letters(example.question) == beginning:
            return example.text
        if isinstance(example.text, str) and _letters(example.text).startswith(beginning):
            return example.text
    raise BadInput(f"no question or text of {data.name} ({data.source.where}) begins with {wanted.beginning!r}")


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def shares(explanation: Explanation) -> FloatArray:
    """Scores divided by the sum of their sizes over the units that are not special; those score 0."""
    counted = np.array([not unit.special for unit in explanation.units])
    scores = np.where(counted, explanation.scores, 0.0)
    total = np.abs(scores).sum()
    return scores / total if total > 0 else scores


def called(label: str, explanation: Explanation) -> Explanation:
    """The explanation under a label of the paper."""
    return replace(explanation, method=label, options={}, layers=None)
