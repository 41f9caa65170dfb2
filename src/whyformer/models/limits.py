"""How much a device runs at once, where nothing else is asked for."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import nn

from whyformer.models.cache import known

LARGE = 2**36  # bytes of a GPU's memory
SMALL = 2**28  # weights of a model: one with more is given less at once, but no less than a CPU


@dataclass(frozen=True)
class Limits:
    """What goes through a model together.

    `rows` is how many examples are read, and in an evaluation journalled, together; `texts` how many of them are
    explained at once, those of nearly one length; `traced_tokens` how many tokens of a recorded run; `tokens` how many
    of any other run; `traced_call` and `call` how many tokens such a run costs as much as, on top of its own; `logits`
    how many outputs of models that give a vocabulary at every position.
    """

    rows: int
    texts: int
    traced_tokens: int
    traced_call: int
    tokens: int
    call: int
    logits: int

    def scaled(self, share: float) -> "Limits":
        """A share of what is recorded and journalled together."""
        return replace(self, **{n: max(getattr(CPU, n), int(share * getattr(self, n))) for n in BY_WEIGHTS})


BY_WEIGHTS = ("rows", "texts", "traced_tokens")
CPU = Limits(rows=16, texts=16, traced_tokens=2048, traced_call=64, tokens=4096, call=16, logits=2**26)
LIMITS = {
    "cpu": CPU,
    "cuda": Limits(rows=256, texts=128, traced_tokens=8192, traced_call=1536, tokens=65536, call=1024, logits=2**28),
    "large cuda": Limits(
        rows=512, texts=256, traced_tokens=16384, traced_call=1536, tokens=65536, call=1024, logits=2**28
    ),
}


def limits_of(device: torch.device, model: nn.Module | None = None) -> Limits:
    """The limits of a device, of a GPU by its memory, and of a large model; those of a CPU where there are none."""
    is_large = device.type == "cuda" and _memory(device) >= LARGE
    limits = LIMITS.get("large cuda" if is_large else device.type, CPU)
    weights = 0 if model is None else sum(weight.numel() for weight in model.parameters())
    limits = limits if weights <= SMALL else limits.scaled(SMALL / weights)
    return replace(limits, call=0, traced_call=0) if model is not None and not may_pad(model) else limits


def run_without_padding(model: nn.Module) -> None:
    """Run inputs of this model in batches of one length from now on."""
    known(model)["pads"] = False


def may_pad(model: nn.Module) -> bool:
    """Whether inputs of different lengths may be run together."""
    return bool(known(model).get("pads", True))


@lru_cache
def _memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)
