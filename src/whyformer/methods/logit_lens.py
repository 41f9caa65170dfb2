"""Decoded layer saliency: what the hidden states of a layer say about the tokens of the text, by an LM head.

The LM head is the one that is given, the model's own, or the one that the model comes with. It decodes a slice of the
vocabulary at a time. Of a file or hub id, only the weights of the head are read.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from whyformer.errors import BadInput, BadOption, UnsupportedModel
from whyformer.methods.attention import at_layer
from whyformer.methods.default import shipped_layer
from whyformer.methods.method import PerExample, Scores, check_cancelled, method
from whyformer.models.cache import known
from whyformer.models.load import (
    BUNDLED,
    TOKENIZER_FILES,
    Checkpoint,
    bundled_models,
    check_depth,
    reading,
    text_config,
    unwrapped,
)
from whyformer.prediction import Prediction
from whyformer.storage.files import parsed_json, replacing

AT_ONCE = 2**22  # logits in one slice

LogitsStep = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LmHead:
    """Turns hidden states into logits of the vocabulary.

    `steps` come before the decoder. A final norm of the body is among them, so that any layer is read as the last one.
    Numbers are computed in the precision of the states that are given; the weights stay as they are.
    """

    name: str
    width: int  # of the hidden states
    steps: tuple[LogitsStep, ...]
    weight: Tensor  # [vocabulary, width of the decoder]
    bias: Tensor | None  # [vocabulary]

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows."""
        return self.weight.shape[0]

    def states(self, hidden: Tensor) -> Tensor:
        """What the decoder is given, [..., width of the decoder]."""
        parameters = [p for step in self.steps if isinstance(step, nn.Module) for p in step.parameters()]
        states = hidden.to(parameters[0]) if parameters else hidden
        for step in self.steps:
            states = step(states)
        return states.to(self.weight.device, hidden.dtype)

    def logits(self, states: Tensor, tokens: slice = slice(None)) -> Tensor:
        """The logits of some tokens at each position, [positions, tokens]; of all by default."""
        weight = self.weight[tokens].to(states.dtype)
        if self.bias is None:
            return states @ weight.mT
        return torch.addmm(self.bias[tokens].to(states.dtype), states, weight.mT)

    def of_tokens(self, states: Tensor, tokens: Tensor) -> Tensor:
        """The logits of each example's own tokens [batch, tokens] at its positions, [batch, tokens, units]."""
        logits = self.weight[tokens].to(states.dtype) @ states.mT
        return logits if self.bias is None else logits + self.bias[tokens].to(states.dtype)[..., None]

    def log_normaliser(self, states: Tensor) -> Tensor:
        """`log Σ exp(logits)` over the whole vocabulary at each position, [positions]."""
        total = states.new_full(states.shape[:1], float("-inf"))
        for tokens in self._slices(len(states)):
            total = torch.logaddexp(total, self._log_sum(states, tokens))
        return total

    def most_likely(self, states: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The most likely tokens at each position and their logits, both [positions, count], best first."""
        values = states.new_full((len(states), count), float("-inf"))
        tokens = torch.full_like(values, -1, dtype=torch.long)
        for part in self._slices(len(states)):
            highest, places = self.logits(states, part).topk(min(count, part.stop - part.start))
            values, order = torch.cat((values, highest), 1).topk(count)
            tokens = torch.cat((tokens, places + part.start), 1).gather(1, order)
        return tokens, values

    def _log_sum(self, states: Tensor, tokens: slice) -> Tensor:
        """In place, so that no second slice is in memory."""
        logits = self.logits(states, tokens)
        peak = logits.amax(-1, keepdim=True)
        return logits.sub_(peak).exp_().sum(-1).log_() + peak.squeeze(-1)

    def _slices(self, positions: int) -> Iterator[slice]:
        size = max(1, AT_ONCE // max(1, positions))
        for start in range(0, self.vocabulary, size):
            yield slice(start, min(start + size, self.vocabulary))


_ROBERTA: tuple[str | LogitsStep, ...] = ("lm_head.dense", nn.functional.gelu, "lm_head.layer_norm")
_MASKED: dict[str, tuple[str | LogitsStep, ...]] = {
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
CAUSAL: dict[str, tuple[str | LogitsStep, ...]] = {
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


SHIPPED = "lm_head.safetensors"
KEPT = 2  # heads that are kept for one model
GIVE = "give the pretrained checkpoint that this model was fine-tuned from, lm_head=FOLDER or a hub id (--lm-head)"


def head_for(model: nn.Module, source: str | None, hidden: Tensor, tokenizer: Any = None) -> LmHead:
    """The LM head that goes with a model whose hidden states are like these.

    `source` is a folder, a hub id (`name@revision`), or a file that `save_head` wrote. Without one it is the model's
    own head, or the one that a bundled model is shipped with. What was read is kept until the model changes. A head
    that does not fit is refused: by the width of its states, the size of its vocabulary, and, where both have a
    tokenizer, by what its tokens mean.
    """
    model = unwrapped(model)
    if source is None and (head := own_head(model)) is not None:
        return head
    place = _shipped(model) if source is None else source
    if place is None:
        raise BadOption(f"hidden states are decoded by an LM head, and this model comes with none: {GIVE}")
    width, dtype = hidden.shape[-1], next(model.parameters()).dtype
    key = (place, _state(place), hidden.device, dtype, width)
    heads: dict[Any, LmHead] = known(model).once("LM heads", dict)
    if key not in heads:
        head = load_head(place, device=hidden.device, dtype=dtype if dtype.is_floating_point else hidden.dtype)
        _check_head(head, model, width, tokenizer)
        for oldest in list(heads)[: len(heads) + 1 - KEPT]:
            heads.pop(oldest, None)
        heads[key] = head
    return heads[key]


def own_head(model: nn.Module) -> LmHead | None:
    """The LM head in a model, if it has one: a language model's, or that of a causal model's own token embeddings."""
    config, output = text_config(model), getattr(model, "get_output_embeddings", lambda: None)()
    kind = getattr(config, "model_type", None)
    if kind not in FAMILIES:
        return None
    if output is None and kind in CAUSAL and config.tie_word_embeddings:
        output = model.get_input_embeddings()  # type: ignore[operator]
    modules = dict(model.named_modules())
    whole = output is not None and all(step in modules for step in FAMILIES[kind] if isinstance(step, str))
    return made(model, output, type(model).__name__) if whole else None


def _shipped(model: nn.Module) -> str | None:
    """The file beside a bundled model."""
    folder = Path(getattr(getattr(model, "config", None), "_name_or_path", ""))
    bundled = folder.parent == BUNDLED and folder.name in bundled_models()
    return str(folder / SHIPPED) if bundled and (folder / SHIPPED).exists() else None


def _state(place: str) -> tuple[tuple[str, int, int], ...]:
    """Names, times and sizes of files, which tell whether they were written anew."""
    path = Path(place)
    try:
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path] if path.is_file() else []
        return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    except (OSError, ValueError):  # load_head reports what is wrong with the place
        return ()


def _check_head(head: LmHead, model: nn.Module, width: int, tokenizer: Any) -> None:
    """Raise unless the head takes the model's states, and speaks of the same tokens."""
    whose = f"the LM head of {head.name!r}"
    if head.width != width:
        raise BadOption(f"{whose} takes states of width {head.width}, and this model's have {width}: {GIVE}")
    rows = getattr(getattr(model, "get_input_embeddings", lambda: None)(), "num_embeddings", head.vocabulary)
    if head.vocabulary != rows:
        raise BadOption(f"{whose} has a vocabulary of {head.vocabulary} tokens, and this model one of {rows}: {GIVE}")
    beside = getattr(getattr(model, "config", None), "_name_or_path", "")
    read, decoded = _meanings(tokenizer or _tokenizer(beside)), _meanings(_tokenizer(head.name))
    odd = [number for number in sorted(read.keys() & decoded.keys()) if read[number] != decoded[number]]
    if odd:
        raise BadOption(
            f"token {odd[0]} is {decoded[odd[0]]!r} to {whose} and {read[odd[0]]!r} to this model, "
            f"and so for {len(odd)} tokens, which the head would take for others: {GIVE}"
        )


def _meanings(tokenizer: Any) -> dict[int, str]:
    """The token behind each number."""
    return {} if tokenizer is None else {number: token for token, number in tokenizer.get_vocab().items()}


def _tokenizer(source: str) -> Any:
    """The tokenizer beside a model, if one lies there; nothing is downloaded for it."""
    if not source or Path(source).is_file():
        return None
    from transformers import AutoTokenizer

    name, _, revision = (source, "", "") if Path(source).is_dir() else source.partition("@")
    checkpoint = Checkpoint(name, local=True, revision=revision or "main")
    with reading(f"could not compare the tokens of {source!r}: its tokenizer"):
        if all(checkpoint.file(file) is None for file in TOKENIZER_FILES):
            return None
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False, **checkpoint.options)


