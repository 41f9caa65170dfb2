"""How the baselines run a model through captum: batches, counts, randomness, what is left behind, and errors."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer import BadInput, BadOption, UnsupportedModel
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import Scores
from whyformer.models.memory import CPU, LIMITS
from whyformer.prediction import Prediction
from whyformer.progress import listening
from whyformer.testing import check_method, state
from whyformer.tolerance import close

TARGET, VERSUS = 2, 0
LENGTHS = (9, 5, 7)
CLOSE = 1e-6  # captum adds up in float32
FAST: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 4},
    "gradient_shap": {},
    "deep_lift_shap": {},
    "occlusion": {},
    "lime": {"samples": 8},
    "shapley_value_sampling": {"samples": 3},
    "kernel_shap": {"samples": 8},
}


@pytest.fixture(scope="module")
def model() -> hf.PreTrainedModel:
    return families.build("bert")


def inputs(lengths: tuple[int, ...] = LENGTHS) -> dict[str, Tensor]:
    """A batch whose first and last real tokens are special."""
    given = families.batch(lengths)
    special = torch.zeros_like(given["input_ids"])
    for row, length in enumerate(lengths):
        special[row, 0] = special[row, length - 1] = 1
    return {**given, "special_tokens_mask": special}


def scores(model: nn.Module, name: str, given: dict[str, Tensor] | None = None, **options: Any) -> Scores:
    given = inputs() if given is None else given
    prediction = Prediction(model, batch_of(model, given), TARGET, VERSUS)
    return whyformer.list_methods()[name](prediction, **options)


def assert_near(found: Tensor, expected: Tensor, within: float = CLOSE) -> None:
    assert (found - expected).abs().max() <= within * expected.abs().max()


@pytest.mark.parametrize("family", ["bert", "roberta", "mistral"])
@pytest.mark.parametrize("name", FAST)
def test_with_padding_tokens_the_contract_is_kept(name: str, family: str) -> None:
    method = whyformer.list_methods()[name]
    assert not check_method(method, families.build(family), families.batch(), baseline="pad", **FAST[name])


@pytest.mark.parametrize("name", FAST)
def test_evaluations_are_counted_and_progress_is_told(name: str, model: nn.Module) -> None:
    prediction = Prediction(model, batch_of(model, inputs()), TARGET)
    told: list[float] = []
    _ = prediction.padding
    rows: list[int] = []
    handle = model.register_forward_hook(lambda m, a, o: rows.append(len(o.logits)))
    try:
        with listening(lambda done, total: told.append(done / total)):
            found = whyformer.list_methods()[name](prediction, **FAST[name])
    finally:
        handle.remove()
    assert int(found.diagnostics["evaluations"].sum()) == sum(rows)
    assert told == sorted(told)
    assert told[-1] == 1
    assert len(told) > 3


def test_all_orders_are_run_at_once(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captum asks for them one by one."""
    prediction = Prediction(model, batch_of(model, inputs((9,))), TARGET)
    _ = prediction.padding
    calls: list[int] = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    try:
        whyformer.list_methods()["shapley_value_sampling"](prediction, samples=20)
    finally:
        handle.remove()
    assert len(calls) == 1


@pytest.mark.parametrize(("versus", "spoken"), [(9, {1}), ((9, 2), {9, 7})])
def test_a_language_model_speaks_where_it_is_asked(versus: Any, spoken: set[int]) -> None:
    """A vocabulary at every position of every copy would fill the memory."""
    llama = hf.LlamaForCausalLM(families.CONFIGS["llama"]()).double().eval()
    prediction = Prediction(llama, batch_of(llama, families.batch((9, 7))), 7, versus)
    _ = prediction.padding
    shapes: set[int] = set()
    handle = llama.register_forward_hook(lambda m, a, o: shapes.add(o.logits.shape[1]))
    try:
        assert whyformer.list_methods()["occlusion"](prediction).total.any()
    finally:
        handle.remove()
    assert shapes == spoken


@pytest.mark.parametrize("name", ["lime", "shapley_value_sampling", "integrated_gradients", "gradient_shap"])
def test_small_batches_give_the_same(name: str, model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = scores(model, name, **FAST[name]).total
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, tokens=36))
    sizes: list[int] = []
    handle = model.register_forward_hook(lambda m, a, o: sizes.append(len(o.logits)))
    try:
        found = scores(model, name, **FAST[name]).total
    finally:
        handle.remove()
    assert_near(found, expected)
    assert max(sizes[1:]) <= 36 // 5


@pytest.mark.parametrize("name", ["shapley_value_sampling", "integrated_gradients"])
def test_where_memory_is_short_batches_are_halved(name: str, model: nn.Module) -> None:
    expected = scores(model, name, **FAST[name])
    sizes: list[int] = []

    def full(module: nn.Module, given: Any, output: Any) -> None:
        sizes.append(len(output.logits))
        if sizes[-1] > 3:
            raise torch.OutOfMemoryError

    handle = model.register_forward_hook(full)
    try:
        found = scores(model, name, **FAST[name])
    finally:
        handle.remove()
    assert max(sizes) > 3
    assert_near(found.total, expected.total)


