"""The data of an explanation: scores with their units, what they explain, and how far two explanations agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, asdict, dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from whyformer.arrays import FloatArray
from whyformer.errors import BadInput, BadOption, shown
from whyformer.inputs.images import Picture, heat_map
from whyformer.inputs.units import Box, Span, Unit, join_words, occurrences
from whyformer.models.load import Subject
from whyformer.perturb.hiding_steps import Seen
from whyformer.registry.options import Count, validated
from whyformer.results.checked import Checked
from whyformer.results.saved import (
    COMPARISON_SCHEMA,
    EXPLANATION,
    SCHEMA,
    SCHEMA_VERSION,
    picture_of,
    pixels_of,
    plain_picture,
    plain_pixels,
)
from whyformer.results.trust import TrustData
from whyformer.tasks.targets import AnswerSpan, Label, OutputPosition, Predicted
from whyformer.tasks.task import Explains
from whyformer.tolerance import ROUNDING, close, coarsest

TOP = 5  # units
BASELINES = frozenset({"random", "centre"})  # methods that look at no model, for others to be better than


@dataclass(frozen=True)
class Agreement:
    """How far two explanations rank the same units alike.

    `spearman` and `kendall` (tau-b) are rank correlations of the scores, or of their sizes where one of the two has no
    signs; None where one has the same score for every unit. `top` is the share that the `k` strongest units of each
    have in common. `signs` is the share of equal signs among the units that are in the top of either; None where one of
    the two has no signs.
    """

    spearman: float | None
    kendall: float | None
    top: float
    k: int
    signs: float | None
    units: int
    kind: Literal["token", "word", "patch"] = "token"

    @property
    def sentence(self) -> str:
        """What was found, for people."""
        units = "patches" if self.kind == "patch" else f"{self.kind}s"
        shared = f"Of their {self.k} strongest {units} {round(self.top * self.k)} are the same"
        signs = "" if self.signs is None else f", {100 * self.signs:.0f} % of those in either with the same sign"
        if self.spearman is None:
            return f"{shared}{signs}; one of the two ranks nothing, as all its scores are the same."
        return f"{shared}{signs}; over all {self.units} {units} their rank correlation is {self.spearman:.2f}."

    def __str__(self) -> str:
        return self.sentence


def agreement_of(one: "ExplanationData", other: "ExplanationData", k: int = TOP) -> Agreement:
    """How far two explanations agree: unit by unit, or word by word where the same text was cut into other tokens."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise BadOption(f"k is how many of the strongest units are compared, at least 1; found {k!r}")
    one, other = _alike(one, other)
    places = one.ranked
    if not places:
        raise BadInput("there is nothing to compare: these explanations have no units but special ones")
    signed = one.signed and other.signed
    first, second = (_felt(e, signed)[sorted(places)] for e in (one, other))
    k = min(k, len(places))
    tops = [set(_strongest(e, k)) for e in (one, other)]
    spearman, kendall = _correlations(first, second)
    shared = len(tops[0] & tops[1]) / k
    kind = one.units[places[0]].kind
    return Agreement(spearman, kendall, shared, k, _equal_signs(one, other, tops[0] | tops[1]), len(places), kind)


def mean_agreements(explanations: "Sequence[ExplanationData]") -> list[float | None]:
    """Of explanations of the same units, the mean rank correlation of each with the others, by magnitude.

    Baselines count for nobody. None where there are no others, or where an explanation ranks nothing.
    """
    from scipy.stats import rankdata

    sizes = [e.magnitude[sorted(e.ranked)] for e in explanations]
    ranking = [n for n, row in enumerate(sizes) if len(row) > 1 and np.ptp(row) > 0]
    means: list[float | None] = [None] * len(sizes)
    if len(ranking) < 2:
        return means
    correlations = np.corrcoef([rankdata(sizes[n]) for n in ranking])
    for row, n in enumerate(ranking):
        others = [
            float(correlations[row, column])
            for column, m in enumerate(ranking)
            if m != n and explanations[m].method not in BASELINES
        ]
        means[n] = float(np.mean(others)) if others else None
    return means


