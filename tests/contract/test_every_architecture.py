"""Every architecture that transformers has: each is built once, and everything that holds for all is checked.

Rules that act during the run give the relevance that the recorded sites give. A batch with as many texts as tokens is
explained as each text alone. Inputs that share a prefix have the outputs of whole runs. Captured graphs need a GPU:
`test_device.py`.
"""

import inspect
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whyformer
from tests.helpers import engines, zoo
from tests.helpers.reused import LENGTH, both_runs, hidden, whole_of
from tools.matrix import target_of
from whyformer.inputs.batch import batch_of
from whyformer.models.cache import known
from whyformer.perturb import prefixes
from whyformer.prediction import Prediction
from whyformer.recorder import record
from whyformer.recorder.lrp.rule_sets import GRADIENT_BOOKS
from whyformer.testing import state
from whyformer.tolerance import ROUNDING, arithmetic, close

NOT_FOLLOWED = {"ibert": "IntGELU is more than an activation"}
REFUSED = {  # all that cannot be recorded, and a part of the reason
    "PerceiverForImageClassificationFourier": "attention that lies in no layer of its own",
    "canine": "no token embeddings were looked up",
    "cpmant": "has states of 41 units",
    "pp_lcnet": "returns no logits",
}
METHODS: dict[str, dict[str, Any]] = {
    "attcat": {},
    "attn_lrp": {},
    "cp_lrp": {},
    "layer_lrp": {},
    "transformer_attribution": {},
    "gae": {},
    "lrp": {"book": "z_plus"},
}
SIZES = (5, 8)
# these compute in float32, also in a float64 model
SINGLE = zoo.SINGLE | {"axk1", "axk2", "deepseek_v2", "deepseek_v3", "gpt_neo", "gptj"}


@zoo.each(zoo.SEQUENCE, zoo.IMAGE, zoo.CAUSAL, but=lambda _, name: name in zoo.SLOW)
@pytest.mark.filterwarnings("ignore")
def test_every_architecture(head: zoo.Head, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo.build_for(name, head)
    check_engines(model, head, name)
    if head is zoo.SEQUENCE:
        check_square_batches(model, name)
    if head is not zoo.IMAGE and "past_key_values" in inspect.signature(model.forward).parameters:
        monkeypatch.setattr(prefixes, "CALL", 0)  # else short inputs are run whole
        check_prefixes(model, head)


def check_engines(model: nn.Module, head: zoo.Head, name: str) -> None:
    """Both engines give the same relevance; a model that cannot be recorded is refused for one reason."""
    inputs = zoo.batch(model, head=head)
    refusal = engines.refusal_of(partial(record, model, inputs))
    assert bool(refusal) == (name in REFUSED), refusal
    if refusal:
        calls = [partial(record, model, inputs, book=book, maps=False) for book in GRADIENT_BOOKS]
        assert {engines.refusal_of(call) for call in calls} == {refusal}
        assert REFUSED[name] in refusal
    else:
        expected = dict.fromkeys(GRADIENT_BOOKS, NOT_FOLLOWED[name]) if name in NOT_FOLLOWED else {}
        assert engines.apart(model, inputs, target_of(model, head)) == expected


def check_square_batches(model: nn.Module, name: str) -> None:
    """A batch with as many texts as tokens gives the scores of each text alone: no dimensions are confused."""
    allowed = 100 * ROUNDING[torch.float32] if name in SINGLE else 1e-7
    for size in SIZES:
        inputs = zoo.batch(model, (size,) * size)
        together = explained(model, inputs)
        for row in (0, size - 1):
            for method, alone in explained(model, zoo.alone(inputs, row)).items():
                batched = together[method]
                if isinstance(alone, Tensor) and isinstance(batched, Tensor):
                    assert (batched[row] - alone[0]).abs().max() <= allowed * alone.abs().max(), (size, method)
                else:
                    assert batched is alone, (size, method)


def explained(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Tensor | type[Exception]]:
    """The scores of each method, or the type of the error."""
    prediction = Prediction(model, batch_of(model, inputs), 1, relevance=True)
    found: dict[str, Tensor | type[Exception]] = {}
    for name, options in METHODS.items():
        try:
            found[name] = whyformer.list_methods()[name](prediction, **options).total
        except whyformer.WhyformerError as error:
            found[name] = type(error)
    return found


def check_prefixes(model: nn.Module, head: zoo.Head) -> None:
    """Inputs that share a prefix have the outputs of whole runs, and the model is left unchanged."""
    takes = inspect.signature(model.forward).parameters
    at_one_position = head is zoo.CAUSAL and "logits_to_keep" in takes
    if head is zoo.CAUSAL and not at_one_position:
        return  # `Copies` runs its inputs whole
    whole = whole_of(model)
    inputs = hidden(whole, *(("pad_attended",) if at_one_position else ("delete", "pad_attended")))
    before = state(model)
    engine, outputs, expected = both_runs(model, inputs, LENGTH - 1 if at_one_position else None)
    batch = {key: torch.from_numpy(values)[None] for key, values in whole.tensors.items()}
    assert close(outputs, expected, arithmetic(lambda: model(**batch)))
    assert str(state(model)) == str(before)
    assert (engine.counts.reused > 0) == ((known(model).get(prefixes.CHECKED) or 0) > 0)
