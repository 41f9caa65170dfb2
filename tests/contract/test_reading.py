"""Behind the last attention the first position alone is computed, where the head reads no other: the same outputs."""

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from tests.helpers import families, zoo
from whyformer.errors import UnsupportedModel
from whyformer.inputs.fillers import Fillers
from whyformer.inputs.input import TensorInput
from whyformer.perturb import Outcomes, hide_named, reading, runner
from whyformer.perturb.runner import Runner
from whyformer.rounding import arithmetic, close

NEVER = 10**9
HIDDEN = ([1], [2, 3], [4, 5, 6])


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runner, "MANY", 1)
    reading._KNOWN.clear()
    yield
    reading._KNOWN.clear()


def read(output: Any) -> Tensor:
    return output.logits.flatten(1)


def both(model: nn.Module, inputs: list[TensorInput], monkeypatch: pytest.MonkeyPatch) -> tuple[Runner, Tensor, Tensor]:
    """The engine that looks where the head reads, what it says, and what is said where all positions are computed."""
    engine = Runner(model, read, reuse=True)
    found = engine.logits(inputs, 1)
    with monkeypatch.context() as patched:
        patched.setattr(runner, "MANY", NEVER)
        return engine, found, Runner(model, read, reuse=True).logits(inputs, 1)


def texts_for(model: nn.Module) -> list[TensorInput]:
    """A text without some of its tokens, and with others in their place."""
    tensors, fillers = zoo.batch(model, (9,)), Fillers.of(model, None)
    fillers = Fillers(pad=3, alone=1) if fillers.pad is None else fillers
    whole = TensorInput({name: values[0].numpy() for name, values in tensors.items()}, fillers=fillers)
    return [whole, *(whole.without(p, hide_named(hide)) for hide in ("delete", "pad_attended") for p in HIDDEN)]


def takes_a_past(name: str) -> bool:
    return "past_key_values" in inspect.signature(getattr(hf, zoo.SEQUENCE.classes[name]).forward).parameters


