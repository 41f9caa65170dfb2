"""How captum is called: lazily, for one example at a time, with a random stream of the example's own."""

import importlib
import random as python_random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer import progress
from whyformer.errors import CompletenessWarning
from whyformer.methods.registry import Scores
from whyformer.perturb.copies import Copies, copies_of
from whyformer.prediction import Prediction
from whyformer.rounding import ROUNDING

Report = dict[str, Tensor]  # numbers about one example, by the names that users read, and `MISSES`
Explain = Callable[[Copies], tuple[Tensor, Report]]  # scores [units], or vectors [units, width]

MISSING = 0.05  # of what scores should add up to: if they are further off, that is said
MISSES = "misses"  # in a report: whether they are further off

_DRAWING = threading.RLock()  # the random states are those of all threads, so those who set them wait for each other


def captum_attr() -> Any:
    """The module `captum.attr`; what importing it draws leaves the random states as they were."""
    with nullcontext() if "captum.attr" in sys.modules else drawing(0, torch.device("cpu")):
        return importlib.import_module("captum.attr")


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """The random states of torch, numpy and Python start from a seed here, and are then what they were."""
    with _DRAWING:
        of_numpy, of_python = np.random.get_state(), python_random.getstate()
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                torch.default_generator.manual_seed(seed)
                np.random.seed(seed % 2**32)
                python_random.seed(seed)
                yield
        finally:
            np.random.set_state(of_numpy)
            python_random.setstate(of_python)


def adding_up(example: Copies, scores: Tensor, whole: Tensor, nothing: Tensor) -> Report:
    """How far scores are from adding up to what the output loses, and whether that is too far.

    `whole` is the output of the text and `nothing` that of its baseline; a gap within their rounding is not too far.
    """
    whole, nothing = (output.detach().double().cpu() for output in (whole, nothing))
    expected = whole - nothing
    delta = scores.detach().double().sum().cpu() - expected
    rounding = ROUNDING.get(next(example.model.parameters()).dtype, ROUNDING[torch.float32])
    leeway = torch.maximum(MISSING * expected.abs(), rounding * torch.maximum(whole.abs(), nothing.abs()))
    return {"delta": delta, "expected": expected, MISSES: delta.abs() > leeway}


def one_by_one(
    prediction: Prediction,
    explain: Explain,
    baseline: str,
    *,
    runs: Callable[[Copies], int],
    seed: int | None = None,
    name: str = "",
    advice: str = "",
    on_path: bool = False,
) -> Scores:
    """The scores of all examples, each explained alone, and what is reported of each: [batch] for every name.

    An example is about as many `runs` of the model; where no unit may be replaced, all score 0. A warning with `advice`
    tells of scores of the method `name` that do not add up to what they should. Methods with a `seed` wait for each
    other: they draw from the random states of all threads, or leave something at modules for a while.
    """
    values: list[Tensor] = []
    reports: list[Report] = []
    total = len(prediction.padding)
    for row, example in enumerate(copies_of(prediction, baseline, on_path=on_path)):
        example.runner.expected = max(1, runs(example))
        drawn = nullcontext() if seed is None else drawing(example.seed(seed), example.device)
        with progress.part(row, total), drawn:
            scores, report = explain(example)
            progress.report(1, 1)
        spread = scores.new_zeros(prediction.padding.shape[1], *scores.shape[1:], device=prediction.real.device)
        spread[example.positions.to(spread.device)] = scores.to(spread)
        values.append(spread.to(prediction.real.dtype))
        reports.append({**report, "evaluations": torch.tensor(example.evaluations)})
    _warn(reports, name, advice)
    keys = sorted({key for report in reports for key in report} - {MISSES})
    nothing = torch.zeros((), dtype=torch.float64)
    return Scores(torch.stack(values), {key: torch.stack([r.get(key, nothing) for r in reports]) for key in keys})


def _warn(reports: Sequence[Report], name: str, advice: str) -> None:
    """Tell of examples whose scores do not add up."""
    missing = [report for report in reports if MISSES in report and bool(report[MISSES])]
    if not missing:
        return
    worst = max(missing, key=lambda report: float((report["delta"] / report["expected"]).abs().nan_to_num(torch.inf)))
    expected, total = float(worst["expected"]), float(worst["delta"] + worst["expected"])
    share = "" if len(reports) == 1 else f" of {len(missing)} of {len(reports)} inputs, at worst,"
    warnings.warn(
        f"{name}: the scores{share} add up to {total:.4g} instead of {expected:.4g}, the difference that they "
        f"should share out: more than {MISSING:.0%} off; {advice}",
        CompletenessWarning,
        stacklevel=2,
    )
