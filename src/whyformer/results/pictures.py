"""How the picture of an explanation, and scores of its pixels, are saved as text."""

import base64
import binascii
import io
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whyformer.inputs.images import Picture, Pixels
from whyformer.storage.schema import Form, both, every, fields, must, number, optional, text, whole

LARGEST_SIDE = 2**15  # pixels


def _exactly(length: int, form: Form) -> Form:
    """A list of so many such things."""

    def check(value: Any) -> None:
        every(form)(value)
        must(len(value) == length, f"has {len(value)} entries, not {length}")

    return check


def plain_picture(picture: Picture) -> dict[str, Any]:
    """A picture as plain data, its pixels as PNG in base64."""
    return {
        "png": _encoded(picture.pixels),
        "size": list(picture.size),
        "region": list(picture.region),
        "seen": None if picture.seen is None else _encoded(picture.seen),
        **({} if picture.name is None else {"name": picture.name}),
    }


def picture_of(data: Mapping[str, Any]) -> Picture:
    """What `plain_picture` gave, without the model's own numbers."""
    seen = None if data["seen"] is None else _decoded(data["seen"])
    left, top, right, bottom = data["region"]
    height, width = data["size"]
    return Picture(_decoded(data["png"]), (height, width), (left, top, right, bottom), seen, name=data.get("name"))


def plain_pixels(scores: NDArray[np.float64]) -> dict[str, Any]:
    """Scores of pixels [height, width] as plain data: compressed float32 in base64."""
    packed = zlib.compress(scores.astype("<f4").tobytes())
    return {"size": list(scores.shape), "float32": base64.b64encode(packed).decode()}


def pixels_of(data: Mapping[str, Any]) -> NDArray[np.float64]:
    """What `plain_pixels` gave."""
    return np.frombuffer(_unpacked(data), dtype="<f4").astype(np.float64).reshape(data["size"])


def _unpacked(data: Mapping[str, Any]) -> bytes:
    size = 4 * data["size"][0] * data["size"][1]
    engine = zlib.decompressobj()
    return engine.decompress(base64.b64decode(data["float32"], validate=True), size + 1)


def _encoded(pixels: Pixels) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _decoded(png: str) -> Pixels:
    with Image.open(io.BytesIO(base64.b64decode(png, validate=True)), formats=["PNG"]) as image:
        return np.array(image.convert("RGB"))


def _check_picture(data: Mapping[str, Any]) -> None:
    for name in ("png", "seen"):
        try:
            pixels = None if data[name] is None else _decoded(data[name])
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            must(False, f"is no PNG in base64 ({error})", name)
        if name == "seen" and pixels is not None:
            must(pixels.shape[:2] == tuple(data["size"]), f"is of another size than {data['size']}", name)
    left, top, right, bottom = data["region"]
    must(left < right and top < bottom, "is no region: left, top, right, bottom", "region")


def _check_pixels(data: Mapping[str, Any]) -> None:
    due = 4 * data["size"][0] * data["size"][1]
    try:
        there = len(_unpacked(data))
    except (binascii.Error, zlib.error, ValueError) as error:
        must(False, f"is no compressed list of numbers ({error})", "float32")
    must(there == due, f"is {there} bytes long for {due} bytes of numbers", "float32")


_SIZE = _exactly(2, whole(1, LARGEST_SIDE))
_REGION = _exactly(4, number(0, 1))
PICTURE = both(
    fields({"png": text, "size": _SIZE, "region": _REGION, "seen": optional(text)}, {"name": text}), _check_picture
)
PIXELS = both(fields({"size": _SIZE, "float32": text}), _check_pixels)
