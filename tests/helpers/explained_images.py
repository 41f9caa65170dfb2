"""Explained images: made by hand, and by a tiny model in a folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from PIL import Image

from whyformer import Explanation
from whyformer.inputs.images import Picture
from whyformer.inputs.units import Unit
from whyformer.tasks.targets import Label, Predicted

PATCH = 8  # pixels


def explained(
    scores: Any, *, size: tuple[int, int] | None = None, labels: tuple[str, ...] = ("cat", "dog"), **more: Any
) -> Explanation:
    """Scores on a grid [rows, columns] behind a special unit whose score is huge; `size` is that of the picture."""
    grid = np.asarray(scores, dtype=float)
    rows, columns = grid.shape
    units = [Unit("[unit 0]", "patch", special=True)]
    for row, column in np.ndindex(rows, columns):
        left, top = PATCH * column, PATCH * row
        units.append(Unit(f"row {row + 1}, column {column + 1}", "patch", box=(left, top, left + PATCH, top + PATCH)))
    height, width = size or (PATCH * rows, PATCH * columns)
    pixels = np.random.default_rng(0).integers(60, 200, (height, width, 3), dtype=np.uint8)
    image = more.pop("image", None) or Picture(
        more.pop("shown", pixels), (PATCH * rows, PATCH * columns), more.pop("region", (0.0, 0.0, 1.0, 1.0))
    )
    settings = {"method": "made", "signed": True, "target": Label(0, labels[0])} | more
    said = Predicted(labels[0], 0, 0.75, (1.0986, 0.0), (0.75, 0.25), labels)
    return Explanation(tuple(units), np.array([99.0, *grid.ravel()]), said, image=image, **settings)


def vit_folder(folder: Path) -> Path:
    """A tiny classifier of images with random weights, and its processor."""
    torch.manual_seed(4)
    config = hf.ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        id2label={0: "cat", 1: "dog", 2: "owl"},
    )
    hf.ViTForImageClassification(config).save_pretrained(folder)
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": 32, "width": 32},
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def photo(path: Path, size: tuple[int, int] = (60, 40), seed: int = 0) -> Path:
    """A picture of random blocks, as a file."""
    blocks = np.random.default_rng(seed).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    Image.fromarray(blocks).resize(size, Image.Resampling.BILINEAR).save(path)
    return path
