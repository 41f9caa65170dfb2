"""What torch says in its own words where a model cannot be explained, said in ours, with what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from whyformer.errors import NoAttention, UnsupportedModel

FLEX = "its flex attention cannot be looked into: load it with attn_implementation='sdpa' or 'eager'"
PLAIN = "load it in float32, without quantisation"
CHECKPOINTED = (
    "it runs layers under torch.utils.checkpoint, which records nothing: switch gradient checkpointing off "
    "(model.gradient_checkpointing_disable())"
)

# What is found in torch's message, and what the matter is; the first that fits.
_KNOWN: tuple[tuple[str, type[UnsupportedModel], str], ...] = (
    ("FlexAttention", NoAttention, FLEX),
    ("torch.utils.checkpoint", UnsupportedModel, CHECKPOINTED),
    (
        "Inference tensors",
        UnsupportedModel,
        "its weights were made under torch.inference_mode(), and torch gives them no gradients: load it outside",
    ),
)


@contextmanager
def named_failures(name: str, *, backward: bool = False) -> Iterator[None]:
    """In it, what torch or the model does not do becomes an `UnsupportedModel`; other errors stay as they are.

    In a `backward` pass of the model's own, as Reformer's, what it asserts is what it does not do.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError) as error:
        message = str(error)
        for phrase, kind, reason in _KNOWN:
            if phrase in message:
                raise kind(f"{name} cannot be explained: {reason}") from error
        if isinstance(error, NotImplementedError):
            said = message.strip().partition("\n")[0][:200] or "NotImplementedError"
            raise UnsupportedModel(f"{name} cannot be explained: {said}; {PLAIN}") from error
        if isinstance(error, AssertionError) and backward:
            raise UnsupportedModel(f"the model's own backward pass refuses: {message}") from error
        raise
