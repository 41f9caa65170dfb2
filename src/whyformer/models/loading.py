"""From a name, a folder, or existing objects to a Subject: the model, its tokenizer and its labels."""

import copy
import importlib.metadata
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from whyformer.errors import BadInput, BadOption, UnsupportedModel, nearest, shown
from whyformer.models.checkpoints import WHOLE, Checkpoint, check_depth, reading
from whyformer.models.heads import HEADS, auto_class, head_of, task_name
from whyformer.models.processors import PREPROCESSOR, is_processor, load_processor, processor_in
from whyformer.registry.options import validated
from whyformer.rounding import ROUNDING
from whyformer.storage.files import read_json

BUNDLED = Path(__file__).parents[1] / "bundled"
_NAMED: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()  # classes, where someone named them
DTYPES = tuple(ROUNDING)  # in which models are explained
LONGEST_NAME = 100  # of a model, in an error
LISTED = 1000  # folders that are looked at for a name that was meant
ANY_TEXT = "a film ☃"  # with a character that hardly any vocabulary has
PIPELINES = {  # the task of the model in each
    "text-classification": "classes",
    "sentiment-analysis": "classes",
    "question-answering": "answer",
    "token-classification": "token_labels",
    "ner": "token_labels",
    "fill-mask": "masked_word",
    "text-generation": "next_token",
    "image-classification": "classes",
    "zero-shot-image-classification": "similarity",
}
OF_IMAGES = ("image-classification", "zero-shot-image-classification")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "merges.txt",
)


