"""A trial run of each model: does it repeat itself, and does its output depend on padding?"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from whyformer.errors import PaddingWarning, RandomnessWarning, WhyformerError, reason_of
from whyformer.inputs.batch import Batch, collate, encode
from whyformer.inputs.input_types import read
from whyformer.models.cache import known
from whyformer.models.lend import borrowed
from whyformer.models.load import Subject, unwrapped
from whyformer.models.memory import run_without_padding
from whyformer.tasks.similarity import ImageSide, TextSide
from whyformer.tasks.task import call_of, output_of, said_by
from whyformer.tolerance import close

SHORT = "a good film"
LONG = "a good film that is not bad at all and well worth seeing"
SIZE = 64  # of the picture in pixels
FAILURES = (WhyformerError, RuntimeError, ValueError, TypeError, LookupError, AttributeError)


def probe(subject: Subject) -> None:
    """Warn if a model gives other logits for the same input when it runs again, or when the input is padded.

    A model that depends on padding is run on inputs of one length at a time from then on. Each model is tried once, on
    a short text or picture. A model that cannot run on these, or gives no finite logits, is not tried: the user's own
    input tells what is wrong.
    """
    model = unwrapped(subject.model)
    facts = known(model)
    if "tried" in facts or isinstance(model, ImageSide | TextSide):
        return
    facts["tried"] = True
    try:
        alone = _batch(subject, [SHORT])
        first, again = _logits(model, alone), _logits(model, alone)
    except FAILURES:
        return
    if not bool(first.isfinite().all()):
        return  # an error of its own names such logits
    name = type(model).__name__
    try:
        is_padded = not subject.takes_images and first.dim() == 2
        padded = _logits(model, _batch(subject, [SHORT, LONG]))[: len(first)] if is_padded else None
    except WhyformerError:
        return  # the user's own texts tell what is wrong with padding them
    except FAILURES as error:
        run_without_padding(model)
        warnings.warn(
            f"{name} cannot be run on texts of different lengths together ({reason_of(error)}), so texts are run one "
            "at a time, which takes longer",
            PaddingWarning,
            stacklevel=3,
        )
        return
    if not close(again, first):
        warnings.warn(
            f"{name} gives other logits when the same input is run again ({_apart(again, first)}): it draws random "
            "numbers or keeps a state, so explanations differ from run to run, and so does what is checked",
            RandomnessWarning,
            stacklevel=3,
        )
    elif padded is not None and not close(padded, first):
        run_without_padding(model)
        warnings.warn(
            f"{name} gives other logits for a text in a batch with a longer one ({_apart(padded, first)})"
            ": its output depends on padding, or on the other texts of a batch. Texts of different lengths are run one "
            "at a time, which takes longer",
            PaddingWarning,
            stacklevel=3,
        )


def _batch(subject: Subject, texts: Sequence[str]) -> Batch:
    if subject.takes_images:
        pixels = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
        return collate(subject, [read(subject, Image.fromarray(pixels))])
    pairs = subject.task in ("answer", "choice")
    return collate(subject, [encode(subject, (text, text) if pairs else text, answers=False) for text in texts])


def _logits(model: nn.Module, batch: Batch) -> Tensor:
    """The logits of a plain run, without a graph."""
    with torch.no_grad(), borrowed(model, batch.tensors) as (lent, arguments):
        output: Any = output_of(lent, call_of(lent, arguments)())
    said = said_by(model, output)
    if said is None:
        raise TypeError(f"{type(model).__name__} gives no logits")
    return said[0].detach()


def _apart(found: Tensor, expected: Tensor) -> str:
    return f"up to {float((found - expected).abs().max()):.2g} apart"
