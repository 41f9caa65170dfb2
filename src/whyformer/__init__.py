"""Why did it say that? Explanations for the predictions of unmodified Hugging Face Transformers."""

from whyformer.errors import (
    BadInput,
    BadOption,
    MissingExtra,
    NoAttention,
    TruncationWarning,
    UncoveredOperation,
    UnsupportedModel,
    WhyformerError,
)
from whyformer.explainer import Explainer, attribute
from whyformer.explanation import Comparison, Explanation
from whyformer.recorder import Trace, record
from whyformer.registry import Measured, Scores, method, methods, metric, metrics

__all__ = [
    "BadInput",
    "BadOption",
    "Comparison",
    "Explainer",
    "Explanation",
    "Measured",
    "MissingExtra",
    "NoAttention",
    "Scores",
    "Trace",
    "TruncationWarning",
    "UncoveredOperation",
    "UnsupportedModel",
    "WhyformerError",
    "attribute",
    "method",
    "methods",
    "metric",
    "metrics",
    "record",
]