BaseScore = Literal["grad_cam", "saliency", "attcat", "att_grads", "raw_attention"]
OF_ATTENTION = ("attcat", "att_grads", "raw_attention")  # layer 0, the embedding output, has none of these


@method(family="decoded", signed=False, class_specific=True, paper="Hou & Castañón 2023", single_output=True)
def decoded_grad_cam(
    prediction: Prediction,
    *,
    layer: int | Literal["best"] | None = None,
    layers: Literal["all"] | None = None,
    score: BaseScore = "grad_cam",
    top: int | None = None,
    lm_head: str | Path | None = None,
    decode: bool = True,
    special_positions: bool = True,
    matrix: bool = False,
    vocabulary: int = 0,
) -> Scores:
    """Grad-CAM of one layer's hidden states, given to the tokens that an LM head reads in them.

    `α_j = (Σ_d ∂y/∂h_l ⊙ h_l)_j⁺`; `P = softmax(LMhead(h_l))`; a distinct token `t` of the text scores
    `s_t = Σ_j P[j, t] α_j`, and so does each of its positions. Special tokens score 0. Hidden states are counted from
    the embedding output, 0, to the last layer's output. The default is the layer that a bundled model is shipped with,
    else the middle one, `L // 2`; `"best"` is the one that `recommend` recorded. `layers="all"` gives every layer, and
    their sum is the explanation. `top`: in each position only so many tokens count. `decode=False` leaves `α` as it
    is; at `layer=0` that is the paper's vanilla Grad-CAM.
    `matrix` and `vocabulary=k` report `D[t, j] = P[j, t]` and each position's `k` most likely tokens.
    """
    decoding = {"top": top, "lm_head": lm_head, "matrix": matrix, "vocabulary": vocabulary}
    if not decode and (asked := [name for name, value in decoding.items() if value is not None and value != 0]):
        raise BadOption(f"decode=False decodes nothing: leave {asked[0]} out")
    _check_decoding(prediction, layer, layers, decoding)
    chosen = list(range(len(prediction.hidden))) if layers else [_number(prediction, layer)]
    if not decode and score in ("grad_cam", "attcat"):  # what is decoded of the position that is read is a signal
        _check_cancelled(prediction, chosen)
    counted = _counted(prediction, special_positions)
    weights = [_layer_score(prediction, n, score, alone=not layers) * counted for n in chosen]
    report: dict[str, Any] = {"layer": chosen if layers else chosen[0]}
    if not decode:
        return Scores(_stacked(weights, layers, 0), {"decoded": report})
    with torch.no_grad():
        rows, source = DistinctTokens.of(prediction), None if lm_head is None else str(lm_head)
        head = head_for(prediction.model, source, prediction.hidden[0], prediction.batch.tokenizer)
        read = [_read(head, prediction.hidden[n], rows, vocabulary) for n in chosen]
        shares = [_largest(layer_read.shares, top) for layer_read in read]
        scores = [rows.at_positions(torch.einsum("btn,bn->bt", d, a)) for d, a in zip(shares, weights, strict=True)]
    if matrix:
        report |= {"tokens": rows.distinct, "D": rows.matrices(_stacked(shares, layers, 1))}
    if vocabulary:
        report["vocabulary"] = rows.at_real(_stacked([layer_read.likely for layer_read in read], layers, 1))
        report["probabilities"] = rows.at_real(_stacked([layer_read.probabilities for layer_read in read], layers, 1))
    return Scores(_stacked(scores, layers, 0), {"decoded": report})


