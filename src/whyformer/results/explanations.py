"""Explanations of many texts: what belongs to each of them, what their table says, and how they are saved."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from whyformer.errors import BadInput
from whyformer.results.checked import Effect
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.results.kept import KeptExample
from whyformer.results.saved import EXPLANATION
from whyformer.storage.files import parsed_json, path_of, read
from whyformer.storage.schema import Format, count, every, fields, index, named, optional, plain, text
from whyformer.tasks.label import Predicted

E = TypeVar("E", bound=ExplanationData)
SCHEMA, VERSION = "whyformer/explanations", 1
LINES = (".jsonl", ".ndjson")  # endings of files with an explanation in each line
REASONS = 3  # words of each text that the table names

_OF_ROW = {"row": count, "label": optional(text), "columns": named(plain)}
EXPLANATIONS = Format(
    "saved list of explanations",
    SCHEMA,
    VERSION,
    (fields({"explanations": every(fields({}, _OF_ROW)), "skipped": named(text, index)}),),
)
_LINE = fields({}, {**_OF_ROW, "skipped": text})


class Reason(NamedTuple):
    """A word that matters; where it was asked, what the model says without it."""

    text: str
    score: float
    effect: float | None = None  # by how much the log-odds fall without it, or the output where it has no probability
    probabilities: tuple[float, float] | None = None  # of the target, with it and without it
    contradicts: bool = False  # the effect has the other sign than the score


def reasons(explanation: ExplanationData, most: int = REASONS) -> tuple[Reason, ...]:
    """The strongest words of a text, with what was seen without them; of an image, the regions that were checked."""
    if explanation.image is not None:
        regions = () if explanation.checked is None else explanation.checked.effects[:most]
        return tuple(_reason(explanation, region.text, region.score, region) for region in regions)
    shown, listed = explanation.for_people(), []
    places = {id(unit): place for place, unit in enumerate(shown.units)}
    for word in shown.strongest(most):
        effect = None if shown.checked is None else shown.checked.of(places[id(word.unit)])
        listed.append(_reason(shown, word.text, word.score, effect))
    return tuple(listed)


def _reason(explanation: ExplanationData, text: str, score: float, effect: Effect | None) -> Reason:
    if effect is None or explanation.checked is None:
        return Reason(text, score)
    probabilities = explanation.checked.probabilities(effect, explanation.versus is not None)
    return Reason(text, score, effect.effect, probabilities, explanation.checked.agrees(effect) is False)


def together(explanation: ExplanationData) -> tuple[Reason, ...]:
    """The checked words for the output, hidden at once, and those against it."""
    effects = () if explanation.checked is None else explanation.checked.together
    return tuple(_reason(explanation, together_name(explanation, each), each.score, each) for each in effects)


def together_name(explanation: ExplanationData, effect: Effect) -> str:
    """The name of words or regions that are hidden at once: `all 3 checked words for it`."""
    checked = explanation.checked
    assert checked is not None
    count = sum(set(one.units) <= set(effect.units) for one in checked.effects)
    what = "checked region" if explanation.image is not None else "checked word"
    side = f" {'for' if effect.score > 0 else 'against'} it" if checked.signed else ""
    return (f"both {what}s" if count == 2 else f"all {count} {what}s") + side


def verdict(label: str | None, predicted: Predicted) -> bool | None:
    """Whether the model says the label of the data; None where there is none, or where the model cannot say it."""
    return label == predicted.label if label is not None and label in predicted.labels else None


class TableRow(NamedTuple):
    """What the table says of one explanation."""

    row: int
    texts: tuple[str, ...]
    method: str
    prediction: str
    probability: float | None
    label: str | None
    right: bool | None
    reasons: tuple[Reason, ...]
    columns: Mapping[str, Any]
    what: Literal["text", "image"] = "text"
    together: tuple[Reason, ...] = ()
    explained: str = ""  # the output that is explained, if it is not the predicted one alone


def other_output(explanation: ExplanationData) -> str:
    """The name of the explained output if it is not the predicted one, or is set against another; else empty."""
    target, versus, said = explanation.target, explanation.versus, explanation.prediction
    if versus is not None:
        return f"{target.name} rather than {versus.name}"
    return "" if (target.index, target.span) == (said.index, said.span) else target.name


def table_rows(examples: Iterable[KeptExample[Any]]) -> Iterator[TableRow]:
    """A row for each explanation of each example."""
    for example in examples:
        for e in example.explanations:
            said = e.prediction
            facts = (e.method, said.label, said.probability, example.gold, example.right, reasons(e))
            texts = e.texts if e.image is None or e.image.name is None else (e.image.name, *e.texts)
            what: Literal["text", "image"] = "text" if e.image is None else "image"
            yield TableRow(example.row, texts, *facts, example.columns, what, together(e), other_output(e))


@dataclass(frozen=True, eq=False)
class ExplanationsData(Sequence[E]):
    """What `Explanations` are made of, which says what the fields mean."""

    explanations: tuple[E, ...]
    rows: tuple[int, ...] = ()
    labels: tuple[str | None, ...] = ()
    skipped: tuple[tuple[int, str], ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        number = len(self.explanations)
        rows, labels = self.rows or tuple(range(number)), self.labels or (None,) * number
        if {len(rows), len(labels)} - {number}:
            raise BadInput(f"{len(rows)} rows and {len(labels)} labels for {number} explanations: give one for each")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "columns", self.columns or ({},) * number)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return self.explanations[place]
        return self._at(range(len(self))[place])

    def _at(self, places: Iterable[int]) -> Self:
        """Those at some places."""
        kept = list(places)
        names = ("explanations", "rows", "labels", "columns")
        return replace(self, **{name: tuple(getattr(self, name)[n] for n in kept) for name in names}, skipped=())

    def __len__(self) -> int:
        return len(self.explanations)

    def __iter__(self) -> Iterator[E]:
        return iter(self.explanations)

    @property
    def wrong(self) -> Self:
        """Those where the model says another label than the data."""
        return self._at(place for place, one in enumerate(self.examples()) if one.right is False)

    def examples(self) -> Iterator[KeptExample[ComparisonData[E]]]:
        """Each with its row and its label, as pages and tables take them."""
        for e, row, label, columns in zip(self.explanations, self.rows, self.labels, self.columns, strict=True):
            yield KeptExample(row, label, verdict(label, e.prediction), ComparisonData((e,)), columns)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Plain data of each explanation with its row and label, as JSON lines have them; then the rows left out."""
        for e, row, label, columns in zip(self.explanations, self.rows, self.labels, self.columns, strict=True):
            yield saved_line(e, row, label, columns)
        for row, reason in self.skipped:
            yield {"row": row, "skipped": reason}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `save` writes it."""
        explained = [line for line in self.lines() if "skipped" not in line]
        skipped = {str(row): reason for row, reason in self.skipped}
        return {"schema": SCHEMA, "schema_version": VERSION, "explanations": explained, "skipped": skipped}


def saved_line(
    explanation: ExplanationData, row: int, label: str | None, columns: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """An explanation as plain data, with its row, the label of that, and its other columns."""
    more = {"columns": dict(columns)} if columns else {}
    return {**explanation.to_dict(), "row": row, "label": label, **more}


def read_lines(path: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a file of explanations holds, one after the other, each with where it stands; JSON, or JSON lines."""
    if path_of(path).suffix.casefold() not in LINES:
        saved = EXPLANATIONS.read(path)
        for place, line in enumerate(saved["explanations"]):
            yield f"{path}, explanation {place}", line
        for row, reason in saved["skipped"].items():
            yield str(path), {"row": int(row), "skipped": reason}
        return
    for number, written in enumerate(read(path, "saved list of explanations").split("\n"), 1):
        if not written.strip():
            continue
        try:
            line = parsed_json(written)
            _LINE(line)
        except ValueError as error:
            raise BadInput(f"{str(path)!r}, line {number}: not as explanations are saved, {error}") from error
        yield f"{path}, line {number}", line


def collected(cls: type[Any], kind: type[E], lines: Iterable[tuple[str, Mapping[str, Any]]]) -> Any:
    """The explanations of saved lines, each checked, as a list of that class."""
    explained: list[E] = []
    rows: list[int] = []
    labels: list[str | None] = []
    skipped: list[tuple[int, str]] = []
    columns: list[Mapping[str, Any]] = []
    for source, line in lines:
        if "skipped" in line:
            skipped.append((line["row"], line["skipped"]))
            continue
        explained.append(kind._of(EXPLANATION.checked(line, source)))
        rows.append(line.get("row", len(rows)))
        labels.append(line.get("label"))
        columns.append(line.get("columns", {}))
    return cls(tuple(explained), tuple(rows), tuple(labels), tuple(skipped), tuple(columns))
