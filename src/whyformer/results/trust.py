"""Trust: how far one explanation is to be believed, as numbers and as a sentence."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

from whyformer.perturb import LONGEST_SEARCH

MANY = 20  # units: nobody draws the best of their orders
NOTHING = 0.02  # a ceiling that is no further above the random orders leaves nothing to find
FAR_BELOW = 5  # of the percentile: from here on down an order is worse than chance, and not just no better


@dataclass(frozen=True)
class TrustData:
    """What a `Trust` is made of, which says what the fields mean."""

    aopc: float
    random: tuple[float, ...]
    ceiling: float | None
    target: str
    units: int
    kind: Literal["token", "word", "patch"] = "token"
    evaluations: int = field(default=0, compare=False)
    output: Literal["class", "answer", "token"] = "class"

    @property
    def too_short(self) -> bool:
        """Whether there are so few orders that the best of all is more likely than not among the random ones."""
        return (1 - 1 / math.factorial(min(self.units, MANY))) ** len(self.random) < 0.5

    @property
    def beaten(self) -> int:
        """How many of the random orders do worse."""
        return self._counts()[0]

    @property
    def chance(self) -> float:
        """The mean of the random orders."""
        return math.fsum(self.random) / len(self.random)

    @property
    def percentile(self) -> float:
        """In percent, the share of the random orders that this one beats; ties count half."""
        below, above = self._counts()
        return 50 * (len(self.random) + below - above) / len(self.random)

    @property
    def share(self) -> float | None:
        """The share of the attainable: 0 is a random order, 1 the best found. None if there is nothing to find."""
        if self.ceiling is None or self.ceiling - self.chance < NOTHING:
            return None
        return (self.aopc - self.chance) / (self.ceiling - self.chance)

    @property
    def sentence(self) -> str:
        """What was found, for people."""
        if self.too_short:
            return self._why_not_judged()
        doing = "Covering" if self.kind == "patch" else "Deleting"
        return f"{doing} the highest-ranked {self._units} first {self._against_chance()}{self._of_the_attainable()}."

    @property
    def _units(self) -> str:
        return "patches" if self.kind == "patch" else f"{self.kind}s"

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what was measured, then the numbers and the sentence that follow from it."""
        numbers = {"percentile": self.percentile, "share": self.share, "too_short": self.too_short}
        return {**asdict(self), "random": list(self.random), **numbers, "sentence": self.sentence}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What `to_dict` gave."""
        known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        return cls(**{**known, "random": tuple(data["random"])})

    def _counts(self) -> tuple[int, int]:
        """How many random orders do worse, and how many better."""
        return sum(other < self.aopc for other in self.random), sum(other > self.aopc for other in self.random)

    def _why_not_judged(self) -> str:
        what, orders = "An image" if self.kind == "patch" else "A text", math.factorial(self.units)
        units = self._units if self.units != 1 else self._units.removesuffix("es" if self.kind == "patch" else "s")
        few = "only one order" if orders == 1 else f"only {orders} orders"
        return (
            f"{what} of {self.units} {units} is too short to judge: there {'is' if orders == 1 else 'are'} {few} to "
            f"{'cover' if self.kind == 'patch' else 'delete'} them in, and {len(self.random)} random ones are likely "
            "to have the best among them."
        )

    def _against_chance(self) -> str:
        orders, (below, above) = len(self.random), self._counts()
        those = f"{'all' if max(below, above) == orders else f'{max(below, above)} of'} {orders} random orders"
        better, even = below > above, below == above
        if self.aopc > 0:
            how = f"{'faster' if better else 'more slowly'} than {those}"
            return f"lowers the probability of {self.target} {'as fast as the middle random order' if even else how}"
        where = f", {'but leaves it lower' if better else 'and leaves it higher'} than {those} do"
        where = ", and neither does the middle random order" if even else where
        return f"does not lower the probability of {self.target} on average{where}"

    def _of_the_attainable(self) -> str:
        if self.ceiling is None:
            if self.output != "class":
                return "; the best order is searched for classes alone, so how much more could be reached is not known"
            inputs = "images" if self.kind == "patch" else "texts"
            limit = f"only {inputs} of at most {LONGEST_SEARCH} {self._units} are searched for the best order"
            return f"; how much more could be reached is not known, because {limit}, and this one has {self.units}"
        better, share = self.percentile > 50, self.share
        if share is None:
            room = "even the best order found does hardly better than a random one"
            what = "image" if self.kind == "patch" else "text"
            return f"{', but' if better else ';'} this {what} leaves nothing to find, as {room}"
        if share < 0 and better:
            return ", yet does worse than their average"
        if share < 0:
            return f": this ranking is {'worse' if self.percentile <= FAR_BELOW else 'no better'} than chance"
        joint = ", yet" if self.percentile < 50 else ", and"
        if share >= 1:
            return f"{joint} does {'better than' if share > 1 else 'as well as'} the best order that a search found"
        return f"{joint} gets {100 * share:.0f} % of the way from the average random order to the best order found"
