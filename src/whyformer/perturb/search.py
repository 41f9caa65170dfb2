"""The best order of hiding that a search finds: what an explanation could attain."""

from collections.abc import Sequence
from dataclasses import dataclass

from whyformer.errors import BadInput, BadOption
from whyformer.inputs.hiding import Hide, hide_named
from whyformer.inputs.input import Places, TensorInput
from whyformer.perturb.engine import Outcomes

LONGEST_SEARCH = 64  # units
ORDERS = 20  # random ones beside the best, by the seeds 0 … 19


@dataclass(frozen=True)
class Search:
    """A text to be searched, the places of its units, and the class whose probability is to fall."""

    input: TensorInput
    units: Sequence[Places]
    target: int


@dataclass(frozen=True)
class _SearchState:
    """The units hidden so far, in order, and the sum of the probabilities on the way."""

    order: tuple[int, ...]
    total: float


def best_orders(
    outcomes: Outcomes,
    searches: Sequence[Search],
    classes: int,
    *,
    hide: str | Hide = "delete",
    beam: int = 1,
    keeping: bool = False,
    forgetting: bool = False,
) -> list[list[int]]:
    """An order of hiding that makes the probability fall fast: of each text the numbers of its units.

    One unit at a time, the unit whose hiding lowers the probability most; with a `beam`, that many orders are followed,
    those with the lowest sum of probabilities so far. What it finds is a lower bound of the best (Zhou & Shah 2023).
    Texts go on side by side, so that the engine can batch them. With `keeping`, it is the order that keeps the
    probability as high as can be. `forgetting`: the engine, which nobody else uses, forgets each step.
    """
    longest = max((len(search.units) for search in searches), default=0)
    if longest > LONGEST_SEARCH:
        raise BadInput(f"a text of {longest} units is too long to be searched: at most {LONGEST_SEARCH}")
    if beam < 1:
        raise BadOption(f"beam must be at least 1; found {beam}")
    sign = -1 if keeping else 1
    paths = [[_SearchState((), 0.0)] for _ in searches]
    for step in range(longest):
        going = [n for n, search in enumerate(searches) if step < len(search.units)]
        grown = {n: _grown(paths[n], len(searches[n].units)) for n in going}
        inputs = [_without(searches[n], path, hide_named(hide)) for n in going for path in grown[n]]
        shares = iter(outcomes.of(inputs, classes))
        for n in going:
            longer = [_SearchState(p.order, p.total + sign * float(next(shares)[searches[n].target])) for p in grown[n]]
            paths[n] = sorted(longer, key=lambda path: path.total)[:beam]
        if forgetting:
            outcomes.forget()
    return [list(best[0].order) for best in paths]


def _grown(paths: Sequence[_SearchState], units: int) -> list[_SearchState]:
    """The paths, each one unit longer; of those that hide the same units, the one with the lowest sum so far."""
    best: dict[frozenset[int], _SearchState] = {}
    for path in paths:
        for unit in range(units):
            grown = _SearchState((*path.order, unit), path.total)
            same = best.get(frozenset(grown.order))
            if unit not in path.order and (same is None or same.total > path.total):
                best[frozenset(grown.order)] = grown
    return list(best.values())


def _without(search: Search, path: _SearchState, hide: Hide) -> TensorInput:
    return search.input.without([place for unit in path.order for place in search.units[unit]], hide)
