"""What a GPU is given while Python plans: the same answers, each input once, and nothing lost."""

import gc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.helpers import cases, evaluated
from whyformer.async_copy import Landing
from whyformer.errors import BadInput, UnsupportedModel
from whyformer.evaluation import chunk as chunk_module
from whyformer.evaluation.chunk import ChunkRun, measured_chunk, measured_chunks
from whyformer.evaluation.explained import ExplainedBatch
from whyformer.evaluation.plan import EvaluationPlan, PendingChunk
from whyformer.inputs.input import TensorInput
from whyformer.methods.method import MethodSpec, Scores
from whyformer.models import memory
from whyformer.models.memory import CPU, LIMITS, uncollected
from whyformer.perturb import Outcomes, hide_named
from whyformer.perturb import engine as flights
from whyformer.prediction import Prediction
from whyformer.results.evaluation import Chunk

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


def chunks(plan: EvaluationPlan, texts: list[str], size: int = 2) -> Iterator[PendingChunk]:
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
    assert not outcomes._flights.has_room
    launch, before = outcomes._launch, list[int]()

    def noted(batch: Any) -> None:
        before.append(len(slow) - sum(moment.is_past for moment in slow))
        launch(batch)

    monkeypatch.setattr(outcomes, "_launch", noted)
    outcomes.run()
    assert set(before) == {ahead}  # a run waits for no more of them
    assert outcomes.counts.run == len(rows)


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
    outcomes.advance()
    assert outcomes.counts.run == 2  # no more at a time, and none twice
    for moment in slow:
        moment.synchronize()
    outcomes.advance()
    assert outcomes.counts.run == 3
    with outcomes.planning():
        outcomes.of(cases.predicted(TEXTS[:1]).inputs, 3)
    outcomes.advance()
    assert outcomes.counts.run == 4  # the last of the first question is done
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


def test_methods_that_run_the_model_often_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = "random,attcat,occlusion,grads"
    plan, asked, scores = evaluated.measuring(methods), list[str](), ExplainedBatch.scores

    def noted(self: ExplainedBatch, method: MethodSpec) -> Scores:
        asked.append(method.label)
        return scores(self, method)

    monkeypatch.setattr(ExplainedBatch, "scores", noted)
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


def test_whoever_wants_what_lands_waits_for_it_and_for_nothing_else() -> None:
    moments: list[Later] = []
    first, second = (late_landing(moments)(torch.tensor([float(number)])) for number in range(2))
    assert not first.is_over
    assert [one.tolist() for one in second.tensors] == [[1.0]]
    assert [moment.is_past for moment in moments] == [False, True]
    assert second.is_over
    assert Landing(torch.zeros(1)).is_over  # it was on the CPU


def test_short_memory_for_a_later_method_counts_the_first_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = evaluated.measuring(METHODS, "aopc,log_odds", tokens_per_batch=40)
    expected = measured_chunk(plan, next(chunks(plan, TEXTS[:4], size=4)))
    scores, calls = ExplainedBatch.scores, list[str]()

    def short(self: ExplainedBatch, method: MethodSpec) -> Scores:
        calls.append(method.label)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("short")
        return scores(self, method)

    monkeypatch.setattr(ExplainedBatch, "scores", short)
    run = ChunkRun(plan, next(chunks(plan, TEXTS[:4], size=4)))
    run.ask()
    found = run.result()
    assert calls == ["attcat", "rollout"] * 3  # the batch, and both halves
    assert {len(numbers) for numbers in run.ledger.numbers.values()} == {1}
    assert evaluated.alike(found.records, expected.records)
