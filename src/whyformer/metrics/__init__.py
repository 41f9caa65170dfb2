"""One decorated function per metric, a file per family. Importing this package registers them all."""

from whyformer.metrics import confidence, faithfulness, overlap, plausibility
from whyformer.metrics.case import Annotation, Case, Rationale, answer_tokens, measure
from whyformer.metrics.idf import Idf

__all__ = [
    "Annotation",
    "Case",
    "Idf",
    "Rationale",
    "answer_tokens",
    "confidence",
    "faithfulness",
    "measure",
    "overlap",
    "plausibility",
]
