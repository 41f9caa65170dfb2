"""Tiny random classifiers of many architectures, built offline from their configurations."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

import whyformer
from whyformer import tolerance
from whyformer.recorder.lrp.rule_sets import PLAIN

VOCABULARY = 60
PAD = 0
METHODS = [name for name, method in whyformer.list_methods().items() if not method.images_only]  # for texts
OPTIONS: dict[str, dict[str, Any]] = {  # of methods that cost much, or cannot do without any
    "smooth_grad": {"samples": 2},
    "mask_lrp": {"head_mask": "random", "rate": 0.5},
    "decoded_grad_cam": {"decode": False, "score": "saliency"},  # with LM heads: tests/reference/test_decoded.py
    "stepwise": {"steps": 2},
    "integrated_gradients": {"steps": 4, "baseline": "zero"},  # GPT-2 has no padding token, an image has no tokens
    "gradient_shap": {"samples": 2, "baseline": "zero"},
    "deep_lift_shap": {"baseline": "zero"},
    "occlusion": {"window": 2, "baseline": "zero"},
    "lime": {"samples": 8, "baseline": "zero"},
    "shapley_value_sampling": {"samples": 2, "baseline": "zero"},
    "kernel_shap": {"samples": 8, "baseline": "zero"},
}
# One method of each way to record a run (`way_to_record`), for tests that would repeat themselves with all methods.
ONE_OF_EACH = {
    "attcat": "attention maps",
    "gae": "each map and its gradient, of which only a product is kept",
    "input_x_gradient": "nothing but embeddings and states",
    "attn_lrp": "a rule book that acts during the run",
    "full_grad": "what arrives at biases",
    "lrp": "sites for relevance",
    "transformer_attribution": "sites, and relevance at one layer after the other",
    "integrated_gradients": "several runs",
    "stepwise": "several runs under a rule book, with hidden units",
}

NORM_FIRST = (
    "modernbert",
    "gpt2",
    "bloom",
    "mistral",
)  # what leaves the first of two layers enters a norm alone
NORM_AT_ONCE = ("bloom", "modernbert", "modernbert_mean")  # token embeddings are normalised, and used in no other way
BELOW: dict[str, dict[str, Any]] = {"cam": {"layer": 0}, "cat": {"states": "inputs"}, "attcat": {"states": "inputs"}}

_ENCODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": PAD,
}
_DECODER: dict[str, Any] = {**_ENCODER, "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2}

CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "bert": lambda: hf.BertConfig(**_ENCODER),
    "roberta": lambda: hf.RobertaConfig(**_ENCODER),
    "distilbert": lambda: hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64
    ),
    "electra": lambda: hf.ElectraConfig(**_ENCODER, embedding_size=24),
    "albert": lambda: hf.AlbertConfig(**{**_ENCODER, "num_hidden_layers": 3}, embedding_size=16),
    "mpnet": lambda: hf.MPNetConfig(**_ENCODER),
    "deberta_v2": lambda: hf.DebertaV2Config(  # type: ignore[call-arg]
        **_ENCODER,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=True,
    ),
    "xlm_roberta": lambda: hf.XLMRobertaConfig(**_ENCODER),
    "modernbert": lambda: hf.ModernBertConfig(  # type: ignore[call-arg]
        **_ENCODER,
        local_attention=4,
        global_attn_every_n_layers=2,
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "modernbert_mean": lambda: hf.ModernBertConfig(
        **_ENCODER,
        local_attention=4,
        classifier_pooling="mean",
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "big_bird": lambda: hf.BigBirdConfig(**_ENCODER, attention_type="original_full", sep_token_id=2),
    "gpt2": lambda: hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
    ),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**_ENCODER),
    "opt": lambda: hf.OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=48,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
        pad_token_id=PAD,
    ),
    "bloom": lambda: hf.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4, pad_token_id=PAD, bos_token_id=1, eos_token_id=2
    ),
    "llama": lambda: hf.LlamaConfig(**_DECODER),
    "mistral": lambda: hf.MistralConfig(**_DECODER, sliding_window=4),
    "qwen2": lambda: hf.Qwen2Config(**_DECODER),
    "qwen3": lambda: hf.Qwen3Config(**_DECODER),
    "gemma2": lambda: hf.Gemma2Config(**_DECODER, sliding_window=8, query_pre_attn_scalar=8),
    "phi3": lambda: hf.Phi3Config(**_DECODER),
    "gpt_oss": lambda: hf.GptOssConfig(  # type: ignore[call-arg]
        **_DECODER,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=4,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        experts_implementation="eager",
    ),
}

ALL = tuple(CONFIGS)
WITHOUT_SDPA = frozenset(  # transformers has no `sdpa` form of these
    {"big_bird", "bloom", "deberta_v2", "gemma2", "gpt_oss", "mpnet"}
)


def options(method: str, family: str) -> dict[str, Any]:
    """What a method needs to explain a tiny model of a family."""
    chosen = dict(OPTIONS.get(method, {}))
    if family in NORM_FIRST:
        chosen |= BELOW.get(method, {})
    if method == "input_x_gradient" and family in NORM_AT_ONCE:
        chosen["at"] = "embedding_output"
    return chosen


def way_to_record(name: str) -> tuple[object, ...]:
    """The facts that say how a run is recorded for a method; methods with the same facts share their code paths."""
    method = whyformer.list_methods()[name]
    needs = method.needs_for(OPTIONS.get(name, {}))
    under_rules = needs.book is not None and needs.book is not PLAIN
    return needs.maps, needs.sites, under_rules, needs.biases, needs.tap is not None, needs.in_turn, method.passes


def build(family: str, dtype: torch.dtype = torch.float64, attention: str | None = None) -> PreTrainedModel:
    """The same weights for every attention implementation."""
    return _build(family, dtype, attention or ("eager" if family in WITHOUT_SDPA else "sdpa"))


@cache
def _build(family: str, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    torch.manual_seed(7)
    config = CONFIGS[family]()
    config.num_labels = 3
    model = hf.AutoModelForSequenceClassification.from_config(config, attn_implementation=attention)
    for parameter in model.parameters():  # HF's initial weights are so small that every attention map is uniform
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return model.to(dtype).eval()


@cache
def arithmetic(family: str) -> torch.dtype:
    """The coarsest dtype in which a model of float64 computes."""
    model = build(family)
    return tolerance.arithmetic(lambda: model(**alone(batch(), 0)))


def batch(lengths: tuple[int, ...] = (9, 5, 7), extra: int = 0, seed: int = 0, **more: Any) -> dict[str, Tensor]:
    """Random tokens, padded on the right to the longest and `extra` more."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths) + extra
    ids = torch.full((len(lengths), width), PAD)
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(3, VOCABULARY, (length,), generator=generator)
        ids[row, 0] = 1
        mask[row, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, **more}


def alone(inputs: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    """One example of a batch, without padding."""
    length = int(inputs["attention_mask"][row].sum())
    return {name: tensor[row : row + 1, :length] for name, tensor in inputs.items()}