@pytest.mark.parametrize("name", FAST)
def test_global_random_states_are_left_alone(name: str, model: nn.Module) -> None:
    prediction = Prediction(model, batch_of(model, inputs()), TARGET)
    _ = prediction.padding
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    whyformer.list_methods()[name](prediction, **FAST[name])
    broken = model.classifier.register_forward_hook(lambda *_: 1 / 0)
    try:
        with pytest.raises(ZeroDivisionError):
            whyformer.list_methods()[name](prediction, **FAST[name])
    finally:
        broken.remove()
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@pytest.mark.parametrize("name", ["lime", "shapley_value_sampling", "kernel_shap", "gradient_shap"])
def test_the_seed_matters_and_global_randomness_does_not(name: str, model: nn.Module) -> None:
    first = scores(model, name, **FAST[name]).total
    torch.manual_seed(99)
    np.random.seed(99)
    assert close(scores(model, name, **FAST[name]).total, first)
    assert not torch.allclose(scores(model, name, seed=1, **FAST[name]).total, first)


def test_nothing_of_deep_lift_is_left_at_the_model(model: Any) -> None:
    prediction = Prediction(model, batch_of(model, inputs()), TARGET)
    _ = prediction.padding
    before, attributes = state(model), [sorted(vars(module)) for module in model.modules()]
    runs: list[int] = []

    def third(*_: Any) -> None:
        runs.append(1)
        if len(runs) == 3:  # the run in which captum watches the activations
            raise ZeroDivisionError

    handle = model.classifier.register_forward_hook(third)
    try:
        with pytest.raises(ZeroDivisionError):
            whyformer.list_methods()["deep_lift_shap"](prediction)
    finally:
        handle.remove()
    assert [sorted(vars(module)) for module in model.modules()] == attributes
    assert state(model).keys() == before.keys()
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("name", FAST)
def test_a_text_of_special_tokens_scores_nothing(name: str, model: nn.Module) -> None:
    given = inputs((3, 2))
    found = scores(model, name, given, **FAST[name])
    assert not found.total[1].any()
    assert found.total[0, 1] != 0
    if name not in ("lime", "occlusion"):
        assert abs(found.diagnostics["delta"][1]) < 1e-12 or name == "deep_lift_shap"


# Errors

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("integrated_gradients", {"steps": 0}, "option steps takes a whole number from 1 to 2000 | none; found 0"),
    ("integrated_gradients", {"steps": 1, "protocol": "allennlp"}, "needs steps of at least 2; found 1"),
    ("integrated_gradients", {"at": "embedding_output", "protocol": "allennlp"}, "leave `at` and `baseline` out"),
    ("integrated_gradients", {"baseline": "mask", "protocol": "allennlp"}, "leave `at` and `baseline` out"),
    (
        "integrated_gradients",
        {"at": "nowhere"},
        "option at takes token_embeddings | embedding_output | pixels | none; found 'nowhere'",
    ),
    (
        "integrated_gradients",
        {"baseline": "cls"},
        "unk | zero | black | mean | blur | drop; found 'cls'",
    ),
    ("gradient_shap", {"samples": 0}, "option samples takes a whole number from 1 to 1000; found 0"),
    ("occlusion", {"window": 0}, "option window takes a whole number from 1 to 10000; found 0"),
    ("occlusion", {"window": 1.5}, "option window takes a whole number from 1 to 10000; found 1.5"),
    ("lime", {"samples": 0}, "option samples takes a whole number from 1 to 10000 | auto; found 0"),
    ("lime", {"hidden": 0.0}, "lime hides a share between 0 and 1"),
    ("lime", {"hidden": 1.0}, "lime hides a share between 0 and 1"),
    ("lime", {"penalty": -1.0}, "with a penalty from 0; found 0.3 and -1.0"),
    ("shapley_value_sampling", {"samples": 0}, "option samples takes a whole number from 1 to 10000; found 0"),
    ("kernel_shap", {"samples": 1}, "option samples takes a whole number from 2 to 10000 | auto; found 1"),
    ("lime", {"steps": 3}, "lime has no option 'steps'"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD, ids=str)
def test_a_bad_option_is_refused(name: str, options: dict[str, Any], message: str, model: nn.Module) -> None:
    with pytest.raises(BadOption) as error:
        scores(model, name, **options)
    assert message in str(error.value)


@pytest.mark.parametrize("name", FAST)
def test_a_model_without_padding_token_says_so(name: str) -> None:
    with pytest.raises(BadOption, match="of GPT2ForSequenceClassification names no padding token; use baseline='zero'"):
        whyformer.attribute(families.build("gpt2"), families.batch(), name)


