"""What holds of every relevance pass: on models and batches of random shapes, with biases that are not 0."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

import whyformer
from tests.helpers import families
from whyformer.recorder.lrp import rules
from whyformer.recorder.lrp.sites import governed, make_site
from whyformer.tolerance import close

VOCABULARY = 40
BOOKS = ("z_plus", "attn", "conservative")
OTHERS = ("alpha_beta", "eq4", "eq4_normalised", "epsilon")

CONFIGS: dict[str, Callable[..., PreTrainedConfig]] = {
    "bert": hf.BertConfig,
    "deberta_v2": lambda **sizes: hf.DebertaV2Config(  # type: ignore[call-arg]
        **sizes, relative_attention=True, position_buckets=4, pos_att_type=["p2c", "c2p"]
    ),
    "modernbert": lambda **sizes: hf.ModernBertConfig(
        **sizes, classifier_pooling="mean", cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2
    ),
    "gpt2": lambda **sizes: hf.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=sizes["hidden_size"],
        n_layer=sizes["num_hidden_layers"],
        n_head=sizes["num_attention_heads"],
        n_positions=sizes["max_position_embeddings"],
        pad_token_id=0,
    ),
    "llama": lambda **sizes: hf.LlamaConfig(**sizes, num_key_value_heads=1, bos_token_id=1, eos_token_id=2),
}


@dataclass(frozen=True)
class Shape:
    """A model and a batch."""

    family: str
    heads: int
    head_width: int
    layers: int
    lengths: tuple[int, ...]
    seed: int

    def inputs(self, extra: int = 0) -> dict[str, Tensor]:
        """Padded on the right to the longest and `extra` more."""
        generator = torch.Generator().manual_seed(self.seed)
        ids = torch.zeros(len(self.lengths), max(self.lengths) + extra, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, length in enumerate(self.lengths):
            ids[row, :length] = torch.randint(3, VOCABULARY, (length,), generator=generator)
            mask[row, :length] = 1
        return {"input_ids": ids, "attention_mask": mask}

    @property
    def model(self) -> PreTrainedModel:
        return _model(self.family, self.heads, self.head_width, self.layers)


@cache
def _model(family: str, heads: int, head_width: int, layers: int) -> PreTrainedModel:
    config = CONFIGS[family](
        vocab_size=VOCABULARY,
        hidden_size=heads * head_width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=48,
        max_position_embeddings=32,
        pad_token_id=0,
    )
    config.num_labels = 3
    model = hf.AutoModelForSequenceClassification.from_config(config)
    generator = torch.Generator().manual_seed(heads * layers)
    for parameter in model.parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        parameter.data = 0.25 * drawn if parameter.dim() > 1 else parameter.data + 0.2 * drawn
    return model.double().eval()


@st.composite
def shapes(draw: st.DrawFn, families: tuple[str, ...] = tuple(CONFIGS)) -> Shape:
    heads = draw(st.integers(1, 4))
    return Shape(
        family=draw(st.sampled_from(families)),
        heads=heads,
        head_width={1: 32, 2: 16, 3: 12, 4: 8}[heads],
        layers=draw(st.integers(1, 2)),
        lengths=tuple(draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))),
        seed=draw(st.integers(0, 10**6)),
    )


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(shapes(), st.integers(0, 2))
def test_z_plus_conserves(shape: Shape, target: int) -> None:
    """What arrives at the embedding output and what parameters take on the way is 1."""
    trace = whyformer.record(shape.model, shape.inputs())
    found = trace.relevance((trace.hidden[0], *trace.absorbers), "z_plus", target)
    sums = sum(f.reshape(len(shape.lengths), -1).sum(1) for f in found)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(shapes(), st.integers(0, 2), st.integers(0, 3), st.sampled_from(BOOKS))
def test_neither_the_batch_nor_padding_matters(shape: Shape, target: int, extra: int, book: str) -> None:
    inputs = shape.inputs(extra)
    together = whyformer.record(shape.model, inputs)
    found = together.relevance(together.hidden[0], book, target)
    for row, length in enumerate(shape.lengths):
        alone = whyformer.record(shape.model, families.alone(inputs, row))
        assert_near(found[row, :length], alone.relevance(alone.hidden[0], book, target)[0])
        assert not found[row, length:].any()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(shapes(("bert", "deberta_v2")), st.integers(0, 2), st.sampled_from(BOOKS))
def test_what_is_masked_gets_nothing_and_does_not_matter(shape: Shape, target: int, book: str) -> None:
    """Anywhere in the text, not only at its end."""
    inputs = shape.inputs()
    generator = torch.Generator().manual_seed(shape.seed + 1)
    hidden = torch.rand(inputs["input_ids"].shape, generator=generator) < 0.4
    hidden[:, 0] = False  # the head reads it
    inputs["attention_mask"] = inputs["attention_mask"] * ~hidden
    others = {**inputs, "input_ids": torch.where(hidden, 7, inputs["input_ids"])}
    traces = [whyformer.record(shape.model, i) for i in (inputs, others)]
    found = [t.relevance(t.hidden[0], book, target) for t in traces]
    assert not found[0][inputs["attention_mask"] == 0].any()
    assert_near(found[1], found[0])


@settings(max_examples=8, deadline=None, derandomize=True)
@given(shapes(), st.permutations((*BOOKS, *OTHERS)), st.integers(0, 2))
def test_passes_do_not_disturb_each_other(shape: Shape, books: list[str], target: int) -> None:
    """Not in another order, not after a gradient, not the second time; and a gradient is what it was before."""
    of = lambda trace: (*trace.attention, *trace.hidden)  # noqa: E731
    first = whyformer.record(shape.model, shape.inputs())
    gradients = first.gradient(of(first), target)
    expected = {book: first.relevance(of(first), book, target) for book in sorted(books)}
    other = whyformer.record(shape.model, shape.inputs())
    for trace in (other, first):
        for book in books:
            found = trace.relevance(of(trace), book, target)
            assert all(map(close, found, expected[book]))
        assert all(map(close, trace.gradient(of(trace), target), gradients))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(shapes(), st.sampled_from((*BOOKS, *OTHERS)), st.integers(0, 2))
def test_relevance_does_not_depend_on_what_else_is_asked_for(shape: Shape, book: str, target: int) -> None:
    trace = whyformer.record(shape.model, shape.inputs())
    alone = trace.relevance(trace.hidden[0], book, target)
    *_, together = trace.relevance((*trace.attention, *trace.hidden[1:], trace.hidden[0]), book, target)
    assert close(alone, together)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(shapes(), st.sampled_from(("attn", "conservative")))
def test_a_modified_gradient_is_linear_in_the_target(shape: Shape, book: str) -> None:
    trace = whyformer.record(shape.model, shape.inputs())
    first, second, between = (trace.relevance(trace.hidden[0], book, *pair) for pair in ((0,), (2,), (0, 2)))
    assert_near(between, first - second)


# Models without biases


BIASLESS = ("llama", "mistral", "qwen3", "gemma2", "phi3")


def precise(self: torch.nn.Module, states: Tensor) -> Tensor:
    """A norm that does not round to float32 on the way."""
    weight, eps = (
        (self.weight, self.variance_epsilon) if hasattr(self, "variance_epsilon") else (1 + self.weight, self.eps)
    )
    return states * (states.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


@pytest.mark.parametrize("family", BIASLESS)
@pytest.mark.parametrize("extra", [0, 3])
def test_conservative_relevance_of_a_model_without_biases_adds_up_to_the_logit(
    family: str, extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the token embeddings: with its attention, gates and denominators held such a model is linear."""
    model = families.build(family)
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    for kind in {type(m) for m in model.modules() if type(m).__name__.endswith("RMSNorm")}:
        monkeypatch.setattr(kind, "forward", precise)
    for seed in range(3):
        trace = whyformer.record(model, families.batch((5, 4, 1), extra, seed))
        for target in range(3):
            found = trace.relevance(trace.embeddings, "conservative", target).flatten(1).sum(1)
            torch.testing.assert_close(found, trace.logits[:, target].detach(), rtol=1e-8, atol=0)


