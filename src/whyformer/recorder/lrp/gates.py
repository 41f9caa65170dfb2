"""Gates: which factor of a product is the result of an activation."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Origin:
    """What a tensor was before an activation and constants changed it, number by number."""

    result: "weakref.ref[Tensor]"
    of: "weakref.ref[Tensor]"
    activated: bool


class Gates:
    """Follows numbers through activations and constants to the products in which they are gates."""

    def __init__(self) -> None:
        self._origins: dict[int, Origin] = {}

    def changed(self, operand: Tensor, result: Tensor, *, activated: bool = False) -> None:
        """A number went through an activation, or was multiplied by or added to a constant, or moved."""
        before = self._origin(operand)
        self._origins[id(result)] = Origin(weakref.ref(result), before.of, activated or before.activated)

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor is followed."""
        return id(tensor) in self._origins

    def seen(
        self, call: Callable[..., Tensor], operands: tuple[Tensor, ...]
    ) -> tuple[str, Callable[..., Tensor], tuple[Tensor, ...]]:
        """The kind of a product, with the gate first if there is one.

        A number gated by itself, as in `x sigmoid(x)`, is an activation written out: the gate is held constant.
        """
        left, right = (self._origin(operand) for operand in operands)
        if left.activated == right.activated:
            return "product", call, operands
        if right.activated:
            call, operands = swapped(call), operands[::-1]
        return "scaled" if left.of() is right.of() is not None else "gated", call, operands

    def _origin(self, tensor: Tensor) -> Origin:
        origin = self._origins.get(id(tensor))
        itself = weakref.ref(tensor)
        return origin if origin is not None and origin.result() is tensor else Origin(itself, itself, False)


def swapped(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function of two operands, with its operands the other way round."""
    return lambda first, second: function(second, first)
