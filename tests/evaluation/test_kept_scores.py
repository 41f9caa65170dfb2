"""Scores that are kept beside the numbers: they come back as they were, and nothing is measured twice for them."""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import cases, evaluated
from whyformer import Comparison, Explainer
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation import chunk as chunks
from whyformer.evaluation.evaluate import evaluate
from whyformer.explain.folder import kept_examples
from whyformer.metrics.metric import MetricSpec
from whyformer.prediction import Prediction
from whyformer.results.explanations import KEPT
from whyformer.tolerance import close

METHODS = "attcat,rollout,stepwise(of=layer_lrp, steps=2)"
NAMES = ["attcat", "rollout", "stepwise(of=layer_lrp, steps=2)"]


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer(cases.subject())


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data set, and the folder of its evaluation."""
    folder = tmp_path_factory.mktemp("kept")
    data = evaluated.data(folder)
    evaluated.run(data, folder / "out", METHODS, keep_scores=True)
    return data, folder / "out"


def texts_and_labels(data: Path) -> list[tuple[str, int]]:
    lines = data.read_text().splitlines()[1:]
    return [(text, int(label)) for text, label in (line.rsplit(",", 1) for line in lines)]


def records(folder: Path) -> list[tuple[int, str, str]]:
    return [(r.row, r.method, r.metric) for chunk in evaluated.journalled(folder) for r in chunk.records]


def same(one: Comparison, other: Comparison) -> None:
    for e, expected in zip(one, other, strict=True):
        assert [u.text for u in e.units] == [u.text for u in expected.units]
        assert [(u.span, u.part, u.special) for u in e.units] == [(u.span, u.part, u.special) for u in expected.units]
        assert close(torch.tensor(e.scores).float(), torch.tensor(expected.scores).float())
        assert (e.texts, e.signed, e.ranks, e.target) == (
            expected.texts,
            expected.signed,
            expected.ranks,
            expected.target,
        )
        assert (e.signs is None) == (expected.signs is None)
        assert e.signs is None or e.signs.tolist() == expected.signs.tolist()
        assert e.prediction.label == expected.prediction.label
        np.testing.assert_allclose(e.prediction.logits, expected.prediction.logits, rtol=1e-5)


@pytest.mark.long
def test_what_comes_back_is_what_compare_shows(kept: tuple[Path, Path], explainer: Explainer) -> None:
    data, folder = kept
    examples = list(kept_examples(folder))
    rows = texts_and_labels(data)
    assert [example.row for example in examples] == list(range(len(rows)))
    for example, (text, label) in zip(examples, rows, strict=True):
        expected = explainer.compare(text, NAMES)
        assert [e.method for e in example.explanations] == NAMES
        same(example.explanations, expected)
        assert example.gold == explainer.subject.labels[label]
        assert example.right == (expected[0].prediction.index == label)
    again = Comparison.load(examples[0].explanations.save(folder.parent / "c.json"))
    assert str(again) == str(examples[0].explanations)


def test_pairs_come_back(explainer: Explainer, tmp_path: Path) -> None:
    data = evaluated.written(tmp_path / "pairs.csv", [(*cases.PAIR, 0)], ("premise", "hypothesis", "label"))
    evaluate(explainer.subject, data, "attcat", evaluated.FALL, out=tmp_path / "out", keep_scores=True, progress=False)
    (example,) = kept_examples(tmp_path / "out")
    same(example.explanations, explainer.compare(cases.PAIR, ["attcat"]))


def test_answers_come_back(tmp_path: Path) -> None:
    asking, context = Explainer(evaluated.answering()), "the actors like a fine film, and it is not bad at all"
    rows = [
        {"question": "what is fine?", "context": context, "answers": {"text": ["film"], "answer_start": [23]}},
        {"question": "what is bad?", "context": context, "answers": {"text": [], "answer_start": []}},
    ]
    evaluate(asking.subject, rows, "attcat", "precision_at_k", out=tmp_path, keep_scores=True, progress=False)
    for example, row, gold in zip(kept_examples(tmp_path), rows, ("film", "(no answer)"), strict=True):
        expected = asking.compare(question=row["question"], context=row["context"], methods="attcat")
        same(example.explanations, expected)
        assert example.explanations[0].prediction.span == expected[0].prediction.span
        assert (example.gold, example.right) == (gold, None)
    with pytest.raises(BadInput, match="has a gold label: ask for 'all'"):
        list(kept_examples(tmp_path, "wrong"))


def test_which_examples(kept: tuple[Path, Path]) -> None:
    every = list(kept_examples(kept[1]))
    assert [e.row for e in kept_examples(kept[1], 3)] == [0, 1, 2]
    assert len(list(kept_examples(kept[1], 1000))) == len(every)
    wrong = [e.row for e in kept_examples(kept[1], "wrong")]
    assert wrong == [e.row for e in every if e.right is False]
    assert 0 < len(wrong) < len(every)
    for bad in ("right", 0, -1, True, None):
        with pytest.raises(BadOption, match="examples are 'all', 'wrong', or a number"):
            list(kept_examples(kept[1], bad))


def test_the_table_and_the_keys_are_those_without(kept: tuple[Path, Path], tmp_path: Path) -> None:
    data, folder = kept
    evaluated.run(data, tmp_path / "out", METHODS)
    for name in evaluated.TABLES:
        assert evaluated.alike((tmp_path / "out" / name).read_text(), (folder / name).read_text())
    plain = {record.key for chunk in evaluated.journalled(tmp_path / "out") for record in chunk.records}
    both = {record.key: record for chunk in evaluated.journalled(folder) for record in chunk.records}
    assert plain == {key for key, record in both.items() if record.metric != KEPT}
    assert len(both) == len(plain) + 3 * 12
    assert not [
        facts for chunk in evaluated.journalled(tmp_path / "out") for facts in chunk.examples if "kept" in facts
    ]


def test_scores_that_are_missing_are_computed_and_nothing_is_measured(
    kept: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, folder = kept
    evaluated.run(data, tmp_path, METHODS)
    before = records(tmp_path)
    with pytest.raises(BadInput, match=r"there are no scores in .*: run `whyformer evaluate … --keep-scores --out"):
        list(kept_examples(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(MetricSpec, "__call__", pytest.fail)
        evaluated.run(data, tmp_path, METHODS, keep_scores=True)
    added = records(tmp_path)[len(before) :]
    assert added == [(row, name, KEPT) for row in range(12) for name in NAMES]
    for one, other in zip(kept_examples(tmp_path), kept_examples(folder), strict=True):
        same(one.explanations, other.explanations)
    journal = (tmp_path / evaluated.JOURNAL).read_bytes()
    for keep in (True, False):  # all is there
        evaluated.run(data, tmp_path, METHODS, keep_scores=keep)
    assert (tmp_path / evaluated.JOURNAL).read_bytes() == journal


def test_methods_that_come_later_stand_below(kept: tuple[Path, Path], tmp_path: Path) -> None:
    data, _ = kept
    evaluated.run(data, tmp_path, "rollout", keep_scores=True)
    evaluated.run(data, tmp_path, "grads")
    assert [e.method for e in next(kept_examples(tmp_path)).explanations] == ["rollout"]
    evaluated.run(data, tmp_path, "grads,attcat", keep_scores=True)
    assert [e.method for e in next(kept_examples(tmp_path)).explanations] == ["rollout", "grads", "attcat"]


def test_ctrl_c_loses_one_chunk(kept: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, folder = kept
    calls: list[int] = []
    real = chunks.ChunkRun.measure

    def interrupted(run: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(run)

    with monkeypatch.context() as patched:
        patched.setattr(chunks.ChunkRun, "measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            evaluated.run(data, tmp_path, METHODS, keep_scores=True)
    assert [e.row for e in kept_examples(tmp_path)] == list(range(8))
    evaluated.run(data, tmp_path, METHODS, keep_scores=True)
    assert sorted(records(tmp_path)) == sorted(records(folder))


def test_what_a_method_refuses_is_told(tmp_path: Path) -> None:
    def picky(prediction: Prediction) -> torch.Tensor:
        """Explains short texts only."""
        if prediction.padding.shape[1] > 8:
            raise BadInput("too long for me")
        return evaluated.in_order(prediction)

    def huge(prediction: Prediction) -> torch.Tensor:
        """Scores that few numbers can hold."""
        return 1e200 * evaluated.in_order(prediction)

    data = evaluated.data(tmp_path)
    with evaluated.own_registry():
        evaluated.registered(picky)
        evaluated.registered(huge)
        evaluated.run(data, tmp_path / "out", "picky,huge,rollout", keep_scores=True)
        examples = list(kept_examples(tmp_path / "out"))
    refused = {reason for e in examples for _, reason in e.explanations.refused}
    assert refused == {"too long for me", *(r for r in refused if re.match("scores of up to .*e.2.. are too large", r))}
    assert len(refused) > 1
    assert {tuple(e.method for e in one.explanations) for one in examples} == {("rollout",), ("picky", "rollout")}


def test_without_a_folder_there_is_nowhere_to_keep_them(kept: tuple[Path, Path]) -> None:
    with pytest.raises(BadOption, match=r"keep_scores: scores are kept in the journal.*give out="):
        evaluated.run(kept[0], None, "rollout", keep_scores=True)


def test_the_scores_of_changed_code_are_refused(tmp_path: Path) -> None:
    def made(factor: float) -> Any:
        def mine(prediction: Prediction) -> torch.Tensor:
            """Mine."""
            return factor * evaluated.in_order(prediction)

        return mine

    data = evaluated.data(tmp_path)
    with evaluated.own_registry():
        evaluated.registered(made(1.0))
        evaluated.run(data, tmp_path / "out", "mine", evaluated.FALL, keep_scores=True)
    with evaluated.own_registry():
        evaluated.registered(made(2.0))
        with pytest.raises(BadOption, match=r"\(scores\) of mine is in .* already, measured in another way"):
            evaluated.run(data, tmp_path / "out", "mine", evaluated.CHANGE, keep_scores=True)


def test_a_text_costs_few_bytes(kept: tuple[Path, Path], tmp_path: Path) -> None:
    data, folder = kept
    evaluated.run(data, tmp_path, METHODS)
    sizes = [(place / evaluated.JOURNAL).stat().st_size for place in (folder, tmp_path)]
    units = sum(len(e.explanations[0].units) for e in kept_examples(folder))
    assert sizes[0] - sizes[1] < 12 * (3 * 200 + 400) + units * (3 * 9 + 20)


# Damage


def changed(folder: Path, target: Path, change: Any) -> Path:
    """The journal with each chunk changed, and sealed anew: what is wrong is found by what is read."""
    opening, *lines = (folder / evaluated.JOURNAL).read_text().splitlines()
    sealed, written = "", [opening]
    for line in lines:
        facts = json.loads(line)
        change(facts)
        checksum = facts.pop("checksum", None)
        text = json.dumps(facts, separators=(",", ":"))
        if checksum is None:
            sealed += f"{text}\n"
            written.append(text)
        else:
            sealed += text[:-1]
            written.append(f'{text[:-1]},"checksum":"{sha256(sealed.encode()).hexdigest()}"}}')
            sealed = ""
    target.mkdir()
    (target / evaluated.JOURNAL).write_text("\n".join(written) + "\n")
    return target


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", 2, "'kept.version' is 2, not a whole number of 1 … 1"),
        ("texts", "the", "'kept.texts' is 'the', not a list"),
        ("units", [[1, 2, 3, 4]], r"'kept.units\[0\]' has 4 entries"),
        ("units", [[-1, 2]], r"'kept.units\[0\]\[0\]' is -1"),
        ("units", [[0, 900]], "'scores' has .* numbers for 1 units"),
        ("units", None, "'kept.units' is None"),
        ("prediction", {}, "damaged or not complete: 'prediction.label' is missing|target.name"),
        ("window", {"number": 1}, "'kept.window.count' is missing"),
    ],
)
def test_texts_that_are_damaged(kept: tuple[Path, Path], tmp_path: Path, field: str, value: Any, message: str) -> None:
    def change(line: dict[str, Any]) -> None:
        for facts in line.get("commit", {}).get("examples", ()):
            facts["kept"][field] = value

    folder = changed(kept[1], tmp_path / "changed", change)
    with pytest.raises(BadInput, match=message):
        list(kept_examples(folder))


@pytest.mark.parametrize(
    ("detail", "message"),
    [
        (None, "row 0, attcat is damaged, it is None, not an object"),
        ({"scores": "AAAA", "signed": True}, "'scores' ends within a number"),
        ({"scores": "AAAAAA==", "signed": True}, "'scores' has 1 numbers for"),
        ({"scores": "%%", "signed": True}, "'scores' is not base64"),
        ({"scores": "AAAAAA=="}, "'signed' is missing"),
    ],
)
def test_scores_that_are_damaged(kept: tuple[Path, Path], tmp_path: Path, detail: Any, message: str) -> None:
    def change(line: dict[str, Any]) -> None:
        if line.get("metric") == KEPT:
            line["detail"] = detail

    folder = changed(kept[1], tmp_path / "changed", change)
    with pytest.raises(BadInput, match=message):
        list(kept_examples(folder))


def test_nothing_but_the_change_is_refused(kept: tuple[Path, Path], tmp_path: Path) -> None:
    folder = changed(kept[1], tmp_path / "changed", lambda line: None)
    assert len(list(kept_examples(folder))) == 12


def test_scores_that_are_no_numbers(kept: tuple[Path, Path], tmp_path: Path) -> None:
    def change(line: dict[str, Any]) -> None:
        if line.get("metric") == KEPT:
            line["detail"]["scores"] = line["detail"]["scores"].replace("A", "/")  # among them what is no number

    folder = changed(kept[1], tmp_path / "changed", change)
    with pytest.raises(BadInput, match=r"damaged or not complete: 'units\[\d+\].score'"):
        list(kept_examples(folder))
