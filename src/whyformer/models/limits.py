"""How much a device runs at once, where nothing else is asked for."""

from dataclasses import dataclass


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


CPU = Limits(rows=16, texts=16, traced_tokens=2048, tokens=4096, call=16, logits=2**26)
LIMITS = {"cpu": CPU, "cuda": Limits(rows=256, texts=128, traced_tokens=8192, tokens=65536, call=2048, logits=2**28)}


def limits_of(device: str) -> Limits:
    """The limits of a type of device; those of a CPU where there are none."""
    return LIMITS.get(device, CPU)
