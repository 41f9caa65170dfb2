"""What earlier versions saved is read, and goes on, with the same numbers.

`tests/data/saved` holds a journal with its table, and explanations, as they were written when all of it had version 1.
"""

import csv
import importlib.metadata
import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whyformer
from whyformer.metrics.idf import Idf

SAVED = Path(__file__).parents[1] / "data" / "saved"
METHODS = "attcat,attn_lrp,random(seed=3),stepwise(of=attn_lrp, steps=2),decoded_grad_cam"
METRICS = "aopc,log_odds,comprehensiveness(units=word),token_overlap"
WEIGHTS = Idf.bundled(smooth=True)  # those of words, then
TEXT = "the plot is thin, the jokes are stale and nobody seems to care"
NEAR = {"rtol": 0, "atol": 1e-4}  # two machines, in float32


@pytest.fixture(scope="module")
def explainer() -> whyformer.Explainer:
    return whyformer.Explainer.load("sentiment", device="cpu")


@pytest.fixture
def versions_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages say that they are those the journal was begun with: it goes on with no others."""
    opening = (SAVED / "journal.jsonl").read_text(encoding="utf-8").partition("\n")[0]
    run, here = json.loads(opening)["run"], importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: run.get(name) or here(name))


@pytest.mark.usefixtures("versions_of_then")
def test_a_journal_goes_on(explainer: whyformer.Explainer, tmp_path: Path) -> None:
    kept = (SAVED / "journal.jsonl").read_bytes()
    (tmp_path / "journal.jsonl").write_bytes(kept)
    table = evaluated(explainer, out=tmp_path)
    assert (tmp_path / "journal.jsonl").read_bytes() == kept  # nothing was measured again
    assert cells(table.to_csv()) == cells((SAVED / "table.csv").read_text(encoding="utf-8"))


def test_it_is_measured_alike_from_the_beginning(explainer: whyformer.Explainer) -> None:
    table = evaluated(explainer)
    spelled = table.to_csv().replace("of=attn_lrp, ", "")  # which went without saying, then
    saved, measured = cells((SAVED / "table.csv").read_text(encoding="utf-8")), cells(spelled)
    assert [len(row) for row in measured] == [len(row) for row in saved]
    for now, then in zip(chain(*measured), chain(*saved), strict=True):
        assert now == then or float(now) == pytest.approx(float(then), abs=1e-3)


def evaluated(explainer: whyformer.Explainer, **options: Any) -> whyformer.Table:
    chosen = {"metrics": METRICS, "ceiling": True, "idf": WEIGHTS, "progress": False, **options}
    return explainer.evaluate(SAVED / "texts.csv", METHODS, **chosen)


@pytest.mark.usefixtures("versions_of_then")
def test_words_are_weighted_otherwise_today(explainer: whyformer.Explainer, tmp_path: Path) -> None:
    """Their numbers are not those of the journal, and are not taken from it."""
    (tmp_path / "journal.jsonl").write_bytes((SAVED / "journal.jsonl").read_bytes())
    with pytest.raises(whyformer.BadOption, match="token_overlap"):
        evaluated(explainer, out=tmp_path, idf=None)


def cells(table: str) -> list[list[str]]:
    return list(csv.reader(table.splitlines()))


@pytest.mark.parametrize(
    ("file", "method"), [("explanation.json", "attn_lrp"), ("stepwise.json", "stepwise(of=attn_lrp)")]
)
def test_an_explanation_is_loaded_and_the_same_today(file: str, method: str, explainer: whyformer.Explainer) -> None:
    saved, today = whyformer.Explanation.load(SAVED / file), explainer.explain(TEXT, method)
    assert [unit.text for unit in saved.units] == [unit.text for unit in today.units]
    assert saved.method == today.method
    np.testing.assert_allclose(saved.scores, today.scores, **NEAR)
    np.testing.assert_allclose(saved.by_word().scores, today.by_word().scores, **NEAR)
    assert saved.target == today.target
    assert str(saved).splitlines()[0] == str(today).splitlines()[0]


def test_what_stepwise_saw_is_where_it_is_today(explainer: whyformer.Explainer) -> None:
    saved = whyformer.Explanation.load(SAVED / "stepwise.json")
    today = explainer.explain(TEXT, "stepwise(of=attn_lrp)")
    (then,), (now,) = saved.seen, today.seen
    assert (saved.ranks, then.hide, then.hidden_in, then.target) == (True, now.hide, now.hidden_in, now.target)
    np.testing.assert_array_equal(saved.signs, today.signs)
    np.testing.assert_allclose(then.outputs, now.outputs, **NEAR)
    np.testing.assert_allclose(then.probabilities, now.probabilities, **NEAR)
    assert saved.diagnostics.keys() == today.diagnostics.keys()
    merged = whyformer.Explanation.from_dict(in_version_1(saved.by_word()))
    np.testing.assert_array_equal(merged.signs, saved.by_word().signs)
    assert merged.seen == saved.seen
    assert saved.trust(explainer).evaluations == today.trust().evaluations


def in_version_1(explanation: whyformer.Explanation) -> dict[str, Any]:
    """As words were saved in version 1, with the steps and signs of tokens beside."""
    data = explanation.to_dict()
    (seen,), signs, count = data.pop("seen"), data.pop("signs"), len(explanation.units)
    said = {"logit": seen["outputs"], "probability": [0.5], "probabilities": seen["probabilities"]}
    steps = {"step": seen["hidden_in"][:count], "step_of_tokens": seen["hidden_in"]}
    told = {"ranks": data.pop("ranks"), "sign": signs, "sign_of_tokens": signs, "outputs": said, **steps}
    return {**data, "schema_version": 1, "diagnostics": {**data["diagnostics"], **told}}


def test_what_was_seen_of_an_answer_stays_where_it_was(explainer: whyformer.Explainer) -> None:
    """What was said of its start and of its end was added up in version 1: it cannot be told apart."""
    data = in_version_1(explainer.explain(TEXT, "stepwise(of=attn_lrp)"))
    told = data["diagnostics"]
    told |= {"step": [told["step"]] * 2, "sign": [told["sign"], [0] * len(told["sign"])]}
    loaded = whyformer.Explanation.from_dict(data)
    assert loaded.seen == ()
    assert loaded.signs is not None
    assert loaded.signs.tolist() == told["sign"][0]
    assert loaded.diagnostics["outputs"] == told["outputs"]


@pytest.mark.parametrize(
    ("diagnostics", "field"),
    [
        ({"step": [1]}, "diagnostics.step"),
        ({"sign": "none"}, "diagnostics.sign"),
        ({"outputs": {"logit": 3}}, "seen[0].outputs"),
        ({"outputs": {"logit": [1.0], "probabilities": 3}}, "seen[0].probabilities"),
        ({"outputs": {"logit": [1.0], "probabilities": [3]}}, "seen[0].probabilities[0]"),
        ({"outputs": {"logit": [1.0]}}, "seen[0].hidden_in"),
    ],
)
def test_a_damaged_file_of_version_1_is_refused(diagnostics: dict[str, Any], field: str) -> None:
    data = json.loads((SAVED / "stepwise.json").read_text(encoding="utf-8"))
    data["diagnostics"] |= diagnostics
    with pytest.raises(whyformer.BadInput, match=re.escape(f"damaged or not complete: '{field}'")):
        whyformer.Explanation.from_dict(data)


def test_a_method_of_ones_own_keeps_its_diagnostics() -> None:
    data = json.loads((SAVED / "stepwise.json").read_text(encoding="utf-8"))
    loaded = whyformer.Explanation.from_dict({**data, "method": "mine"})
    assert loaded.diagnostics == data["diagnostics"]
    assert (loaded.seen, loaded.signs, loaded.ranks) == ((), None, False)


def test_a_comparison_is_loaded(explainer: whyformer.Explainer) -> None:
    saved = whyformer.Comparison.load(SAVED / "comparison.json")
    today = explainer.compare(TEXT, ["attcat", "attn_lrp", "stepwise(of=attn_lrp, steps=2)"])
    for then, now in zip(saved, today, strict=True):
        assert then.method == now.method
        np.testing.assert_allclose(then.scores, now.scores, **NEAR)
