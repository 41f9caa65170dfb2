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


_IMAGE, _MASK = np.zeros((4, 6, 3), np.uint8), np.eye(4, 6, dtype=np.uint8)


def matlab_file(
    images: Sequence[np.ndarray] = (_IMAGE, _IMAGE), masks: Sequence[np.ndarray] = (_MASK, _MASK), row: bool = False
) -> bytes:
    """As MATLAB writes cells of arrays: columns first, and references in a column; each mask has a cell of its own."""
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        cells = {"img": [file.create_dataset(f"#refs#/i{n}", data=image.T).ref for n, image in enumerate(images)]}
        inner = [file.create_dataset(f"#refs#/m{n}", data=mask.T).ref for n, mask in enumerate(masks)]
        cells["gt"] = [_cell(file, f"#refs#/c{n}", [ref], row).ref for n, ref in enumerate(inner)]
        for name, refs in cells.items():
            _cell(file, f"value/{name}", refs, row)
    return buffer.getvalue()


def _cell(file: Any, name: str, refs: Sequence[Any], row: bool) -> Any:
    import h5py

    cell = file.create_dataset(name, (1, len(refs)) if row else (len(refs), 1), dtype=h5py.ref_dtype)
    for place, ref in enumerate(refs):
        cell[(0, place) if row else (place, 0)] = ref
    return cell
