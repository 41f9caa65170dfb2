"""Documents that are longer than the window: measured by the scores that `explain(windows="merge")` gives."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau

from tests.helpers import cases, evaluated
from tests.helpers.commands import Run
from tests.helpers.questions import CONTEXT, QUESTION, answering, tokenizer
from whyformer import BadOption, Explainer, Explanation
from whyformer.evaluation.evaluate import evaluate
from whyformer.explain.folder import kept_examples
from whyformer.inputs.batch import encode
from whyformer.inputs.windows import Windows
from whyformer.methods.method import MethodSpec, Scores
from whyformer.models import memory
from whyformer.prediction import Prediction
from whyformer.results.evaluation import Record
from whyformer_papers.words.overlap import Counting

DOCUMENTS = [" ".join(cases.TEXTS * 8), " ".join(cases.TEXTS[::-1] * 5), cases.TEXTS[0]]
METRICS = "token_f1(k=3,9),kendall_tau,token_overlap"
LONG: dict[str, Any] = {"windows": "merge", "overlap": 7}


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer(cases.subject())


def rows(documents: list[str]) -> list[dict[str, Any]]:
    """With the third and the fourth word from the end, and the second, as evidence."""
    found = []
    for number, text in enumerate(documents):
        end = len(text.split())
        found.append(
            {"text": text, "label": number, "evidence_start_token": [1, end - 4], "evidence_end_token": [2, end - 2]}
        )
    return found


@pytest.fixture(scope="module")
def measured(explainer: Explainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("merged")
    options: dict[str, Any] = {**LONG, "out": folder, "keep_scores": True, "progress": False}
    evaluate(explainer.subject, rows(DOCUMENTS), "attcat,attn_lrp,rollout", METRICS, **options)
    return folder


def record(folder: Path, row: int, method: str, metric: str) -> Record:
    found = evaluated.found(evaluated.journalled(folder))
    return found[row, method, metric]


def explained(explainer: Explainer, row: int, method: str, **options: Any) -> Explanation:
    return explainer.explain(DOCUMENTS[row], method, **LONG, **options)


def test_the_documents_are_long(explainer: Explainer) -> None:
    wholes = [encode(explainer.subject, text, whole=True) for text in DOCUMENTS]
    counts = [len(Windows.of(overlap=7).parts(explainer.subject, whole)) for whole in wholes]
    assert counts[0] > counts[1] >= 2
    assert counts[2] == 1


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("method", ["attcat", "attn_lrp"])
def test_correlation_of_classes(explainer: Explainer, measured: Path, row: int, method: str) -> None:
    e = explained(explainer, row, method)
    shown = [place for place, unit in enumerate(e.units) if not unit.special]
    taus = []
    for index in set(range(len(e.prediction.labels))) - {e.prediction.index}:
        other = explained(explainer, row, method, target=index)
        taus.append(kendalltau(e.scores[shown], other.scores[shown]).statistic)
    assert record(measured, row, method, "kendall_tau").value == pytest.approx(np.mean(taus), abs=1e-3)


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("method", ["attcat", "rollout"])
def test_agreement_with_people(explainer: Explainer, measured: Path, row: int, method: str) -> None:
    e, words = explained(explainer, row, method, target=row), DOCUMENTS[row].split()
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    highest = [
        max(s for s, u in zip(e.scores, e.units, strict=True) if u.span and u.span[0] < end and first < u.span[1])
        for first, end in spans
    ]
    order = sorted(range(len(words)), key=lambda place: -highest[place])
    evidence = {1, len(words) - 4, len(words) - 3}
    values = [2 * len(evidence & set(order[:size])) / (len(order[:size]) + len(evidence)) for size in (3, 9)]
    assert record(measured, row, method, "token_f1(k=3,9)").value == pytest.approx(np.mean(values))


@pytest.mark.parametrize("row", [0, 1, 2])
def test_words_of_all_windows_are_summed(explainer: Explainer, measured: Path, row: int) -> None:
    e = explained(explainer, row, "attcat")
    assert e.prediction.index is not None
    expected = Counting().record(e.prediction.index, e.units, e.texts, e.scores)
    found = record(measured, row, "attcat", "token_overlap").detail
    assert (found["class"], [w for w, _ in found["words"]]) == (
        expected["class"],
        [w for w, _ in expected["words"]],
    )
    scores = [score for _, score in expected["words"]]
    assert [s for _, s in found["words"]] == pytest.approx(scores, abs=1e-6 * max(map(abs, scores)))


def test_what_is_said_is_said_of_the_whole_and_kept(explainer: Explainer, measured: Path) -> None:
    facts = {example["row"]: example for chunk in evaluated.journalled(measured) for example in chunk.examples}
    for row, example in enumerate(kept_examples(measured)):
        e = explained(explainer, row, "attcat")
        assert facts[row]["predicted"] == e.prediction.index
        assert facts[row]["probability"] == pytest.approx(e.prediction.probability, abs=1e-6)
        assert "dropped" not in facts[row]
        again = example.explanations[0]
        assert [unit.text for unit in again.units] == [unit.text for unit in e.units]
        np.testing.assert_allclose(again.scores, e.scores, rtol=0, atol=1e-5 * np.abs(e.scores).max())
        assert again.diagnostics.get("windows", 1) == e.diagnostics["windows"]


def test_a_document_that_fits_has_the_numbers_and_the_keys_of_a_text(explainer: Explainer, tmp_path: Path) -> None:
    short = rows([*cases.TEXTS[::2], cases.TEXTS[0]])
    tables = []
    for windows in ("cut", "merge"):
        options: dict[str, Any] = {"windows": windows, "out": tmp_path / windows, "progress": False}
        tables.append(evaluate(explainer.subject, short, "attcat,rollout", METRICS, **options))
    assert evaluated.alike(tables[0].to_csv(), tables[1].to_csv())
    keys = [{r.key for c in evaluated.journalled(tmp_path / w) for r in c.records} for w in ("cut", "merge")]
    assert keys[0] == keys[1]


def test_a_long_document_has_other_keys(explainer: Explainer, measured: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"out": tmp_path, "progress": False}
    evaluate(explainer.subject, rows(DOCUMENTS), "attcat", "kendall_tau", **options)
    for row, same in ((0, False), (1, False), (2, True)):
        cut, merged = (record(folder, row, "attcat", "kendall_tau") for folder in (tmp_path, measured))
        assert (cut.key == merged.key) is same
    with pytest.raises(BadOption, match=r"measured in another way .*window"):
        evaluate(explainer.subject, rows(DOCUMENTS), "attcat", "kendall_tau", **options, **LONG)


def test_methods_that_rank_are_refused_for_long_documents(explainer: Explainer, tmp_path: Path) -> None:
    evaluate(explainer.subject, rows(DOCUMENTS), "stepwise,attcat", "token_f1", out=tmp_path, progress=False, **LONG)
    for row, refused in ((0, True), (1, True), (2, False)):
        reason = record(tmp_path, row, "stepwise(of=layer_lrp)", "token_f1").refused
        assert ("ranks the units of one window" in (reason or "")) is refused
        assert record(tmp_path, row, "attcat", "token_f1").refused is None


def test_what_hides_is_refused_by_name_before_anything_is_run(
    explainer: Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(explainer.subject.model), "forward", pytest.fail)
    for metrics, named in (("kendall_tau,aopc(hide=mask)", r"aopc\(hide=mask\)"), ("sufficiency", "sufficiency")):
        with pytest.raises(
            BadOption, match=rf"^{named} hides units, .*leave windows='merge' out, or measure .*token_f1"
        ):
            evaluate(explainer.subject, rows(DOCUMENTS), "attcat", metrics, out=tmp_path / "out", **LONG)
    assert not (tmp_path / "out").exists()
    asking = Explainer(answering(), tokenizer()).subject
    asked = [{"question": QUESTION, "context": CONTEXT, "answers": {"text": ["Denver"], "answer_start": [0]}}]
    with pytest.raises(BadOption, match=r"windows='merge' is for models that give one output.*answers questions"):
        evaluate(asking, asked, "attcat", "precision_at_k", windows="merge")
    with pytest.raises(BadOption, match=r"windows takes cut \| merge; found 'glue'"):
        evaluate(explainer.subject, rows(DOCUMENTS), windows="glue")  # type: ignore[arg-type]


def test_all_metrics_are_those_that_hide_nothing(explainer: Explainer) -> None:
    table = evaluate(explainer.subject, rows(DOCUMENTS), "attcat", "all", progress=False, **LONG)
    assert {"kendall_tau", "token_f1", "token_overlap"} <= set(table.metrics)
    assert "aopc" not in table.metrics


def test_several_runs_of_windows_are_one(
    explainer: Explainer, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many windows at a time as tokens are allowed: one, if fewer."""
    monkeypatch.setattr(memory, "CPU", few := replace(memory.CPU, traced_tokens=100))
    monkeypatch.setitem(memory.LIMITS, "cpu", few)
    evaluate(explainer.subject, rows(DOCUMENTS), "attcat", METRICS, out=tmp_path, progress=False, **LONG)
    for row in range(3):
        one, other = (record(folder, row, "attcat", "kendall_tau") for folder in (tmp_path, measured))
        assert one.value == pytest.approx(other.value, abs=1e-3)


