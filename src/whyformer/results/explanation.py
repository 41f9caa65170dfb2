"""What an explanation is made of: scores with their units, what they explain, and where they came from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, asdict, dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from whyformer.errors import BadOption
from whyformer.inputs.images import Picture, heat_map
from whyformer.inputs.units import Box, Span, Unit, join_words
from whyformer.models.loading import Subject
from whyformer.perturb.seen import Seen
from whyformer.results.pictures import PICTURE, PIXELS, picture_of, pixels_of, plain_picture, plain_pixels
from whyformer.results.trust import Trust
from whyformer.storage.forms import (
    Format,
    Misfit,
    both,
    count,
    every,
    fields,
    flag,
    must,
    named,
    number,
    one_of,
    optional,
    plain,
    span,
    text,
    whole,
)
from whyformer.tasks.label import AnswerSpan, Label, Place, Predicted

Array = NDArray[np.float64]
T = TypeVar("T")
SCHEMA = "whyformer/explanation"
COMPARISON_SCHEMA = "whyformer/comparison"
SCHEMA_VERSION = 2
OF_SOME_TASKS = ("span", "place", "title", "indices")  # fields of labels and predictions


@dataclass(frozen=True)
class ScoredUnit:
    """A unit with its score."""

    text: str
    score: float
    unit: Unit


@dataclass(frozen=True, eq=False)
class ExplanationData:
    """What an `Explanation` is made of, which says what the fields mean."""

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
    ranks: bool = False
    signs: NDArray[np.int64] | None = None
    seen: tuple[Seen, ...] = ()
    image: Picture | None = None
    pixels: Array | None = None
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
    def heat(self) -> Array:
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

    def by_word(self, combine: Literal["sum", "max"] | None = None) -> Self:
        """The same explanation with words for units: by the sum of their tokens, unless scores are mere ranks."""
        if self.image is not None and not self.texts:
            raise BadOption("words are of texts: the units of an image are patches")
        combine = combine or ("max" if self.ranks else "sum")
        if combine not in ("sum", "max"):
            raise BadOption(f"words are combined by 'sum' or 'max'; found {combine!r}")
        joined = join_words(self.units, self.texts)
        units, members = tuple(unit for unit, _ in joined), [places for _, places in joined]
        scores = np.array([(np.sum if combine == "sum" else np.max)(self.scores[places]) for places in members])
        summed = combine == "sum" and self.layers is not None and members
        layers = np.stack([self.layers[:, places].sum(1) for places in members], axis=1) if summed else None  # type: ignore[index]
        strongest = [places[int(self.scores[places].argmax())] for places in members]  # whose sign a word has
        signs = None if self.signs is None else self.signs[strongest]
        return replace(self, units=units, scores=scores, layers=layers, signs=signs)

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
            "diagnostics": self.diagnostics,
            "provenance": self.provenance,
            **({} if self.image is None else {"image": plain_picture(self.image)}),
            **({} if self.pixels is None else {"pixels": plain_pixels(self.pixels)}),
            **trust,
        }

    @classmethod
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
            **{name: data[name] for name in ("method", "signed", "ranks", "options", "diagnostics", "provenance")},
        )
        if "trust" in data:
            object.__setattr__(made, "trusted", Trust.from_dict(data["trust"]))
        return made

    def _scored(self, position: int) -> ScoredUnit:
        return ScoredUnit(self.units[position].text, float(self.scores[position]), self.units[position])


E = TypeVar("E", bound=ExplanationData)


@dataclass(frozen=True, eq=False)
class ComparisonData(Sequence[E]):
    """What a `Comparison` is made of."""

    explanations: tuple[E, ...]
    refused: tuple[tuple[str, str], ...] = ()

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
        label["place"] = Place(where["token"], where["part"], _span(where["characters"]))
    return label


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


_ANSWER = fields({"tokens": span, "characters": optional(span)})
_PLACE = fields({"token": count, "part": optional(count), "characters": optional(span)})
_SAID_AT = {"span": optional(_ANSWER), "place": optional(_PLACE), "title": optional(text)}
_LABEL = fields({"index": optional(count), "name": text}, _SAID_AT)
_SHARE = number(0, 1.001)
_PREDICTED = fields(
    {
        "label": text,
        "index": optional(count),
        "probability": optional(_SHARE),
        "logits": every(number()),
        "probabilities": optional(every(_SHARE)),
        "labels": every(text),
    },
    {**_SAID_AT, "indices": optional(every(count))},
)
_UNIT = fields(
    {
        "text": text,
        "kind": one_of("token", "word", "patch"),
        "span": optional(span),
        "part": optional(count),
        "special": flag,
        "piece": optional(text),
        "score": number(),
    },
    {"box": optional(every(count))},
)
_TRUST = fields(
    {
        "aopc": number(),
        "random": every(number(), at_least=1),
        "ceiling": optional(number()),
        "target": text,
        "units": count,
        "kind": one_of("token", "word", "patch"),
        "evaluations": count,
    }
)
_SEEN = fields(
    {
        "hide": text,
        "hidden_in": every(count),
        "outputs": every(optional(number())),
        "probabilities": optional(every(optional(every(_SHARE)))),
        "target": optional(count),
    }
)
_VERSION_1 = fields(
    {
        "method": text,
        "options": named(plain),
        "signed": flag,
        "texts": every(text),
        "prediction": _PREDICTED,
        "target": _LABEL,
        "versus": optional(_LABEL),
        "units": every(_UNIT, at_least=1),
        "layers": optional(every(every(number()), at_least=1)),
        "diagnostics": named(plain),
        "provenance": both(plain, fields({}, {"packages": named(plain)})),
    },
    {"trust": _TRUST, "image": PICTURE, "pixels": PIXELS},
)
_EXPLANATION = both(_VERSION_1, fields({"ranks": flag, "signs": optional(every(whole())), "seen": every(_SEEN)}))


def _fits_together(data: Mapping[str, Any]) -> None:
    """The parts of a saved explanation are as long as they have to be, and every span lies in its text."""
    texts, units = data["texts"], data["units"]
    for place, unit in enumerate(units):
        part, where = unit["part"], unit["span"]
        must(part is None or part < len(texts), f"is {part}, and there are {len(texts)} texts", f"units[{place}].part")
        must(where is None or part is not None, "is missing beside a span", f"units[{place}].part")
        if where is not None:
            must(where[1] <= len(texts[part]), f"is {where}, behind the end of its text", f"units[{place}].span")
        _check_box(unit.get("box"), data.get("image"), f"units[{place}].box")
    for place, layer in enumerate(data["layers"] or ()):
        must(len(layer) == len(units), f"has {len(layer)} scores for {len(units)} units", f"layers[{place}]")
    _check_outputs(data)
    _check_seen(data)


def _check_box(box: Sequence[int] | None, image: Mapping[str, Any] | None, field: str) -> None:
    """The box of a patch lies in the image."""
    if box is not None:
        height, width = (0, 0) if image is None else image["size"]
        inside = len(box) == 4 and box[0] < box[2] <= width and box[1] < box[3] <= height
        must(inside, f"is {list(box)} in an image of {width} × {height} pixels", field)


def _check_outputs(data: Mapping[str, Any]) -> None:
    """What the model said, and what is explained of it, belong together."""
    predicted, texts = data["prediction"], data["texts"]
    outputs = len(predicted["labels"])
    for name in ("logits", "probabilities", "indices"):
        numbers = predicted.get(name)
        told = numbers is None or len(numbers) == outputs
        must(told, f"has {len(numbers or ())} numbers for {outputs} labels", f"prediction.{name}")
    for name in ("prediction", "target", "versus"):
        label = data[name] or {}
        at, answer = label.get("index"), label.get("span")
        kept = predicted.get("indices") or range(outputs)
        must(at is None or at in kept, f"is {at}, and there are {outputs} labels", f"{name}.index")
        where = answer["characters"] if answer else None
        inside = where is None or (len(texts) == 2 and where[1] <= len(texts[1]))
        must(inside, f"is {where}, behind the end of the context", f"{name}.span.characters")
        _check_place(label.get("place"), texts, f"{name}.place")


def _check_place(place: Mapping[str, Any] | None, texts: Sequence[str], field: str) -> None:
    """Where an output is said lies in its text."""
    if place is not None and place["characters"] is not None:
        part, where = place["part"], place["characters"]
        must(part is not None and part < len(texts), f"is {part}, and there are {len(texts)} texts", f"{field}.part")
        must(where[1] <= len(texts[part]), f"is {where}, behind the end of its text", f"{field}.characters")


def _check_seen(data: Mapping[str, Any]) -> None:
    """There is a sign for each unit, and of what was seen a place for each step."""
    units, signs = data["units"], data["signs"]
    must(signs is None or len(signs) == len(units), f"has {len(signs or ())} signs for {len(units)} units", "signs")
    words = any(unit["kind"] == "word" for unit in units)
    for place, seen in enumerate(data["seen"]):
        steps, hidden_in, shares = len(seen["outputs"]), seen["hidden_in"], seen["probabilities"]
        told = all(step < steps for step in hidden_in) and (words or len(hidden_in) == len(units))
        must(told, f"has no step of {steps} for each of {len(units)} units", f"seen[{place}].hidden_in")
        told = shares is None or len(shares) == steps
        must(told, f"has {len(shares or ())} entries for {steps} steps", f"seen[{place}].probabilities")
        classes = {len(row) for row in shares or () if row is not None}
        target = seen["target"]
        told = len(classes) <= 1 and (target is None or not classes or target < max(classes))
        must(told, "do not have the explained class in each step", f"seen[{place}].probabilities")


def _check_per_unit(numbers: Any, units: int, field: str) -> None:
    """A number for each unit; of the start and of the end of an answer, two such lists."""
    for row in numbers if _is_several(numbers) else [numbers]:
        told = isinstance(row, (list, tuple)) and len(row) == units and all(isinstance(n, (int, float)) for n in row)
        must(told, f"has no number for each of the {units} units", field)


def _is_several(numbers: Any) -> bool:
    return isinstance(numbers, (list, tuple)) and bool(numbers) and isinstance(numbers[0], (list, tuple))


def _from_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """In version 1, ranks, signs and what was seen stood among the diagnostics, under names of `stepwise`."""
    new: dict[str, Any] = {"ranks": False, "signs": None, "seen": []}
    told = dict(data["diagnostics"])
    if data["method"] == "stepwise":
        for name in told.keys() & {"sign", "step"}:
            _check_per_unit(told[name], len(data["units"]), f"diagnostics.{name}")
        signs = told.pop("sign", None)
        new["signs"] = [sum(pair) for pair in zip(*signs, strict=True)] if _is_several(signs) else signs
        new["ranks"] = bool(told.pop("ranks", False))
        told.pop("sign_of_tokens", None)
        if isinstance(told.get("outputs"), Mapping) and not _is_several(told.get("step")):
            new["seen"] = [_seen_in_version_1(data)]
            told = {name: fact for name, fact in told.items() if name not in ("outputs", "step", "step_of_tokens")}
    return {**data, "schema_version": 2, "diagnostics": told, **new}


def _seen_in_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """Of one part: what was said of the start and of the end of an answer was added up, and stays where it was."""
    told, outputs = data["diagnostics"], data["diagnostics"]["outputs"]
    shares = outputs.get("probabilities")
    if isinstance(shares, list):
        shares = [None if isinstance(row, list) and None in row else row for row in shares]
    return {
        "hide": data["options"].get("hide", "delete"),
        "hidden_in": told.get("step_of_tokens", told.get("step")),
        "outputs": outputs.get("logit"),
        "probabilities": shares,
        "target": None if shares is None else data["target"]["index"],
    }


def _are_of_one_input(data: Mapping[str, Any]) -> None:
    """The explanations of a saved comparison have the same units."""
    inputs = [(saved["texts"], len(saved["units"]), saved.get("image")) for saved in data["explanations"]]
    for place, one in enumerate(inputs):
        must(one == inputs[0], "is of another input than the first", f"explanations[{place}]")


def _all_from_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    renewed = []
    for place, one in enumerate(data["explanations"]):
        try:
            renewed.append(EXPLANATION.renewed(one))
        except Misfit as misfit:
            raise misfit.below(place).below("explanations") from None
    return {**data, "schema_version": 2, "explanations": renewed}


EXPLANATION = Format(
    "saved explanation",
    SCHEMA,
    SCHEMA_VERSION,
    (_EXPLANATION, _fits_together),
    older={1: (_VERSION_1, _from_version_1)},
)
_REFUSED = {"refused": named(text)}
COMPARISON = Format(
    "saved comparison",
    COMPARISON_SCHEMA,
    SCHEMA_VERSION,
    (fields({"explanations": every(EXPLANATION.check, at_least=1), **_REFUSED}), _are_of_one_input),
    older={1: (fields({"explanations": every(fields({}), at_least=1), **_REFUSED}), _all_from_version_1)},
)
