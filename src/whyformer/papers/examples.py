"""The pictures of single texts: several methods, several layers, or differences between methods."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from whyformer.datasets import Dataset
from whyformer.errors import BadInput, WhyformerError
from whyformer.inputs.encoding import Text
from whyformer.methods.specs import MethodSpec, method_specs
from whyformer.models.loading import Subject
from whyformer.papers.recipe import Asked, Column, Reproduction
from whyformer.results.explanation import Array, Comparison, Explanation

Explain = Callable[[Subject, Text, MethodSpec], Explanation]


def texts_of(recipe: Reproduction, column: Column, data: Dataset | None, count: int) -> tuple[Text, ...]:
    """The texts of a figure; questions are looked up in the data, whose first texts stand in where none is known."""
    known = recipe.examples.get(column.label)
    if known is None:
        assert data is not None
        return tuple(example.text for example in islice(data, count))
    return tuple(_asked(text, data) if isinstance(text, Asked) else text for text in known)


def _asked(asked: Asked, data: Dataset | None) -> Text:
    assert data is not None
    wanted = _plain(asked.question)
    for example in data:
        if example.question is not None and _plain(example.question) == wanted:
            return example.text
    raise BadInput(f"the question {asked.question!r} is not in {data.name} ({data.source.where})")


def _plain(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def explained(
    recipe: Reproduction, column: Column, subject: Subject, texts: Sequence[Text], explain: Explain
) -> tuple[Comparison, ...]:
    """What a figure shows of each text, one explanation for each of its rows, under the paper's labels."""
    shown = {"layers": _layers, "comparison": _comparison, "differences": _differences}[recipe.kind]
    return tuple(shown(recipe, column, subject, text, explain) for text in texts)


def _by_row(
    recipe: Reproduction, column: Column, subject: Subject, text: Text, explain: Explain
) -> tuple[dict[str, Explanation], list[tuple[str, str]]]:
    """An explanation for each row, and the rows that were refused."""
    done: dict[str, Explanation] = {}
    refused: list[tuple[str, str]] = []
    for row in recipe.rows_of(column):
        spec = method_specs([row.method])[0]
        try:
            done[row.label] = explain(subject, text, spec)
        except WhyformerError as error:
            refused.append((f"{row.label}, {spec.label}", str(error)))
    needed = [f"{label}: {reason}" for label, reason in refused if label.partition(",")[0] in recipe.essential]
    if needed or not done:
        raise BadInput(f"{recipe.name} cannot explain {text!r}: {'; '.join(needed or [r for _, r in refused])}")
    return done, refused


def _comparison(recipe: Reproduction, column: Column, subject: Subject, text: Text, explain: Explain) -> Comparison:
    done, refused = _by_row(recipe, column, subject, text, explain)
    return Comparison(tuple(_called(label, e) for label, e in done.items()), tuple(refused))


def _layers(recipe: Reproduction, column: Column, subject: Subject, text: Text, explain: Explain) -> Comparison:
    """The layers of the essential row, L0 first; then the other rows; then the essential row, their sum."""
    done, refused = _by_row(recipe, column, subject, text, explain)
    whole = done.pop(recipe.essential[0])
    if whole.layers is None:
        raise BadInput(f"{recipe.name} needs the scores of each layer, which {whole.method} does not give")
    layers = [replace(_called(f"L{n}", whole), scores=scores) for n, scores in enumerate(whole.layers)]
    others = [_called(label, explanation) for label, explanation in done.items()]
    return Comparison((*layers, *others, _called(recipe.essential[0], whole)), tuple(refused))


def _differences(recipe: Reproduction, column: Column, subject: Subject, text: Text, explain: Explain) -> Comparison:
    """The essential row's scores less those of each other row, both as shares of the sum of their sizes."""
    done, refused = _by_row(recipe, column, subject, text, explain)
    theirs = done.pop(recipe.essential[0])
    own = shares(theirs)
    found = [_less(theirs, own, label, other) for label, other in done.items()]
    return Comparison((_called(recipe.essential[0], theirs), *found), tuple(refused))


def _less(theirs: Explanation, own: Array, label: str, other: Explanation) -> Explanation:
    return replace(_called(f"less {label}", theirs), scores=own - shares(other), signed=True)


def shares(explanation: Explanation) -> Array:
    """Scores divided by the sum of their sizes over the units that are not special; those score 0."""
    counted = np.array([not unit.special for unit in explanation.units])
    scores = np.where(counted, explanation.scores, 0.0)
    total = np.abs(scores).sum()
    return scores / total if total > 0 else scores


def _called(label: str, explanation: Explanation) -> Explanation:
    """The same under a label of the paper."""
    return replace(explanation, method=label, options={}, layers=None)


def strongest(comparison: Comparison, count: int = 5) -> Iterator[tuple[str, str]]:
    """Of each row the strongest units with their scores."""
    for explanation in comparison:
        units = explanation.top(count, by="magnitude")
        yield explanation.method, ", ".join(f"{unit.text} {unit.score:+.3g}" for unit in units)
