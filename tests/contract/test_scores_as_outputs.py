"""Models that give a score, regression models and rerankers: the value is shown, and there is no probability."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import families
from tests.helpers.choosing import TEXT, scorer
from whyformer import BadInput, BadOption, Explainer, UnsupportedModel
from whyformer.cli import main
from whyformer.show.html import page
from whyformer.tasks import Classification, Regression, task_of

PAIR = ("what is fine?", "the film is fine")
PROBLEMS = (None, "regression", "single_label_classification")
pytestmark = pytest.mark.filterwarnings("ignore::whyformer.CompletenessWarning")


def value(explainer: Explainer, *texts: str) -> float:
    subject = explainer.subject
    with torch.no_grad():
        return float(subject.model(**subject.tokenizer(*texts, return_tensors="pt")).logits)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("texts", [(TEXT,), PAIR])
def test_the_value_is_shown(problem: str | None, texts: tuple[str, ...]) -> None:
    explainer = scorer(problem)
    e = explainer.explain(texts if len(texts) == 2 else texts[0], "attcat")
    expected = value(explainer, *texts)
    assert e.prediction.logits == pytest.approx((expected,))
    assert (e.prediction.probability, e.prediction.probabilities) == (None, None)
    assert (e.target.index, e.target.name, e.prediction.label) == (0, "score", "score")
    assert str(e).startswith(f"score {expected:.4g}\nwhy score?")
    assert "%" not in str(e)
    assert f">score {expected:.4g}</h2>" in page([e])


def test_a_name_in_the_configuration_is_used() -> None:
    model = copy.deepcopy(scorer().subject.model)
    model.config.id2label, model.config.label2id = {0: "relevance"}, {"relevance": 0}  # type: ignore[union-attr]
    e = Explainer(model, scorer().subject.tokenizer).explain(TEXT, "attcat", target="relevance")
    assert e.target.name == e.prediction.label == "relevance"


@pytest.mark.parametrize("method", families.METHODS)
def test_every_method_explains_a_score(method: str) -> None:
    assert scorer().explain(PAIR, method, **families.OPTIONS.get(method, {})).scores.any()


def test_the_gradient_is_that_of_the_value() -> None:
    subject = scorer().subject
    model: Any = subject.model
    inputs = subject.tokenizer(TEXT, return_tensors="pt")
    embedded = model.get_input_embeddings()(inputs.pop("input_ids")).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model(inputs_embeds=embedded, **inputs).logits.sum(), embedded)
    expected = (gradient * embedded).sum(-1)[0].detach().numpy()
    found = scorer().explain(TEXT, "input_x_gradient").scores
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_needs_a_probability_refuses_it_by_name(problem: str | None, tmp_path: Path) -> None:
    explainer, data = scorer(problem), tmp_path / "data.csv"
    data.write_text("text,label\nthe film is fine,0\na bad film,0\n")
    with pytest.raises(UnsupportedModel, match="trust follows the probability of a class, and a regression model"):
        explainer.explain(TEXT, "attcat").trust()
    for metric in ("aopc", "comprehensiveness", "log_odds"):
        with pytest.raises(BadOption, match=f"{metric} is for models that classify; this one is of regression"):
            explainer.evaluate(data, ["attcat"], metrics=[metric])
    with pytest.raises(BadOption, match="has no cross-entropy"):
        explainer.explain(TEXT, "saliency", of="loss")


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"versus": "runner_up"}, BadOption, "nothing to set it against"),
        ({"target": 1}, BadOption, "target 1 is no class of this model"),
        ({"target": 0, "versus": 0}, BadOption, "are the same"),
        ({"word": "film"}, BadOption, "means nothing to a model that gives a score"),
        ({"choices": ["a", "b"]}, BadInput, "it gives a score: leave choices= out"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        scorer().explain(TEXT, "attcat", **asked)


def test_which_models_give_scores() -> None:
    model = families.build("bert")
    assert type(task_of(model)) is Classification
    assert type(task_of(scorer().subject.model)) is Regression
    independent = scorer("multi_label_classification")
    assert type(task_of(independent.subject.model)) is Classification
    e = independent.explain(TEXT, "attcat")
    expected = 1 / (1 + np.exp(-value(independent, TEXT)))
    assert e.prediction.probability == pytest.approx(expected)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject = scorer().subject
    subject.model.save_pretrained(tmp_path)  # type: ignore[operator]
    subject.tokenizer.save_pretrained(tmp_path)
    asked = ("explain", PAIR[0], "--pair", PAIR[1], "--method", "attcat", "--model", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        main([*asked])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(f"score {value(scorer(), *PAIR):.4g}\n")
    with pytest.raises(SystemExit):
        main([*asked, "--json"])
    saved = json.loads(capsys.readouterr().out)
    assert saved["prediction"]["logits"] == pytest.approx([value(scorer(), *PAIR)])
    assert saved["prediction"]["probability"] is None