@dataclass(frozen=True)
class DistinctTokens:
    """The distinct tokens of each text: the rows of `D`."""

    tokens: Tensor  # [batch, tokens]; -1 where a text has fewer
    of_position: Tensor  # [batch, units]: the row of each position's token, -1 for special tokens and padding
    real: Tensor  # [batch, units]: no padding

    @classmethod
    def of(cls, prediction: Prediction) -> "DistinctTokens":
        """The rows of a batch; special tokens have none."""
        ids, special = prediction.batch.tensors.get("input_ids"), prediction.batch.special
        if ids is None:
            raise BadInput("an LM head knows tokens, and this input has no input_ids: use decode=False")
        real = ~prediction.padding
        with_row = real if special is None else real & ~special
        of_position, tokens = torch.full_like(ids, -1), []
        for example, held in enumerate(with_row):
            distinct, of_position[example, held] = ids[example, held].unique(return_inverse=True)
            tokens.append(distinct)
        return cls(torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=-1), of_position, real)

    def at_positions(self, scores: Tensor) -> Tensor:
        """The scores [batch, tokens] of the positions' tokens, [batch, units]; 0 where a position has none."""
        if not scores.shape[1]:
            return scores.new_zeros(self.of_position.shape)
        return scores.gather(1, self.of_position.clamp(min=0)).masked_fill(self.of_position < 0, 0)

    @property
    def distinct(self) -> PerExample:
        """The tokens of each text."""
        return PerExample(tokens[tokens >= 0] for tokens in self.tokens)

    def matrices(self, of_batch: Tensor) -> PerExample:
        """The matrix of each text from [batch, …, tokens, units], without the rows and positions of longer texts."""
        texts = zip(of_batch, self.distinct, self.real.to(of_batch.device), strict=True)
        return PerExample(matrix[..., : len(tokens), :][..., real] for matrix, tokens, real in texts)

    def at_real(self, numbers: Tensor) -> PerExample:
        """The numbers [batch, …, units, count] at the positions of each text."""
        return PerExample(n[..., real, :] for n, real in zip(numbers, self.real.to(numbers.device), strict=True))


