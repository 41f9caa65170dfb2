"""Kept scores: what a journal holds of explained texts, so that they can be drawn again without the model.

Of each row its texts, its units and what the model said are kept once; of each row and method the scores.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from whyformer.errors import BadInput, UnsupportedModel
from whyformer.inputs.encoding import NO_ANSWER, TextInput
from whyformer.inputs.units import Span, Unit
from whyformer.methods.registry import Scores
from whyformer.results.explanation import Array, ComparisonData, plain_label, plain_unit
from whyformer.results.saved import SCHEMA, SCHEMA_VERSION
from whyformer.results.shortcuts import ScoredWord, scored_words
from whyformer.storage.schema import Form, Misfit, both, count, every, fields, flag, must, optional, plain, text, whole
from whyformer.tasks.label import Predicted
from whyformer.tasks.task import Explains

C = TypeVar("C", bound=ComparisonData[Any])
KEPT = "(scores)"  # stands where a record has the label of a metric, and is the name of none
VERSION = 1
NUMBERS = "<f4"  # scores, in base64
DIGITS = 6  # of what the model said


def row_facts(example: TextInput, predicted: Predicted, labels: Sequence[str]) -> dict[str, Any]:
    """What is kept of a row, whatever the methods; the labels of all rows stand elsewhere."""
    outputs = plain_label(predicted)
    if list(outputs["labels"]) == list(labels):
        del outputs["labels"]
    facts: dict[str, Any] = {
        "version": VERSION,
        "texts": list(example.texts),
        "units": [_unit_facts(unit) for unit in example.units],
        "prediction": _rounded(outputs),
    }
    if unknown := [place for place, unit in enumerate(example.units) if unit.unknown]:
        facts["unknown"] = unknown
    if example.dropped and not example.counted:
        facts["dropped_at_least"] = True
    if example.window is not None:
        facts["window"] = {"number": example.window.number, "count": example.window.count}
    return facts


def gold_answer(answer: Span | None, unanswered: bool, texts: Sequence[str]) -> str | None:
    """The text of the answer that people gave, if they were asked."""
    if answer is not None:
        return texts[1][slice(*answer)]
    return NO_ANSWER if unanswered else None


def score_facts(scores: Scores, row: int, units: int, explains: Explains = "logit") -> dict[str, Any]:
    """The facts that are kept of a method's explanation of a row: scores, what they explain, how they are read."""
    numbers = scores.total[row, :units].double().cpu().numpy()
    with np.errstate(over="ignore"):
        packed = numbers.astype(NUMBERS)
    if not np.isfinite(packed).all():
        raise UnsupportedModel(f"scores of up to {np.abs(numbers).max():.3g} are too large to be kept")
    facts: dict[str, Any] = {"scores": base64.b64encode(packed.tobytes()).decode(), "signed": bool(scores.signed)}
    if explains != "logit":
        facts["explains"] = explains
    if scores.ranks:
        facts["ranks"] = True
    if scores.signs is not None:
        facts["signs"] = scores.signs[row, :units].cpu().tolist()
    return facts


