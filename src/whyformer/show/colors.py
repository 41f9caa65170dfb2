"""One scale of colours for every picture: blue speaks for the target, orange against it, violet is plain importance.

Blue and orange are told apart by people who do not tell red from green; what is orange is hatched, in italics or has a
minus beside it too. Where the model was asked again without a word, its colour follows what the model said.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whyformer.arrays import FloatArray
from whyformer.errors import BadOption
from whyformer.results.explanation import ExplanationData, ScoredUnit

Colour = tuple[int, int, int]
Scale = Literal["row", "shared"]  # what colours of several rows are beside: the largest score of the row, or of all

FOR: Colour = (0, 114, 178)
AGAINST: Colour = (213, 94, 0)
IMPORTANCE: Colour = (116, 75, 160)
NEUTRAL: Colour = (128, 128, 128)  # of a word that hardly matters, whatever its score is
FAINT = 0.05  # weaker units get no colour


def two_sided(explanation: ExplanationData) -> bool:
    """Whether colours tell what speaks for the target from what speaks against it."""
    return explanation.signed or _signs(explanation) is not None


def strengths(explanation: ExplanationData, peak: float | None = None) -> FloatArray:
    """Scores divided by the largest magnitude among the units that are shown, or by `peak`; 0 for special tokens.

    Those of an order are below 0 where a unit spoke against the target when it was hidden. Of an image with a text
    each side has its own peak: they add up each by itself.
    """
    visible, patches, signs = _visible(explanation), _patches(explanation), _signs(explanation)
    sizes = scaled(np.where(patches, visible, 0.0), peak) + scaled(np.where(patches, 0.0, visible), peak)
    sizes = sizes if signs is None else np.where(signs < 0, -sizes, sizes)
    return _as_checked(explanation, sizes) if explanation.signed else sizes


def _as_checked(explanation: ExplanationData, sizes: FloatArray) -> FloatArray:
    """With the side of each word that was hidden: that of its effect, and none if it hardly matters."""
    sides = np.sign(sizes)
    if explanation.checked is None:
        return sizes
    for effect in explanation.checked.effects:
        for place in effect.units:
            if explanation.units[place].box is None:
                sides[place] = explanation.checked.side(effect)
    return sides * np.abs(sizes)


def largest(explanation: ExplanationData) -> float:
    """The largest magnitude among the units that are shown; of an image among its patches, or its pixels."""
    if explanation.pixels is not None:
        return _peak(explanation.pixels)
    visible = _visible(explanation)
    return _peak(visible if explanation.image is None else visible[_patches(explanation)])


def common_peak(explanations: Iterable[ExplanationData], scale: Scale) -> float | None:
    """The largest magnitude of all rows, if they share a scale."""
    if scale not in ("row", "shared"):
        raise BadOption(f"scale={scale!r}: known: row (each row by its own largest score), shared (all by one)")
    return max(map(largest, explanations), default=0.0) if scale == "shared" else None


def _patches(explanation: ExplanationData) -> NDArray[np.bool_]:
    return np.array([unit.box is not None for unit in explanation.units], dtype=bool)


def _visible(explanation: ExplanationData) -> FloatArray:
    """Scores, and 0 for units without a color: special ones, and the one after which a next token is predicted."""
    shown = [not unit.special and place != explanation.predicts_at for place, unit in enumerate(explanation.units)]
    return np.where(shown, explanation.scores, 0.0)


def _peak(scores: FloatArray) -> float:
    return float(np.abs(scores).max(initial=0))


def strongest(explanation: ExplanationData, count: int) -> list[tuple[ScoredUnit, Colour]]:
    """The units with the highest magnitudes, each with its colour at its strongest."""
    place_of = {id(unit): place for place, unit in enumerate(explanation.units)}
    strength, signed = strengths(explanation), two_sided(explanation)
    top = explanation.strongest(count)
    return [(scored, _at_its_strongest(float(strength[place_of[id(scored.unit)]]), signed)) for scored in top]


def _at_its_strongest(strength: float, signed: bool) -> Colour:
    return NEUTRAL if signed and not strength else hue(strength, signed)


def side_colour(direction: int) -> Colour:
    """The colour of an effect: for the target, against it, or of no matter."""
    return NEUTRAL if not direction else hue(direction, True)


def written(explanation: ExplanationData, score: float, digits: int = 4) -> str:
    """A score for people: with its sign, if scores below zero speak against the target."""
    return f"{score:{'+' if explanation.signed else ''}.{digits}g}"


def _signs(explanation: ExplanationData) -> NDArray[np.int64] | None:
    """Whether each unit spoke for the target or against it when it was hidden, if scores tell the order alone."""
    return None if explanation.signed else explanation.signs


def scaled(scores: FloatArray, peak: float | None = None) -> FloatArray:
    """Scores divided by the largest magnitude among them, or by `peak`."""
    peak = _peak(scores) if peak is None else peak
    return scores / peak if peak > 0 else np.zeros_like(scores)


def hue(strength: float, signed: bool) -> Colour:
    """The colour of a score at its strongest."""
    if not signed:
        return IMPORTANCE
    return FOR if strength >= 0 else AGAINST


def on_white(strength: float, signed: bool) -> Colour:
    """The colour mixed with white, the paler the weaker."""
    full, weight = hue(strength, signed), min(1.0, abs(strength))
    red, green, blue = (round(255 + (channel - 255) * weight) for channel in full)
    return red, green, blue


def ink(background: Colour) -> Colour:
    """Black or white, whichever reads better on a background."""
    red, green, blue = ((c / 255) ** 2.2 for c in background)
    return (0, 0, 0) if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else (255, 255, 255)


def as_hex(colour: Sequence[int]) -> str:
    """`#rrggbb`."""
    return "#" + "".join(f"{channel:02x}" for channel in colour)
