"""What a GPU is given while Python plans: the same answers, each input once, and nothing lost."""

import gc
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import cases, evaluated
from whyformer import checks
from whyformer import prediction as prediction_module
from whyformer.errors import BadInput, UnsupportedModel
from whyformer.evaluation import asked as asked_module
from whyformer.evaluation import chunk as chunk_module
from whyformer.evaluation import evaluate as evaluate_module
from whyformer.evaluation import plan as plan_module
from whyformer.evaluation.asked import Asked, Runs
from whyformer.evaluation.chunk import ChunkRun, measured_chunk, measured_chunks
from whyformer.evaluation.examples import Item
from whyformer.evaluation.plan import PendingChunk, Plan
from whyformer.inputs.input import TensorInput
from whyformer.landing import Landing
from whyformer.methods.specs import MethodSpec, method_specs
from whyformer.metrics.case import Case
from whyformer.models import fingerprint, memory
from whyformer.models.fingerprint import with_weights
from whyformer.models.limits import CPU, LIMITS
from whyformer.models.memory import uncollected
from whyformer.perturb import Outcomes, flights, hide_named
from whyformer.prediction import Prediction
from whyformer.results.records import Chunk

TEXTS = evaluated.texts(6, longest=9)
METHODS = "attcat,rollout"


class Later:
    """A moment that comes when somebody waits for it, as that of a GPU which is slow."""

    def __init__(self) -> None:
        self.is_past = False

    def query(self) -> bool:
        return self.is_past

    def synchronize(self) -> None:
        self.is_past = True


def late_landing(moments: list[Later]) -> type[Landing]:
    """One whose tensors arrive late; the moments at which they do are noted."""

    class LateLanding(Landing):
        def __init__(self, *tensors: torch.Tensor):
            super().__init__(*tensors)
            moments.append(Later())
            self._landed: list[Any] = [moments[-1]]

    return LateLanding


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Later]:
    """A CPU whose outputs arrive late, two batches at a time; the moments at which they do."""
    moments: list[Later] = []
    monkeypatch.setitem(flights.AHEAD, "cpu", 2)
    monkeypatch.setattr(flights, "Landing", late_landing(moments))
    return moments


def engine(texts: list[str]) -> tuple[Outcomes, list[Any]]:
    """One that takes a text in each batch, and texts without some of their tokens."""
    own = cases.predicted(texts)
    rows = [row.without([1 + n % 2], hide_named("delete")) for n, row in enumerate(own.inputs)]
    return Outcomes(own.model, tokens_per_batch=1), rows


def chunks(plan: Plan, texts: list[str], size: int = 2) -> Iterator[PendingChunk]:
    for start in range(0, len(texts), size):
        rows = evaluated.examples(texts[start : start + size], [0, 1] * size, first=start)
        yield plan.pending(start, start + size, rows, {}, frozenset())


def test_batches_are_launched_ahead_and_each_input_is_run_once(slow: list[Later]) -> None:
    outcomes, rows = engine(TEXTS)
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.advance()
    assert outcomes.counts.batches == 2  # the others wait until one of these is done
    outcomes.advance()
    assert outcomes.counts.batches == 2
    slow[0].synchronize()
    outcomes.advance()
    assert outcomes.counts.batches == 3
    found = outcomes.of(rows, 3)
    assert outcomes.counts.run == outcomes.counts.requested == len(rows)
    assert all(moment.is_past for moment in slow)
    torch.testing.assert_close(found, Outcomes(outcomes.model).of(rows, 3))


@pytest.mark.parametrize(("batches", "ahead"), [(0, 2), (2.5, 3), (3, 3), (3.5, 4), (100, 4)])
def test_of_small_batches_twice_as_many_are_on_their_way(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch, batches: float, ahead: int
) -> None:
    (row,) = cases.predicted([max(TEXTS, key=len)]).inputs
    rows = [row.without([place], hide_named("pad_attended")) for place in range(1, 7)]
    outcomes = Outcomes(cases.subject().model, tokens_per_batch=1)
    monkeypatch.setattr(outcomes._flights, "_enough", batches * len(row))
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.advance()
    assert outcomes.counts.batches == ahead
    assert outcomes.is_full
    launch, before = outcomes._launch, list[int]()

    def noted(batch: Any) -> None:
        before.append(len(slow) - sum(moment.is_past for moment in slow))
        launch(batch)

    monkeypatch.setattr(outcomes, "_launch", noted)
    outcomes.run()
    assert set(before) == {ahead}  # a run waits for no more of them
    assert outcomes.counts.run == len(rows)


