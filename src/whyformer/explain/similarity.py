"""Similarity of an image and a text, explained on both sides: each tower by itself, with the other held fixed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.errors import BadInput, BadOption, UnsupportedModel
from whyformer.explain.explanation import Explanation
from whyformer.images import images_of
from whyformer.inputs.batch import Batch, collate, encode
from whyformer.models.cache import known
from whyformer.models.lend import borrowed
from whyformer.models.load import Subject, name_classes
from whyformer.results.checked import Checked
from whyformer.tasks.similarity import NEEDED, ImageSide, TextSide, prompts_of, tokenizer_for
from whyformer.tasks.targets import plain_target
from whyformer.tolerance import close


class Similarities:
    """Compares images with texts, and explains each similarity by its two sides.

    `explain` explains one input of a side: `explain(subject, input, target)`.
    """

    def __init__(self, subject: Subject, texts: Any, explain: Any):
        if subject.tokenizer is None or not subject.takes_images:
            raise BadInput(f"{NEEDED}; both a tokenizer and an image processor are needed beside the model")
        self.subject, self.explain = subject, explain
        self.texts = prompts_of(texts)
        self._by_text = TextSide(subject.model)
        self._by_image = ImageSide(subject.model)
        tokenizer = tokenizer_for(subject.model, subject.tokenizer)
        self._text_subject = replace(subject, model=self._by_text, tokenizer=tokenizer, processor=None)
        self._image_subject = replace(subject, model=self._by_image, tokenizer=None, labels=self.texts)
        self._read: Batch = collate(self._text_subject, [encode(self._text_subject, text) for text in self.texts])
        self._by_image.against(_embedded(self._by_text, self._read.tensors))
        name_classes(self._by_image, self.texts)

    def of(self, image: Any, target: Any) -> Explanation:
        """Why an image goes with a text: by default the one that it goes with best."""
        seen = self.explain(self._image_subject, image, target)
        index = seen.target.index
        pixels = seen.image.values.to(self.subject.device, next(self.subject.model.parameters()).dtype)
        self._check(pixels, seen.prediction.logits)
        self._by_text.against(_embedded(self._by_image, {"pixel_values": pixels}))
        name_classes(self._by_text, (self.texts[index],))
        read = self.explain(replace(self._text_subject, labels=(self.texts[index],)), self.texts[index], None)
        return replace(_joined(seen, read), subject=self.subject)

    def _check(self, pixels: Tensor, logits: Sequence[float]) -> None:
        """Raise, once for a model, if it computes a similarity in another way than its two sides do."""
        model = self.subject.model
        facts = known(model, weights=True)
        if "similarity is that of its sides" in facts:
            return
        with borrowed(model, {**self._read.tensors, "pixel_values": pixels}) as (lent, inputs), torch.no_grad():
            stock = lent(**inputs).logits_per_image[0]
        if not close(torch.tensor(logits, dtype=stock.dtype, device=stock.device), stock):
            raise UnsupportedModel(
                f"{type(model).__name__} does not compare an image and a text by the cosine of their features, so its "
                "sides cannot be explained one by one"
            )
        facts["similarity is that of its sides"] = True


def explained_similarity(
    similarities: Similarities, images: Any, target: Any, unknown: dict[str, Any]
) -> Explanation | list[Explanation]:
    """Why an image, or each of several, goes with a text; `unknown` are options that mean nothing here."""
    if asked := [name for name, value in unknown.items() if value is not None]:
        raise BadOption(f"{asked[0]} means nothing to a model that compares images with texts: leave it out")
    if isinstance(plain_target(target), list | tuple):
        raise BadOption("one target is needed for a model that compares images with texts: call explain for each")
    each, single = images_of(images)
    explanations = [similarities.of(image, target) for image in each]
    return explanations[0] if single else explanations


def _embedded(side: ImageSide | TextSide, tensors: dict[str, Tensor]) -> Tensor:
    """The embeddings of one side, without a graph."""
    with borrowed(side, tensors) as (_, inputs), torch.no_grad():
        return side.embedded(inputs)


def _joined(seen: Explanation, read: Explanation) -> Explanation:
    """One explanation of both sides: the patches, then the tokens; each side adds up by itself."""
    layers = None
    if seen.layers is not None and read.layers is not None and len(seen.layers) == len(read.layers):
        layers = np.concatenate((seen.layers, read.layers), 1)
    return replace(
        seen,
        units=(*seen.units, *read.units),
        scores=np.concatenate((seen.scores, read.scores)),
        layers=layers,
        signs=_both(seen.signs, read.signs),
        seen=(),
        checked=_both_checked(seen, read),
        texts=read.texts,
        diagnostics={"image": seen.diagnostics, "text": read.diagnostics},
    )


def _both_checked(seen: Explanation, read: Explanation) -> Checked | None:
    """What was hidden on either side, in one list: the regions, then the words, which are units behind the patches."""
    if seen.checked is None or read.checked is None:
        return seen.checked
    behind = [replace(e, units=tuple(len(seen.units) + n for n in e.units)) for e in read.checked.effects]
    return replace(seen.checked, effects=(*seen.checked.effects, *behind), together=())


def _both(first: NDArray[Any] | None, second: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if first is None or second is None else np.concatenate((first, second))
