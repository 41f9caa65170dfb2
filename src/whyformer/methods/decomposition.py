"""Methods that take a layer apart into what each unit adds to each other one."""

import torch
from torch import Tensor

from whyformer.methods.attention import roll_out
from whyformer.methods.method import method
from whyformer.prediction import Prediction
from whyformer.recorder import RELEVANCE
from whyformer.recorder.lrp.value_paths import ValuePath, value_paths

# Bytes of a tile. A CPU keeps one in its cache until it is added up; elsewhere a call costs more than its numbers.
CPU_TILE, TILE = 2**22, 2**25


@method(family="decomposition", signed=False, class_specific=False, paper="Ferrando et al. 2022", needs=RELEVANCE)
def alti(prediction: Prediction, *, distance_offset: float = 0.0) -> Tensor:
    """Aggregated layer-wise token-to-token interactions: how near each unit's part comes to the block's output.

    The attention block's output `y_i` is a sum of parts `T_i(x_j)`; the contribution of `j` to `i` is
    `max(0, ‖y_i‖₁ - ‖y_i - T_i(x_j)‖₁)` (Eq. 7), rows are normalised, and the layers multiplied (Eq. 9).
    `distance_offset=1e-6` is added inside the distance by the authors' code.
    """
    paths = value_paths(prediction.traced)
    layers = zip(paths, prediction.attention, prediction.trace.values, strict=True)
    maps = [_contributions(path, a, values.detach().to(a.dtype), distance_offset) for path, a, values in layers]
    return roll_out(prediction.reader, maps)


def _contributions(path: ValuePath, attention: Tensor, values: Tensor, offset: float) -> Tensor:
    """[batch, queries, units], rows normalised."""
    rest = offset - path.output
    distances = _distances(path, attention, values, rest)
    distances.diagonal(dim1=1, dim2=2).copy_(_own_distances(path, attention, values, rest))
    contributions = (path.output.abs().sum(-1, keepdim=True) - distances).clamp(min=0)
    sums = contributions.sum(-1, keepdim=True)
    return contributions / torch.where(sums > 0, sums, 1)


def _distances(path: ValuePath, attention: Tensor, values: Tensor, rest: Tensor) -> Tensor:
    """`‖T_i(x_j) + rest_i‖₁` without the residual, [batch, queries, keys].

    The parts are a vector for each pair of units. Two tiles are held at a time: the values of some keys as each head
    projects them, and the parts of some of these keys at some queries. Keys of all examples stand in one line, so that
    many short texts take no more calls than a long one.
    """
    batch, heads, units, _ = attention.shape
    vectors = _vectors_in_a_tile(rest)
    rows = min(units, vectors)
    columns, projected_columns = vectors // rows, max(1, vectors // heads)
    distances = rest.new_empty(batch * units, units)  # the queries of each key
    for block in torch.arange(batch * units, device=rest.device).split(projected_columns):
        projected = torch.einsum("chd,whd->chw", values[block // units, :, block % units], path.weight)
        for column, by_head in zip(block.split(columns), projected.split(columns), strict=True):
            example, key = column // units, column % units
            for start in range(0, units, rows):
                row = slice(start, start + rows)
                shares = attention[:, :, row][example, :, :, key] * path.per_unit[:, None, row][example]
                distances[column, row] = _lengths(rest[:, row].index_select(0, example), shares, by_head)
    return distances.view(batch, units, units).mT


def _vectors_in_a_tile(like: Tensor) -> int:
    """How many vectors of [batch, units, width] a tile holds; one at least."""
    tile = CPU_TILE if like.device.type == "cpu" else TILE
    return max(1, tile // (like.shape[-1] * like.element_size()))


def _lengths(rest: Tensor, shares: Tensor, projected: Tensor) -> Tensor:
    """`‖rest + Σ_h shares_h · projected_h‖₁`, [columns, rows]; `rest` is overwritten.

    `rest` is [columns, rows, width], `shares` [columns, heads, rows], `projected` [columns, heads, width].
    """
    return rest.baddbmm_(shares.mT, projected).abs_().sum(-1)


def _own_distances(path: ValuePath, attention: Tensor, values: Tensor, rest: Tensor) -> Tensor:
    """`‖T_i(x_i) + rest_i‖₁`, [batch, units]: a unit's part at itself has the residual in it."""
    shares = attention.diagonal(dim1=2, dim2=3) * path.per_unit[:, None]  # [batch, heads, units]
    gathered = torch.einsum("bhkd,whd->bkw", values * shares[..., None], path.weight)
    return (path.own + gathered + rest).abs().sum(-1)
