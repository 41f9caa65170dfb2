"""One number is explained, evaluated and shown: next tokens, steps, reports, tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whyformer
from tests.helpers import cases, evaluated, families, token_outputs
from whyformer import BadOption, Explainer
from whyformer.evaluation.journal import Journal
from whyformer.explain.explanation import Explanation
from whyformer.explain.folder import kept_examples
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import SHORT, method_specs
from whyformer.prediction import Prediction
from whyformer.show.colors import strengths
from whyformer.show.layout import reasons, steps_line
from whyformer.tasks.task import ALL_OTHERS
from whyformer.tolerance import close

TEXT = cases.TEXTS[2]


def explainer(**options: Any) -> Explainer:
    return Explainer(cases.subject(**options))


@pytest.mark.parametrize("method", ["cat", "layer_lrp", "stepwise", "stepwise(of=cat)"])
def test_what_is_evaluated_is_what_is_explained(method: str, tmp_path: Path) -> None:
    texts = evaluated.texts(3)
    path = evaluated.written(tmp_path / "texts.csv", [(text, 0) for text in texts])
    table = evaluated.run(path, tmp_path / "out", method, "aopc", keep_scores=True)
    own = explainer()
    for example in kept_examples(tmp_path / "out", "all"):
        (kept,) = example.explanations
        explanation = own.explain(texts[example.row], method, check=0)
        assert kept.explains == explanation.explains
        assert kept.scores == pytest.approx(explanation.scores, rel=1e-5, abs=1e-7)
    says = [line for line in table.footer if "log-odds of the predicted class are explained" in line]
    assert bool(says) is (own.explain(TEXT, method, check=0).explains == "log_odds")


def test_the_key_of_a_number_knows_what_was_explained() -> None:
    plain, ours = (method_specs([name])[0].facts for name in ("cat", "layer_lrp"))
    assert "quantity" not in plain
    assert ours["quantity"] == method_specs(["stepwise(of=layer_lrp)"])[0].facts["quantity"] == "log_odds"
    assert method_specs(["stepwise(of=cat)"])[0].quantity == "logit"


@pytest.mark.parametrize("kind", token_outputs.KINDS["next_token"])
def test_the_log_odds_of_a_token_are_those_of_its_position(kind: str) -> None:
    own = token_outputs.explainer("next_token", kind)
    inputs = dict(own.subject.tokenizer("the actors like it", return_tensors="pt"))
    prediction = Prediction(own.subject.model, batch_of(own.subject.model, inputs))
    token, place = prediction.predicted[0].tolist()
    turned = prediction.towards([(token, place)], [ALL_OTHERS])
    shares = prediction.trace.logits[:, place].softmax(-1)[:, token]
    odds = shares.log() - (1 - shares).log()
    embeddings = prediction.trace.embeddings
    assert embeddings is not None
    (expected,) = torch.autograd.grad(odds.sum(), embeddings, retain_graph=True)
    assert close(turned.output, odds)
    assert close(turned.embedding_gradients, expected)
    logit, default, given = (
        whyformer.attribute(own.subject.model, inputs, "layer_lrp(book=attn)", explains=what)
        for what in ("logit", None, "log_odds")
    )
    assert close(default, given)
    assert not torch.allclose(default, logit)
    assert close(whyformer.attribute(own.subject.model, inputs), default)


@pytest.mark.parametrize("kind", token_outputs.KINDS["next_token"])
def test_a_next_token_is_explained_by_its_log_odds_without_the_token_it_comes_after(kind: str, tmp_path: Path) -> None:
    own = token_outputs.explainer("next_token", kind)
    assert own.method().label == "layer_lrp(book=attn)"
    assert own.method("auto", "best").label == "stepwise(of=layer_lrp(book=attn), steps=10)"
    for text in token_outputs.texts("next_token", kind)[::2]:
        found = own.explain(text)
        assert (found.explains, found.predicts_at) == ("log_odds", len(found.units) - 1)
        shown = found.for_people()
        last = shown.units[-1]
        assert shown.predicts_at == len(shown.units) - 1
        assert all(word.unit is not last for word in shown.strongest(99))
        assert len(reasons(shown, 99)) == sum(not unit.special for unit in shown.units) - 1
        assert strengths(shown)[-1] == 0
        assert "after which the model predicts cannot be deleted, and is left out" in str(found)
        assert found.top(1, by="magnitude")  # scores themselves are all there
        assert Explanation.load(found.save(tmp_path / "saved.json")).predicts_at == found.predicts_at
        stays = found.checked
        assert stays is None or all(found.predicts_at not in effect.units for effect in stays.effects)
    inner = own.explain("the film is", position=1)
    assert inner.predicts_at == 1
    with pytest.raises(whyformer.BadInput, match="predicts_at"):
        Explanation.from_dict(inner.to_dict() | {"predicts_at": 99})


@pytest.mark.parametrize(("task", "asked"), [("masked_word", {}), ("token_labels", {"word": "acting"})])
def test_other_tokens_may_be_explained_by_their_log_odds_and_are_not_by_default(task: str, asked: Any) -> None:
    own, text = token_outputs.explainer(task, "bert"), token_outputs.texts(task, "bert")[0]
    default, logit, odds = (
        own.explain(text, "layer_lrp", explains=what, **asked) for what in (None, "logit", "log_odds")
    )
    assert default.explains == "logit"
    assert default.scores == pytest.approx(logit.scores)
    assert not np.allclose(default.scores, odds.scores)
    assert default.predicts_at is None
    several = (
        own.explain([text, "fine"], "layer_lrp", word="all", explains="log_odds") if task == "token_labels" else ()
    )
    assert all(one.explains == "log_odds" for one in several)


@pytest.mark.parametrize("how", [{"effort": "best"}, {"method": "stepwise", "report": "order"}], ids=["best", "order"])
@pytest.mark.parametrize("text", cases.TEXTS)
def test_steps_are_shown_in_one_order(text: str, how: dict[str, Any], tmp_path: Path) -> None:
    found = explainer().explain(text, **how)
    words = found.for_people()
    order = [unit.text for unit in words.top(99)]
    assert [reason.text for reason in reasons(words, 99)] == order
    sizes = np.abs(strengths(words))
    painted = sorted(words.ranked, key=lambda place: -sizes[place])
    assert [words.units[place].text for place in painted] == order
    saved = json.loads(found.save(tmp_path / "saved.json").read_text())
    tokens = sorted(
        (n for n, unit in enumerate(saved["units"]) if not unit["special"]), key=lambda n: -saved["units"][n]["score"]
    )
    assert [saved["units"][n]["text"] for n in tokens] == [unit.text for unit in found.top(99)]
    if found.checked is not None:
        assert [effect.text for effect in found.checked.effects] == order[: len(found.checked.effects)]
    page = found.to_html(tmp_path / "page.html").read_text()
    listed = page[page.index('class="reasons"') :]
    places = [listed.index(f'<td class="w">{word}</td>') for word in dict.fromkeys(order[:6])]
    assert places == sorted(places)
    line = steps_line(words)
    assert line is not None
    assert line in str(found)
    assert line.count("%") == sum(share is not None for share in found.seen[0].probability or ())


def test_what_was_sent_adds_up() -> None:
    model, inputs = families.build("bert"), families.batch()
    prediction = Prediction(model, batch_of(model, inputs))
    turned = prediction.towards([1] * 3, [ALL_OTHERS] * 3)
    logits = prediction.trace.logits.detach()
    for row, report in enumerate(
        zip(*(turned_report(turned)[name] for name in ("sum", "absorbed", "expected")), strict=True)
    ):
        arrived, absorbed, expected = (float(number) for number in report)
        others = [float(logits[row, n].exp()) for n in (0, 2)]
        mean = sum(share * float(logits[row, n]) for share, n in zip(others, (0, 2), strict=True)) / sum(others)
        assert expected == pytest.approx(float(logits[row, 1]) - mean)
        assert arrived + absorbed == pytest.approx(expected)


def turned_report(prediction: Prediction) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = whyformer.list_methods()["layer_lrp"](prediction).diagnostics["conservation"]
    return found


@pytest.mark.parametrize("method", ["lime", "kernel_shap"])
def test_samples_are_ten_for_each_unit_and_at_least_200(method: str, tmp_path: Path) -> None:
    own = explainer()
    for text in ("a bad film", " ".join("ab" for _ in range(16))):
        drawn = max(200, 10 * (len(own.explain(text, "random").units) - 2))
        default, given = (own.explain(text, method, samples=samples, check=0) for samples in ("auto", drawn))
        assert default.scores == pytest.approx(given.scores)
    table = evaluated.run(evaluated.data(tmp_path, 2), tmp_path / "out", f"{method},{method}(samples=30)", "aopc")
    told = [line for line in table.footer if "samples=" in line]
    assert told == [f"{method}: samples=auto (ten per unit, at least 200)"]


def test_a_few_methods_are_compared_by_default(tmp_path: Path) -> None:
    five = {"layer_lrp", "attn_lrp", "transformer_attribution", "attcat", "random"}
    own = explainer()
    assert {one.method for one in own.compare(TEXT)} == five
    path = evaluated.written(tmp_path / "texts.csv", [(text, 0) for text in evaluated.texts(3)])
    assert set(own.evaluate(str(path), metrics=["aopc"], progress=False).methods) == five
    assert {spec.of.name for spec in method_specs(SHORT)} == five
    languages = token_outputs.explainer("next_token", "gpt2")
    assert [one.method for one in languages.compare("the film is")].count("layer_lrp") == 1
    with pytest.raises(BadOption, match="known"):
        own.compare(TEXT, "shorter")


def test_words_in_common_have_no_interval_and_no_number_leaves_its_bounds(tmp_path: Path) -> None:
    path = evaluated.written(tmp_path / "texts.csv", [(text, n % 3) for n, text in enumerate(evaluated.texts(40))])
    table = evaluated.run(path, tmp_path / "out", "cat", "token_overlap(k=3),comprehensiveness")
    cell = table["cat", "token_overlap(k=3)"]
    assert cell is not None
    assert np.isfinite(cell.mean)
    assert np.isnan([cell.low, cell.high]).all()
    few = evaluated.written(tmp_path / "few.csv", [(text, 0) for text in evaluated.texts(3)])
    for metric, (least, most) in (("revealing_game", (0, 1)), ("comprehensiveness", (-1, 1))):
        number = evaluated.run(few, None, "cat", metric)["cat", metric]
        assert number is not None
        assert np.isnan(number.low) or least <= number.low <= number.mean <= number.high <= most


def test_a_journal_of_logits_is_not_continued_with_log_odds(tmp_path: Path) -> None:
    path = evaluated.data(tmp_path, 2)
    evaluated.run(path, tmp_path / "out", "cat", "aopc", explains="logit")
    assert Journal.read(tmp_path / "out").run["explains"] == "logit"
