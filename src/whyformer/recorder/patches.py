"""Patches: which pixels each unit of an image stands for, found by asking the graph of a run."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.arrays import IntArray
from whyformer.errors import UnsupportedModel
from whyformer.inputs.images import NOWHERE, Patches

MOST_CELLS = 16  # in a row or column of an image that is cut evenly


def found_patches(states: Tensor, pixels: Tensor) -> Patches:
    """The patches behind the states of units, [batch, units, width], in the graph.

    The unit of each pixel is asked for bit by bit: of all units whose number has a bit, a random sum of their states
    has a gradient at the pixels that they see, and at no other. With the bits that are there and those that are not,
    a pixel of one unit gives that unit's number; one that several units see gives a bit twice, and is no unit's.
    """
    owner = _owners(states[:1], pixels)
    places = np.unique(owner[owner != NOWHERE])
    grid = _grid(owner, places) if owner.min() >= NOWHERE and len(places) else None
    if grid is None:
        raise UnsupportedModel(
            "the units of this model stand for pixels that overlap or lie on no grid, so they have no patches of the "
            "image that could be shown or hidden"
        )
    return Patches(owner, grid, states.shape[1])


def cells_of(looked: Tensor) -> tuple[int, int]:
    """Into how many rows and columns an image is cut where a model has no one stack of layers.

    Then no unit goes all the way through the model. The image is cut as its first convolution does, which gave the
    map [batch, width, rows, columns], with neighbours joined until there are at most `MOST_CELLS` in a row or column.
    """
    rows, columns = (-(-count // _joined(count)) for count in looked.shape[2:])
    return rows, columns


def _joined(count: int) -> int:
    """How many of so many neighbours are joined: a number that leaves none over, if there is one below twice that."""
    least = -(-count // MOST_CELLS)
    return next((n for n in range(least, 2 * least) if count % n == 0), least)


def _owners(states: Tensor, pixels: Tensor) -> IntArray:
    """The unit of each pixel, [height, width]; `NOWHERE` for one that none sees, less for one that several see."""
    count = states.shape[1]
    bits = max(1, math.ceil(math.log2(count)))
    numbers = torch.arange(count, device=states.device)
    weights = torch.rand(states.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    weighted = states * weights.to(states)
    owner = np.zeros(tuple(pixels.shape[2:]), dtype=np.int64)
    seen, several = np.zeros(owner.shape, dtype=bool), np.zeros(owner.shape, dtype=bool)
    for bit in range(bits):
        has = (numbers >> bit & 1).bool()
        there, away = (_sees(weighted[:, chosen].sum(), pixels) for chosen in (has, ~has))
        owner += there.astype(np.int64) << bit
        several |= there & away
        seen |= there | away
    owner[~seen] = NOWHERE
    owner[several] = NOWHERE - 1
    return owner


def _sees(output: Tensor, pixels: Tensor) -> NDArray[np.bool_]:
    """Which pixels of the first image an output depends on, [height, width]."""
    if not output.requires_grad:
        return np.zeros(tuple(pixels.shape[2:]), dtype=bool)
    (gradient,) = torch.autograd.grad(output, pixels, retain_graph=True, allow_unused=True)
    if gradient is None:
        return np.zeros(tuple(pixels.shape[2:]), dtype=bool)
    sees: NDArray[np.bool_] = gradient[0].ne(0).any(0).cpu().numpy()
    return sees


def _grid(owner: IntArray, places: IntArray) -> IntArray | None:
    """The places on their grid, [rows, columns]; None if they do not lie on one, each in a box of its own."""
    tops, lefts = {}, {}
    for place in places.tolist():
        rows, columns = np.nonzero(owner == place)
        top, left = int(rows.min()), int(columns.min())
        if len(rows) != (int(rows.max()) - top + 1) * (int(columns.max()) - left + 1):
            return None
        tops[place], lefts[place] = top, left
    by_row = sorted(set(tops.values()))
    by_column = sorted(set(lefts.values()))
    if len(by_row) * len(by_column) != len(places):
        return None
    grid = np.full((len(by_row), len(by_column)), NOWHERE, dtype=np.int64)
    for place in places.tolist():
        grid[by_row.index(tops[place]), by_column.index(lefts[place])] = place
    return None if (grid == NOWHERE).any() else grid


def cells(rows: int, columns: int, size: tuple[int, ...]) -> Patches:
    """An image cut evenly into cells."""
    if rows > size[0] or columns > size[1]:
        raise UnsupportedModel(f"{rows} × {columns} units are more than an image of {size[0]} × {size[1]} pixels has")
    down = np.arange(size[0]) * rows // size[0]
    across = np.arange(size[1]) * columns // size[1]
    grid = np.arange(rows * columns).reshape(rows, columns)
    return Patches(grid[down[:, None], across[None, :]], grid, rows * columns)
