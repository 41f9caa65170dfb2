"""The centre prior: what an explanation of an image is worth that looks at nothing."""

import torch
from torch import Tensor

from whyformer.errors import BadOption
from whyformer.methods.method import method
from whyformer.prediction import Prediction
from whyformer.recorder import GRADIENT


@method(family="perturbation", signed=False, class_specific=False, paper="-", images_only=True, needs=GRADIENT)
def centre(prediction: Prediction, *, width: float = 0.25) -> Tensor:
    """A bump at the centre of an image, the same for all images and classes: photographers aim at what they show.

    `exp(-(x² + y²) / 2)` at the middle of each patch, with x and y counted from the centre of the image in standard
    deviations, which are `width` of its sides. Special units have 0.
    """
    if width <= 0:
        raise BadOption(f"width must be above 0, a share of the sides of an image; found {width}")
    patches = prediction.patches
    assert patches is not None
    height, across = patches.owner.shape
    row = torch.zeros(patches.units, dtype=torch.float64)
    for place, (left, top, right, bottom) in patches.boxes.items():
        x, y = (left + right) / 2 / across - 0.5, (top + bottom) / 2 / height - 0.5
        row[place] = -(x**2 + y**2) / (2 * width**2)
    bump = row.exp().masked_fill(~torch.from_numpy(patches.free), 0.0)
    return bump.to(prediction.real).expand_as(prediction.real).clone()
