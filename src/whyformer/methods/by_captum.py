"""How captum is called: lazily, for one example at a time, with a random stream of the example's own."""

import importlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.errors import MissingExtra
from whyformer.perturb.explained import Baseline, Explained, examples_of
from whyformer.prediction import Prediction
from whyformer.recorder.trace import RECORDING
from whyformer.registry import Scores

Report = dict[str, Tensor]  # numbers about one example
Explain = Callable[[Explained], tuple[Tensor, Report]]  # scores [units], or vectors [units, width]


def captum_attr(method: str, *, surrogate: bool = False) -> Any:
    """The module `captum.attr`; a `surrogate` model is fitted by scikit-learn."""
    for package, module in (("captum", "captum.attr"), ("scikit-learn", "sklearn.linear_model")):
        if package != "captum" and not surrogate:
            continue
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise MissingExtra(f"{method} needs {package}: pip install {package}") from error
    return importlib.import_module("captum.attr")


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """The random states of torch, numpy and Python start from a seed here, and are then what they were."""
    numbers, own = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
    finally:
        np.random.set_state(numbers)
        random.setstate(own)


def one_by_one(
    prediction: Prediction, explain: Explain, baseline: Baseline, *, runs: Callable[[Explained], int], seed: int = 0
) -> Scores:
    """The scores of all examples, each explained alone, and what is reported of each: [batch] for every name.

    An example is about as many `runs` of the model; what has no unit that may give way scores 0.
    """
    values: list[Tensor] = []
    reports: list[Report] = []
    total = len(prediction.padding)
    for row, example in enumerate(examples_of(prediction, baseline)):
        example.told = partial(_tell, prediction, row, total, example, max(1, runs(example)))
        try:
            with RECORDING, drawing(example.seed(seed), example.device):
                found, report = explain(example)
        finally:
            example.told = None  # captum keeps what it was given until the next garbage collection
        spread = found.new_zeros(prediction.padding.shape[1], *found.shape[1:], device=prediction.real.device)
        spread[example.positions.to(spread.device)] = found.to(spread)
        values.append(spread.to(prediction.real.dtype))
        reports.append({**report, "evaluations": torch.tensor(example.evaluations)})
        prediction.report(row + 1, total)
    names = sorted({name for report in reports for name in report})
    nothing = torch.zeros((), dtype=torch.float64)
    return Scores(torch.stack(values), {name: torch.stack([r.get(name, nothing) for r in reports]) for name in names})


def _tell(prediction: Prediction, row: int, total: int, example: Explained, runs: int) -> None:
    prediction.report(1000 * row + 1000 * min(example.evaluations, runs) // runs, 1000 * total)
