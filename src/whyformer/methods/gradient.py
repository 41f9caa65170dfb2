"""Methods that use the gradient of the explained output, at attention maps or embeddings.

`full_grad` is FullGrad+ (Srinivas & Fleuret 2019; Mehri et al. 2025): states times their gradients, and biases times
theirs.
"""

from collections.abc import Iterator
from functools import partial, reduce
from typing import Annotated, Literal

import torch
from torch import Tensor

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.methods.attcat import BALANCED
from whyformer.methods.method import (
    CANCELLED,
    Anywhere,
    AtInput,
    AtStates,
    EmbeddingPoint,
    GradientBook,
    Scores,
    check_cancelled,
    gradient_or_book,
    method,
    of_pixels,
    place_of,
    summed,
)
from whyformer.prediction import Prediction, Queries
from whyformer.recorder import GRADIENT, MAPS, Edit, Needs, with_book
from whyformer.recorder.lrp.rule_sets import PLAIN
from whyformer.recorder.output_head import Tail
from whyformer.recorder.taps import positive_gradients
from whyformer.registry.options import Count, Spelling

GradientProtocol = Literal["allennlp"] | None
SmoothProtocol = Annotated[GradientProtocol, Spelling(in_keys={"allennlp": "allennlp, the gradient alone"})]
SampleCount = Annotated[int, Count(1, 10_000, "each is a run of the model, and more would take hours for one text")]


@method(family="gradient", signed=True, class_specific=True, paper="Qiang et al. 2022", needs=with_book(MAPS))
def grads(
    prediction: Prediction,
    *,
    query: Queries = "reader",
    positive: bool = False,
    times_attention: bool = False,
    book: GradientBook = None,
) -> Tensor:
    """The gradient of the last layer's attention, in the reader's row, averaged over heads.

    The "Grads" of AttCAT's Figure 2. Mask-LRP's "CAM" is `query="all", positive=True` in its code (the mean over all
    queries, padding counted; `"mean"` does not count padding); its "GradCAM" reads `times_attention=True`. `book` names
    the rule book whose balanced gradient is taken (LibraGrad).
    """
    maps = prediction.gradients(book).attention[-1] * _seen(prediction.attention[-1])
    if times_attention:
        maps = maps * prediction.attention[-1]
    scores = prediction.over_queries(maps.mean(1), query)
    return scores.clamp(min=0) if positive else scores


def _seen(attention: Tensor) -> Tensor:
    """0 where a mask lets a query not look at a key that others look at, as later ones under a causal mask; else 1.

    What was masked has a gradient all the same.
    """
    return ((attention != 0) | (attention == 0).all(-2, keepdim=True)).to(attention.dtype)


@method(
    family="gradient",
    signed=False,
    class_specific=True,
    paper="Barkan et al. 2021",
    needs=with_book(Needs(tap=positive_gradients), PLAIN),
    single_output=True,
)
def att_grads(prediction: Prediction, *, book: GradientBook = None) -> Tensor:
    """Attention times the positive part of its gradient, averaged over layers and heads, summed over queries.

    Grad-SAM. `book` names the rule book whose balanced gradient is taken (LibraGrad).
    """
    maps = prediction.at_maps(positive_gradients, book)
    return torch.stack([torch.einsum("bq,bqk->bk", prediction.real, m) for m in maps]).mean(0)


@method(
    family="gradient",
    signed=False,
    class_specific=True,
    paper="Selvaraju et al. 2017; Chefer et al. 2021",
    needs=with_book(MAPS),
    single_output=True,
)
def grad_cam(prediction: Prediction, *, over: Literal["row", "map"] = "row", book: GradientBook = None) -> Tensor:
    """Grad-CAM with the reader's row of the last layer's attention as the feature map, from 0 to 1.

    Each head weighs as much as the mean of its gradient over the map; `(E_h(weight ⊙ A_L))⁺` is stretched to [0, 1].
    The map is the reader's row without the reader's own column (Chefer et al., section 4). `over="map"` averages and
    stretches over all rows and columns, padding included: the authors' code for BERT. A map of zeros stays zeros.
    `book` names the rule book whose balanced gradient is taken (LibraGrad).
    """
    gradients, attention = prediction.gradients(book).attention[-1], prediction.attention[-1]
    if over == "map":
        everywhere = (gradients.mean((-1, -2), keepdim=True) * attention).mean(1).clamp(min=0)
        return prediction.read(_stretched(everywhere.flatten(1), None).view_as(everywhere))
    seen = prediction.real * (prediction.reader < 1) * prediction.read(_seen(attention).amax(1)).ne(0)  # [batch, keys]
    weights = (prediction.read(gradients) * seen[:, None]).sum(-1) / seen.sum(-1, keepdim=True).clamp(min=1)
    row = (weights[..., None] * prediction.read(attention)).mean(1).clamp(min=0)
    return _stretched(row, seen.bool())


