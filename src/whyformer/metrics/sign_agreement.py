"""Signs: whether a unit that an explanation says speaks for a class, or against it, does so once it is hidden."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from whyformer.arrays import FloatArray
from whyformer.errors import BadOption
from whyformer.metrics.case import Case, TargetClass, Units
from whyformer.metrics.metric import Measured, metric
from whyformer.perturb import HideName
from whyformer.registry.options import Count

Top = Annotated[int, Count(1, 10_000, "no text is longer")]
Strongest = Sequence[tuple[list[int], float]]  # the places and scores of units


def share_of_right_signs(records: Sequence[Mapping[str, Any]], **_: Any) -> float:
    """Units whose score has the sign of their effect / units that have an effect, over all texts."""
    counted = sum(record["counted"] for record in records)
    return sum(record["right"] for record in records) / counted if counted else math.nan


@metric(
    family="signs",
    higher_is_better=True,
    bounds=(0, 1),
    needs={"signs"},
    level="corpus",
    reduce=share_of_right_signs,
    hides=True,
    takes="texts",
    paper="–",
)
def sign_agreement(
    case: Case,
    *,
    top: Top = 3,
    hide: HideName = "delete",
    units: Units = "word",
    threshold: float = 0.1,
    target: TargetClass = "predicted",
) -> Measured:
    """Share of the strongest units whose score has the sign of what the unit does to the class.

    The effect of a unit is how far the log-odds of the class fall once it alone is hidden: `logit p(whole) - logit
    p(without)`, above 0 where it spoke for the class. It is asked of the `top` units by the size of their score, and
    counts where its size is above `threshold`. Units are pooled: right ones / counted ones over all texts. A score of 0
    has no sign, and is not right.
    """
    if not threshold >= 0:
        raise BadOption(f"threshold={threshold}: the least size of an effect that counts, 0 or more")
    chosen = case.chosen(target)
    strongest = [_strongest(*of_text, top) for of_text in zip(case.units(units), case.scores_of(chosen), strict=True)]
    odds = case.log_odds([[[], *(group for group, _ in of_text)] for of_text in strongest], hide, chosen)
    records = [_record(of_text, of_class, threshold) for of_text, of_class in zip(strongest, odds, strict=True)]
    values = [share_of_right_signs([record]) for record in records]
    return Measured(torch.tensor(values, dtype=torch.float64), records=tuple(records))


def _strongest(groups: Sequence[list[int]], scores: FloatArray, top: int) -> Strongest:
    """The places of the units whose scores are largest in size, with these; ties in order of position."""
    scored = [(group, float(scores[group].sum())) for group in groups]
    return sorted(scored, key=lambda one: -abs(one[1]))[:top]


def _record(strongest: Strongest, odds: Tensor, threshold: float) -> dict[str, Any]:
    """The signs of the strongest units of a text, the effects that hiding each has, and how many of them are right."""
    signs = [(score > 0) - (score < 0) for _, score in strongest]
    effects: list[float] = (odds[0] - odds[1:]).tolist()
    right = [sign * effect > 0 for sign, effect in zip(signs, effects, strict=True) if abs(effect) > threshold]
    return {"right": sum(right), "counted": len(right), "signs": signs, "effects": effects}
