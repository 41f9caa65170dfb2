"""How much a device runs at once, where nothing else is asked for."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

LARGE = 2**36  # bytes of a GPU's memory
SMALL = 2**28  # weights of a model, with which a chunk of all rows is measured soon
FEWEST = 16  # rows of a chunk, however large a model is


@dataclass(frozen=True)
class Limits:
    """What goes through a model together.

    `rows` is how many examples are read, and in an evaluation journalled, together; `texts` how many of them are
    explained at once, those of nearly one length; `traced_tokens` how many tokens of a recorded run; `tokens` how many
    of any other run; `call` how many tokens a run costs as much as, on top of its own; `logits` how many outputs of
    models that give a vocabulary at every position.
    """

    rows: int
    texts: int
    traced_tokens: int
    tokens: int
    call: int
    logits: int

    def rows_of(self, model: nn.Module) -> int:
        """How many rows are journalled together: fewer of a large model, so that less is lost where it is stopped."""
        weights = sum(weight.numel() for weight in model.parameters())
        return min(self.rows, max(FEWEST, self.rows * SMALL // max(SMALL, weights)))


CPU = Limits(rows=16, texts=16, traced_tokens=2048, tokens=4096, call=16, logits=2**26)
LIMITS = {
    "cpu": CPU,
    "cuda": Limits(rows=256, texts=128, traced_tokens=8192, tokens=65536, call=1024, logits=2**28),
    "large cuda": Limits(rows=512, texts=256, traced_tokens=16384, tokens=65536, call=1024, logits=2**28),
}


def limits_of(device: torch.device) -> Limits:
    """The limits of a device, for a GPU by its memory; those of a CPU where there are none."""
    is_large = device.type == "cuda" and _memory(device) >= LARGE
    return LIMITS.get("large cuda" if is_large else device.type, CPU)


@lru_cache
def _memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)
