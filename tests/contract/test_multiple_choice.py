"""Models that choose among texts: each choice is a row, and the units of the chosen row are explained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import whyformer
from tests.helpers import families
from tests.helpers.choosing import CHOICES, TEXT, chooser
from whyformer import BadInput, BadOption, Explanation, UnsupportedModel
from whyformer.cli import main
from whyformer.explain.request import Questions
from whyformer.recorder import Needs
from whyformer.tasks.multiple_choice import Alternatives

KINDS = ("bert", "roberta")
pytestmark = pytest.mark.filterwarnings("ignore::whyformer.CompletenessWarning")


def stacked(kind: str = "bert") -> dict[str, Tensor]:
    """The text with its choices as transformers takes them, [1, choices, units]."""
    tokenizer = chooser(kind).subject.tokenizer
    rows = tokenizer([TEXT] * len(CHOICES), list(CHOICES), padding=True, return_tensors="pt")
    taken = {"input_ids", "attention_mask", *(["token_type_ids"] if kind == "bert" else [])}
    return {name: tensor[None] for name, tensor in rows.items() if name in taken}


def near(found: Any, expected: Any, within: float = 1e-6) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= within * max(np.abs(expected).max(), 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_prediction_is_that_of_the_stock_model(kind: str) -> None:
    e = chooser(kind).explain(TEXT, "attcat", choices=CHOICES)
    with torch.no_grad():
        logits = chooser(kind).subject.model(**stacked(kind)).logits[0]
    near(e.prediction.logits, logits)
    near(e.prediction.probabilities, logits.softmax(-1))
    assert e.prediction.labels == CHOICES
    assert e.prediction.index == e.target.index == int(logits.argmax())
    assert e.target.name == CHOICES[int(logits.argmax())]
    assert e.texts == (TEXT, e.target.name)


@pytest.mark.parametrize("method", families.METHODS)
def test_every_method_explains_a_choice(method: str) -> None:
    options = families.OPTIONS.get(method, {})
    assert chooser().explain(TEXT, method, choices=CHOICES, target=0, **options).scores.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", families.ONE_OF_EACH)
def test_other_choices_do_not_change_scores(method: str, kind: str) -> None:
    options = families.OPTIONS.get(method, {})
    explain: Callable[..., Any] = chooser(kind).explain
    alone = explain(TEXT, method, choices=CHOICES, target=0, **options)
    turned = explain(TEXT, method, choices=CHOICES[::-1], target=2, **options)
    fewer = explain(TEXT, method, choices=CHOICES[:2], target=0, **options)
    for other in (turned, fewer):
        assert other.units == alone.units
        near(other.scores, alone.scores)


def gradients(chosen: int, versus: int | None) -> Tensor:
    """Input times gradient of the stock model's logits, [choices, units], by torch alone."""
    model: Any = chooser().subject.model
    inputs = stacked()
    embedded = model.get_input_embeddings()(inputs.pop("input_ids")).detach().requires_grad_()
    logits = model(inputs_embeds=embedded, **inputs).logits[0]
    output = logits[chosen] if versus is None else logits[chosen] - logits[versus]
    (found,) = torch.autograd.grad(output, embedded)
    return (found * embedded).sum(-1)[0].detach()


def test_the_logit_of_a_choice_rests_on_its_row() -> None:
    expected = gradients(1, None)
    assert not expected[[0, 2]].any()
    e = chooser().explain(TEXT, "input_x_gradient", choices=CHOICES, target=1)
    near(e.scores, expected[1, : len(e.units)])


def test_a_difference_is_explained_by_both_rows() -> None:
    e = chooser().explain(TEXT, "input_x_gradient", choices=CHOICES, target=1, versus=0)
    expected = gradients(1, 0)
    assert e.texts == (TEXT, CHOICES[1], CHOICES[0])
    # [CLS] the film is a fine film [SEP] … : eight units that both rows have
    assert [unit.text for unit in e.units if unit.part == 0] == TEXT.split()
    assert [unit.text for unit in e.units if unit.part == 1] == ["the", "act", "ing", "is", "fine"]
    assert [unit.text for unit in e.units if unit.part == 2] == ["a", "bad", "film"]
    near(e.scores[:8], expected[1, :8] + expected[0, :8])
    near(e.scores[8:14], expected[1, 8:14])
    near(e.scores[14:], expected[0, 8:12])
    near(e.scores.sum(), expected.sum())
    assert e.signed


