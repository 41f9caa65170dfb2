"""Comparisons: which explanations stand under one headline, what their rows are called, and what is said of each."""

from collections.abc import Sequence
from typing import TypeVar

from whyformer.results.agreement import BASELINES, mean_agreements
from whyformer.results.explanation import ExplanationData
from whyformer.show.layout import called, headline, question

E = TypeVar("E", bound=ExplanationData)
AGREEMENT = "agreement: the mean rank correlation with the other methods, by magnitude"


def under_headlines(explanations: Sequence[E]) -> list[list[E]]:
    """The explanations in groups with one headline: of the same model and units, that ask and say the same."""
    groups: dict[object, list[E]] = {}
    for e in explanations:
        origin = tuple(str(e.provenance.get(name)) for name in ("model", "revision"))
        groups.setdefault((*origin, headline(e.prediction), question(e), e.texts, e.units), []).append(e)
    return list(groups.values())


def row_names(explanations: Sequence[ExplanationData]) -> list[str]:
    """What rows are called that stand together: by the method, and where headlines differ by what each is of."""
    if len(under_headlines(explanations)) == 1:
        return [called(e) for e in explanations]
    several = len({e.provenance.get("model") for e in explanations}) > 1
    return [f"{called(e)} · {model_of(e) if several else headline(e.prediction)}" for e in explanations]


def model_of(explanation: ExplanationData) -> str:
    """The name of the model behind it."""
    return str(explanation.provenance.get("model") or "")


def facts_of_rows(explanations: Sequence[ExplanationData]) -> list[str]:
    """Of each row how far it agrees with the others, and whether it is there to be beaten."""
    return [_fact(e, mean) for e, mean in zip(explanations, mean_agreements(explanations), strict=True)]


def _fact(explanation: ExplanationData, mean: float | None) -> str:
    parts = ["a baseline"] if explanation.method in BASELINES else []
    return ", ".join([*parts, *([] if mean is None else [f"agreement {mean:.2f}"])])
