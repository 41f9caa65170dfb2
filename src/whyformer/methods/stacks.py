"""Whether a model of texts has one stack of layers: asked once of each model, of a blank text."""

from weakref import WeakKeyDictionary

from torch import nn

from whyformer.errors import WhyformerError
from whyformer.inputs.encoding import Batch, collate, encode
from whyformer.models.loading import Subject
from whyformer.recorder import Layers, record

BLANK = "a"  # a text that only asks what a model is made of

_STACKED: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def reads_in_one_stack(subject: Subject) -> bool:
    """Whether a model of texts has one stack of layers, as a BERT and unlike an encoder with a decoder.

    Of one that cannot be asked, nobody knows it; an explanation says what is wrong with it.
    """
    if subject.model in _STACKED:
        return _STACKED[subject.model]
    try:
        return reads_in_one_stack_for(subject.model, collate(subject, [encode(subject, BLANK, answers=False)]))
    except WhyformerError:
        return False


def reads_in_one_stack_for(model: nn.Module, batch: Batch) -> bool:
    """The same for ready tensors, asked of the first of them."""
    if model not in _STACKED:
        trace = record(model, batch.rows([0]).tensors, relevance=False)
        _STACKED[model] = isinstance(trace.layers, Layers)
    return _STACKED[model]