def test_only_rows_that_are_asked_about_are_explained() -> None:
    explainer = chooser()
    for versus, rows in ((None, 1), (0, 2)):
        asked = Questions.of(explainer.task, True, target=1, versus=versus, word=None, position=None)
        run = explainer._run([Alternatives(TEXT, CHOICES)], asked, Needs(sites=True))  # type: ignore[list-item]
        assert len(run.turns[0].batch.examples) == rows
        assert run.questions[0].target.index == 1


def test_layers_and_unsigned_scores_of_a_difference() -> None:
    def explain(method: str, **asked: Any) -> Explanation:
        return chooser().explain(TEXT, method, choices=CHOICES, **asked)

    one, other, both = explain("cat", target=0), explain("cat", target=2), explain("cat", target=0, versus=2)
    assert one.layers is not None
    assert other.layers is not None
    assert both.layers is not None
    near(both.layers[:, :8], one.layers[:, :8] - other.layers[:, :8])
    near(both.layers[:, 12:], -other.layers[:, 8:])
    one, other, both = (explain("rollout", **a) for a in ({"target": 0}, {"target": 2}, {"target": 0, "versus": 2}))
    near(both.scores[:8], one.scores[:8] + other.scores[:8])
    near(both.scores[12:], other.scores[8:])
    assert not both.signed


@pytest.mark.parametrize("target", [1, "1", "the acting is fine", "THE ACTING"])
def test_how_a_target_is_written(target: Any) -> None:
    e = chooser().explain(TEXT, "attcat", choices=CHOICES, target=target)
    assert (e.target.index, e.target.name) == (1, CHOICES[1])


def test_several_targets_and_the_runner_up() -> None:
    several: Any = chooser().explain(TEXT, "attcat", choices=CHOICES, target=[2, 0])
    assert [e.target.index for e in several] == [2, 0]
    e = chooser().explain(TEXT, "attcat", choices=CHOICES, versus="runner_up")
    order = np.argsort(e.prediction.logits)[::-1]
    assert e.versus is not None
    assert (e.target.index, e.versus.index) == tuple(order[:2])
    first = chooser().explain(TEXT, "attcat", choices=CHOICES, target=int(order[1]), versus="runner_up")
    assert first.versus == e.target
    assert first.prediction.index == order[0]


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no such choice": ({"target": "bad"}, BadOption, "none of the choices: 0 = a bad film, 1 = the acting is fine"),
    "no such index": ({"target": 3}, BadOption, "none of the choices"),
    "not clear": ({"choices": ["film a", "film b"], "target": "film"}, BadOption, "may be any of"),
    "the same": ({"target": 1, "versus": "the acting"}, BadOption, "are the same, the acting is fine"),
    "a word": ({"word": "film"}, BadOption, "means nothing to a model that chooses among texts"),
    "ranks": ({"method": "stepwise", "versus": 1, "target": 0}, BadOption, "stepwise|ranks the units of one row"),
    "no choices": ({"choices": None}, BadInput, "choices="),
    "one choice": ({"choices": ["fine"]}, BadInput, "at least two"),
    "a text": ({"choices": "fine"}, BadInput, "choices as a list"),
    "an empty choice": ({"choices": ["fine", " "]}, BadInput, "empty"),
    "a pair": ({"text": (TEXT, TEXT)}, BadInput, "one text beside them"),
    "a question": ({"question": "why?"}, BadInput, "answers no questions"),
    "too few lists": ({"text": [TEXT, TEXT], "choices": [CHOICES]}, BadInput, "1 lists of choices for 2 texts"),
    "too many lists": ({"text": [TEXT], "choices": [CHOICES, CHOICES]}, BadInput, "2 lists of choices for 1 texts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    asked, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        chooser().explain(**{"text": TEXT, "method": "attcat", "choices": CHOICES, **asked})


def test_other_models_take_no_choices() -> None:
    with pytest.raises(BadInput, match="leave choices= out"):
        whyformer.Explainer.load().explain(TEXT, choices=CHOICES)


def test_the_same_choices_for_all_texts_of_a_generator() -> None:
    found = list(chooser().stream((text for text in (TEXT, "a film")), "attcat", choices=CHOICES, batch_size=1))
    assert [e.texts[0] for e in found] == [TEXT, "a film"]
    assert all(e.prediction.labels == CHOICES for e in found)


def test_trust_and_metrics_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="trust follows the probability of a class; BertForMultipleChoice"):
        chooser().explain(TEXT, "attcat", choices=CHOICES).trust()
    data = tmp_path / "data.csv"
    data.write_text("text,label\nthe film is fine,0\na bad film,1\n")
    with pytest.raises(BadOption, match="aopc is for models that classify; this one chooses among texts"):
        chooser().evaluate(data, ["attcat"], metrics=["aopc"])


