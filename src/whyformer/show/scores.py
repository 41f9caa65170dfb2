"""The scores of explanations as a table: a row for each unit, a column for each method."""

from typing import Any

from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.show.colours import written
from whyformer.show.grid import Grid, Words
from whyformer.show.layout import called


def scores_grid(result: ExplanationData | ComparisonData[Any]) -> Grid:
    """The units that are not special, in order, with their scores; the highest of each method stands out."""
    several: tuple[ExplanationData, ...] = (result,) if isinstance(result, ExplanationData) else result.explanations
    shown = [place for place, unit in enumerate(several[0].units) if not unit.special]
    highest = [explanation.ranked[:1] for explanation in several]
    rows = []
    for place in shown:
        scores = [(explanation, float(explanation.scores[place])) for explanation in several]
        cells = [
            Words(written(one, score), place in best, score) for (one, score), best in zip(scores, highest, strict=True)
        ]
        rows.append((Words(several[0].units[place].text), *cells))
    return Grid(("unit", *map(called, several)), rows)