def test_what_is_computed_is_not_on_its_way_any_more(slow: list[Later]) -> None:
    outcomes, rows = engine(TEXTS)
    assert outcomes.has_little
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.advance()
    assert not outcomes.has_little
    for moment in slow:
        moment.synchronize()
    assert outcomes.has_little  # before it is taken


def test_what_is_not_wanted_yet_is_not_waited_for(slow: list[Later]) -> None:
    outcomes, rows = engine(TEXTS)
    whole = Outcomes(outcomes.model).of(rows, 3)
    slow.clear()
    with outcomes.planning():
        outcomes.of(rows, 3)
    first = max(rows, key=len)  # launched before the others
    torch.testing.assert_close(outcomes.of([first], 3), whole[[rows.index(first)]])
    assert [moment.is_past for moment in slow] == [True, False, False]
    torch.testing.assert_close(outcomes.of(rows, 3), whole)
    assert outcomes.counts.run == outcomes.counts.batches == len(rows)
    assert outcomes.has_little


def test_calls_are_measured_while_later_ones_are_run(slow: list[Later], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, texts=3))
    plan, keep, left = evaluated.measuring(METHODS, tokens_per_batch=40), ChunkRun._keep, list[int]()

    def noted(self: ChunkRun, call: Any, measured: Any) -> None:
        left.append(len(self.outcomes._waiting))
        keep(self, call, measured)

    monkeypatch.setattr(ChunkRun, "_keep", noted)
    (chunk,) = measured_chunks(plan, chunks(plan, TEXTS, size=6))
    assert left[0] > 0 == left[-1]
    monkeypatch.undo()
    (whole,) = measured_chunks(plan, chunks(plan, TEXTS, size=6))
    assert evaluated.alike(chunk.records, whole.records)


def test_what_is_asked_while_others_are_on_their_way_is_run_too(slow: list[Later]) -> None:
    outcomes, rows = engine(TEXTS)
    with outcomes.planning():
        outcomes.of(rows[:3], 3)
    for moment in range(4):
        outcomes.advance()
        for past in slow[:moment]:
            past.synchronize()
    found = outcomes.of(rows, 3)
    assert outcomes.counts.run == len(rows)
    torch.testing.assert_close(found, Outcomes(outcomes.model).of(rows, 3))


def test_what_is_asked_later_is_begun_beside_what_is_on_its_way(slow: list[Later]) -> None:
    outcomes, rows = engine(TEXTS[:3])
    with outcomes.planning():
        outcomes.of(rows[:1], 3)
    outcomes.advance()
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.advance(begin=False)
    assert outcomes.counts.run == 1  # more may be asked of the same texts
    outcomes.advance()
    assert outcomes.counts.run == 2  # no more at a time, and nothing twice
    for moment in slow:
        moment.synchronize()
    outcomes.advance(begin=False)
    assert outcomes.counts.run == 3  # it was begun before
    for moment in slow:
        moment.synchronize()
    outcomes.advance()
    with outcomes.planning():
        outcomes.of(cases.predicted(TEXTS[:1]).inputs, 3)
    outcomes.advance()
    assert outcomes.counts.run == 4  # what was there before is done
    found = outcomes.of(rows, 3)
    assert outcomes.counts.run == len(rows) + 1
    torch.testing.assert_close(found, Outcomes(outcomes.model).of(rows, 3))


