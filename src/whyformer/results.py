"""Results: from the records of a journal to a table of means, intervals, paired differences and attained shares."""

import json
import math
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whyformer.errors import BadInput, BadOption, nearest
from whyformer.records import Chunk, Record
from whyformer.registry import metric_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CEILING, CHANCE = REFERENCES = ("ceiling", "chance")  # rows to compare methods with, no methods
RESAMPLED_CORPORA = 200  # a metric of level `corpus` looks at all examples again for each
DRAWN_AT_ONCE = 1_000_000  # row numbers held in memory
WAITING = 64  # curves of each method and metric held in memory

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


class Results:
    """What the records say, as they come in: few bytes for each. `run` has facts for the footer (model, data)."""

    def __init__(self, run: Mapping[str, Any] | None = None):
        self.run = dict(run or {})
        self.facts: dict[str, dict[str, Any]] = {}  # of each metric
        self.skipped: dict[int, str] = {}
        self.right: dict[int, bool | None] = {}  # of each example; None: there is no gold label
        self._numbers: defaultdict[Pair, _Numbers] = defaultdict(_Numbers)
        self._methods: dict[str, tuple[int, int, int]] = {}  # where a label stands first
        self._metrics: dict[str, tuple[int, int, int]] = {}

    @classmethod
    def of(cls, chunks: Iterable[Chunk], run: Mapping[str, Any] | None = None) -> "Results":
        """The results of several chunks, in any order."""
        results = cls(run)
        for chunk in chunks:
            results.add(chunk)
        return results

    def add(self, chunk: Chunk) -> None:
        """Take in the records of a chunk."""
        for label, facts in chunk.metrics.items():
            new = {**facts, "at": tuple(facts.get("at") or ())}
            old = self.facts.setdefault(label, new)
            if {**old, "at": ()} != {**new, "at": ()}:
                raise BadInput(f"{label} was measured in two ways, {old} and {new}: use a folder for each")
            old["at"] = old["at"] or new["at"]  # there is none where all was refused
        for number, record in enumerate(chunk.records):
            place = (chunk.start, -len(chunk.records), number)  # what was added later comes in smaller chunks
            self._methods[record.method] = min(place, self._methods.get(record.method, place))
            self._metrics[record.metric] = min(place, self._metrics.get(record.metric, place))
            self._numbers[record.method, record.metric].add(record, self.facts.get(record.metric, {}))
        self.skipped |= {int(row): reason for row, reason in chunk.skipped.items()}
        for example in chunk.examples:
            gold, predicted = example.get("gold"), example.get("predicted")
            self.right[example["row"]] = None if gold is None or predicted is None else gold == predicted

    def means(self) -> dict[Pair, float]:
        """The means so far, for a live view; metrics of level `corpus` have theirs in the table only."""
        return {pair: float(np.mean(numbers.values)) for pair, numbers in self._numbers.items() if numbers.values}

    def table(self, resamples: int = 1000, seed: int = 0) -> "Table":
        """The table; the order in which the chunks came does not matter."""
        if resamples < 1:
            raise BadOption(f"an interval needs at least one resample; found resamples={resamples}")
        if not self._numbers:
            why = "".join(f"; row {row}: {reason}" for row, reason in sorted(self.skipped.items())[:1])
            raise BadInput(f"there is no example to tabulate: no record found, {len(self.skipped)} rows skipped{why}")
        methods = sorted(self._methods, key=lambda name: (name in REFERENCES, self._methods[name], name))
        metrics = sorted(self._metrics, key=lambda name: (self._metrics[name], name))
        right = {row: self.right[row] for row in sorted(self.right.keys() - self.skipped.keys())}
        series = {pair: self._numbers[pair].series(*pair) for pair in sorted(self._numbers)}
        about = (self.facts.copy(), right, self.skipped.copy(), self.run.copy(), resamples, seed)
        return Table(tuple(methods), tuple(metrics), *about, series)


class _Numbers:
    """What one metric says of one method, as it comes in."""

    def __init__(self) -> None:
        self.rows, self.values = array("q"), array("d")
        self.details: list[bytes] = []  # in place of values, for a metric of level `corpus`
        self.left_out = 0
        self.refused: Counter[str] = Counter()
        self.waiting: list[Sequence[float | None]] = []  # curves
        self.sums: defaultdict[int, list[float]] = defaultdict(list)  # of the points of earlier curves, in parts
        self.counts: Counter[int] = Counter()

    def add(self, record: Record, facts: Mapping[str, Any]) -> None:
        corpus = facts["level"] == "corpus" if facts else record.detail is not None
        found = record.detail if corpus else record.value
        if record.refused is not None:
            self.refused[record.refused] += 1
        elif found is None or found != found:
            self.left_out += 1
        elif len(record.curve) not in (0, len(facts.get("at", ()))) or not facts:
            raise BadInput(f"row {record.row} has a number by {record.metric} that is not as described: {dict(facts)}")
        else:
            self.rows.append(record.row)
            if corpus:
                self.details.append(zlib.compress(json.dumps(found).encode(), 1))
            else:
                self.values.append(found)
            self.waiting += [record.curve] if record.curve else []
            if len(self.waiting) >= WAITING:
                self._settle()

    def _settle(self) -> None:
        for point, values in enumerate(zip(*self.waiting, strict=True)):
            known = [value for value in values if value is not None and value == value]
            self.sums[point] = _exact([*self.sums[point], *known])
            self.counts[point] += len(known)
        self.waiting.clear()

    def series(self, method: str, metric: str) -> "Series":
        rows = np.array(self.rows, np.int64)
        order = np.argsort(rows, kind="stable")
        if (twice := rows[order][:-1][np.diff(rows[order]) == 0]).size:
            raise BadInput(f"row {twice[0]} has two numbers of {method} by {metric}: use a folder for each")
        details = tuple(self.details[place] for place in order) if self.details else ()
        values = np.array(self.values, np.float64)[order] if not details else np.empty(0)
        self._settle()
        curve = {point: math.fsum(self.sums[point]) / count for point, count in self.counts.items() if count}
        return Series(rows[order], values, details, self.left_out, dict(sorted(self.refused.items())), curve)


def _exact(values: list[float]) -> list[float]:
    """Few numbers with the same sum, to the last bit: so the order in which curves come does not matter."""
    if not all(map(math.isfinite, values)):
        return [sum(value for value in values if not math.isfinite(value))]
    found: list[float] = []
    while rest := math.fsum([*values, *(-part for part in found)]):
        found.append(rest)
    return found


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

    def best(self, metric: str) -> str | None:
        """The method with the best mean; references are none."""
        sign = 1 if self.facts.get(metric, {}).get("higher_is_better", True) else -1
        cells = {method: self[method, metric] for method in self.methods if method not in REFERENCES}
        means = {method: sign * cell.mean for method, cell in cells.items() if cell and not math.isnan(cell.mean)}
        return max(means, key=lambda method: means[method], default=None)

    def tied(self, metric: str) -> tuple[str, ...]:
        """The methods that cannot be told from the best: the interval of the paired difference includes 0."""
        best = self.best(metric)
        others = [method for method in self.methods if method not in (best, *REFERENCES)]
        found = {method: self.compare(metric, method, best) for method in others} if best else {}
        return tuple(method for method, d in found.items() if d and not (d.low > 0 or d.high < 0))

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
