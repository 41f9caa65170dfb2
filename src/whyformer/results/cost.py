"""What methods cost on a model: time and memory of each, measured or extrapolated, as data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

FORWARD = "forward"  # the stock model, without gradients
BACKWARD = "forward + backward"  # the stock model, and the gradient at its embeddings or pixels
STOCK = (FORWARD, BACKWARD)

Basis = Literal["measured", "extrapolated", "at most"]


@dataclass(frozen=True)
class Cost:
    """What one method takes for a batch of inputs of one length.

    `seconds` is the quickest of a few runs. `memory` is in bytes, at the highest point, above the loaded model; None
    where the device does not tell. `lengths` are those that were run. With only one or two of them the cost of a
    longer text cannot be told, only that it is `"at most"` this.
    """

    name: str
    units: int
    seconds: float
    memory: int | None
    basis: Basis
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class CostTableData:
    """Costs by method and number of units: tokens, or the patches of an image with what the model adds to them.

    The stock model's own forward, and forward with backward, come first. `refused` has the methods that do not explain
    this model, each with its reason. `free` is how many bytes are free on the device; None where it does not tell.
    """

    costs: tuple[Cost, ...]
    refused: tuple[tuple[str, str], ...]
    batch: int
    free: int | None
    seconds: float  # in which everything was to be measured
    of_images: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)  # the model, and where it runs

    @property
    def names(self) -> tuple[str, ...]:
        """The stock model's passes and the methods, in order."""
        return tuple(dict.fromkeys(cost.name for cost in self.costs))

    @property
    def units(self) -> tuple[int, ...]:
        """The numbers of units that were asked for, in order."""
        return tuple(dict.fromkeys(cost.units for cost in self.costs))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of units that were run."""
        return tuple(sorted({length for cost in self.costs for length in cost.lengths}))

    def __getitem__(self, name_and_units: tuple[str, int]) -> Cost:
        """The cost of a method, or of a pass of the stock model, at a number of units."""
        return self._by_place[name_and_units]

    @property
    def _by_place(self) -> dict[tuple[str, int], Cost]:
        return {(cost.name, cost.units): cost for cost in self.costs}

    def fits(self, cost: Cost) -> bool | None:
        """Whether there is memory for it; None where nobody can tell."""
        return None if cost.memory is None or self.free is None else cost.memory <= self.free

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        costs = [{**asdict(cost), "lengths": list(cost.lengths), "fits": self.fits(cost)} for cost in self.costs]
        refused = [{"name": name, "reason": reason} for name, reason in self.refused]
        how = {"batch": self.batch, "free": self.free, "seconds": self.seconds, "images": self.of_images}
        return {"about": dict(self.about), **how, "costs": costs, "refused": refused}
