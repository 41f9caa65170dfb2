"""What is made on one stream of a GPU and read on another is there by then, and its memory is not given away early."""

import weakref
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from tests.helpers import cases, evaluated, image_cases
from tests.helpers.streams import Moment, Stream, Streams
from whyformer.evaluation.chunk import measured_chunks
from whyformer.evaluation.evaluate import evaluate
from whyformer.inputs.images import ImageInput
from whyformer.models.memory import CPU, LIMITS
from whyformer.perturb import engine
from whyformer.perturb.prefixes import Prefix, Prefixes
from whyformer.prediction import Prediction

PATIENCE = pytest.mark.parametrize("patience", [2, 6, 12])


class Uses:
    """How often something was read, and the streams of those who read it, or gave its memory away, too early."""

    def __init__(self, streams: Streams):
        self.streams, self.read = streams, 0
        self.early = list[tuple[str, str]]()

    def check(self, moment: Moment, later: Stream) -> None:
        """What is done on a stream from now on has to be behind a moment."""
        if not later.is_behind(moment):
            self.early.append((moment[0].name, later.name))


def nearly_last_first(prediction: Prediction, *, seed: int = 0) -> Tensor:
    """Orders of which many hide the same units at the end, so that inputs begin alike."""
    units = torch.arange(prediction.padding.shape[1], dtype=torch.float64)
    noise = torch.rand(len(units), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (units + 8 * noise).expand(prediction.padding.shape)


@PATIENCE
@pytest.mark.parametrize("ceiling", [0, 16])
def test_what_causal_inputs_begin_with_is_there_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch, patience: int, ceiling: int
) -> None:
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, texts=2))
    uses = Uses(Streams(monkeypatch, patience=patience))
    moments, run, cache = dict[int, list[Moment]](), Prefixes._run, Prefix.cache

    def given_back(key: int) -> None:
        (maker, _), *readers = moments.pop(key)
        for reader in readers:  # memory may be given to whoever asks on the stream that made it
            uses.check(reader, maker)

    def noted_run(self: Prefixes, *given: Any) -> Prefix | None:
        prefix = run(self, *given)
        if prefix is not None:
            moments[id(prefix)] = [uses.streams.current.moment()]
            weakref.finalize(prefix, given_back, id(prefix))
        return prefix

    def noted_cache(self: Prefix, start: int) -> Any:
        uses.read += 1
        uses.check(moments[id(self)][0], uses.streams.current)
        moments[id(self)].append(uses.streams.current.moment())
        return cache(self, start)

    monkeypatch.setattr(Prefixes, "_run", noted_run)
    monkeypatch.setattr(Prefix, "cache", noted_cache)
    methods = ",".join(f"nearly_last_first(seed={seed})" for seed in range(3))
    rows = evaluated.examples(evaluated.texts(16, longest=30))
    with evaluated.own_registry():
        evaluated.registered(nearly_last_first)
        options = {"tokens_per_batch": 600, "ceiling": ceiling}
        plan = evaluated.measuring(f"{methods},attcat", "aopc,sufficiency", cases.subject("gpt2"), **options)
        list(measured_chunks(plan, [plan.pending(n, n + 8, rows[n : n + 8], {}, frozenset()) for n in (0, 8)]))
    assert uses.read
    assert not uses.early


@PATIENCE
def test_what_hides_pixels_is_there_when_it_is_read(monkeypatch: pytest.MonkeyPatch, patience: int) -> None:
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, texts=2))
    uses = Uses(Streams(monkeypatch, patience=patience))
    made, filling = dict[tuple[int, str], tuple[ImageInput, Moment]](), vars(ImageInput)["_filling"].fget

    def noted(self: ImageInput) -> Tensor:
        whole, moment = self.uncovered or self, uses.streams.current.moment()
        uses.read += 1
        uses.check(made.setdefault((id(whole), self.fill), (whole, moment))[1], uses.streams.current)
        return cast(Tensor, filling(self))

    monkeypatch.setattr(ImageInput, "_filling", property(noted))
    rows, options = image_cases.rows(16, masks=False), {"rows_per_chunk": 8, "tokens_per_batch": 200}
    evaluate(image_cases.subject(), rows, "rollout,attcat", "aopc,deletion", progress=False, **options)
    assert uses.read
    assert not uses.early


def test_what_is_launched_aside_waits_for_the_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch, patience=2)
    before = streams.current.moment()
    assert not any(stream.is_behind(before) for stream in streams.aside)
    engine.Flights(torch.device("cpu")).begin()
    assert all(stream.is_behind(before) for stream in streams.aside)