def test_it_is_saved_and_shown(tmp_path: Path) -> None:
    e = chooser().explain(TEXT, "attn_lrp", choices=CHOICES, target=1, versus=0)
    loaded = Explanation.from_dict(json.loads(json.dumps(e.to_dict())))
    assert (loaded.units, loaded.texts, loaded.versus) == (e.units, e.texts, e.versus)
    near(loaded.scores, e.scores)
    assert f"(1) {TEXT}\n(2) {CHOICES[1]}\n(3) {CHOICES[0]}" in str(e)
    assert "why the acting is fine rather than a bad film?" in str(e)
    near(e.by_word().scores.sum(), sum(s for s, u in zip(e.scores, e.units, strict=True) if not u.special))
    e.to_html(tmp_path / "page.html")
    assert "rather than a bad film" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert e.figure() is not None


# Ready tensors


@pytest.mark.parametrize("method", ["attcat", "attn_lrp", "rollout", "occlusion"])
def test_tensors_are_explained_by_the_row_of_the_choice(method: str) -> None:
    inputs, model, tokenizer = stacked(), chooser().subject.model, chooser().subject.tokenizer
    inputs["special_tokens_mask"] = torch.isin(inputs["input_ids"], torch.tensor(tokenizer.all_special_ids))
    inputs = {name: torch.cat((tensor, tensor.flip(1))) for name, tensor in inputs.items()}
    for target, chosen in ((1, (1, 1)), ([0, 1], (0, 1)), (None, None)):
        scores = whyformer.attribute(model, inputs, method, target=target, **families.OPTIONS.get(method, {}))
        assert scores.shape == (2, inputs["input_ids"].shape[-1])
        for row in range(2):
            index = None if chosen is None else (chosen[row] if row == 0 else 2 - chosen[row])
            e = chooser().explain(TEXT, method, choices=CHOICES, target=index, **families.OPTIONS.get(method, {}))
            near(scores[row, : len(e.units)], e.scores)
            assert not scores[row, len(e.units) :].any()


def test_tensors_that_are_refused() -> None:
    inputs, model = stacked(), chooser().subject.model
    flat = {name: tensor[0] for name, tensor in inputs.items()}
    for wrong, error, message in (
        (flat, BadInput, r"input_ids \[batch, choices, units\]"),
        ({"attention_mask": inputs["attention_mask"]}, BadInput, "found neither"),
        (
            {**inputs, "attention_mask": inputs["attention_mask"][:, :2]},
            BadInput,
            "one number of examples and of choices",
        ),
    ):
        with pytest.raises(error, match=message):
            whyformer.attribute(model, wrong, "attcat")
    for asked, message in (
        ({"target": 3}, "target 3 is no class"),
        ({"target": [0, 1]}, "2 targets for 1 examples"),
        ({"target": 0, "versus": 1}, "stand in two rows"),
    ):
        with pytest.raises(BadOption, match=message):
            whyformer.attribute(model, inputs, "attcat", **asked)
    with pytest.raises(BadInput, match="one text for each example"):
        whyformer.attribute(families.build("bert"), {"input_ids": torch.ones(1, 2, 4).long()}, "attcat")


# The command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("chooser")
    chooser().subject.model.save_pretrained(path)
    chooser().subject.tokenizer.save_pretrained(path)
    return str(path)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0)


def test_the_command_line(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    choices = [part for choice in CHOICES for part in ("--choice", choice)]
    asked = (TEXT, *choices, "--target", "a bad", "--versus", "runner_up", "--model", folder)
    assert run("explain", *asked, "--method", "input_x_gradient", "--json") == 0
    saved = json.loads(capsys.readouterr().out)
    expected = chooser().explain(TEXT, "input_x_gradient", choices=CHOICES, target=0, versus="runner_up")
    near([unit["score"] for unit in saved["units"]], expected.scores)
    assert run("compare", *asked, "--methods", "input_x_gradient,rollout") == 0
    assert "why a bad film rather than" in capsys.readouterr().out
    assert run("explain", TEXT, "--model", folder) != 0
    assert "choices" in capsys.readouterr().err
