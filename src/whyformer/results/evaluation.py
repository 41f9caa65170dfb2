"""The numbers of an evaluation: records, and the table of means, intervals, paired differences and attained shares."""

import json
import math
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from statistics import NormalDist
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from whyformer.arrays import FloatArray
from whyformer.errors import BadInput, BadOption, WhyformerError, nearest, shown
from whyformer.metrics.metric import Metric, list_metrics, metric_named
from whyformer.registry.options import validated
from whyformer.results.explanations import KEPT

CEILING, CHANCE = REFERENCES = ("ceiling", "chance")  # rows to compare methods with, no methods
RESAMPLED_CORPORA = 200  # a metric of level `corpus` looks at all examples again for each
ENOUGH_ROWS = 0.9  # of the rows of the method that has most: with fewer, a method is not called the best
DRAWN_AT_ONCE = 1_000_000  # row numbers held in memory
SMALL = 30  # rows: with fewer, percentiles of resamples are too narrow, and intervals are by Student's t
TOO_FEW = 5  # rows: with fewer, no number is to be relied on
SAME = 1e-5  # of the size of the numbers: what two runs in float32 differ by, in other batches, is not a difference

RowNumbers = NDArray[np.int64]
Drawn = tuple[float, FloatArray]  # a mean, and what it is when rows are drawn again, or without each row: [resamples]
MethodMetric = tuple[str, str]  # the labels of a method and a metric


@dataclass(frozen=True)
class TableCell:
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


class CurvePoint(NamedTuple):
    """The mean of a curve at one point, its standard error, and how many rows have a number there."""

    mean: float
    error: float
    n: int


NO_POINT = CurvePoint(math.nan, math.nan, 0)


class Series(NamedTuple):
    """What one metric says of one method, in order of the rows: values, or packed details."""

    rows: RowNumbers
    values: FloatArray
    details: tuple[bytes, ...]
    left_out: int
    refused: Mapping[str, int]
    curve: Mapping[int, CurvePoint]  # at each point that has numbers


def resampled_means(columns: Sequence[FloatArray], resamples: int, seed: int) -> FloatArray:
    """The means of columns over rows drawn with replacement, the same for all: [columns, resamples]."""
    count = len(columns[0])
    means = []
    for draws in _draws(count, resamples, seed):
        places = draws + count * np.arange(len(draws))[:, None]
        times = np.bincount(places.ravel(), minlength=draws.size).reshape(draws.shape).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a row of infinite value that was not drawn
            means.append(np.stack([times @ column for column in columns]) / count)
    return np.concatenate(means, axis=1)


