"""Why did it say that? Explanations for the predictions of unmodified Hugging Face Transformers."""

from whyformer.datasets import Dataset, open_dataset
from whyformer.errors import (
    BadInput,
    BadOption,
    CompletenessWarning,
    MissingExtra,
    NoAttention,
    TruncationWarning,
    UncoveredOperation,
    UnsupportedModel,
    WhyformerError,
    WhyformerWarning,
)
from whyformer.explainer import Explainer, attribute
from whyformer.explanation import Comparison, Explanation
from whyformer.recommend import Recommendation
from whyformer.recorder import Trace, record
from whyformer.registry import Measured, Scores, method, methods, metric, metrics
from whyformer.table import Table
from whyformer.tokens import TokenTable
from whyformer.trust import Trust

__all__ = [
    "BadInput",
    "BadOption",
    "Comparison",
    "CompletenessWarning",
    "Dataset",
    "Explainer",
    "Explanation",
    "Measured",
    "MissingExtra",
    "NoAttention",
    "Recommendation",
    "Scores",
    "Table",
    "TokenTable",
    "Trace",
    "TruncationWarning",
    "Trust",
    "UncoveredOperation",
    "UnsupportedModel",
    "WhyformerError",
    "WhyformerWarning",
    "attribute",
    "method",
    "methods",
    "metric",
    "metrics",
    "open_dataset",
    "record",
]
