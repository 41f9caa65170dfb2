"""What torch says in its own words where a model cannot be explained, said in ours, with what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from whyformer.errors import BadInput, NoAttention, UnsupportedModel, WhyformerError

FLEX = "its flex attention cannot be looked into: load it with attn_implementation='sdpa' or 'eager'"
NO_GRADIENT = (
    "no gradient passes it: layers that are quantised, states that are detached, or a forward under torch.no_grad() "
    "let none through; load it unquantised, or take a method that hides units, such as occlusion"
)
PLAIN = "load it in float32, without quantisation"
CHECKPOINTED = (
    "it runs layers under torch.utils.checkpoint, which records nothing: switch gradient checkpointing off "
    "(model.gradient_checkpointing_disable())"
)
WRITES = (
    "it needs decoder_input_ids beside the text: models that write a text from another are not explained; classifiers "
    "and models of the next token (AutoModelForCausalLM) are"
)

# What stands in the message, and what the matter is; the first that fits.
_KNOWN: tuple[tuple[str, type[WhyformerError], str], ...] = (
    ("FlexAttention", NoAttention, FLEX),
    ("torch.utils.checkpoint", UnsupportedModel, CHECKPOINTED),
    ("exactly one of input_ids or inputs_embeds", UnsupportedModel, WRITES),  # a decoder that is given nothing
    ("decoder_input_ids", UnsupportedModel, WRITES),
    (
        "has to be a multiple of the chunk size",
        UnsupportedModel,
        "it runs its feed-forward layers in chunks, which do not divide this number of tokens: load it with "
        "chunk_size_feed_forward=0, which gives the same outputs",
    ),
    (
        "index out of range in self",
        BadInput,
        "a token, a token type or a position has no row in its table of embeddings: give fewer tokens, of its own "
        "tokenizer",
    ),
    ("does not require grad", UnsupportedModel, NO_GRADIENT),
    (
        "Inference tensors",
        UnsupportedModel,
        "its weights were made under torch.inference_mode(), and torch gives them no gradients: load it outside",
    ),
)


@contextmanager
def named_failures(name: str, *, backward: bool = False) -> Iterator[None]:
    """In it, what torch or the model does not do becomes a named error; other errors stay as they are.

    In a `backward` pass of the model's own, as Reformer's, what it asserts is what it does not do.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError, ValueError, IndexError) as error:
        message = str(error)
        for phrase, kind, reason in _KNOWN:
            if phrase in message:
                raise kind(f"{name} cannot be explained: {reason}") from error
        if isinstance(error, NotImplementedError):
            first_line = message.strip().partition("\n")[0][:200] or "NotImplementedError"
            raise UnsupportedModel(f"{name} cannot be explained: {first_line}; {PLAIN}") from error
        if isinstance(error, AssertionError) and backward:
            raise UnsupportedModel(f"the model's own backward pass refuses: {message}") from error
        raise