@dataclass(frozen=True)
class DecodedLayer:
    """What an LM head reads in one layer."""

    shares: Tensor  # D, [batch, tokens, units]: how likely each token is in each position
    likely: Tensor | None  # the most likely tokens of the vocabulary, [batch, units, count]; -1 in padding
    probabilities: Tensor | None


def _read(head: LmHead, hidden: Tensor, rows: DistinctTokens, count: int) -> DecodedLayer:
    states = head.states(hidden)  # [batch, units, width]
    real = rows.real.to(states.device)
    states_of_real = states[real]
    normaliser = head.log_normaliser(states_of_real)
    everywhere = states.new_zeros(real.shape).masked_scatter(real, normaliser)
    logits = head.of_tokens(states, rows.tokens.clamp(min=0).to(states.device))
    outside = ~real[:, None] | (rows.tokens < 0).to(states.device)[..., None]
    shares = (logits - everywhere[:, None]).exp().masked_fill(outside, 0).to(hidden.device)
    if not count:
        return DecodedLayer(shares, None, None)
    tokens, values = head.most_likely(states_of_real, min(count, head.vocabulary))
    likely = tokens.new_full((*real.shape, tokens.shape[1]), -1)
    likely[real] = tokens
    probabilities = values.new_zeros(likely.shape)
    probabilities[real] = (values - normaliser[:, None]).exp()
    return DecodedLayer(shares, likely.to(hidden.device), probabilities.to(hidden.device))


