"""One instrumented run of an unmodified model."""

from whyformer.recorder.lrp.books import BOOKS, Book, BySite
from whyformer.recorder.run import Edit, record
from whyformer.recorder.trace import Layers, Trace, differentiating
from whyformer.tasks.targets import Target, plain_target
from whyformer.tasks.task import Outputs

__all__ = [
    "BOOKS",
    "Book",
    "BySite",
    "Edit",
    "Layers",
    "Outputs",
    "Target",
    "Trace",
    "differentiating",
    "plain_target",
    "record",
]
