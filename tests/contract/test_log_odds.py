"""The log-odds of a class: what is explained, by which methods, for which models, and where it is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whyformer
from tests.helpers import cases, evaluated, families, image_cases, token_outputs
from tests.helpers.commands import status_of
from whyformer import BadOption, Explainer
from whyformer.evaluation.journal import Journal
from whyformer.explain.explanation import Explanation
from whyformer.methods.method import list_methods
from whyformer.prediction import Prediction
from whyformer.tasks import task as tasks
from whyformer.tolerance import close

TEXT = cases.TEXTS[2]
FAST = [name for name, one in list_methods().items() if one.passes == "one" and one.class_specific]
OF_SINGLE_OUTPUTS = {name for name, one in list_methods().items() if one.single_output}
NORMALISING = {"mask_lrp", "transformer_attribution"}
PAPERS = [name for name in FAST if list_methods()[name].paper != "–"]
ASKING_MORE = {"decoded_grad_cam", "mask_lrp"}  # than a model
ODDS: dict[str, Any] = {"explains": "log_odds"}


def explainer(labels: int = 3, **options: Any) -> Explainer:
    return Explainer(cases.subject(labels=labels, **options))


def odds(logits: torch.Tensor, index: int) -> torch.Tensor:
    """Written out: the logarithm of a probability, less that of all others together."""
    shares = logits.softmax(-1)
    return shares[:, index].log() - (1 - shares[:, index]).log()


def test_the_gradient_is_that_of_the_log_odds() -> None:
    model, inputs = families.build("bert"), families.batch()
    prediction = Prediction(model, whyformer.inputs.batch.batch_of(model, inputs))
    index = int(prediction.predicted[0])
    turned = prediction.towards([index] * len(prediction.predicted), [tasks.ALL_OTHERS] * len(prediction.predicted))
    embeddings = prediction.trace.embeddings
    assert embeddings is not None
    (expected,) = torch.autograd.grad(odds(prediction.trace.logits, index).sum(), embeddings, retain_graph=True)
    assert close(turned.embedding_gradients, expected)
    assert close(turned.trace.output(turned.target, turned.versus), odds(prediction.trace.logits, index))


def test_relevance_starts_from_one_and_the_shares_of_the_others() -> None:
    prediction = cases.predicted(cases.TEXTS[:2])
    logits, index = prediction.trace.logits.detach(), 1
    turned = prediction.towards([index] * 2, [tasks.ALL_OTHERS] * 2)
    assert turned.versus is not None
    (start,) = prediction.task.starts(prediction.trace.logits, turned.target, turned.versus)
    for row in range(2):
        others = [float(logits[row, n].exp()) for n in (0, 2)]
        expected = [-others[0] / sum(others), 1.0, -others[1] / sum(others)]
        assert start[row].tolist() == pytest.approx(expected)


def test_of_many_classes_scores_are_weighed_differences() -> None:
    model, inputs = families.build("bert"), families.batch()
    prediction = Prediction(model, whyformer.inputs.batch.batch_of(model, inputs))
    others = prediction.trace.logits.detach()[:, 1:].softmax(-1)
    for name in ("attn_lrp", "cp_lrp", "lrp", "cat", "input_x_gradient"):
        alone = [whyformer.attribute(model, inputs, name, target=index, explains="logit") for index in range(3)]
        expected = alone[0] - others[:, :1] * alone[1] - others[:, 1:] * alone[2]
        assert close(whyformer.attribute(model, inputs, name, target=0, explains="log_odds"), expected), name


@pytest.mark.parametrize(
    "method",
    [
        *sorted({*FAST} - ASKING_MORE - OF_SINGLE_OUTPUTS),
        "lrp",
        "occlusion",
        "integrated_gradients(steps=3)",
        "stepwise",
        "kernel_shap",
    ],
)
def test_of_two_classes_they_are_the_distance_from_the_other(method: str) -> None:
    own = explainer(labels=2)
    one, other = (own.explain(TEXT, method, **how) for how in (ODDS, {"versus": "runner_up"}))
    assert close(torch.from_numpy(one.scores), torch.from_numpy(other.scores))


def test_occlusion_explains_what_the_log_odds_lose() -> None:
    own = explainer()
    prediction = cases.predicted([TEXT])
    whole = cases.case([TEXT])
    index = int(prediction.predicted[0])
    scores = own.explain(TEXT, "occlusion", baseline="delete", window=1, explains="log_odds").scores
    places = whole.rankable[0]
    asked = whole.log_odds([[[], *([place] for place in places)]], "delete", torch.tensor([index]))[0]
    assert scores[places] == pytest.approx((asked[0] - asked[1:]).numpy())


def test_what_is_explained_is_said_and_saved(tmp_path: Path) -> None:
    own = explainer()
    plain, found = (own.explain(TEXT, "cat", explains=what) for what in ("logit", "log_odds"))
    assert (plain.explains, found.explains, found.versus) == ("logit", "log_odds", None)
    assert "explains" not in plain.to_dict()
    assert found.to_dict()["explains"] == "log_odds"
    loaded = Explanation.load(found.save(tmp_path / "saved.json"))
    assert loaded.explains == found.by_word().explains == "log_odds"
    assert not np.allclose(plain.scores, found.scores)
    for same in ([*own.stream([TEXT], "cat", explains="log_odds")], own.compare(TEXT, ["cat"], explains="log_odds")):
        assert same[0].explains == "log_odds"
        assert same[0].scores == pytest.approx(found.scores)
    saved = found.to_dict() | {"explains": "odds"}
    with pytest.raises(whyformer.BadInput, match="explains"):
        Explanation.from_dict(saved)


def test_targets_have_their_own_log_odds() -> None:
    own = explainer()
    several = own.explain(TEXT, "cat", target=[0, 1], explains="log_odds")
    for index, one in enumerate(several):
        assert one.target.index == index
        assert one.scores == pytest.approx(own.explain(TEXT, "cat", target=index, explains="log_odds").scores)


@pytest.mark.parametrize(
    ("method", "quantity"),
    [
        ("auto", "log_odds"),
        ("layer_lrp", "log_odds"),
        ("stepwise", "log_odds"),
        ("stepwise(of=layer_lrp)", "log_odds"),
        ("stepwise(of=attn_lrp)", "logit"),
        *((name, "logit") for name in sorted({*PAPERS} - ASKING_MORE)),
        ("occlusion", "logit"),
        ("mask_lrp(head_mask=random, rate=0.5)", "logit"),
    ],
)
def test_a_method_explains_the_quantity_that_it_declares(method: str, quantity: str) -> None:
    own = explainer()
    found = own.explain(TEXT, method, explains=quantity, check=0)
    several = own.compare(TEXT, [method, "layer_lrp(depth=0.5)", "cat(states=inputs)"])
    for default in (own.explain(TEXT, method, check=0), *own.stream([TEXT], method), several[0]):
        assert default.explains == quantity
        assert default.scores == pytest.approx(found.scores)
    assert [one.explains for one in several] == [quantity, "log_odds", "logit"]
    assert own.explain(TEXT, method, versus="runner_up", check=0).explains == "logit"
    model, inputs = families.build("bert"), families.batch()
    given, others = (whyformer.attribute(model, inputs, method, explains=what) for what in (None, quantity))
    assert close(given, others)


@pytest.mark.parametrize("method", [*sorted(OF_SINGLE_OUTPUTS - ASKING_MORE), "mask_lrp(head_mask=random, rate=0.5)"])
@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_with_versus_a_method_of_single_outputs_is_the_difference_of_two_explanations(method: str, kind: str) -> None:
    model, inputs = families.build(kind), families.batch()
    both = whyformer.attribute(model, inputs, method, target=0, versus=2)
    one, other = (whyformer.attribute(model, inputs, method, target=index) for index in (0, 2))
    assert close(both, one - other)
    assert both.min() < 0


@pytest.mark.parametrize("method", [*sorted(NORMALISING - {"mask_lrp"}), "mask_lrp(head_mask=random, rate=0.5)"])
def test_a_rule_that_divides_by_the_sum_of_its_start_refuses_log_odds(method: str) -> None:
    for asked in (method, "lrp(book=z_plus)", "partial_lrp(book=eq4_normalised)"):
        with pytest.raises(BadOption, match="divides by the sum of the relevance it starts from"):
            explainer().explain(TEXT, asked, **ODDS)


def test_relevance_of_two_under_such_a_rule_is_the_difference_of_two_passes() -> None:
    prediction = cases.predicted([TEXT])
    trace = prediction.traced
    both = trace.relevance(trace.hidden[0], "z_plus", 0, 2)
    assert close(both, trace.relevance(trace.hidden[0], "z_plus", 0) - trace.relevance(trace.hidden[0], "z_plus", 2))


def answered() -> Any:
    answering = Explainer(evaluated.answering())
    return answering.explain(question="is it fine", context="the film is fine", method="layer_lrp")


def masked() -> Any:
    own = token_outputs.explainer("masked_word", "bert")
    return own.explain(token_outputs.texts("masked_word", "bert")[0], "layer_lrp")


@pytest.mark.parametrize(
    "explain",
    [
        lambda: explainer(labels=2).explain(TEXT, "layer_lrp"),
        lambda: explainer(labels=1).explain(TEXT, "layer_lrp"),
        lambda: explainer(problem="multi_label_classification").explain(TEXT, "layer_lrp"),
        lambda: explainer().explain(TEXT, "layer_lrp", windows="merge"),
        lambda: Explainer(image_cases.subject()).explain(image_cases.photo(), "layer_lrp"),
        answered,
        masked,
    ],
    ids=["two_classes", "score", "independent", "merged", "image", "answer", "masked_word"],
)
def test_everything_else_is_usually_explained_by_its_logit(explain: Any) -> None:
    assert explain().explains == "logit"


@pytest.mark.parametrize("method", ["saliency", "integrated_gradients"])
def test_a_loss_sets_a_class_against_all_others_anyway(method: str) -> None:
    own = explainer()
    loss, same = (own.explain(TEXT, method, protocol="allennlp", explains=what) for what in (None, "logit"))
    assert loss.scores == pytest.approx(same.scores)


def asking_an_answer() -> Any:
    answering = Explainer(evaluated.answering())
    return answering.explain(question="is it fine", context="the film is fine", method="cat", **ODDS)


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (
            lambda: explainer().explain(TEXT, "cat", explains="odds"),
            r"explains takes logit \| log_odds",
        ),
        (lambda: explainer().explain(TEXT, "cat", versus=0, **ODDS), "all other classes: leave it or versus out"),
        (lambda: explainer(labels=1).explain(TEXT, "cat", **ODDS), "gives a score: leave it out"),
        (
            lambda: explainer(problem="multi_label_classification").explain(TEXT, "cat", **ODDS),
            "the labels of this one are independent",
        ),
        (lambda: explainer().explain(TEXT, "cat", windows="merge", **ODDS), "not for windows='merge'"),
        (asking_an_answer, "one of several classes or tokens; this one"),
        (
            lambda: whyformer.attribute(families.build("bert"), families.batch(), "cat", versus=1, **ODDS),
            "leave it or versus out",
        ),
    ],
)
def test_where_there_are_none(ask: Any, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        ask()


def test_images_have_log_odds_too() -> None:
    own, image = Explainer(image_cases.subject()), image_cases.photo()
    odds_of, logit = (own.explain(image, "cat", states="inputs", explains=what) for what in ("log_odds", "logit"))
    assert odds_of.explains == "log_odds"
    assert not np.allclose(odds_of.scores, logit.scores)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "model")
    subject = cases.subject()
    subject.model.save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    capsys.readouterr()
    asked: tuple[str, ...] = ("explain", TEXT, "--model", folder, "--method", "cat")
    assert status_of(*asked, "--explains", "log_odds", "--json") == 0
    assert json.loads(capsys.readouterr().out)["explains"] == "log_odds"
    assert status_of(*asked, "--explains", "odds") != 0
    assert "explains takes logit" in capsys.readouterr().err
    data, out = str(evaluated.data(tmp_path, 2)), str(tmp_path / "out")
    asked = ("evaluate", "--data", data, "--model", folder, "--methods", "cat", "--metrics", evaluated.FALL)
    assert status_of(*asked, "--out", out, "--explains", "log_odds") == 0
    assert Journal.read(out).run["explains"] == "log_odds"
    assert status_of(*asked, "--out", f"{out}2", "--versus", "runner_up") == 0
    assert Journal.read(f"{out}2").run["versus"] == "runner_up"


@pytest.mark.parametrize("how", [{}, ODDS, {"versus": "runner_up"}], ids=["logit", "log_odds", "runner_up"])
def test_an_evaluation_measures_what_it_says(how: dict[str, str], tmp_path: Path) -> None:
    texts = evaluated.texts(3)
    path = evaluated.written(tmp_path / "texts.csv", [(text, 0) for text in texts])
    metrics = "sign_agreement,kendall_tau"
    evaluated.run(path, tmp_path / "out", "cat", metrics, **how)
    records = evaluated.found(evaluated.journalled(tmp_path / "out"))
    for row, text in enumerate(texts):
        explanation = explainer().explain(text, "cat", **how)
        words = sorted(explanation.words(), key=lambda word: -abs(word.score))[:3]
        signs = records[row, "cat", "sign_agreement"].detail["signs"]
        assert signs == [int(np.sign(word.score)) for word in words]
    facts = Journal.read(tmp_path / "out").run
    assert {name: facts[name] for name in ("explains", "versus") if name in facts} == how
    plain = evaluated.measuring("cat", metrics)
    turned = evaluated.measuring("cat", metrics, **how)
    assert (plain.facts == turned.facts) is (not how)


def test_other_classes_are_explained_in_the_same_way(tmp_path: Path) -> None:
    texts = evaluated.texts(3, longest=8)
    path = evaluated.written(tmp_path / "texts.csv", [(text, 0) for text in texts])
    evaluated.run(path, tmp_path / "out", "cat", "sign_agreement(target=gold)", **ODDS)
    records = evaluated.found(evaluated.journalled(tmp_path / "out"))
    for row, text in enumerate(texts):
        explanation = explainer().explain(text, "cat", target=0, explains="log_odds")
        words = sorted(explanation.words(), key=lambda word: -abs(word.score))[:3]
        found = records[row, "cat", "sign_agreement(target=gold)"].detail["signs"]
        assert found == [int(np.sign(word.score)) for word in words]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"explains": "odds"}, "explains takes logit"),
        ({"versus": "1"}, "set against 'runner_up' alone"),
        ({"explains": "log_odds", "versus": "runner_up"}, "leave it or versus out"),
        ({"explains": "log_odds", "protocol": "attcat"}, "protocol is for explanations of the logit"),
        ({"explains": "log_odds", "keep_scores": True}, "keep_scores is for explanations of the logit"),
        ({"explains": "log_odds", "windows": "merge"}, "windows='merge' is for explanations of the logit"),
        ({"explains": "log_odds", "of": evaluated.answering()}, "for models that classify"),
    ],
)
def test_what_an_evaluation_does_not_explain(options: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=why):
        evaluated.run(evaluated.data(tmp_path, 2), tmp_path / "out", "cat", **options)