@pytest.mark.filterwarnings("ignore")
@zoo.each(zoo.SEQUENCE, but=lambda _, name: takes_a_past(name))
def test_every_encoder_says_the_same(head: zoo.Head, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo.build_for(name, head)
    inputs = texts_for(model)
    _, found, expected = both(model, inputs, monkeypatch)
    batch = {key: torch.from_numpy(np.asarray(values))[None] for key, values in inputs[0].tensors.items()}
    assert close(found, expected, arithmetic(lambda: model(**batch)))


@pytest.mark.parametrize(
    ("family", "reads_first"),
    [("bert", True), ("roberta", True), ("distilbert", True), ("electra", True), ("gpt2", False), ("llama", False)],
)
def test_who_reads_the_first_position(family: str, reads_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = families.build(family)
    engine, found, expected = both(model, texts_for(model), monkeypatch)
    assert engine._attentions == (model.config.num_hidden_layers if reads_first else 0)
    assert close(found, expected, families.arithmetic(family))


def widths(model: Any, inputs: list[TensorInput]) -> list[int]:
    """How many positions the last layer's second linear map is given, run by run."""
    seen: list[int] = []
    last = model.bert.encoder.layer[-1].output.dense
    hook = last.register_forward_hook(lambda module, given, output: seen.append(given[0].shape[1]))
    try:
        Outcomes(model).of(inputs, 3)
    finally:
        hook.remove()
    return seen


def test_one_position_is_computed_once_that_was_checked() -> None:
    model = families.build("bert")
    inputs = texts_for(model)
    assert widths(model, inputs)[:3] == [9, 9, 1]  # the check: all of them, spoilt ones, and then one
    assert set(widths(model, inputs)[3:]) == {1}


def test_few_inputs_are_not_worth_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MANY", 8)
    model = families.build("bert")
    assert 1 not in widths(model, texts_for(model)[:4])


@pytest.mark.parametrize(("budget", "rows"), [(18, 2), (17, 1)])
def test_the_check_keeps_to_the_budget(budget: int, rows: int) -> None:
    model, seen = families.build("bert"), list[int]()
    hook = model.register_forward_pre_hook(lambda _, __, given: seen.append(len(given["input_ids"])), with_kwargs=True)
    try:
        Outcomes(model, tokens_per_batch=budget).of(texts_for(model), 3)
    finally:
        hook.remove()
    assert seen[:3] == [rows] * 3


class Pooled(nn.Module):
    """A head that reads the mean of all positions."""

    def forward(self, states: Tensor) -> Tensor:
        return states.mean(1)


def test_a_head_that_reads_all_positions_is_noticed_when_it_is_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(families.build("bert"))
    inputs, plain = texts_for(model), model.bert.pooler
    narrow, *_ = both(model, inputs, monkeypatch)
    model.bert.pooler = Pooled()
    pooled, found, expected = both(model, inputs, monkeypatch)
    assert close(found, expected)
    model.bert.pooler = plain
    again, *_ = both(model, inputs, monkeypatch)
    assert (narrow._attentions, pooled._attentions, again._attentions) == (2, 0, 2)


def test_a_head_that_reads_others_is_noticed_by_no_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of half precision, in which two heads may say nearly the same."""
    model = copy.deepcopy(families.build("bert"))
    model.bert.pooler = Pooled()
    monkeypatch.setattr(reading, "close", lambda one, other: True)
    engine, found, expected = both(model, texts_for(model), monkeypatch)
    assert engine._attentions == 0
    assert close(found, expected)


def test_texts_of_one_token_do_not_tell() -> None:
    model = families.build("gpt2")
    alone = [TensorInput({"input_ids": np.array([token]), "attention_mask": np.array([1])}) for token in (4, 5, 6)]
    engine = Runner(model, read, reuse=True)
    engine.logits(alone, 1)
    assert engine._attentions == 0


def test_what_is_said_at_positions_is_not_narrowed() -> None:
    """Here it is said at the first one; another engine may ask the same model at another."""
    torch.manual_seed(0)
    model: Any = hf.BertForMaskedLM(families.build("bert").config).double().eval()
    engine = Runner(model, lambda output: output.logits[:, 0], kept=0, reuse=True)
    engine.logits(texts_for(model), 1)
    assert engine._attentions == engine._looked_at == 0  # nor is it worth a look


def attending(*given: Any) -> Tensor:
    return nn.functional.scaled_dot_product_attention(*torch.zeros(3, 1, 1, 2, 2))


def test_a_model_that_does_nothing_behind_its_attention_is_left_alone() -> None:
    def run(context: Any) -> Tensor:
        with context:
            return attending()

    assert reading.attentions_before_reading(nn.Linear(1, 1), 2, run) == 0


def test_what_is_refused_without_the_others_needs_them() -> None:
    def run(context: Any) -> Tensor:
        if type(context) is reading.FirstAlone:
            raise UnsupportedModel("it gives no probabilities of classes")
        with context:
            return attending()

    assert reading.attentions_before_reading(nn.Linear(1, 1), 2, run) == 0


def test_short_memory_is_no_answer() -> None:
    model, is_short = nn.Linear(1, 1), True

    def run(context: Any) -> Tensor:
        if is_short:
            raise torch.OutOfMemoryError("short")
        with context:
            return model(attending()[0])[:, 0]

    assert reading.attentions_before_reading(model, 2, run) == 0
    is_short = False
    assert model not in reading._KNOWN  # it is asked again


class Uneven(nn.Module):
    """A head whose first class reads the first position, and whose second one reads all."""

    def forward(self, states: Tensor) -> Tensor:
        return torch.cat((states[:, 0, :1], states.mean(1)[:, :1]), 1)


def test_the_answer_does_not_depend_on_what_of_the_outputs_is_kept() -> None:
    model = copy.deepcopy(families.build("bert"))
    model.bert.pooler, model.classifier = Uneven(), nn.Identity()
    engine = Runner(model, lambda output: output.logits[:, :1], reuse=True)
    engine.logits(texts_for(model), 1)
    assert engine._attentions == 0


class Strided(nn.Module):
    """A head that reads every eighth position."""

    def forward(self, states: Tensor) -> Tensor:
        return states[:, ::8].mean(1)


def test_longer_inputs_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(families.build("bert"))
    model.bert.pooler = Strided()
    inputs = texts_for(model)
    short, *_ = both(model, [one for one in inputs if len(one) <= 8], monkeypatch)
    assert short._attentions == 2
    engine, found, expected = both(model, inputs, monkeypatch)
    assert engine._attentions == 0
    assert close(found, expected)
    monkeypatch.setattr(runner, "MANY", NEVER)  # nobody looks again: longer ones are run as before
    assert short._attentions == 2
    is_long = [len(one) == 9 for one in inputs]
    found = short.logits([one for one in inputs if len(one) == 9], 1)
    assert close(found, expected[torch.tensor(is_long)])


class Picky(nn.Module):
    """A head that refuses what is no number, or too short, by an error of its own."""

    def __init__(self, least: int):
        super().__init__()
        self.least = least

    def forward(self, states: Tensor) -> Tensor:
        assert states.shape[1] >= self.least
        if states.isnan().any():
            raise TypeError("not numbers")
        return states[:, 0]


@pytest.mark.parametrize("least", [0, 2])
def test_a_head_that_refuses_the_check_is_run_as_before(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(families.build("bert"))
    model.bert.pooler = Picky(least)
    engine, found, expected = both(model, texts_for(model), monkeypatch)
    assert engine._attentions == 0
    assert close(found, expected)


def test_a_model_that_needs_all_positions_is_run_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that do not go together raise inside: that is an answer, not an error."""
    model = copy.deepcopy(families.build("bert"))
    last = model.bert.encoder.layer[-1].output
    plain = last.forward
    last.forward = lambda states, residual: plain(states, residual).view(-1, 9, residual.shape[-1])
    inputs = [one for one in texts_for(model) if len(one) == 9]
    engine, found, expected = both(model, inputs, monkeypatch)
    assert engine._attentions == 0
    assert close(found, expected)
