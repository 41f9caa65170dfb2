"""From layer to layer: how much of each input unit reaches the reader through a stack of attention maps."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FLOW_SCALE = 10**9  # scipy's maximum flow wants whole numbers; the flow out of the reader is 1


def with_residual(maps: Sequence[Tensor], *, row_normalised: bool = True) -> list[Tensor]:
    """`A + I` for maps [batch, queries, keys]: the residual connection lets each position keep itself."""
    joined = [m + torch.eye(m.shape[-1], dtype=m.dtype, device=m.device) for m in maps]
    return [j / j.sum(-1, keepdim=True) for j in joined] if row_normalised else joined


def roll_out(reader: Tensor, maps: Sequence[Tensor]) -> Tensor:
    """The reader's row of `M_L ⋯ M_1` for maps [batch, queries, keys], first layer first."""
    row = reader.to(maps[0].dtype)[:, None]  # [batch, 1, units]
    for matrix in reversed(maps):
        row = row @ matrix
    return row[:, 0]


def maximum_flows(reader: Tensor, maps: Sequence[Tensor]) -> Tensor:
    """For one example the maximum flow from the reader to each input unit, [units].

    The edge from position q above a layer to position k below it has the capacity `M[q, k]`, maps [queries, keys].
    A reader of several positions is one source with an edge of its share to each.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    units, layers = len(reader), len(maps)
    source = units * (layers + 1)
    rows, columns, capacities = [np.full(units, source)], [units * layers + np.arange(units)], [_whole(reader)]
    for layer, matrix in enumerate(maps):
        queries, keys = np.meshgrid(np.arange(units), np.arange(units), indexing="ij")
        rows.append((units * (layer + 1) + queries).ravel())
        columns.append((units * layer + keys).ravel())
        capacities.append(_whole(matrix).ravel())
    entries = np.concatenate(capacities), (np.concatenate(rows), np.concatenate(columns))
    graph = csr_array(entries, shape=(source + 1, source + 1))
    graph.eliminate_zeros()
    flows = [maximum_flow(graph, source, unit).flow_value for unit in range(units)]
    return torch.tensor(flows, dtype=torch.float64) / FLOW_SCALE


def _whole(capacities: Tensor) -> NDArray[np.int32]:
    return (capacities.double() * FLOW_SCALE).round().to(torch.int32).cpu().numpy()
