"""Checkpoints: the files of a folder or hub id. Weights are read from safetensors inside it, and from nothing else."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import ERROR
from pathlib import Path
from pickle import UnpicklingError
from threading import RLock
from typing import Any

from safetensors import SafetensorError, safe_open

from whyformer.errors import BadInput, UnsupportedModel, WhyformerError
from whyformer.storage.files import inside, read_json

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
