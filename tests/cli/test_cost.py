"""What explanations will take is said before anyone pays: by the command, and in Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import cases, choosing, dual, image_cases, questions, token_outputs
from tests.helpers.commands import Run
from whyformer import BadInput, BadOption, CostTable, Explainer, TooLarge
from whyformer.evaluation import cost as costing
from whyformer.evaluation import ladder
from whyformer.evaluation.ladder import Budget, Point, climb, cost_at, extrapolated, steps_to
from whyformer.inputs.encoding import Batch
from whyformer.results.cost import BACKWARD, FORWARD, Cost
from whyformer.testing import _differences as differences
from whyformer.testing import state

CPU = torch.device("cpu")


def explainer(kind: str = "bert") -> Explainer:
    return Explainer(cases.subject(kind))


def test_the_command(run: Run) -> None:
    done = run("cost", "--tokens", "16", "--methods", "rollout,attn_lrp", "--seconds", "2")
    assert done.status == 0
    heading, _, head, *rows = done.out.splitlines()
    assert heading.startswith("sentiment · BertForSequenceClassification · float32 on cpu, ")
    assert head.split() == ["16", "tokens", "time", "÷", "f+b", "memory", "÷", "f+b"]
    assert [row.split("  ")[0] for row in rows[:4]] == [FORWARD, BACKWARD, "rollout", "attn_lrp"]
    assert "≈" not in done.out  # 16 tokens are few enough to be run


def test_json(run: Run) -> None:
    flags = ("--tokens", "300,8", "--methods", "rollout", "--seconds", "2", "--batch", "2", "--json")
    told = json.loads(run("cost", *flags).out)
    assert (told["batch"], told["about"]["model"], told["refused"]) == (2, "sentiment", [])
    assert [(c["name"], c["units"]) for c in told["costs"]] == [
        (name, units) for name in (FORWARD, BACKWARD, "rollout") for units in (8, 300)
    ]
    for cost in told["costs"]:
        assert cost["basis"] == ("measured" if cost["units"] == 8 else cost["basis"])
        assert cost["seconds"] > 0
        assert cost["memory"] > 0
        assert max(cost["lengths"]) <= 256


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokens", "x"], "--tokens takes numbers with commas between them"),
        (["--tokens", "9" * 50], "--tokens takes numbers"),
        (["--tokens", "0"], "at least 1"),
        (["--tokens", "2"], "at least 3 are needed"),
        (["--tokens", "1024"], "takes at most 512 tokens, found 1,024"),
        (["--batch", "0"], "1 … 10,000; found 0"),
        (["--seconds", "nan"], "seconds takes a number; found nan"),
        (["--methods", "nothing"], "there is no method 'nothing'"),
        (["--model", "pets", "--tokens", "64"], "reads images of one size, 577 units: leave it out"),
    ],
)
def test_what_cannot_be_asked_is_one_line(flags: list[str], message: str, run: Run) -> None:
    methods = () if "--methods" in flags else ("--methods", "rollout")
    done = run("cost", *methods, *flags)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_images_are_measured_at_their_own_size() -> None:
    table = Explainer(image_cases.subject()).cost("rollout,attn_lrp", seconds=2)
    assert table.units == table.lengths == (26,)
    assert "an image of 26 units" in str(table)
    assert {cost.basis for cost in table.costs} == {"measured"}


def test_models_that_compare_are_refused() -> None:
    with pytest.raises(BadInput, match="compares images with texts"):
        Explainer(dual.subject("clip")).cost()


OTHERS: dict[str, Callable[[], Explainer]] = {
    "answers": lambda: Explainer(questions.answering(), questions.tokenizer()),
    "choices": choosing.chooser,
    "score": choosing.scorer,
    "labels": lambda: token_outputs.explainer("token_labels", "bert"),
    "masked": lambda: token_outputs.explainer("masked_word", "roberta"),
    "next": lambda: token_outputs.explainer("next_token", "gpt2"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_task_has_costs(name: str) -> None:
    table = OTHERS[name]().cost("attn_lrp,saliency", tokens=20, batch=2, seconds=1)
    assert table.names == (FORWARD, BACKWARD, "attn_lrp", "saliency")
    assert not table.refused


def test_the_batch_has_as_many_tokens_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(costing, "_forward", lambda model, batch: seen.append(tuple(batch.tensors["input_ids"].shape)))
    explainer().cost("random", tokens=[9, 40, 128], batch=3, seconds=5)
    assert sorted(set(seen)) == [(3, 9), (3, 16), (3, 32), (3, 40), (3, 64), (3, 128)]


def test_a_method_that_refuses_is_listed_with_its_reason() -> None:
    table = explainer().cost("random,mask_lrp", tokens=8, seconds=1)
    assert [name for name, _ in table.refused] == ["mask_lrp"]
    assert "mask_lrp refuses this model: mask_lrp needs a head mask" in " ".join(str(table).split())
    assert "mask_lrp" not in table.names


def test_the_model_is_given_back_as_it_was() -> None:
    whole = explainer()
    before = state(whole.subject.model)
    whole.cost("attcat", tokens=8, seconds=1)
    assert not [*differences(before, state(whole.subject.model))]


@pytest.mark.parametrize("method", ["rollout", "attcat", "attn_lrp"])
def test_extrapolated_memory_is_that_of_longer_texts(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a fifth, at twice the longest text that was run."""
    names = (FORWARD, BACKWARD, method)
    monkeypatch.setattr(ladder, "STEPS", (16, 24, 32, 64))
    guessed = explainer().cost(method, tokens=128, seconds=60)
    monkeypatch.setattr(ladder, "STEPS", (16, 128))
    measured = explainer().cost(method, tokens=128, seconds=60)
    assert {guessed[name, 128].basis for name in names} == {"extrapolated"}
    assert {measured[name, 128].basis for name in names} == {"measured"}
    for name in names:
        ratio = guessed[name, 128].memory / measured[name, 128].memory
        assert 0.8 < ratio < 1.25, (name, ratio)