@pytest.mark.parametrize("baseline", ["mask", "unk"])
def test_ready_tensors_have_no_tokenizer(baseline: str, model: nn.Module) -> None:
    message = "names no (mask|unknown) token; use baseline='zero', or explain texts with an Explainer"
    with pytest.raises(BadOption, match=message):
        scores(model, "occlusion", baseline=baseline)


def test_a_tokenizer_without_the_token() -> None:
    explainer = whyformer.Explainer.load("sentiment")
    explainer.subject.tokenizer.mask_token = None
    with pytest.raises(BadOption, match="baseline='mask' is not possible: the tokenizer has no mask token"):
        explainer.explain("a film", "occlusion", baseline="mask")


@pytest.mark.parametrize("name", ["occlusion", "integrated_gradients"])
def test_embeddings_have_no_tokens(name: str, model: nn.Module) -> None:
    given = {"inputs_embeds": torch.randn(2, 5, 32, dtype=torch.float64)}
    with pytest.raises(BadOption, match="the input has no tokens, it is given as inputs_embeds; use baseline='zero'"):
        whyformer.attribute(model, given, name)
    assert whyformer.attribute(model, given, name, baseline="zero").all()


def test_an_image_has_no_mask_token() -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    image = hf.ViTForImageClassification(hf.ViTConfig(**sizes, image_size=16, patch_size=4)).eval()
    given = {"pixel_values": torch.randn(1, 3, 16, 16)}
    with pytest.raises(BadOption, match="the input has no tokens, it is given as pixel_values; use baseline='zero'"):
        whyformer.attribute(image, given, "occlusion", baseline="mask")
    expected = whyformer.attribute(image, given, "occlusion")
    image.config.patch_size = 2  # patches are found from the run, whatever the configuration says
    assert close(whyformer.attribute(image, given, "occlusion"), expected)


def test_padding_inside_a_square_mask_is_refused(model: nn.Module) -> None:
    """The second text is shorter, but which of its tokens are padding only the caller knows."""
    llama = hf.LlamaForCausalLM(families.CONFIGS["llama"]()).double().eval()
    given = {"input_ids": families.batch((9,))["input_ids"], "attention_mask": torch.zeros(1, 1, 9, 9).double()}
    assert whyformer.attribute(llama, given, "occlusion", target=7).any()
    causal = torch.full((1, 1, 9, 9), -1e9, dtype=torch.float64).triu(1)
    with pytest.raises(BadInput, match=r"cannot be taken out of attention_mask \(1, 1, 9, 9\): give texts one by one"):
        whyformer.attribute(llama, {**given, "attention_mask": causal}, "occlusion", target=(7, 3))


def test_one_activation_run_twice_is_refused_by_name() -> None:
    import copy

    twice = copy.deepcopy(families.build("bert"))
    dense, tanh = twice.bert.pooler.dense, twice.bert.pooler.activation
    twice.bert.pooler.dense = nn.Sequential(dense, tanh)
    with pytest.raises(UnsupportedModel, match="BertForSequenceClassification runs one activation module twice"):
        whyformer.attribute(twice, families.batch(), "deep_lift_shap")


def test_numbers_that_are_none_are_refused(model: Any) -> None:
    prediction = Prediction(model, batch_of(model, inputs()), TARGET)
    _ = prediction.padding
    handle = model.classifier.register_forward_hook(lambda m, a, o: o * float("nan"))
    try:
        with pytest.raises(UnsupportedModel, match="logits that are not numbers once units are hidden"):
            whyformer.list_methods()["occlusion"](prediction)
    finally:
        handle.remove()


@pytest.mark.parametrize("name", FAST)
def test_a_text_that_changes_without_its_padding_is_refused(name: str) -> None:
    """RoBERTa counts a token that is masked but no padding token, and no position_ids of ours say so."""
    roberta = families.build("roberta")
    given = families.batch((6,))
    given["attention_mask"][0, 2] = 0
    with pytest.raises(BadInput, match="padding stands before or inside the text; pad on the right, or give texts one"):
        whyformer.attribute(roberta, given, name, target=TARGET, **FAST[name])


class ByProduct(nn.Module):
    """Looks tokens up by a product with one-hot rows."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table

    @property
    def weight(self) -> Tensor:
        return self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.one_hot(ids, self.table.num_embeddings).to(self.weight.dtype) @ self.weight


@pytest.mark.parametrize("baseline", ["pad", "zero"])
def test_tokens_that_are_not_looked_up_cannot_give_way(baseline: Any, model: nn.Module) -> None:
    import copy

    prediction = Prediction(copy.deepcopy(model), batch_of(model, inputs()), TARGET)
    _ = prediction.padding
    table = prediction.model.bert.embeddings
    table.word_embeddings = ByProduct(table.word_embeddings)
    with pytest.raises(BadOption, match="the embeddings of single tokens were not seen, and tokens are replaced there"):
        whyformer.list_methods()["occlusion"](prediction, baseline=baseline)