def _alike(one: "ExplanationData", other: "ExplanationData") -> "tuple[ExplanationData, ExplanationData]":
    """Both with the same units, which are words if their tokens are not the same."""
    if one.units == other.units and one.texts == other.texts:
        return one, other
    if one.texts and one.texts == other.texts and (one.image is None) == (other.image is None):
        words = one.by_word(), other.by_word()
        if words[0].units == words[1].units:
            return words
        counts = " and ".join(str(len(e.units)) for e in words)
        raise BadInput(f"two explanations agree unit by unit, and their words are not the same ({counts} of them)")
    what = "images or texts" if one.image is not None or other.image is not None else "texts"
    raise BadInput(f"two explanations agree unit by unit, and these are of different {what}: explain the same input")


def _felt(explanation: "ExplanationData", signed: bool) -> FloatArray:
    return explanation.scores if signed else explanation.magnitude


def _strongest(explanation: "ExplanationData", k: int) -> list[int]:
    return sorted(explanation.ranked, key=lambda place: (-abs(explanation.scores[place]), place))[:k]


def _correlations(first: FloatArray, second: FloatArray) -> tuple[float | None, float | None]:
    """Spearman's and Kendall's; of a list of equal numbers there are none."""
    from scipy.stats import kendalltau, spearmanr

    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None, None
    return float(spearmanr(first, second).statistic), float(kendalltau(first, second).statistic)


def _equal_signs(one: "ExplanationData", other: "ExplanationData", places: set[int]) -> float | None:
    sides = [_sides(e) for e in (one, other)]
    if sides[0] is None or sides[1] is None:
        return None
    chosen = sorted(places)
    return float(np.mean(sides[0][chosen] == sides[1][chosen]))


def _sides(explanation: "ExplanationData") -> FloatArray | None:
    """For each unit whether it spoke for the target or against it, if the explanation tells."""
    if explanation.signed:
        return explanation.direction
    return None if explanation.signs is None else np.sign(explanation.signs).astype(np.float64)


T = TypeVar("T")
OF_SOME_TASKS = ("span", "place", "title", "indices")  # fields of labels and predictions


@dataclass(frozen=True)
class ScoredUnit:
    """A unit with its score."""

    text: str
    score: float
    unit: Unit = field(repr=False)


