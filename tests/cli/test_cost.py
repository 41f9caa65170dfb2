"""The command cost and Explainer.cost measure what they print, and say so if they did not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import cases, choosing, dual, image_cases, questions, token_outputs
from tests.helpers.commands import Run
from whyformer import BadInput, BadOption, CostTable, Explainer
from whyformer.evaluation import cost as costing
from whyformer.models.memory import peak_memory
from whyformer.progress import listening
from whyformer.results.cost import BACKWARD, FORWARD, Cost
from whyformer.testing import _differences as differences
from whyformer.testing import state

CPU = torch.device("cpu")


def explainer(kind: str = "bert") -> Explainer:
    return Explainer(cases.subject(kind))


@pytest.mark.long
def test_the_command(run: Run) -> None:
    done = run("cost", "--tokens", "16", "--methods", "rollout,attn_lrp")
    assert done.status == 0
    heading, _, head, *rows = done.out.splitlines()
    assert heading.startswith("sentiment · BertForSequenceClassification · float32 on cpu, ")
    assert head.split() == ["16", "tokens", "time", "÷", "f+b", "memory", "÷", "f+b"]
    assert [row.split("  ")[0] for row in rows[:4]] == [FORWARD, BACKWARD, "rollout", "attn_lrp"]
    assert "not measured" not in done.out


@pytest.mark.long
def test_json(run: Run) -> None:
    flags = ("--tokens", "300,8", "--methods", "rollout", "--batch", "2", "--json")
    printed = json.loads(run("cost", *flags).out)
    assert (printed["batch"], printed["about"]["model"]) == (2, "sentiment")
    assert [(c["name"], c["units"]) for c in printed["costs"]] == [
        (name, units) for units in (8, 300) for name in (FORWARD, BACKWARD, "rollout")
    ]
    for cost in printed["costs"]:
        assert cost["seconds"] > 0
        assert cost["memory"] > 0
        assert (cost["missing"], cost["reason"]) == ("", "")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokens", "x"], "--tokens takes numbers with commas between them"),
        (["--tokens", "9" * 50], "--tokens takes numbers"),
        (["--tokens", "0"], "at least 1"),
        (["--tokens", "2"], "has at least 3"),
        (["--tokens", "1024"], "takes at most 512 tokens, found 1,024"),
        (["--batch", "0"], "1 … 10,000; found 0"),
        (["--seconds", "nan"], "seconds takes a number; found nan"),
        (["--methods", "nothing"], "there is no method 'nothing'"),
        (["--model", "pets", "--tokens", "64"], "takes images of one size, 577 units; leave it out"),
    ],
)
def test_what_cannot_be_asked_is_one_line(flags: list[str], message: str, run: Run) -> None:
    methods = () if "--methods" in flags else ("--methods", "rollout")
    done = run("cost", *methods, *flags)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_images_are_measured_at_their_own_size() -> None:
    table = Explainer(image_cases.subject()).cost("rollout,attn_lrp")
    assert table.units == (26,)
    assert "an image of 26 units" in str(table)
    assert all(cost.seconds and cost.memory for cost in table.costs)


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
    table = OTHERS[name]().cost("attn_lrp,saliency", tokens=20, batch=2)
    assert table.names == (FORWARD, BACKWARD, "attn_lrp", "saliency")
    assert all(cost.seconds for cost in table.costs)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the batches that the stock model runs."""
    seen: list[tuple[int, ...]] = []
    forward = costing._forward

    def recorded(model: Any, batch: Any) -> Any:
        seen.append(tuple(batch.tensors["input_ids"].shape))
        return forward(model, batch)

    monkeypatch.setattr(costing, "_forward", recorded)
    return seen


def test_only_the_given_lengths_are_run(shapes: list[tuple[int, ...]]) -> None:
    explainer().cost("random", tokens=[128, 9, 40, 9], batch=3)
    assert list(dict.fromkeys(shapes)) == [(3, 9), (3, 40), (3, 128)]


def test_memory_is_that_of_a_run_at_the_length() -> None:
    whole = explainer()
    model = whole.subject.model
    batch = costing._batch(whole.subject, 1, 64)
    known = [*model.parameters(), *model.buffers(), *batch.tensors.values()]
    expected = peak_memory(lambda: costing._forward(model, batch), CPU, known)
    assert whole.cost("random", tokens=64)[FORWARD, 64].memory == expected


def test_a_refusal_is_a_row_with_its_reason() -> None:
    table = explainer().cost("random,mask_lrp", tokens=8)
    cost = table["mask_lrp", 8]
    assert (cost.seconds, cost.memory, cost.missing) == (None, None, "refused")
    assert cost.reason.startswith("mask_lrp needs a head mask")
    lines = [" ".join(line.split()) for line in str(table).splitlines()]
    assert "mask_lrp – – not measured: refused" in lines
    assert any(line.startswith("mask_lrp: mask_lrp needs a head mask") for line in lines)