def _draws(count: int, resamples: int, seed: int) -> Iterator[RowNumbers]:
    random = np.random.default_rng(seed)
    block = max(1, DRAWN_AT_ONCE // count)
    for start in range(0, resamples, block):
        yield random.integers(count, size=(min(block, resamples - start), count))


def left_out_means(column: FloatArray) -> FloatArray:
    """The means of a column without each of its rows in turn."""
    if len(column) < 2:
        return np.empty(0)
    with np.errstate(invalid="ignore"):  # infinite values
        mean = np.mean(column)
        return mean + (mean - column) / (len(column) - 1)


def ranked(means: Mapping[str, float], higher_is_better: bool = True, rounding: float = 0.0) -> list[str]:
    """Names, the best mean first; those that differ by no more than rounding in the order in which they are given."""
    rest, order = list(means), []
    sign = 1 if higher_is_better else -1
    while rest:
        best = max(sign * means[name] for name in rest)
        order.append(next(name for name in rest if sign * means[name] == best or best - sign * means[name] <= rounding))
        rest.remove(order[-1])
    return order


def _percentiles(resampled: FloatArray, n: int) -> tuple[float, float]:
    """From the 2.5th to the 97.5th percentile of the resampled numbers that are finite; one row has no interval."""
    finite = resampled[np.isfinite(resampled)]
    low, high = np.quantile(finite, [0.025, 0.975]) if n > 1 and finite.size else (math.nan, math.nan)
    return float(low), float(high)


def _by_student(estimate: float, without: FloatArray, rounding: float) -> tuple[float, float]:
    """Student's t interval, from the estimates without each row in turn: of a mean it is the textbook's.

    Numbers without any spread say nothing of how far the next may lie: then there is no interval.
    """
    from scipy.special import stdtrit

    n = len(without)
    if n < 2 or not np.isfinite(without).all():
        return math.nan, math.nan
    error = math.sqrt((n - 1) / n * float(np.sum((without - without.mean()) ** 2)))
    half = float(stdtrit(n - 1, 0.975)) * error
    return (estimate - half, estimate + half) if error > rounding else (math.nan, math.nan)


def _around(point: CurvePoint, bounds: tuple[float, float]) -> tuple[float, float]:
    """Student's t interval of a mean, within what is possible; one row has none, nor have rows that are alike."""
    from scipy.special import stdtrit

    if not point.error > SAME * abs(point.mean) or not math.isfinite(point.error):
        return math.nan, math.nan
    half = float(stdtrit(point.n - 1, 0.975)) * point.error
    return max(bounds[0], point.mean - half), min(bounds[1], point.mean + half)


def _by_wilson(ones: float, n: int) -> tuple[float, float]:
    """Wilson's interval of a share of ones: there is one also where all are alike."""
    square = NormalDist().inv_cdf(0.975) ** 2 / n
    centre, half = ones + square / 2, math.sqrt(square * (ones * (1 - ones) + square / 4))
    return max(0.0, (centre - half) / (1 + square)), min(1.0, (centre + half) / (1 + square))


@dataclass(frozen=True, eq=False)
class TableData:
    """What a `Table` is made of, which says what the fields mean, and what is computed from it."""

    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    facts: Mapping[str, Mapping[str, Any]]
    right: Mapping[int, bool | None]
    skipped: Mapping[int, str]
    dropped: int  # examples that were cut at the model's window
    run: Mapping[str, Any]
    resamples: int
    seed: int
    series: Mapping[MethodMetric, Series] = field(repr=False)
    _known: dict[bytes, dict[MethodMetric, Drawn]] = field(default_factory=dict, repr=False)
    _sizes: dict[str, float] = field(default_factory=dict, repr=False)

    def __getitem__(self, pair: MethodMetric) -> TableCell | None:
        """The cell of a method and a metric; None if they were not measured together."""
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise BadOption(f"a cell has a method and a metric, as in table['attcat', 'aopc']; found {pair!r}")
        method, metric = pair
        series = self._series(method, metric)
        n, ((mean, drawn),) = self._sample(metric, method)
        if series is None:
            return None
        shares = n < SMALL and self._is_share(metric) and series.values.size and np.isin(series.values, (0, 1)).all()
        low, high = _by_wilson(mean, n) if shares else self._interval(metric, mean, drawn, n)
        low, high = self._within_bounds(metric, low, high)
        return TableCell(mean, low, high, n, series.left_out, sum(series.refused.values()))

    @validated
    def compare(self, metric: str, first: str, second: str) -> Difference | None:
        """By how much the first method's mean is above the second's; None if no row has both.

        What is not more than rounding is 0.
        """
        n, ((one, ones), (other, others)) = self._sample(metric, first, second)
        if not n:
            return None
        rounding = self._rounding(metric)
        with np.errstate(invalid="ignore"):
            mean, apart = one - other, ones - others
            low, high = self._interval(metric, mean, apart, n)
            if n > 1 and np.all(np.abs(apart) <= rounding):  # no row tells them apart
                mean = low = high = 0.0
        mean, low, high = (0.0 if abs(number) <= rounding else number for number in (mean, low, high))
        return Difference(mean, low, high, n)

    @validated
    def share(self, method: str, metric: str) -> TableCell | None:
        """Which share of the attainable a method reaches: (method - chance) / (ceiling - chance), not clipped."""
        _ = self._series(method, metric)
        if method in REFERENCES or not set(REFERENCES) <= set(self.methods):
            return None
        n, ((mean, means), (best, bests), (chance, chances)) = self._sample(metric, method, CEILING, CHANCE)
        rounding = self._rounding(metric)
        if not n or abs(best - chance) <= rounding:
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            room = np.where(np.abs(bests - chances) <= rounding, math.nan, bests - chances)
            share = (mean - chance) / (best - chance)
            return TableCell(share, *self._interval(metric, share, (means - chances) / room, n), n)

    @validated
    def best(self, metric: str, among: Collection[str] | None = None) -> str | None:
        """The method with the best mean over the rows that all candidates have; references are none.

        Of several that differ by rounding alone it is the first. A method that has far fewer rows than another is no
        candidate: they may be the easy ones.
        """
        names = [m for m in self.methods if m not in REFERENCES and (among is None or m in among)]
        cells = {method: cell for method in names if (cell := self[method, metric]) and not math.isnan(cell.mean)}
        most = max((cell.n for cell in cells.values()), default=0)
        candidates = [method for method, cell in cells.items() if cell.n >= ENOUGH_ROWS * most]
        count, samples = self._sample(metric, *candidates) if candidates else (0, [])
        means = [mean for mean, _ in samples] if count else [cells[method].mean for method in candidates]
        order = self.ranked(metric, dict(zip(candidates, means, strict=True)))
        return order[0] if order else None

    def ranked(self, metric: str, means: Mapping[str, float]) -> list[str]:
        """Methods by their means, the best first; those that differ by rounding alone in the order of the table."""
        higher = self.facts.get(metric, {}).get("higher_is_better", True)
        return ranked(means, higher, self._rounding(metric))

    @validated
    def tied(self, metric: str, among: Collection[str] | None = None) -> tuple[str, ...]:
        """The methods that cannot be told from the best, or are better, on the rows that both have.

        The interval of the paired difference includes 0, or lies on the better side of it.
        """
        best = self.best(metric, among)
        sign = 1 if self.facts.get(metric, {}).get("higher_is_better", True) else -1
        names = [m for m in self.methods if m not in (best, *REFERENCES) and (among is None or m in among)]
        gaps = {method: self.compare(metric, method, best) for method in names} if best else {}
        return tuple(method for method, d in gaps.items() if d and not (d.high < 0 if sign > 0 else d.low > 0))

    @validated
    def curve(self, method: str, metric: str) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Where the curve of a metric is taken, and the mean over the examples at each point."""
        cells = self.curve_cells(method, metric)
        return (tuple(at for at, _ in cells), tuple(cell.mean for _, cell in cells)) if cells else None

    @validated
    def curve_cells(self, method: str, metric: str) -> list[tuple[float, TableCell]]:
        """Where the curve of a metric is taken, and the mean there with its 95 % interval; empty without a curve.

        Intervals are by Student's t, however many rows there are: of a curve the single numbers are not kept.
        """
        series = self._series(method, metric)
        if series is None or not series.curve:
            return []
        bounds = (0.0, 1.0) if self._is_share(metric) else (-math.inf, math.inf)
        points = [(at, series.curve.get(number, NO_POINT)) for number, at in enumerate(self.facts[metric]["at"])]
        return [(at, TableCell(point.mean, *_around(point, bounds), point.n)) for at, point in points]

    def _series(self, method: str, metric: str) -> Series | None:
        for label, known, kind in ((method, self.methods, "method"), (metric, self.metrics, "metric")):
            if not isinstance(label, str) or label not in known:
                raise BadOption(f"there is no {kind} {shown(label)} in this table; {nearest(str(label), known)}")
        return self.series.get((method, metric))

    def _sample(self, metric: str, *methods: str) -> tuple[int, list[Drawn]]:
        """Of the rows that all these methods have: how many, and the mean of each method over them, drawn again."""
        several = [self._series(method, metric) for method in methods]
        rows = reduce(np.intersect1d, [np.empty(0, np.int64) if series is None else series.rows for series in several])
        nothing = (math.nan, np.empty(0))
        return len(rows), [self._drawn((method, metric), rows) if len(rows) else nothing for method in methods]

    def _drawn(self, pair: MethodMetric, rows: RowNumbers) -> Drawn:
        """The mean over some rows, and what it is when they are resampled; all that have these rows at once."""
        known = self._known.setdefault(rows.tobytes(), {})
        if pair not in known and self.series[pair].details:
            known[pair] = self._corpus(pair, rows)
        elif pair not in known:
            having = {p: s for p, s in self.series.items() if not s.details and np.isin(rows, s.rows).all()}
            columns = [s.values[np.searchsorted(s.rows, rows)] for s in having.values()]
            with np.errstate(over="ignore"):
                few = len(rows) < SMALL
                drawn: Iterable[FloatArray]
                drawn = map(left_out_means, columns) if few else resampled_means(columns, self.resamples, self.seed)
                columns_drawn = zip(having, columns, drawn, strict=True)
                known |= {pair: (float(np.mean(column)), resampled) for pair, column, resampled in columns_drawn}
        return known[pair]

    def _interval(self, metric: str, estimate: float, drawn: FloatArray, n: int) -> tuple[float, float]:
        """The 95 % interval of a number: by what it is without each row, or when rows are drawn again."""
        if not self.is_resampled(metric):
            return math.nan, math.nan
        if n < SMALL and self.facts.get(metric, {}).get("level") != "corpus":
            return _by_student(estimate, drawn, self._rounding(metric))
        return _percentiles(drawn, n)

    def _within_bounds(self, metric: str, low: float, high: float) -> tuple[float, float]:
        """An interval of a number, within the bounds that its metric declares. NaN stays NaN."""
        registered = self._registered(metric)
        least, most = (-math.inf, math.inf) if registered is None else registered.bounds
        return max(low, least) if low == low else low, min(high, most) if high == high else high

    def is_resampled(self, metric: str) -> bool:
        """Whether a metric has an interval that is found by drawing rows again."""
        registered = self._registered(metric)
        return registered is None or registered.resampled

    def _registered(self, metric: str) -> Metric | None:
        """The metric as it is registered, if it is."""
        name = self.facts.get(metric, {}).get("name")
        return metric_named(name) if name in list_metrics() else None

    def _is_share(self, metric: str) -> bool:
        """Whether the numbers of a metric are known to lie in 0 … 1."""
        registered = self._registered(metric)
        return registered is not None and registered.bounds == (0, 1)

    def _rounding(self, metric: str) -> float:
        """Differences of means that are not larger come from rounding."""
        if metric not in self._sizes:
            of_metric = [series.values for (_, label), series in self.series.items() if label == metric]
            values = np.abs(np.concatenate([*of_metric, np.empty(0)]))
            values = values[np.isfinite(values)]
            self._sizes[metric] = SAME * (float(np.mean(values)) if values.size else 1.0)
        return self._sizes[metric]

    def _corpus(self, pair: MethodMetric, rows: RowNumbers) -> Drawn:
        facts, series = self.facts[pair[1]], self.series[pair]
        details = [json.loads(zlib.decompress(series.details[n])) for n in np.searchsorted(series.rows, rows)]
        of, options = metric_named(facts["name"]), facts["options"]
        blocks = _draws(len(rows), min(self.resamples, RESAMPLED_CORPORA), self.seed)
        try:
            drawn = [of.reduced([details[place] for place in draw], **options) for block in blocks for draw in block]
            return of.reduced(details, **options), np.array(drawn, dtype=np.float64)
        except WhyformerError:
            raise
        except Exception as error:  # a metric may be anybody's, and so may the journal that its records come from
            reason = f"{type(error).__name__}: {error}"
            raise BadInput(f"{pair[1]} has no number from its records of {pair[0]} ({reason})") from error


@dataclass(frozen=True)
class Record:
    """One number: what a metric found in a method's explanation of one example.

    `key` is a hash of everything that determines the number. `value` is None where the example is left out; `refused`
    says why the method could not explain it. `curve` has the numbers that were averaged. `detail` is what a metric of
    level `corpus` has to say of the example; of scores that are kept, whose `metric` is `kept.KEPT`, it holds these.
    """

    key: str
    row: int
    method: str
    metric: str
    value: float | None
    curve: tuple[float | None, ...] = ()
    detail: Any = None
    refused: str | None = None


@dataclass(frozen=True)
class Chunk:
    """The records of a fixed set of rows, from `start` to before `stop`, which are journalled together or not at all.

    `metrics` says of each metric, by label, its `name`, all its `options`, `higher_is_better`, `level`, and `at`: where
    its curve is taken. `examples` says of each row what the model said. `skipped` says of each row left out why.
    """

    start: int
    stop: int
    records: tuple[Record, ...]
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    examples: tuple[Mapping[str, Any], ...] = ()  # row, units, gold, predicted, probability, kept
    skipped: Mapping[int, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)  # what the perturbation engine did


T = TypeVar("T", bound=TableData)
DESCRIBED = {"name", "options", "level"}  # what must be known of a metric that has a number
WAITING = 64  # curves of each method and metric held in memory


class Aggregate:
    """What the records say, as they come in: few bytes for each. `run` has facts for the footer (model, data)."""

    def __init__(self, run: Mapping[str, Any] | None = None):
        self.run = dict(run or {})
        self.facts: dict[str, dict[str, Any]] = {}  # of each metric
        self.skipped: dict[int, str] = {}
        self.dropped: set[int] = set()  # examples that were cut at the model's window
        self.right: dict[int, bool | None] = {}  # of each example; None: there is no gold label
        self._numbers: defaultdict[MethodMetric, _Numbers] = defaultdict(_Numbers)
        self._kept: defaultdict[MethodMetric, array[int]] = defaultdict(
            lambda: array("q")
        )  # rows whose scores are kept
        self._methods: dict[str, tuple[int, int, int]] = {}  # where a label stands first
        self._metrics: dict[str, tuple[int, int, int]] = {}

    @classmethod
    def of(cls, chunks: Iterable[Chunk], run: Mapping[str, Any] | None = None) -> Self:
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
        measured = [record for record in chunk.records if record.metric != KEPT]
        for number, record in enumerate(measured):
            place = (chunk.start, -len(measured), number)  # what was added later comes in smaller chunks
            self._methods[record.method] = min(place, self._methods.get(record.method, place))
            self._metrics[record.metric] = min(place, self._metrics.get(record.metric, place))
            self._numbers[record.method, record.metric].add(record, self.facts.get(record.metric, {}))
        for record in chunk.records:
            if record.metric == KEPT and record.refused is None:
                self._kept[record.method, KEPT].append(record.row)
        self.skipped |= {int(row): reason for row, reason in chunk.skipped.items()}
        for example in chunk.examples:
            gold, predicted = example.get("gold"), example.get("predicted")
            if example.get("dropped"):
                self.dropped.add(example["row"])
            self.right[example["row"]] = None if gold is None or predicted is None else gold == predicted

    def rows(self) -> dict[MethodMetric, frozenset[int]]:
        """Of each method and metric the rows that have a number; beside metrics stands what is kept, `KEPT`."""
        numbers = {pair: frozenset(numbers.rows) for pair, numbers in self._numbers.items()}
        return numbers | {pair: frozenset(rows) for pair, rows in self._kept.items()}

    def means(self) -> dict[MethodMetric, float]:
        """The means so far, for a live view; metrics of level `corpus` have theirs in the table only."""
        return {pair: float(np.mean(numbers.values)) for pair, numbers in self._numbers.items() if numbers.values}

    def tabulated(self, make: Callable[..., T], resamples: int, seed: int) -> T:
        """The table that `make` makes of its parts; the order in which the chunks came does not matter."""
        if resamples < 1:
            raise BadOption(f"an interval needs at least one resample; found resamples={resamples}")
        if not self._numbers:
            data = self.run.get("about", {}).get("data")
            counted = f"no record found, {len(self.skipped)} rows skipped"
            why = "".join(f"; row {row}: {reason}" for row, reason in sorted(self.skipped.items())[:1])
            raise BadInput(f"there is no example to tabulate{f' in {data}' if data else ''}: {counted}{why}")
        methods = sorted(self._methods, key=lambda name: (name in REFERENCES, self._methods[name], name))
        metrics = sorted(self._metrics, key=lambda name: (self._metrics[name], name))
        measured = {row for numbers in self._numbers.values() for row in numbers.rows}
        skipped = {row: self.skipped[row] for row in sorted(self.skipped.keys() - measured)}
        right = {row: self.right[row] for row in sorted(self.right.keys() - skipped.keys())}
        dropped = len(self.dropped & right.keys())
        series = {pair: self._numbers[pair].series(*pair) for pair in sorted(self._numbers)}
        about = (self.facts.copy(), right, skipped, dropped, self.run.copy(), resamples, seed)
        return make(tuple(methods), tuple(metrics), *about, series)


class _Numbers:
    """What one metric says of one method, as it comes in."""

    def __init__(self) -> None:
        self.rows, self.values = array("q"), array("d")
        self.details: list[bytes] = []  # in place of values, for a metric of level `corpus`
        self.left_out = 0
        self.refused: Counter[str] = Counter()
        self.waiting: list[Sequence[float | None]] = []  # curves
        self.sums: defaultdict[int, list[float]] = defaultdict(list)  # of the points of earlier curves, in parts
        self.squares: defaultdict[int, list[float]] = defaultdict(list)  # of the same points, likewise
        self.counts: Counter[int] = Counter()

    def add(self, record: Record, facts: Mapping[str, Any]) -> None:
        corpus = facts.get("level") == "corpus" if facts else record.detail is not None
        outcome = record.detail if corpus else record.value
        if record.refused is not None:
            self.refused[record.refused] += 1
        elif outcome is None or outcome != outcome:
            self.left_out += 1
        elif len(record.curve) not in (0, len(facts.get("at", ()))) or not facts.keys() >= DESCRIBED:
            raise BadInput(f"row {record.row} has a number by {record.metric} that is not as described: {dict(facts)}")
        else:
            self.rows.append(record.row)
            if corpus:
                self.details.append(zlib.compress(json.dumps(outcome).encode(), 1))
            else:
                self.values.append(outcome)
            self.waiting += [record.curve] if record.curve else []
            if len(self.waiting) >= WAITING:
                self._settle()

    def _settle(self) -> None:
        for point, values in enumerate(zip(*self.waiting, strict=True)):
            known = [value for value in values if value is not None and value == value]
            self.sums[point] = _exact([*self.sums[point], *known])
            self.squares[point] = _exact([*self.squares[point], *(value * value for value in known)])
            self.counts[point] += len(known)
        self.waiting.clear()

    def series(self, method: str, metric: str) -> Series:
        rows = np.array(self.rows, np.int64)
        order = np.argsort(rows, kind="stable")
        if (twice := rows[order][:-1][np.diff(rows[order]) == 0]).size:
            raise BadInput(f"row {twice[0]} has two numbers of {method} by {metric}: use a folder for each")
        details = tuple(self.details[place] for place in order) if self.details else ()
        values = np.array(self.values, np.float64)[order] if not details else np.empty(0)
        self._settle()
        curve = {point: self._point(point, count) for point, count in self.counts.items() if count}
        return Series(rows[order], values, details, self.left_out, dict(sorted(self.refused.items())), curve)

    def _point(self, point: int, count: int) -> CurvePoint:
        """The mean at one point, and its standard error."""
        mean, square = (math.fsum(sums[point]) / count for sums in (self.sums, self.squares))
        apart = square - mean * mean  # below 0 by rounding, where all are alike
        return CurvePoint(mean, math.sqrt(max(0.0, apart) / (count - 1)) if count > 1 else math.nan, count)


def _exact(values: list[float]) -> list[float]:
    """Few numbers with the same sum, to the last bit: so the order in which curves come does not matter."""
    if not all(map(math.isfinite, values)):
        return [sum(value for value in values if not math.isfinite(value))]
    parts: list[float] = []
    while rest := math.fsum([*values, *(-part for part in parts)]):
        parts.append(rest)
    return parts