def test_a_curve_without_negative_parts() -> None:
    lengths = (32, 64, 128, 256)
    assert extrapolated(lengths, [3 + 2 * n + n * n / 8 for n in lengths], 2048) == pytest.approx(3 + 4096 + 2**19)
    assert extrapolated(lengths, [5.0] * 4, 4096) == pytest.approx(5)
    falling = extrapolated(lengths, [8.0, 7.0, 6.0, 5.0], 4096)  # a machine that got faster meanwhile
    assert 5 <= falling <= 8
    assert extrapolated(lengths, [0.0] * 4, 512) == 0


def test_few_lengths_give_a_bound() -> None:
    assert extrapolated((32,), [2.0], 128) == pytest.approx(32)
    assert extrapolated((32, 64), [2.0, 5.0], 128) == pytest.approx(17)  # 1 + (n / 32)²
    points = [Point(32, 2.0, 100), Point(64, 5.0, 400)]
    assert cost_at("m", 128, points) == Cost("m", 128, pytest.approx(17), 1600, "at most", (32, 64))
    assert cost_at("m", 64, points).basis == "measured"
    assert cost_at("m", 512, [*points, Point(128, 17.0, None)]).memory is None


def test_the_steps_to_a_length() -> None:
    assert steps_to([2048]) == (16, 32, 64, 128, 256)
    assert steps_to([128, 2048, 100]) == (16, 32, 64, 100, 128, 256)
    assert steps_to([8]) == (8,)
    assert steps_to([256]) == (16, 32, 64, 128, 256)


def lengths_run(left: float, free: int | None = None, memory: int = 1, **costs: Any) -> list[int]:
    """Which lengths are run of a workload that takes so long, and so much memory, at each of them."""
    run: list[int] = []

    def measured(call: Any, units: int, device: Any, known: Any) -> Point:
        run.append(units)
        return Point(units, costs.get("seconds", 0.0), memory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ladder, "measure", measured)
        climb(lambda units: lambda: None, (32, 64, 128), lambda: left, CPU, (), free)
    return run


def test_longer_texts_are_run_while_there_is_time_and_memory() -> None:
    assert lengths_run(left=10.0) == [32, 64, 128]
    assert lengths_run(left=10.0, seconds=2.5) == [32, 64, 128]
    assert lengths_run(left=10.0, seconds=2.6) == [32]  # two runs of twice as long
    assert lengths_run(left=10.0, free=400, memory=100) == [32, 64, 128]
    assert lengths_run(left=10.0, free=399, memory=100) == [32]


def test_time_that_is_left_over_is_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    budget = Budget(30.0, 3)
    left = budget.begin()
    now[0] = 4.0
    assert left() == 6.0
    left = budget.begin()
    assert left() == 16.0
    now[0] = 100.0  # far too long: the next has its own part all the same
    assert left() == 0.0
    assert budget.begin()() == 10.0


