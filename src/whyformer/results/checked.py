"""What a model says without the words, or regions of an image, that an explanation calls the strongest."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from whyformer.storage.schema import count, every, fields, flag, number, one_of, optional, text, whole

LITTLE = 0.1  # of log-odds: what changes them by less hardly matters
LITTLE_OF_SCORES = 0.1  # of the largest effect, where the model gives no probability

EffectQuantity = Literal["log_odds", "output"]


@dataclass(frozen=True)
class Effect:
    """What hiding one word, or one region of an image, did to the explained output.

    `units` are the positions of what was hidden together, `score` the sum of their scores. `effect` is how far the
    log-odds of the output fell, or the output itself where it has no probability: above 0 the word spoke for it.
    `direction` is 1 for a word that speaks for the output, -1 against it, and 0 if it hardly matters.
    `probability` is that of the output without the word.
    """

    text: str
    units: tuple[int, ...]
    score: float
    effect: float
    direction: int
    output: float
    probability: float | None = None


@dataclass(frozen=True)
class Checked:
    """The strongest words or regions of one explanation, each hidden alone, and what the model said then.

    `hide` is how they were hidden, `measure` what effects are counted in, `output` and `probability` what the model
    says of the whole input. `signed`: the scores have a sign, which may be wrong. `together` has the effect of hiding
    all words at once whose scores are for the output, and that of all against it, where there are several. Words that
    say the same hardly matter one by one. Unsigned scores have one side.
    """

    hide: str
    measure: EffectQuantity
    signed: bool
    output: float
    probability: float | None
    effects: tuple[Effect, ...]
    together: tuple[Effect, ...] = ()

    def agrees(self, effect: Effect) -> bool | None:
        """Whether a score has the sign of its effect; None if it has no sign, or hiding it hardly matters."""
        if not self.signed or not effect.direction:
            return None
        return bool(np.sign(effect.score) == effect.direction)

    def probabilities(self, effect: Effect, compared: bool = False) -> tuple[float, float] | None:
        """The probability of the output before and after; None if the output has none.

        Of two outputs that are `compared` it is that of the first, as if there were no others.
        """
        if self.probability is None or effect.probability is None:
            return None
        if compared and self.measure == "log_odds":
            return _probability(self.output), _probability(effect.output)
        return self.probability, effect.probability

    def side(self, effect: Effect) -> int:
        """The side that a word is shown on: that of its effect, or none if it hardly matters.

        Words that say the same hardly matter one by one: where hiding all words of its side at once does what the score
        says, a word keeps the side of its score.
        """
        if effect.direction or not self.signed:
            return effect.direction
        side = next((one for one in self.together if set(effect.units) <= set(one.units)), None)
        return side.direction if side is not None and np.sign(effect.score) == side.direction else 0

    def of(self, position: int) -> Effect | None:
        """The effect of the unit at a position, if it was hidden."""
        return next((effect for effect in self.effects if position in effect.units), None)

    def joined(self, members: Sequence[Sequence[int]]) -> "Checked":
        """The same of units that are made of others, which stand at these positions."""
        whose = {place: number for number, places in enumerate(members) for place in places}

        def moved(effect: Effect) -> Effect:
            return replace(effect, units=tuple(sorted({whose[place] for place in effect.units if place in whose})))

        return replace(self, effects=tuple(map(moved, self.effects)), together=tuple(map(moved, self.together)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        effects = {name: list(map(_plain, getattr(self, name))) for name in ("effects", "together")}
        return {**asdict(self), **effects}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Checked":
        """What `to_dict` gave."""
        own = {name: data[name] for name in ("hide", "measure", "signed", "output", "probability")}
        effects, together = (tuple(map(_effect, data[name])) for name in ("effects", "together"))
        return cls(**own, effects=effects, together=together)


def _plain(effect: Effect) -> dict[str, Any]:
    return {**asdict(effect), "units": list(effect.units)}


def _probability(log_odds: float) -> float:
    return 0.5 * (1 + math.tanh(log_odds / 2))


def _effect(data: Mapping[str, Any]) -> Effect:
    names = ("text", "score", "effect", "direction", "output", "probability")
    return Effect(units=tuple(data["units"]), **{name: data[name] for name in names})


def directions(effects: Sequence[float], measure: EffectQuantity) -> list[int]:
    """Which way each effect goes: 1, -1, or 0 where it is little."""
    largest = max(map(abs, effects), default=0.0)
    little = LITTLE if measure == "log_odds" else LITTLE_OF_SCORES * largest
    return [0 if abs(effect) < little or not effect else int(np.sign(effect)) for effect in effects]


_SHARE = number(0, 1.001)
_EFFECT = fields(
    {
        "text": text,
        "units": every(count, at_least=1),
        "score": number(),
        "effect": number(),
        "direction": whole(-1, 2),
        "output": number(),
        "probability": optional(_SHARE),
    }
)
CHECKED = fields(
    {
        "hide": text,
        "measure": one_of("log_odds", "output"),
        "signed": flag,
        "output": number(),
        "probability": optional(_SHARE),
        "effects": every(_EFFECT),
        "together": every(_EFFECT),
    }
)
