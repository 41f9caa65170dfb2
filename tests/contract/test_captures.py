"""Captured runs are replayed with the same scores for every family, and end when the model changes.

A CPU has no graphs: a tape stands for them, which does the noted operations again in the same tensors, and refuses
whatever looks at numbers on the way, as a GPU that is capturing does (tests/contract/test_device.py has real ones).
"""

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import whyformer
from tests.helpers import families, zoo
from tests.helpers.captured import (
    ENDS,
    METHODS,
    compared,
    fits,
    moved,
    told,
)
from tests.helpers.tapes import Tape, on_the_cpu
from whyformer import UnsupportedModel
from whyformer.inputs.batch import batch_of
from whyformer.methods import replaying
from whyformer.methods.method import MethodSpec, method_specs
from whyformer.models.snapshot import State
from whyformer.prediction import Prediction
from whyformer.recorder.capture import captures
from whyformer.recorder.capture.captures import LENGTHS, SIGHTS, SIGHTS_OF_MANY, capturing
from whyformer.tolerance import close

REPLAYED = "replayed"


@pytest.fixture(autouse=True)
def _tapes() -> Iterator[None]:
    with on_the_cpu():
        yield


def passes(model: nn.Module) -> int:
    return sum(len(run.passes) for run in captures.captures_of(model).runs.values())


# Captured equals uncaptured


@pytest.mark.parametrize("family", families.ALL)
def test_every_family_gives_the_same_scores(family: str) -> None:
    """Every architecture is captured on a GPU."""
    model, several = families.build(family), [families.batch(), families.batch((4, 9, 6), seed=1)]
    method = next(method for method in METHODS if fits(model, several[0], method))
    found, expected = compared(model, several, method)
    assert all(close(one, other, families.arithmetic(family)) for one, other in zip(found, expected, strict=True))


IN_ONE_PASS = [name for name in families.METHODS if whyformer.list_methods()[name].passes == "one"]
PAIRS = [
    *(("bert", method) for method in IN_ONE_PASS),
    *((family, method) for family in ("deberta_v2", "modernbert", "mistral") for method in families.ONE_OF_EACH),
]


@pytest.mark.parametrize(("family", "method"), [pair for pair in PAIRS if pair[1] in IN_ONE_PASS])
def test_every_method_gives_the_same_scores(family: str, method: str) -> None:
    model, several = families.build(family), [families.batch(), families.batch((4, 9, 6), seed=1)]
    found, expected = compared(model, several, method, **families.options(method, family))
    assert all(close(one, other, families.arithmetic(family)) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("method", ["attn_lrp", "attcat", "transformer_attribution", "rollout", "gae", "grads"])
def test_the_usual_methods_are_replayed(method: str) -> None:
    model = families.build("bert")
    for seed in range(SIGHTS + 1):
        found = told(model, families.batch(seed=seed), method)
        assert found == (None if seed < SIGHTS else REPLAYED)
    assert passes(model) == 1


def test_many_texts_are_captured_once_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "MANY", 16)
    model = families.build("bert")
    for seed in range(SIGHTS_OF_MANY + 1):
        found = told(model, families.batch((9, 9), seed=seed), "attn_lrp")
        assert found == (None if seed < SIGHTS_OF_MANY else REPLAYED)
    alone = [told(model, families.batch((18,), seed=seed), "attn_lrp") for seed in range(SIGHTS + 1)]
    assert alone[-1] == REPLAYED


def test_lengths_share_a_capture_and_padding_changes_nothing() -> None:
    model = families.build("bert")
    compared(model, [families.batch((5,)), families.batch((6,))], "attn_lrp")
    for length in (3, 9, LENGTHS[0] - 1):
        inputs = families.batch((length,), seed=length)
        with capturing(False):
            expected = whyformer.attribute(model, inputs, "attn_lrp")
        assert close(whyformer.attribute(model, inputs, "attn_lrp"), expected, torch.float64)
        assert told(model, inputs, "attn_lrp") == REPLAYED
    assert passes(model) == 1
    assert told(model, families.batch((LENGTHS[0] + 1,)), "attn_lrp") is None


