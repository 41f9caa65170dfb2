"""Image processors: what makes a model's numbers of an image, from a checkpoint or in hand."""

from typing import Any

import numpy as np
import torch
from PIL import Image

from whyformer.errors import BadInput, UnsupportedModel
from whyformer.models.checkpoints import Checkpoint
from whyformer.storage.files import read_json

PREPROCESSOR = ("preprocessor_config.json", "processor_config.json")  # files that describe one
DEFAULTS: dict[str, Any] = {
    "do_resize": True,
    "size": {"height": 224, "width": 224},
    "resample": 2,
    "do_center_crop": False,
    "crop_size": None,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
NAMES = frozenset(
    {"image_processor_type", "feature_extractor_type", "processor_class", "do_convert_rgb", "data_format"}
)
KNOWN = DEFAULTS.keys() | NAMES
STATED = frozenset({"size", "image_mean", "image_std"})  # what processors of different classes take differently
PLAIN = frozenset(  # processors that do what their fields say, in this order: resize, crop, scale, normalise
    f"{name}ImageProcessor"
    for name in (
        *("Beit", "Bit", "Blip", "CLIP", "ChineseCLIP", "DeiT", "MobileNetV1", "MobileNetV2", "Pvt", "Segformer"),
        *("Siglip", "ViT"),
    )
)


def is_plain(kind: str) -> bool:
    """Whether processors of a class do what their fields say, and nothing else."""
    name = kind.replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast").removesuffix("Pil")
    return name in PLAIN or kind == PlainProcessor.__name__


def is_processor(reader: Any) -> bool:
    """Whether an object reads images, alone or beside texts."""
    inner = getattr(reader, "image_processor", None) or reader
    return "pixel_values" in (getattr(inner, "model_input_names", None) or ())


def processor_in(reader: Any) -> Any:
    """What reads images in an object that reads a model's inputs; None for a tokenizer.

    A plain function, as the transforms of torchvision and timm are, reads images too.
    """
    if is_processor(reader):
        return getattr(reader, "image_processor", None) or reader
    reads_texts = hasattr(reader, "convert_ids_to_tokens") or hasattr(reader, "model_input_names")
    return reader if callable(reader) and not reads_texts else None


def load_processor(checkpoint: Checkpoint, trust: dict[str, Any]) -> Any:
    """The image processor of a checkpoint; one of our own where transformers' needs packages that are not there."""
    from transformers import AutoImageProcessor

    path = next(filter(None, map(checkpoint.file, PREPROCESSOR)), None)
    if path is None:
        raise BadInput(f"there is no {PREPROCESSOR[0]}: save it there too, with image_processor.save_pretrained")
    try:
        return AutoImageProcessor.from_pretrained(checkpoint.name, **checkpoint.options, **trust)
    except ImportError:
        content = read_json(path, "image processor")
        described = content.get("image_processor", content) if isinstance(content, dict) else content
        if not isinstance(described, dict):
            raise BadInput(f"the image processor {str(path)!r} holds no fields {{…}}: save it again") from None
        return PlainProcessor(described)


class PlainProcessor:
    """What most image processors do, by the fields of their file: resize, crop, scale and normalise colours.

    It takes the place of a processor that needs packages which are not installed. Fields that it does not know are
    refused: they might change the numbers.
    """

    model_input_names = ("pixel_values",)

    def __init__(self, described: dict[str, Any]):
        kind = described.get("image_processor_type") or described.get("feature_extractor_type")
        unknown = sorted(name for name in described if name not in KNOWN and described[name])
        if unknown or not (kind is None or is_plain(str(kind))):
            what = f" ({', '.join(unknown[:3])})" if unknown else ""
            raise UnsupportedModel(
                f"the image processor {kind or ''} needs packages that are not installed (torchvision, for one), and "
                f"what it does is not known here{what}: install them, or give Explainer a function from images to "
                "tensors"
            )
        if kind is not None and (missing := sorted(STATED - described.keys())):
            raise UnsupportedModel(
                f"the image processor {kind} needs packages that are not installed (torchvision, for one), and its "
                f"file does not say its {', '.join(missing)}: install them, or save it again with all its fields"
            )
        self.described = {**DEFAULTS, **described}
        if isinstance(self.described["size"], int) and self.described["do_center_crop"]:
            self.described["size"] = {"shortest_edge": self.described["size"]}  # as CLIP and its kin mean it
        for name, value in self.described.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"PlainProcessor({self.described})"

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return dict(self.described)

    def __call__(self, images: Image.Image, **_: Any) -> dict[str, torch.Tensor]:
        """The numbers of one image, [1, channels, height, width]."""
        fields = self.described
        image = images.convert("RGB")
        if fields["do_resize"]:
            height, width = resized(image.size[::-1], fields["size"])
            image = image.resize((width, height), Image.Resampling(fields["resample"]))
        if fields["do_center_crop"]:
            height, width = edges(fields["crop_size"])
            left, top = (image.width - width) // 2, (image.height - height) // 2
            image = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1)
        if fields["do_rescale"]:
            pixels = pixels * np.float32(fields["rescale_factor"])
        if fields["do_normalize"]:
            mean, std = (
                np.array(fields[name], dtype=np.float32)[:, None, None] for name in ("image_mean", "image_std")
            )
            pixels = (pixels - mean) / std
        return {"pixel_values": torch.from_numpy(np.ascontiguousarray(pixels))[None]}


def edges(size: Any) -> tuple[int, int]:
    """Height and width, as processors write them."""
    if isinstance(size, int):
        return size, size
    if "height" in size:
        return int(size["height"]), int(size["width"])
    raise UnsupportedModel(f"an image processor's size {size} is not known: height and width are needed")


def resized(before: tuple[int, int], size: Any) -> tuple[int, int]:
    """Height and width of an image once it is resized: exactly, or to a shortest edge."""
    if not isinstance(size, int) and "shortest_edge" in size:
        shortest, longest = min(before), max(before)
        short = int(size["shortest_edge"])
        long = int(short * longest / shortest)
        return (short, long) if before[0] <= before[1] else (long, short)
    return edges(size)
