"""Methods that do not look inside the model: they ask what it says when units are hidden.

Captum runs lazily, for one example at a time, with a random stream for each example.
"""

import importlib
import random as python_random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from whyformer import progress
from whyformer.async_copy import sent
from whyformer.errors import BadOption, CompletenessWarning
from whyformer.inputs.hiding import Baseline
from whyformer.methods.method import Scores, method
from whyformer.perturb.engine import Copies, copies_of
from whyformer.prediction import Prediction
from whyformer.recorder import GRADIENT
from whyformer.registry.options import Count
from whyformer.tolerance import ROUNDING

CaptumDiagnostics = dict[str, Tensor]  # numbers about one example, by the names that users read, and `MISSES`
ExplainExample = Callable[[Copies], tuple[Tensor, CaptumDiagnostics]]  # scores [units], or vectors [units, width]

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


def adding_up(example: Copies, scores: Tensor, whole: Tensor, nothing: Tensor) -> CaptumDiagnostics:
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
    explain: ExplainExample,
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
    reports: list[CaptumDiagnostics] = []
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


def _warn(reports: Sequence[CaptumDiagnostics], name: str, advice: str) -> None:
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


HOURS = "each is a run of the model, and more would take hours for one text"
Samples = Annotated[int | Literal["auto"], Count(1, 10_000, HOURS)]
TwoSamples = Annotated[int | Literal["auto"], Count(2, 10_000, HOURS)]  # the whole text and nothing are two
PER_UNIT, AT_LEAST = 10, 200  # samples="auto"
Orders = Annotated[int, Count(1, 10_000, "each is a run of the model for every unit")]
WindowSize = Annotated[int, Count(1, 10_000, "no text has more units")]
GROUP = 2**24  # numbers in one group of orders
PRECISION = "load the model in float32 (--dtype float32)"  # these add up by construction
TINY = 1e-9  # the weight of a sample of which nothing is left


@method(family="perturbation", signed=False, class_specific=False, paper="-", needs=GRADIENT)
def random(prediction: Prediction, *, seed: int = 0) -> Tensor:
    """Random scores between 0 and 1, the same for the same text and seed."""
    real = ~prediction.padding.cpu()  # a GPU is not waited for by each example
    scores = torch.zeros(real.shape, dtype=prediction.real.dtype)
    for row, is_real, stream in zip(scores, real, prediction.generators(seed), strict=True):
        row[is_real] = torch.rand(int(is_real.sum()), generator=stream, dtype=torch.float32).to(row)
    return sent(scores, prediction.real.device)


