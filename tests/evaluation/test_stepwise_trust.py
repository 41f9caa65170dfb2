"""Trust in an explanation by `stepwise`: what it saw on its way is not run again, and every number stays the same."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.cases import PAIR, TEXTS, subject
from whyformer import Explainer, Explanation, Trust
from whyformer.inputs.input import TensorInput
from whyformer.perturb import Outcomes

LONG = TEXTS[2]


def explained(text: Any = LONG, **options: Any) -> Explanation:
    return Explainer(subject()).explain(text, "stepwise", target=1, **options)


def without_reuse(e: Explanation) -> Trust:
    """The same order, and nothing that says what was seen."""
    return replace(e, seen=()).trust()


def assert_same(found: Trust, expected: Trust, within: float = 1e-9) -> None:
    assert found.aopc == pytest.approx(expected.aopc, abs=within)
    assert list(found.random) == pytest.approx(list(expected.random), abs=within)
    assert found.ceiling == pytest.approx(expected.ceiling, abs=within)
    assert (found.units, found.kind, found.target) == (expected.units, expected.kind, expected.target)


@pytest.mark.parametrize("steps", [1, 3, 5, 10, 40])
@pytest.mark.parametrize("text", [LONG, PAIR, "a bad film"], ids=["text", "pair", "short"])
def test_numbers_are_those_of_a_run_without_reuse(text: Any, steps: int) -> None:
    e = explained(text, steps=steps)
    assert_same(e.trust(), without_reuse(e))


@pytest.mark.parametrize(
    "options", [{"units": "word"}, {"report": "drop"}, {"hide": "mask"}, {"of": "rollout"}], ids=str
)
def test_numbers_are_the_same_however_it_was_explained(options: dict[str, Any]) -> None:
    e = explained(**options)
    assert_same(e.trust(), without_reuse(e))
    assert_same(e.by_word().trust(), without_reuse(e.by_word()))


def rows_run(e: Explanation, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The inputs that `trust` runs the model on."""
    run: list[bytes] = []
    ran = Outcomes._run
    monkeypatch.setattr(
        Outcomes, "_run", lambda self, batch: run.extend(r.key for r in batch.inputs) or ran(self, batch)
    )
    _ = e.trust()
    monkeypatch.undo()
    return run


@pytest.mark.parametrize(("steps", "covered"), [(10, 9), (5, 4), (2, 1), (3, 0), (1, 0)])
def test_what_was_seen_is_not_run_again(steps: int, covered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 units the counts are 2, 4, … 20; of 3 steps these are 7, 13 and 20, so that only the last is on the way.

    The last is run all the same: it tells whether this is the run that was seen.
    """
    e = explained("the film is a fine film is the film fine is a film the bad film a film fine bad", steps=steps)
    assert len(e.ranked) == 20
    seen = rows_run(replace(e), monkeypatch)
    whole = rows_run(replace(e, seen=()), monkeypatch)
    saved = set(whole) - set(seen)
    assert set(seen) <= set(whole)
    assert len(seen) == len(whole) - len(saved)
    assert len(saved) == covered
    literal = subject().tokenizer(e.texts[0])
    expected = set()
    for step in range(1, steps):
        kept = [n for n, own in enumerate(e.seen[0].hidden_in) if not 0 < own <= step]
        row = TensorInput(
            {name: np.array([literal[name][n] for n in kept]) for name in ("input_ids", "attention_mask")}
        )
        row.tensors["token_type_ids"] = np.zeros_like(row.tensors["input_ids"])  # type: ignore[index]
        expected.add(row.key)
    assert saved == expected & set(whole)


def test_another_order_is_not_taken_for_the_one_that_was_seen() -> None:
    e = explained(steps=10)
    turned = replace(e, scores=-np.asarray(e.scores))
    assert_same(turned.trust(), without_reuse(turned))
    assert turned.trust().aopc != pytest.approx(e.trust().aopc)


def test_masked_steps_are_not_taken_for_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    e = explained(hide="mask", steps=10)
    assert len(rows_run(replace(e), monkeypatch)) == len(rows_run(replace(e, seen=()), monkeypatch))


@pytest.mark.long
def test_a_saved_explanation_is_trusted_alike(tmp_path: Path) -> None:
    e = explained(steps=10)
    e.save(tmp_path / "e.json")
    loaded = Explanation.load(tmp_path / "e.json")
    own = Explainer(subject())
    assert_same(loaded.trust(own), e.trust())
    assert loaded.trust(own).evaluations == e.trust().evaluations < without_reuse(e).evaluations
    assert_same(pickle.loads(pickle.dumps(explained(steps=10))).trust(own), e.trust())


def test_what_another_run_saw_is_not_taken_over() -> None:
    """A model that says something else of the whole text is asked about everything."""
    e = explained(steps=10)
    model = copy.deepcopy(subject().model)
    with torch.no_grad():
        model.classifier.bias += torch.tensor([0.0, 1e-4, 0.0], dtype=torch.float64)
    other = Explainer(replace(subject(), model=model))
    found, expected = replace(e).trust(other), replace(e, seen=()).trust(other)
    assert_same(found, expected)
    assert found.evaluations == expected.evaluations


def test_two_classes_of_one_text_measured_together() -> None:
    explainer = Explainer(subject())
    both = [explainer.explain(LONG, "stepwise", target=target, steps=10) for target in (0, 1)]
    for found, e in zip(explainer.trust(both), both, strict=True):
        assert_same(found, without_reuse(e))


@pytest.mark.long
def test_the_bundled_model_in_float32() -> None:
    explainer = Explainer.load("sentiment")
    e = explainer.explain("a gorgeous, witty film that didn't once bore me", "stepwise", steps=10)
    assert_same(e.trust(), without_reuse(e), 1e-6)
    assert e.trust().evaluations < without_reuse(e).evaluations
