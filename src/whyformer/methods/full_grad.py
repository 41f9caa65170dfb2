"""FullGrad+ (Srinivas & Fleuret 2019; Mehri et al. 2025): states times their gradients, and biases times theirs."""

import torch
from torch import Tensor

from whyformer.errors import UnsupportedModel
from whyformer.methods.attcat import BALANCED
from whyformer.methods.places import GradientBook, check_cancelled, gradient_or_book
from whyformer.methods.registry import method
from whyformer.prediction import Prediction
from whyformer.recorder import Needs, with_book
from whyformer.recorder.lrp.books import PLAIN

ADVICE = f"take a balanced gradient, {BALANCED}"


@method(
    family="gradient",
    signed=True,
    class_specific=True,
    paper="Srinivas & Fleuret 2019; Mehri et al. 2025",
    needs=with_book(Needs(maps=False, biases=True), PLAIN),
)
def full_grad(prediction: Prediction, *, book: GradientBook = None, biases: bool = True) -> Tensor:
    """Activation times gradient of what enters each layer, and of every bias, summed over width and layers.

    FullGrad+ as LibraGrad defines it: `Σ_l Σ_d h_l ⊙ ∂y/∂h_l` for `l = 0 … L-1`, and `Σ_b Σ_d b ⊙ ∂y/∂b` over the
    biases of linear layers and norms above the embedding output. A bias is added at each unit, and so is its term;
    those of the head go to what the head reads. `book="conservative"` is Libra FullGrad+, whose biases and term of the
    first layer add up to the logit. `biases=False` leaves the biases out, as that paper does for one table.
    """
    chosen = gradient_or_book(book)
    trace = prediction.under(chosen, biases=True)
    of = trace.hidden[:-1], chosen, *prediction.asked
    gradients, at_biases = trace.carried_with_biases(*of)
    products = torch.stack([h * g.to(h) for h, g in zip(prediction.hidden, gradients, strict=False)])
    scores = products.sum((0, -1))
    check_cancelled(prediction, scores, products.abs().sum((0, -1)), ADVICE)
    if biases:
        for path, terms in at_biases:
            scores = scores + _at_units(prediction, path, terms.to(scores))
    return scores


def _at_units(prediction: Prediction, path: str, terms: Tensor) -> Tensor:
    """Terms of a bias at the units where it was added, [batch, units]; of one in the head at what the head reads."""
    batch, units = prediction.real.shape
    if terms.dim() == 3 and terms.shape[0] == batch and (terms.shape[1] == units) != (terms.shape[2] == units):
        terms = terms.sum(2 if terms.shape[1] == units else 1)  # over heads
    if terms.numel() == batch:
        return terms.view(batch, 1) * prediction.reader.to(terms)
    if terms.shape == (units, batch) != (batch, units):
        return terms.T
    if terms.numel() != batch * units or terms.shape[0] % batch:
        raise UnsupportedModel(
            f"a bias in {path} is added to numbers of the shape {tuple(terms.shape)}, which are not those of "
            f"{batch} x {units} units: use biases=False (--biases false)"
        )
    return terms.reshape(batch, units)
