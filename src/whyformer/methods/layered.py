"""Relevance at several layers at once: what each unit is worth where it enters the lower ones."""

import torch

from whyformer.errors import BadOption
from whyformer.methods.places import OfGradient
from whyformer.methods.registry import Scores, method
from whyformer.methods.relevance import ONE_PASS, of_value
from whyformer.prediction import Prediction
from whyformer.recorder import with_book
from whyformer.recorder.lrp.books import CONSERVATIVE, gradient_book

TWO_THIRDS = 2 / 3  # of the layers: the best share on texts for tuning, see docs/layered.md


@method(
    family="relevance",
    signed=True,
    class_specific=True,
    paper="–",
    needs=with_book(ONE_PASS, CONSERVATIVE),
    quantity="log_odds",
)
def layer_lrp(prediction: Prediction, *, book: OfGradient = "conservative", depth: float = TWO_THIRDS) -> Scores:
    """The relevance of each unit where it enters a layer, averaged over the lower layers.

    `1/n Σ_l Σ_d h_l ⊙ g_l` for `l = 0 … n-1`, with `g_l` the gradient that the rule book carries and `n` the share
    `depth` of the layers, at least one. Each layer's term adds up to the logit but for what biases above it take, and
    so does the mean. Higher up, what a unit said has moved to other units.
    """
    if not 0 < depth <= 1:
        raise BadOption(f"depth={depth}: the share of the layers that are looked at, above 0 and up to 1 (all of them)")
    chosen = gradient_book(book)
    trace = prediction.under(chosen)
    lower = trace.hidden[: lower_layers(len(trace.hidden) - 1, depth)]
    relevances = trace.relevance(lower, chosen, *prediction.asked)
    by_layer = torch.stack([r.sum(-1, dtype=prediction.real.dtype) for r in relevances]) / len(lower)
    return Scores(by_layer, of_value(prediction, by_layer.sum((0, -1))))


def lower_layers(count: int, depth: float) -> int:
    """How many layers of so many are a share of them, rounded, half up; at least one."""
    return max(1, int(depth * count + 0.5))