def test_outputs_that_are_no_numbers_are_told_once_they_arrive(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, rows = engine(TEXTS)
    with monkeypatch.context() as patched:
        patched.setattr(outcomes, "read", lambda output: output.logits.detach() * torch.nan)
        with outcomes.planning():
            outcomes.of(rows, 3)
        outcomes.advance()
        slow[0].synchronize()
        with pytest.raises(UnsupportedModel, match="not numbers once units are hidden"):
            outcomes.advance()
        with pytest.raises(UnsupportedModel, match="not numbers once units are hidden"):
            outcomes.run()
    torch.testing.assert_close(outcomes.of(rows, 3), Outcomes(outcomes.model).of(rows, 3))


def test_one_batch_without_numbers_is_run_again(slow: list[Later], monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed ahead of time is told by a later run, or is right then; it is not waited for."""
    outcomes, rows = engine(TEXTS)
    read, calls = outcomes.read, list[int]()

    def first_without_numbers(output: Any) -> torch.Tensor:
        calls.append(len(calls))
        return read(output) * (torch.nan if len(calls) == 1 else 1)

    monkeypatch.setattr(outcomes, "read", first_without_numbers)
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.advance()
    slow[0].synchronize()
    with pytest.raises(UnsupportedModel, match="not numbers once units are hidden"):
        outcomes.advance()
    found = outcomes.of(rows, 3)
    assert len(calls) == len(rows) + 1
    torch.testing.assert_close(found, Outcomes(outcomes.model).of(rows, 3))


def test_an_engine_forgets_what_is_on_its_way(slow: list[Later]) -> None:
    outcomes, rows = engine(TEXTS)
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.advance()
    outcomes.forget()
    assert all(moment.is_past for moment in slow)  # nothing reads memory any more that is given to others
    outcomes.of(rows[:1], 3)
    assert outcomes.counts.batches == 3


def test_what_was_forgotten_is_launched_again(slow: list[Later]) -> None:
    outcomes, rows = engine(TEXTS[:2])
    for batches in (2, 4):
        with outcomes.planning():
            outcomes.of(rows, 3)
        outcomes.advance()
        assert outcomes.counts.batches == batches
        outcomes.forget()


def test_a_model_in_which_runs_leave_something_is_run_on_one_stream(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, rows = engine(TEXTS)
    asides, launch, joined = list[bool](), flights.Flights.launch, list[int]()

    def noted(self: flights.Flights, inputs: Any, run: Any, *, aside: bool) -> None:
        asides.append(aside)
        launch(self, inputs, run, aside=aside)

    monkeypatch.setattr(flights.Flights, "launch", noted)
    monkeypatch.setattr(flights.Flights, "join", lambda self: joined.append(len(asides)))
    outcomes.of(rows[:3], 3)
    assert asides == [True] * 3
    table = outcomes.model.base_model
    hook = table.register_forward_hook(lambda module, *_: setattr(module, "table", torch.zeros(1)))
    try:
        outcomes.of(rows[3:4], 3)
        assert joined == [4]  # before anything else is run, which may read the table
        outcomes.of(rows[4:], 3)
    finally:
        hook.remove()
        del table.table
    assert asides[3:] == [True, True, False]
    assert joined == [4, 5]
    outcomes.forget()
    outcomes.of(rows, 3)
    assert asides[6:] == [True] * 6


def test_an_evaluation_that_runs_ahead_finds_the_same(slow: list[Later]) -> None:
    plan = evaluated.measuring(METHODS, "aopc,log_odds", tokens_per_batch=40)
    ahead = list(measured_chunks(plan, chunks(plan, TEXTS)))
    assert slow
    one_by_one = [measured_chunk(plan, chunk) for chunk in chunks(plan, TEXTS)]
    assert [chunk.start for chunk in ahead] == [0, 2, 4]
    assert evaluated.alike([chunk.records for chunk in ahead], [chunk.records for chunk in one_by_one])


def test_one_chunk_is_explained_while_the_one_before_it_is_run(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, order = evaluated.measuring(METHODS, tokens_per_batch=40), list[str]()
    explained, launched = Prediction.settled, Outcomes._launch

    def noted_explained(self: Prediction) -> Prediction:
        order.append("explained")
        return explained(self)

    def noted_launch(self: Outcomes, batch: Any) -> None:
        order.append("launched")
        launched(self, batch)

    monkeypatch.setattr(Prediction, "settled", noted_explained)
    monkeypatch.setattr(Outcomes, "_launch", noted_launch)
    with closing(measured_chunks(plan, chunks(plan, TEXTS))) as measured:
        next(measured)
    second = [n for n, what in enumerate(order) if what == "explained"][1]
    assert "launched" in order[:second]


def test_some_texts_of_a_chunk_are_run_while_the_others_are_explained(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, texts=2))
    plan, asked_before = evaluated.measuring(METHODS, tokens_per_batch=40), list[set[bytes]]()
    launch = Outcomes._launch

    def noted_launch(self: Outcomes, batch: Any) -> None:
        asked_before.append(set(self._waiting))
        launch(self, batch)

    monkeypatch.setattr(Outcomes, "_launch", noted_launch)
    (chunk,) = measured_chunks(plan, chunks(plan, TEXTS, size=6))
    assert len(asked_before[0]) < max(map(len, asked_before))
    monkeypatch.undo()
    (whole,) = measured_chunks(plan, chunks(plan, TEXTS, size=6))
    assert evaluated.alike(chunk.records, whole.records)
    assert chunk.counts["run"] == whole.counts["run"]


def test_methods_that_wait_for_a_gpu_are_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = "random,attcat,occlusion,grads"
    plan, asked, ask = evaluated.measuring(methods), list[str](), Asked.of

    def noted(spec: MethodSpec, runs: Runs) -> Asked:
        asked.append(spec.label)
        return ask(spec, runs)

    monkeypatch.setattr(Asked, "of", noted)
    (chunk,) = measured_chunks(plan, chunks(plan, TEXTS, size=6))
    assert asked == ["attcat", "grads", "random", "occlusion"]
    assert [record.method for record in chunk.records if record.row == 0] == methods.split(",")


def test_an_engine_that_fails_is_not_tried_again_before_its_numbers_are_wanted(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, texts=2))
    plan, tried = evaluated.measuring(METHODS, tokens_per_batch=40), list[Any]()

    def failing(self: Outcomes, batch: Any) -> None:
        tried.append(batch)
        raise UnsupportedModel("it fails")

    monkeypatch.setattr(Outcomes, "_launch", failing)
    with pytest.raises(UnsupportedModel, match="it fails"):
        list(measured_chunks(plan, chunks(plan, TEXTS, size=6)))
    assert len(tried) == 2  # ahead, and in the end


@pytest.mark.parametrize("end", [BadInput("a row that nobody can read"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["reading", "explaining"])
def test_whatever_ends_it_the_chunk_before_is_measured(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch, end: BaseException, where: str
) -> None:
    plan = evaluated.measuring(METHODS, tokens_per_batch=40)

    def ended(*_: Any) -> Any:
        raise end

    def pending() -> Iterator[PendingChunk]:
        for number, chunk in enumerate(chunks(plan, TEXTS)):
            if number == 2 and where == "reading":
                ended()
            if number == 2:
                monkeypatch.setattr(Prediction, "settled", ended)
            yield chunk

    kept: list[Chunk] = []
    with pytest.raises(type(end)):
        kept.extend(measured_chunks(plan, pending()))
    assert [chunk.start for chunk in kept] == [0, 2]


def test_what_is_wrong_with_one_chunk_is_told_where_that_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, engines = evaluated.measuring(METHODS, tokens_per_batch=40), list[Outcomes]()

    def third_without_numbers(*given: Any, **options: Any) -> Outcomes:
        engines.append(Outcomes(*given, **options))
        if len(engines) == 3:
            engines[-1].read = lambda output: output.logits * torch.nan
        return engines[-1]

    monkeypatch.setitem(flights.AHEAD, "cpu", 2)
    monkeypatch.setattr(chunk_module, "Outcomes", third_without_numbers)
    kept: list[Chunk] = []
    with pytest.raises(UnsupportedModel, match="not numbers once units are hidden"):
        kept.extend(measured_chunks(plan, chunks(plan, TEXTS)))
    assert [chunk.start for chunk in kept] == [0, 2]


def test_a_method_that_fails_for_one_text_is_refused_for_that_alone() -> None:
    def picky(prediction: Prediction) -> torch.Tensor:
        """Gives no numbers for long texts."""
        is_long = (~prediction.padding).sum(1, keepdim=True) > 9
        return evaluated.in_order(prediction).masked_fill(is_long, torch.nan)

    with evaluated.own_registry():
        evaluated.registered(picky)
        plan = evaluated.measuring("rollout,picky")
        records = evaluated.found(measured_chunks(plan, chunks(plan, ["a good film", "a good film " * 4])))
    refused = {place[:2]: record.refused is not None for place, record in records.items()}
    assert refused == {(0, "rollout"): False, (0, "picky"): False, (1, "rollout"): False, (1, "picky"): True}


def test_the_collector_rests_as_long_as_anybody_needs_it_to() -> None:
    assert gc.isenabled()
    with uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_looks_at_what_is_new_where_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    with uncollected():
        pass
    monkeypatch.setattr(gc, "collect", looks.append)
    monkeypatch.setattr(memory, "LONGEST_PAUSE", -1)
    memory.collect_now()
    assert looks == []  # it looks by itself
    monkeypatch.setattr(memory, "LONGEST_PAUSE", 60)
    with uncollected():
        memory.collect_now()
        assert looks == []  # there is little to look at
        monkeypatch.setattr(memory, "MUCH", -1)
        memory.collect_now()
        memory.collect_now()
        monkeypatch.setattr(memory, "LONGEST_PAUSE", -1)
        memory.collect_now()
    assert looks == [1, 1, 2]
    gc.disable()
    try:
        with uncollected():
            memory.collect_now()  # who switched it off has reasons
    finally:
        gc.enable()
    assert looks == [1, 1, 2]


def test_a_chunk_that_was_measured_holds_no_inputs_any_more(slow: list[Later]) -> None:
    """Not even where nobody looks for what is let go of in cycles."""
    plan, before = evaluated.measuring(METHODS, tokens_per_batch=40), list[int]()
    gc.collect()
    with uncollected():
        for _ in measured_chunks(plan, chunks(plan, TEXTS)):
            before.append(sum(type(one) is TensorInput for one in gc.get_objects()))
    assert before[-1] < before[0]


@pytest.mark.parametrize("limit", ["MANY", "MUCH"])
def test_a_gpu_that_waits_is_given_questions_as_they_come(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Many inputs are launched before all methods were asked, if there is little else to do; else when all were.

    Of the first texts all are asked before: what they load waits for a GPU that is at work.
    """
    methods = "attcat,rollout,cp_lrp,attn_lrp"
    plan, order = evaluated.measuring(methods, tokens_per_batch=40), list[str]()
    asked, launch = Asked.of, Outcomes._launch

    def noted_asked(method: Any, runs: Any) -> Any:
        order.append("asked")
        return asked(method, runs)

    def noted_launch(self: Outcomes, batch: Any) -> None:
        order.append("launched")
        launch(self, batch)

    def turns() -> list[int]:
        """How many methods were asked before anything was launched, and then before anything more was."""
        return [len(list(alike)) for what, alike in groupby(order) if what == "asked"]

    monkeypatch.setattr(Asked, "of", staticmethod(noted_asked))
    monkeypatch.setattr(Outcomes, "_launch", noted_launch)
    monkeypatch.setitem(flights.LITTLE, "cpu", 10**9)
    monkeypatch.setitem(flights.AHEAD, "cpu", 10**6)  # a GPU to which everything can be given
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, texts=1))
    monkeypatch.setattr(chunk_module, limit, 2)
    early = list(measured_chunks(plan, chunks(plan, TEXTS)))
    assert turns()[0] == 4
    assert max(turns()[1:]) < 4  # two, where the second asks nothing that the first did not
    order.clear()
    monkeypatch.setattr(chunk_module, limit, 10**9)
    late = list(measured_chunks(plan, chunks(plan, TEXTS)))
    assert turns() == [4] * 6
    assert evaluated.alike([chunk.records for chunk in early], [chunk.records for chunk in late])
    assert sum(chunk.counts["run"] for chunk in early) == sum(chunk.counts["run"] for chunk in late)


