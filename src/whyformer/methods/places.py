"""Where in a model embeddings are taken, and when their products are refused: one vocabulary for all methods."""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from whyformer.checks import refuse_if
from whyformer.errors import BadOption, UnsupportedModel
from whyformer.methods.registry import Scores
from whyformer.prediction import Prediction
from whyformer.recorder import Book, Layers
from whyformer.recorder.lrp.books import GRADIENT_BOOKS, PLAIN, gradient_book
from whyformer.registry.options import Added, Names, Spelling

Place = Literal["token_embeddings", "embedding_output"]
Anywhere = Literal[Place, "pixels"]
AtInput = Annotated[Anywhere | None, Spelling(in_keys={None: "token_embeddings"})]
AtStates = Annotated[Literal["embedding_output", "pixels"] | None, Added()]
AtRelevance = Annotated[  # a spelling of its own, until there was one for all
    Anywhere | None,
    Spelling(
        former={"embeddings": "token_embeddings"}, in_keys=dict.fromkeys((None, "token_embeddings"), "embeddings")
    ),
]
OfGradient = Annotated[str, Names(GRADIENT_BOOKS, "rule_of")]
GradientBook = Annotated[str | None, Names(GRADIENT_BOOKS, "rule_of"), Added()]  # None: torch's own derivatives

# A sum this small beside its terms is rounding, or the small constant in a norm, which shows more in small numbers.
CANCELLED: dict[Anywhere, float] = {"token_embeddings": 1e-3, "embedding_output": 2e-5, "pixels": 1e-3}


def gradient_or_book(book: str | None) -> Book:
    """Return the rule book of that name, or else the book of torch's own derivatives."""
    return PLAIN if book is None else gradient_book(book)


def place_of(prediction: Prediction, at: Anywhere | None) -> Anywhere:
    """The place that is asked for.

    By default it is the token embeddings; of an image the embedding output, or the pixels where a model has no layers
    whose states are those of patches.
    """
    trace = prediction.trace
    if at == "pixels" and trace.pixels is None:
        raise BadOption("at='pixels' is for images, and this input has no pixel_values: leave `at` out")
    if at is not None:
        return at
    if trace.embeddings is not None:
        return "token_embeddings"
    return "embedding_output" if isinstance(trace.layers, Layers) else "pixels"


def of_pixels(prediction: Prediction, values: Tensor, report: dict[str, Any] | None = None) -> Scores:
    """Numbers of pixels [batch, channels, height, width], added up over channels, and then over each patch.

    The map of pixels, [batch, height, width], is reported. Units that are no patch, as `[CLS]`, score 0.
    """
    pixels = values.sum(1)
    return Scores(prediction.trace.patches.sums(pixels), {**(report or {}), "pixels": pixels})


def check_cancelled(
    prediction: Prediction, scores: Tensor, terms: Tensor, advice: str, at: Anywhere = "embedding_output"
) -> None:
    """Raise if sums [batch, units] are nothing beside their terms, for an example.

    `terms` are the sums of the terms' sizes. A norm does not feel the length of its input, so a vector that goes
    through a norm alone has a product of 0 with its gradient, but for the small constant in the norm: to rank such
    numbers means nothing. From the embedding output on, the position that the head reads may have a signal all the
    same, so the others are looked at, if they have a gradient.
    """
    asked = ~prediction.padding
    if at == "embedding_output":
        unread = asked & (prediction.reader == 0) & (terms > 0)
        asked = torch.where(unread.any(-1, keepdim=True), unread, asked)
    largest, size = ((values.abs() * asked).amax(-1) for values in (scores, terms))
    refuse_if(
        (largest < CANCELLED[at] * size).any(),
        UnsupportedModel(
            "vectors times their gradients cancel to almost nothing: this model normalises them before anything else, "
            f"so their length has no effect, and what is left is the small constant in a norm; {advice}"
        ),
    )


def summed(prediction: Prediction, products: Tensor, advice: str, at: Place = "embedding_output") -> Tensor:
    """Products [batch, units, width] summed over width, if they do not cancel."""
    scores = products.sum(-1)
    check_cancelled(prediction, scores, products.abs().sum(-1), advice, at)
    return scores