def test_a_method_that_runs_out_of_memory_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def explained(model: Any, spec: Any, batch: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(costing, "_explained", explained)
    table = explainer().cost("random", tokens=8)
    assert (table["random", 8].missing, table["random", 8].seconds) == ("out of memory", None)
    assert table[FORWARD, 8].seconds


def test_maps_that_cannot_fit_are_out_of_memory_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyformer.recorder.memory.free_memory", lambda device: 2**10)
    monkeypatch.setattr("whyformer.recorder.recording.MANY", 1)
    cost = explainer().cost("rollout", tokens=64, batch=10)["rollout", 64]
    assert cost.missing == "out of memory"
    assert "would take about" in cost.reason


def test_a_run_on_a_cpu_ends_before_it_takes_more_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = explainer()
    forward, backward = (whole.cost("random", tokens=64)[name, 64].memory for name in (FORWARD, BACKWARD))
    assert forward < backward
    monkeypatch.setattr(costing, "free_memory", lambda device: forward)
    table = whole.cost("random", tokens=64)
    assert (table[FORWARD, 64].missing, table[BACKWARD, 64].missing) == ("", "out of memory")


def test_the_time_limit_stops_a_run_and_all_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    forward, now = costing._forward, [0.0]

    def explained(model: Any, spec: Any, batch: Any) -> None:
        while now[0] < 1000:
            now[0] += 20.0
            forward(model, batch)

    monkeypatch.setattr(costing, "_explained", explained)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    table = explainer().cost("random,rollout", tokens=[8, 9], seconds=50)
    assert now[0] == 60.0
    missing = {(cost.name, cost.units): cost.missing for cost in table.costs}
    assert (missing.pop((FORWARD, 8)), missing.pop((BACKWARD, 8))) == ("", "")
    assert set(missing.values()) == {"time limit"}
    assert "not measured: time limit of 50 s" in str(table)


def test_no_run_is_timed_that_would_end_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now, runs = [0.0], []

    def explained(model: Any, spec: Any, batch: Any) -> None:
        runs.append(spec.label)
        now[0] += 30.0

    monkeypatch.setattr(costing, "_explained", explained)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    assert explainer().cost("random", tokens=8, seconds=59)["random", 8].missing == "time limit"
    assert runs == ["random"]
    now[0] = 0.0
    assert explainer().cost("random", tokens=8, seconds=60)["random", 8].seconds == 30.0
    assert runs == ["random"] * 3


def test_few_quick_runs_and_one_slow_run_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, durations = [0.0], [0.01, 0.03, 0.02, 0.04, 5.0]

    def call() -> None:
        now[0] += durations.pop(0)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    assert costing._fastest(call, CPU) == pytest.approx(0.01)
    durations.pop(0)
    assert costing._fastest(call, CPU) == pytest.approx(5.0)


def test_progress_counts_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[float] = []
    monkeypatch.setattr(costing, "counting", lambda name: listening(lambda done, total: reports.append(done / total)))
    explainer().cost("occlusion", tokens=[8, 9])
    assert reports == sorted(reports)
    assert {0.0, 0.5, 1 / 12} <= set(reports)
    assert max(reports) > 11 / 12


def test_the_model_is_given_back_as_it_was() -> None:
    whole = explainer()
    before = state(whole.subject.model)
    whole.cost("attcat", tokens=8)
    assert not [*differences(before, state(whole.subject.model))]


def table_of(*costs: Cost, **facts: Any) -> CostTable:
    about = {"model": "mine", "class": "Bert", "dtype": "float32", "device": "cpu", "threads": 2}
    return CostTable(costs, **{"batch": 1, "free": 2**30, "seconds": 60.0, "about": about, **facts})


PLAIN = Cost(BACKWARD, 2048, 0.5, 100 * 2**20)
FAIR = Cost("fair", 2048, 0.75, 150 * 2**20)
SLOW = Cost("slow", 2048, missing="time limit")
ODD = Cost("odd", 2048, missing="refused", reason="no attention")


def test_the_terminal() -> None:
    table = table_of(PLAIN, FAIR, SLOW, ODD, batch=4)
    lines = [" ".join(line.split()) for line in str(table).splitlines()]
    assert lines[0] == "mine · Bert · float32 on cpu, 2 threads · 1 GiB free"
    assert lines[2:7] == [
        "4 × 2,048 tokens time ÷ f+b memory ÷ f+b",
        "forward + backward 500 ms 1.00 100 MiB 1.00",
        "fair 750 ms 1.50 150 MiB 1.50",
        "slow – – not measured: time limit of 60 s",
        "odd – – not measured: refused",
    ]
    assert lines[-1] == "odd: no attention"
    assert repr(table) == "<CostTable of fair, slow, odd: 2048 tokens>"
    assert table["slow", 2048] is SLOW


def test_ratios_need_a_measured_pass() -> None:
    table = table_of(Cost(BACKWARD, 8, missing="time limit"), Cost("fair", 8, 0.5, 2**20))
    assert " ".join(str(table).splitlines()[4].split()) == "fair 500 ms 1 MiB"


def test_a_device_that_does_not_report_memory() -> None:
    table = table_of(Cost(BACKWARD, 8, 0.5, None), free=None)
    assert " ".join(str(table).splitlines()[3].split()) == "forward + backward 500 ms 1.00 –"


def test_files(tmp_path: Path) -> None:
    table = table_of(PLAIN, SLOW, ODD)
    assert table.to_markdown().startswith("| 2,048 tokens ")
    assert "not measured: refused" in table.to_markdown()
    head, first, second, third = table.to_csv().splitlines()
    assert head == "name,units,batch,seconds,bytes,missing,reason"
    assert first == f"forward + backward,2048,1,0.5,{100 * 2**20},,"
    assert second == "slow,2048,1,,,time limit,"
    assert third == "odd,2048,1,,,refused,no attention"
    assert json.loads(table.save(tmp_path / "cost.json").read_text())["costs"][1]["name"] == "slow"


@pytest.mark.parametrize("tokens", ["128", [], [True], [1.5], [0], {8}])
def test_numbers_of_tokens(tokens: Any) -> None:
    with pytest.raises(BadOption, match=r"tokens.*whole number"):
        explainer().cost("random", tokens=tokens)


def test_by_default_as_many_tokens_as_the_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costing, "TOKENS", 12)
    assert explainer().cost("random").units == (12,)
    monkeypatch.setattr(costing, "TOKENS", 10_000)
    monkeypatch.setattr(costing, "window_of", lambda subject: 24)
    assert explainer().cost("random").units == (24,)
