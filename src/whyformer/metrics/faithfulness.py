"""Faithfulness: how far the prediction falls when the units that an explanation ranks highest are hidden."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.arrays import BoolArray
from whyformer.errors import BadOption
from whyformer.inputs.input import TensorInput, flags_of
from whyformer.metrics.case import Case, Combine, TargetClass, Units, refuse_together
from whyformer.metrics.metric import Measured, metric
from whyformer.perturb import HideName, HideNameOrNone, count_of
from whyformer.registry.options import Added

MetricProtocol = Literal["attcat", "mask_lrp"]
SpecialTokens = Annotated[bool, Added()]

TENTHS = [step / 10 for step in range(11)]
ERASER = [0.01, 0.05, 0.1, 0.2, 0.5]
SHORTEST = {"attcat": 10, "mask_lrp": 20}  # the authors skip texts of fewer tokens, special ones included
AUTHORS_STEPS = 10


@dataclass(frozen=True)
class Falls:
    """The probability of one class of each text, whole [batch] and at every step [batch, steps]; NaN: no such step."""

    whole: Tensor
    after: Tensor
    at: tuple[float, ...]

    def measured(self, values: Tensor, kept: Tensor) -> Measured:
        """The mean over the steps, of the texts that are kept."""
        curve = values.masked_fill(~kept[:, None], torch.nan)
        return Measured(curve.nanmean(1), curve, self.at)


@dataclass(frozen=True)
class Deletion:
    """What is hidden, and how: the options that all metrics share which hide units in the order of their scores."""

    hide: str
    fractions: list[float] | None
    target: TargetClass
    units: Units
    combine: Combine

    def at(self, usual: Sequence[float]) -> tuple[float, ...]:
        """Fractions of the units, if each is one."""
        if wrong := [q for q in self.fractions or () if not 0 <= q <= 1]:
            raise BadOption(f"fractions lie between 0 and 1; found {wrong[0]}")
        return tuple(float(q) for q in (self.fractions or usual))

    def steps(self, case: Case, at: Sequence[float], *, revealing: bool = False, up: bool = False) -> list[BoolArray]:
        """Which places of each example are hidden at each step: its highest units, or all others if `revealing`."""
        steps = []
        for turns, units in case.turns(self.target, self.units, self.combine):
            count = _counts(tuple(at), units, up)
            steps.append((turns >= count) & (turns < units) if revealing else turns < count)
        return steps


@lru_cache
def _counts(at: tuple[float, ...], units: int, up: bool) -> NDArray[np.intp]:
    """How many of so many units are hidden at each step, [steps, 1]."""
    return np.array([[count_of(share, units, up=up)] for share in at])


@metric(
    family="faithfulness",
    higher_is_better=True,
    bounds=(-1, 1),
    hides=True,
    ceiling=True,
    paper="Samek et al. 2017; Nguyen 2018; Qiang et al. 2022",
)
def aopc(
    case: Case,
    *,
    hide: HideNameOrNone = None,
    fractions: list[float] | None = None,
    absolute: bool | None = None,
    target: TargetClass = "predicted",
    units: Units = "token",
    combine: Combine = "sum",
    protocol: MetricProtocol | None = None,
    min_tokens: int | None = None,
    min_probability: float = 0.0,
    special_tokens: SpecialTokens = False,
) -> Measured:
    """How far the probability falls while the highest-ranked units are deleted, on average over 0, 10, …, 100 %.

    The area over the perturbation curve, the mean of `p(0) - p(k)`. `absolute` takes each step's size. A protocol is
    what the authors' code does: nine steps `unique(round(linspace(0, 1, 10) · N))[1:]` with `N` counting special
    tokens, the token ranked last never hidden, [PAD] still attended to, texts of fewer than 10 (AttCAT) or 20
    (Mask-LRP) tokens left out; `attcat` is absolute. With `special_tokens` it hides these too, the first one scored 0,
    as AttCAT's code does by a slip for pairs. Texts below `min_tokens` or `min_probability` are left out.
    """
    refuse_together(protocol, fractions=fractions, absolute=absolute)
    deletion = Deletion(hide_of(hide, protocol), fractions, target, units, combine)
    falls = _falls(case, deletion, protocol, special_tokens)
    drops = falls.whole[:, None] - falls.after
    if absolute or protocol == "attcat":
        drops = drops.abs()
    return falls.measured(drops, _kept(case, falls, protocol, min_tokens, min_probability))


@metric(
    family="faithfulness",
    higher_is_better=False,
    bounds=(-np.inf, np.inf),
    hides=True,
    ceiling=True,
    takes="texts",
    paper="Shrikumar et al. 2017; Chen et al. 2019; Qiang et al. 2022",
)
def log_odds(
    case: Case,
    *,
    hide: HideName = "pad_attended",
    fractions: list[float] | None = None,
    target: TargetClass = "predicted",
    units: Units = "token",
    combine: Combine = "sum",
    protocol: MetricProtocol | None = None,
    min_tokens: int | None = None,
    min_probability: float = 0.0,
    special_tokens: SpecialTokens = False,
) -> Measured:
    """How the logarithm of the probability changes while the highest-ranked units are replaced by padding tokens.

    The mean of `log(p(k) / p(0))` over 0, 10, …, 100 %. The padding is attended to, as the authors do it; `hide="pad"`
    takes it out of attention. Protocols as for `aopc`.
    """
    refuse_together(protocol, fractions=fractions)
    falls = _falls(case, Deletion(hide, fractions, target, units, combine), protocol, special_tokens)
    least = torch.finfo(torch.float64).tiny  # a probability of 0 has no logarithm
    changes = falls.after.clamp_min(least).log() - falls.whole[:, None].clamp_min(least).log()
    return falls.measured(changes, _kept(case, falls, protocol, min_tokens, min_probability))


@metric(
    family="faithfulness", higher_is_better=True, bounds=(-1, 1), hides=True, ceiling=True, paper="DeYoung et al. 2020"
)
def comprehensiveness(
    case: Case,
    *,
    hide: HideName = "delete",
    fractions: list[float] | None = None,
    target: TargetClass = "predicted",
    units: Units = "token",
    combine: Combine = "sum",
) -> Measured:
    """How far the probability falls without the highest-ranked 1, 5, 10, 20 and 50 % of the units.

    ERASER: the mean of `p(all) - p(without the top ⌈q N⌉)`.
    """
    return _eraser(case, Deletion(hide, fractions, target, units, combine), revealing=False)


@metric(family="faithfulness", higher_is_better=False, bounds=(-1, 1), hides=True, paper="DeYoung et al. 2020")
def sufficiency(
    case: Case,
    *,
    hide: HideName = "delete",
    fractions: list[float] | None = None,
    target: TargetClass = "predicted",
    units: Units = "token",
    combine: Combine = "sum",
) -> Measured:
    """How far the probability falls with nothing but the highest-ranked 1, 5, 10, 20 and 50 % of the units.

    ERASER: the mean of `p(all) - p(only the top ⌈q N⌉)`; special tokens stay.
    """
    return _eraser(case, Deletion(hide, fractions, target, units, combine), revealing=True)


def _eraser(case: Case, deletion: Deletion, revealing: bool) -> Measured:
    at = deletion.at(ERASER)
    steps = partial(deletion.steps, case, at, revealing=revealing, up=True)
    falls = _probabilities(case, deletion, at, steps, revealing)
    return falls.measured(falls.whole[:, None] - falls.after, torch.ones(len(case), dtype=torch.bool))


def _falls(case: Case, deletion: Deletion, protocol: MetricProtocol | None, special_tokens: bool) -> Falls:
    if special_tokens and protocol != "attcat":
        raise BadOption("special_tokens=true is of protocol='attcat': special tokens are hidden nowhere else")
    if protocol is not None:
        refuse_together(protocol, units=None if deletion.units == "token" else deletion.units)
        at = tuple(np.linspace(0, 1, AUTHORS_STEPS)[1:].tolist())
        authors = partial(_authors_steps, case, deletion.target, special_tokens)
        return _probabilities(case, deletion, at, authors, (protocol, special_tokens))
    at = deletion.at(TENTHS)
    return _probabilities(case, deletion, at, partial(deletion.steps, case, at), None)


def _authors_steps(case: Case, target: TargetClass, special_tokens: bool) -> list[BoolArray]:
    """What AttCAT's and Mask-LRP's code hides: special tokens are counted and ranked, but skipped when hiding.

    Where they are not skipped, the first has the score 0, as the code gives it.
    """
    steps = []
    for scores, rankable in zip(case.scores_of(case.chosen(target)), case.rankable, strict=True):
        ranked = np.concatenate(([0.0], scores[1:])) if special_tokens else scores
        order = np.argsort(-ranked, kind="stable")[:-1]  # the last is never reached
        hideable = [place for place in order.tolist() if special_tokens or place in rankable]
        counts = np.unique(np.round(np.linspace(0, 1, AUTHORS_STEPS) * len(scores)).astype(int))[1:]
        steps.append(flags_of([hideable[:count] for count in counts], len(scores)))
    return steps


class _Asked(NamedTuple):
    """What is asked of the model: the inputs for each text, the first of them whole, and how many of them are steps."""

    inputs: list[list[TensorInput]]
    steps: NDArray[np.int64]

    @classmethod
    def of(cls, case: Case, steps: Sequence[BoolArray], hide: str) -> "_Asked":
        asked = [np.insert(gone, 0, False, axis=0) if gone[0].any() else gone for gone in steps]
        return cls(case.without(asked, hide), np.array([len(gone) for gone in steps]))


def _probabilities(
    case: Case, deletion: Deletion, at: tuple[float, ...], steps: Callable[[], list[BoolArray]], way: Hashable
) -> Falls:
    """The probabilities at each of the `steps`, which are made once for a case, a deletion and a `way` to make them."""
    key = (deletion.hide, deletion.target, deletion.units, deletion.combine, at, way)
    asked = case.planned(key, lambda: _Asked.of(case, steps(), deletion.hide))
    counts, lengths = asked.steps, np.array([len(of_one) for of_one in asked.inputs])
    shares = torch.cat(case.answers(asked.inputs)).numpy()
    of_class = shares[np.arange(len(shares)), case.chosen(deletion.target).numpy().repeat(lengths)]
    firsts = lengths.cumsum() - lengths
    is_step = np.ones(len(of_class), dtype=bool)
    is_step[firsts[lengths > counts]] = False  # where the whole text is not a step, too
    after = np.full((len(case), len(at)), np.nan)
    after[np.arange(len(at)) < counts[:, None]] = of_class[is_step]
    return Falls(torch.from_numpy(of_class[firsts]), torch.from_numpy(after), at)


def _kept(
    case: Case, falls: Falls, protocol: MetricProtocol | None, min_tokens: int | None, min_probability: float
) -> Tensor:
    shortest = min_tokens if min_tokens is not None else SHORTEST.get(protocol or "", 0)
    lengths = torch.tensor([len(one) for one in case.inputs])
    return (lengths >= shortest) & (falls.whole >= min_probability)


def hide_of(hide: str | None, protocol: MetricProtocol | None) -> str:
    """How `aopc` hides: as it is told, else as the authors do, else by deletion."""
    return hide or ("delete" if protocol is None else "pad_attended")


def area_weights(at: tuple[float, ...], normalised: bool = True) -> Tensor:
    """Weights whose sum with a curve is its area by trapezoids; if `normalised`, divided by the range."""
    if len(at) < 2 or any(b <= a for a, b in pairwise(at)):
        raise BadOption(f"an area needs at least two fractions in rising order; found {list(at)}")
    gaps = torch.tensor(at, dtype=torch.float64).diff()
    zero = torch.zeros(1, dtype=torch.float64)
    weights = (torch.cat((gaps, zero)) + torch.cat((zero, gaps))) / 2
    return weights / (at[-1] - at[0]) if normalised else weights


def flat(groups: Sequence[Sequence[int]]) -> list[int]:
    """The places of several units."""
    return [place for group in groups for place in group]
