"""How much a device runs at once, where nothing else is asked for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What goes through a model together.

    `texts` is how many examples, and how many rows of a chunk; `traced_tokens` how many tokens of a recorded run;
    `tokens` how many of any other run; `logits` how many outputs of models that give a vocabulary at every position.
    """

    texts: int
    traced_tokens: int
    tokens: int
    logits: int


CPU = Limits(texts=16, traced_tokens=2048, tokens=4096, logits=2**26)
LIMITS = {"cpu": CPU, "cuda": Limits(texts=128, traced_tokens=8192, tokens=65536, logits=2**28)}


def limits_of(device: str) -> Limits:
    """The limits of a type of device; those of a CPU where there are none."""
    return LIMITS.get(device, CPU)