def _largest(shares: Tensor, top: int | None) -> Tensor:
    """In each position the largest ones alone."""
    if top is None or top >= shares.shape[1]:
        return shares
    largest = shares.topk(top, 1)
    return torch.zeros_like(shares).scatter(1, largest.indices, largest.values)


def _layer_score(prediction: Prediction, layer: int, score: BaseScore, *, alone: bool) -> Tensor:
    """How much each position of one layer matters, [batch, units], none below 0."""
    if score == "saliency":
        return prediction.hidden_gradients[layer].square().sum(-1).sqrt()
    if score in OF_ATTENTION and layer == 0:
        if alone:
            raise BadOption(
                f"score={score!r} weighs attention, and layer 0 is the embedding output: take layer 1 or up"
            )
        return torch.zeros_like(prediction.real)
    if score == "raw_attention":
        return prediction.read(prediction.attention[layer - 1].mean(1))
    if score == "att_grads":
        maps = prediction.attention[layer - 1] * prediction.attention_gradients[layer - 1].clamp(min=0)
        return torch.einsum("bq,bqk->bk", prediction.real, maps.mean(1))
    weights = (prediction.hidden[layer] * prediction.hidden_gradients[layer]).sum(-1)
    if score == "attcat":
        weights = weights * prediction.over_queries(prediction.attention[layer - 1].mean(1), "mean")
    return weights.clamp(min=0)


def _check_cancelled(prediction: Prediction, layers: Sequence[int]) -> None:
    products = torch.stack([prediction.hidden[n] * prediction.hidden_gradients[n] for n in layers])
    advice = "take a lower layer (--layer), or score='saliency' (--score saliency)"
    check_cancelled(prediction, products.sum((0, -1)), products.abs().sum((0, -1)), advice)


def _counted(prediction: Prediction, special_positions: bool) -> Tensor:
    """1 where a position counts, [batch, units]."""
    if special_positions:
        return prediction.real
    if prediction.batch.special is None:
        raise BadOption(
            "special_positions=False leaves special tokens out, and nobody said which these are: put the tokenizer's "
            "special_tokens_mask among the inputs"
        )
    return prediction.real * ~prediction.batch.special


def _number(prediction: Prediction, layer: int | str | None) -> int:
    """The hidden state that is meant, counted from the embedding output."""
    count = len(prediction.hidden)
    if layer is None:
        shipped = shipped_layer(prediction.model)
        return (count - 1) // 2 if shipped is None else shipped
    if isinstance(layer, str):
        raise BadOption(
            "layer='best' is replaced by a number before a method is called, by Explainer and attribute: give a number "
            "here"
        )
    at_layer(prediction.hidden, layer)
    return layer % count


def _check_decoding(
    prediction: Prediction, layer: int | str | None, layers: str | None, decoding: Mapping[str, Any]
) -> None:
    """Raise where options contradict each other."""
    if layers and layer is not None:
        raise BadOption(f"layers='all' takes every layer: leave layer={layer!r} out")
    top, vocabulary = decoding["top"], decoding["vocabulary"]
    if top is not None and top < 1:
        raise BadOption(f"top is how many tokens count in each position, at least 1; found {top}")
    if vocabulary < 0:
        raise BadOption(f"vocabulary is how many tokens are told for each position; found {vocabulary}")
    if (decoding["matrix"] or vocabulary) and prediction.task.in_parts:
        raise BadOption(
            "matrix and vocabulary are told for one output, and the start and the end of an answer are explained one "
            "after the other: leave them out"
        )


def _stacked(tensors: list[Any], layers: str | None, dim: int) -> Tensor:
    """Of one layer its tensor, of all of them a stack."""
    return torch.stack(tensors, dim) if layers else tensors[0]