@dataclass(frozen=True, eq=False)
class ExplanationData:
    """What an `Explanation` is made of, which says what the fields mean."""

    units: tuple[Unit, ...]
    scores: FloatArray
    prediction: Predicted
    target: Label
    method: str
    signed: bool
    texts: tuple[str, ...] = ()
    versus: Label | None = None
    layers: FloatArray | None = None
    options: dict[str, Any] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    ranks: bool = False
    signs: NDArray[np.int64] | None = None
    seen: tuple[Seen, ...] = ()
    image: Picture | None = None
    pixels: FloatArray | None = None
    checked: Checked | None = None
    explains: Explains = "logit"
    predicts_at: int | None = None
    subject: InitVar[Subject | None] = None
    trusted: TrustData | None = field(default=None, init=False, repr=False)  # not of an explanation made from this one

    _trust_kind: ClassVar[type[TrustData]] = TrustData

    def __post_init__(self, subject: Subject | None) -> None:
        object.__setattr__(self, "subject", subject)  # no field: `replace` hands it on, `asdict` leaves it out

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "subject": None}

    @property
    def tokens(self) -> list[str]:
        """The text of each unit."""
        return [unit.text for unit in self.units]

    @property
    def magnitude(self) -> FloatArray:
        """How much each unit matters: `|E|` of AttCAT's impact score (Eq. 6)."""
        return np.abs(self.scores)

    @property
    def direction(self) -> FloatArray:
        """Whether each unit speaks for the target (1) or against it (-1): `sign(E)` of AttCAT's Eq. 6."""
        return np.sign(self.scores)

    @property
    def heat(self) -> FloatArray:
        """Of an image, the scores as a map [height, width] of what the model saw.

        Of a method that scores pixels, theirs; else the grid of patches, upsampled bilinearly.
        """
        if self.image is None:
            raise BadOption("a heat map is of an image, and this explanation is of a text")
        return heat_map(self.units, self.scores, self.image.size) if self.pixels is None else self.pixels

    @property
    def conservation(self) -> dict[str, float] | None:
        """For a relevance method, the `sum` of the relevance that arrived beside what was `expected`."""
        sums: dict[str, float] | None = self.diagnostics.get("conservation")
        return sums

    @property
    def ranked(self) -> list[int]:
        """The positions of the units that are not special, highest score first, ties in order of position."""
        positions = [i for i, unit in enumerate(self.units) if not unit.special]
        return sorted(positions, key=lambda i: -self.scores[i])

    @validated
    def top(self, count: Annotated[int, Count(0)] = 5, by: Literal["score", "magnitude"] = "score") -> list[ScoredUnit]:
        """The units with the highest scores, or with the highest magnitudes."""
        order = self.ranked if by == "score" else sorted(self.ranked, key=lambda i: -abs(self.scores[i]))
        return [self._scored(i) for i in order[:count]]

    @validated
    def strongest(self, count: Annotated[int, Count(0)]) -> list[ScoredUnit]:
        """The units with the highest magnitudes, without the one after which a next token is predicted."""
        order = sorted(self.ranked, key=lambda i: -abs(self.scores[i]))
        return [self._scored(i) for i in order if i != self.predicts_at][:count]

    @validated
    def words(self, combine: Literal["sum", "max"] | None = None) -> list[ScoredUnit]:
        """The words of the text with the sum, or the maximum, of their tokens' scores, in order of the text."""
        merged = self.by_word(combine)
        return [merged._scored(i) for i, unit in enumerate(merged.units) if not unit.special]

    @validated
    def by_word(self, combine: Literal["sum", "max"] | None = None) -> Self:
        """The same explanation with words for units: by the sum of their tokens, unless scores are mere ranks."""
        if self.image is not None and not self.texts:
            raise BadOption("words are of texts: the units of an image are patches")
        combine = combine or ("max" if self.ranks else "sum")
        joined = join_words(self.units, self.texts)
        units, members = tuple(unit for unit, _ in joined), [places for _, places in joined]
        scores = np.array([(np.sum if combine == "sum" else np.max)(self.scores[places]) for places in members])
        summed = combine == "sum" and self.layers is not None and members
        layers = np.stack([self.layers[:, places].sum(1) for places in members], axis=1) if summed else None  # type: ignore[index]
        strongest = [places[int(self.scores[places].argmax())] for places in members]  # whose sign a word has
        predicts_at = next((n for n, places in enumerate(members) if self.predicts_at in places), None)
        signs = None if self.signs is None else self.signs[strongest]
        checked = None if self.checked is None else self.checked.joined(members)
        return replace(
            self, units=units, scores=scores, layers=layers, signs=signs, checked=checked, predicts_at=predicts_at
        )

    def for_people(self, tokens: bool = False) -> Self:
        """The explanation by words, unless `tokens` are asked for."""
        if tokens or not self.texts or not any(unit.kind == "token" for unit in self.units):
            return self
        made = self.by_word()
        object.__setattr__(made, "trusted", self.trusted)
        return made

    def __getitem__(self, word: str) -> float:
        """The score of a word: the sum over all its occurrences, or the highest of them where scores are mere ranks.

        As it is written in the text, or else with letters of either case.
        """
        scores = [unit.score for unit in self._occurrences(word)]
        return max(scores) if self.ranks else float(np.sum(scores))

    def __contains__(self, word: object) -> bool:
        """Whether a word stands in the text, in letters of either case."""
        return isinstance(word, str) and word.casefold() in {unit.text.casefold() for unit in self.words()}

    @validated
    def share(self, word: str) -> float:
        """How much of all that matters is due to a word: its part of the sum of the magnitudes of all words, 0 … 1."""
        every = sum(abs(unit.score) for unit in self.words())
        return sum(abs(unit.score) for unit in self._occurrences(word)) / every if every else 0.0

    @validated
    def agreement(self, other: "ExplanationData", k: int = TOP) -> Agreement:
        """How far another explanation of the same input agrees: in the order, in the `k` strongest, and in the signs.

        Where the tokens of two models are not the same, their words are compared.
        """
        if not isinstance(other, ExplanationData):
            raise BadInput(f"agreement is that of two explanations; found {shown(other)}")
        return agreement_of(self, other, k)

    def __eq__(self, other: object) -> bool:
        """Whether both explain the same by the same method, with scores that differ by rounding alone."""
        if not isinstance(other, ExplanationData):
            return NotImplemented
        if self._identity != other._identity or _nested(self.options, list) != _nested(other.options, list):
            return False
        dtype = _coarser(self.provenance.get("dtype"), other.provenance.get("dtype"))
        return close(self.scores, other.scores, dtype) or close(other.scores, self.scores, dtype)

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        """What has to be the same, to the letter, of equal explanations."""
        return self.units, self.texts, self.image is None, self.target, self.versus, self.explains, self.method

    def _occurrences(self, word: str) -> list[ScoredUnit]:
        """The words of the text that are written like this one; an error that names the nearest if there are none."""
        if not isinstance(word, str):
            raise BadInput(f"a word is asked for by its text, as e['film']; found {shown(word)}: see e.units, e.scores")
        words = self.words()
        return [words[number] for number in occurrences(word, [unit.text for unit in words])]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `save` writes it; `docs/format.md` describes every field."""
        trust = {} if self.trusted is None else {"trust": self.trusted.to_dict()}
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "method": self.method,
            "options": self.options,
            "signed": self.signed,
            "ranks": self.ranks,
            "signs": None if self.signs is None else self.signs.tolist(),
            "seen": [_nested(asdict(seen), list) for seen in self.seen],
            "texts": list(self.texts),
            "prediction": plain_label(self.prediction),
            "target": plain_label(self.target),
            "versus": plain_label(self.versus) if self.versus else None,
            "units": [{**plain_unit(u), "score": float(s)} for u, s in zip(self.units, self.scores, strict=True)],
            "layers": None if self.layers is None else self.layers.tolist(),
            "checked": None if self.checked is None else self.checked.to_dict(),
            "diagnostics": self.diagnostics,
            "provenance": self.provenance,
            **({} if self.explains == "logit" else {"explains": self.explains}),
            **({} if self.predicts_at is None else {"predicts_at": self.predicts_at}),
            **({} if self.image is None else {"image": plain_picture(self.image)}),
            **({} if self.pixels is None else {"pixels": plain_pixels(self.pixels)}),
            **trust,
        }

    @classmethod
    @validated
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The explanation that `to_dict` gave."""
        return cls._of(EXPLANATION.checked(data))

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Self:
        """From data that was checked."""
        units = [_known(Unit, {**entry, "span": _span(entry["span"]), "box": _box(entry)}) for entry in data["units"]]
        made = cls(
            units=tuple(units),
            scores=np.array([entry["score"] for entry in data["units"]], dtype=np.float64),
            prediction=_known(Predicted, _fields(data["prediction"])),
            target=_known(Label, _fields(data["target"])),
            versus=_known(Label, _fields(data["versus"])) if data["versus"] else None,
            layers=None if data["layers"] is None else np.array(data["layers"], dtype=np.float64),
            texts=tuple(data["texts"]),
            signs=None if data["signs"] is None else np.array(data["signs"], dtype=np.int64),
            seen=tuple(_known(Seen, _nested(seen, tuple)) for seen in data["seen"]),
            image=picture_of(data["image"]) if "image" in data else None,
            pixels=pixels_of(data["pixels"]) if "pixels" in data else None,
            checked=None if data.get("checked") is None else Checked.from_dict(data["checked"]),
            explains=data.get("explains", "logit"),
            predicts_at=data.get("predicts_at"),
            **{name: data[name] for name in ("method", "signed", "ranks", "options", "diagnostics", "provenance")},
        )
        if "trust" in data:
            object.__setattr__(made, "trusted", cls._trust_kind.from_dict(data["trust"]))
        return made

    def _scored(self, position: int) -> ScoredUnit:
        return ScoredUnit(self.units[position].text, float(self.scores[position]), self.units[position])


