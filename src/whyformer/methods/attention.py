"""Methods that look at attention alone. They do not know which class is explained."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from whyformer.errors import BadInput, BadOption
from whyformer.methods.registry import method
from whyformer.methods.rollout import maximum_flows, roll_out, with_residual
from whyformer.prediction import Prediction
from whyformer.registry.options import Added

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
