"""What torch or a model does not do is refused by name, with what to do; what transformers takes is taken."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import whyformer
from tests.helpers import families, zoo
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction
from whyformer.tolerance import ROUNDING

INPUTS = families.batch((6, 6))
METHODS = ("input_x_gradient", "attcat", "attn_lrp", "transformer_attribution", "integrated_gradients", "alti", "lrp")


def refused(model: nn.Module, inputs: dict[str, Tensor], method: str, match: str) -> whyformer.WhyformerError:
    """The error of a method on a model."""
    with pytest.raises(whyformer.WhyformerError, match=match) as caught:
        whyformer.attribute(model, inputs, method, target=1, **families.OPTIONS.get(method, {}))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_flex_attention_is_no_attention(method: str) -> None:
    model = families.build("bert", torch.float32, "flex_attention")
    error = refused(model, INPUTS, method, "attn_implementation='sdpa' or 'eager'")
    assert isinstance(error, whyformer.NoAttention)


def test_flex_attention_that_a_model_calls_by_itself_is_no_attention() -> None:
    model = copy.deepcopy(families.build("bert"))

    def flex(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("FlexAttention does not support backward on CPU. Please use another device.")

    model.bert.encoder.layer[1].attention.self.forward = flex
    error = refused(model, INPUTS, "attcat", "attn_implementation='sdpa' or 'eager'")
    assert isinstance(error, whyformer.NoAttention)


def test_a_sum_inside_vmap_is_no_obstacle() -> None:
    model = copy.deepcopy(families.build("bert"))
    plain = model.dropout.forward

    def counting(states: Tensor) -> Tensor:
        torch.vmap(lambda row: torch.zeros_like(row).add_(1))(torch.ones(3, 2))
        return plain(states)

    model.dropout.forward = counting
    expected = whyformer.attribute(families.build("bert"), INPUTS, "attn_lrp", target=1)
    torch.testing.assert_close(whyformer.attribute(model, INPUTS, "attn_lrp", target=1), expected)


class Checkpointed(nn.Module):
    """A layer that forgets what it computes, and computes it again."""

    def __init__(self, layer: nn.Module, reentrant: bool):
        super().__init__()
        self.layer, self.reentrant = layer, reentrant

    def forward(self, states: Tensor, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(lambda s: self.layer(s, *args, **kwargs), states, use_reentrant=self.reentrant)


@pytest.mark.filterwarnings("ignore:.*[Cc]heckpoint")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_checkpoints_in_eval_mode_are_refused(method: str, reentrant: bool) -> None:
    model = copy.deepcopy(families.build("bert"))
    model.bert.encoder.layer = nn.ModuleList(Checkpointed(layer, reentrant) for layer in model.bert.encoder.layer)
    if not reentrant and method == "alti":  # needs no backward pass
        return
    error = refused(model, INPUTS, method, "[cC]heckpoint")
    assert isinstance(error, whyformer.UnsupportedModel)


class Quantised(Tensor):
    """A weight that can be multiplied with, and not much more."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.__name__ in ("abs", "view") and isinstance(args[0], cls):
            raise NotImplementedError(f"Quantised dispatch: attempting to run {func.__name__}\nsecond line")
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result.as_subclass(cls) if func.__name__ == "detach" else result


@pytest.mark.parametrize("method", ["transformer_attribution", "alti"])
def test_a_quantised_weight_that_lacks_a_function_is_refused(method: str) -> None:
    model = copy.deepcopy(families.build("bert"))
    for module in model.bert.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.detach().as_subclass(Quantised), requires_grad=False)
    refused(model, INPUTS, method, "Quantised dispatch.*; load it in float32, without quantisation")
    expected = whyformer.attribute(families.build("bert"), INPUTS, "attn_lrp", target=1)
    torch.testing.assert_close(whyformer.attribute(model, INPUTS, "attn_lrp", target=1), expected)


@pytest.mark.parametrize("method", METHODS)
def test_weights_made_in_inference_mode_are_refused(method: str) -> None:
    with torch.inference_mode():
        model = hf.BertForSequenceClassification(families.CONFIGS["bert"]()).eval()
    refused(model, INPUTS, method, "inference_mode")