@dataclass(frozen=True)
class KeptExample(Generic[C]):
    """A text of a data set explained by several methods towards what the model said of it.

    `gold` is the name of its label, or the gold answer; `right` whether the model said that label, None without one.
    `columns` has the other columns of its row.
    """

    row: int
    gold: str | None
    right: bool | None
    explanations: C
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KeptRow:
    """A row as it was kept: the facts of the example and of the run, as the journal has them."""

    facts: Mapping[str, Any]
    run: Mapping[str, Any]
    source: str  # the file, for errors

    def __post_init__(self) -> None:
        try:
            _ROW(self.facts)
        except Misfit as misfit:
            raise self._damaged(misfit) from misfit

    @property
    def row(self) -> int:
        """Its number, counted from 0."""
        number: int = self.facts["row"]
        return number

    @property
    def gold(self) -> str | None:
        """The name of its gold label, or the gold answer."""
        index, labels = self.facts.get("gold"), self._labels
        if index is None:
            answer: str | None = self.facts["kept"].get("answer")
            return answer
        return labels[index] if index < len(labels) else str(index)

    @property
    def right(self) -> bool | None:
        """Whether the model said the gold label; None if there is none."""
        return None if self.facts.get("gold") is None else self.facts["gold"] == self.facts.get("predicted")

    @property
    def _labels(self) -> list[str]:
        labels: list[str] = self.run.get("about", {}).get("labels", [])
        return labels

    def explanation(self, method: str, scores: Any) -> dict[str, Any]:
        """The explanation by a method, in the format of saved ones, to be checked by that."""
        numbers, units = self._numbers(method, scores), map(plain_unit, self._units)
        outputs = {"labels": self._labels, **self.facts["kept"]["prediction"]}
        target = {"index": outputs.get("index"), "name": outputs.get("label"), "span": outputs.get("span")}
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "method": method,
            "options": {},
            "signed": scores["signed"],
            "ranks": scores.get("ranks", False),
            "signs": scores.get("signs"),
            "seen": [],
            "texts": self.facts["kept"]["texts"],
            "prediction": outputs,
            "target": {name: fact for name, fact in target.items() if name != "span" or fact is not None},
            "versus": None,
            **({"explains": scores["explains"]} if "explains" in scores else {}),
            "units": [{**unit, "score": float(score)} for unit, score in zip(units, numbers, strict=True)],
            "layers": None,
            "diagnostics": self._diagnostics(),
            "provenance": self._provenance(),
        }

    def words(self, method: str, scores: Any) -> tuple[ScoredWord, ...]:
        """The words with their scores by a method."""
        numbers = self._numbers(method, scores)
        return scored_words(self._units, self.facts["kept"]["texts"], numbers, scores.get("ranks", False))

    def _numbers(self, method: str, scores: Any) -> Array:
        try:
            _SCORES(scores)
            numbers = np.frombuffer(_decoded(scores["scores"]), dtype=NUMBERS).astype(np.float64)
            units = len(self.facts["kept"]["units"])
            must(len(numbers) == units, f"has {len(numbers)} numbers for {units} units", "scores")
        except Misfit as misfit:
            raise self._damaged(misfit, f", {method}") from misfit
        return numbers

    @property
    def _units(self) -> list[Unit]:
        kept = self.facts["kept"]
        unknown = set(kept.get("unknown", ()))
        return [_unit(entry, kept["texts"], place in unknown) for place, entry in enumerate(kept["units"])]

    def _diagnostics(self) -> dict[str, Any]:
        kept = self.facts["kept"]
        told = {name: kept[name] for name in ("dropped_at_least", "window", "windows") if name in kept}
        return told | ({"dropped_tokens": self.facts["dropped"]} if self.facts.get("dropped") else {})

    def _provenance(self) -> dict[str, Any]:
        about, packages = self.run.get("about", {}), ("whyformer", "torch", "transformers")
        origin = {"model": about.get("model"), "revision": about.get("revision"), "device": self.run.get("device")}
        versions = {name: self.run[name] for name in packages if name in self.run}
        return {name: fact for name, fact in origin.items() if fact is not None} | {"packages": versions}

    def _damaged(self, misfit: Misfit, of: str = "") -> BadInput:
        advice = "put back a copy of the file, or keep the scores in another folder"
        return BadInput(
            f"{self.source}: what is kept of row {self.facts.get('row')}{of} is damaged, {misfit}: {advice}"
        )


def _unit_facts(unit: Unit) -> list[Any] | str:
    """A unit in few letters: where it stands, or its text if that is not known; a special token in brackets."""
    if unit.special:
        return [unit.text]
    if unit.span is None:
        return unit.text
    return [*unit.span] if not unit.part else [*unit.span, unit.part]


def _unit(entry: Any, texts: Sequence[str], unknown: bool) -> Unit:
    """The unit that `_unit_facts` described; where it stands is checked with the explanation."""
    if isinstance(entry, str):
        return Unit(entry, unknown=unknown)
    if len(entry) == 1:
        return Unit(entry[0], special=True, unknown=unknown)
    start, end, part = (*entry, 0)[:3]
    return Unit(texts[part][start:end] if part < len(texts) else "", "token", (start, end), part, unknown=unknown)


def _rounded(facts: Any) -> Any:
    """Plain data with fractions of few digits."""
    if isinstance(facts, Mapping):
        return {name: _rounded(fact) for name, fact in facts.items()}
    if isinstance(facts, (list, tuple)):
        return [_rounded(fact) for fact in facts]
    return float(f"{facts:.{DIGITS}g}") if isinstance(facts, float) else facts


def _decoded(written: str) -> bytes:
    try:
        content = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Misfit("is not base64", "scores") from error
    must(len(content) % np.dtype(NUMBERS).itemsize == 0, "ends within a number", "scores")
    return content


def _placed(entry: Any) -> None:
    """A unit as `_unit_facts` describes it."""
    if isinstance(entry, str):
        return
    every(plain, at_least=1)(entry)
    must(len(entry) <= 3, f"has {len(entry)} entries, not 1 to 3")
    if len(entry) == 1:
        text(entry[0])
    else:
        every(count)(entry)


_WINDOW = fields({"number": count, "count": count})
_TEXT = fields(
    {"version": whole(VERSION, VERSION + 1), "texts": every(text), "units": every(_placed), "prediction": fields({})},
    {"unknown": every(count), "answer": optional(text), "window": _WINDOW, "windows": count, "dropped_at_least": flag},
)
_ROW: Form = fields({"row": count, "kept": _TEXT}, {"gold": optional(count), "predicted": count, "dropped": count})
_SCORES: Form = both(fields({"scores": text, "signed": flag}), plain)
