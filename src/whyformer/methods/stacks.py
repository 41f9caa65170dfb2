"""The search for one stack of layers in a model of texts."""

from torch import nn

from whyformer.errors import WhyformerError
from whyformer.inputs.encoding import Batch, collate, encode
from whyformer.models.cache import known
from whyformer.models.loading import Subject
from whyformer.recorder import Layers, record

BLANK = "a"  # a text that only asks what a model is made of
STACKED = "texts go through one stack of layers"


def reads_in_one_stack(subject: Subject) -> bool:
    """Return True if a model of texts has one stack of layers, as a BERT and unlike an encoder with a decoder.

    A model that cannot be recorded counts as one without; its explanation reports what is wrong.
    """

    def find() -> bool:
        return _has_one_stack(subject.model, collate(subject, [encode(subject, BLANK, answers=False)]))

    try:
        return known(subject.model).once(STACKED, find)
    except WhyformerError:
        return False


def reads_in_one_stack_for(model: nn.Module, batch: Batch) -> bool:
    """Return the same for ready tensors, after a run on the first of them."""
    return known(model).once(STACKED, lambda: _has_one_stack(model, batch.rows([0])))


def _has_one_stack(model: nn.Module, batch: Batch) -> bool:
    return isinstance(record(model, batch.tensors, relevance=False).layers, Layers)