@dataclass(frozen=True)
class Subject:
    """What is explained: a model, its tokenizer, the names of its classes, and where it came from.

    A model of images has a `processor` that makes the model's numbers of them, and a tokenizer only if it reads too.
    """

    model: nn.Module
    tokenizer: Any
    labels: tuple[str, ...]
    name: str
    revision: str | None = None
    processor: Any = None

    @property
    def takes_images(self) -> bool:
        """Whether it is images that the model is given."""
        return self.processor is not None

    @property
    def task(self) -> str:
        """The name of what the model says, as `tasks.TASKS` has it."""
        return task_name(self.model) or "classes"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def shape(self) -> str:
        """A hash of configuration, tokenizer and the shapes of the weights: known at once."""
        from whyformer.models.fingerprint import shape_of

        return shape_of(self.model, self.tokenizer, self.processor)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines what the model says: `shape`, and every weight as it is now."""
        from whyformer.models.fingerprint import fingerprint

        return fingerprint(self.model, self.tokenizer, self.processor)

    @property
    def provenance(self) -> dict[str, Any]:
        """What an explanation has to say about the model, as plain data."""
        packages = {name: importlib.metadata.version(name) for name in ("whyformer", "torch", "transformers")}
        dtype = str(next(self.model.parameters()).dtype).removeprefix("torch.")
        origin = {"model": self.name, "revision": self.revision, "dtype": dtype}
        return {**origin, "device": str(self.device), "packages": packages}


def bundled_models() -> tuple[str, ...]:
    """The names of the models that come with this package."""
    return tuple(sorted(p.name for p in BUNDLED.iterdir() if (p / "config.json").exists()))


def subject_of(model: Any, tokenizer: Any = None, labels: Sequence[str] | None = None) -> Subject:
    """The subject for an existing model and what reads its inputs, or for a Hugging Face pipeline.

    What reads inputs is a tokenizer, an image processor, both in one object, or a function from images to tensors.
    `labels` name the classes of a model whose configuration does not.
    """
    if tokenizer is None and hasattr(model, "model") and (hasattr(model, "tokenizer") or is_processor(model)):
        _check_pipeline(model)
        image = getattr(model, "image_processor", None)
        model, tokenizer = model.model, model.tokenizer if image is None else model  # which has both
    model = unwrapped(model)
    if not isinstance(model, nn.Module):
        raise BadInput(f"a model is needed, found {type(model).__name__}; to load one by name use Explainer.load")
    if tokenizer is None:
        raise BadInput(
            "a tokenizer, or an image processor, is needed beside the model; for ready tensors use whyformer.attribute"
        )
    if isinstance(tokenizer, str | Path):
        raise BadInput(
            f"a tokenizer, or an image processor, is needed beside the model, found the name {str(tokenizer)!r}: load "
            "it with transformers.AutoTokenizer.from_pretrained, or both at once with Explainer.load"
        )
    processor = None if isinstance(tokenizer, type) else processor_in(tokenizer)
    if processor is None and (isinstance(tokenizer, type) or not callable(tokenizer)):
        raise BadInput(f"a tokenizer, or an image processor, is needed beside the model; found {shown(tokenizer)}")
    if processor is not None:
        tokenizer = getattr(tokenizer, "tokenizer", None)
    if labels is not None:
        names = class_names(labels)
        outputs = getattr(getattr(model, "config", None), "num_labels", None) or getattr(model, "num_classes", None)
        stated = task_name(model) in (None, "classes") and isinstance(outputs, int)
        if stated and outputs not in (0, len(names)):
            raise BadOption(f"labels: {len(names)} names for {outputs} outputs; give one for each")
        model = copy.copy(model)  # shares everything with the caller's, whose classes keep their names
        _NAMED[model] = names
    config = getattr(model, "config", None)
    name = getattr(config, "_name_or_path", "") or type(model).__name__
    return Subject(model, tokenizer, labels_of(model), name, getattr(config, "_commit_hash", None), processor)


def _check_pipeline(pipeline: Any) -> None:
    """Raise for a pipeline that asks its model another question than is explained."""
    task = getattr(pipeline, "task", None)
    says = task_name(pipeline.model) if isinstance(pipeline.model, nn.Module) else None
    sees = getattr(pipeline, "image_processor", None) is not None
    if task is None or (PIPELINES.get(task) == (says or "classes") and sees == (task in OF_IMAGES)):
        return
    advice = (
        "pass its model and tokenizer, Explainer(pipeline.model, pipeline.tokenizer), if that model is one of these"
    )
    if task == "zero-shot-classification":
        advice = (
            "its model judges pairs: explain those with Explainer(pipeline.model, pipeline.tokenizer).explain((text, "
            "hypothesis))"
        )
    raise UnsupportedModel(
        f"a pipeline for {task!r} is not explained with {type(pipeline.model).__name__}, only those for "
        f"{', '.join(PIPELINES)}, each with a model for it: {advice}"
    )


def name_classes(model: nn.Module, labels: Sequence[str]) -> None:
    """Name the classes of a model, whatever its configuration says."""
    _NAMED[model] = class_names(labels)


def class_names(labels: Any) -> tuple[str, ...]:
    """The names of classes, if that is what these are."""
    names = tuple(labels) if isinstance(labels, Iterable) and getattr(labels, "ndim", 1) != 0 else ()
    if isinstance(labels, str) or not names or not all(isinstance(name, str) for name in names):
        raise BadOption(f"labels are the names of the model's classes, in order; found {shown(labels)}")
    return names


def labels_of(model: nn.Module) -> tuple[str, ...]:
    """The names of the model's classes, by index."""
    if model in _NAMED:
        return _NAMED[model]
    if isinstance(model, nn.DataParallel):
        return labels_of(model.module)
    return _class_names(getattr(getattr(model, "config", None), "id2label", None) or {})


def _class_names(names: Any) -> tuple[str, ...]:
    by_index = (
        {int(key): str(names[key]) for key in names if str(key).isdecimal()} if isinstance(names, Mapping) else {}
    )
    if not isinstance(names, Mapping) or sorted(by_index) != list(range(len(names))):
        keys = [*map(str, names)] if isinstance(names, Mapping) else [f"a {type(names).__name__}"]
        listed = ", ".join(keys[:5] + ["…"] * (len(keys) > 5))
        raise UnsupportedModel(
            f"id2label in the model's configuration must name the classes 0, 1 and so on, each once; found {listed}: "
            "correct it in config.json, or set model.config.id2label"
        )
    return tuple(by_index[index] for index in range(len(names)))


def unwrapped(model: Any) -> Any:
    """The model that a compiled one was made from; any other as it is."""
    return getattr(model, "_orig_mod", model)


