"""One instrumented run of an unmodified model."""

from whyformer.recorder.books import BOOKS, Book
from whyformer.recorder.outputs import Outputs, Target, plain_target
from whyformer.recorder.run import Edit, record
from whyformer.recorder.trace import Layers, Trace, differentiating

__all__ = ["BOOKS", "Book", "Edit", "Layers", "Outputs", "Target", "Trace", "differentiating", "plain_target", "record"]
