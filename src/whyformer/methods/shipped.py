"""Files that a bundled model ships with: its head mask, and the layer that decodes best."""

from pathlib import Path

from torch import nn

from whyformer.errors import BadOption
from whyformer.models.loading import BUNDLED, bundled_models
from whyformer.storage.files import read_json


def shipped_file(model: nn.Module, name: str) -> Path | None:
    """The file of that name that a bundled model ships with, or None."""
    folder = Path(getattr(getattr(model, "config", None), "_name_or_path", ""))
    is_bundled = folder.parent == BUNDLED and folder.name in bundled_models()
    return folder / name if is_bundled and (folder / name).exists() else None


def shipped_layer(model: nn.Module) -> int | None:
    """The layer that a bundled model ships with, or None."""
    file = shipped_file(model, "layer.json")
    return None if file is None else int(read_json(file)["layer"])


def best_layer(model: nn.Module) -> int:
    """The layer that a bundled model ships with. Any other model needs a number."""
    layer = shipped_layer(model)
    if layer is None:
        raise BadOption(
            "layer='best' is the layer that a bundled model ships with, and this model is not bundled: give a number. "
            "`whyformer recommend --layers --data FILE` finds one on your own texts"
        )
    return layer
