"""How many tokens are run at once, and by what a run may be called."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers import cases, evaluated
from whyformer.evaluation import examples as items
from whyformer.evaluation.journal import Journal
from whyformer.models.limits import CPU, LIMITS


def test_a_batch_of_texts_holds_no_more_tokens_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, traced_tokens=30))
    given = [items.item_of(cases.subject(), example) for example in evaluated.examples(evaluated.texts(12, seed=1))]
    found = list(items.batches(given, "cpu", ceiling=0))
    assert sorted(item.row for batch in found for item in batch) == list(range(12))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(len(item.encoded.units) for item in batch) <= 30
    assert any(len(batch) > 1 for batch in found)
    lengths = [len(item.encoded.units) for batch in found for item in batch]
    assert lengths == sorted(lengths, reverse=True)  # neighbours are of nearly one length


def test_a_run_may_be_called_otherwise(tmp_path: Path) -> None:
    with Journal.open(tmp_path, {"seed": 1, "about": {"model": "one"}}):
        pass
    with Journal.open(tmp_path, {"seed": 1, "about": {"model": "the same by another name"}}) as journal:
        assert journal.run["about"] == {"model": "one"}
