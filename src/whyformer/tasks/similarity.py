"""Similarity: how well an image and a text go together, as CLIP and SigLIP tell it; one side at a time is explained."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whyformer.errors import BadInput, UnsupportedModel
from whyformer.models.load import input_embeddings, labels_of
from whyformer.tasks.classification import Classification
from whyformer.tasks.task import register

NEEDED = 'this model compares images with texts: explain(image, text="a photo of a dog"), or a list of texts'
FULL = ("siglip", "siglip2")  # model types that were trained on texts padded to their whole window


class Side(nn.Module):
    """One tower of an unmodified model that compares images with texts; what the other gave is held fixed.

    The model's similarity is `scale · cos(image, text)`, with a `logit_bias` added where the model has one. With one
    of the two as a constant it is a linear layer behind a norm, so that a tower is explained as any classifier is.
    """

    features: str  # the name of the model's function that gives this side's features
    fixed: Tensor  # embeddings of the other side, [count, width]

    def __init__(self, model: nn.Module):
        super().__init__()
        if not callable(getattr(model, self.features, None)) or not isinstance(
            getattr(model, "logit_scale", None), Tensor
        ):
            raise UnsupportedModel(
                f"{type(model).__name__} has no {self.features} or no logit_scale, so its similarity is not known"
            )
        self.model = model
        self.register_buffer("fixed", torch.zeros(0, 0))

    def against(self, embedded: Tensor) -> Self:
        """With these embeddings of the other side, [count, width], held fixed."""
        self.fixed = embedded.detach()
        return self

    def embedded(self, tensors: Mapping[str, Any]) -> Tensor:
        """The embeddings of this side, [batch, width], each of length 1."""
        features = getattr(self.model, self.features)(**tensors)
        pooled = features if isinstance(features, Tensor) else features.pooler_output
        width = pooled.shape[-1]
        embedded: Tensor = F.rms_norm(pooled, (width,), eps=0.0) * width**-0.5
        return embedded

    def compared(self, tensors: Mapping[str, Any]) -> Tensor:
        """The similarity with each of what is fixed, [batch, count]."""
        model: Any = self.model
        weight = self.fixed * model.logit_scale.exp()
        bias = getattr(model, "logit_bias", None)
        return F.linear(self.embedded(tensors), weight, None if bias is None else bias.expand(len(weight)))


class ImageSide(Side):
    """The image tower, beside fixed texts."""

    features = "get_image_features"

    def __init__(self, model: nn.Module):
        super().__init__(model)
        self.config = getattr(getattr(model, "config", None), "vision_config", None)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """The similarity of images with each text, [batch, texts]."""
        return self.compared({"pixel_values": pixel_values})


class TextSide(Side):
    """The text tower, beside fixed images."""

    features = "get_text_features"

    def __init__(self, model: nn.Module):
        super().__init__(model)
        self.config = getattr(getattr(model, "config", None), "text_config", None)

    def get_input_embeddings(self) -> Any:
        """Those of the text tower."""
        return input_embeddings(getattr(self.model, "text_model", self.model))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The similarity of texts with each image, [batch, images]."""
        return self.compared({"input_ids": input_ids, "attention_mask": attention_mask})


class FullTokenizer:
    """A tokenizer that fills the whole window of a model with padding, which the model attends to as to any token."""

    def __init__(self, tokenizer: Any, window: int):
        self._tokenizer, self._window = tokenizer, window

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *texts: str, **options: Any) -> Any:
        """What the tokenizer gives, padded."""
        return self._tokenizer(*texts, **{"max_length": self._window, **options, "padding": "max_length"})


def tokenizer_for(model: nn.Module, tokenizer: Any) -> Any:
    """What reads texts as the model saw them in training."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) not in FULL:
        return tokenizer
    return FullTokenizer(tokenizer, int(config.text_config.max_position_embeddings))


def prompts_of(text: Any) -> tuple[str, ...]:
    """The texts that an image is compared with."""
    prompts = (text,) if isinstance(text, str) else tuple(text) if isinstance(text, Iterable) else ()
    if not prompts or not all(isinstance(prompt, str) and prompt.strip() for prompt in prompts):
        raise BadInput(NEEDED)
    if len(set(prompts)) < len(prompts):
        raise BadInput("texts that an image is compared with are different ones; found one twice")
    return prompts


@register
@dataclass(frozen=True)
class Similarity(Classification):
    """How well images go with texts. It is explained on both sides, each by itself: see `OneSide`."""

    name, head, gives = "similarity", "ZeroShotImageClassification", "the similarity of images and texts"
    does = "compares images with texts"
    compares = True

    def log_odds_misfit(self, classes: int) -> str | None:
        """Texts are not classes: any number of them may be given."""
        return f"this one {self.does}: leave it out"


@register
@dataclass(frozen=True)
class OneSide(Similarity):
    """How well an image goes with each of several texts, or a text with an image. Logits are [batch, fixed ones].

    Probabilities are those among the texts; of a model with a `logit_bias`, as SigLIP, each text's own.
    """

    name = "one_side"
    compares = False

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """With what is fixed as names of its outputs."""
        sigmoid = isinstance(model, Side) and getattr(model.model, "logit_bias", None) is not None
        return cls(labels_of(model), multi_label=sigmoid)

    @classmethod
    def fits(cls, model: nn.Module) -> bool:
        """Whether it is one side of a model."""
        return isinstance(model, Side)