@pytest.mark.parametrize("family", BIASLESS)
def test_with_the_models_own_norms_it_adds_up_as_far_as_float32_goes(family: str) -> None:
    trace = whyformer.record(families.build(family), families.batch())
    found = trace.relevance(trace.embeddings, "conservative", 1).flatten(1).sum(1)
    torch.testing.assert_close(found, trace.logits[:, 1].detach(), rtol=1e-5, atol=0)


# One rule


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6)
)
def test_halves_of_a_matrix_product_are_the_papers_normalised_shares(
    batch: int, heads: int, queries: int, keys: int, width: int, seed: int
) -> None:
    """`R_A · |ΣR_A| / (|ΣR_A| + |ΣR_B|) · ΣR / ΣR_A`, sums per example: both sums are `ΣR`, up to the stabiliser."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [(batch, heads, queries, keys), (batch, heads, keys, width), (batch, heads, queries, width)]
    a, b, sent = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in drawn)
    sent = sent.abs()  # so that no sum cancels
    leaves = [a.requires_grad_(), b.requires_grad_()]
    result, site = make_site("attend", torch.matmul, leaves, "test", batch)
    assert site is not None
    with governed([site], lambda _: rules.matmul_halved):
        found = torch.autograd.grad(result, leaves, sent)
    shares = rules.divide(sent, (a @ b).detach())
    wholes = [(a * (shares @ b.mT)).detach(), (b * (a.mT @ shares)).detach()]
    for example in range(batch):
        sums = [float(w[example].sum()) for w in wholes]
        for half, whole, own in zip(found, wholes, sums, strict=True):
            size = abs(sums[0]) + abs(sums[1])
            expected = whole[example] * abs(own) / size * float(sent[example].sum()) / own
            assert_near(half[example], expected)
