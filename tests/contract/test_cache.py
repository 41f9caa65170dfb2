"""The cache of a model: what forgets its facts, what does not, and that it keeps no model alive."""

import copy
import gc
import re
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import whyformer
from tests.helpers import families
from whyformer.inputs.tensors import tables
from whyformer.models.cache import known
from whyformer.models.memory import may_pad, run_without_padding


@pytest.fixture
def model() -> Any:
    return copy.deepcopy(families.build("bert"))


def remove_layer(model: Any) -> None:
    model.bert.encoder.layer = model.bert.encoder.layer[:1]


def remove_layer_in_place(model: Any) -> None:
    del model.bert.encoder.layer[1]


def exchange_layer(model: Any) -> None:
    model.bert.encoder.layer[1] = copy.deepcopy(model.bert.encoder.layer[1])


def enlarge_positions(model: Any) -> None:
    embeddings = model.bert.embeddings
    embeddings.position_embeddings = nn.Embedding(99, embeddings.position_embeddings.embedding_dim).double()


def enlarge_positions_in_place(model: Any) -> None:
    positions = model.bert.embeddings.position_embeddings
    positions.weight.data = torch.zeros(99, positions.embedding_dim).double()
    positions.num_embeddings = 99


def add_layer(model: Any) -> None:
    model.classifier.bias.requires_grad_(False)
    model.classifier.adapter = nn.Linear(2, 2)


def configure(model: Any) -> None:
    model.config.is_decoder = True


def edit_weights(model: Any) -> None:
    with torch.no_grad():
        model.classifier.weight.mul_(2)


def load_weights(model: Any) -> None:
    model.load_state_dict(families.build("bert").state_dict())


def add_hook(model: Any) -> None:
    model.classifier.register_forward_hook(lambda *_: None)


def exchange_function(model: Any) -> None:
    model.classifier.forward = lambda states: states


# `meta` stands for any other device: it is there on machines without a GPU too.
STRUCTURE = (
    *(remove_layer, remove_layer_in_place, exchange_layer, enlarge_positions, enlarge_positions_in_place, add_layer),
    *(configure, lambda model: model.to("meta"), lambda model: model.float()),
)
NUMBERS = (edit_weights, load_weights, add_hook, exchange_function)


@pytest.mark.parametrize("change", STRUCTURE)
@pytest.mark.parametrize("weights", [False, True])
def test_facts_are_forgotten_when_the_structure_changes(
    change: Callable[[Any], Any], weights: bool, model: Any
) -> None:
    known(model, weights=weights)["fact"] = 1
    assert known(model, weights=weights) == {"fact": 1}
    change(model)
    assert known(model, weights=weights) == {}


@pytest.mark.parametrize("change", NUMBERS)
def test_facts_about_numbers_are_forgotten_when_these_may_change(change: Callable[[Any], Any], model: Any) -> None:
    known(model)["fact"] = known(model, weights=True)["fact"] = 1
    change(model)
    assert known(model, weights=True) == {}
    assert known(model) == {"fact": 1}


def test_explanations_change_nothing(model: Any) -> None:
    known(model)["fact"] = known(model, weights=True)["fact"] = 1
    for method in ("attn_lrp", "transformer_attribution", "occlusion"):
        whyformer.attribute(model, families.batch(), method, target=1)
    assert known(model)["fact"] == known(model, weights=True)["fact"] == 1


def test_a_mode_and_the_padding_token_of_a_run_are_no_structure() -> None:
    model = copy.deepcopy(families.build("gpt2")).train()
    known(model)["fact"] = 1
    model.eval()
    model.config.pad_token_id = 3
    model.requires_grad_(False)
    assert known(model) == {"fact": 1}


def test_a_compiled_model_shares_the_facts_of_its_model(model: Any) -> None:
    known(model)["fact"] = 1
    assert known(torch.compile(model)) is known(model)


def test_any_module_has_facts() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Sequential())
    model.register_module("none", None)
    known(model)["fact"] = 1
    model[1].append(nn.Linear(1, 1))
    assert known(model) == {}


def test_a_fact_is_found_once(model: Any) -> None:
    found = []
    for _ in range(3):
        assert known(model).once("fact", lambda: found.append(1)) is None
    assert len(found) == 1


def test_a_fact_found_while_the_model_changes_is_forgotten(model: Any) -> None:
    def find() -> int:
        remove_layer(model)
        return 1

    assert known(model).once("fact", find) == 1
    assert "fact" not in known(model)


def test_two_threads_use_the_same_answer(model: Any) -> None:
    together = threading.Barrier(2)

    def find() -> object:
        together.wait(60)
        return object()

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: known(model).once("fact", find), range(2))
    assert one is other is known(model)["fact"]


def test_two_threads_that_notice_a_change_share_the_facts_since(model: Any) -> None:
    for _ in range(50):
        known(model)["fact"] = 1
        exchange_layer(model)
        together = threading.Barrier(2)

        def look(_: int, together: threading.Barrier = together) -> Any:
            together.wait(60)
            return known(model)

        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(look, range(2))
        assert one == other == {}
        assert one is other


@pytest.mark.parametrize("weights", [False, True])
def test_a_dropped_model_is_freed(weights: bool) -> None:
    model = copy.deepcopy(families.build("bert"))
    known(model, weights=weights)["fact"] = 1
    whyformer.attribute(model, families.batch(), "attn_lrp", target=1)
    layer, dropped = weakref.ref(model.bert.encoder.layer[1]), weakref.ref(model)
    del model
    gc.collect()
    assert dropped() is None
    assert layer() is None


def test_a_model_that_its_layers_refer_to_is_freed() -> None:
    model = copy.deepcopy(families.build("bert"))
    object.__setattr__(model.classifier, "owner", [model])
    known(model)["fact"] = 1
    dropped = weakref.ref(model)
    del model
    gc.collect()
    assert dropped() is None


def test_a_removed_layer_is_freed(model: Any) -> None:
    known(model)["fact"] = 1
    layer = weakref.ref(model.bert.encoder.layer[1])
    remove_layer(model)
    gc.collect()
    assert layer() is None


def test_tables_are_those_of_the_model_now(model: Any) -> None:
    for enlarge in (enlarge_positions, enlarge_positions_in_place):
        before = copy.deepcopy(model)
        assert tables(before)["position_ids"].rows < 99
        enlarge(before)
        assert tables(before)["position_ids"].rows == 99


def test_a_model_that_changed_may_pad_until_it_is_tried(model: Any) -> None:
    run_without_padding(model)
    assert not may_pad(torch.compile(model))
    remove_layer(model)
    assert may_pad(model)


def test_no_other_file_keeps_facts_by_model() -> None:
    """Names that a user gives classes are no fact that changes with a model. Captures free memory of a GPU in order.

    A hash of a tokenizer is kept with the model because not every tokenizer allows weak references.
    """
    package = Path(whyformer.__file__).parent
    by_model = re.compile(r"Weak(KeyDictionary|Set)\[nn\.Module")
    found = {
        str(path.relative_to(package)) for path in package.rglob("*.py") if by_model.search(path.read_text("utf-8"))
    }
    assert found == {"models/cache.py", "models/load.py", "models/snapshot.py", "recorder/capture/captures.py"}
