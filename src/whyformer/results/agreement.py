"""How far two explanations of the same input agree: as numbers, and as a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from whyformer.errors import BadInput, BadOption

if TYPE_CHECKING:
    from whyformer.results.explanation import ExplanationData

Floats = NDArray[np.float64]
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


def _felt(explanation: "ExplanationData", signed: bool) -> Floats:
    return explanation.scores if signed else explanation.magnitude


def _strongest(explanation: "ExplanationData", k: int) -> list[int]:
    return sorted(explanation.ranked, key=lambda place: (-abs(explanation.scores[place]), place))[:k]


def _correlations(first: Floats, second: Floats) -> tuple[float | None, float | None]:
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


def _sides(explanation: "ExplanationData") -> Floats | None:
    """For each unit whether it spoke for the target or against it, if the explanation tells."""
    if explanation.signed:
        return explanation.direction
    return None if explanation.signs is None else np.sign(explanation.signs).astype(np.float64)
