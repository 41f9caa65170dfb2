"""Table: means with intervals, paired differences and attained shares, of methods by metrics."""

import json
import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whyformer.errors import BadOption, nearest
from whyformer.registry import metric_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CEILING, CHANCE = REFERENCES = ("ceiling", "chance")  # rows to compare methods with, no methods
RESAMPLED_CORPORA = 200  # a metric of level `corpus` looks at all examples again for each
ENOUGH_ROWS = 0.9  # of the rows of the method that has most: with fewer, a method is not called the best
DRAWN_AT_ONCE = 1_000_000  # row numbers held in memory

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Drawn = tuple[float, Floats]  # a mean, and what it is when rows are drawn again: [resamples]
Pair = tuple[str, str]  # the labels of a method and a metric


@dataclass(frozen=True)
class Cell:
    """A mean over `n` rows and its 95 % interval; NaN where there is none. The other rows were left out or refused."""

    mean: float
    low: float
    high: float
    n: int
    left_out: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Difference:
    """The mean of the first method less that of the second, over the `n` rows that both have, and its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int


class Series(NamedTuple):
    """What one metric says of one method, in order of the rows: values, or packed details."""

    rows: Rows
    values: Floats
    details: tuple[bytes, ...]
    left_out: int
    refused: Mapping[str, int]
    curve: Mapping[int, float]  # the mean at each point that has one


def resampled_means(columns: Sequence[Floats], resamples: int, seed: int) -> Floats:
    """The means of columns over rows drawn with replacement, the same for all: [columns, resamples]."""
    count = len(columns[0])
    found = []
    for draws in _draws(count, resamples, seed):
        places = draws + count * np.arange(len(draws))[:, None]
        times = np.bincount(places.ravel(), minlength=draws.size).reshape(draws.shape).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a row of infinite value that was not drawn
            found.append(np.stack([times @ column for column in columns]) / count)
    return np.concatenate(found, axis=1)


def _draws(count: int, resamples: int, seed: int) -> Iterator[Rows]:
    random = np.random.default_rng(seed)
    block = max(1, DRAWN_AT_ONCE // count)
    for start in range(0, resamples, block):
        yield random.integers(count, size=(min(block, resamples - start), count))


def _interval(resampled: Floats, n: int) -> tuple[float, float]:
    """From the 2.5th to the 97.5th percentile of the resampled numbers that are finite; one row has no interval."""
    finite = resampled[np.isfinite(resampled)]
    low, high = np.quantile(finite, [0.025, 0.975]) if n > 1 and finite.size else (math.nan, math.nan)
    return float(low), float(high)


@dataclass(frozen=True, eq=False)
class Table:
    """Methods by metrics: means with intervals that come from drawing rows with replacement.

    The reference rows `ceiling` and `chance` come last. `right` says of each example whether the model is, `skipped` of
    each row left out why. A difference or a share is over the rows that all its parts have, drawn together.
    """

    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    facts: Mapping[str, Mapping[str, Any]]
    right: Mapping[int, bool | None]
    skipped: Mapping[int, str]
    dropped: int  # examples that were cut at the model's window
    run: Mapping[str, Any]
    resamples: int
    seed: int
    series: Mapping[Pair, Series] = field(repr=False)
    _known: dict[bytes, dict[Pair, Drawn]] = field(default_factory=dict, repr=False)

    def __getitem__(self, pair: Pair) -> Cell | None:
        """The cell of a method and a metric; None if they were not measured together."""
        found = self._series(*pair)
        n, ((mean, drawn),) = self._sample(pair[1], pair[0])
        return Cell(mean, *_interval(drawn, n), n, found.left_out, sum(found.refused.values())) if found else None

    def compare(self, metric: str, first: str, second: str) -> Difference | None:
        """By how much the first method's mean is above the second's; None if no row has both."""
        n, ((one, ones), (other, others)) = self._sample(metric, first, second)
        with np.errstate(invalid="ignore"):
            return Difference(one - other, *_interval(ones - others, n), n) if n else None

    def share(self, method: str, metric: str) -> Cell | None:
        """Which share of the attainable a method reaches: (method - chance) / (ceiling - chance), not clipped."""
        if method in REFERENCES or not set(REFERENCES) <= set(self.methods):
            return None
        n, ((mean, means), (best, bests), (chance, chances)) = self._sample(metric, method, CEILING, CHANCE)
        with np.errstate(invalid="ignore", divide="ignore"):
            low, high = _interval((means - chances) / (bests - chances), n)
        return Cell((mean - chance) / (best - chance), low, high, n) if n and best != chance else None

    def best(self, metric: str, among: Collection[str] | None = None) -> str | None:
        """The method with the best mean over the rows that all candidates have; references are none.

        A method that has far fewer rows than another is no candidate: they may be the easy ones.
        """
        sign = 1 if self.facts.get(metric, {}).get("higher_is_better", True) else -1
        names = [m for m in self.methods if m not in REFERENCES and (among is None or m in among)]
        cells = {method: cell for method in names if (cell := self[method, metric]) and not math.isnan(cell.mean)}
        most = max((cell.n for cell in cells.values()), default=0)
        candidates = [method for method, cell in cells.items() if cell.n >= ENOUGH_ROWS * most]
        count, found = self._sample(metric, *candidates) if candidates else (0, [])
        means = [mean for mean, _ in found] if count else [cells[method].mean for method in candidates]
        return max(zip(candidates, means, strict=True), key=lambda one: sign * one[1], default=(None, 0.0))[0]

    def tied(self, metric: str, among: Collection[str] | None = None) -> tuple[str, ...]:
        """The methods that cannot be told from the best, or are better, on the rows that both have.

        The interval of the paired difference includes 0, or lies on the better side of it.
        """
        best = self.best(metric, among)
        sign = 1 if self.facts.get(metric, {}).get("higher_is_better", True) else -1
        names = [m for m in self.methods if m not in (best, *REFERENCES) and (among is None or m in among)]
        found = {method: self.compare(metric, method, best) for method in names} if best else {}
        return tuple(method for method, d in found.items() if d and not (d.high < 0 if sign > 0 else d.low > 0))

    def curve(self, method: str, metric: str) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Where the curve of a metric is taken, and the mean over the examples at each point."""
        found = self._series(method, metric)
        at = self.facts[metric]["at"] if found and found.curve else ()
        return (at, tuple(found.curve.get(point, math.nan) for point in range(len(at)))) if found and at else None

    @property
    def footer(self) -> list[str]:
        """What a reader must know beside the numbers, in sentences."""
        from whyformer.show.tables import footer

        return footer(self)

    def to_markdown(self) -> str:
        """The table, the paired differences to the best, and the footer, as Markdown."""
        from whyformer.show.tables import as_markdown

        return as_markdown(self)

    def to_csv(self) -> str:
        """One line for each method and metric, with every digit."""
        from whyformer.show.tables import as_csv

        return as_csv(self)

    def to_latex(self) -> str:
        """A tabular for the package booktabs."""
        from whyformer.show.tables import as_latex

        return as_latex(self)

    def figure(self, metric: str) -> "Figure":
        """A matplotlib figure: the mean curve of every method."""
        from whyformer.show.curves import figure

        return figure(self, metric)

    def save(self, folder: str | Path) -> list[Path]:
        """Write table.md, table.csv, table.tex, and a picture of the curves of each metric that has some."""
        from whyformer.show.curves import save

        return save(self, folder)

    def _repr_html_(self) -> str:
        from whyformer.show.tables import as_html

        return as_html(self)

    def __str__(self) -> str:
        from whyformer.show.tables import as_text

        return as_text(self)

    def _series(self, method: str, metric: str) -> Series | None:
        for label, known, kind in ((method, self.methods, "method"), (metric, self.metrics, "metric")):
            if label not in known:
                raise BadOption(f"there is no {kind} {label!r} in this table; {nearest(label, known)}")
        return self.series.get((method, metric))

    def _sample(self, metric: str, *methods: str) -> tuple[int, list[Drawn]]:
        """Of the rows that all these methods have: how many, and what is found for each method."""
        found = [self._series(method, metric) for method in methods]
        rows = reduce(np.intersect1d, [np.empty(0, np.int64) if series is None else series.rows for series in found])
        nothing = (math.nan, np.empty(0))
        return len(rows), [self._drawn((method, metric), rows) if len(rows) else nothing for method in methods]

    def _drawn(self, pair: Pair, rows: Rows) -> Drawn:
        """The mean over some rows, and what it is when they are resampled; all that have these rows at once."""
        known = self._known.setdefault(rows.tobytes(), {})
        if pair not in known and self.series[pair].details:
            known[pair] = self._corpus(pair, rows)
        elif pair not in known:
            having = {p: s for p, s in self.series.items() if not s.details and np.isin(rows, s.rows).all()}
            columns = [s.values[np.searchsorted(s.rows, rows)] for s in having.values()]
            found = zip(having, columns, resampled_means(columns, self.resamples, self.seed), strict=True)
            known |= {pair: (float(np.mean(column)), drawn) for pair, column, drawn in found}
        return known[pair]

    def _corpus(self, pair: Pair, rows: Rows) -> Drawn:
        facts, series = self.facts[pair[1]], self.series[pair]
        details = [json.loads(zlib.decompress(series.details[n])) for n in np.searchsorted(series.rows, rows)]
        of, options = metric_named(facts["name"]), facts["options"]
        blocks = _draws(len(rows), min(self.resamples, RESAMPLED_CORPORA), self.seed)
        drawn = [of.reduced([details[place] for place in draw], **options) for block in blocks for draw in block]
        return of.reduced(details, **options), np.array(drawn)
