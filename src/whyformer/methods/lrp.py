"""Methods that propagate relevance from the explained output to the input (LRP), at one layer or at several."""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from whyformer.errors import BadOption
from whyformer.methods.attention import from_layer, roll_out, with_residual
from whyformer.methods.method import (
    Anywhere,
    AtRelevance,
    GradientBook,
    OfGradient,
    Scores,
    method,
    of_pixels,
    place_of,
)
from whyformer.prediction import Prediction, Relevances, Weight
from whyformer.recorder import RELEVANCE, Book, Needs, with_book
from whyformer.recorder.lrp.rule_sets import CONSERVATIVE, PLAIN, book_named, gradient_book, with_gamma
from whyformer.recorder.taps import positive_products
from whyformer.registry.options import Added

BookName = Literal["alpha_beta", "z_plus", "eq4", "eq4_normalised"]
Gamma = Annotated[float, Added()]
PixelGamma = Annotated[float | None, Added()]  # None: as elsewhere


def conservation(relevances: Relevances, prediction: Prediction, lost: float | Tensor = 0.0) -> dict[str, Any]:
    """How much relevance arrived at the embedding output, how much parameters took, and how much was sent out.

    Of a pass that was not `whole`, it is measured at the first layer's output, where that for the attention maps comes
    through, or at the last layer's input, if the pass goes no further; in a model whose layers have other units than
    patches, at the pixels. What was `lost` on the way, [batch], is not expected.
    """
    reached = relevances.pixels if relevances.state is None else relevances.state
    assert reached is not None
    arrived = reached.flatten(1).sum(1)
    sent = torch.full_like(arrived, 1.0 if prediction.versus is None else 0.0)
    return {"conservation": {"sum": arrived, "absorbed": relevances.absorbed, "expected": sent - lost}}


@method(
    family="relevance",
    signed=True,
    class_specific=True,
    paper="Bach et al. 2015; Chefer et al. 2021",
    needs=RELEVANCE,
    single_output=True,
)
def lrp(prediction: Prediction, *, book: BookName = "alpha_beta") -> Scores:
    """Layer-wise relevance propagation down to the embedding output, summed over its width.

    `book="alpha_beta"` is what made the papers' LRP rows; `"eq4"` is Chefer's Eq. 4 with plain additions, of which it
    says nothing, `"eq4_normalised"` with those of Transformer Attribution; `"z_plus"` conserves.
    """
    if prediction.trace.pixels is not None:
        scores = prediction.pixel_relevances(book)
        return of_pixels(prediction, scores, conservation(prediction.relevances(book), prediction))
    scores = prediction.embedding_relevances(book)
    return Scores(scores.sum(-1), conservation(prediction.relevances(book), prediction))


@method(
    family="relevance",
    signed=False,
    class_specific=True,
    paper="Voita et al. 2019; Chefer et al. 2021",
    needs=RELEVANCE,
    single_output=True,
)
def partial_lrp(prediction: Prediction, *, book: BookName = "alpha_beta") -> Scores:
    """The positive relevance of the last layer's attention, in the reader's row, averaged over heads.

    `E_h (R_{A_L})⁺ [r]`; the default book is what made the papers' rows.
    """
    relevances = prediction.last_relevances(book)
    (last,) = relevances.attention
    return Scores(prediction.read(last.clamp(min=0).mean(1)), conservation(relevances, prediction))


@method(
    family="relevance",
    signed=False,
    class_specific=True,
    paper="Chefer et al. 2021",
    needs=Needs(sites=True, in_turn=True),
    single_output=True,
)
def transformer_attribution(
    prediction: Prediction,
    *,
    first_layer: int = 0,
    row_normalised: bool = False,
    block: int | None = None,
    weight: Weight = "gradient",
    book: Annotated[BookName, Added()] = "z_plus",
) -> Scores:
    """Positive part of gradient times relevance of the attention maps, rolled out from the reader.

    `Π_l (I + E_h (G_l ⊙ R_l)⁺)`, last layer first (Eq. 13–14). `row_normalised=True` is the authors' code for BERT.
    `block` takes one layer alone, and `weight` puts the attention in place of its gradient, or nothing: the paper's
    ablations. Its authors ran the ablation of the last block with the original LRP: `book="alpha_beta"`.
    """
    weighted, relevances = prediction.weighted_relevances(book, weight)
    maps = tuple(weighted)
    if block is not None:
        if first_layer:
            raise BadOption("block takes one layer alone: leave first_layer out")
        maps = from_layer(maps, block)[:1]
    joined = with_residual(from_layer(maps, first_layer), row_normalised=row_normalised)
    return Scores(roll_out(prediction.reader, joined), conservation(relevances, prediction))


