"""Processing: from an upright RGB image to a model's numbers, and back to what people can see."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from whyformer.errors import BadInput, UnsupportedModel
from whyformer.inputs.images import Picture, Pixels
from whyformer.models.load import edges, is_plain, resized

LARGEST_SHOWN = 768  # pixels, of the longer side
EXACT = 1e-4  # how far normalised colours may be from those that the model was given
WHOLE = (0.0, 0.0, 1.0, 1.0)
BLACK = 64  # pixels a side, of an image that asks what black becomes

_DOES: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # whether a processor makes of black what it says


@dataclass(frozen=True)
class Colours:
    """How a processor normalises colours: `(value · scale - mean) / std`, for each channel."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, processor: Any) -> "Colours | None":
        """Those of a processor; None for one that does not say, or that makes other numbers than it says."""
        if getattr(processor, "do_rescale", None) is None:
            return None
        stated = cls._stated(processor)
        if stated is None:
            return None
        if processor not in _DOES:
            black = _numbers(processor, Image.new("RGB", (BLACK, BLACK))).float().cpu()
            expected = torch.tensor(stated.black).view(1, 3, 1, 1)
            _DOES[processor] = black.shape[1] == 3 and float((black - expected).abs().max()) <= EXACT
        return stated if _DOES[processor] else None

    @classmethod
    def _stated(cls, processor: Any) -> "Colours | None":
        scale = float(processor.rescale_factor) if processor.do_rescale else 1.0
        normalises = getattr(processor, "do_normalize", False)
        mean = tuple(processor.image_mean) if normalises else (0.0,) * 3
        std = tuple(processor.image_std) if normalises else (1.0,) * 3
        return cls(scale, mean, std) if len(mean) == len(std) == 3 else None

    @property
    def black(self) -> tuple[float, ...]:
        """What a black pixel is."""
        return tuple(-mean / std for mean, std in zip(self.mean, self.std, strict=True))

    def normalised(self, seen: Pixels) -> Tensor:
        """The numbers of an image [height, width, 3]: [1, 3, height, width]."""
        pixels = torch.from_numpy(seen.astype(np.float32)).permute(2, 0, 1)[None]
        mean, std = (torch.tensor(one).view(1, 3, 1, 1) for one in (self.mean, self.std))
        return (pixels * self.scale - mean) / std

    def seen(self, values: Tensor) -> Pixels:
        """The image behind numbers [1, 3, height, width], as far as 256 steps of each colour tell it."""
        mean, std = (torch.tensor(one, dtype=torch.float64).view(1, 3, 1, 1) for one in (self.mean, self.std))
        pixels = (values.double().cpu() * std + mean) / self.scale
        return pixels[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy()


def processed(processor: Any, image: Image.Image) -> tuple[Tensor, Picture]:
    """The model's numbers of an image, [1, channels, height, width], and what people see of it."""
    values = _numbers(processor, image)
    size = (int(values.shape[2]), int(values.shape[3]))
    picture = picture_of_values(values, Colours.of(processor))
    region = _region(processor, (image.height, image.width), size)
    if region is None:
        return values, picture
    return values, Picture(_small(image), size, region, picture.seen, values)


def picture_of_values(values: Tensor, colours: Colours | None) -> Picture:
    """What people see of a model's own numbers: the image behind them, or shades from their lowest to their highest."""
    size = (int(values.shape[2]), int(values.shape[3]))
    if colours is not None and values.shape[1] == len(colours.mean):
        seen = colours.seen(values)
        exact = float((colours.normalised(seen) - values.float().cpu()).abs().max()) <= EXACT
        return Picture(seen, size, WHOLE, seen if exact else None, values)
    low, high = float(values.min()), float(values.max())
    shades = ((values[0].double().cpu() - low) / (high - low or 1) * 255).round().to(torch.uint8)
    pixels = shades if len(shades) == 3 else shades[:1].expand(3, -1, -1)
    return Picture(pixels.permute(1, 2, 0).numpy().copy(), size, WHOLE, None, values)


def _numbers(processor: Any, image: Image.Image) -> Tensor:
    """What a processor, or a plain function, makes of one image."""
    try:
        named = hasattr(processor, "model_input_names")
        made = processor(images=image, return_tensors="pt") if named else processor(image)
    except Exception as error:  # code of others, about any image
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise BadInput(
            f"{type(processor).__name__} cannot process an image of {image.size} pixels: {reason}"
        ) from error
    values = made["pixel_values"] if isinstance(made, Mapping) else made
    if isinstance(values, Tensor) and values.dim() == 3 and not isinstance(made, Mapping):
        values = values[None]
    if not isinstance(values, Tensor) or values.dim() != 4 or len(values) != 1 or not values.is_floating_point():
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise UnsupportedModel(
            f"{type(processor).__name__} makes {shape} of an image; needed are fractions [channels, height, width]"
        )
    return values


def _region(processor: Any, before: tuple[int, int], size: tuple[int, int]) -> tuple[float, float, float, float] | None:
    """Which part of an image of `before` (height, width) a processor shows to the model; None where it does not say."""
    share = getattr(processor, "crop_pct", None)
    if not hasattr(processor, "do_resize") or not (share or is_plain(type(processor).__name__)):
        return None
    cropped: Any = getattr(processor, "crop_size", None) if getattr(processor, "do_center_crop", False) else None
    kept: tuple[float, float] = before
    if processor.do_resize:
        wanted = _plain(processor.size)
        if share:
            wanted, cropped = _with_share(wanted, cropped, share)
        try:
            kept = resized(before, wanted)
        except UnsupportedModel:
            return None
    if cropped is None:
        return WHOLE if kept == size else None
    height, width = edges(_plain(cropped))
    if (height, width) != size or height > kept[0] or width > kept[1]:
        return None
    across, down = (1 - width / kept[1]) / 2, (1 - height / kept[0]) / 2
    return across, down, 1 - across, 1 - down


def _with_share(wanted: Any, cropped: Any, share: float) -> tuple[Any, Any]:
    """To what an image is resized, and to what cropped, by a processor that keeps a share of each side."""
    short = wanted if isinstance(wanted, int) else wanted.get("shortest_edge")
    if short is None:
        return wanted, cropped
    if cropped is None and short >= NOT_CROPPED:  # ConvNeXt
        return {"height": short, "width": short}, None
    return {"shortest_edge": int(short / share)}, short if cropped is None else cropped


NOT_CROPPED = 384  # from this size on, ConvNeXt squeezes an image and does not crop it


def _plain(size: Any) -> Any:
    """A size as plain data, without what is not set."""
    return {name: edge for name, edge in dict(size).items() if edge is not None} if not isinstance(size, int) else size


def _small(image: Image.Image) -> Pixels:
    """The pixels of an image, made smaller where it is very large."""
    copy = image.copy()
    copy.thumbnail((LARGEST_SHOWN, LARGEST_SHOWN), Image.Resampling.LANCZOS)
    return np.asarray(copy.convert("RGB"))
