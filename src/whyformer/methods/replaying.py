"""Replaying: what a method makes of a captured run, captured too, so that a GPU does both again without Python."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from whyformer.errors import WhyformerError
from whyformer.inputs.images import Patches
from whyformer.models.load import unwrapped
from whyformer.number_checks import Checks, gathering
from whyformer.prediction import Prediction
from whyformer.recorder.capture.captures import (
    REMEMBERED,
    CapturedRun,
    Captures,
    LaidOut,
    NotCaptured,
    Replay,
    captures_of,
    is_possible,
    is_seen_often,
    key_of,
    lay_out,
    make_room,
    misfit,
    needs_of_capture,
)
from whyformer.recorder.recording import RecordedRuns

if TYPE_CHECKING:
    from whyformer.methods.method import Method, Scores

APART = 1e-3  # what captured scores may differ by from those they are compared with once, beside the largest
ALONG = 0.98  # the cosine that they have at least in half precision, where numbers are noisy


@dataclass
class Pass:
    """What a method makes of a captured run, in tensors that have always the same places."""

    graph: Any
    target: Tensor
    versus: Tensor | None
    scores: "Scores"
    padding: Tensor
    flags: Tensor | None
    errors: list[WhyformerError]
    padding_is_known: bool = False  # whether it was seen that padding changes nothing


def replayed(method: "Method", arguments: Mapping[str, Any], prediction: Prediction) -> "Scores | None":
    """The scores of a prediction by what was captured for such ones, if anything was."""
    replay = prediction.replay
    key = None if replay is None else _key(method, arguments, prediction)
    if replay is None or key is None:
        return None
    known = replay.run.passes.get(key)
    if known is None or not (known.padding_is_known or _is_full(replay)):
        return None
    return _replayed(known, replay, prediction)


def captured(method: "Method", arguments: Mapping[str, Any], prediction: Prediction, scores: "Scores") -> str | None:
    """Capture what gave these scores, if such batches come again; why that is not possible, if it is not."""
    model = unwrapped(prediction.model)
    if method.passes != "one" or not prediction.is_plain or not is_possible(model):
        return None
    of_method = _key(method, arguments, prediction)
    if of_method is None:
        return None
    refused = misfit(model, prediction.batch, prediction.needs)
    if refused is not None:
        return refused
    captures = captures_of(model)
    with captures.lock:
        of_run = key_of(model, prediction.batch, prediction.needs)
        return _tried(captures, of_run, of_method, (method, arguments, prediction, scores))


Done = tuple["Method", Mapping[str, Any], Prediction, "Scores"]


def _tried(captures: Captures, of_run: Any, of_method: Any, done: "Done") -> str | None:
    """Capture what was seen often enough, unless that failed before; why it is refused, if it is."""
    key = of_run, of_method
    for known in (key, of_method):
        if known in captures.refused:
            return captures.refused[known]
    if len(captures.seen) > REMEMBERED:
        captures.seen.clear()
    captures.seen[key] += 1
    if not is_seen_often(done[2].batch, captures.seen[key]):
        return None
    try:
        _capture(captures, of_run, of_method, done)
    except _NoSuchPass as error:
        captures.refused[of_method] = str(error)
        return str(error)
    except (RuntimeError, WhyformerError) as error:
        captures.refused[key] = _reason(error)
        return captures.refused[key]
    make_room(done[2].outputs.logits.device)
    if of_run not in captures.runs:
        captures.refused[key] = "its graphs alone would hold more memory than all captures may"
    return captures.refused.get(key)


def _capture(captures: Captures, of_run: Any, of_method: Any, done: Done) -> None:
    method, arguments, prediction, scores = done
    model, layout, needs = unwrapped(prediction.model), of_run[0], needs_of_capture(prediction.needs)
    numbers = lay_out(model, prediction.batch, layout, needs)
    run = captures.runs.get(of_run) or CapturedRun(model, layout, needs, numbers)
    replay = Replay(run, numbers)
    known = run.passes.get(of_method)
    captured_full = known is not None  # it is there to be compared with a text that is padded
    if known is None:
        with replay.turn():
            target, versus = prediction.rows
            try:
                with run.graphs.aside(), gathering():
                    aside = _inner(model, run, (target, versus), RecordedRuns(model, run.inputs, needs))
                    tried = _cut(method.scored(aside, arguments).values, numbers)
                del aside
            except NotCaptured as error:
                raise _NoSuchPass(str(error)) from error
            _compare(captures, tried, scores.values, padded=layout.padded)
            try:
                known = _passed(method, arguments, (model, run, prediction.known_patches), (target, versus))
            except (RuntimeError, NotCaptured) as error:  # it waits for the device, or does what no graph can
                raise _NoSuchPass(f"{method.name} does what cannot be captured: {_reason(error)}") from error
    values = _replayed(known, replay, prediction).values
    _compare(captures, values, scores.values, padded=captured_full and layout.padded)
    known.padding_is_known |= layout.padded and not _is_full(replay)
    run.passes[of_method] = known
    captures.runs[of_run] = run


class _NoSuchPass(NotCaptured):
    """Why a method is never captured, whatever the shape."""


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _passed(
    method: "Method",
    arguments: Mapping[str, Any],
    where: tuple[torch.nn.Module, CapturedRun, Patches | None],
    asked: tuple[Tensor, Tensor | None],
) -> Pass:
    """Capture what a method makes of a run."""
    (model, run, patches), trace = where, replace(where[1].trace)
    target, versus = asked[0].clone(), None if asked[1] is None else asked[1].clone()
    if patches is not None:
        trace.patches = patches
    with gathering() as checks, run.graphs.captured() as graph:
        inner = _inner(model, run, (target, versus), RecordedRuns(model, run.inputs, run.needs, trace))
        scores = method.scored(inner, arguments)
        padding, flags = inner.padding, checks.joined()
    return Pass(graph, target, versus, scores, padding, flags, checks.errors)


def _inner(
    model: torch.nn.Module, run: CapturedRun, asked: tuple[Tensor, Tensor | None], runs: RecordedRuns
) -> Prediction:
    """A prediction of what a captured run reads."""
    return Prediction(model, run.batch, chosen=asked, run=runs)


def _replayed(known: Pass, replay: Replay, prediction: Prediction) -> "Scores":
    with replay.turn():
        target, versus = prediction.rows
        known.target.copy_(target)
        if known.versus is not None and versus is not None:
            known.versus.copy_(versus)
        known.graph.replay()
        scores, numbers = known.scores, replay.laid_out
        values, signs = _cut(scores.values, numbers), None if scores.signs is None else _cut(scores.signs, numbers)
        padding, flags = _cut(known.padding, numbers), None if known.flags is None else known.flags.clone()
        diagnostics = _cloned(scores.diagnostics)
    checks = Checks()
    checks.add(() if flags is None else flags.unbind(), known.errors)
    checks.make()
    prediction.know_padding(padding)
    return replace(scores, values=values, signs=signs, diagnostics={**diagnostics, "capture": "replayed"})


def _is_full(replay: Replay) -> bool:
    """Whether nothing was padded."""
    numbers = replay.laid_out
    return numbers.units is None or numbers.units == numbers.tensors["input_ids"].shape[1]


def _compare(captures: Captures, values: Tensor, due: Tensor, *, padded: bool) -> None:
    """Raise unless scores are those that they have to be, but for rounding."""
    if due.dtype in (torch.float32, torch.float64) and not captures.in_half_precision:
        same = (values - due).abs().max() <= APART * due.abs().max()
    else:
        same = _cosine(values, due) >= ALONG
    if bool(same):
        return
    if padded:
        captures.capture_exact_shapes()
        raise NotCaptured("padding changes what the model says: runs of exactly equal shape are captured instead")
    raise NotCaptured("what was captured gave other scores than the model's own run")


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    """Of all numbers."""
    return torch.nn.functional.cosine_similarity(one.flatten().double(), other.flatten().double(), dim=0)


def _cut(values: Tensor, numbers: LaidOut) -> Tensor:
    """Without what texts were padded with."""
    return values[..., : numbers.units].clone()


def _cloned(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report whose tensors nobody writes to any more."""
    return {
        name: value.detach().clone()
        if isinstance(value, Tensor)
        else _cloned(value)
        if isinstance(value, dict)
        else value
        for name, value in report.items()
    }


def _key(method: "Method", arguments: Mapping[str, Any], prediction: Prediction) -> Any:
    """What a pass is known by; None if an option cannot be told from others."""
    versus = None if prediction.versus is None else tuple(prediction.versus.shape[1:])
    key = method.function, tuple(sorted(arguments.items())), tuple(prediction.target.shape[1:]), versus
    try:
        hash(key)
    except TypeError:
        return None
    return key