def test_a_document_is_explained_by_fewer_windows_at_once_where_memory_is_short(
    explainer: Explainer, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, sizes = MethodSpec.__call__, list[int]()

    def short(self: MethodSpec, prediction: Prediction) -> Scores:
        sizes.append(len(prediction.padding))
        if sizes[-1] > 1:
            raise torch.OutOfMemoryError("says the test")
        return call(self, prediction)

    monkeypatch.setattr(MethodSpec, "__call__", short)
    evaluate(explainer.subject, rows(DOCUMENTS[:1]), "attcat", METRICS, out=tmp_path, progress=False, **LONG)
    assert sizes[0] > 1
    assert sizes.count(sizes[0]) == 1  # other classes begin with fewer
    for metric in ("kendall_tau", "token_f1(k=3,9)"):
        one, other = (record(folder, 0, "attcat", metric) for folder in (tmp_path, measured))
        assert one.value == pytest.approx(other.value, abs=1e-3)
        assert one.curve == pytest.approx(other.curve, abs=1e-3)


def test_the_command(explainer: Explainer, run: Run, tmp_path: Path) -> None:
    explainer.subject.model.save_pretrained(tmp_path / "model")
    explainer.subject.tokenizer.save_pretrained(tmp_path / "model")
    data = evaluated.written(tmp_path / "texts.csv", [(text, n) for n, text in enumerate(DOCUMENTS)])
    asked = ("evaluate", "--model", tmp_path / "model", "--data", data, "--methods", "attcat", "--windows", "merge")
    refused = run(*asked)
    assert (refused.status, "aopc hides units" in refused.err) == (2, True)
    done = run(*asked, "--metrics", "kendall_tau", "--overlap", 7)
    assert (done.status, "kendall_tau" in done.out, "cut at" in done.out) == (0, True, False)
