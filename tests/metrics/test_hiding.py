"""Every way to hide, on every kind of tokenizer; and the engine that runs what is left."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.cases import KINDS, PAIR, TEXTS, case, predicted, subject
from whyformer import BadInput, BadOption
from whyformer.inputs.batch import batch_of
from whyformer.inputs.input import Fillers, TensorInput
from whyformer.metrics import Annotation, Case, measure
from whyformer.metrics.metric import metric_named
from whyformer.models.memory import CPU
from whyformer.perturb import Outcomes, count_of, hide_named
from whyformer.prediction import Prediction
from whyformer.progress import listening
from whyformer.testing import state

HIDES = ("delete", "mask", "mask_unattended", "pad", "pad_attended")
every_kind = pytest.mark.parametrize("kind", KINDS)
every_hide = pytest.mark.parametrize("hide", HIDES)


def possible(kind: str, hide: str) -> bool:
    return kind != "gpt2" or not hide.startswith("pad")


@every_kind
@every_hide
@pytest.mark.parametrize("text", [TEXTS[2], PAIR], ids=["text", "pair"])
def test_what_is_hidden(kind: str, hide: str, text: str | tuple[str, str]) -> None:
    one = case([text, TEXTS[0]], kind)
    row, places = one.inputs[0], one.rankable[0][1::2]
    if not possible(kind, hide):
        with pytest.raises(BadOption, match="no padding token; use hide='delete'"):
            row.without(places, hide_named(hide))
        return
    after = row.without(places, hide_named(hide))
    kept = [n for n in range(len(row)) if n not in places]
    if hide == "delete":
        for name, numbers in row.tensors.items():
            assert after.tensors[name].tolist() == numbers[kept].tolist()
        return
    tokenizer = subject(kind).tokenizer
    mask = tokenizer.unk_token_id if tokenizer.mask_token_id is None else tokenizer.mask_token_id
    filler = tokenizer.pad_token_id if hide.startswith("pad") else mask
    ids = row.tensors["input_ids"].copy()
    ids[places] = filler
    assert after.tensors["input_ids"].tolist() == ids.tolist()
    attended = [0 if n in places and hide in ("pad", "mask_unattended") else 1 for n in range(len(row))]
    assert after.tensors["attention_mask"].tolist() == attended
    if "token_type_ids" in row.tensors:
        assert after.tensors["token_type_ids"].tolist() == row.tensors["token_type_ids"].tolist()


@every_kind
def test_a_pair_never_loses_its_separators(kind: str) -> None:
    one = case([PAIR], kind)
    special = [n for n in range(len(one.inputs[0])) if n not in one.rankable[0]]
    after = one.inputs[0].without(one.rankable[0], hide_named("delete"))
    if kind == "gpt2":
        assert after.tensors["input_ids"].tolist() == [subject(kind).tokenizer.bos_token_id]
        assert after.tensors["attention_mask"].tolist() == [1]
    else:
        assert after.tensors["input_ids"].tolist() == one.inputs[0].tensors["input_ids"][special].tolist()


@every_kind
@every_hide
def test_probabilities_are_those_of_the_model_alone(kind: str, hide: str) -> None:
    if not possible(kind, hide):
        return
    one = case(TEXTS, kind)
    steps = [[places[:count] for count in (0, 1, 2)] for places in one.rankable]
    said = one.probabilities(steps, hide)
    for row, own, found in zip(one.inputs, steps, said, strict=True):
        for places, probabilities in zip(own, found, strict=True):
            after = row.without(places, hide_named(hide))
            inputs = {name: torch.from_numpy(numbers)[None] for name, numbers in after.tensors.items()}
            if kind == "gpt2" and not inputs["attention_mask"].all():
                continue
            with torch.no_grad():
                expected = subject(kind).model(**inputs).logits.softmax(-1)[0]
            assert torch.allclose(probabilities, expected, atol=1e-9)


def test_without_a_mask_token_or_any_other() -> None:
    row = TensorInput({name: np.ones(3, dtype=np.int64) for name in ("input_ids", "attention_mask")})
    with pytest.raises(BadOption, match=r"hide='mask' .* no mask or unknown token"):
        row.without([0], hide_named("mask"))
    with pytest.raises(BadOption, match="nothing to run"):
        row.without([0, 1, 2], hide_named("delete"))
    assert row.without([], hide_named("mask")) is row


def test_fillers_of_a_model_without_tokenizer() -> None:
    assert Fillers.of(subject("llama").model) == Fillers(None, 1, 1)


def test_rows_leave_padding_out_and_keep_masked_special_tokens() -> None:
    own = subject()
    ids = torch.tensor([[2, 9, 10, 3, 0, 0], [2, 9, 10, 11, 12, 3]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long(), "special_tokens_mask": (ids < 4).long()}
    inputs["attention_mask"][1, 0] = 0
    first, second = Prediction(own.model, batch_of(own.model, inputs), 0).inputs
    assert first.tensors["input_ids"].tolist() == [2, 9, 10, 3]
    assert second.tensors["attention_mask"].tolist() == [0, 1, 1, 1, 1, 1]


def test_inputs_that_units_cannot_be_hidden_in() -> None:
    own = subject()
    inputs = {"inputs_embeds": torch.zeros(1, 3, 32, dtype=torch.float64)}
    with pytest.raises(BadInput, match="found inputs_embeds"):
        Prediction(own.model, batch_of(own.model, inputs)).inputs[0].without([1], hide_named("delete"))


def test_counts_and_duplicates() -> None:
    outcomes = Outcomes(subject().model)
    cases = [case(outcomes=outcomes, seed=seed) for seed in range(4)]
    measure([(metric_named("aopc"), one, {}) for one in cases])
    asked = {
        row.without(order[: count_of(step / 10, len(order))], hide_named("delete")).key
        for one in cases
        for row, order in zip(one.inputs, [[p for (p,) in o] for o in one.ranked("predicted")], strict=True)
        for step in range(11)
    }
    assert outcomes.counts.requested == 4 * len(TEXTS) * 11
    assert outcomes.counts.run == len(asked) < outcomes.counts.requested
    assert outcomes.counts.padding <= CPU.call * outcomes.counts.batches


def test_batches_keep_to_the_budget_and_to_little_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    outcomes = Outcomes(subject().model, tokens_per_batch=60)
    rng = np.random.default_rng(0)
    rows = [
        TensorInput({"input_ids": rng.integers(5, 40, n), "attention_mask": np.ones(n, dtype=np.int64)})
        for n in rng.integers(2, 70, 200)
    ]
    shapes: list[torch.Size] = []
    handle = subject().model.register_forward_pre_hook(
        lambda _, __, inputs: shapes.append(inputs["input_ids"].shape), with_kwargs=True
    )
    with listening(lambda done, of: sizes.append((done, of))):
        said = outcomes.of(rows, 3)
    handle.remove()
    assert all(shape[0] == 1 or shape.numel() <= 60 for shape in shapes)
    assert outcomes.counts.batches == len(shapes)
    assert outcomes.counts.tokens == sum(shape.numel() for shape in shapes)
    assert outcomes.counts.padding == outcomes.counts.tokens - sum(
        len(row) for row in {r.key: r for r in rows}.values()
    )
    assert outcomes.counts.padding <= 0.05 * outcomes.counts.tokens
    assert sizes[-1] == (outcomes.counts.run, outcomes.counts.run)
    again = Outcomes(subject().model, tokens_per_batch=100_000).of(rows, 3)
    assert torch.allclose(said, again, atol=1e-12)


def test_planning_notes_and_answers_with_placeholders() -> None:
    one = case()
    with one.outcomes.planning():
        found = metric_named("aopc")(one)
    assert found.values.tolist() == [0.0] * len(TEXTS)
    assert one.outcomes.counts.run == 0
    one.outcomes.run()
    run = one.outcomes.counts.run
    requested = one.outcomes.counts.requested
    metric_named("aopc")(one)
    assert (one.outcomes.counts.run, one.outcomes.counts.requested) == (run, requested)
    one.outcomes.forget()
    metric_named("aopc")(one)
    assert (one.outcomes.counts.run, one.outcomes.counts.requested) == (2 * run, 2 * requested)


def test_the_model_is_given_back() -> None:
    model = subject("gpt2").model.train()
    before = state(model)
    metric_named("aopc")(case(kind="gpt2"))
    after = state(model)
    assert {k: v for k, v in before.items() if k != "weights"} == {k: v for k, v in after.items() if k != "weights"}
    assert all(torch.equal(v, after["weights"][k]) for k, v in before["weights"].items())
    model.eval()


def test_labels_that_go_together_have_sigmoids() -> None:
    one = case(problem="multi_label_classification")
    found = one.probabilities([[[]]] * len(TEXTS), "delete")
    expected = one.prediction.trace.logits.sigmoid().detach()
    assert torch.allclose(torch.cat(found), expected, atol=1e-9)


def test_a_regression_has_no_probabilities() -> None:
    with pytest.raises(BadInput, match="for models that classify"):
        metric_named("aopc")(case(labels=1))


def test_counts_are_rounded_half_up() -> None:
    assert [count_of(0.5, n) for n in (1, 3, 5)] == [1, 2, 3]
    assert (count_of(0.7, 45), count_of(0.01, 3, up=True), count_of(0.2, 15, up=True)) == (32, 1, 3)


def test_a_case_needs_scores_for_every_unit() -> None:
    prediction = predicted(TEXTS)
    with pytest.raises(BadInput, match="a case needs scores of shape"):
        Case(prediction, torch.zeros(4, 3), Outcomes(prediction.model))


def test_what_a_metric_asks_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called twice: first what it asks is noted, and then it gets the answers, of a case without its graph."""
    outcomes, calls, without = Outcomes(subject().model), list[int](), Outcomes.without

    def noted(self: Outcomes, whole: TensorInput, steps: Any, hide: Any) -> list[TensorInput]:
        calls.append(len(steps))
        return without(self, whole, steps, hide)

    monkeypatch.setattr(Outcomes, "without", noted)
    one = case(outcomes=outcomes)
    with outcomes.planning():
        metric_named("aopc")(one)
    assert calls == [11] * len(TEXTS)
    found = metric_named("aopc")(one.settled(one.prediction.settled()))
    assert calls == [11] * len(TEXTS)
    torch.testing.assert_close(found.values, metric_named("aopc")(case()).values)


def test_what_one_metric_asks_is_not_taken_for_what_another_does() -> None:
    words: dict[str, Any] = {"units": "word"}
    authors: dict[str, Any] = {"protocol": "attcat", "min_tokens": 0}
    asked: list[tuple[str, dict[str, Any]]] = [
        *(("aopc", {}), ("aopc", {"hide": "pad"}), ("aopc", {"fractions": [0.5]}), ("aopc", {"target": "gold"})),
        *(("aopc", words), ("aopc", {**words, "combine": "max"}), ("aopc", authors)),
        *(("aopc", {**authors, "special_tokens": True}), ("comprehensiveness", {}), ("sufficiency", {})),
    ]
    gold = [Annotation(gold=2)] * len(TEXTS)
    shared, values = case(annotations=gold), set[tuple[float, ...]]()
    for name, options in asked:
        found = metric_named(name)(shared, **options).values
        torch.testing.assert_close(found, metric_named(name)(case(annotations=gold), **options).values)
        values.add(tuple(found.tolist()))
    assert len(values) == len(asked)