@pytest.mark.parametrize("length", [7, LENGTHS[0]])
def test_a_model_is_run_once_in_a_capture(length: int) -> None:
    model = families.build("bert")
    for _ in range(SIGHTS):
        told(model, families.batch((length,)), "attn_lrp")
    (run,) = captures.captures_of(model).runs.values()
    steps = run.graph.steps  # type: ignore[attr-defined]
    looked_up = [args for func, args, *_ in steps if func._schema.name == "aten::embedding"]
    assert len(looked_up) == 3  # words, positions, types


def test_a_model_that_goes_another_way_while_it_is_captured_is_run_once() -> None:
    """What is known of a run's calls is noted in another run, which is no part of what is captured."""
    model = copy.deepcopy(families.build("bert"))
    plain = model.bert.encoder.forward

    def forward(states: Tensor, *args: Any, **kwargs: Any) -> Any:
        while_captured = any(isinstance(mode, Tape) for mode in _get_current_dispatch_mode_stack())
        return plain(states * 1.0 if while_captured else states, *args, **kwargs)

    model.bert.encoder.forward = forward
    for _ in range(SIGHTS):
        told(model, families.batch(), "attn_lrp")
    (run,) = captures.captures_of(model).runs.values()
    steps = run.graph.steps  # type: ignore[attr-defined]
    assert len([args for func, args, *_ in steps if func._schema.name == "aten::embedding"]) == 3


def test_a_full_text_does_not_tell_what_padding_does() -> None:
    """What was captured without padding is compared once more before texts are padded."""
    model = families.build("bert")
    for _ in range(SIGHTS):
        told(model, families.batch((LENGTHS[0],)), "attn_lrp")
    assert told(model, families.batch((LENGTHS[0],)), "attn_lrp") == REPLAYED
    assert told(model, families.batch((7,)), "attn_lrp") is None
    assert told(model, families.batch((7,)), "attn_lrp") == REPLAYED


class Averaging(nn.Module):
    """A classifier that takes the mean over all positions, padding too."""

    def __init__(self, body: Any):
        super().__init__()
        self.body, self.config, self.head = body, body.config, nn.Linear(32, 3, dtype=torch.float64)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return {"logits": self.head(states.mean(1))}


def test_where_padding_matters_exact_lengths_are_captured() -> None:
    torch.manual_seed(0)
    model = Averaging(copy.deepcopy(families.build("bert")).bert).eval()
    inputs, same_length, other = (families.batch((length,), seed=seed) for seed, length in enumerate((9, 9, 6)))
    with capturing(False):
        expected = [whyformer.attribute(model, each, "attn_lrp") for each in (inputs, same_length, other)]
    for _ in range(2 * SIGHTS):
        whyformer.attribute(model, inputs, "attn_lrp")
    found = [whyformer.attribute(model, each, "attn_lrp") for each in (inputs, same_length, other)]
    assert all(close(one, due, torch.float64) for one, due in zip(found, expected, strict=True))
    known = captures.captures_of(model)
    assert known.length_matters
    assert [run.layout.padded for run in known.runs.values()] == [False]


def test_targets_and_what_they_are_set_against() -> None:
    model, inputs = families.build("bert"), families.batch()
    asked: list[dict[str, Any]] = [{"target": 0}, {"target": [0, 1, 2]}, {"target": 1, "versus": 0}, {"target": 2}]
    asked += [{"explains": "logit"}, {"explains": "log_odds", "target": 1}, {"versus": "runner_up"}]
    with capturing(False):
        expected = [whyformer.attribute(model, inputs, "attn_lrp", **one) for one in asked]
    for one in asked * SIGHTS:
        whyformer.attribute(model, inputs, "attn_lrp", **one)
    for one, due in zip(asked, expected, strict=True):
        assert close(whyformer.attribute(model, inputs, "attn_lrp", **one), due, torch.float64)
    assert passes(model) == 3  # by itself, beside one class, beside all others


def test_next_tokens() -> None:
    model = zoo.build("llama", head=zoo.CAUSAL)
    several = [zoo.batch(model, lengths, seed=seed) for seed, lengths in enumerate(((9, 5, 7), (4, 9, 9)))]
    found, expected = compared(model, several, "attn_lrp")
    assert all(close(one, due, torch.float64) for one, due in zip(found, expected, strict=True))
    assert passes(model) == 1
    with capturing(False):
        expected = [whyformer.attribute(model, several[1], "attn_lrp", target=7)]
    assert close(whyformer.attribute(model, several[1], "attn_lrp", target=7), expected[0], torch.float64)


