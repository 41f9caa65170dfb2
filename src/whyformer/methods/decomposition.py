"""Methods that take a layer apart into what each unit adds to each other one."""

import torch
from torch import Tensor

from whyformer.methods.registry import method
from whyformer.methods.rollout import roll_out
from whyformer.prediction import Prediction
from whyformer.recorder.lrp.value_paths import ValuePath, parts, rows_at_once, value_paths


@method(family="decomposition", signed=False, class_specific=False, paper="Ferrando et al. 2022", relevance=True)
def alti(prediction: Prediction, *, distance_offset: float = 0.0) -> Tensor:
    """Aggregated layer-wise token-to-token interactions: how near each unit's part comes to the block's output.

    The attention block's output `y_i` is a sum of parts `T_i(x_j)`; the contribution of `j` to `i` is
    `max(0, ‖y_i‖₁ - ‖y_i - T_i(x_j)‖₁)` (Eq. 7), rows are normalised, and the layers multiplied (Eq. 9).
    `distance_offset=1e-6` is added inside the distance by the authors' code.
    """
    paths = value_paths(prediction.traced)
    values = [v.detach().to(a.dtype) for v, a in zip(prediction.trace.values, prediction.attention, strict=True)]
    layers = zip(paths, prediction.attention, values, strict=True)
    maps = [_contributions(*layer, distance_offset) for layer in layers]
    return roll_out(prediction.reader, maps)


def _contributions(path: ValuePath, attention: Tensor, values: Tensor, offset: float) -> Tensor:
    """[batch, queries, units], rows normalised."""
    batch, _, units, _ = attention.shape
    step = rows_at_once(units, path.output.shape[-1], batch)
    by_rows = []
    for start in range(0, units, step):
        rows = slice(start, start + step)
        output = path.output[:, rows, None]
        distances = (parts(path, attention, values, rows) - output + offset).abs().sum(-1)
        by_rows.append((output.abs().sum(-1) - distances).clamp(min=0))
    contributions = torch.cat(by_rows, 1)
    sums = contributions.sum(-1, keepdim=True)
    return contributions / torch.where(sums > 0, sums, 1)
