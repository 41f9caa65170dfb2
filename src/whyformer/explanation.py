"""Explanation: scores with their units, what they explain, and where they came from."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from whyformer.errors import BadInput, BadOption
from whyformer.load import Subject
from whyformer.units import Span, Unit, join_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from whyformer.trust import Trust

Array = NDArray[np.float64]
SCHEMA = "whyformer/explanation"
COMPARISON_SCHEMA = "whyformer/comparison"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class AnswerSpan:
    """Where an answer stands: its first and last token, and its characters in the context.

    Tokens are counted as the model sees them, special ones included. No answer has no characters.
    """

    tokens: tuple[int, int]
    characters: Span | None


@dataclass(frozen=True)
class Label:
    """What is explained: a class of the model by its index, or an answer (`name` is its text) by its span."""

    index: int | None
    name: str
    span: AnswerSpan | None = None


@dataclass(frozen=True)
class Predicted:
    """What the model said, how sure it was, and the outputs behind it.

    The outputs are those of all classes. `probability` and `probabilities` are None for a regression model. An answer
    has a `span` and no index; its outputs are two, labelled `start` and `end`: the logit of each where the answer has
    it, the probability among all tokens, and `probability` is their product.
    """

    label: str
    index: int | None
    probability: float | None
    logits: tuple[float, ...]
    probabilities: tuple[float, ...] | None
    labels: tuple[str, ...]
    span: AnswerSpan | None = None


@dataclass(frozen=True)
class ScoredUnit:
    """A unit with its score."""

    text: str
    score: float
    unit: Unit


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a model gave an output: one score for each unit of the input.

    `scores` has a number for every unit, special tokens included; `top`, `words` and pictures leave those out.
    `layers` holds the scores of each layer, [layers, units], where the method gives them; they add up to `scores`.
    `subject` is the model behind it, neither saved nor pickled; `trusted` is what `trust` found, once it was asked.
    """

    units: tuple[Unit, ...]
    scores: Array
    prediction: Predicted
    target: Label
    method: str
    signed: bool
    texts: tuple[str, ...] = ()
    versus: Label | None = None
    layers: Array | None = None
    options: dict[str, Any] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    subject: InitVar[Subject | None] = None
    trusted: "Trust | None" = field(default=None, init=False, repr=False)  # not of an explanation made from this one

    def __post_init__(self, subject: Subject | None) -> None:
        object.__setattr__(self, "subject", subject)  # no field: `replace` hands it on, `asdict` leaves it out

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "subject": None}

    @property
    def tokens(self) -> list[str]:
        """The text of each unit."""
        return [unit.text for unit in self.units]

    @property
    def magnitude(self) -> Array:
        """How much each unit matters: `|E|` of AttCAT's impact score (Eq. 6)."""
        return np.abs(self.scores)

    @property
    def direction(self) -> Array:
        """Whether each unit speaks for the target (1) or against it (-1): `sign(E)` of AttCAT's Eq. 6."""
        return np.sign(self.scores)

    @property
    def conservation(self) -> dict[str, float] | None:
        """For a relevance method, the `sum` of the relevance that arrived beside what was `expected`."""
        found: dict[str, float] | None = self.diagnostics.get("conservation")
        return found

    @property
    def ranked(self) -> list[int]:
        """The positions of the units that are not special, highest score first, ties in order of position."""
        positions = [i for i, unit in enumerate(self.units) if not unit.special]
        return sorted(positions, key=lambda i: -self.scores[i])

    def top(self, count: int = 5, by: Literal["score", "magnitude"] = "score") -> list[ScoredUnit]:
        """The units with the highest scores, or with the highest magnitudes."""
        if by not in ("score", "magnitude"):
            raise BadOption(f"top takes by='score' or by='magnitude'; found {by!r}")
        order = self.ranked if by == "score" else sorted(self.ranked, key=lambda i: -abs(self.scores[i]))
        return [self._scored(i) for i in order[: max(0, count)]]

    def words(self, combine: Literal["sum", "max"] | None = None) -> list[ScoredUnit]:
        """The words of the text with the sum, or the maximum, of their tokens' scores, in order of the text."""
        merged = self.by_word(combine)
        return [merged._scored(i) for i, unit in enumerate(merged.units) if not unit.special]

    def by_word(self, combine: Literal["sum", "max"] | None = None) -> "Explanation":
        """The same explanation with words for units: by the sum of their tokens, unless scores are mere ranks."""
        combine = combine or ("max" if self.diagnostics.get("ranks") else "sum")
        if combine not in ("sum", "max"):
            raise BadOption(f"words are combined by 'sum' or 'max'; found {combine!r}")
        units, members = zip(*join_words(self.units, self.texts), strict=True)
        scores = np.array([(np.sum if combine == "sum" else np.max)(self.scores[own]) for own in members])
        summed = combine == "sum" and self.layers is not None
        layers = np.stack([self.layers[:, own].sum(1) for own in members], axis=1) if summed else None  # type: ignore[index]
        told = dict(self.diagnostics)
        for name in {"sign", "step"} & told.keys():  # a word has that of its strongest token
            told[f"{name}_of_tokens"] = told[name]
            told[name] = np.array(told[name])[..., [own[int(self.scores[own].argmax())] for own in members]].tolist()
        return replace(self, units=units, scores=scores, layers=layers, diagnostics=told)

    def trust(self, explainer: Any = None) -> "Trust":
        """How far to believe it: how it does beside random orders and the best order found. It is measured once.

        An explanation that was loaded needs the explainer of its model.
        """
        from whyformer.show.progress import counting
        from whyformer.trust import trust_of

        with counting("trust") as progress:
            return trust_of([self], explainer, progress)[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `save` writes it; `docs/format.md` describes every field."""
        trust = {} if self.trusted is None else {"trust": self.trusted.to_dict()}
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "method": self.method,
            "options": self.options,
            "signed": self.signed,
            "texts": list(self.texts),
            "prediction": _plain(self.prediction),
            "target": _plain(self.target),
            "versus": _plain(self.versus) if self.versus else None,
            "units": [{**_unit(u), "score": float(s)} for u, s in zip(self.units, self.scores, strict=True)],
            "layers": None if self.layers is None else self.layers.tolist(),
            "diagnostics": self.diagnostics,
            "provenance": self.provenance,
            **trust,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Explanation":
        """The explanation that `to_dict` gave."""
        schema = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
        if schema != SCHEMA:
            raise BadInput(f"this is no saved explanation: its schema is {schema!r}, not {SCHEMA!r}")
        if data.get("schema_version") != SCHEMA_VERSION:
            found = data.get("schema_version")
            raise BadInput(f"this explanation has format {found}; this version of whyformer reads {SCHEMA_VERSION}")
        try:
            return cls._from_fields(data)
        except (KeyError, TypeError) as error:
            raise BadInput(f"this saved explanation is damaged: {error}") from error

    @classmethod
    def _from_fields(cls, data: Mapping[str, Any]) -> "Explanation":
        units, scores = [], []
        for entry in data["units"]:
            fields = dict(entry)
            scores.append(fields.pop("score"))
            units.append(Unit(**{**fields, "span": tuple(fields["span"]) if fields["span"] else None}))
        found = cls(
            units=tuple(units),
            scores=np.array(scores, dtype=np.float64),
            prediction=Predicted(**_fields(data["prediction"])),
            target=Label(**_fields(data["target"])),
            versus=Label(**_fields(data["versus"])) if data["versus"] else None,
            layers=None if data["layers"] is None else np.array(data["layers"], dtype=np.float64),
            texts=tuple(data["texts"]),
            **{name: data[name] for name in ("method", "signed", "options", "diagnostics", "provenance")},
        )
        if "trust" in data:
            from whyformer.trust import Trust

            object.__setattr__(found, "trusted", Trust.from_dict(data["trust"]))
        return found

    def save(self, path: str | Path) -> Path:
        """Write it as JSON."""
        return write(path, json.dumps(self.to_dict(), ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, path: str | Path) -> "Explanation":
        """Read what `save` wrote."""
        return cls.from_dict(_read(path))

    def to_html(self, path: str | Path) -> Path:
        """Write a page that needs nothing else: no network, no other file."""
        from whyformer.show.html import page

        return write(path, page([self]))

    def figure(self) -> "Figure":
        """A matplotlib figure: the scores of each unit, and of each layer where there are layers."""
        from whyformer.show.figures import figure

        return figure(self)

    def _scored(self, position: int) -> ScoredUnit:
        return ScoredUnit(self.units[position].text, float(self.scores[position]), self.units[position])

    def _repr_html_(self) -> str:
        from whyformer.show.html import fragment

        return fragment([self])

    def __str__(self) -> str:
        from whyformer.show.terminal import explanation_text, to_text

        return to_text(explanation_text(self))


@dataclass(frozen=True, eq=False)
class Comparison(Sequence[Explanation]):
    """Explanations of one input by several methods; `refused` names those that could not, and why."""

    explanations: tuple[Explanation, ...]
    refused: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, index: Any) -> Any:
        return self.explanations[index]

    def __len__(self) -> int:
        return len(self.explanations)

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.explanations)

    def save(self, path: str | Path) -> Path:
        """Write them as JSON."""
        data = {
            "schema": COMPARISON_SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "explanations": [e.to_dict() for e in self],
            "refused": dict(self.refused),
        }
        return write(path, json.dumps(data, ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, path: str | Path) -> "Comparison":
        """Read what `save` wrote."""
        saved = _read(path)
        schema = saved.get("schema") if isinstance(saved, dict) else type(saved).__name__
        if schema != COMPARISON_SCHEMA or "explanations" not in saved:
            raise BadInput(f"{str(path)!r} holds no saved comparison: its schema is {schema!r}")
        explanations = tuple(Explanation.from_dict(data) for data in saved["explanations"])
        return cls(explanations, tuple(saved.get("refused", {}).items()))

    def to_html(self, path: str | Path) -> Path:
        """Write a page that needs nothing else, one row per method."""
        from whyformer.show.html import page

        return write(path, page(self.explanations, compare=True, refused=self.refused))

    def figure(self) -> "Figure":
        """A matplotlib figure with one row per method, as in AttCAT's Figure 5."""
        from whyformer.show.figures import comparison_figure

        return comparison_figure(self.explanations)

    def _repr_html_(self) -> str:
        from whyformer.show.html import fragment

        return fragment(self.explanations, compare=True, refused=self.refused)

    def __str__(self) -> str:
        from whyformer.show.terminal import comparison_text, to_text

        return to_text(comparison_text(self.explanations, self.refused))


def _unit(unit: Unit) -> dict[str, Any]:
    """As plain data, with `unknown` only where it is."""
    return {name: value for name, value in asdict(unit).items() if name != "unknown" or value}


def _plain(said: Label | Predicted) -> dict[str, Any]:
    """As plain data, with a span only where there is one."""
    data = asdict(said)
    return data if said.span else {name: value for name, value in data.items() if name != "span"}


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `_plain` was given, from JSON."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    if fields.get("span"):
        fields["span"] = AnswerSpan(**_fields(fields["span"]))
    return fields


def write(path: str | Path, text: str) -> Path:
    """Write a text file, with an error that says which one could not be written."""
    path = Path(path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"could not write {str(path)!r}: {error.strerror}") from error
    return path


def _read(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"could not read {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{str(path)!r} is not JSON: {error}") from error