def device_of(model: nn.Module) -> torch.device:
    """Where a model is; one on `meta` has no weights."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if device.type == "meta":
        raise UnsupportedModel(
            f"{type(model).__name__} is on the device meta, where it has no weights: load them with from_pretrained, "
            "or move it with to_empty and load_state_dict"
        )
    return device


def input_embeddings(model: nn.Module) -> Any:
    """The module that embeds tokens; None if the model does not say."""
    get: Any = getattr(model, "get_input_embeddings", lambda: None)
    try:
        return get()
    except NotImplementedError:  # transformers' way to say that there are none, or several (CANINE)
        return None


def vocabulary_size(model: nn.Module) -> int | None:
    """How many tokens the model has embeddings for; None if it does not say."""
    weight = getattr(input_embeddings(model), "weight", None)
    return None if weight is None else int(weight.shape[0])


def text_config(model: nn.Module) -> Any:
    """The configuration of the text model; None for a module that has none."""
    config = getattr(model, "config", None)
    return config.get_text_config() if config is not None and hasattr(config, "get_text_config") else config


@validated
def load(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Subject:
    """Load a bundled model, a folder, or a hub id.

    Weights in pickle files can run code when they are read: without `allow_pickle` none is opened. Code that a
    repository comes with, kernels for attention included, is not run without `trust_remote_code`.
    """
    place, precision = _device(device), _dtype(dtype)
    checkpoint = _checkpoint(name, revision)
    trust = {"trust_remote_code": bool(trust_remote_code)}
    with reading(_unreachable(checkpoint, str(name))):
        checkpoint = checkpoint.pinned
        checkpoint.check_no_adapter()
        if checkpoint.local:
            _check_folder(Path(checkpoint.name))
        config = _configuration(checkpoint, trust)
    if not trust_remote_code:
        _check_own_code(checkpoint)
    kind = _kind(checkpoint, config)
    _check_attention(checkpoint, config, trust_remote_code)
    if precision is None:
        _check_dtype(checkpoint, getattr(config, "dtype", None))
    with reading(f"could not load {str(name)!r}: its weights"):
        stored = _safe_shapes(checkpoint, config, allow_pickle)
        if stored:
            _check_fit(checkpoint, config, kind, stored)
        model, report = kind.from_pretrained(
            checkpoint.name,
            dtype=precision or "auto",
            use_safetensors=True if stored else None,
            output_loading_info=True,
            **checkpoint.options,
            **trust,
        )
        _check_complete(checkpoint, report)
        model = _moved(model.eval(), place)
    processor = None
    if _takes_images(model):
        with reading(f"could not load {str(name)!r}: its image processor"):
            processor = load_processor(checkpoint, trust)
    tokenizer = None
    if processor is None or _takes_texts(model):
        with reading(f"could not load {str(name)!r}: its tokenizer"):
            tokenizer = _tokenizer(checkpoint, trust)
    return Subject(model, tokenizer, labels_of(model), str(name), checkpoint.revision, processor)


def _takes_images(model: nn.Module) -> bool:
    return getattr(model, "main_input_name", None) == "pixel_values" or _names(model, "pixel_values")


def _takes_texts(model: nn.Module) -> bool:
    return _names(model, "input_ids")


def _names(model: nn.Module, argument: str) -> bool:
    return argument in inspect.signature(model.forward).parameters


def _checkpoint(name: Any, revision: str | None) -> Checkpoint:
    """Where a name leads: to a bundled model, a folder, or the hub."""
    if not isinstance(name, str | Path) or not str(name).strip() or "\0" in str(name):
        shown = repr(name) if isinstance(name, str) else type(name).__name__
        raise BadInput(f"a bundled model, a folder or a hub id is needed, found {shown}")
    if str(name) in bundled_models():
        return Checkpoint(str(BUNDLED / name), local=True)
    folder = Path(name)
    try:
        is_folder, is_there = folder.is_dir(), folder.exists()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it holds half a character (a lone surrogate)"
        raise BadInput(f"{str(name)[:40]!r}… cannot be the name of a model: {reason}") from error
    if not is_folder and (is_there or folder.is_absolute() or str(name).startswith(".")):
        raise BadInput(f"there is no folder {str(name)!r}" + (", but a file" if is_there else ""))
    checkpoint = Checkpoint(str(name), is_folder, None if is_folder else revision)
    if not is_folder:
        _check_hub_id(checkpoint)
    return checkpoint


def _check_hub_id(checkpoint: Checkpoint) -> None:
    """Raise at once for what is no hub id, or a mistyped bundled model; others may be old ids, without an owner."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.errors import HFValidationError

    name = checkpoint.name
    unknown = BadInput(f"{_unknown(name[:LONGEST_NAME])}, and models of the hub are written owner/name")
    try:
        hf_hub_url(name, "config.json")  # it looks at the name, and asks nobody
    except HFValidationError as error:
        raise unknown from error
    if "/" not in name and get_close_matches(name.casefold(), bundled_models()) and not checkpoint.is_cached:
        raise unknown


