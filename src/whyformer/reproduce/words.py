"""The words that two classes share among their highest, as the Decoded paper's Tables 3-9 list them."""

import json
import zlib
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from whyformer.metrics.overlap import word_totals
from whyformer.reproduce.recipe import Reproduction
from whyformer.reproduce.reproduced import Part, method_label, metric_label
from whyformer.table import Table


class Shared(NamedTuple):
    """The words that two classes have in common, those with the highest scores of both first."""

    row: str
    classes: tuple[str, str]
    words: tuple[str, ...]


def shared_words(recipe: Reproduction, part: Part) -> Iterator[Shared]:
    """For every row and pair of classes the shared words."""
    if part.table is None:
        return
    (measure,) = recipe.ready_measures
    for row in recipe.rows_of(part.column):
        for classes, words in _shared(part.table, method_label(row.method), metric_label(measure.metric)):
            yield Shared(row.label, classes, words)


def _shared(table: Table, method: str, metric: str) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    series = table.series.get((method, metric))
    if series is None or not series.details:
        return
    k = int(table.facts[metric]["options"]["k"])
    totals = word_totals([json.loads(zlib.decompress(detail)) for detail in series.details])
    tops = {index: sorted(own, key=lambda word: (-own[word], word))[:k] for index, own in totals.items()}
    names = table.run.get("about", {}).get("labels", [])
    for one, other in combinations(tops, 2):
        shared = set(tops[one]) & set(tops[other])
        places = {word: tops[one].index(word) + tops[other].index(word) for word in shared}
        ordered = sorted(shared, key=lambda word: (places[word], word))
        yield (_name(names, one), _name(names, other)), tuple(ordered)


def _name(names: list[str], index: int) -> str:
    return names[index] if index < len(names) else str(index)
