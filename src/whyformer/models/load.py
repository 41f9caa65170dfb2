"""Load a model by name, folder or hub id, or take one that exists: model, tokenizer or image processor, and labels.

Weights are read from safetensors, and from nothing else.
"""

import copy
import importlib.metadata
import inspect
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from logging import ERROR
from pathlib import Path
from pickle import UnpicklingError
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from torch import nn

from whyformer.errors import BadInput, BadOption, UnsupportedModel, WhyformerError, nearest, shown
from whyformer.models.auto_classes import HEADS, auto_class, head_of, task_name
from whyformer.registry.options import validated
from whyformer.storage.files import inside, read_json
from whyformer.tolerance import ROUNDING

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SAFE, LISTING = ".safetensors", ".safetensors.index.json"  # endings: transformers opens files by them
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTER = "adapter_config.json"
DEPTHS = ("num_hidden_layers", "decoder_layers", "num_decoder_layers")  # fields that say how many layers are built
PANIC = "PanicException"  # of Rust, in tokenizers: it is not an Exception, and its class cannot be imported

_QUIET = RLock()  # how much transformers says is one setting for the whole process


@dataclass(frozen=True)
class Checkpoint:
    """A folder, or a model on the hub at a revision."""

    name: str
    local: bool
    revision: str | None = None
    kept: bool = False  # whether only what the cache holds of it can be had, because the hub does not answer

    @property
    def options(self) -> dict[str, Any]:
        """How transformers is asked for it, beside its name."""
        return {"local_files_only": self.local or self.kept} | ({"revision": self.revision} if self.revision else {})

    @property
    def pinned(self) -> "Checkpoint":
        """The checkpoint at the commit that its configuration has now, so that all of its files are of one state."""
        if self.local:
            return self
        reached = self.reached
        path = reached.file("config.json")
        if path is None or path.parents[1].name != "snapshots":
            return reached
        return replace(reached, revision=path.parent.name)

    @property
    def reached(self) -> "Checkpoint":
        """The checkpoint as it can be had: the hub is asked once, for transformers would try again, file by file."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.errors import HfHubHTTPError

        try:
            get_hf_file_metadata(hf_hub_url(self.name, "config.json", revision=self.revision))
        except HfHubHTTPError:  # an answer, of which transformers says more
            return self
        except Exception as error:
            if self.is_cached:
                return replace(self, kept=True)
            reason = f"it does not answer ({type(error).__name__}), and its cache here does not hold that name"
            raise ConnectionError(reason) from error
        return self

    @property
    def is_cached(self) -> bool:
        """Whether the hub's cache on this machine holds it."""
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(self.name, "config.json", revision=self.revision), str)

    def file(self, name: str) -> Path | None:
        """The file of that name, downloaded if need be; None where there is none."""
        from transformers.utils.hub import cached_file

        path = cached_file(self.name, name, **self.options, _raise_exceptions_for_missing_entries=False)
        return None if path is None else Path(path)

    def weights(self, entry: Any = None) -> dict[str, str]:
        """The safetensors file that holds each weight, by the weight's name; empty where there are no such files.

        `entry` is the file that the configuration names in place of the usual ones.
        """
        for name in (WHOLE, INDEX) if entry is None else (self._checked(entry, "config.json", (SAFE, LISTING)),):
            path = self.file(name)
            if path is not None:
                return self._indexed(path) if name.endswith(".json") else dict.fromkeys(_shapes(path), name)
        return {}

    def shapes(self, files: set[str]) -> dict[str, tuple[int, ...]]:
        """The shape of each weight in these files, read from their headers."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name in sorted(files):
            path = self.file(name)
            if path is None:
                raise BadInput(f"the weights of {self.name!r} are not complete: there is no file {name!r}")
            shapes |= _shapes(path)
        return shapes

    def pickle(self) -> str | None:
        """The name of a pickle file with weights, if there is one; it is neither opened nor downloaded."""
        from transformers.utils.hub import has_file

        if self.local:
            return min((path.name for path in Path(self.name).glob("pytorch_model*.bin")), default=None)
        return next((name for name in PICKLES if has_file(self.name, name, **self.options)), None)

    def check_no_adapter(self) -> None:
        """Raise for an adapter: which weights it is added to, and from where, would be left to what it says."""
        if self.file(ADAPTER) is not None:
            raise UnsupportedModel(
                f"{self.name!r} holds an adapter ({ADAPTER}): merge it into its model (merge_and_unload of peft), save "
                "that with save_pretrained and load it; or give the model with its adapter to Explainer"
            )

    def _indexed(self, index: Path) -> dict[str, str]:
        content = read_json(index, "index of weights")
        files = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(files, dict) or not files:
            raise BadInput(f"the index of weights {str(index)!r} has no weight_map: save the model again")
        return {weight: self._checked(name, index.name) for weight, name in files.items()}

    def _checked(self, name: Any, place: str, endings: tuple[str, ...] = (SAFE,)) -> str:
        """A name of weights that a file gives, if it is that of a safetensors file in this very folder."""
        plain = isinstance(name, str) and name.endswith(endings) and name == Path(name.replace("\\", "/")).name
        if not plain:
            raise UnsupportedModel(
                f"{place} of {self.name!r} names {name!r} as weights: only safetensors files beside it are read, "
                "others can run code when they are read; save the model again with save_pretrained"
            )
        if self.local and not _is_snapshot(Path(self.name)):
            inside(Path(self.name), name)
        return str(name)


def check_depth(config: Any, weights: int, name: str) -> None:
    """Raise before a model is built if its configuration asks for more layers than there are weights."""
    for field in DEPTHS:
        layers = getattr(config.get_text_config(), field, None)
        if isinstance(layers, int) and layers > weights:
            raise UnsupportedModel(
                f"the weights of {name!r} are not complete: {field} is {layers} in its configuration, and its files "
                f"hold {weights} weights in all"
            )


@contextmanager
def reading(task: str) -> Iterator[None]:
    """Quiet work of transformers and the hub; whatever they raise becomes one error that begins with `task`."""
    try:
        with _quiet():
            yield
    except BaseException as error:  # configurations, weights and tokenizers of others can make anything fail
        if isinstance(error, WhyformerError) or not (isinstance(error, Exception) or type(error).__name__ == PANIC):
            raise
        reason = " ".join(str(error).split())
        if "trust_remote_code" in reason:
            raise UnsupportedModel(
                f"{task}: it comes with its own code, which is not run without trust_remote_code (--trust-remote-code)"
            ) from error
        if "above report" in reason:  # which nobody sees
            reason = "they do not have the shapes that config.json asks for"
        elif isinstance(error, UnpicklingError):  # torch advises to read it all the same
            reason = "the pickle file holds other things than weights, which are not read"
        elif not isinstance(error, OSError | RuntimeError | SafetensorError | ValueError):
            reason = f"{type(error).__name__} {reason}"  # the text alone may be no more than a name
        raise BadInput(f"{task}: {reason[:300]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging

    with _QUIET, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bars, levels = logging.is_progress_bar_enabled(), (logging.get_verbosity(), hub.get_verbosity())
        logging.disable_progress_bar()
        logging.set_verbosity(ERROR)
        hub.set_verbosity(ERROR)
        try:
            yield
        finally:
            logging.set_verbosity(levels[0])
            hub.set_verbosity(levels[1])
            if bars:
                logging.enable_progress_bar()


def _shapes(path: Path) -> Mapping[str, tuple[int, ...]]:
    with safe_open(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _is_snapshot(folder: Path) -> bool:
    """Whether a folder is of the hub's cache, where every file is a link to `blobs`."""
    place = folder.resolve().parent
    return place.name == "snapshots" and (place.parent / "blobs").is_dir()


