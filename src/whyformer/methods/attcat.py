"""AttCAT (Qiang et al. 2022): hidden states times their gradients, weighted by the attention they receive."""

from typing import Literal

import torch
from torch import Tensor

from whyformer.methods.attention import at_layer
from whyformer.methods.method import GradientBook, Scores, check_cancelled, method, summed
from whyformer.prediction import Prediction, Queries
from whyformer.recorder import GRADIENT, MAPS, with_book

States = Literal["outputs", "inputs"]

BALANCED = "book='conservative' (--book conservative)"
LOWEST = "layer=0, --layer 0, is the embedding output"
INPUTS = (
    f"take what enters each layer, states='inputs' (--states inputs), a balanced gradient, {BALANCED}, or a method of "
    "relevance, such as attn_lrp"
)


def activation_times_gradient(prediction: Prediction, states: States, book: str | None = None) -> tuple[Tensor, ...]:
    """`h_l ⊙ ∂y/∂h_l` for the output of each layer, or for what enters it, [batch, units, width]."""
    products = tuple(h * g for h, g in zip(prediction.hidden, prediction.gradients(book).hidden, strict=True))
    return products[1:] if states == "outputs" else products[:-1]


@method(
    family="attcat",
    signed=True,
    class_specific=True,
    paper="Zhou et al. 2016; Qiang et al. 2022",
    needs=with_book(GRADIENT),
)
def cam(prediction: Prediction, *, layer: int = -2, book: GradientBook = None) -> Tensor:
    """Activation times gradient of one hidden state, summed over its width.

    Hidden states are counted from the embedding output, 0, to the last layer's output, -1. Below a head that reads
    one position only that position of the last output has a gradient, so the default is the last layer's input. `book`
    names the rule book whose balanced gradient is taken in place of torch's own (LibraGrad, Mehri et al. 2025).
    """
    products = at_layer(prediction.hidden, layer) * prediction.gradients(book).hidden[layer]
    return summed(
        prediction, products, f"take a lower layer than {layer} ({LOWEST}), or a balanced gradient, {BALANCED}"
    )


@method(family="attcat", signed=True, class_specific=True, paper="Qiang et al. 2022", needs=with_book(GRADIENT))
def cat(prediction: Prediction, *, states: States = "outputs", book: GradientBook = None) -> Tensor:
    """Activation times gradient of every layer, summed over width and layers.

    Eq. 10, `l = 1 … L`; `states="inputs"` takes what enters each layer instead of what leaves it. `book` names the
    rule book whose balanced gradient is taken (LibraGrad).
    """
    products = torch.stack(activation_times_gradient(prediction, states, book))
    scores = products.sum(-1)
    check_cancelled(prediction, scores.sum(0), products.abs().sum((0, -1)), INPUTS)
    return scores


@method(family="attcat", signed=True, class_specific=True, paper="Qiang et al. 2022", needs=with_book(MAPS))
def attcat(
    prediction: Prediction,
    *,
    states: States = "outputs",
    attention_query: Queries = "mean",
    combine: Literal["sum", "rollout", "product"] = "sum",
    book: GradientBook = None,
) -> Tensor:
    """Activation times gradient of every layer, weighted by the attention that each unit receives there.

    Eq. 10–12. `states="inputs"` pairs a layer's attention with what enters it, as the authors' code does. Attention
    received is the mean over heads and queries; padding does not ask, except with `attention_query="all"` (the
    authors' code, whose scores of a text therefore change with its padding). `combine="rollout"` is the row of the
    paper's Figure 4: the matrices `E_h A_l[q, i] · CAT_l[i]` multiplied, last layer first, and averaged over the
    queries; `"product"` multiplies the layers' scores elementwise. `book` names the rule book whose balanced gradient
    is taken: `"conservative"` is LibraGrad's AttCAT (Mehri et al. 2025).
    """
    products = activation_times_gradient(prediction, states, book)
    maps = [a.mean(1) for a in prediction.attention]  # [batch, queries, keys]
    received = [prediction.over_queries(m, attention_query) for m in maps]

    def joined(by_layer: list[Tensor]) -> Tensor:
        if combine != "rollout":
            scores = torch.stack([c * r for c, r in zip(by_layer, received, strict=True)])
            return scores.prod(0) if combine == "product" else scores
        weighted = [m * c[:, None] for m, c in zip(maps, by_layer, strict=True)]
        joint = weighted[0]
        for matrix in weighted[1:]:
            joint = matrix @ joint
        return prediction.over_queries(joint, attention_query)

    scores, terms = joined([p.sum(-1) for p in products]), joined([p.abs().sum(-1) for p in products])
    check_cancelled(prediction, Scores(scores).total, Scores(terms).total, INPUTS)
    return scores