def _with_gamma(name: str, gamma: float, gamma_pixels: float | None) -> Book:
    book = book_named(name)
    if not gamma and not gamma_pixels:
        return book
    return with_gamma(book, gamma, gamma_pixels)


ONE_PASS = Needs(maps=False, once=True)  # one backward pass under a book, which frees memory on its way


def _conservative(gamma: float = 0.0, gamma_pixels: float | None = None, **_: Any) -> Book:
    """The book of `cp_lrp`."""
    return _with_gamma("conservative", gamma, gamma_pixels)


def _attn(form: str = "gradient", gamma: float = 0.0, gamma_pixels: float | None = None, **_: Any) -> Book:
    """The book of `attn_lrp`."""
    return _with_gamma("attn" if form == "gradient" else "epsilon", gamma, gamma_pixels)


@method(
    family="relevance",
    signed=True,
    class_specific=True,
    paper="Ali et al. 2022",
    needs=lambda **options: ONE_PASS.under(_conservative(**options)),
)
def cp_lrp(
    prediction: Prediction, *, at: AtRelevance = None, gamma: Gamma = 0.0, gamma_pixels: PixelGamma = None
) -> Scores:
    """Conservative propagation: attention probabilities, gates and norms' denominators are constants.

    The relevance of the logit's value at the token embeddings, or with `at="embedding_output"`, the default for images,
    after positions and norm; `at="pixels"` goes down to the pixels. `gamma` and `gamma_pixels` as in `attn_lrp`.
    """
    return _from_value(prediction, _conservative(gamma, gamma_pixels), at)


@method(
    family="relevance",
    signed=True,
    class_specific=True,
    paper="Achtibat et al. 2024",
    needs=lambda **options: ONE_PASS.under(_attn(**options)),
)
def attn_lrp(
    prediction: Prediction,
    *,
    at: AtRelevance = None,
    form: Literal["gradient", "epsilon"] = "gradient",
    gamma: Gamma = 0.0,
    gamma_pixels: PixelGamma = None,
) -> Scores:
    """AttnLRP: softmax is differentiated, products pass half to either factor, norms' denominators are constants.

    The relevance of the logit's value at the token embeddings, or with `at="embedding_output"`, the default for images,
    after positions and norm; `at="pixels"` goes down to the pixels, and is the default for images of models whose
    layers have other units than patches. `form="epsilon"` carries relevance with stabilised divisions, as the authors'
    code for BERT does; the default needs none. With `gamma`, what agrees with the sign of a linear map's result counts
    1 + γ times, as the authors do for images; `gamma_pixels` is the γ of the convolution that looks at the pixels, if
    that is another one.
    """
    return _from_value(prediction, _attn(form, gamma, gamma_pixels), at)


def _from_value(prediction: Prediction, book: Book, at: Anywhere | None) -> Scores:
    place = place_of(prediction, at)
    if place == "pixels":
        _ = prediction.trace.patches  # asked of the graph, which is gone afterwards
        relevances = prediction.pixel_relevances(book)
    else:
        tokens = place == "token_embeddings"
        relevances = prediction.token_relevances(book) if tokens else prediction.embedding_relevances(book)
    report = of_value(prediction, relevances.flatten(1).sum(1))
    return of_pixels(prediction, relevances, report) if place == "pixels" else Scores(relevances.sum(-1), report)


def of_value(prediction: Prediction, arrived: Tensor) -> dict[str, Any]:
    """How much of what was sent arrived, [batch]. Biases, positions and constants took the rest.

    A pass sends `Σ start · logits`: the logit's value, or for log-odds the logit minus the weighted mean of the others.
    """
    trace = prediction.trace
    logits = trace.logits.detach()
    starts = trace.starts(*prediction.asked)
    sent = torch.stack([(start * logits).flatten(1).sum(1) for start in starts]).sum(0)
    return {"conservation": {"sum": arrived, "absorbed": sent - arrived, "expected": sent}}


@method(
    family="relevance",
    signed=False,
    class_specific=True,
    paper="Chefer et al. 2021 (ICCV)",
    needs=with_book(Needs(tap=positive_products), PLAIN),
    single_output=True,
)
def gae(prediction: Prediction, *, book: GradientBook = None) -> Tensor:
    """Positive part of gradient times attention, rolled out from the reader.

    `R = I`, then for each layer `R += E_h (G_l ⊙ A_l)⁺ R`: the product of `I + E_h (G_l ⊙ A_l)⁺`. `book` names the rule
    book whose balanced gradient is taken (LibraGrad).
    """
    reader = prediction.reader
    return roll_out(reader, with_residual(prediction.at_maps(positive_products, book), row_normalised=False))


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
