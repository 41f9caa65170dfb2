"""Methods that carry relevance from the explained output back to the input (LRP), and their kin."""

from typing import Any, Literal

import torch
from torch import Tensor

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.methods.attention import from_layer
from whyformer.methods.places import AtRelevance, Place, place_of
from whyformer.methods.registry import Scores, method
from whyformer.methods.rollout import roll_out, with_residual
from whyformer.prediction import Prediction
from whyformer.recorder import Book

BookName = Literal["alpha_beta", "z_plus", "eq4", "eq4_normalised"]


def conservation(
    prediction: Prediction, book: str | Book, *, whole: bool = True, lost: float | Tensor = 0.0
) -> dict[str, Any]:
    """How much relevance arrived at the embedding output, how much parameters took, and how much was sent out.

    Unless `whole`, it is measured at the first layer's output, where the pass for the attention maps comes through.
    What was `lost` on the way, [batch], is not expected.
    """
    relevances = prediction.relevances(book, whole=whole)
    assert relevances.state is not None
    arrived = relevances.state.flatten(1).sum(1)
    sent = torch.full_like(arrived, 1.0 if prediction.versus is None else 0.0)
    return {"conservation": {"sum": arrived, "absorbed": relevances.absorbed, "expected": sent - lost}}


@method(
    family="relevance", signed=True, class_specific=True, paper="Bach et al. 2015; Chefer et al. 2021", relevance=True
)
def lrp(prediction: Prediction, *, book: BookName = "alpha_beta") -> Scores:
    """Layer-wise relevance propagation down to the embedding output, summed over its width.

    `book="alpha_beta"` is what made the papers' LRP rows; `"eq4"` is Chefer's Eq. 4 with plain additions, of which it
    says nothing, `"eq4_normalised"` with those of Transformer Attribution; `"z_plus"` conserves.
    """
    embedded = prediction.embedding_relevances(book)
    report, pixels = conservation(prediction, book), prediction.relevances(book).pixels
    if pixels is None:
        return Scores(embedded.sum(-1), report)
    pixels = pixels.sum(1)
    return Scores(_by_patch(pixels, prediction), {**report, "pixels": pixels})


def _by_patch(pixels: Tensor, prediction: Prediction) -> Tensor:
    """The sums over patches of [batch, height, width], after zeros for the units that are no patch, as `[CLS]`."""
    site = next(site for site in prediction.trace.sites if site.kind == "pixels")
    (rows, columns), (height, width) = site.value.shape[-2:], site.operands[1].shape[-2:]
    others = prediction.reader.shape[1] - rows * columns
    if (rows, columns) != (pixels.shape[1] // height, pixels.shape[2] // width) or others < 0:
        raise UnsupportedModel(
            f"patches of {height} x {width} pixels that overlap or leave gaps have no scores of their own"
        )
    whole = pixels[:, : rows * height, : columns * width]
    sums = whole.reshape(-1, rows, height, columns, width).sum((2, 4))
    return torch.nn.functional.pad(sums.flatten(1), (others, 0))


@method(
    family="relevance", signed=False, class_specific=True, paper="Voita et al. 2019; Chefer et al. 2021", relevance=True
)
def partial_lrp(prediction: Prediction, *, book: BookName = "alpha_beta") -> Scores:
    """The positive relevance of the last layer's attention, in the reader's row, averaged over heads.

    `E_h (R_{A_L})⁺ [r]`; the default book is what made the papers' rows.
    """
    last = prediction.attention_relevances(book)[-1]
    return Scores(prediction.read(last.clamp(min=0).mean(1)), conservation(prediction, book, whole=False))


@method(family="relevance", signed=False, class_specific=True, paper="Chefer et al. 2021", relevance=True)
def transformer_attribution(
    prediction: Prediction,
    *,
    first_layer: int = 0,
    row_normalised: bool = False,
    block: int | None = None,
    weight: Literal["gradient", "attention", "none"] = "gradient",
) -> Scores:
    """Positive part of gradient times relevance of the attention maps, rolled out from the reader.

    `Π_l (I + E_h (G_l ⊙ R_l)⁺)`, last layer first (Eq. 13–14). `row_normalised=True` is the authors' code for BERT.
    `block` takes one layer alone, and `weight` puts the attention in place of its gradient, or nothing: the paper's
    ablations.
    """
    relevances = prediction.attention_relevances("z_plus")
    weights = {"gradient": prediction.attention_gradients, "attention": prediction.attention, "none": None}[weight]
    weighted = relevances if weights is None else [w * r for w, r in zip(weights, relevances, strict=True)]
    maps = tuple(m.clamp(min=0).mean(1) for m in weighted)
    if block is not None:
        if first_layer:
            raise BadOption("block takes one layer alone: leave first_layer out")
        maps = from_layer(maps, block)[:1]
    joined = with_residual(from_layer(maps, first_layer), row_normalised=row_normalised)
    return Scores(roll_out(prediction.reader, joined), conservation(prediction, "z_plus", whole=False))


@method(family="relevance", signed=True, class_specific=True, paper="Ali et al. 2022", relevance=True)
def cp_lrp(prediction: Prediction, *, at: AtRelevance = None) -> Scores:
    """Conservative propagation: attention probabilities, gates and norms' denominators are constants.

    The relevance of the logit's value at the token embeddings, or with `at="embedding_output"`, the default for images,
    after positions and norm.
    """
    return _from_value(prediction, "conservative", at)


@method(family="relevance", signed=True, class_specific=True, paper="Achtibat et al. 2024", relevance=True)
def attn_lrp(
    prediction: Prediction, *, at: AtRelevance = None, form: Literal["gradient", "epsilon"] = "gradient"
) -> Scores:
    """AttnLRP: softmax is differentiated, products pass half to either factor, norms' denominators are constants.

    The relevance of the logit's value at the token embeddings, or with `at="embedding_output"`, the default for images,
    after positions and norm. `form="epsilon"` carries relevance with stabilised divisions, as the authors' code for
    BERT does; the default needs none.
    """
    return _from_value(prediction, "attn" if form == "gradient" else "epsilon", at)


def _from_value(prediction: Prediction, book: str, at: Place | None) -> Scores:
    tokens = place_of(prediction, at) == "token_embeddings"
    relevances = prediction.token_relevances(book) if tokens else prediction.embedding_relevances(book)
    sent = prediction.trace.output(prediction.target, prediction.versus).detach()
    arrived = relevances.flatten(1).sum(1)
    report = {"sum": arrived, "absorbed": sent - arrived, "expected": sent}  # by biases, positions and constants
    return Scores(relevances.sum(-1), {"conservation": report})


@method(family="relevance", signed=False, class_specific=True, paper="Chefer et al. 2021 (ICCV)")
def gae(prediction: Prediction) -> Tensor:
    """Positive part of gradient times attention, rolled out from the reader.

    `R = I`, then for each layer `R += E_h (G_l ⊙ A_l)⁺ R`: the product of `I + E_h (G_l ⊙ A_l)⁺`.
    """
    maps = zip(prediction.attention_gradients, prediction.attention, strict=True)
    weighted = [(g * a).clamp(min=0).mean(1) for g, a in maps]
    return roll_out(prediction.reader, with_residual(weighted, row_normalised=False))
