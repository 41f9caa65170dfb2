"""One instrumented run of an unmodified model."""

from whyformer.recorder.trace import Edit, Trace, differentiating, record

__all__ = ["Edit", "Trace", "differentiating", "record"]