@pytest.mark.parametrize("options", [{}, {"at": "pixels"}])
def test_images(options: dict[str, Any]) -> None:
    model = zoo.build("vit", head=zoo.IMAGE)
    several = [zoo.batch(model, (1, 1), seed=seed, head=zoo.IMAGE) for seed in range(2)]
    found, expected = compared(model, several, "attn_lrp", **options)
    assert all(close(one, due, torch.float64) for one, due in zip(found, expected, strict=True))
    assert passes(model) == 1


def test_explanations_of_texts_say_that_they_were_replayed() -> None:
    explainer = whyformer.Explainer.load("sentiment")
    texts = ["a gorgeous, witty film", "dull and far too long", "a film of no great interest"]
    with capturing(False):
        expected = [explainer.explain(text, "attn_lrp") for text in texts]
    found = [explainer.explain(text, "attn_lrp") for text in texts]
    assert [one.diagnostics.get("capture") for one in found] == [None] * SIGHTS + [REPLAYED]
    for one, due in zip(found, expected, strict=True):
        assert close(torch.tensor(one.scores), torch.tensor(due.scores), torch.float32)
        assert one.prediction.index == due.prediction.index
        assert one.checked is not None
    assert "capture" not in explainer.explain(texts[0], "attn_lrp", capture=False).diagnostics


def test_steps_and_evaluations_replay() -> None:
    explainer = whyformer.Explainer.load("sentiment")
    texts = ["a gorgeous, witty film", "a dull, witless film", "a slow, endless film"]
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(texts)]
    with capturing(False):
        due = explainer.evaluate(rows, "attn_lrp", metrics="aopc", rows_per_chunk=1, progress=False)
    table = explainer.evaluate(rows, "attn_lrp", metrics="aopc", rows_per_chunk=1, progress=False)
    assert passes(explainer.subject.model) == 1
    one, other = table["attn_lrp", "aopc"], due["attn_lrp", "aopc"]
    assert one is not None
    assert other is not None
    assert one.mean == pytest.approx(other.mean, abs=1e-5)
    captures.release()
    explainer.evaluate(rows, "attn_lrp", metrics="aopc", rows_per_chunk=1, progress=False, capture=False)
    assert passes(explainer.subject.model) == 0
    explainer.explain(texts[0], "stepwise", steps=4, check=0)
    assert passes(explainer.subject.model) >= 1


# What ends a capture


def captured_bert() -> tuple[Any, dict[str, Tensor]]:
    model, inputs = copy.deepcopy(families.build("bert")), families.batch()
    for _ in range(SIGHTS):
        told(model, inputs, "attn_lrp")
    assert told(model, inputs, "attn_lrp") == REPLAYED
    return model, inputs


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_another_state_of_the_model_ends_a_capture(end: Callable[[Any], None]) -> None:
    model, inputs = captured_bert()
    end(model)
    with capturing(False):
        expected = whyformer.attribute(model, inputs, "attn_lrp", target=1)
    assert told(model, inputs, "attn_lrp") is None
    assert passes(model) == 0
    assert close(whyformer.attribute(model, inputs, "attn_lrp", target=1), expected, torch.float64)


class Adapted(nn.Linear):
    """A linear map with adapters, of which some are active; as those of PEFT say it, in a list and in a flag."""

    def __init__(self, size: int):
        super().__init__(size, 3, dtype=torch.float64)
        self.adapters = nn.ModuleDict({name: nn.Linear(size, 3, dtype=torch.float64) for name in ("one", "other")})
        self._active_adapter, self._disable_adapters = ["one"], False

    def forward(self, states: Tensor) -> Tensor:
        active = [] if self._disable_adapters else self._active_adapter
        return super().forward(states) + sum(self.adapters[name](states) for name in active)