def _unreachable(checkpoint: Checkpoint, name: str) -> str:
    """How an error begins that comes before anything is known about the model."""
    if checkpoint.local:
        return f"could not load {name!r}: config.json"
    return f"{_unknown(name)}, and on the hub"


def _unknown(name: str) -> str:
    """What is not here, and what may have been meant."""
    hint = "" if "/" in name else f" ({nearest(name, bundled_models())})"
    near = get_close_matches(Path(name).name, _models_beside(Path(name)), n=1)
    beside = f" (did you mean {str(Path(name).with_name(near[0]))!r}?)" if near else ""
    return f"could not load {name!r}: there is no bundled model{hint} or folder{beside} of that name"


def _models_beside(folder: Path) -> list[str]:
    """The names of folders with a model where this one would be."""
    if not folder.name or not folder.parent.is_dir():
        return []
    return [path.parent.name for path in islice(folder.parent.glob("*/config.json"), LISTED)]


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise BadInput(f"{str(folder)!r} has no config.json: save a model there with save_pretrained")
    if not any((folder / name).exists() for name in (*TOKENIZER_FILES, *PREPROCESSOR)):
        raise BadInput(
            f"{str(folder)!r} has no tokenizer: save it there too, with tokenizer.save_pretrained (of a model of "
            "images, its image processor)"
        )


