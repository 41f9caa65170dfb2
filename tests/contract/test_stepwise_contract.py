"""What `stepwise` promises beside the contract of every method: batches, memory, progress, the model given back."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import whyformer
from tests.helpers import families
from tests.helpers.cases import PAIR, TEXTS, predicted, subject
from whyformer import Explainer
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import Scores, method_specs
from whyformer.prediction import Prediction
from whyformer.progress import listening
from whyformer.show.colors import AGAINST, FOR, IMPORTANCE, as_hex, strengths, strongest, two_sided
from whyformer.show.terminal import explanation_text
from whyformer.testing import check_method, state
from whyformer.tolerance import close

STEPWISE = whyformer.list_methods()["stepwise"]
OPTIONS: list[dict[str, Any]] = [
    {"of": "attcat(states=inputs)", "steps": 3},
    {"of": "smooth_grad(samples=2)", "steps": 2},
    {"of": "transformer_attribution", "steps": 2, "hide": "pad_attended"},
    {"steps": 20},
    {"hide": "pad", "steps": 2},
]


HIDES = [options for options in OPTIONS if "hide" in options]  # RoBERTa counts its positions without padding


@pytest.mark.parametrize(
    ("family", "options"),
    [*(("bert", options) for options in OPTIONS), *(("roberta", options) for options in HIDES)],
    ids=str,
)
def test_options_keep_the_contract(family: str, options: dict[str, Any]) -> None:
    assert not check_method(STEPWISE, families.build(family), families.batch(), **options)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_drops_keep_the_contract_as_signed_scores(family: str) -> None:
    """What is declared is about the default; drops are signed, and say so themselves."""
    signed = replace(STEPWISE, signed=True)
    assert not check_method(signed, families.build(family), families.batch(), report="drop", steps=2)
    prediction = Prediction(families.build(family), batch_of(families.build(family), families.batch()), 0)
    assert STEPWISE(prediction, report="drop", steps=2).signed is True
    assert STEPWISE(prediction, steps=2).signed is False
    assert whyformer.list_methods()["attcat"](prediction, states="inputs").signed is True


def test_a_class_agnostic_method_keeps_the_contract_but_for_the_class() -> None:
    violations = check_method(STEPWISE, families.build("bert"), families.batch(), of="rollout", steps=2)
    assert [v.clause for v in violations] == ["facts"]


def rows(scores: Scores, row: int) -> dict[str, Tensor]:
    """Everything that is reported of one example."""
    assert scores.seen is not None
    assert scores.signs is not None
    (seen,) = scores.seen[row]
    assert seen.probability is not None
    skipped = [share is None for share in seen.probability]
    said = {
        "logit": torch.tensor([torch.nan if logit is None else logit for logit in seen.outputs]),
        "probability": torch.tensor([share for share in seen.probability if share is not None]),
        "probabilities": torch.tensor([shares for shares in seen.probabilities or () if shares is not None]),
        "skipped": torch.tensor(skipped),
    }
    others = {"step": torch.tensor(seen.hidden_in), "sign": scores.signs[row]}
    return {"scores": scores.total[row], **said, **others, "evaluations": scores.diagnostics["evaluations"][row]}


@pytest.mark.parametrize("options", [{}, {"steps": 10}, {"units": "word"}, {"hide": "mask", "report": "drop"}], ids=str)
def test_texts_are_explained_alone_as_in_a_batch(options: dict[str, Any]) -> None:
    texts = [*TEXTS, PAIR, "film"]
    together = STEPWISE(predicted(texts, target=1), **options)
    for row, text in enumerate(texts):
        alone = rows(STEPWISE(predicted([text], target=1), **options), 0)
        for name, found in rows(together, row).items():
            own = found[: len(alone[name])] if name in ("scores", "step", "sign") else found
            torch.testing.assert_close(own, alone[name], rtol=0, atol=1e-9, equal_nan=True)
            assert not found[len(own) :].any() if own.dim() else True


def test_special_tokens_and_separators_are_never_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    recorded = whyformer.recorder.recording.recorded_somehow  # type: ignore[attr-defined]

    def record(model: Any, inputs: dict[str, Tensor], *needs: Any, **options: Any) -> Any:
        seen.append(inputs["input_ids"])
        return recorded(model, inputs, *needs, **options)

    monkeypatch.setattr(whyformer.recorder.recording, "recorded_somehow", record)
    plain = predicted([PAIR, TEXTS[0]])
    prediction = Prediction(plain.model, plain.batch, relevance=True)
    STEPWISE(prediction, steps=3)
    tokenizer = subject().tokenizer
    special = [tokenizer.cls_token_id, tokenizer.sep_token_id]
    assert len(seen) == 4
    for ids in seen:
        kept = [[i for i in row if i in special] for row in ids.tolist()]
        assert kept == [[special[0], special[1], special[1]], special]
    widths = [ids.shape[1] for ids in seen]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == 3


def test_the_own_run_is_the_first_and_each_other_is_let_go_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[Any] = []
    counts: list[int] = []
    recorded = whyformer.recorder.recording.recorded_somehow  # type: ignore[attr-defined]

    def record(*given: Any, **options: Any) -> whyformer.Trace:
        counts.append(sum(trace() is not None for trace in alive))
        trace = recorded(*given, **options)
        alive.append(weakref.ref(trace.logits))
        return trace

    monkeypatch.setattr(whyformer.recorder.recording, "recorded_somehow", record)
    model = families.build("bert")
    prediction = Prediction(model, batch_of(model, families.batch()), 1, relevance=True)
    gc.collect()
    gc.disable()
    try:
        STEPWISE(prediction, steps=4)
    finally:
        gc.enable()
    assert counts == [0, 1, 1, 1, 1]  # the prediction's own, and nothing of another step
    assert sum(trace() is not None for trace in alive) == 1


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_the_model_is_given_back_when_a_step_fails(call: int) -> None:
    model = families.build("bert")
    calls: list[int] = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) == call:
            raise ArithmeticError

    last = list(model.modules())[-1]
    handle = last.register_forward_hook(fail)
    model.train()
    before = state(model)
    try:
        with pytest.raises(ArithmeticError):
            whyformer.attribute(model, families.batch(), "stepwise", steps=3)
        after = state(model)
    finally:
        handle.remove()
        model.eval()
    for name, values in before.items():
        for key, value in values.items():
            same = torch.equal(value, after[name][key]) if isinstance(value, Tensor) else value == after[name][key]
            assert same, (name, key)
    assert len(calls) == call


def test_progress_is_told_of_all_steps_and_never_goes_back() -> None:
    model = families.build("bert")
    for of in ("attn_lrp", "smooth_grad(samples=3)"):
        prediction = Prediction(model, batch_of(model, families.batch()), 1, relevance=True)
        told: list[float] = []
        with listening(lambda done, total, told=told: told.append(done / total)):
            STEPWISE(prediction, of=of, steps=3)
        assert told == sorted(told)
        assert len(told) >= 4
        assert told[0] == 0
        assert told[-1] == 1


def test_texts_with_nothing_to_hide() -> None:
    special = torch.tensor([[1, 0, 0, 1], [1, 1, 1, 1]])
    inputs = {"input_ids": torch.tensor([[1, 5, 6, 2], [1, 2, 1, 2]]), "special_tokens_mask": special}
    model = families.build("bert")
    found = STEPWISE(Prediction(model, batch_of(model, inputs), 1), steps=2)
    assert sorted(found.total[0].tolist()) == [0, 0, 0.5, 1]
    assert found.total[1].tolist() == [0, 0, 0, 0]
    assert found.diagnostics["evaluations"].tolist() == [3, 1]
    assert found.seen is not None
    skipped = [[logit is None for logit in seen.outputs] for (seen,) in found.seen]
    assert skipped == [[False] * 3, [False, True, True]]


def test_explanations_keep_what_was_seen(tmp_path: Any) -> None:
    e = Explainer(subject()).explain(["the actors like it, and the film", "a bad film"], "stepwise", steps=5)[1]
    (seen,), signs = e.seen, e.signs
    assert signs is not None
    assert seen.probability is not None
    assert [len(signs), len(seen.hidden_in)] == [len(e.units)] * 2  # no padding
    assert seen.outputs.count(None) == 2  # 3 tokens go in 3 of 5 steps
    assert len(seen.outputs) == len(seen.probability) == 6
    e.save(tmp_path / "e.json")
    assert "NaN" not in (tmp_path / "e.json").read_text()
    loaded = whyformer.Explanation.load(tmp_path / "e.json")
    assert (loaded.diagnostics, loaded.seen, loaded.ranks) == (e.diagnostics, e.seen, True)
    assert loaded.signs is not None
    assert loaded.signs.tolist() == signs.tolist()


def test_words_have_the_sign_of_their_strongest_token() -> None:
    e = Explainer(subject()).explain("the acting is not bad at all", "stepwise")
    words = e.by_word()
    signs = dict(zip([unit.text for unit in words.units], words.signs, strict=True))
    for word, (text, sign) in zip(words.units, signs.items(), strict=True):
        members = [i for i, u in enumerate(e.units) if u.span and word.span[0] <= u.span[0] < word.span[1]]
        strongest = max(members, key=lambda i: e.scores[i])
        assert sign == e.signs[strongest], text


def test_a_method_with_options_in_brackets_inside_brackets() -> None:
    written = (
        "rollout,stepwise(steps=5, of=attcat(states=inputs, combine=sum), hide=mask),stepwise(of=cat(states=inputs))"
    )
    rollout, steps, cat = method_specs(written)
    assert rollout.label == "rollout"
    assert steps.options == {"steps": 5, "of": "attcat(states=inputs)", "hide": "mask"}
    assert method_specs([steps.label])[0].facts == steps.facts
    assert cat.made_of is not None
    assert cat.made_of.options == {"states": "inputs"}
    assert cat.facts["made_of"] == method_specs("cat(states=inputs)")[0].facts
    assert rollout.made_of is None
    assert method_specs("saliency(of=loss)")[0].made_of is None
    prediction = predicted(TEXTS)
    assert close(cat(prediction).total, STEPWISE(prediction, of="cat(states=inputs)").total)
    assert not close(cat(prediction).total, STEPWISE(prediction, of="cat").total)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("stepwise(of=rollot)", "did you mean 'rollout'"),
        ("stepwise(of=stepwise)", "cannot be made of itself"),
        ("stepwise(of=attcat(states=inputs)", "is not written as name or name"),
        ("stepwise(of=attcat(states=inputs)),steps=3)", "is not written as name or name"),
        ("stepwise(of=attcat(states=moon))", "option --states takes"),
        ("stepwise(of=)", "nothing is named"),
        ("stepwise(steps=many)", "option --steps takes a whole number"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said_at_once(written: str, message: str) -> None:
    with pytest.raises(whyformer.BadOption, match=message):
        method_specs(written)


# Pictures: an order is coloured by the sign that a unit had when it was hidden


def coloured(of: str = "attn_lrp", **options: Any) -> whyformer.Explanation:
    return Explainer(subject()).explain(
        "the actors like it, and the film is not bad at all", "stepwise", of=of, check=0, **options
    )


def test_an_order_is_coloured_by_sign() -> None:
    e = coloured()
    signs = np.asarray(e.signs)
    assert {-1, 1} <= set(signs.tolist())
    assert two_sided(e)
    assert np.sign(strengths(e)).tolist() == signs.tolist()
    assert np.abs(strengths(e)).tolist() == e.scores.tolist()
    for scored, colour in strongest(e, 30):
        sign = signs[next(i for i, unit in enumerate(e.units) if unit is scored.unit)]
        assert colour == (AGAINST if sign < 0 else FOR)
    assert {unit.text for unit, _ in strongest(e, 3)} == {unit.text for unit in e.top(3)}
    page = e._repr_html_()
    assert "speaks against it" in page
    assert "matters" not in page
    for colour in (FOR, AGAINST):
        assert f"rgba({colour[0]},{colour[1]},{colour[2]}," in page
    assert f"rgba({IMPORTANCE[0]}," not in page
    text = explanation_text(e)
    assert "+ for   - against" in text.plain
    assert "matters" not in text.plain
    assert any(as_hex(AGAINST) in str(span.style) for span in text.spans)


def test_people_are_shown_what_the_steps_did() -> None:
    """Not the order: of which there is nothing but ranks."""
    e = coloured()
    drawn = strengths(e.for_people(tokens=True))
    (image,) = e.figure(tokens=True).axes[0].get_images()
    shown = [i for i, unit in enumerate(e.units) if not unit.special]
    for place, (red, green, _) in zip(shown, image.get_array()[0], strict=True):
        if abs(drawn[place]) > 0.02:
            assert (red > green) == (drawn[place] < 0)


def test_an_order_without_signs_is_plain_importance() -> None:
    e = coloured(of="transformer_attribution")
    assert not two_sided(e)
    assert (strengths(e) >= 0).all()
    assert {colour for _, colour in strongest(e, 30)} == {IMPORTANCE}
    assert "speaks for it" not in e._repr_html_()


def test_drops_are_coloured_by_their_own_sign() -> None:
    e = coloured(report="drop")
    assert e.signed
    assert np.sign(strengths(e)).tolist() == np.sign(e.scores).tolist()
