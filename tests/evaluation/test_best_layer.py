"""The layer to believe: found on texts of one's own, recorded beside the method, used by `layer="best"`."""

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
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
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.recommend import recommend, recommend_layer
from whyformer.methods.default import methods_for
from whyformer.methods.recorded import (
    Choice,
    LayerChoice,
    best_layer,
    forget,
    record,
    record_layer,
    recorded,
    recorded_layer,
    shipped_layer,
)
from whyformer.methods.specs import method_specs
from whyformer.models.loading import Subject
from whyformer.prediction import Prediction

FALL = "comprehensiveness(fractions=0.01)"  # without one unit: nothing is better than leaving each out once
CHOICE = LayerChoice("decoded_grad_cam", "hiding_game", 0.3, 0.2, 0.4, 50, "reviews.csv", layer=1)
METHOD = Choice("attcat(states=inputs)", "aopc", 0.3, 0.2, 0.4, 50, "reviews.csv")


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


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes to the home folder."""
    monkeypatch.setenv("WHYFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "choices.json"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return evaluated.data(tmp_path, 24)


def changed(factor: float = 1.0) -> Subject:
    own = cases.subject()
    model = copy.deepcopy(own.model)
    with torch.no_grad():
        model.classifier.weight.mul_(factor)
    return replace(own, model=model)


# The choice


def test_the_best_layer_is_recorded(data: Path, cache: Path) -> None:
    own = changed()
    found = recommend_layer(own, data, "by_layer", FALL, progress=False)
    assert found.table.methods == ("by_layer", "by_layer(layer=1)", "by_layer(layer=2)", "random")
    assert (found.winner, found.ranked, found.better_than_random) == ("by_layer(layer=1)", "layer", True)
    assert found.recorded == cache
    cell = found.table[found.winner, FALL]
    assert recorded_layer(own.model) == LayerChoice(
        "by_layer", FALL, cell.mean, cell.low, cell.high, cell.n, str(data), layer=1
    )
    assert best_layer(own.model) == 1
    assert recorded(own) is None  # no method was chosen
    assert found.sentence.startswith("Use by_layer(layer=1): comprehensiveness")


def test_by_the_keyword_of_recommend_and_of_an_explainer(data: Path) -> None:
    own = changed()
    expected = recommend_layer(own, data, "by_layer", FALL, progress=False, cache=False)
    for found in (
        recommend(own, data, "by_layer", FALL, layers=True, progress=False, cache=False),
        Explainer(own).recommend(data, "by_layer", metric=FALL, layers=True, progress=False, cache=False),
    ):
        assert (found.winner, found.sentence, found.recorded) == (expected.winner, expected.sentence, None)
    assert recorded_layer(own.model) is None


def test_other_options_of_the_method_are_kept(data: Path, cache: Path) -> None:
    found = recommend_layer(changed(), data, "by_layer(flat=true)", FALL, progress=False)
    assert found.table.methods[1] == "by_layer(flat=true, layer=1)"
    assert not found.better_than_random
    assert not cache.exists()
    assert found.sentence.startswith("No layer is reliably better than a random order here")


def test_by_default_the_decoded_layers_in_the_hiding_game(tmp_path: Path) -> None:
    reviews = tmp_path / "reviews.csv"
    rows = ["a gorgeous and witty film,POSITIVE", "a dull and lifeless mess,NEGATIVE", "not bad at all,POSITIVE"]
    reviews.write_text("\n".join(["text,label", *rows]))
    found = Explainer.load("sentiment").recommend(reviews, layers=True, progress=False, cache=False)
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
    status, out, err = said(*arguments)
    assert status == 0
    assert "Use by_layer(layer=1)" in out
    assert "--layer best uses it" in err
    status, out, _ = said(*explain)
    assert status == 0
    assert out.replace("layer=best", "layer=1") == said(*explain[:-1], "1")[1]
    assert said("recommend", *model, "--forget")[1] == "forgotten\n"
    assert said("recommend", *model, "--forget")[1] == "nothing was recorded for this model\n"


# The file


def test_layer_and_method_stand_side_by_side(cache: Path) -> None:
    own = changed()
    record_layer(own.model, CHOICE)
    record(own, METHOD)
    assert (recorded(own), recorded_layer(own.model)) == (METHOD, CHOICE)
    kept = json.loads(cache.read_text())
    assert kept["models"] == {own.shape: {own.fingerprint: asdict(METHOD)}}
    assert [list(of_shape.values()) for of_shape in kept["layers"].values()] == [[asdict(CHOICE)]]
    record_layer(own.model, replace(CHOICE, layer=2))
    assert (recorded(own), best_layer(own.model)) == (METHOD, 2)
    assert forget(own)
    assert (recorded(own), recorded_layer(own.model), forget(own)) == (None, None, False)


@pytest.mark.parametrize("kept", ["method", "layer"])
def test_either_is_forgotten_without_the_other(kept: str) -> None:
    own = changed()
    if kept == "method":
        record(own, METHOD)
    else:
        record_layer(own.model, CHOICE)
    assert forget(own)
    assert not forget(own)


def test_files_of_earlier_versions_are_read_and_kept(cache: Path) -> None:
    own = changed()
    held = {own.shape: {own.fingerprint: asdict(METHOD)}}
    cache.parent.mkdir()
    cache.write_text(json.dumps({"schema": "whyformer/choices", "schema_version": 1, "models": held}))
    assert recorded(own) == METHOD
    assert recorded_layer(own.model) is None
    record_layer(own.model, CHOICE)
    assert (recorded(own), recorded_layer(own.model)) == (METHOD, CHOICE)


@pytest.mark.parametrize("damaged", [{"layer": 1}, {**asdict(CHOICE), "mood": "good"}, "two"])
def test_a_damaged_layer_is_said(cache: Path, damaged: Any) -> None:
    own = changed()
    record_layer(own.model, CHOICE)
    kept = json.loads(cache.read_text())
    shape = next(iter(kept["layers"]))
    kept["layers"][shape] = dict.fromkeys(kept["layers"][shape], damaged)
    cache.write_text(json.dumps(kept))
    with pytest.raises(BadInput, match=r"choices\.json.*remove it"):
        best_layer(own.model)


def test_layers_that_are_no_layers_are_said(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text('{"schema": "whyformer/choices", "schema_version": 1, "models": {}, "layers": 3}')
    with pytest.raises(BadInput, match=r"choices\.json.*remove it"):
        best_layer(changed().model)


def test_the_layer_is_that_of_the_weights() -> None:
    own, other = changed(), changed(1.5)
    record_layer(own.model, CHOICE)
    assert best_layer(changed().model) == 1  # the same weights, in another object
    assert recorded_layer(other.model) is None
    with torch.no_grad():
        own.model.classifier.weight.add_(1e-6)
    assert recorded_layer(own.model) is None


# What `layer="best"` means


def test_a_record_stands_above_what_a_bundled_model_comes_with() -> None:
    own = Explainer.load("sentiment").subject
    shipped = shipped_layer(own.model)
    assert shipped is not None
    assert best_layer(own.model) == shipped.layer
    record_layer(own.model, replace(CHOICE, layer=2))
    assert best_layer(own.model) == 2
    assert Explainer(own).explain("a film", "decoded_grad_cam").diagnostics["decoded"]["layer"] == shipped.layer
    assert forget(own)
    assert best_layer(own.model) == shipped.layer
    assert shipped_layer(cases.subject().model) is None


def test_best_is_the_recorded_layer() -> None:
    own = changed()
    options: dict[str, Any] = {"decode": False}
    with pytest.raises(BadOption, match="recommend --layers"):
        Explainer(own).explain("a bad film", "decoded_grad_cam", layer="best", **options)
    record_layer(own.model, replace(CHOICE, layer=2))
    best = Explainer(own).explain("a bad film", "decoded_grad_cam", layer="best", **options)
    second = Explainer(own).explain("a bad film", "decoded_grad_cam", layer=2, **options)
    assert list(best.scores) == list(second.scores)
    assert best.diagnostics["decoded"]["layer"] == 2
    inputs = {name: torch.tensor([ids]) for name, ids in own.tokenizer("a bad film").items()}
    scores = whyformer.attribute(own.model, inputs, "decoded_grad_cam", layer="best", **options)
    assert scores[0].tolist() == list(second.scores)
    record_layer(own.model, replace(CHOICE, layer=7))
    with pytest.raises(BadOption, match="layer 7 does not exist"):
        Explainer(own).explain("a bad film", "decoded_grad_cam", layer="best", **options)


def test_a_journal_knows_which_layer_was_best(data: Path, tmp_path: Path) -> None:
    own = changed()
    for layer in (1, 2):
        record_layer(own.model, replace(CHOICE, layer=layer))
        (spec,) = methods_for(own, "decoded_grad_cam(layer=best, decode=false)")
        assert spec.label == f"decoded_grad_cam(decode=false, layer={layer})"
        table = evaluate(own, data, [spec.label], [FALL], out=tmp_path / "out", progress=False)
    assert table.methods == tuple(f"decoded_grad_cam(decode=false, layer={layer})" for layer in (1, 2))


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
    run, back = whyformer.recorder.runs.recorded_somehow, torch.autograd.grad  # type: ignore[attr-defined]

    def counted_run(*args: Any, **kwargs: Any) -> Any:
        runs.append(1)
        return run(*args, **kwargs)

    def counted_pass(*args: Any, **kwargs: Any) -> Any:
        passes.append(1)
        return back(*args, **kwargs)

    monkeypatch.setattr(whyformer.recorder.runs, "recorded_somehow", counted_run)
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
