"""How many tokens are run at once, and by what a run may be called."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.helpers import cases, evaluated
from whyformer.datasets import open_dataset
from whyformer.evaluation.examples import Item, batches, item_of
from whyformer.evaluation.journal import Journal
from whyformer.models import memory as limits
from whyformer.models.memory import CPU, Limits


def given(count: int) -> list[Item]:
    """Texts of several lengths."""
    return [item_of(cases.subject(), one) for one in evaluated.examples(evaluated.texts(count, seed=1))]


def lengths(items: Sequence[Item]) -> list[int]:
    """How many units they have."""
    return [len(item.encoded.units) for item in items]


def test_a_batch_of_texts_holds_no_more_tokens_than_it_may() -> None:
    found = list(batches(given(12), replace(CPU, traced_tokens=30), ceiling=0))
    assert sorted(item.row for batch in found for item in batch) == list(range(12))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths(batch)) <= 30
    assert any(len(batch) > 1 for batch in found)
    tokens = [len(batch) * max(lengths(batch)) for batch in found]
    assert tokens == sorted(tokens, reverse=True)
    in_order = [length for batch in sorted(map(lengths, found), reverse=True) for length in batch]
    assert in_order == sorted(in_order, reverse=True)  # neighbours are of nearly one length


def test_a_batch_holds_no_more_texts_than_it_may() -> None:
    few = replace(CPU, texts=5, traced_call=10**6)  # padding costs nothing beside another run
    sizes = [len(batch) for batch in batches(given(11), few, ceiling=0)]
    assert (len(sizes), sum(sizes)) == (3, 11)
    assert max(sizes) <= 5
    assert not list(batches([], CPU, ceiling=0))


def stretched(item: Item, times: int) -> Item:
    """A text that is so many times as long."""
    return replace(item, encoded=replace(item.encoded, units=item.encoded.units * times))


def test_batches_are_of_no_size_that_would_take_more_of_them() -> None:
    """Where tokens cut the longest off alone, as many of the others go together as may."""
    long, *short = sorted(given(12), key=lambda item: -len(item.encoded.units))
    long = stretched(long, 20)
    few = replace(CPU, texts=11, traced_tokens=11 * max(lengths(short)), traced_call=10**6)
    assert 2 * len(long.encoded.units) > few.traced_tokens
    assert [len(batch) for batch in batches([*short, long], few, ceiling=0)] == [1, 11]


def test_long_texts_stand_apart_where_padding_costs_more_than_another_run() -> None:
    """The best of all cuts is found by `perturb.engine`."""
    texts = given(8)
    texts = [stretched(text, 20) for text in texts[:5]] + texts[5:]
    padding = sum(max(lengths(texts)) - length for length in lengths(texts[5:]))
    for call, expected in ((padding + 1000, [8]), (padding - 1000, [5, 3])):
        limits = replace(CPU, traced_tokens=10**6, traced_call=call)
        assert [len(batch) for batch in batches(texts, limits, ceiling=0)] == expected


def on_gpu(monkeypatch: pytest.MonkeyPatch, memory: int, model: torch.nn.Module | None = None) -> Limits:
    """The limits of a GPU with so much memory."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=memory))
    limits._memory.cache_clear()
    found = limits.limits_of(torch.device("cuda", 0), model)
    limits._memory.cache_clear()
    return found


def test_a_gpu_with_much_memory_runs_more_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = (on_gpu(monkeypatch, memory) for memory in (limits.LARGE, limits.LARGE - 1))
    for name in ("rows", "texts", "traced_tokens"):
        assert getattr(large, name) > getattr(small, name) > getattr(CPU, name)
    assert limits.limits_of(torch.device("cpu")) == limits.limits_of(torch.device("mps")) == CPU


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        *((2**20, (512, 256, 16384)), (2**28, (512, 256, 16384))),
        *((2**30, (128, 64, 4096)), (2**40, (16, 16, 2048))),
    ],
)
def test_less_of_a_large_model_is_run_at_once(
    monkeypatch: pytest.MonkeyPatch, weights: int, expected: tuple[int, ...]
) -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(2**10, weights // 2**10, bias=False)
    found = on_gpu(monkeypatch, limits.LARGE, model)
    assert (found.rows, found.texts, found.traced_tokens) == expected
    assert limits.limits_of(torch.device("cpu"), model) == CPU


@pytest.mark.parametrize(
    ("rows", "methods", "engine", "ceiling", "expected"),
    [
        *((1200, "attcat", "local", 0, 512), (600, "attcat", "local", 0, 512), (512, "attcat", "local", 0, 256)),
        *((100, "attcat", "local", 0, 64), (20, "attcat", "local", 0, 16), (5, "attcat", "local", 0, 16)),
        *((1200, "attcat", "ray", 0, 128), (9000, "attcat", "ray", 0, 512)),
        *((1200, "attcat,occlusion", "local", 0, 128), (1200, "attcat", "local", 7, 128)),
    ],
)
def test_rows_of_a_chunk(
    monkeypatch: pytest.MonkeyPatch, rows: int, methods: str, engine: str, ceiling: int, expected: int
) -> None:
    data, plan = open_dataset(["a film"] * rows), evaluated.measuring(methods, ceiling=ceiling)
    assert plan.rows_at_once(data, engine) == CPU.rows
    monkeypatch.setitem(limits.LIMITS, "cpu", limits.LIMITS["large cuda"])
    assert plan.rows_at_once(data, engine) == expected


def test_a_run_may_be_called_otherwise(tmp_path: Path) -> None:
    with Journal.open(tmp_path, {"seed": 1, "about": {"model": "one"}}):
        pass
    with Journal.open(tmp_path, {"seed": 1, "about": {"model": "the same by another name"}}) as journal:
        assert journal.run["about"] == {"model": "one"}