def test_a_gpu_has_much_to_do_while_something_is_on_its_way(slow: list[Later]) -> None:
    outcomes, rows = engine(TEXTS[:3])
    assert not outcomes.has_much
    with outcomes.planning():
        outcomes.of(rows, 3)
    assert not outcomes.has_much  # nothing is on its way
    outcomes.advance()
    assert outcomes.has_much  # two of three
    slow[0].synchronize()
    slow[1].synchronize()
    outcomes.advance()
    assert outcomes.counts.run == 3
    assert outcomes.has_much  # the last one
    slow[2].synchronize()
    assert not outcomes.has_much


@pytest.mark.parametrize(("much", "has_much"), [(5, True), (10**6, False)])
def test_some_tokens_are_not_much(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch, much: int, has_much: bool
) -> None:
    monkeypatch.setitem(flights.MUCH, "cpu", much)
    outcomes, rows = engine(TEXTS[:3])
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.advance()
    assert outcomes.has_much is has_much


def test_a_cpu_never_has_much_to_do() -> None:
    outcomes, rows = engine(TEXTS[:3])
    with outcomes.planning():
        outcomes.of(rows, 3)
    outcomes.advance()
    assert not outcomes.has_much


def test_errands_are_done_once_while_a_gpu_has_much_to_do(slow: list[Later], monkeypatch: pytest.MonkeyPatch) -> None:
    plan, done = evaluated.measuring(METHODS, tokens_per_batch=40), list[int]()

    def errand(number: int) -> None:
        assert not all(moment.is_past for moment in slow)
        done.append(number)

    list(measured_chunks(plan, chunks(plan, TEXTS), [partial(errand, number) for number in range(3)]))
    assert done == [0, 1, 2]
    monkeypatch.undo()
    list(measured_chunks(plan, chunks(plan, TEXTS), [lambda: 1 / 0]))  # a CPU is waited for by nobody