@pytest.mark.parametrize("switch", ["another", "in place", "off"])
def test_adapters_that_are_switched_end_a_capture(switch: str) -> None:
    model, inputs = copy.deepcopy(families.build("bert")), families.batch()
    model.classifier = Adapted(32)
    for _ in range(SIGHTS):
        told(model, inputs, "attn_lrp")
    assert told(model, inputs, "attn_lrp") == REPLAYED
    if switch == "another":
        model.classifier._active_adapter = ["other"]
    elif switch == "in place":
        model.classifier._active_adapter[0] = "other"
    else:
        model.classifier._disable_adapters = True
    with capturing(False):
        expected = whyformer.attribute(model, inputs, "attn_lrp", target=1)
    assert told(model, inputs, "attn_lrp") is None
    assert close(whyformer.attribute(model, inputs, "attn_lrp", target=1), expected, torch.float64)


def test_a_state_holds_until_something_is_exchanged() -> None:
    model = copy.deepcopy(families.build("bert"))
    state = State(model)
    whyformer.attribute(model, families.batch(), "attcat", capture=False)
    assert state.holds()
    assert state.lies_still()
    moved(model)
    assert not state.lies_still()
    assert not state.holds()


def test_a_model_that_nobody_has_any_more_is_let_go() -> None:
    model, _ = captured_bert()
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


# Whose numbers a run holds


def asked(model: nn.Module, inputs: dict[str, Tensor], spec: MethodSpec) -> Prediction:
    run = Prediction(model, batch_of(model, inputs), needs=spec.needs)
    return run.towards(None, run.outputs.explained(None, None))


def test_a_run_is_brought_back_to_whoever_asks() -> None:
    model, inputs = captured_bert()
    other, spec = families.batch(seed=5), method_specs(["attn_lrp"])[0]
    with capturing(False):
        due = [spec(asked(model, each, spec)).values for each in (inputs, other)]
    one, two = (asked(model, each, spec) for each in (inputs, other))
    logits = one.outputs.logits.clone(), two.outputs.logits.clone()
    assert not torch.equal(*logits)
    first, second = spec(one), spec(two)  # the run holds the numbers of the second when the first is asked
    assert {first.diagnostics["capture"], second.diagnostics["capture"]} == {REPLAYED}
    assert close(first.values, due[0], torch.float64)
    assert close(second.values, due[1], torch.float64)
    assert torch.equal(one.outputs.logits, logits[0])


def test_threads_take_turns() -> None:
    model, _ = captured_bert()
    several = [families.batch(seed=seed) for seed in range(6)]
    with capturing(False):
        due = [whyformer.attribute(model, each, "attn_lrp", target=1) for each in several]
    found: dict[int, Tensor] = {}

    def work(number: int) -> None:
        for _ in range(3):
            found[number] = whyformer.attribute(model, several[number], "attn_lrp", target=1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(several))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(close(found[number], each, torch.float64) for number, each in enumerate(due))


# What is not captured


@pytest.mark.parametrize("method", ["random", "alti", "attention_flow"])
def test_what_cannot_be_captured_says_so_and_goes_on(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = families.build("bert")
    reports = [told(model, families.batch(seed=seed), method) for seed in range(SIGHTS + 1)]
    assert reports[: SIGHTS - 1] == [None] * (SIGHTS - 1)
    assert all(one is not None and one.startswith(f"not captured: {method} does what") for one in reports[SIGHTS - 1 :])
    assert passes(model) == 0
    monkeypatch.setattr(replaying, "CapturedRun", None)  # another shape is not tried: what fails is the method
    assert (told(model, families.batch((20,)), method) or "").startswith(f"not captured: {method} does what")


def test_a_model_without_a_padding_token_is_captured_text_by_text() -> None:
    model = families.build("gpt2")
    assert "no padding token" in (told(model, families.batch(), "attn_lrp") or "")
    one, other = (families.batch((9,), seed=seed) for seed in range(2))
    found, expected = compared(model, [one, other], "attn_lrp")
    assert all(close(*pair, torch.float64) for pair in zip(found, expected, strict=True))
    assert passes(model) == 1


def test_large_batches_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "MOST_UNITS", 20)
    report = told(families.build("bert"), families.batch(), "attn_lrp")
    assert report is not None
    assert "27 units are enough" in report


def test_what_is_wrong_with_numbers_is_said_by_a_replay_too() -> None:
    model, inputs = copy.deepcopy(families.build("bert")), families.batch()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[50] = torch.inf
    inputs["input_ids"][inputs["input_ids"] == 50] = 51
    for _ in range(SIGHTS):
        told(model, inputs, "attn_lrp")
    inputs["input_ids"][0, 1] = 50
    with pytest.raises(UnsupportedModel, match="logits that are not numbers"):
        told(model, inputs, "attn_lrp")


