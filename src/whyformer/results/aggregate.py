"""From the records of a journal to a table of means, intervals, paired differences and attained shares."""

import json
import math
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from whyformer.errors import BadInput, BadOption
from whyformer.results.kept import KEPT
from whyformer.results.records import Chunk, Record
from whyformer.results.table import REFERENCES, CurvePoint, Pair, Series, TableData

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
        self._numbers: defaultdict[Pair, _Numbers] = defaultdict(_Numbers)
        self._kept: defaultdict[Pair, array[int]] = defaultdict(lambda: array("q"))  # rows whose scores are kept
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

    def rows(self) -> dict[Pair, frozenset[int]]:
        """Of each method and metric the rows that have a number; beside metrics stands what is kept, `KEPT`."""
        numbers = {pair: frozenset(numbers.rows) for pair, numbers in self._numbers.items()}
        return numbers | {pair: frozenset(rows) for pair, rows in self._kept.items()}

    def means(self) -> dict[Pair, float]:
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