def test_what_draws_is_imported_while_a_gpu_is_busy(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = list[str]()

    def failing() -> None:
        done.append("imported")
        raise ImportError("no such file")

    monkeypatch.setattr(evaluate_module, "imported", failing)
    arguments: Any = (cases.subject(), TEXTS, "attcat", "aopc")
    evaluate_module.evaluate(*arguments, rows_per_chunk=2, tokens_per_batch=40, progress=False)
    assert not done  # nothing will be drawn
    evaluate_module.evaluate(*arguments, rows_per_chunk=2, tokens_per_batch=40, out=tmp_path, progress=False)
    assert done == ["imported"]
    assert (tmp_path / "curves-aopc.png").exists()


@pytest.mark.parametrize(("little", "begun"), [(0, False), (10**9, True)])
def test_questions_of_later_texts_are_begun_where_little_is_on_its_way(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch, little: int, begun: bool
) -> None:
    """Batches that are on their way are enough, or they are not."""
    monkeypatch.setitem(flights.LITTLE, "cpu", little)
    monkeypatch.setitem(flights.AHEAD, "cpu", 10**6)  # a GPU to which everything can be given
    monkeypatch.setattr(chunk_module, "MANY", 2)
    plan, launched, advance = evaluated.measuring(METHODS, tokens_per_batch=40), set[Any](), ChunkRun.advance

    def noted(self: ChunkRun, **options: Any) -> None:
        before = self.outcomes.counts.batches
        advance(self, **options)
        if self.outcomes.counts.batches > before:
            launched.add((self.pending.start, self.is_asking))

    monkeypatch.setattr(ChunkRun, "advance", noted)
    first, *_ = measured_chunks(plan, chunks(plan, TEXTS))
    assert (0, True) in launched
    assert ((2, True) in launched) is begun  # before all was asked about the second texts
    monkeypatch.undo()
    whole = measured_chunk(plan, next(chunks(plan, TEXTS)))
    assert evaluated.alike(first.records, whole.records)


def test_what_earlier_texts_left_waiting_is_begun_before_all_is_asked_about_later_ones(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, texts=3))
    plan, seen = evaluated.measuring(METHODS, tokens_per_batch=10**6), list[tuple[bool, int, int]]()
    run, calls_about = ChunkRun(plan, next(chunks(plan, TEXTS, size=6))), ChunkRun._calls_about

    def noted(self: ChunkRun, *asked: Any) -> Any:
        before, waiting = self.outcomes.counts.batches, self.outcomes.waiting
        self.advance()
        assert self.outcomes.counts.batches == before  # there is enough to do
        self.advance(urgent=True)
        seen.append((self.has_left_over, waiting, self.outcomes.counts.batches - before))
        return calls_about(self, *asked)

    monkeypatch.setattr(ChunkRun, "_calls_about", noted)
    run.ask()
    assert seen[0] == (False, 0, 0)
    has_left_over, waiting, batches = seen[1]
    assert waiting > 0 < batches
    assert not has_left_over  # it is on its way