PREPROCESSOR = ("preprocessor_config.json", "processor_config.json")  # files that describe one
DEFAULTS: dict[str, Any] = {
    "do_resize": True,
    "size": {"height": 224, "width": 224},
    "resample": 2,
    "do_center_crop": False,
    "crop_size": None,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
NAMES = frozenset(
    {"image_processor_type", "feature_extractor_type", "processor_class", "do_convert_rgb", "data_format"}
)
KNOWN = DEFAULTS.keys() | NAMES
STATED = frozenset({"size", "image_mean", "image_std"})  # what processors of different classes take differently
PLAIN = frozenset(  # processors that do what their fields say, in this order: resize, crop, scale, normalise
    f"{name}ImageProcessor"
    for name in (
        *("Beit", "Bit", "Blip", "CLIP", "ChineseCLIP", "DeiT", "MobileNetV1", "MobileNetV2", "Pvt", "Segformer"),
        *("Siglip", "ViT"),
    )
)


def is_plain(kind: str) -> bool:
    """Whether processors of a class do what their fields say, and nothing else."""
    name = kind.replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast").removesuffix("Pil")
    return name in PLAIN or kind == PlainProcessor.__name__


def is_processor(reader: Any) -> bool:
    """Whether an object reads images, alone or beside texts."""
    inner = getattr(reader, "image_processor", None) or reader
    return "pixel_values" in (getattr(inner, "model_input_names", None) or ())


def processor_in(reader: Any) -> Any:
    """What reads images in an object that reads a model's inputs; None for a tokenizer.

    A plain function, as the transforms of torchvision and timm are, reads images too.
    """
    if is_processor(reader):
        return getattr(reader, "image_processor", None) or reader
    reads_texts = hasattr(reader, "convert_ids_to_tokens") or hasattr(reader, "model_input_names")
    return reader if callable(reader) and not reads_texts else None


def load_processor(checkpoint: Checkpoint, trust: dict[str, Any]) -> Any:
    """The image processor of a checkpoint; one of our own where transformers' needs packages that are not there."""
    from transformers import AutoImageProcessor

    path = next(filter(None, map(checkpoint.file, PREPROCESSOR)), None)
    if path is None:
        raise BadInput(f"there is no {PREPROCESSOR[0]}: save it there too, with image_processor.save_pretrained")
    try:
        return AutoImageProcessor.from_pretrained(checkpoint.name, **checkpoint.options, **trust)
    except ImportError:
        content = read_json(path, "image processor")
        described = content.get("image_processor", content) if isinstance(content, dict) else content
        if not isinstance(described, dict):
            raise BadInput(f"the image processor {str(path)!r} holds no fields {{…}}: save it again") from None
        return PlainProcessor(described)


class PlainProcessor:
    """What most image processors do, by the fields of their file: resize, crop, scale and normalise colours.

    It takes the place of a processor that needs packages which are not installed. Fields that it does not know are
    refused: they might change the numbers.
    """

    model_input_names = ("pixel_values",)

    def __init__(self, described: dict[str, Any]):
        kind = described.get("image_processor_type") or described.get("feature_extractor_type")
        unknown = sorted(name for name in described if name not in KNOWN and described[name])
        if unknown or not (kind is None or is_plain(str(kind))):
            what = f" ({', '.join(unknown[:3])})" if unknown else ""
            raise UnsupportedModel(
                f"the image processor {kind or ''} needs packages that are not installed (torchvision, for one), and "
                f"what it does is not known here{what}: install them, or give Explainer a function from images to "
                "tensors"
            )
        if kind is not None and (missing := sorted(STATED - described.keys())):
            raise UnsupportedModel(
                f"the image processor {kind} needs packages that are not installed (torchvision, for one), and its "
                f"file does not say its {', '.join(missing)}: install them, or save it again with all its fields"
            )
        self.described = {**DEFAULTS, **described}
        if isinstance(self.described["size"], int) and self.described["do_center_crop"]:
            self.described["size"] = {"shortest_edge": self.described["size"]}  # as CLIP and its kin mean it
        for name, value in self.described.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"PlainProcessor({self.described})"

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return dict(self.described)

    def __call__(self, images: Image.Image, **_: Any) -> dict[str, torch.Tensor]:
        """The numbers of one image, [1, channels, height, width]."""
        fields = self.described
        image = images.convert("RGB")
        if fields["do_resize"]:
            height, width = resized(image.size[::-1], fields["size"])
            image = image.resize((width, height), Image.Resampling(fields["resample"]))
        if fields["do_center_crop"]:
            height, width = edges(fields["crop_size"])
            left, top = (image.width - width) // 2, (image.height - height) // 2
            image = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1)
        if fields["do_rescale"]:
            pixels = pixels * np.float32(fields["rescale_factor"])
        if fields["do_normalize"]:
            mean, std = (
                np.array(fields[name], dtype=np.float32)[:, None, None] for name in ("image_mean", "image_std")
            )
            pixels = (pixels - mean) / std
        return {"pixel_values": torch.from_numpy(np.ascontiguousarray(pixels))[None]}


def edges(size: Any) -> tuple[int, int]:
    """Height and width, as processors write them."""
    if isinstance(size, int):
        return size, size
    if "height" in size:
        return int(size["height"]), int(size["width"])
    raise UnsupportedModel(f"an image processor's size {size} is not known: height and width are needed")


def resized(before: tuple[int, int], size: Any) -> tuple[int, int]:
    """Height and width of an image once it is resized: exactly, or to a shortest edge."""
    if not isinstance(size, int) and "shortest_edge" in size:
        shortest, longest = min(before), max(before)
        short = int(size["shortest_edge"])
        long = int(short * longest / shortest)
        return (short, long) if before[0] <= before[1] else (long, short)
    return edges(size)


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
        from whyformer.models.snapshot import shape_of

        return shape_of(self.model, self.tokenizer, self.processor)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines what the model says: `shape`, and every weight as it is now."""
        from whyformer.models.snapshot import fingerprint

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
