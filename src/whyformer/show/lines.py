"""Results in one line, for logs, lists and failed assertions."""

from typing import Any

from whyformer.errors import listed
from whyformer.escapes import visible
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.show.colours import written
from whyformer.show.layout import called, headline, question, unit_name

LONGEST_TEXT = 60  # characters that are shown of a text
METHODS = 4  # as many are named
STRONGEST = 3  # words


def one_line(result: ExplanationData | ComparisonData[Any]) -> str:
    """What was said of what, why, and by which method."""
    if isinstance(result, ComparisonData):
        told = f"{len(result)} explanations, {_said(result[0])}: {listed([called(e) for e in result], METHODS)}"
    else:
        told = f"{_said(result)}, {question(result)} {called(result)}: {_strongest(result)}"
    return f"<{type(result).__name__}: {visible(told)}>"


def _said(explanation: ExplanationData) -> str:
    text = " | ".join(" ".join(text.split()) for text in explanation.texts)
    text = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1].rstrip()}…"
    image = explanation.image
    things = ([] if image is None else [image.name or "an image"]) + ([f"“{text}”"] if text else [])
    return f"{headline(explanation.prediction)} of {' and '.join(things) or f'{len(explanation.units)} units'}"


def _strongest(explanation: ExplanationData) -> str:
    merged = explanation.by_word() if explanation.texts else explanation
    top = merged.strongest(STRONGEST)
    return ", ".join(f"{unit_name(merged, unit)} {written(merged, unit.score, 3)}" for unit in top) or "no units"
