"""The best layer: found by recommend on your own texts, or shipped with a bundled model (`layer="best"`)."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import cases, evaluated, families
from tests.helpers.evaluated import leave_one_out, registered
from whyformer import Explainer
from whyformer.cli import main
from whyformer.errors import BadOption
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.recommend import recommend, recommend_layer
from whyformer.methods.default import best_layer, methods_for, shipped_layer
from whyformer.methods.method import method_specs
from whyformer.models.load import Subject
from whyformer.prediction import Prediction

FALL = "comprehensiveness(fractions=0.01)"  # without one unit: nothing is better than leaving each out once


def by_layer(prediction: Prediction, *, layer: int | Literal["best"] = 0, flat: bool = False) -> torch.Tensor:
    """Good in layer 1 alone."""
    assert layer in (0, 1, 2)
    if flat:
        return whyformer.list_methods()["random"](prediction, seed=int(layer) + 1).total
    return leave_one_out(prediction) * (1 if layer == 1 else -1)


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with evaluated.own_registry():
        registered(by_layer, class_specific=True)
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return evaluated.data(tmp_path, 24)


def changed(factor: float = 1.0) -> Subject:
    own = cases.subject()
    model = copy.deepcopy(own.model)
    with torch.no_grad():
        model.classifier.weight.mul_(factor)
    return replace(own, model=model)


def test_the_best_layer_wins(data: Path) -> None:
    found = recommend_layer(changed(), data, "by_layer", FALL, progress=False)
    assert found.table.methods == ("by_layer", "by_layer(layer=1)", "by_layer(layer=2)", "random")
    assert (found.winner, found.ranked, found.better_than_random) == ("by_layer(layer=1)", "layer", True)
    assert found.sentence.startswith("Use by_layer(layer=1): comprehensiveness")
    assert str(found).endswith("--method 'by_layer(layer=1)'.")


@pytest.mark.long
def test_by_the_keyword_of_recommend_and_of_an_explainer(data: Path) -> None:
    own = changed()
    expected = recommend_layer(own, data, "by_layer", FALL, progress=False)
    for found in (
        recommend(own, data, "by_layer", FALL, layers=True, progress=False),
        Explainer(own).recommend(data, "by_layer", metric=FALL, layers=True, progress=False),
    ):
        assert (found.winner, found.sentence) == (expected.winner, expected.sentence)


def test_other_options_of_the_method_are_kept(data: Path) -> None:
    found = recommend_layer(changed(), data, "by_layer(flat=true)", FALL, progress=False)
    assert found.table.methods[1] == "by_layer(flat=true, layer=1)"
    assert not found.better_than_random
    assert found.sentence.startswith("No layer is reliably better than a random order here")


def test_by_default_the_decoded_layers_in_the_hiding_game(tmp_path: Path) -> None:
    reviews = tmp_path / "reviews.csv"
    rows = ["a gorgeous and witty film,POSITIVE", "a dull and lifeless mess,NEGATIVE", "not bad at all,POSITIVE"]
    reviews.write_text("\n".join(["text,label", *rows]))
    found = Explainer.load("sentiment").recommend(reviews, layers=True, progress=False)
    labels = [f"decoded_grad_cam(layer={layer})" for layer in range(7)]
    assert found.table.methods == (*labels, "random")
    assert found.metric == "hiding_game"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("attcat", "one method that has the option layer"),
        ("by_layer,cam", "one method that has the option layer"),
        ("by_layer(layer=1)", "names a layer, and the layers are to be ranked"),
    ],
)
def test_methods_without_layers_are_refused(data: Path, method: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        recommend_layer(changed(), data, method, FALL, progress=False)


def test_a_model_without_an_lm_head_is_refused_at_once(data: Path) -> None:
    with pytest.raises(BadOption, match="comes with none: give the pretrained checkpoint"):
        recommend(changed(), data, metric=FALL, layers=True, progress=False)


@pytest.mark.long
def test_the_command(data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = changed()
    own.model.save_pretrained(tmp_path / "model")
    own.tokenizer.save_pretrained(tmp_path / "model")
    model = ["--model", str(tmp_path / "model")]

    def said(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([*arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    explain = ["explain", "a bad film", *model, "--method", "decoded_grad_cam", "--decode", "no", "--layer", "best"]
    status, _, complaint = said(*explain)
    assert status == 2
    assert "recommend --layers" in complaint
    arguments = ["recommend", "--data", str(data), *model, "--layers", "--methods", "by_layer", "--metric", FALL]
    status, out, _ = said(*arguments)
    assert status == 0
    assert "Use by_layer(layer=1)" in out
    assert "--method 'by_layer(layer=1)'" in out


# `layer="best"`


def test_best_is_the_layer_that_a_bundled_model_ships_with() -> None:
    explainer = Explainer.load("sentiment")
    shipped = shipped_layer(explainer.subject.model)
    assert shipped == best_layer(explainer.subject.model) == 5
    found = explainer.explain("a film", "decoded_grad_cam", layer="best")
    assert found.diagnostics["decoded"]["layer"] == shipped
    assert list(found.scores) == list(explainer.explain("a film", "decoded_grad_cam", layer=shipped).scores)


def test_any_other_model_needs_a_number() -> None:
    own = changed()
    assert shipped_layer(own.model) is None
    with pytest.raises(BadOption, match="not bundled: give a number"):
        Explainer(own).explain("a bad film", "decoded_grad_cam", layer="best", decode=False)
    inputs = {name: torch.tensor([ids]) for name, ids in own.tokenizer("a bad film").items()}
    with pytest.raises(BadOption, match="not bundled: give a number"):
        whyformer.attribute(own.model, inputs, "decoded_grad_cam", layer="best", decode=False)


def test_a_journal_knows_which_layer_was_best(tmp_path: Path) -> None:
    own = Explainer.load("sentiment").subject
    (spec,) = methods_for(own, "decoded_grad_cam(layer=best, decode=false)")
    assert spec.label == "decoded_grad_cam(decode=false, layer=5)"


def test_a_key_knows_what_is_in_the_folder_of_a_head(tmp_path: Path) -> None:
    def key(folder: Path) -> Any:
        return method_specs(f"decoded_grad_cam(layer=1, lm_head={folder})")[0].facts.get("files")

    folder = tmp_path / "lm"
    assert key(folder) is None
    model = hf.BertForMaskedLM(families.CONFIGS["bert"]())
    model.save_pretrained(folder)
    first = key(folder)
    assert first == key(folder)
    assert set(first) == {"lm_head"}
    with torch.no_grad():
        model.cls.predictions.bias.add_(1)
    model.save_pretrained(folder)
    assert key(folder) != first
    (tmp_path / "texts").mkdir()
    assert key(tmp_path / "texts") is None


def test_layers_share_one_run_of_the_model(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = cases.subject()
    config = families.CONFIGS["bert"]()
    config.update({"vocab_size": len(own.tokenizer), "max_position_embeddings": 128})
    hf.BertForMaskedLM(config).double().save_pretrained(tmp_path / "lm")
    runs, passes = [], []
    run, back = whyformer.recorder.recording.recorded_somehow, torch.autograd.grad  # type: ignore[attr-defined]

    def counted_run(*args: Any, **kwargs: Any) -> Any:
        runs.append(1)
        return run(*args, **kwargs)

    def counted_pass(*args: Any, **kwargs: Any) -> Any:
        passes.append(1)
        return back(*args, **kwargs)

    monkeypatch.setattr(whyformer.recorder.recording, "recorded_somehow", counted_run)
    monkeypatch.setattr(torch.autograd, "grad", counted_pass)

    def counts(methods: list[str]) -> tuple[int, int]:
        runs.clear()
        passes.clear()
        evaluate(own, data, methods, [FALL], progress=False, rows_per_chunk=24)
        return len(runs), len(passes)

    names = [f"decoded_grad_cam(layer={layer}, lm_head={tmp_path / 'lm'})" for layer in range(3)]
    alone = counts(names[:1])
    assert counts([*names, "decoded_grad_cam(layer=0, decode=false)"]) == alone
    assert counts([f"decoded_grad_cam(layers=all, lm_head={tmp_path / 'lm'})"]) == alone