E = TypeVar("E", bound=ExplanationData)


@dataclass(frozen=True, eq=False)
class ComparisonData(Sequence[E]):
    """What a `Comparison` is made of."""

    explanations: tuple[E, ...]
    refused: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for one in self.explanations:
            if not isinstance(one, ExplanationData):
                raise BadInput(f"a comparison is made of explanations; found {shown(one)}")
        object.__setattr__(self, "explanations", tuple(self.explanations))

    def by_agreement(self) -> Self:
        """The same, those that agree most with the others first and baselines last."""
        means = mean_agreements(self.explanations)
        order = sorted(range(len(self)), key=lambda n: (self[n].method in BASELINES, -_or_least(means[n])))
        return replace(self, explanations=tuple(self[n] for n in order))

    def __getitem__(self, index: Any) -> Any:
        return self.explanations[index]

    def __len__(self) -> int:
        return len(self.explanations)

    def __iter__(self) -> Iterator[E]:
        return iter(self.explanations)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `save` writes it."""
        return {
            "schema": COMPARISON_SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "explanations": [e.to_dict() for e in self],
            "refused": dict(self.refused),
        }


def _or_least(correlation: float | None) -> float:
    return -1.0 if correlation is None else correlation


def plain_unit(unit: Unit) -> dict[str, Any]:
    """As plain data, with `unknown` and `box` only where there is one."""
    return {name: value for name, value in asdict(unit).items() if name not in ("unknown", "box") or value}


def plain_label(label: Label | Predicted) -> dict[str, Any]:
    """As plain data, with the fields of some tasks only where they hold something."""
    return {name: value for name, value in asdict(label).items() if name not in OF_SOME_TASKS or value is not None}


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `plain_label` was given, from JSON."""
    label: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    if where := label.get("span"):
        label["span"] = AnswerSpan(tuple(where["tokens"]), _span(where["characters"]))
    if where := label.get("place"):
        label["place"] = OutputPosition(where["token"], where["part"], _span(where["characters"]))
    return label


def _coarser(*names: Any) -> torch.dtype:
    """The dtype with the fewest digits of these; float32 for those that have no name."""
    known = [getattr(torch, str(name), None) for name in names]
    return coarsest([dtype if dtype in ROUNDING else torch.float32 for dtype in known])


def _nested(data: Any, kind: type[list[Any]] | type[tuple[Any, ...]]) -> Any:
    """Plain data with lists for tuples, or the other way round, also inside."""
    if isinstance(data, Mapping):
        return {name: _nested(value, kind) for name, value in data.items()}
    return kind(_nested(value, kind) for value in data) if isinstance(data, (list, tuple)) else data


def _span(places: Sequence[int] | None) -> Span | None:
    return None if places is None else (places[0], places[1])


def _box(entry: Mapping[str, Any]) -> Box | None:
    return tuple(entry["box"]) if entry.get("box") else None


def _known(kind: type[T], data: Mapping[str, Any]) -> T:
    """An object from those of its fields that this version knows."""
    return kind(**{f.name: data[f.name] for f in fields_of(kind) if f.name in data})  # type: ignore[arg-type]
