"""Batches: which inputs are run together, so that padding and calls of the model cost the least."""

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TypeVar

from whyformer.inputs.input import TensorInput

T = TypeVar("T")


def dense_batches(items: Sequence[T], lengths: Sequence[int], budget: int, most: int, call: int) -> list[list[T]]:
    """Items of these lengths in batches, those of the longest ones first.

    A batch has at most `budget` tokens, padding among them, and at most so many items. Items of one length stay
    together; neighbouring lengths share batches where their padding costs less than another call, which costs as much
    as `call` tokens beside its own.
    """
    by_length = defaultdict[int, list[T]](list)
    for item, length in zip(items, lengths, strict=True):
        by_length[length].append(item)
    longest_first = sorted(by_length, reverse=True)
    ends = _ends([(length, len(by_length[length])) for length in longest_first], budget, most, call)
    batches: list[list[T]] = []
    first = 0
    while first < len(ends):
        together = list(itertools.chain(*(by_length[length] for length in longest_first[first : ends[first]])))
        calls = math.ceil(len(together) / _fitting(longest_first[first], budget, most))
        size = math.ceil(len(together) / calls)
        batches += [together[start : start + size] for start in range(0, len(together), size)]
        first = ends[first]
    return batches


def in_turns(batches: Sequence[list[TensorInput]]) -> list[list[TensorInput]]:
    """Large and small batches in turns: whichever a GPU is given, together they take it about as long.

    The largest comes first: if memory is short, that is mostly seen at once.
    """
    left = deque(sorted(batches, key=lambda batch: (len(batch) * len(batch[0]), len(batch[0]))))
    return [left.popleft() if number % 2 else left.pop() for number in range(len(left))]


def _ends(by_length: Sequence[tuple[int, int]], budget: int, most: int, call: int) -> list[int]:
    """For each length, where the lengths end that it shares batches with, if it is the longest of them.

    They are given with how many items have them. The cheapest way to cut the shortest lengths is known before that of
    longer ones is looked for.
    """
    costs, ends = [0] * (len(by_length) + 1), [0] * len(by_length)
    for first in reversed(range(len(by_length))):
        longest, _ = by_length[first]
        rows, padding, ways = 0, 0, list[tuple[int, int]]()
        for end, (length, count) in enumerate(by_length[first:], first + 1):
            rows += count
            padding += count * (longest - length)
            if padding > call * (end - first - 1):  # each length by itself would cost less
                break
            calls = math.ceil(rows / _fitting(longest, budget, most))
            ways.append((padding + calls * call + costs[end], end))
        costs[first], ends[first] = min(ways)
    return ends


def _fitting(longest: int, budget: int, most: int) -> int:
    """How many items fit in a batch: one at least."""
    return max(1, min(most, budget // longest))
