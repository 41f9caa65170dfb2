"""LM heads in folders, on the hub and in files of their own: only the weights of the head are read."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from whyformer.errors import BadInput, UnsupportedModel
from whyformer.lm_heads.head import LmHead, Step
from whyformer.models.checkpoints import Checkpoint, check_depth, reading
from whyformer.storage.files import parsed_json, replacing

_ROBERTA: tuple[str | Step, ...] = ("lm_head.dense", nn.functional.gelu, "lm_head.layer_norm")
_MASKED: dict[str, tuple[str | Step, ...]] = {
    "albert": ("predictions.dense", "predictions.activation", "predictions.LayerNorm"),
    "bert": ("cls.predictions.transform",),
    "camembert": _ROBERTA,
    "distilbert": ("vocab_transform", "activation", "vocab_layer_norm"),
    "electra": ("generator_predictions",),
    "modernbert": ("model.final_norm", "head"),
    "mpnet": _ROBERTA,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
CAUSAL: dict[str, tuple[str | Step, ...]] = {
    "gpt2": ("transformer.ln_f",),
    "gpt_neox": ("gpt_neox.final_layer_norm",),
    **dict.fromkeys(("llama", "mistral", "phi3", "qwen2", "qwen3"), ("model.norm",)),
}
FAMILIES = _MASKED | CAUSAL  # by `model_type`, what stands between the last layer and the decoder, in order

ABOUT = "config"  # where a file says whose head it holds
BESIDE = ("_name_or_path", "architectures", "dtype", "transformers_version")  # entries that the head does not need
MOST_LAYERS = 1000  # of a model whose head alone is in a file; more could only be a mistake


def load_head(source: str | Path, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> LmHead:
    """Read the LM head of a folder, a hub id (`name@revision`), or a file that `save_head` wrote."""
    with _reading(str(source)):
        skeleton, tensors = _stored(str(source))
        for path, module in _modules(skeleton).items():
            weights = {key: tensors[f"{path}.{key}"].to(device, dtype) for key in module.state_dict()}
            module.load_state_dict(weights, assign=True)
            module.requires_grad_(False).eval()
    return made(skeleton, skeleton.get_output_embeddings(), str(source))


def save_head(source: str | Path, path: str | Path, dtype: torch.dtype = torch.float16) -> Path:
    """Write the LM head of a folder or hub id to a file of its own, without the rest of its model."""
    with _reading(str(source)):
        skeleton, tensors = _stored(str(source))
    config = {k: v for k, v in skeleton.config.to_diff_dict().items() if k not in BESIDE}
    about = json.dumps({**config, "model_type": skeleton.config.model_type}, sort_keys=True)
    weights = {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        try:
            save_file(weights, draft, metadata={"format": "pt", ABOUT: about})
        except SafetensorError as error:
            raise BadInput(f"could not write {str(path)!r}: {error}") from error
    return Path(path)


def made(model: Any, decoder: Any, name: str) -> LmHead:
    """The head in a language model, which shares its weights."""
    config = model.config.get_text_config()
    steps = tuple(model.get_submodule(s) if isinstance(s, str) else s for s in FAMILIES[config.model_type])
    bias = getattr(decoder, "bias", None)
    return LmHead(name, config.hidden_size, steps, decoder.weight.detach(), None if bias is None else bias.detach())


def _reading(source: str) -> AbstractContextManager[None]:
    return reading(f"could not read the LM head of {source!r}")


def _stored(source: str) -> tuple[Any, dict[str, Tensor]]:
    """The language model without any weights, and those of its head by their names."""
    from transformers import AutoConfig

    if Path(source).is_file():
        config, tensors = _of_file(source)
        skeleton = _skeleton(config, MOST_LAYERS, source)
        if missing := sorted(set(_wanted(skeleton)) - set(tensors)):
            raise UnsupportedModel(f"the LM head in {source!r} is not complete: {missing[0]} is not there")
        return skeleton, tensors
    checkpoint = checkpoint_of(source).pinned
    checkpoint.check_no_adapter()
    config = AutoConfig.from_pretrained(checkpoint.name, trust_remote_code=False, **checkpoint.options)
    _auto(config.model_type)  # refuses an unknown family before any weights are looked for
    files = checkpoint.weights(getattr(config, "transformers_weights", None))
    if not files:
        raise BadInput(f"{source!r} has no weights in safetensors files: LM heads are read from no others")
    skeleton = _skeleton(config, len(files), source)
    return skeleton, _from_files(checkpoint, files, skeleton) or _through_transformers(checkpoint, skeleton)


def _of_file(source: str) -> tuple[Any, dict[str, Tensor]]:
    from transformers import AutoConfig

    with safe_open(source, "pt") as file:
        about = (file.metadata() or {}).get(ABOUT)
        if about is None:
            raise UnsupportedModel(f"{source!r} does not say whose LM head it holds: save_head writes files that do")
        names = file.keys()
        return AutoConfig.for_model(**parsed_json(about)), {name: file.get_tensor(name) for name in names}


def checkpoint_of(source: str) -> Checkpoint:
    """Where a folder or hub id (`name@revision`) leads."""
    path = Path(source)
    if path.is_dir():
        return Checkpoint(source, local=True)
    if path.is_absolute() or source.startswith("."):
        raise BadInput(f"there is no folder {source!r} with an LM head")
    name, _, revision = source.partition("@")
    return Checkpoint(name, local=False, revision=revision or "main")


def _auto(kind: str) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    if kind not in FAMILIES:
        raise UnsupportedModel(f"LM heads of {kind!r} models are not known; known: {', '.join(sorted(FAMILIES))}")
    return AutoModelForCausalLM if kind in CAUSAL else AutoModelForMaskedLM


def _skeleton(config: Any, weights: int, name: str) -> Any:
    auto = _auto(config.model_type)
    check_depth(config, weights, name)
    with torch.device("meta"):
        return auto.from_config(config, attn_implementation="eager")


def _modules(model: Any) -> dict[str, nn.Module]:
    """The modules of the head by their paths, the decoder last."""
    decoder = model.get_output_embeddings()
    path = next(path for path, module in model.named_modules() if module is decoder)
    steps = [step for step in FAMILIES[model.config.model_type] if isinstance(step, str)]
    return {step: model.get_submodule(step) for step in steps} | {path: decoder}


def _wanted(model: Any) -> list[str]:
    return [f"{path}.{key}" for path, module in _modules(model).items() for key in module.state_dict()]


def _from_files(checkpoint: Checkpoint, files: dict[str, str], model: Any) -> dict[str, Tensor] | None:
    """The weights from safetensors files, each under its own name or that of the one it is tied to."""
    tied = dict(model._tied_weights_keys or {}) if model.config.tie_word_embeddings else {}
    places: dict[str, str] = {}
    for weight in _wanted(model):
        spellings = [s for n in (weight, tied.get(weight)) if n for s in _spellings(n, model.base_model_prefix)]
        stored = next((spelling for spelling in spellings if spelling in files), None)
        if stored is None:
            return None
        places[weight] = stored
    tensors = {}
    for weight, stored in places.items():
        path = checkpoint.file(files[stored])
        if path is None:
            raise BadInput(f"the weights of {checkpoint.name!r} are not complete: there is no file {files[stored]!r}")
        with safe_open(path, "pt") as file:
            tensors[weight] = file.get_tensor(stored)
    return tensors


def _spellings(name: str, body: str) -> list[str]:
    """How a weight may be called in a file: also without the body's name, and as norms were once written."""
    names = [name, name.removeprefix(f"{body}.")]
    return [*names, *(n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta") for n in names)]


def _through_transformers(checkpoint: Checkpoint, model: Any) -> dict[str, Tensor]:
    """The weights out of the whole model, where the files call them otherwise."""
    whole, report = _auto(model.config.model_type).from_pretrained(
        checkpoint.name,
        dtype="auto",
        attn_implementation="eager",
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
        **checkpoint.options,
    )
    if missing := sorted(set(_wanted(model)) & set(report["missing_keys"])):
        holds = " or ".join(model.config.architectures or ["a model"])
        raise UnsupportedModel(
            f"{checkpoint.name!r} holds {holds} and no LM head ({missing[0]} is not there): give the pretrained "
            "checkpoint"
        )
    state = whole.state_dict()
    return {weight: state[weight] for weight in _wanted(model)}
