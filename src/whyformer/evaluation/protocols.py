"""Protocols: texts as the authors' code of a paper hands them to the model when it explains them."""

from dataclasses import replace
from typing import get_args

import torch

from whyformer.errors import BadOption, nearest
from whyformer.inputs.encoding import Batch
from whyformer.metrics.faithfulness import Protocol

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


def protocol_named(name: str | None, task: str) -> Protocol | None:
    """The protocol of that name, which is for models that classify."""
    if name is None:
        return None
    known = {protocol: protocol for protocol in PROTOCOLS}
    if name not in known:
        raise BadOption(f"protocol {name!r} is not known; {nearest(name, PROTOCOLS)}")
    if task != "classes":
        raise BadOption(f"protocol={name!r} is for models that classify: leave it out")
    return known[name]


def as_authors(batch: Batch, protocol: Protocol) -> Batch:
    """The batch as it is explained.

    AttCAT's code takes all special tokens out of attention; Mask-LRP's takes separators out, and has no segments.
    """
    ids = batch.tensors["input_ids"]
    if protocol == "attcat":
        hidden = torch.zeros_like(ids, dtype=torch.bool) if batch.special is None else batch.special
    else:
        separator = getattr(batch.tokenizer, "sep_token_id", None)
        hidden = ids == (-1 if separator is None else separator)
    attended = batch.tensors["attention_mask"]
    tensors = {**batch.tensors, "attention_mask": attended.masked_fill(hidden.to(attended.device), 0)}
    if protocol == "mask_lrp" and "token_type_ids" in tensors:
        tensors["token_type_ids"] = torch.zeros_like(tensors["token_type_ids"])
    masked = hidden if batch.masked is None else batch.masked | hidden.to(batch.masked.device)
    return replace(batch, tensors=tensors, masked=masked)
