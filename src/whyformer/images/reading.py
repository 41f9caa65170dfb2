"""Read images: a file, an array or a tensor becomes the numbers of the model, its patches, and the picture shown."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from whyformer.errors import BadInput, WhyformerError, shown
from whyformer.images.processing import Colours, picture_of_values, processed
from whyformer.inputs.images import ImageInput, Patches, Picture, file_name, is_picture, open_picture
from whyformer.inputs.input_types import InputKind, register_input
from whyformer.models.cache import Facts, known
from whyformer.models.load import Subject
from whyformer.recorder import Layers, record
from whyformer.tasks.similarity import ImageSide

NEEDED = "an image is a file, a PIL image, an array or a tensor, or a list of them"

BLANK = 224  # pixels a side, of an image that only asks what a model is made of
STACKED = "images go through one stack of layers"


class Images(InputKind):
    """A photograph, as a file, a PIL image, or an array or tensor of its pixels."""

    name = "image"

    def takes(self, value: Any) -> bool:
        """Whether it is an image that cannot be a text."""
        return is_image(value)

    def encode(self, subject: Subject, value: Any) -> ImageInput:
        """The image as the model sees it."""
        if not subject.takes_images:
            kind = type(value).__name__
            raise BadInput(f"{type(subject.model).__name__} reads texts: a text is needed; found {kind}, an image")
        colours = Colours.of(subject.processor)
        if is_values(value):
            values = _values(value)
            return _input(subject, values, picture_of_values(values, colours), colours)
        with open_picture(value) as image:
            values, picture = processed(subject.processor, image)
        return _input(subject, values, replace(picture, name=file_name(value)), colours)


register_input(Images())


def is_values(value: Any) -> bool:
    """Whether it is an array or a tensor of fractions: the model's own numbers."""
    if isinstance(value, Tensor):
        return value.is_floating_point()
    return isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating)


def is_image(value: Any) -> bool:
    """Whether something is an image, and not the name of a file, or bytes, which may be a text."""
    return is_values(value) or (not isinstance(value, str | bytes | bytearray) and is_picture(value))


def images_of(value: Any) -> tuple[Iterable[Any], bool]:
    """The images that are meant, and whether it is a single one."""
    if value is None:
        raise BadInput(f"there is nothing to explain: {NEEDED}")
    if isinstance(value, Mapping):
        raise BadInput(f"{NEEDED}; found {type(value).__name__} with {', '.join(map(str, value))[:80]}")
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 4:
        return list(value), False
    if hasattr(value, "read"):
        raise BadInput(f"{NEEDED}; found an open file: give its path, or its bytes")
    if isinstance(value, Tensor | np.ndarray) and value.ndim in (2, 3) and value.dtype != object:
        return [value], True
    if isinstance(value, str | Path | bytes) or is_image(value):
        return [value], True
    if not isinstance(value, Iterable):
        raise BadInput(f"{NEEDED}; found {type(value).__name__} {shown(value, 40)}")
    return value, False


def read_again(subject: Subject, picture: Picture) -> ImageInput:
    """The input behind a picture: from its own numbers, or from what the model saw, if that was saved."""
    colours = Colours.of(subject.processor)
    values = picture.values
    if values is None and picture.seen is not None and colours is not None:
        values = colours.normalised(picture.seen)
    if values is None:
        raise BadInput(
            "this explanation was loaded, and the numbers of its image were not saved exactly: explain the image again"
        )
    return _input(subject, values, picture, colours)


def _input(subject: Subject, values: Tensor, picture: Picture, colours: Colours | None) -> ImageInput:
    dtype = next(subject.model.parameters()).dtype
    patches = patches_of(subject.model, values.to(subject.device, dtype))
    return ImageInput(
        {"pixel_values": values.to(subject.device, dtype)},
        patches,
        units=patches.described,
        special=~patches.free,
        picture=picture,
        black=None if colours is None else colours.black,
    )


def patches_of(model: nn.Module, values: Tensor) -> Patches:
    """Return the unit that each pixel belongs to. The model is run once for each size of images."""
    facts, size = _facts(model), tuple(values.shape[1:])
    by_size: dict[tuple[int, ...], Patches] = facts.once("patches by size", dict)
    if size not in by_size:
        try:
            trace = record(model, {"pixel_values": values}, relevance=False)
            by_size[size] = trace.patches
            facts[STACKED] = isinstance(trace.layers, Layers)
        except (WhyformerError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # code of others, about a size that it does not take
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise BadInput(
                f"{type(model).__name__} cannot run on an image of {size[0]} channels and {size[1]} × {size[2]} pixels "
                f"({reason[:200]}): give the image processor that it was trained with; a tensor of fractions is what "
                "the model takes, channels first, and pixels are given as uint8"
            ) from error
    return by_size[size]


def _facts(model: nn.Module) -> Facts:
    """The facts about a model of images. Its side in a comparison with texts shares them."""
    return known(model.model if isinstance(model, ImageSide) else model)


def is_stacked(subject: Subject) -> bool:
    """Return True if a model of images has one stack of layers, as a ViT and unlike a Swin."""
    if STACKED not in _facts(subject.model):
        size = getattr(getattr(subject.model, "config", None), "image_size", None)
        side = size if isinstance(size, int) else BLANK
        Images().encode(subject, Image.new("RGB", (side, side)))
    return bool(_facts(subject.model)[STACKED])


def is_stacked_for(model: nn.Module, values: Tensor) -> bool:
    """The same for a model without a processor, asked of the first of its images."""
    patches_of(model, values[:1])
    return bool(_facts(model)[STACKED])


def _values(value: Any) -> Tensor:
    """The model's own numbers, [1, channels, height, width]."""
    tensor = torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value.detach()
    tensor = tensor[None] if tensor.dim() == 3 else tensor
    if tensor.dim() != 4 or len(tensor) != 1 or 0 in tensor.shape:
        raise BadInput(
            f"a tensor of fractions is one image as the model takes it, [channels, height, width]; found the shape "
            f"{tuple(value.shape)}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise BadInput("a tensor of fractions is one image as the model takes it; found NaN or infinite numbers in it")
    return tensor


def side_by_side(left: Image.Image, right: Image.Image) -> Image.Image:
    """Two images squeezed to half their width and set side by side, in the size of the first.

    A model whose processor squashes images to a square so sees each in half of its patches.
    """
    width, height = left.size
    whole = Image.new("RGB", (width - width % 2, height))
    for place, image in enumerate((left, right)):
        squeezed = image.convert("RGB").resize((width // 2, height), Image.Resampling.BILINEAR)
        whole.paste(squeezed, (place * (width // 2), 0))
    return whole


def pairs_of(labels: list[int], count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Pairs of examples with different labels, drawn at random and each pair once."""
    numbers = np.random.default_rng(seed)
    pairs: dict[tuple[int, int], None] = {}
    most = sum(a != b for n, a in enumerate(labels) for b in labels[:n])
    while len(pairs) < min(count, most):
        first, second = (int(number) for number in numbers.choice(len(labels), 2, replace=False))
        if labels[first] != labels[second] and (second, first) not in pairs:
            pairs[first, second] = None
    return list(pairs)