def test_errors_at_a_longer_text_end_the_measuring() -> None:
    def prepare(units: int) -> Callable[[], object]:
        def call() -> None:
            if units > 32:
                raise torch.OutOfMemoryError

        return call

    points = climb(prepare, (32, 64), lambda: 10.0, CPU, (), None)
    assert [point.units for point in points] == [32]
    with pytest.raises(torch.OutOfMemoryError):
        climb(prepare, (64,), lambda: 10.0, CPU, (), None)


def test_out_of_memory_at_once_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def explained(model: Any, spec: Any, batch: Batch) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(costing, "_explained", explained)
    table = explainer().cost("random", tokens=8, seconds=1)
    assert table.refused == (("random", "out of memory at 8 units"),)


def test_a_batch_that_cannot_fit_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyformer.recorder.memory.free_memory", lambda device: 2**10)
    with pytest.raises(TooLarge, match="BertForSequenceClassification on a batch of 10 would take about"):
        explainer().cost("random", tokens=64, batch=10)


def table_of(*costs: Cost, **facts: Any) -> CostTable:
    about = {"model": "mine", "class": "Bert", "dtype": "float32", "device": "cpu", "threads": 2}
    return CostTable(
        costs, facts.pop("refused", ()), **{"batch": 1, "free": 2**30, "seconds": 60.0, "about": about, **facts}
    )


PLAIN = Cost(BACKWARD, 2048, 0.5, 100 * 2**20, "extrapolated", (32, 64, 128, 256))
DEAR = Cost("dear", 2048, 200.0, 3 * 2**30, "at most", (32,))
FAIR = Cost("fair", 2048, 0.75, 150 * 2**20, "extrapolated", (32, 64, 128))


def test_what_is_shown() -> None:
    table = table_of(PLAIN, DEAR, FAIR, batch=4, refused=(("odd", "no attention"),))
    lines = [" ".join(line.split()) for line in str(table).splitlines()]
    assert lines[0] == "mine · Bert · float32 on cpu, 2 threads · 1 GiB free"
    assert lines[2:6] == [
        "4 × 2,048 tokens time ÷ f+b memory ÷ f+b",
        "forward + backward ≈ 500 ms 1.00 ≈ 100 MiB 1.00",
        "dear ≤ 3 min ≤ 3 GiB more than is free",
        "fair ≈ 750 ms 1.50 ≈ 150 MiB 1.50",
    ]
    assert "≈: extrapolated by a + b·n + c·n² from 32, 64, 128, 256 tokens; fair from 32, 64, 128" in lines
    assert any(line.startswith("≤: at most so much") and line.endswith("one or two lengths of dear") for line in lines)
    assert "odd refuses this model: no attention" in lines
    assert repr(table) == "<CostTable of dear, fair: 2048 tokens>"
    assert table["dear", 2048] is DEAR
    assert [table.fits(cost) for cost in table.costs] == [True, False, True]
    assert table_of(PLAIN, free=None).fits(PLAIN) is None


def test_a_device_without_numbers_of_memory() -> None:
    table = table_of(Cost(BACKWARD, 8, 0.5, None, "measured", (8,)), free=None)
    assert " ".join(str(table).splitlines()[3].split()) == "forward + backward 500 ms 1.00 –"


def test_files(tmp_path: Path) -> None:
    table = table_of(PLAIN, DEAR)
    assert table.to_markdown().startswith("| 2,048 tokens ")
    head, first, second = table.to_csv().splitlines()
    assert head == "name,units,batch,seconds,bytes,basis,lengths,fits"
    assert first == f"forward + backward,2048,1,0.5,{100 * 2**20},extrapolated,32 64 128 256,true"
    assert second.endswith("at most,32,false")
    assert json.loads(table.save(tmp_path / "cost.json").read_text())["costs"][1]["name"] == "dear"


@pytest.mark.parametrize("tokens", ["128", [], [True], [1.5], [0], {8}])
def test_numbers_of_tokens(tokens: Any) -> None:
    with pytest.raises(BadOption, match=r"tokens.*whole number"):
        explainer().cost("random", tokens=tokens)


def test_by_default_as_many_tokens_as_the_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costing, "TOKENS", 12)
    assert explainer().cost("random", seconds=1).units == (12,)
    monkeypatch.setattr(costing, "TOKENS", 10_000)
    monkeypatch.setattr(costing, "window_of", lambda subject: 24)
    assert explainer().cost("random", seconds=1).units == (24,)