def test_a_model_without_weights_is_refused() -> None:
    with torch.device("meta"):
        model = hf.BertForSequenceClassification(families.CONFIGS["bert"]()).eval()
    for method in METHODS:
        refused(model, INPUTS, method, "device meta, where it has no weights")
    with pytest.raises(whyformer.UnsupportedModel, match="meta"):
        whyformer.record(model, INPUTS)


def test_the_default_device_meta_is_refused() -> None:
    model = families.build("bert")
    torch.set_default_device("meta")
    try:
        for method in ("attcat", "integrated_gradients", "occlusion", "random"):
            refused(model, INPUTS, method, "set_default_device")
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("method", [*METHODS, "occlusion"])
def test_positions_for_all_examples_are_taken(method: str) -> None:
    model, positions = families.build("bert"), torch.arange(6).flip(0)[None]
    options = families.OPTIONS.get(method, {})
    found, expected = (
        whyformer.attribute(model, {**INPUTS, "position_ids": given}, method, target=1, **options)
        for given in (positions, positions.expand(2, -1))
    )
    assert (found - expected).abs().max() <= ROUNDING[torch.float64] * expected.abs().max()


class TorchEncoder(nn.Module):
    """A classifier made of torch's own encoder."""

    def __init__(self, batch_first: bool):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=batch_first)
        self.embedding, self.positions = nn.Embedding(60, 32), nn.Parameter(torch.randn(64, 32))
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, 3)
        self.batch_first = batch_first

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        states = self.embedding(input_ids) + self.positions[: input_ids.shape[1]]
        states = states if self.batch_first else states.transpose(0, 1)
        states = self.encoder(states, src_key_padding_mask=attention_mask == 0)
        return hf.modeling_outputs.SequenceClassifierOutput(
            logits=self.head(states[:, 0] if self.batch_first else states[0])
        )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("method", [*METHODS, "raw_attention", "gae", "cp_lrp"])
def test_torchs_own_encoder_is_looked_into(method: str) -> None:
    model, inputs = TorchEncoder(True).double().eval(), families.batch((7, 4))
    options = families.OPTIONS.get(method, {})
    with torch.no_grad():
        torch.testing.assert_close(whyformer.record(model, inputs).logits, model(**inputs).logits)
    together = whyformer.attribute(model, inputs, method, target=1, **options)
    alone = whyformer.attribute(model, families.alone(inputs, 1), method, target=1, **options)
    assert (together[1, :4] - alone[0]).abs().max() <= 1e-7 * alone.abs().max()


@pytest.mark.filterwarnings("ignore:.*nested_tensor")
def test_torchs_own_encoder_with_the_units_first_has_no_layers() -> None:
    model, inputs = TorchEncoder(False).double().eval(), families.batch((7, 7))
    refused(model, inputs, "attcat", "attention maps of shapes")
    expected = whyformer.attribute(TorchEncoder(True).double().eval(), inputs, "attn_lrp", target=1)
    torch.testing.assert_close(whyformer.attribute(model, inputs, "attn_lrp", target=1), expected)


def test_canine_is_refused_by_name() -> None:
    model = zoo.build("canine")
    assert next(model.parameters()).dtype == torch.float32
    for method in METHODS:
        refused(model, zoo.batch(model), method, "no token embeddings were looked up")


