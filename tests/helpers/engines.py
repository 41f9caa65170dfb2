"""Two engines for the books that carry a gradient: rules that act while a model runs, and sites."""

from typing import Any

from torch import Tensor

from tests.helpers import zoo
from whyformer.errors import UncoveredOperation, UnsupportedModel
from whyformer.inputs.encoding import batch_of
from whyformer.prediction import Prediction
from whyformer.recorder import Needs, Trace, record
from whyformer.recorder.lrp.books import GRADIENT_BOOKS, Book
from whyformer.recorder.lrp.running import NotWhileRunning
from whyformer.rounding import distance


def relevances(trace: Trace, book: Book, target: Any) -> dict[str, Tensor]:
    """The relevance of units under a book where they enter the model, and its first layer, if there is a rule."""
    at: dict[str, Tensor | None] = {"inputs": trace.pixels if trace.embeddings is None else trace.embeddings}
    at["states"] = trace.hidden[0] if trace.has_layers else None
    reached = {}
    for name, tensor in at.items():
        try:
            if tensor is not None:
                reached[name] = trace.relevance(tensor, book, target).flatten(2).sum(-1)
        except (UncoveredOperation, NotWhileRunning):
            continue
    return reached


def gaps(model: Any, inputs: dict[str, Tensor], target: Any, *, maps: bool = False) -> dict[str, float | str]:
    """By book and place, how far the engines are apart, or why the rules cannot act while this model runs."""
    found: dict[str, float | str] = {}
    real = inputs["attention_mask"].flatten(0, -2).bool() if "attention_mask" in inputs else None
    for name, book in GRADIENT_BOOKS.items():
        expected = relevances(record(model, inputs), book, target)
        try:
            trace = record(model, inputs, book=book, maps=maps)
        except NotWhileRunning as reason:
            found[name] = str(reason)
            continue
        reached = relevances(trace, book, target)
        for place in expected.keys() | reached.keys():
            if place not in reached or place not in expected:
                found[f"{name} {place}"] = f"reached by {'sites' if place in expected else 'rules while running'} alone"
                continue
            one, other = reached[place], expected[place]
            if real is not None and real.shape == one.shape:
                one, other = one * real, other * real
            found[f"{name} {place}"] = distance(one, other)
    return found


def seen_by(model: Any, inputs: dict[str, Tensor], target: Any, method: str) -> Prediction:
    """A prediction as `attribute` makes it for a method."""
    from whyformer.methods.specs import method_specs

    return Prediction(model, batch_of(model, inputs), target, needs=method_specs([method])[0].needs)


__all__ = ["Needs", "UnsupportedModel", "gaps", "relevances", "seen_by", "zoo"]
