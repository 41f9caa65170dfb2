"""Unmodified models of many architectures: the recorder changes nothing and sees everything."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

import whyformer
from tests.helpers import families
from whyformer.testing import state
from whyformer.tolerance import arithmetic, close

EAGER_AND_SDPA = [f for f in families.ALL if f not in families.WITHOUT_SDPA]
CAUSAL = {"gpt2", "gpt_neox", "opt", "bloom", "llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "gpt_oss"}


def both(family: str) -> list[str]:
    return ["eager"] if family in families.WITHOUT_SDPA else ["eager", "sdpa"]


def plain_batch(family: str) -> dict[str, Tensor]:
    """A padded batch, or one text for a model that takes no other by itself."""
    return families.alone(families.batch(), 0) if family == "gpt2" else families.batch()


@pytest.mark.parametrize("family", families.ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_recorded_logits_are_the_models_own(family: str, dtype: torch.dtype) -> None:
    for attention in both(family):
        model = families.build(family, dtype, attention)
        inputs = families.alone(families.batch(), 0) if attention == "eager" else plain_batch(family)
        before = state(model)
        coarsest = arithmetic(lambda model=model, inputs=inputs: model(**inputs))
        with torch.no_grad():
            expected = model(**inputs).logits
        assert close(whyformer.record(model, inputs).logits, expected, coarsest)
        assert str(state(model)) == str(before)


@pytest.mark.parametrize("family", families.ALL)
def test_attention_maps_are_the_models_own(family: str) -> None:
    model, inputs = copy.deepcopy(families.build(family, torch.float32, "eager")), plain_batch(family)  # it keeps hooks
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True).attentions
    trace = whyformer.record(model, inputs)
    real = inputs["attention_mask"].bool()[:, None, :, None]
    assert len(trace.attention) == len(expected) == len(trace.values) == len(trace.hidden) - 1
    for seen, returned, values in zip(trace.attention, expected, trace.values, strict=True):
        assert close(seen * real, returned * real)
        assert values.shape[:3] == (*seen.shape[:2], seen.shape[3])


@pytest.mark.parametrize("family", EAGER_AND_SDPA)
@pytest.mark.parametrize("name", ["attcat(states=inputs)", "rollout", "att_grads", "grad_cam", "input_x_gradient"])
def test_eager_and_fused_attention_give_the_same_scores(family: str, name: str) -> None:
    inputs, options = plain_batch(family), {"at": "embedding_output"} if name == "input_x_gradient" else {}
    eager, fused = (
        whyformer.attribute(families.build(family, torch.float32, attention), inputs, name, target=1, **options)
        for attention in ("eager", "sdpa")
    )
    assert close(eager, fused)


@pytest.mark.parametrize("family", families.ALL)
def test_hidden_states_are_the_models_own(family: str) -> None:
    """All but the last, behind which some models report their final norm."""
    model, inputs = copy.deepcopy(families.build(family)), families.alone(families.batch(), 0)  # it keeps hooks
    with torch.no_grad():
        expected = model(**inputs, output_hidden_states=True).hidden_states
    trace = whyformer.record(model, inputs)
    assert len(trace.hidden) == len(expected)
    for seen, returned in list(zip(trace.hidden, expected, strict=True))[:-1]:
        assert close(seen, returned, families.arithmetic(family))


@pytest.mark.parametrize("family", families.ALL)
def test_the_reader_is_what_the_head_reads(family: str) -> None:
    lengths = (9, 5, 7)
    reader = whyformer.record(families.build(family), families.batch(lengths)).read_for()
    expected = torch.zeros(3, 9, dtype=reader.dtype)
    for row, length in enumerate(lengths):
        if family == "modernbert_mean":
            expected[row, :length] = 1 / length
        else:
            expected[row, length - 1 if family in CAUSAL else 0] = 1
    torch.testing.assert_close(reader, expected)


def test_a_text_that_ends_in_what_would_be_the_padding_token() -> None:
    """A model without a padding token is given one that no text of the batch holds."""
    model, inputs = families.build("gpt2"), families.batch((6, 4))
    inputs["input_ids"][0, -1] = 0
    inputs["input_ids"][1, 3] = 2
    assert model.config.pad_token_id is None
    scores = whyformer.attribute(model, inputs, "attcat(states=inputs)", target=0)
    assert model.config.pad_token_id is None
    for row in range(2):
        single = whyformer.attribute(model, families.alone(inputs, row), "attcat(states=inputs)", target=0)[0]
        assert close(scores[row, : len(single)], single)


def test_frozen_and_trainable_models_are_explained_alike() -> None:
    model = families.build("llama")
    expected = whyformer.attribute(model, families.batch(), "attcat(states=inputs)", target=1)
    model.requires_grad_(False)
    try:
        with torch.inference_mode():
            frozen = whyformer.attribute(model, families.batch(), "attcat(states=inputs)", target=1)
        assert not any(p.requires_grad for p in model.parameters())
    finally:
        model.requires_grad_(True)
    assert close(frozen, expected, families.arithmetic("llama"))


@pytest.mark.long
def test_a_compiled_model_is_explained_as_the_model_it_was_made_from() -> None:
    model = families.build("bert")
    compiled = torch.compile(model)
    expected = whyformer.attribute(model, families.batch(), "cat", target=1)
    assert close(whyformer.attribute(compiled, families.batch(), "cat", target=1), expected)


def test_input_embeddings_may_be_given() -> None:
    model, inputs = families.build("bert"), families.batch()
    embedded = {
        "inputs_embeds": model.get_input_embeddings()(inputs["input_ids"]).detach(),
        "attention_mask": inputs["attention_mask"],
    }
    scores = whyformer.attribute(model, embedded, "input_x_gradient", target=1)
    torch.testing.assert_close(scores, whyformer.attribute(model, inputs, "input_x_gradient", target=1))
    assert not embedded["inputs_embeds"].requires_grad


@pytest.mark.parametrize("family", ["deberta_v2", "modernbert", "bloom"])
def test_products_that_cancel_are_refused(family: str) -> None:
    config = families.CONFIGS[family]()
    config.position_biased_input = False
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.get_input_embeddings().weight.data *= 10
    for precise in (model.float(), model.double()):
        for call in ({"method": "input_x_gradient"}, {"method": "saliency", "protocol": "allennlp"}):
            with pytest.raises(whyformer.UnsupportedModel, match="embedding_output"):
                whyformer.attribute(precise, families.batch(), **call)
        scores = whyformer.attribute(precise, families.batch(), "input_x_gradient", at="embedding_output")
        assert scores.abs().max() > 0


def test_a_router_is_no_attention() -> None:
    trace = whyformer.record(families.build("gpt_oss"), families.batch())
    assert [a.shape for a in trace.attention] == [(3, 4, 9, 9)] * 2


class Folded(nn.Module):
    """Attention with its heads folded into the batch, and never unfolded; a softmax router beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([FoldedBlock(), FoldedBlock()])
        self.head = nn.Linear(8, 2)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: Tensor) -> "Output":
        states = self.embedding(input_ids)
        for block in self.blocks:
            states = block(states)
        return Output(self.head(states[:, 0]))


class FoldedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.router = nn.Linear(8, 8)

    def forward(self, states: Tensor) -> Tensor:
        batch, units, _ = states.shape
        q, k, v = (
            t.view(batch, units, 2, 4).transpose(1, 2).reshape(batch * 2, units, 4)
            for t in self.qkv(states).chunk(3, -1)
        )
        probabilities = F.dropout(torch.bmm(q, k.mT).softmax(-1), 0.1, self.training)
        context = torch.bmm(probabilities, v).view(batch, 2, units, 4).transpose(1, 2).reshape(batch, units, 8)
        return states + context * self.router(states).softmax(-1)


class Output:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


def test_heads_folded_into_the_batch_are_unfolded() -> None:
    torch.manual_seed(0)
    model = Folded().double()
    ids = torch.randint(0, 20, (3, 5))
    trace = whyformer.record(model, {"input_ids": ids})
    assert [a.shape for a in trace.attention] == [(3, 2, 5, 5)] * 2
    torch.testing.assert_close(trace.attention[1].sum(-1), torch.ones(3, 2, 5, dtype=torch.float64))
    assert all(g.abs().sum() > 0 for g in trace.gradient(trace.attention, 1))
    single = whyformer.attribute(model, {"input_ids": ids[:1]}, "att_grads", target=1)
    torch.testing.assert_close(whyformer.attribute(model, {"input_ids": ids}, "att_grads", target=1)[:1], single)
