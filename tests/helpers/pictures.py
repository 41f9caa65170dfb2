"""Small images as data sets hold them."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def plain(colour: Any = RED, size: tuple[int, int] = (6, 4)) -> bytes:
    """A file of one colour."""
    return encoded(Image.new("RGB", size, colour))


def mask_file(labels: Sequence[Sequence[int]] | np.ndarray) -> bytes:
    """A PNG file of label numbers."""
    return encoded(Image.fromarray(np.array(labels, np.uint8)))


def write_images(folder: Path, names: Sequence[str]) -> Path:
    """Images of different colours under these names; those that end in no image hold text."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(plain((number, 0, 0)) if "." in name else b"text")
    return folder
