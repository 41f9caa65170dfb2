"""Tiny random models of every architecture that transformers has for a head: classifiers, language models, and so on.

`build` takes the default configuration of a model type, shrinks what every configuration calls by one of a few names
(`_SIZES`), applies what has to be configured by hand (`_BY_HAND`), and draws weights large enough for attention maps
that are not uniform.  Nothing is downloaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from tests.helpers import vision

VOCABULARY = 60
PAD, BOS, EOS = 0, 1, 2
LARGEST = 5_000_000  # parameters; what is larger was not shrunk


@dataclass(frozen=True)
class Head:
    """What a model is built for: the mapping of transformers that lists its architectures, and its number of labels."""

    name: str
    mapping: str
    auto_class: str
    labels: int = 3
    choices: int = 0  # texts of each example, if it has several

    @property
    def classes(self) -> dict[str, str]:
        """The class of each model type; where there are several, the others stand under their own names."""
        names: dict[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{self.mapping}_MAPPING_NAMES")
        several = {kind: (found,) if isinstance(found, str) else tuple(found) for kind, found in names.items()}
        others = {name: name for classes in several.values() for name in classes[1:]}
        return {kind: classes[0] for kind, classes in several.items()} | others

    def model_type(self, name: str) -> str:
        """The model type of one of the `classes`."""
        names: dict[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{self.mapping}_MAPPING_NAMES")
        return name if name in names else next(kind for kind, classes in names.items() if name in classes)


SEQUENCE = Head("sequence classification", "SEQUENCE_CLASSIFICATION", "AutoModelForSequenceClassification")
TOKEN = Head("token classification", "TOKEN_CLASSIFICATION", "AutoModelForTokenClassification")
CAUSAL = Head("causal language models", "CAUSAL_LM", "AutoModelForCausalLM")
MASKED = Head("masked language models", "MASKED_LM", "AutoModelForMaskedLM")
CHOICE = Head("multiple choice", "MULTIPLE_CHOICE", "AutoModelForMultipleChoice", 1, 3)
ANSWER = Head("question answering", "QUESTION_ANSWERING", "AutoModelForQuestionAnswering", 2)
IMAGE = Head("image classification", "IMAGE_CLASSIFICATION", "AutoModelForImageClassification")
HEADS = (SEQUENCE, TOKEN, CAUSAL, MASKED, CHOICE, ANSWER, IMAGE)

_WIDTH = dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "word_embed_proj_dim"), 32)
_DEPTH = dict.fromkeys(
    (
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        "encoder_layers",
        "decoder_layers",
        "num_decoder_layers",
    ),
    2,
)
_HEADS = dict.fromkeys(
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), 4
)
_HEAD = dict.fromkeys(
    ("head_dim", "d_head", "d_kv", "kv_channels", "attention_head_size", "qk_nope_head_dim", "qk_rope_head_dim"), 8
)
_INNER = dict.fromkeys(
    (
        *("intermediate_size", "hidden_dim", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"),
        *("d_inner", "d_ff", "dff", "n_inner", "feed_forward_size", "moe_intermediate_size"),
        "shared_expert_intermediate_size",
    ),
    48,
)
_POSITIONS = dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "max_2d_position_embeddings"), 64)
_EXPERTS = dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4)
_TOP = dict.fromkeys(("num_experts_per_tok", "moe_topk"), 2)
_WINDOW = dict.fromkeys(("sliding_window", "attention_window", "window_size", "local_attention"), 4)
_SIZES: dict[str, Any] = {
    **_WIDTH,
    **_DEPTH,
    **_HEADS,
    **_HEAD,
    **_INNER,
    **_POSITIONS,
    **_EXPERTS,
    **_TOP,
    **_WINDOW,
    "vocab_size": VOCABULARY,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "v_head_dim": 6,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "embedding_size": 24,
    "query_pre_attn_scalar": 8,
    "image_size": 32,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "cls_token_id": BOS,
    "sep_token_id": EOS,
}

# The number of key-value heads that the latent attention of DeepSeek and its kin has.
_LATENT = {"num_key_value_heads": 4}
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 8}
_MISTRAL_YARN = {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
_SOME_SLIDING = {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]}
_MAMBA = {"mamba_d_state": 8, "mamba_dt_rank": 4}
_MAMBA_2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 4}
_PER_LAYER = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY}
# A Mamba layer and two that share their attention.
_SHARED = {"num_hidden_layers": 3, "layers_block_type": ["linear_attention", "hybrid", "hybrid"]}
_DELTA = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "head_dim": 16,
}
# transformers' `eager` attention takes the softmax of a float64 model in float32, where the mask is minus infinity: a
# padded position more than a window away from every token would be NaN.
_WIDER = {"sliding_window": 8}

_BY_HAND: dict[str, dict[str, Any]] = {
    "albert": {"num_hidden_layers": 3},
    "axk1": {**_LATENT, "n_group": 2, "topk_group": 1, "mlp_layer_types": ["dense", "sparse"]},
    "axk2": {
        **_LATENT,
        "mlp_layer_types": ["dense", "sparse"],
        "index_topk": 4,
        "index_head_dim": 16,
        "index_n_heads": 4,
        "gated_norm_rank": 4,
    },
    "bailing_hybrid": _LATENT,
    "bamba": {**_MAMBA_2, "attn_layer_indices": [1]},
    # Sparse from eight tokens on; at fewer, transformers switches the model to full attention, and for good.
    "big_bird": {},  # block-sparse above 704 tokens; shorter texts get full attention, as here
    "bigbird_pegasus": {},
    "bros": {"hidden_size": 64},
    "canine": {"local_transformer_stride": 8, "num_hash_buckets": 32},
    "codegen": {"rotary_dim": 4},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
            "full_attention": None,
        },
    },
    "convbert": {"conv_kernel_size": 3},
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 8},
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "conv_kernel_size": 3,
        "conv_act": "gelu",
    },
    "deepseek_v2": {**_LATENT, "first_k_dense_replace": 1},
    "deepseek_v3": {**_LATENT, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1},
    "deepseek_v32": _LATENT,
    # Not `is_moe`: there transformers mixes the examples of a batch.
    "doge": {"keep_window_size": 4},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "ernie": {"use_task_id": True},
    "esm": {
        "vocab_size": VOCABULARY + 1,
        "mask_token_id": VOCABULARY,
        "token_dropout": True,
        "position_embedding_type": "rotary",
        "emb_layer_norm_before": False,
    },
    "esmc": {"num_key_value_heads": 4},
    "funnel": {"block_sizes": [2, 2]},
    "gemma2": _WIDER,
    "gemma3n_text": {
        **_PER_LAYER,
        "intermediate_size": [48, 48],
        "num_kv_shared_layers": 0,
        "laurel_rank": 4,
        "activation_sparsity_pattern": [0.5, 0.0],
    },
    "gemma4": {"text_config": _PER_LAYER},
    "gemma4_text": _PER_LAYER,
    "glm4_moe_lite": _LATENT,
    "glm_moe_dsa": _LATENT,
    "gpt_bigcode": {"num_key_value_heads": 1},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gpt_oss": {"rope_parameters": {**_YARN, "truncate": False}},
    "gptj": {"rotary_dim": 4},
    "granite_swa": _WIDER,
    "granitemoe_swa": _WIDER,
    "granitemoehybrid": {
        **_MAMBA_2,
        "shared_intermediate_size": 48,
        "layer_types": ["linear_attention", "full_attention"],
    },
    # The Mamba layers of Jamba and Zamba run without their CUDA kernels.
    "jamba": {**_MAMBA, "attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {**_LATENT, "num_experts_per_token": 2},
    "layoutlmv3": {"coordinate_size": 5, "shape_size": 6, "input_size": 32},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "lilt": {"hidden_size": 48},
    "longcat_flash": {**_LATENT, "expert_ffn_hidden_size": 48, "zero_expert_num": 2, "qk_head_dim": 16},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 16},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2, "chunk_size": 4},
    "markuplm": {
        "max_depth": 5,
        "xpath_unit_hidden_size": 8,
        "max_xpath_tag_unit_embeddings": 12,
        "max_xpath_subs_unit_embeddings": 12,
        "tag_pad_id": 10,
        "subs_pad_id": 10,
    },
    "minicpm3": _LATENT,
    "minimax": {"block_size": 4},
    "ministral": {"layer_types": ["sliding_attention", "full_attention"]},
    "ministral3": {"rope_parameters": _MISTRAL_YARN},
    "mistral4": {
        **_LATENT,
        "first_k_dense_replace": 1,
        "head_dim": 16,
        "rope_parameters": {**_MISTRAL_YARN, "partial_rotary_factor": 0.5},
    },
    "mobilebert": {"intra_bottleneck_size": 16},
    # Without prompts it would be BART.
    "mvp": {"use_prompt": True, "prompt_length": 4, "prompt_mid_dim": 16},
    "neomme": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        },
        "embedding_rank": 16,
    },
    # As many landmarks as `segment_means_seq_len`, as in the published model: the softmax is not approximated.
    "nystromformer": {"conv_kernel_size": 3},
    "perceiver": {
        "num_latents": 8,
        "d_latents": 32,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
    },
    "qwen2": _SOME_SLIDING,
    "qwen2_moe": _SOME_SLIDING,
    "qwen3": _SOME_SLIDING,
    "qwen3_moe": {"use_sliding_window": True},
    "qwen3_5": {
        "text_config": _DELTA,
        "vision_config": {"depth": 2, "out_hidden_size": 32, "num_position_embeddings": 16},
    },
    "qwen3_5_text": _DELTA,
    "qwen3_next": _DELTA,
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": [16, 16],
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 4,
        "num_hashes": 2,
        "hash_seed": 0,
    },
    "rembert": {"input_embedding_size": 24, "output_embedding_size": 24},
    "roc_bert": {
        "pronunciation_embed_dim": 16,
        "pronunciation_vocab_size": 20,
        "shape_embed_dim": 16,
        "shape_vocab_size": 20,
    },
    "smollm3": {**_SOME_SLIDING, "no_rope_layers": [1, 0]},
    "squeezebert": {"embedding_size": 32},
    "t5": {"decoder_start_token_id": PAD},
    "t5gemma": {"encoder": _WIDER, "decoder": _WIDER},
    "tapas": {"type_vocab_sizes": [3, 8, 8, 2, 8, 8, 10]},
    "vaultgemma": _WIDER,
    "xmod": {"languages": ["en_XX", "de_DE"], "default_language": "en_XX"},
    "youtu": _LATENT,
    "zamba": {**_MAMBA, **_SHARED},
    "zamba2": {
        **_SHARED,
        "num_key_value_heads": 4,
        "mamba_d_state": 8,
        "n_mamba_heads": 4,
        "chunk_size": 4,
        "use_shared_attention_adapter": True,
        "use_mem_rope": True,
        "adapter_rank": 4,
    },
    "zaya": {"num_experts_per_tok": 1, "layer_types": ["hybrid", "hybrid"], "router_hidden_size": 16},
}


# What some models take for each token beside its number: the shape of one entry, and the bound of its integers.
_Entries = dict[str, tuple[tuple[int, ...], int]]
_BOX: _Entries = {"bbox": ((4,), 32)}
_MORE: dict[str, _Entries] = {
    "bros": _BOX,
    "layoutlm": _BOX,
    "layoutlmv3": _BOX,
    "lilt": _BOX,
    "markuplm": {"xpath_tags_seq": ((5,), 10), "xpath_subs_seq": ((5,), 10)},
    "roc_bert": {"input_shape_ids": ((), 20), "input_pronunciation_ids": ((), 20)},
    "tapas": {"token_type_ids": ((7,), 2)},
}

SINGLE = frozenset(
    {"beam", "canine", "mllama", "prophetnet", "splinter", "xglm"}
)  # in double precision they fail, or are NaN

SLOW = frozenset({"falcon_h1", "kimi_linear", "nemotron_h"})  # their scans take minutes without kernels

# Not tried: what these need is not there.
_IMPOSSIBLE = {
    "layoutlmv2": "needs the package detectron2",
    "mra": "needs a CUDA kernel that is downloaded; without it transformers returns zeros for the attention",
}
# All that cannot be built small with the newest transformers that this project allows, and why. Tests expect it of
# these and of no others: `python -m tests.helpers.zoo` prints what is due after an upgrade.
UNBUILDABLE = {
    "SEQUENCE_CLASSIFICATION": _IMPOSSIBLE,
    "IMAGE_CLASSIFICATION": vision.IMPOSSIBLE | {"dinat": "needs the package natten"},
    "CAUSAL_LM": {
        "blt": "96 million parameters are left when all its sizes are small",
        "dbrx": "transformers reads rope_theta from a part of its configuration that has none",
        "dots3_note": "its configuration refuses small sizes",
        "dots3_note_text": "its configuration refuses small sizes",
        "gemma3n": "needs the package timm where transformers looks for it",
        "gemma4_assistant": "its configuration refuses small sizes",
        "gemma4_unified_assistant": "it shares the cache of another model",
        "inkling2_text": "it multiplies float32 by float64",
        "musicgen": "transformers reads dropout from a configuration that has none",
        "musicgen_melody": "transformers reads dropout from a configuration that has none",
        "phi4_multimodal": "6 million parameters are left when all its sizes are small",
        "qwen4_exp": "its configuration has no default sizes",
        "qwen4_exp_text": "its configuration has no default sizes",
        "recurrent_gemma": "it asks a cache of linear attention for its length",
        "xlstm": "its cells refuse small sizes",
    },
}


class NotBuildable(Exception):
    """An architecture that cannot be built here, and why."""


def names(head: Head = SEQUENCE) -> tuple[str, ...]:
    """The model types that have this head."""
    return tuple(sorted(head.classes))


def each(*heads: Head, but: Callable[[Head, str], bool] = lambda head, name: False) -> pytest.MarkDecorator:
    """Parametrize a test by `head` and `name`. Those that cannot be built are expected to fail, and only those."""
    every = [(head, name) for head in heads for name in names(head) if not but(head, name)]
    return pytest.mark.parametrize(
        ("head", "name"),
        [pytest.param(head, name, marks=_marks(head, name)) for head, name in every],
        ids=lambda value: value.name.split()[0] if isinstance(value, Head) else value,
    )


def _marks(head: Head, name: str) -> list[pytest.MarkDecorator]:
    reason = UNBUILDABLE[head.mapping].get(name)
    return [] if reason is None else [pytest.mark.xfail(raises=NotBuildable, strict=True, reason=reason)]


def build(
    name: str, dtype: torch.dtype | None = None, attention: str | None = None, head: Head = SEQUENCE
) -> PreTrainedModel:
    """A tiny random model, the same at every call; with fused attention where there is some.

    In float64, or in float32 where a model of transformers is not right in double precision.
    """
    if name in _IMPOSSIBLE:
        raise NotBuildable(_IMPOSSIBLE[name])
    if dtype is None:
        dtype = torch.float32 if name in SINGLE else torch.float64
    torch.manual_seed(7)
    auto = getattr(hf, head.auto_class)
    config = _configured(name, head)
    model_class = getattr(hf, head.classes[name])
    how = {"attn_implementation": attention or ("sdpa" if model_class._supports_sdpa else "eager")}
    if dtype == torch.float64:  # the default, `grouped_mm`, has no double precision
        how["experts_implementation"] = "eager"
    model = auto.from_config(config, **how)
    for path, parameter in model.named_parameters():
        # HF's initial weights are so small that every attention map is uniform; with Doge's A = 0 every mask is.
        if parameter.dim() > 1 or path.endswith(".A"):
            torch.nn.init.normal_(parameter, std=0.25)
    finished: PreTrainedModel = model.to(dtype).eval()
    return finished


def build_for(name: str, head: Head, attention: str | None = None) -> PreTrainedModel:
    """`build`, with whatever keeps an architecture from being built small, or from running on tokens, as one error."""
    impossible = vision.IMPOSSIBLE if head is IMAGE else _IMPOSSIBLE
    if name in impossible:
        raise NotBuildable(impossible[name])
    try:
        with torch.device("meta"):
            model = getattr(hf, head.auto_class).from_config(_configured(name, head))
        size = sum(parameter.numel() for parameter in model.parameters())
        if size <= LARGEST:
            model = build(name, attention=attention, head=head)
            with torch.no_grad():
                model(**batch(model, head=head))
            return model
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise NotBuildable(f"{type(error).__name__}: {reason}") from error
    raise NotBuildable(f"{size:,} parameters are left after its configuration was shrunk")


def _configured(name: str, head: Head) -> PreTrainedConfig:
    """A small configuration for a head."""
    kind = head.model_type(name)
    by_hand = vision.BY_HAND if head is IMAGE else _BY_HAND
    config = _shrunk(hf.AutoConfig.for_model(kind), by_hand.get(kind, {}))
    config.num_labels = head.labels
    if head is IMAGE:  # some types have several classes
        config.architectures = [head.classes[name]]
    if head is CAUSAL and "is_decoder" in config.__dict__:
        config.is_decoder = True
    return config


def _shrunk(default: PreTrainedConfig, by_hand: dict[str, Any]) -> PreTrainedConfig:
    """A configuration of the same class with small sizes and a layer of every kind; nested ones likewise."""
    settings = {name: size for name, size in _SIZES.items() if name in default.__dict__}
    for name in ("layer_types", "layers_block_type"):
        kinds = list(dict.fromkeys(default.__dict__.get(name) or ()))
        if len(kinds) > 1:
            settings |= {name: kinds, "num_hidden_layers": len(kinds)}
    for name, value in default.__dict__.items():
        if isinstance(value, PreTrainedConfig):
            settings[name] = _shrunk(value, by_hand.get(name, {}))
    settings |= {name: value for name, value in by_hand.items() if not isinstance(settings.get(name), PreTrainedConfig)}
    return type(default)(**settings)


def batch(
    model: PreTrainedModel,
    lengths: tuple[int, ...] = (9, 5, 7),
    extra: int = 0,
    seed: int = 0,
    head: Head = SEQUENCE,
) -> dict[str, Tensor]:
    """Random tokens, padded on the right to the longest and `extra` more, and what else the model takes for each token.

    For multiple choice the first dimensions are examples and choices, and `lengths` is that of an example's first
    choice; the others are one token shorter each. Inputs of another kind than text (images, LUKE's entities) are left
    out: most models run without them.
    """
    if head is IMAGE:
        return vision.batch(model, len(lengths), seed)
    if head.choices:
        rows = tuple(length - choice for length in lengths for choice in range(head.choices))
        flat = batch(model, rows, extra, seed)
        return {name: tensor.unflatten(0, (len(lengths), head.choices)) for name, tensor in flat.items()}
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths) + extra
    ids = torch.full((len(lengths), width), PAD)
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(3, VOCABULARY, (length,), generator=generator)
        ids[row, 0] = BOS
        if model.config.is_encoder_decoder:  # classified at the end-of-sequence token
            ids[row, length - 1] = EOS
        mask[row, :length] = 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.config.model_type == "longformer" and model.config.num_labels != SEQUENCE.labels:
        inputs["global_attention_mask"] = (ids == BOS).long()  # else it looks for the separators of a question
    for name, (shape, bound) in _MORE.get(model.config.model_type, {}).items():
        inputs[name] = torch.zeros(*ids.shape, *shape, dtype=torch.long)
        for row, length in enumerate(lengths):
            inputs[name][row, :length] = torch.randint(bound, (length, *shape), generator=generator)
    if "bbox" in inputs:  # two corners, the second below and to the right of the first
        inputs["bbox"][..., 2:] += inputs["bbox"][..., :2]
    return inputs


def alone(inputs: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    """One example of a batch, without padding."""
    if "attention_mask" not in inputs:
        return {name: tensor[row : row + 1] for name, tensor in inputs.items()}
    mask = inputs["attention_mask"]
    width, length = mask.shape[-1], int(mask[row].sum(-1).max())
    return {
        name: tensor[row : row + 1].narrow(mask.dim() - 1, 0, length)
        if tensor.dim() >= mask.dim() and tensor.shape[mask.dim() - 1] == width
        else tensor[row : row + 1]
        for name, tensor in inputs.items()
    }


def main() -> None:
    """Print how every architecture is built, and by how much its logits depend on the padding."""
    for name in names():
        try:
            model = build(name)
        except NotBuildable as reason:
            print(f"{name:22} {reason}")
            continue
        inputs = batch(model)
        with torch.no_grad():
            together = model(**inputs).logits
            apart = torch.cat([model(**alone(inputs, row)).logits for row in range(len(together))])
        experts = any("Experts" in type(module).__name__ for module in model.modules())
        how = f"{model.config._attn_implementation}{' moe' * experts}{' seq2seq' * model.config.is_encoder_decoder}"
        print(f"{name:22} {how:12} {(together - apart).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
