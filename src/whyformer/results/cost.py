"""Time and memory of methods on a model, as data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

FORWARD = "forward"  # the stock model, without gradients
BACKWARD = "forward + backward"  # the stock model, and the gradient at its embeddings or pixels
STOCK = (FORWARD, BACKWARD)

Missing = Literal["", "refused", "out of memory", "time limit"]


@dataclass(frozen=True)
class Cost:
    """Measured time and memory of one method for a batch of inputs of one length, or why there are none.

    `seconds` is the fastest of a few runs. `memory` is the peak in bytes above the loaded model, and None if the
    device does not report it. `missing` is empty for a measured method. `reason` is the message of a refusal.
    """

    name: str
    units: int
    seconds: float | None = None
    memory: int | None = None
    missing: Missing = ""
    reason: str = ""


@dataclass(frozen=True)
class CostTableData:
    """Costs by method and number of units: tokens, or the patches of an image with special units.

    At each number of units the stock model's forward pass and forward and backward pass come first. `free` is the
    number of free bytes on the device before the measurement, and None if the device does not report it. `seconds` is
    the time limit.
    """

    costs: tuple[Cost, ...]
    batch: int
    free: int | None
    seconds: float
    of_images: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)  # the model and the device

    @property
    def names(self) -> tuple[str, ...]:
        """The stock model's passes and the methods, in order."""
        return tuple(dict.fromkeys(cost.name for cost in self.costs))

    @property
    def units(self) -> tuple[int, ...]:
        """The numbers of units, in order."""
        return tuple(dict.fromkeys(cost.units for cost in self.costs))

    def __getitem__(self, name_and_units: tuple[str, int]) -> Cost:
        """The cost of a method, or of a pass of the stock model, at a number of units."""
        return {(cost.name, cost.units): cost for cost in self.costs}[name_and_units]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        how = {"batch": self.batch, "free": self.free, "seconds": self.seconds, "images": self.of_images}
        return {"about": dict(self.about), **how, "costs": [asdict(cost) for cost in self.costs]}