def _configuration(checkpoint: Checkpoint, trust: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    path = checkpoint.file("config.json")
    content = {} if path is None else read_json(path, "configuration")
    if not isinstance(content, dict):
        raise BadInput(f"the configuration {str(path)!r} holds no fields {{…}}: save the model again")
    _class_names(content.get("id2label") or {})
    return AutoConfig.from_pretrained(checkpoint.name, **checkpoint.options, **trust)


def _kind(checkpoint: Checkpoint, config: Any) -> Any:
    """The auto class that builds what the configuration says it is."""
    architectures = config.architectures or []
    names = [str(name) for name in (architectures if isinstance(architectures, list) else [architectures])]
    head = head_of(names)
    kind = None if head is None else auto_class(head)
    if kind is None:
        raise UnsupportedModel(
            f"{checkpoint.name!r} holds {' or '.join(names[:5]) or 'a model that does not say its class'}; a sequence "
            f"classifier (…ForSequenceClassification) is needed, or a model …For{', …For'.join([*HEADS][1:])}"
        )
    return kind


def _check_own_code(checkpoint: Checkpoint) -> None:
    """Raise for a model or tokenizer whose author gives code for it: transformers would take its own class instead."""
    for name in ("config.json", "tokenizer_config.json"):
        path = checkpoint.file(name)
        content = {} if path is None else read_json(path, "configuration")
        named = content.get("auto_map") if isinstance(content, dict) else None
        classes = [one for value in (named.values() if isinstance(named, dict) else ()) for one in _names_in(value)]
        for one in classes:
            elsewhere, module = "--" in one, f"{one.partition('.')[0]}.py"
            if elsewhere or checkpoint.file(module) is not None:
                raise UnsupportedModel(
                    f"{checkpoint.name!r} comes with code of its own ({one}, auto_map in {name}), which is not run "
                    "without trust_remote_code (--trust-remote-code); without it, another model would be explained"
                )


def _names_in(value: Any) -> list[str]:
    """The classes that an entry of `auto_map` names: one, or a list for a slow and a fast tokenizer."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def _check_attention(checkpoint: Checkpoint, config: Any, trusted: bool) -> None:
    """Raise for a configuration that names a kernel on the hub: code, which transformers would fetch and run."""
    kernels = {str(getattr(part, "_attn_implementation", "")) for part in (config, config.get_text_config())}
    if not trusted and (named := sorted(kernel for kernel in kernels if "/" in kernel)):
        raise UnsupportedModel(
            f"attn_implementation of {checkpoint.name!r} is {named[0]!r}, code from the hub, which is not run without "
            "trust_remote_code (--trust-remote-code)"
        )


def _safe_shapes(checkpoint: Checkpoint, config: Any, allow_pickle: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights in safetensors files; none where they are in pickle files, and that is allowed."""
    weights = checkpoint.weights(getattr(config, "transformers_weights", None))
    if weights:
        return checkpoint.shapes(set(weights.values()))
    pickle = checkpoint.pickle()
    if pickle is None:
        raise BadInput(f"{checkpoint.name!r} has no weights ({WHOLE})")
    if not allow_pickle:
        raise UnsupportedModel(
            f"{checkpoint.name!r} has its weights only in pickle files ({pickle}), which can run code when they are "
            "read: convert them to safetensors, or pass allow_pickle (--allow-pickle) if you trust them"
        )
    return {}


def _check_fit(checkpoint: Checkpoint, config: Any, kind: Any, stored: Mapping[str, tuple[int, ...]]) -> None:
    """Raise before memory is taken if the weights are not those of the model that the configuration describes."""
    check_depth(config, len(stored), checkpoint.name)
    if type(config) not in kind._model_mapping or getattr(config, "quantization_config", None) is not None:
        return  # code of its own, or weights that are packed
    task = f"could not load {checkpoint.name!r}: the model that its config.json describes"
    with reading(task), torch.device("meta"):
        built = kind.from_config(copy.deepcopy(config), dtype=torch.float32).state_dict()
    for name, weight in built.items():
        shape = stored.get(name, weight.shape)
        if math.prod(shape) != weight.numel():  # a mere change of axes is left to transformers
            raise UnsupportedModel(
                f"could not load {checkpoint.name!r}: its weights do not fit its configuration: {name} is "
                f"{list(shape)} in the files, and {list(weight.shape)} by config.json"
            )


def _check_complete(checkpoint: Checkpoint, report: Mapping[str, Any]) -> None:
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise UnsupportedModel(f"the weights of {checkpoint.name!r} are not complete: {missing} would be random")


def _check_dtype(checkpoint: Checkpoint, dtype: Any) -> None:
    if isinstance(dtype, torch.dtype) and dtype not in DTYPES:
        raise UnsupportedModel(
            f"{checkpoint.name!r} is in {str(dtype).removeprefix('torch.')}, in which nothing is explained: give "
            "dtype=float32 (--dtype)"
        )


def _tokenizer(checkpoint: Checkpoint, trust: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint.name, **checkpoint.options, **trust)
    tokenizer(ANY_TEXT)  # raises here, and not at some later text, if it cannot be used
    return tokenizer


def _dtype(dtype: Any) -> torch.dtype | None:
    precision = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(precision, torch.dtype) and precision in DTYPES):
        raise BadOption(f"dtype {shown(dtype)} is not known; use float64, float32, bfloat16 or float16")
    return precision


def _device(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise BadOption(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from error
    except (TypeError, ValueError) as error:
        raise BadOption(f"device {shown(device)} cannot be used: give a name such as cpu or cuda:0") from error
    if place.type == "meta":
        raise BadOption("device 'meta' cannot be used: it holds no numbers; use cpu or cuda")
    return place


def _moved(model: nn.Module, device: torch.device | None) -> nn.Module:
    try:
        return model if device is None else model.to(device)
    except Exception as error:  # each kind of device fails in its own way
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise BadOption(f"device {str(device)!r} cannot be used: {reason}") from error
