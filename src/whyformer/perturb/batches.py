"""Batches: which inputs are run together, so that padding and calls of the model cost the least."""

import itertools
import math
from collections.abc import Sequence

from whyformer.inputs.input import TensorInput


def dense_batches(inputs: Sequence[TensorInput], budget: int, most: int, call: int) -> list[list[TensorInput]]:
    """Inputs in batches, that of the most tokens first: if memory is short, that is mostly seen at once.

    Of the others the small ones come first: a GPU has still to do when Python has launched the last.

    A batch has at most `budget` tokens, padding among them, and at most so many inputs. Inputs of one length stay
    together; neighbouring lengths share batches where their padding costs less than another call, which costs as much
    as `call` tokens beside its own.
    """
    in_order = sorted(inputs, key=len, reverse=True)
    by_length = [list(alike) for _, alike in itertools.groupby(in_order, key=len)]
    ends = _ends(by_length, budget, most, call)
    batches: list[list[TensorInput]] = []
    first = 0
    while first < len(by_length):
        together = list(itertools.chain(*by_length[first : ends[first]]))
        calls = math.ceil(len(together) / _fitting(together[0], budget, most))
        size = math.ceil(len(together) / calls)
        batches += [together[start : start + size] for start in range(0, len(together), size)]
        first = ends[first]
    batches.sort(key=lambda batch: (len(batch) * len(batch[0]), len(batch[0])))
    return batches[-1:] + batches[:-1]


def _ends(by_length: Sequence[Sequence[TensorInput]], budget: int, most: int, call: int) -> list[int]:
    """For each length, where the lengths end that it shares batches with, if it is the longest of them.

    The cheapest way to cut the shortest lengths is known before that of longer ones is looked for.
    """
    costs, ends = [0] * (len(by_length) + 1), [0] * len(by_length)
    for first in reversed(range(len(by_length))):
        longest = by_length[first][0]
        rows, padding, ways = 0, 0, list[tuple[int, int]]()
        for end, alike in enumerate(by_length[first:], first + 1):
            rows += len(alike)
            padding += len(alike) * (len(longest) - len(alike[0]))
            if padding > call * (end - first - 1):  # each length by itself would cost less
                break
            calls = math.ceil(rows / _fitting(longest, budget, most))
            ways.append((padding + calls * call + costs[end], end))
        costs[first], ends[first] = min(ways)
    return ends


def _fitting(longest: TensorInput, budget: int, most: int) -> int:
    """How many inputs fit in a batch: one at least."""
    return max(1, min(most, budget // len(longest)))
