"""Baselines that do not look inside the model."""

import torch
from torch import Tensor

from whyformer.prediction import Prediction
from whyformer.registry import method


@method(family="perturbation", signed=False, class_specific=False, paper="-")
def random(prediction: Prediction, *, seed: int = 0) -> Tensor:
    """Random scores between 0 and 1, the same for the same text and seed."""
    scores = torch.zeros_like(prediction.real)
    for example, stream in enumerate(prediction.generators(seed)):
        real = prediction.real[example].bool()
        scores[example, real] = torch.rand(int(real.sum()), generator=stream, dtype=torch.float32).to(scores)
    return scores
