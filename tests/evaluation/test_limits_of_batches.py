"""How many tokens are run at once, and by what a run may be called."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers import cases, evaluated
from whyformer.evaluation.examples import Item, batches, item_of
from whyformer.evaluation.journal import Journal
from whyformer.models import limits
from whyformer.models.limits import CPU


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
    in_order = [length for batch in found for length in lengths(batch)]
    assert in_order == sorted(in_order, reverse=True)  # neighbours are of nearly one length


def test_batches_are_of_one_size() -> None:
    assert [len(batch) for batch in batches(given(11), replace(CPU, texts=5), ceiling=0)] == [4, 4, 3]
    assert not list(batches([], CPU, ceiling=0))


def test_batches_are_of_no_size_that_would_take_more_of_them() -> None:
    """Where tokens cut the longest off alone, so many of the others go together as may."""
    long, *short = sorted(given(12), key=lambda item: -len(item.encoded.units))
    long = replace(long, encoded=replace(long.encoded, units=long.encoded.units * 20))
    few = replace(CPU, texts=11, traced_tokens=11 * max(lengths(short)))
    assert 2 * len(long.encoded.units) > few.traced_tokens
    assert [len(batch) for batch in batches([*short, long], few, ceiling=0)] == [1, 11]


def test_a_gpu_with_much_memory_runs_more_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_memory", lambda device: limits.LARGE - device.index)
    large, small = (limits.limits_of(torch.device("cuda", index)) for index in (0, 1))
    assert large.rows > small.rows > CPU.rows
    assert large.texts > small.texts > CPU.texts
    assert limits.limits_of(torch.device("cpu")) == limits.limits_of(torch.device("mps")) == CPU


@pytest.mark.parametrize(("weights", "rows"), [(2**20, 512), (2**28, 512), (2**30, 128), (2**40, 16)])
def test_chunks_of_a_large_model_are_small(weights: int, rows: int) -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(2**10, weights // 2**10, bias=False)
    assert limits.LIMITS["large cuda"].rows_of(model) == rows
    assert CPU.rows_of(model) == CPU.rows == 16


def test_a_run_may_be_called_otherwise(tmp_path: Path) -> None:
    with Journal.open(tmp_path, {"seed": 1, "about": {"model": "one"}}):
        pass
    with Journal.open(tmp_path, {"seed": 1, "about": {"model": "the same by another name"}}) as journal:
        assert journal.run["about"] == {"model": "one"}
