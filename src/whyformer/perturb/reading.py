"""Reading: where a head reads the first position alone, nothing else is computed behind the last attention.

What is done there at each position by itself, linear maps and norms, is done at the first one: that leaves out a
sixteenth of a run of BERT-base, and a fifth of a model with four layers. Whether a head reads that position alone is
not taken on trust: a short and a long input are run with all others spoilt, and both ways.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whyformer.models.state import State
from whyformer.rounding import close

BY_POSITION = (F.linear, F.layer_norm)

Run = Callable[[AbstractContextManager[Any]], Tensor]  # all logits of a run in some context


class _Known(NamedTuple):
    """What was found out about a model in a state, by inputs of at most so many units."""

    state: State
    attentions: int
    longest: int


_KNOWN: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()


def attentions_before_reading(model: nn.Module, longest: int, run: Run) -> int:
    """How many attentions a run has, if the first position alone is read behind the last; 0 if others are.

    It is asked once of a model, and again when anything was exchanged in it, or inputs are longer than any before. The
    inputs that are run have up to as many units as the `longest`; where memory is short for that, nothing is known.
    """
    known = _KNOWN.get(model)
    if known is None or longest > known.longest or not known.state.holds():
        try:
            known = _KNOWN[model] = _Known(State(model), _checked(run), longest)
        except torch.OutOfMemoryError:
            return 0
    return known.attentions


def first_alone(attentions: int) -> AbstractContextManager[Any]:
    """In it, a run goes on with its first position behind so many attentions; with all of them behind none."""
    return FirstAlone(attentions) if attentions else nullcontext()


def _checked(run: Run) -> int:
    counted = _Attentions()
    whole, first = run(counted), FirstAlone(counted.count)
    if not counted.count:
        return 0
    try:
        is_read_alone = bool(run(OthersSpoilt(counted.count)).isfinite().all()) and close(run(first), whole)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever it is: numbers of all positions are needed
        return 0
    return counted.count if is_read_alone and first.is_narrow else 0


class _Attentions(TorchFunctionMode):
    """Counts the calls of fused attention."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is F.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


class FirstAlone(TorchFunctionMode):
    """In it, behind so many attentions, what is done at each position by itself is done at the first."""

    def __init__(self, attentions: int):
        super().__init__()
        self._left = attentions
        self._positions: tuple[int, int] | None = None  # examples and units, behind the last attention
        self.is_narrow = False  # whether anything was left out

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        positions = self._positions
        if positions is not None and func in BY_POSITION and args and args[0].shape[:-1] == positions:
            args = (self._left_of(args[0]), *args[1:])
            self.is_narrow = True
        result = func(*args, **kwargs) if kwargs else func(*args)
        if func is F.scaled_dot_product_attention:
            self._left -= 1
            if not self._left:
                self._positions = result.shape[0], result.shape[-2]
        return result

    def _left_of(self, states: Tensor) -> Tensor:
        return states[:, :1]


class OthersSpoilt(FirstAlone):
    """The same with all positions, of which those behind the first are no numbers: whoever reads them shows it."""

    def _left_of(self, states: Tensor) -> Tensor:
        return torch.cat((states[:, :1], torch.full_like(states[:, 1:], torch.nan)), 1)