def _stretched(values: Tensor, seen: Tensor | None) -> Tensor:
    """Min-max to [0, 1] over what is seen, [batch, …]; 0 elsewhere and where all values are equal."""
    seen = torch.ones_like(values, dtype=torch.bool) if seen is None else seen
    low = values.masked_fill(~seen, float("inf")).amin(-1, keepdim=True)
    high = values.masked_fill(~seen, float("-inf")).amax(-1, keepdim=True)
    ranges = high - low
    return torch.where(seen & (ranges > 0), (values - low) / ranges, 0)


@method(family="gradient", signed=False, class_specific=True, paper="Bousselham et al. 2025", single_output=True)
def legrad(prediction: Prediction) -> Tensor:
    """The positive gradient of each layer's own logit at its attention, averaged over heads, queries and layers.

    LeGrad: `y_l` is the logit that the model's head makes of the output of layer `l`, as if it were the last;
    `mean_l mean_{h,q} (∂y_l / ∂A_l)⁺`. Where a mask hides a key from a query, nothing counts. The head is what the
    model does after its last layer, noted in another run and repeated; where that fails, it is refused.
    """
    trace = prediction.opened
    layers = list(zip(trace.attention, trace.hidden[1:], strict=True))
    head = Tail.of(prediction.model, prediction.batch.tensors, trace)
    target = trace.outputs.in_rows(prediction.target)
    versus = None if prediction.versus is None else trace.outputs.in_rows(prediction.versus)
    received = []
    for attention, states in layers:
        logit = prediction.task.output(head(states), target, versus)
        positive = trace.gradient_of(logit, attention).clamp(min=0) * _seen(attention.detach())
        received.append(prediction.over_queries(positive.mean(1).to(prediction.real.dtype), "mean"))
    return torch.stack(received) / len(received)


@method(family="gradient", signed=False, class_specific=True, paper="Simonyan et al. 2014", needs=GRADIENT)
def saliency(
    prediction: Prediction,
    *,
    of: Literal["logit", "loss"] = "logit",
    protocol: GradientProtocol = None,
    at: AtStates = None,
) -> Tensor | Scores:
    """The length of the gradient at the embedding output.

    `of="loss"` takes the cross-entropy of the explained class in place of its logit. `protocol="allennlp"` is the
    Decoded paper's "Simple": loss gradient times token embedding, summed over width, absolute, as shares of the sum.
    `at="pixels"` takes the gradient at each pixel of an image, its length over the channels, and adds up each patch.
    """
    if protocol == "allennlp":
        return _allennlp(prediction, _loss_gradient(prediction, "token_embeddings"))
    if place_of(prediction, at or _states_of(prediction)) == "pixels":
        gradient = _loss_gradient(prediction, "pixels") if of == "loss" else _pixel_gradient(prediction)
        return of_pixels(prediction, gradient.square().sum(1, keepdim=True).sqrt())
    if of == "loss":
        return _lengths(_loss_gradient(prediction, "embedding_output"))
    return _lengths(prediction.hidden_gradients[0])


def _states_of(prediction: Prediction) -> Literal["embedding_output"] | None:
    """The embedding output of a text, whatever its layers are; None for an image."""
    return None if prediction.trace.embeddings is None else "embedding_output"


@method(
    family="gradient", signed=False, class_specific=True, paper="Smilkov et al. 2017", passes="many", needs=GRADIENT
)
def smooth_grad(
    prediction: Prediction,
    *,
    samples: SampleCount = 10,
    noise: float = 0.01,
    seed: int = 0,
    protocol: SmoothProtocol = None,
) -> Tensor:
    """The length of the gradient at the embedding output, averaged over noisy copies of it.

    The noise is normal; its deviation is `noise` times the range of the example's embeddings. `protocol="allennlp"`
    is the Decoded paper's "Smooth": the loss gradient at noisy token embeddings, averaged, summed over width, absolute,
    as shares of the sum. AllenNLP does not multiply it by the embedding, as it does in "Simple" and "Integrated". In a
    model with LayerNorms such sums are 0 but for rounding, and refused.
    """
    if noise < 0:
        raise BadOption(f"smooth_grad needs noise of at least 0; found {noise}")
    at: EmbeddingPoint = "token_embeddings" if protocol == "allennlp" else "embedding_output"
    if protocol == "allennlp":
        _over_width(prediction, _loss_gradient(prediction, at))  # which refuses before the noisy runs
    runs = _noisy(prediction, at, samples, noise, seed)
    total = reduce(
        torch.add, (_loss_gradient(r, at) if protocol == "allennlp" else r.hidden_gradients[0] for r in runs)
    )
    mean = total / samples
    return _shares(prediction, _over_width(prediction, mean)) if protocol == "allennlp" else _lengths(mean)


