"""Protocols: how the authors' code of a paper runs a model, where that is not how the model was meant to be run."""

from dataclasses import replace
from typing import get_args

import torch

from whyformer.errors import BadOption, nearest
from whyformer.inputs.batch import Batch, TextInput
from whyformer.metrics.faithfulness import MetricProtocol

PROTOCOLS: tuple[MetricProtocol, ...] = get_args(MetricProtocol)
SEGMENTS = "token_type_ids"


def protocol_named(name: str | None, task: str) -> MetricProtocol | None:
    """The protocol of that name, which is for models that classify."""
    if name is None:
        return None
    known = [protocol for protocol in PROTOCOLS if protocol == name]
    if not known:
        raise BadOption(f"protocol {name!r} is not known; {nearest(name, PROTOCOLS)}")
    if task != "classes":
        raise BadOption(f"protocol={name!r} is for models that classify: leave it out")
    return known[0]


def without_segments(text: TextInput) -> TextInput:
    """The text as the code of both papers runs it: no segment ids, so that the model takes all for the first text."""
    if SEGMENTS not in text.tensors:
        return text
    return replace(text, tensors={**text.tensors, SEGMENTS: 0 * text.tensors[SEGMENTS]})


def as_explained(batch: Batch, protocol: MetricProtocol) -> Batch:
    """The batch as it is explained: AttCAT's code takes special tokens out of attention, Mask-LRP's separators."""
    ids = batch.tensors["input_ids"]
    if protocol == "attcat":
        hidden = torch.zeros_like(ids, dtype=torch.bool) if batch.special is None else batch.special
    else:
        separator = getattr(batch.tokenizer, "sep_token_id", None)
        hidden = ids == (-1 if separator is None else separator)
    attended = batch.tensors["attention_mask"]
    tensors = {**batch.tensors, "attention_mask": attended.masked_fill(hidden.to(attended.device), 0)}
    masked = hidden if batch.masked is None else batch.masked | hidden.to(batch.masked.device)
    return replace(batch, tensors=tensors, masked=masked)
