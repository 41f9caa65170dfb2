"""Methods that use attention alone. They do not depend on the explained class."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.errors import BadInput, BadOption
from whyformer.methods.method import method
from whyformer.prediction import Prediction
from whyformer.registry.options import Added

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


Query = Annotated[Literal["reader", "mean"], Added()]
FLOW_LIMIT = 128  # units
# Seconds per layer at the limit, on one core. `python benchmarks/cost/explain.py --methods attention_flow` measures it.
FLOW_SECONDS_AT_LIMIT = 0.26
FLOW_POWER = 2.3  # of the number of units


def at_layer(layers: tuple[Tensor, ...], layer: int) -> Tensor:
    """The layer of that number, negative ones counted from the last."""
    if not -len(layers) <= layer < len(layers):
        raise BadOption(f"layer {layer} does not exist: there are 0 … {len(layers) - 1}, or -1 for the last")
    return layers[layer]


def from_layer(layers: tuple[Tensor, ...], first_layer: int) -> tuple[Tensor, ...]:
    """The layers from that number on, negative ones counted from the last."""
    if not -len(layers) <= first_layer < len(layers):
        raise BadOption(
            f"first_layer {first_layer} does not exist: there are 0 … {len(layers) - 1}, or -1 for the last"
        )
    return layers[first_layer:]


@method(family="attention", signed=False, class_specific=False, paper="Vaswani et al. 2017")
def raw_attention(
    prediction: Prediction, *, layer: int | Literal["mean"] | list[int] = -1, query: Query = "reader"
) -> Tensor:
    """How much the reader attends to each unit, averaged over the heads of one layer.

    `layer` is a number, several (their mean), or `"mean"` over all: AttCAT's combination of multiple layers.
    `query="mean"` takes the mean over all queries in place of the reader's row, as AttCAT's and Mask-LRP's code does
    for answers.
    """
    layers = prediction.attention
    if layer == "mean":
        chosen = list(layers)
    else:
        chosen = [at_layer(layers, n) for n in (layer if isinstance(layer, list) else [layer]) if isinstance(n, int)]
    return torch.stack([prediction.over_queries(a.mean(1), query) for a in chosen]).mean(0)


@method(family="attention", signed=False, class_specific=False, paper="Abnar & Zuidema 2020")
def rollout(
    prediction: Prediction, *, first_layer: int = 0, row_normalised: bool = True, query: Query = "reader"
) -> Tensor:
    """The reader's row of the product of all layers' attention, residual connections included.

    `Π_l (E_h A_l + I)`, last layer first, rows normalised. Transformer Attribution's Eq. 15–16 leave the rows as they
    are, which is the same up to a factor: `row_normalised=False`. `query="mean"` takes the mean over all rows in place
    of the reader's, as AttCAT's and Mask-LRP's code does for answers.
    """
    maps = [a.mean(1) for a in from_layer(prediction.attention, first_layer)]
    real = prediction.real
    rows = prediction.reader if query == "reader" else real / real.sum(-1, keepdim=True)
    return roll_out(rows, with_residual(maps, row_normalised=row_normalised))


@method(family="attention", signed=False, class_specific=False, paper="Abnar & Zuidema 2020")
def attention_flow(prediction: Prediction, *, slow: bool = False) -> Tensor:
    """The maximum flow from the reader to each unit through all layers' attention, as shares that add up to 1.

    The edges have the capacities of the row-normalised `E_h A_l + I`. The cost grows faster than the square of
    the length: more than 128 units need `slow=True`.
    """
    layers = with_residual([a.mean(1) for a in prediction.attention])
    longest = int(prediction.real.sum(-1).max())
    if longest > FLOW_LIMIT and not slow:
        seconds = FLOW_SECONDS_AT_LIMIT * len(layers) * (longest / FLOW_LIMIT) ** FLOW_POWER
        raise BadInput(
            f"attention_flow on {longest} units would take about {seconds:.0f} s a text; it takes at most "
            f"{FLOW_LIMIT} unless slow=True (--slow true)"
        )
    flows = torch.zeros_like(prediction.reader)
    for example, real in enumerate(prediction.real.bool()):
        maps = [layer[example][real][:, real] for layer in layers]
        to_units = maximum_flows(prediction.reader[example][real], maps)
        flows[example, real] = (to_units / to_units.sum()).to(flows)
    return flows