@method(family="gradient", signed=True, class_specific=True, paper="Shrikumar et al. 2016", needs=GRADIENT)
def input_x_gradient(prediction: Prediction, *, at: AtInput = None) -> Tensor | Scores:
    """Each embedding times its gradient, summed over its width.

    Token embeddings are taken before positions and norm; `at="embedding_output"` is the Decoded paper's GradxAct, and
    the default for images; `at="pixels"` takes each pixel of an image, and adds up each patch. A model that normalises
    token embeddings as they are (DeBERTa-v2, ModernBERT, Bloom) does not feel their length, so these products cancel:
    that is refused.
    """
    place = place_of(prediction, at)
    if place == "pixels":
        gradient = _pixel_gradient(prediction)
        products = prediction.batch.tensors["pixel_values"].to(gradient) * gradient
        scores, terms = of_pixels(prediction, products), of_pixels(prediction, products.abs())
        check_cancelled(prediction, scores.total, terms.total, "use a method of relevance, such as attn_lrp", "pixels")
        return scores
    if place == "embedding_output":
        products = prediction.hidden[0] * prediction.hidden_gradients[0]
        return summed(prediction, products, "no place is left where input_x_gradient means something")
    return _times_embeddings(prediction, prediction.embedding_gradients)


def _lengths(vectors: Tensor) -> Tensor:
    return vectors.square().sum(-1).sqrt()


def _pixel_gradient(prediction: Prediction) -> Tensor:
    trace = prediction.plain
    assert trace.pixels is not None
    return trace.gradient(trace.pixels, *prediction.asked, required=[0]).to(prediction.real.dtype)


def _loss_gradient(prediction: Prediction, at: Anywhere) -> Tensor:
    trace = prediction.plain
    places = {"token_embeddings": lambda: trace.embeddings, "pixels": lambda: trace.pixels}
    variable = places.get(at, lambda: trace.hidden[0])()
    if variable is None:
        raise BadOption("the model's token embeddings were not seen, and protocol='allennlp' needs them")
    gradient = trace.gradient_of(prediction.loss(trace.logits), variable, required=[0])
    return gradient.to(prediction.real.dtype)


def _times_embeddings(prediction: Prediction, gradients: Tensor) -> Tensor:
    advice = "use input_x_gradient with at='embedding_output' (--at embedding_output)"
    return summed(prediction, prediction.embeddings * gradients, advice, "token_embeddings")


def _allennlp(prediction: Prediction, gradients: Tensor) -> Tensor:
    return _shares(prediction, _times_embeddings(prediction, gradients))


def _over_width(prediction: Prediction, gradients: Tensor) -> Tensor:
    """Gradients [batch, units, width] summed over width, if they do not cancel.

    A LayerNorm takes the mean out of what it is given, so a number added to a whole embedding has no effect: then the
    sum of its gradient, which is that effect, is rounding.
    """
    sums = gradients.sum(-1)
    largest, size = ((v.abs() * prediction.real).amax(-1) for v in (sums, gradients.abs().sum(-1)))
    if bool((largest < CANCELLED["token_embeddings"] * size).any()):
        raise UnsupportedModel(
            "gradients summed over the width of the token embeddings cancel to rounding: this model has LayerNorms, "
            "which take the mean out, so smooth_grad with protocol='allennlp' ranks nothing here; leave the protocol "
            "out (the length of the averaged gradient), or use saliency with protocol='allennlp'"
        )
    return sums


def _shares(prediction: Prediction, scores: Tensor) -> Tensor:
    """The sizes of scores as shares of their sum, padding left out."""
    scores = scores.abs() * prediction.real
    return scores / scores.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


def _noisy(prediction: Prediction, at: EmbeddingPoint, samples: int, noise: float, seed: int) -> Iterator[Prediction]:
    """The prediction run anew with noise on its embeddings: an example's noise is its own, whatever the batch."""
    clean = prediction.embeddings if at == "token_embeddings" else prediction.hidden[0]
    real = prediction.real.bool()
    streams = prediction.generators(seed)
    for _ in range(samples):
        added = torch.zeros_like(clean)
        for example, stream in enumerate(streams):
            present = clean[example][real[example]]
            deviation = noise * (present.max() - present.min())
            normal = torch.randn(present.shape, generator=stream, dtype=torch.float32)
            added[example, real[example]] = normal.to(clean) * deviation
        yield prediction.edited(Edit(at, partial(_plus, added)))


def _plus(added: Tensor, states: Tensor) -> Tensor:
    return states + added.to(states.dtype)


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