@method(
    family="perturbation", signed=True, class_specific=True, paper="Zeiler & Fergus 2014", passes="many", needs=GRADIENT
)
def occlusion(prediction: Prediction, *, window: WindowSize = 3, baseline: Baseline = "pad_attended") -> Scores:
    """What the output loses when a window of neighbouring units is hidden, averaged over the windows around a unit.

    The window moves by one unit; special tokens inside it stay. Of a text shorter than the window all units are
    hidden at once. `baseline` says what takes the place of a unit: the padding, mask or unknown token, or a zero
    embedding.
    """
    attr = captum_attr()

    def explain(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        there, size = torch.ones(1, example.units), min(window, example.units)
        scores = attr.Occlusion(example.outputs).attribute(
            there, sliding_window_shapes=(size,), baselines=0, perturbations_per_eval=example.units
        )
        return scores[0] * example.free, {}

    return one_by_one(prediction, explain, baseline, runs=lambda example: example.units)


@method(
    family="perturbation", signed=True, class_specific=True, paper="Ribeiro et al. 2016", passes="many", needs=GRADIENT
)
def lime(
    prediction: Prediction,
    *,
    samples: Samples = "auto",
    hidden: float = 0.3,
    penalty: float = 1.0,
    baseline: Baseline = "pad_attended",
    seed: int = 0,
) -> Scores:
    """The weights of a linear model that is fitted to what the model says of random parts of the text.

    In each of the `samples`, a unit is hidden with probability `hidden`. A sample weighs as much as the share of the
    text's tokens that stay. The linear model (ridge regression with `penalty`) is given which units are there.
    `samples="auto"` draws ten per unit and at least 200. With `samples=25`, these are Thermostat's settings but for
    one: its code gives the linear model the token ids, so that weights depend on how tokens are numbered.
    """
    if not 0 < hidden < 1 or penalty < 0:
        raise BadOption(f"lime hides a share between 0 and 1, with a penalty from 0; found {hidden} and {penalty}")
    attr = captum_attr()

    @_of_free
    def explain(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        from captum._utils.models.linear_model import SkLearnRidge

        free, units, drawn = int(example.free.sum()), example.units, _drawn(samples, example)
        stays = torch.full((1, free), 1 - hidden, dtype=torch.float32)
        surrogate = attr.LimeBase(
            example.of_free,
            interpretable_model=SkLearnRidge(alpha=penalty),
            similarity_func=lambda _, perturbed, *__, **___: (units - free + float(perturbed.sum())) / units or TINY,
            perturb_func=lambda _, **__: torch.bernoulli(stays),
            perturb_interpretable_space=True,
            from_interp_rep_transform=lambda sample, *_, **__: sample,
            to_interp_rep_transform=None,
        )
        return surrogate.attribute(torch.ones(1, free), n_samples=drawn, perturbations_per_eval=drawn)[0], {}

    return one_by_one(prediction, explain, baseline, runs=lambda example: _drawn(samples, example), seed=seed)


@method(
    family="perturbation",
    signed=True,
    class_specific=True,
    paper="Castro et al. 2009; Strumbelj & Kononenko 2010",
    passes="many",
    needs=GRADIENT,
)
def shapley_value_sampling(
    prediction: Prediction, *, samples: Orders = 25, baseline: Baseline = "pad_attended", seed: int = 0
) -> Scores:
    """What a unit adds to the units before it, averaged over random orders of the units.

    `samples` orders. The scores of a text add up to what the output loses when all units are hidden; `delta` reports by
    how much they do not.
    """
    attr = captum_attr()

    @_of_free
    def explain(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        free = int(example.free.sum())
        _ask_ahead(example, free, samples)
        options = {"baselines": 0, "n_samples": samples, "perturbations_per_eval": free}
        scores = attr.ShapleyValueSampling(example.of_free).attribute(torch.ones(1, free), **options)[0]
        return scores, _additive(example, scores)

    return one_by_one(
        prediction,
        explain,
        baseline,
        runs=lambda example: samples * int(example.free.sum()),
        seed=seed,
        name="shapley_value_sampling",
        advice=PRECISION,
    )


@method(
    family="perturbation", signed=True, class_specific=True, paper="Lundberg & Lee 2017", passes="many", needs=GRADIENT
)
def kernel_shap(
    prediction: Prediction, *, samples: TwoSamples = "auto", baseline: Baseline = "pad_attended", seed: int = 0
) -> Scores:
    """Shapley values estimated by a linear model that is fitted to random parts of the text.

    Two of the `samples` are the whole text and the text without its units, which weigh so much that the scores add up
    to the difference; `delta` reports by how much they do not. `samples="auto"` draws ten per unit and at least 200.
    """
    attr = captum_attr()

    @_of_free
    def explain(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        free = int(example.free.sum())
        if free == 1:  # captum draws how many of several units are there
            scores = (example.of_free(torch.ones(1, 1)) - example.of_free(torch.zeros(1, 1))).float()
        else:
            drawn = _drawn(samples, example)
            options = {"baselines": 0, "n_samples": drawn, "perturbations_per_eval": drawn}
            scores = attr.KernelShap(example.of_free).attribute(torch.ones(1, free), **options)[0]
        return scores, _additive(example, scores)

    return one_by_one(
        prediction,
        explain,
        baseline,
        runs=lambda example: _drawn(samples, example),
        seed=seed,
        name="kernel_shap",
        advice=PRECISION,
    )


def _drawn(samples: int | Literal["auto"], example: Copies) -> int:
    """How many samples are drawn for an example."""
    return max(AT_LEAST, PER_UNIT * int(example.free.sum())) if samples == "auto" else samples


def _of_free(explain: ExplainExample) -> ExplainExample:
    """Explain the units that may be hidden, if there are any; the others score 0."""

    def of_all(example: Copies) -> tuple[Tensor, CaptumDiagnostics]:
        scores = torch.zeros(example.units, dtype=torch.float32)
        report: CaptumDiagnostics = {}
        if bool(example.free.any()):
            scores[example.free], report = explain(example)
        return scores, report

    return of_all


def _ask_ahead(example: Copies, free: int, samples: int) -> None:
    """Run what captum is going to ask for, in full batches: it asks for the orders one by one, and draws them so."""
    state = torch.get_rng_state()
    orders = torch.stack([torch.randperm(free) for _ in range(samples)])
    torch.set_rng_state(state)
    for group in orders.split(max(1, GROUP // free**2)):
        place = group.argsort(1)  # of each unit in the order, [orders, units]
        counts = torch.arange(free + 1)  # from no unit to all
        example.of_free((place[:, None, :] < counts[None, :, None]).flatten(0, 1))


def _additive(example: Copies, scores: Tensor) -> CaptumDiagnostics:
    """How far the scores are from adding up to what the output loses without all units."""
    whole, nothing = example.of_free(torch.tensor([[1.0], [0.0]]).expand(2, len(scores)))
    return adding_up(example, scores, whole, nothing)