@pytest.mark.parametrize(
    ("mask", "match"),
    [
        (torch.ones(2, 5), r"shape \(2, 5\) for tokens of shape \(2, 6\)"),
        (torch.ones(1, 6), "give one for each"),
        (torch.ones(2, 6, 1, 1, 6), "shape"),
        (torch.full((2, 6), float("nan")), "NaN"),
        (torch.tensor([[1] * 6, [0] * 6]), "no token of example 1 is attended to"),
        (torch.zeros(2, 6), "example 0, 1 is attended to"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask: Tensor, match: str) -> None:
    model = families.build("bert")
    error = refused(model, {**INPUTS, "attention_mask": mask}, "attcat", match)
    assert isinstance(error, whyformer.BadInput)
    with pytest.raises(whyformer.BadInput, match=match):
        whyformer.record(model, {**INPUTS, "attention_mask": mask})


def test_a_mask_of_queries_and_keys_is_taken() -> None:
    mask = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    expected = whyformer.attribute(families.build("bert"), INPUTS, "attcat", target=1)
    found = whyformer.attribute(families.build("bert"), {**INPUTS, "attention_mask": mask}, "attcat", target=1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_dropout_that_is_never_off_is_told(attention: str) -> None:
    model = copy.deepcopy(families.build("bert", attention=attention))
    model.bert.embeddings.dropout.forward = lambda states: nn.functional.dropout(states, 0.3, training=True)
    with pytest.warns(whyformer.RandomnessWarning, match="each run says something else"):
        whyformer.record(model, INPUTS)


class Counted(hf.BertForQuestionAnswering):
    """Counts how often it is run."""

    runs = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        type(self).runs += 1
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize(("relevance", "runs"), [(True, 1), (False, 3)])  # 3: with maps, under a book, with sites
def test_the_parts_of_an_answer_share_their_run(relevance: bool, runs: int) -> None:
    torch.manual_seed(0)
    model = Counted(families.CONFIGS["bert"]()).double().eval()
    batch = batch_of(model, INPUTS)
    expected = whyformer.list_methods()["attn_lrp"](Prediction(model, batch, relevance=True)).total
    Counted.runs = 0
    prediction = Prediction(model, batch, relevance=relevance)
    for method in ("attcat", "attn_lrp", "transformer_attribution", "alti"):
        scores = whyformer.list_methods()[method](prediction).total
        if method == "attn_lrp":
            torch.testing.assert_close(scores, expected)
    assert Counted.runs == runs


def test_a_prediction_that_begins_with_relevance_is_run_once() -> None:
    model = Counted(families.CONFIGS["bert"]()).double().eval()
    Counted.runs = 0
    prediction = Prediction(model, batch_of(model, INPUTS))
    assert prediction.traced is prediction.towards(None).trace is prediction.traced
    assert Counted.runs == 1


def opt(positions: int) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 37, "num_hidden_layers": 2}
    config = hf.OPTConfig(vocab_size=99, num_attention_heads=4, max_position_embeddings=positions, **sizes)
    return hf.OPTForSequenceClassification(config).eval()


def test_a_table_of_positions_that_was_enlarged_takes_longer_texts() -> None:
    model, inputs = opt(6), {"input_ids": torch.arange(5, 12)[None]}
    refused(model, inputs, "attn_lrp", "7 tokens, but the model has positions for 6: give fewer")
    model.model.decoder.embed_positions = opt(7).model.decoder.embed_positions
    assert whyformer.attribute(model, inputs, "attn_lrp", target=1).shape == (1, 7)


def test_positions_that_begin_at_an_offset_are_counted() -> None:
    model, inputs = opt(6), {"input_ids": torch.arange(5, 12)[None]}
    refused(model, inputs, "attn_lrp", "7 tokens, but the model has positions for 6: give fewer")
    shorter = {"input_ids": inputs["input_ids"][:, :6]}
    expected = whyformer.attribute(model, shorter, "attn_lrp", target=1)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, model.config.pad_token_id]])
    padded = {"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 0]])}  # padding has no position
    found = whyformer.attribute(model, padded, "attn_lrp", target=1)
    torch.testing.assert_close(found[:, :6], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(whyformer.BadInput, match=r"OPTForSequenceClassification .* has no row in its table"):
        whyformer.record(model, inputs)


@pytest.mark.parametrize("method", ["attn_lrp", "attcat", "occlusion"])
def test_chunks_that_do_not_divide_the_tokens_are_refused(method: str) -> None:
    """transformers itself raises then; where they divide them, nothing changes."""
    model = copy.deepcopy(families.build("bert"))
    options = {"baseline": "zero"} if method == "occlusion" else {}
    expected = whyformer.attribute(model, INPUTS, method, target=1, **options)
    for module in model.modules():
        if hasattr(module, "chunk_size_feed_forward"):
            vars(module)["chunk_size_feed_forward"] = 3
    torch.testing.assert_close(whyformer.attribute(model, INPUTS, method, target=1, **options), expected)
    error = refused(model, families.batch((7, 7)), method, "load it with chunk_size_feed_forward=0")
    assert isinstance(error, whyformer.UnsupportedModel)
