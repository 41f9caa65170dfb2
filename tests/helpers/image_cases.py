"""Small image classifiers, photographs made in place, and cases with seeded scores of their patches."""

import copy
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.rows import write_parquet
from whyformer.inputs.batch import collate
from whyformer.inputs.input_types import read
from whyformer.metrics import Annotation, Case
from whyformer.models.load import PlainProcessor, Subject, subject_of
from whyformer.perturb import Outcomes
from whyformer.prediction import Prediction

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "patch_size": 4,
}
LABELS = ("cat", "dog", "bird")
GRID = 5  # patches down and across; 20 pixels


@cache
def subject(size: int = 20, crop: bool = False) -> Subject:
    """A vision transformer of random weights, and what reads its images."""
    torch.manual_seed(0)
    config = hf.ViTConfig(**SIZES, image_size=size, id2label=dict(enumerate(LABELS)))
    model = hf.ViTForImageClassification(config).double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    edges = {"height": size, "width": size}
    fields: dict[str, Any] = {"size": {"shortest_edge": size} if crop else edges, "do_center_crop": crop}
    fields |= {"crop_size": edges, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}
    return subject_of(model, PlainProcessor(fields))


def photo(seed: int = 0, height: int = 20, width: int = 20) -> NDArray[np.uint8]:
    """Coloured noise."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def marked(seed: int = 0, height: int = 20, width: int = 20) -> NDArray[np.uint8]:
    """A mask: a box of foreground, with a frame that is not labelled."""
    rows, columns = 3 + seed % 3, 4 + seed % 2
    mask = np.zeros((height, width), dtype=np.uint8)
    mask[rows - 1 : height // 2 + 1, columns - 1 : width // 2 + 3] = 255
    mask[rows : height // 2, columns : width // 2 + 2] = 1
    return mask


def rows(count: int = 4, masks: bool = True) -> list[dict[str, Any]]:
    """Rows of a data set: images with their labels, and masks."""
    masked = [{"mask": marked(n)} if masks else {} for n in range(count)]
    return [{"image": photo(n), "label": LABELS[n % 3], **masked[n]} for n in range(count)]


def save(folder: Path) -> Path:
    """The model in a folder, in float32, with what reads its images."""
    whole = subject()
    copy.deepcopy(whole.model).float().save_pretrained(folder)
    fields = {**whole.processor.to_dict(), "image_processor_type": "ViTImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))
    return folder


def write(path: Path, count: int = 4) -> Path:
    """Images with trimaps and labels in a Parquet file."""
    stored = []
    for number, row in enumerate(rows(count)):
        trimap = np.where(row["mask"] == 255, 3, np.where(row["mask"] == 1, 1, 2)).astype(np.uint8)
        fields = {name: {"bytes": png(pixels)} for name, pixels in (("image", row["image"]), ("trimap", trimap))}
        stored.append({**fields, "label": number % 3})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(path, stored)
    return path


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An image, or a mask, as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def case(
    count: int = 4, annotations: list[Annotation] | None = None, seed: int = 0, outcomes: Outcomes | None = None
) -> Case:
    """Scores of patches that depend on the image, the class and the seed alone."""
    own = subject()
    prediction = Prediction(own.model, collate(own, [read(own, photo(n)) for n in range(count)]))

    def scores_for(classes: torch.Tensor) -> torch.Tensor:
        return torch.stack([_scores(seed + 100 * n + int(index)) for n, index in enumerate(classes)])

    engine = outcomes or Outcomes(own.model)
    return Case(prediction, scores_for(prediction.target), engine, annotations or (), scores_for)


def _scores(seed: int) -> torch.Tensor:
    return torch.randn(GRID * GRID + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
