"""ALTI decomposes as many queries at a time as memory allows, and none is left out."""

import pytest

import whyformer
from tests.helpers import families
from whyformer.methods import decomposition
from whyformer.rounding import close


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_how_many_queries_are_decomposed_at_a_time_does_not_matter(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = families.build("bert"), families.batch()
    expected = whyformer.attribute(model, inputs, "alti")
    monkeypatch.setattr(decomposition, "rows_at_once", lambda *_: rows)
    assert close(whyformer.attribute(model, inputs, "alti"), expected)