@pytest.fixture
def two_graphs(slow: list[Later], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In which order methods and metrics are asked, where two texts are explained at once, and two graphs have room."""
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, texts=2, traced_call=10**6, graphs=2))
    order, asked, calls_about = list[str](), Asked.of, ChunkRun._calls_about

    def noted(method: Any, runs: Any) -> Any:
        order.append("method")
        return asked(method, runs)

    def noted_calls(self: ChunkRun, several: Any, batch: Any) -> Any:
        order.append("metrics")
        return calls_about(self, several, batch)

    monkeypatch.setattr(Asked, "of", staticmethod(noted))
    monkeypatch.setattr(ChunkRun, "_calls_about", noted_calls)
    return order


def test_metrics_are_asked_about_one_batch_while_a_gpu_explains_the_next(two_graphs: list[str]) -> None:
    plan, (chunk,) = evaluated.measuring("attcat", tokens_per_batch=40), chunks(evaluated.measuring("attcat"), TEXTS, 6)
    run = ChunkRun(plan, chunk)
    run.ask()
    assert two_graphs == ["method", "method", "metrics", "method", "metrics", "metrics"]
    assert run.last_batch is None
    expected = measured_chunk(plan, chunk)
    assert evaluated.alike(run.result().records, expected.records)


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ({6}, ["metrics", "method", "metrics", "method", "metrics"]),  # of the batch before
        ({5}, ["metrics", "metrics", "method", "method", "metrics"]),  # of that, before the next is explained
        ({5, 7}, ["metrics", "metrics", "method", "metrics", "method", "metrics"]),  # of its own
    ],
)
def test_a_gpu_that_waits_is_given_what_was_asked_first(
    two_graphs: list[str], moments: set[int], expected: list[str]
) -> None:
    """But nothing before two batches are explained, for which kernels are loaded."""
    plan = evaluated.measuring(METHODS)
    run = ChunkRun(plan, next(chunks(plan, TEXTS, 6)), lambda: len(two_graphs) in {1, 2, 3} | moments, is_first=True)
    run.ask()
    assert two_graphs == ["method"] * 4 + expected


def test_whoever_wants_what_lands_waits_for_it_and_for_nothing_else() -> None:
    moments: list[Later] = []
    first, second = (late_landing(moments)(torch.tensor([float(number)])) for number in range(2))
    assert not first.is_over
    assert [one.tolist() for one in second.tensors] == [[1.0]]
    assert [moment.is_past for moment in moments] == [False, True]
    assert second.is_over
    assert Landing(torch.zeros(1)).is_over  # it was on the CPU


def test_scores_and_their_checks_come_to_the_cpu_before_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    moments: list[Later] = []
    for module in (asked_module, checks, prediction_module):
        monkeypatch.setattr(module, "Landing", late_landing(moments))
    prediction = cases.predicted(TEXTS[:3])
    (spec,) = method_specs(["attcat"])
    asked = Asked.of(spec, Runs(prediction, prediction))
    begun = len(moments)
    assert begun == 4  # flags, classes, padding and scores
    assert not any(moment.is_past for moment in moments)
    scores = asked.scores()
    assert [moment.is_past for moment in moments] == [True, False, False, False]
    case = Case(prediction, scores.total, Outcomes(prediction.model), landing=asked.landing)
    rows = case.without_padding(scores.total)
    assert [moment.is_past for moment in moments] == [True, False, True, True]
    assert len(moments) == begun
    monkeypatch.undo()
    plain = replace(case, landing=None, scores=spec(cases.predicted(TEXTS[:3])).total)
    for row, expected in zip(rows, plain.without_padding(plain.scores), strict=True):
        np.testing.assert_allclose(row, expected, rtol=1e-9)
    others = case.without_padding(2 * scores.total)  # they are not what landed
    np.testing.assert_array_equal(others[0], 2 * rows[0])
    reversed_order = case.ordered([list(range(len(units)))[::-1] for units in case.rankable])
    assert reversed_order.without_padding(reversed_order.scores)[0][case.rankable[0][0]] == 1


def test_planning_reads_what_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    moments: list[Later] = []
    for module in (asked_module, chunk_module):
        monkeypatch.setattr(module, "Landing", late_landing(moments))
    plan = evaluated.measuring("attcat")
    run = ChunkRun(plan, next(chunks(plan, TEXTS, 6)))
    run.ask()
    assert moments
    assert all(moment.is_past for moment in moments)  # logits and scores


@pytest.mark.parametrize(("metrics", "ceiling"), [("kendall_tau", 0), ("aopc", 6), ("aopc(target=gold)", 0)])
def test_metrics_that_run_the_model_are_asked_at_once(two_graphs: list[str], metrics: str, ceiling: int) -> None:
    plan = evaluated.measuring("attcat", metrics, ceiling=ceiling)
    ChunkRun(plan, next(chunks(plan, TEXTS, 6))).ask()
    assert two_graphs == ["method", "metrics"] * 3


@pytest.mark.parametrize("short", ["method", "metrics"])
@pytest.mark.parametrize("number", range(2, 7))
def test_short_memory_for_two_graphs_loses_nothing(
    two_graphs: list[str], monkeypatch: pytest.MonkeyPatch, short: str, number: int
) -> None:
    """Whichever call it is short for."""
    plan = evaluated.measuring(METHODS, "aopc,log_odds", tokens_per_batch=40)
    (expected,) = measured_chunks(plan, chunks(plan, TEXTS, 6))
    calls = list[int]()

    def failing(call: Any) -> Any:
        def sometimes(*given: Any) -> Any:
            calls.append(len(calls))
            if len(calls) == number:
                raise torch.OutOfMemoryError("short")
            return call(*given)

        return sometimes

    if short == "method":
        monkeypatch.setattr(Asked, "of", staticmethod(failing(Asked.of)))
    else:
        monkeypatch.setattr(ChunkRun, "_plan", failing(ChunkRun._plan))
    run = ChunkRun(plan, next(chunks(plan, TEXTS, 6)))
    run.ask()
    found = run.result()
    assert len(calls) > number
    assert {len(numbers) for numbers in run.measured.values()} == {1}
    assert evaluated.alike(found.records, expected.records)


def test_the_batch_before_gives_its_memory_first(two_graphs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its graph is let go of before less is tried of the next one."""
    plan, ask, tried = evaluated.measuring(METHODS), ChunkRun._ask_about, list[tuple[int, bool]]()

    def short(self: ChunkRun, items: Sequence[Item]) -> Any:
        tried.append((len(items), self.last_batch is None))
        if len(tried) == 2:
            raise torch.OutOfMemoryError("short")
        return ask(self, items)

    monkeypatch.setattr(ChunkRun, "_ask_about", short)
    ChunkRun(plan, next(chunks(plan, TEXTS[:4], 4))).ask()
    assert tried == [(2, True), (2, False), (1, True), (1, False)]


def test_weights_are_hashed_once_by_whoever_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, threads = evaluated.measuring(METHODS), list[str]()

    def noted(*given: Any) -> str:
        threads.append(threading.current_thread().name)
        time.sleep(0.2)  # so that the others come meanwhile
        return with_weights(*given)

    monkeypatch.setattr(plan_module, "with_weights", noted)
    end = plan.know_facts_soon()
    time.sleep(0.05)
    assert plan.facts["model"] == plan.subject.fingerprint
    end()
    assert len(threads) == 1


def test_who_leaves_an_evaluation_waits_for_no_more_than_one_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python must not end while another thread copies weights."""
    plan, looked = evaluated.measuring(METHODS), list[str]()
    own = fingerprint._weights(plan.subject.model)

    def slowly(_: Any) -> Iterator[Any]:
        for name, weight in own:
            looked.append(name)
            time.sleep(0.05)
            yield name, weight

    _ = plan._shape
    monkeypatch.setattr(fingerprint, "_weights", slowly)
    before = threading.active_count()
    end = plan.know_facts_soon()
    end()
    assert threading.active_count() == before
    assert len(looked) < len(own)
    monkeypatch.undo()
    assert plan.facts["model"] == plan.subject.fingerprint


def test_what_is_wrong_with_weights_is_met_where_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> str:
        raise UnsupportedModel("it has no weights")

    monkeypatch.setattr(plan_module, "with_weights", failing)
    plan = evaluated.measuring(METHODS)
    plan.know_facts_soon()()
    with pytest.raises(UnsupportedModel, match="no weights"):
        _ = plan.facts


def test_short_memory_for_a_later_method_asks_about_the_first_ones_once(
    slow: list[Later], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = evaluated.measuring("attcat,rollout", "aopc,log_odds", tokens_per_batch=40)
    (expected,) = measured_chunks(plan, chunks(plan, TEXTS[:4], size=4))
    asked, calls = Asked.of, list[str]()

    def short(method: Any, runs: Any) -> Any:
        calls.append(method.label)
        if len(calls) == 2:  # the first method was asked, and planned, for a GPU waited
            raise torch.OutOfMemoryError("short")
        return asked(method, runs)

    monkeypatch.setattr(Asked, "of", staticmethod(short))
    run = chunk_module.ChunkRun(plan, next(chunks(plan, TEXTS[:4], size=4)), lambda: True)
    run.ask()
    found = run.result()
    assert calls[:4] == ["attcat", "rollout", "attcat", "rollout"]
    assert {len(numbers) for numbers in run.measured.values()} == {1}
    assert evaluated.alike(found.records, expected.records)


def test_the_configuration_is_not_looked_at_while_a_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run names a padding token where there is none, and another thread hashes meanwhile."""
    plan = evaluated.measuring(METHODS)
    expected = plan.subject.fingerprint
    _ = plan._shape
    with monkeypatch.context() as running:
        running.setattr(plan.subject.model.config, "pad_token_id", 3)
        assert plan.facts["model"] == expected
