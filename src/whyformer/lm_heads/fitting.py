"""Which LM head goes with a model: the one that is given, its own, or the one that it is shipped with."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from whyformer.errors import BadOption
from whyformer.lm_heads.head import LmHead
from whyformer.lm_heads.stored import CAUSAL, FAMILIES, load_head, made
from whyformer.models.cache import known
from whyformer.models.checkpoints import Checkpoint, reading
from whyformer.models.loading import BUNDLED, TOKENIZER_FILES, bundled_models, text_config, unwrapped

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
        _check(head, model, width, tokenizer)
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


def _check(head: LmHead, model: nn.Module, width: int, tokenizer: Any) -> None:
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