def test_nothing_is_captured_of_numbers_that_are_wrong() -> None:
    model, inputs = copy.deepcopy(families.build("bert")), families.batch()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[50] = torch.inf
    inputs["input_ids"][0, 1] = 50
    for _ in range(SIGHTS):
        with pytest.raises(UnsupportedModel, match="not numbers"):
            told(model, inputs, "attn_lrp")
    assert passes(model) == 0


def test_captures_hold_no_more_memory_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = captured_bert()
    known = captures.captures_of(model)
    for lengths in ((9, 5), (9,)):
        for _ in range(SIGHTS):
            told(model, families.batch(lengths), "attn_lrp")
    assert len(known.runs) == 3
    told(model, families.batch(), "attn_lrp")  # the first was used last
    monkeypatch.setattr(captures, "limit_of", lambda device: 2 * 2)
    before: list[Any] = list(known.runs.values())
    captures.make_room(torch.device("cpu"))
    assert [run.layout.sizes[0][1][0] for run in known.runs.values()] == [3, 1]
    assert [run.graphs.is_waited_for for run in before] == [False, True, False]  # another stream may read its memory
    captures.release()
    assert passes(model) == 0
    assert all(run.graphs.is_waited_for for run in before)


def test_what_is_larger_than_all_captures_may_be_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "limit_of", lambda device: 1)
    model = families.build("bert")
    reports = [told(model, families.batch(), "attn_lrp") for _ in range(SIGHTS + 1)]
    assert "more memory" in (reports[-1] or "")
    assert reports[-1] == reports[-2]
    assert passes(model) == 0


# Replays without a second look


def repeated(model: nn.Module, times: int, method: str = "attn_lrp", **options: Any) -> list[Tensor]:
    return [whyformer.attribute(model, families.batch(seed=seed), method, **options) for seed in range(times)]


def uncaptured(model: nn.Module, times: int, method: str = "attn_lrp", **options: Any) -> list[Tensor]:
    with capturing(False):
        return repeated(model, times, method, **options)


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("input_ids", 10**6, "input_ids must lie in"),
        ("input_ids", -1, "input_ids must lie in"),
        ("token_type_ids", 99, "token_type_ids must lie in"),
        ("attention_mask", 0, "is attended to"),
    ],
)
def test_a_wrong_batch_is_refused_after_a_replay(name: str, number: int, message: str) -> None:
    model = families.build("bert")

    def batch(seed: int) -> dict[str, Tensor]:
        inputs = families.batch(seed=seed)
        return {**inputs, "token_type_ids": torch.zeros_like(inputs["input_ids"])}

    for seed in range(SIGHTS + 2):
        whyformer.attribute(model, batch(seed), "attn_lrp")
    wrong = batch(0)
    wrong[name][0] = number
    with pytest.raises(whyformer.BadInput, match=message):
        whyformer.attribute(model, wrong, "attn_lrp")
    with capturing(False):
        expected = whyformer.attribute(model, batch(1), "attn_lrp")
    assert close(whyformer.attribute(model, batch(1), "attn_lrp"), expected, torch.float64)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_changed_model_is_explained_anew(end: Callable[[Any], None]) -> None:
    model = copy.deepcopy(families.build("bert"))
    repeated(model, SIGHTS + 2)
    end(model)
    (found,), (expected,) = repeated(model, 1), uncaptured(model, 1)
    assert close(found, expected, torch.float64)


def test_weights_that_moved_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(families.build("bert"))
    repeated(model, SIGHTS + 2)
    (run,) = captures.captures_of(model).runs.values()
    monkeypatch.setattr(run.graph, "replay", lambda: pytest.fail("it reads weights where they were"))
    moved(model)
    repeated(model, 1)


def test_other_surroundings_take_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model = families.build("bert")
    repeated(model, SIGHTS + 2)
    monkeypatch.setattr(captures, "surroundings", lambda: ("others",))
    (found,), (expected,) = repeated(model, 1), uncaptured(model, 1)
    assert close(found, expected, torch.float64)
    known = captures.captures_of(model)
    assert len(known.runs) == 1
    repeated(model, SIGHTS)
    assert len(known.runs) == 2
