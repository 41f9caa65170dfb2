"""Masks of transformers: not made for one text without padding that is captured, and as before elsewhere."""

import threading
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from tests.helpers.cases import predicted
from whyformer.inputs.input import TensorInput
from whyformer.models import memory
from whyformer.perturb import Outcomes, hide_named
from whyformer.perturb import engine as flights
from whyformer.perturb.prefixes import Behind
from whyformer.prediction import Prediction
from whyformer.recorder.capture.mask_hints import masks
from whyformer.tolerance import close

masking_utils: Any = import_module("transformers.masking_utils")
PACKED = torch.tensor([[0, 1, 2, 0, 1]])  # two texts in one row


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a stream is captured: numbers cannot be looked at."""
    monkeypatch.setattr(masking_utils, "is_tracing", lambda tensor=None: True)


def llama() -> Any:
    torch.manual_seed(0)
    sizes: Any = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": 50, "num_key_value_heads": 2, "attn_implementation": "sdpa"}
    config = hf.LlamaConfig(**sizes)
    return hf.AutoModelForCausalLM.from_config(config).eval()


def masks_of(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The masks that its attention is given."""
    seen: list[Any] = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def noted(*args: Any, attn_mask: Any = None, **kwargs: Any) -> Any:
        seen.append(attn_mask)
        return attend(*args, attn_mask=attn_mask, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
        model(input_ids=torch.arange(5)[None], use_cache=False)
    return seen


def test_a_captured_text_has_no_mask(traced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    assert [mask.shape[-2:] for mask in masks_of(model, monkeypatch)] == [(5, 5)] * 2  # what is to be avoided
    with masks(needed=False):
        assert masks_of(model, monkeypatch) == [None] * 2
    assert all(mask is not None for mask in masks_of(model, monkeypatch))


def test_what_is_padded_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    model, mask = llama(), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    ids = torch.arange(10).reshape(2, 5)
    expected = model(input_ids=ids, attention_mask=mask).logits
    with monkeypatch.context() as patched, masks(needed=True):
        patched.setattr(masking_utils, "fast_all", lambda tensor: pytest.fail("it was looked at"))
        found = model(input_ids=ids, attention_mask=mask).logits
    assert close(found, expected, torch.float32)


def test_runs_of_padded_texts_do_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    own = predicted(["a good film", "a film that is very good"])
    assert own.batch.is_padded
    rows = [one.without([1], hide_named("delete")) for one in own.inputs]
    expected = Outcomes(own.model).of(rows, 3)
    is_traced, seen = masking_utils.is_tracing, list[bool]()

    def looked(tensor: Any = None) -> bool:
        seen.append(tensor is not None)
        return bool(is_traced(tensor))

    monkeypatch.setattr(masking_utils, "is_tracing", looked)
    monkeypatch.setattr(memory, "LIMITS", {"cpu": replace(memory.CPU, call=1000)})  # both in one batch
    _ = Prediction(own.model, own.batch).trace
    torch.testing.assert_close(Outcomes(own.model).of(rows, 3), expected)
    assert True not in seen
    own.model(**{name: tensor[:1] for name, tensor in own.batch.tensors.items()})
    assert True in seen  # the test would notice


def test_a_transformers_that_asks_otherwise_looks_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    before = masking_utils.is_tracing
    monkeypatch.delattr(masking_utils, "find_packed_sequence_indices")
    with masks(needed=True):
        assert masking_utils.is_tracing is before


def test_nothing_is_told_where_nothing_is_known() -> None:
    before = masking_utils.is_tracing
    with masks(needed=None):
        assert masking_utils.is_tracing is before


def test_what_is_masked_is_still_told_to_be_traced(traced: None) -> None:
    with masks(needed=False):
        assert masking_utils.is_tracing(torch.ones(1, 5))
        assert not masking_utils.is_tracing(None)


def test_without_a_mask_there_is_nothing_to_look_at() -> None:
    with masks(needed=True):
        assert masking_utils.is_tracing(torch.ones(1, 5))
        assert not masking_utils.is_tracing(None)
        assert masking_utils.find_packed_sequence_indices(PACKED) is not None


def test_who_tells_last_is_believed_as_long_as_it_tells() -> None:
    with masks(needed=True):
        with masks(needed=False):
            assert masking_utils.find_packed_sequence_indices(PACKED) is None
        assert masking_utils.find_packed_sequence_indices(PACKED) is not None


def test_other_threads_go_on_as_before() -> None:
    found: list[Any] = []

    def look() -> None:
        found.append(masking_utils.find_packed_sequence_indices(PACKED))
        found.append(masking_utils.is_tracing(torch.ones(1)))
        with masks(needed=True):
            found.append(masking_utils.is_tracing(torch.ones(1)))

    with masks(needed=False):
        other = threading.Thread(target=look)
        other.start()
        other.join()
        assert masking_utils.find_packed_sequence_indices(PACKED) is None
    assert found[0].tolist() == [[0, 0, 0, 1, 1]]
    assert found[1:] == [False, True]


@pytest.mark.parametrize("fails", [False, True])
def test_transformers_is_given_back_as_it_was(fails: bool) -> None:
    before = masking_utils.is_tracing, masking_utils.find_packed_sequence_indices
    try:
        with masks(needed=True), masks(needed=False):
            assert masking_utils.is_tracing is not before[0]
            if fails:
                raise RuntimeError
    except RuntimeError:
        pass
    assert (masking_utils.is_tracing, masking_utils.find_packed_sequence_indices) == before
    assert not masking_utils.is_tracing(torch.ones(1))


def test_a_mask_that_masks_nothing_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an encoder and of a decoder: attention is given no mask, as where transformers looks."""
    for model in (llama(), predicted(["a film"]).model):
        ids = torch.arange(3, 13).reshape(2, 5)
        mask = torch.ones_like(ids)
        expected = model(input_ids=ids, attention_mask=mask).logits
        with monkeypatch.context() as patched, masks(needed=False):
            patched.setattr(torch.Tensor, "__bool__", lambda tensor: pytest.fail("it was looked at"))
            found = model(input_ids=ids, attention_mask=mask).logits
        assert close(found, expected, torch.float32)


@pytest.mark.parametrize(("hide", "needed"), [("delete", False), ("pad_attended", False), ("pad", True)])
def test_an_engine_that_runs_ahead_tells_whether_anything_is_masked(
    hide: str, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = predicted(["a bad film", "a fine film"])
    rows = [one.without([2], hide_named(hide)) for one in own.inputs]
    assert len({len(one) for one in rows}) == 1
    expected = Outcomes(own.model).of(rows, 3)
    monkeypatch.setitem(flights.AHEAD, "cpu", 2)
    told: list[Any] = []

    def noted(*, needed: bool | None) -> Any:
        told.append(needed)
        return masks(needed=needed)

    monkeypatch.setattr("whyformer.perturb.engine.masks", noted)
    torch.testing.assert_close(Outcomes(own.model).of(rows, 3), expected)
    assert told == [needed]
    monkeypatch.setitem(flights.AHEAD, "cpu", 0)
    Outcomes(own.model).of(rows, 3)
    assert told[-1] is None  # nobody is waited for: transformers looks


def test_positions_of_its_own_are_left_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(flights.AHEAD, "cpu", 2)
    own = predicted(["a good film"])
    (one,) = own.inputs
    ids = np.asarray(one.tensors["input_ids"])
    positioned = TensorInput({**one.tensors, "position_ids": np.arange(len(ids))}, fillers=one.fillers)
    engine = Outcomes(own.model)
    assert engine._needs_masks(Behind([positioned])) is None
    decoded = TensorInput({**one.tensors, "decoder_attention_mask": np.zeros_like(ids)}, fillers=one.fillers)
    assert engine._needs_masks(Behind([decoded])) is None  # which is a mask, too
    assert engine._needs_masks(Behind([positioned.without([1], hide_named("pad"))])) is True
