"""What earlier versions saved is read, and goes on, with the same numbers.

`tests/data/saved` holds a journal with its table, and explanations, as they were written when all of it had version 1.
"""

import csv
import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import whyformer

SAVED = Path(__file__).parents[1] / "data" / "saved"
METHODS = "attcat,attn_lrp,random(seed=3),stepwise(steps=2),decoded_grad_cam"
METRICS = "aopc,log_odds,comprehensiveness(units=word),token_overlap"
TEXT = "the plot is thin, the jokes are stale and nobody seems to care"
NEAR = {"rtol": 0, "atol": 1e-4}  # two machines, in float32


@pytest.fixture(scope="module")
def explainer() -> whyformer.Explainer:
    return whyformer.Explainer.load("sentiment", device="cpu")


def test_a_journal_goes_on(explainer: whyformer.Explainer, tmp_path: Path) -> None:
    kept = (SAVED / "journal.jsonl").read_bytes()
    run = json.loads(kept.splitlines()[0])["run"]
    here = {"torch": torch.__version__, "transformers": transformers.__version__}
    if any(run[package] != version for package, version in here.items()):
        pytest.skip("journals go on with the versions that they were begun with")
    (tmp_path / "journal.jsonl").write_bytes(kept)
    table = explainer.evaluate(
        SAVED / "texts.csv", METHODS, metrics=METRICS, ceiling=True, out=tmp_path, progress=False
    )
    assert (tmp_path / "journal.jsonl").read_bytes() == kept  # nothing was measured again
    assert cells(table.to_csv()) == cells((SAVED / "table.csv").read_text(encoding="utf-8"))


def test_it_is_measured_alike_from_the_beginning(explainer: whyformer.Explainer) -> None:
    table = explainer.evaluate(SAVED / "texts.csv", METHODS, metrics=METRICS, ceiling=True, progress=False)
    saved, measured = cells((SAVED / "table.csv").read_text(encoding="utf-8")), cells(table.to_csv())
    assert [len(row) for row in measured] == [len(row) for row in saved]
    for now, then in zip(chain(*measured), chain(*saved), strict=True):
        assert now == then or float(now) == pytest.approx(float(then), abs=1e-3)


def cells(table: str) -> list[list[str]]:
    return list(csv.reader(table.splitlines()))


@pytest.mark.parametrize(("file", "method"), [("explanation.json", "auto"), ("stepwise.json", "stepwise(steps=3)")])
def test_an_explanation_is_loaded_and_the_same_today(file: str, method: str, explainer: whyformer.Explainer) -> None:
    saved, today = whyformer.Explanation.load(SAVED / file), explainer.explain(TEXT, method)
    assert [unit.text for unit in saved.units] == [unit.text for unit in today.units]
    assert saved.method == today.method
    np.testing.assert_allclose(saved.scores, today.scores, **NEAR)
    np.testing.assert_allclose(saved.by_word().scores, today.by_word().scores, **NEAR)
    assert saved.target == today.target
    assert str(saved).splitlines()[0] == str(today).splitlines()[0]


def test_a_comparison_is_loaded(explainer: whyformer.Explainer) -> None:
    saved = whyformer.Comparison.load(SAVED / "comparison.json")
    today = explainer.compare(TEXT, ["attcat", "attn_lrp", "stepwise(steps=2)"])
    for then, now in zip(saved, today, strict=True):
        assert then.method == now.method
        np.testing.assert_allclose(then.scores, now.scores, **NEAR)
