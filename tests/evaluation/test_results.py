"""From records to a table: hand-made numbers, literal loops, and what people and programs read of it."""

import csv
import io
import itertools
import math
import random
import re
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import whyformer.metrics
import whyformer.results.evaluation
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import Results, Table
from whyformer.evaluation.journal import Journal
from whyformer.results.evaluation import Chunk, Difference, Record, TableCell, resampled_means
from whyformer.show.curves import verdicts
from whyformer.show.tables import live

AT = [0.0, 0.5, 1.0]
FACTS: dict[str, dict[str, Any]] = {
    "aopc": {"name": "aopc", "options": {}, "higher_is_better": True, "level": "example", "at": AT},
    "log_odds": {"name": "log_odds", "options": {}, "higher_is_better": False, "level": "example", "at": []},
    "precision_at_k(measure=ratio)": {
        "name": "precision_at_k",
        "options": {"k": [2, 4], "measure": "ratio"},
        "higher_is_better": True,
        "level": "corpus",
        "at": [2.0, 4.0],
    },
    "token_overlap(k=2)": {"name": "token_overlap", "options": {"k": 2}, "higher_is_better": False, "level": "corpus"},
}
RATIO, OVERLAP = "precision_at_k(measure=ratio)", "token_overlap(k=2)"
Values = dict[str, Sequence[float | None]]


def record(row: int, method: str, value: float | None, metric: str = "aopc", **more: Any) -> Record:
    return Record(f"{method}/{metric}/{row}", row, method, metric, value, **more)


def chunk(*records: Record, start: int = 0, metrics: Any = FACTS, **more: Any) -> Chunk:
    return Chunk(start, start + 1000, records, metrics, **more)


def results(values: Values, metric: str = "aopc") -> Results:
    """One value for each method and row."""
    return Results.of([chunk(*(record(row, m, v, metric) for m, own in values.items() for row, v in enumerate(own)))])


def table(values: Values, metric: str = "aopc", resamples: int = 1000, seed: int = 0) -> Table:
    return results(values, metric).table(resamples, seed)


def draws(count: int, resamples: int, seed: int) -> list[list[int]]:
    """Row numbers, drawn one resample at a time."""
    generator = np.random.default_rng(seed)
    return [[int(place) for place in generator.integers(count, size=count)] for _ in range(resamples)]


def percentiles(found: Sequence[float]) -> tuple[float, float]:
    """The 2.5th and the 97.5th, by straight lines between the sorted numbers."""
    ordered = sorted(found)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    return at(0.025), at(0.975)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def close(found: TableCell | Difference | None, *expected: float) -> bool:
    assert found is not None
    return (found.mean, found.low, found.high) == pytest.approx(expected, abs=1e-12)


def spread(seed: int, count: int = 40, centre: float = 0.4) -> list[float]:
    return np.random.default_rng(seed).normal(centre, 0.2, count).tolist()


# Means and intervals


def test_a_cell_counts_what_it_has_and_what_it_has_not() -> None:
    found = Results.of(
        [
            chunk(
                *(record(row, "a", value) for row, value in enumerate([0.25, None, 0.5, float("nan"), 0.75])),
                record(5, "a", None, refused="too long"),
                record(6, "a", None, refused="too long"),
                record(0, "b", 1.0, "log_odds"),
            )
        ]
    ).table()
    cell = found["a", "aopc"]
    assert cell is not None
    assert (cell.mean, cell.n, cell.left_out, cell.refused) == (0.5, 3, 2, 2)
    assert cell.low < 0.5 < cell.high
    assert found["a", "log_odds"] is None
    assert (found.methods, found.metrics) == (("a", "b"), ("aopc", "log_odds"))


@pytest.mark.parametrize("seed", [0, 7])
def test_intervals_are_those_of_a_loop(seed: int) -> None:
    values = spread(3)
    means = [mean([values[place] for place in drawn]) for drawn in draws(len(values), 300, seed)]
    assert close(table({"a": values}, resamples=300, seed=seed)["a", "aopc"], mean(values), *percentiles(means))


def test_intervals_agree_with_scipy() -> None:
    from scipy.stats import bootstrap

    values = spread(5, 200)
    theirs = bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    cell = table({"a": values}, resamples=20_000)["a", "aopc"]
    assert cell is not None
    width = theirs.high - theirs.low
    assert (cell.low, cell.high) == pytest.approx((theirs.low, theirs.high), abs=0.03 * width)


def test_resampling_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [np.array(spread(1)), np.array(spread(2))]
    whole = resampled_means(columns, 101, 4)
    monkeypatch.setattr(whyformer.results.evaluation, "DRAWN_AT_ONCE", 130)  # three resamples of 40 rows
    assert np.allclose(resampled_means(columns, 101, 4), whole, rtol=0, atol=1e-14)


def test_resampling_many_rows_needs_little_memory() -> None:
    values = [np.random.default_rng(n).normal(size=25_000) for n in range(3)]
    tracemalloc.start()
    found = resampled_means(values, 1000, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shape == (3, 1000)
    assert peak < 100e6


def test_other_methods_do_not_change_a_bit() -> None:
    values = {"a": spread(1), "b": spread(2)}
    more = table({**values, "c": spread(3), "d": spread(4)[:30]})
    assert all(more[m, "aopc"] == table(values)[m, "aopc"] for m in values)


def test_one_example_has_no_interval() -> None:
    found = table({"a": [0.5], "b": [0.25]})
    cell = found["a", "aopc"]
    assert cell is not None
    assert (cell.mean, cell.n) == (0.5, 1)
    assert math.isnan(cell.low)
    assert math.isnan(cell.high)
    assert found.tied("aopc") == ("b",)  # nothing tells them apart
    assert re.search(r"\| `b` +\| +≈ 0.250 \|", found.to_markdown())
    assert "nan" not in found.to_markdown() + found.to_latex() + str(found) + found.to_csv() + found._repr_html_()


def test_no_example_is_an_error_that_says_why() -> None:
    with pytest.raises(BadInput, match=r"no example to tabulate.*0 rows skipped$"):
        Results().table()
    with pytest.raises(BadInput, match="2 rows skipped; row 3: empty text"):
        Results.of([Chunk(0, 16, (), skipped={9: "no label", 3: "empty text"})]).table()
    assert Results().means() == {}


def test_a_method_that_refused_everything_has_an_empty_cell() -> None:
    refused = [record(row, "b", None, refused="no attention") for row in range(3)]
    found = Results.of([chunk(*(record(row, "a", 0.5) for row in range(3)), *refused)]).table()
    cell = found["b", "aopc"]
    assert cell is not None
    assert (cell.n, cell.refused, math.isnan(cell.mean)) == (0, 3, True)
    assert found.best("aopc") == "a"
    assert found.tied("aopc") == ()
    assert found.compare("aopc", "a", "b") is None
    assert re.search(r"\| `b` +\| +– \|", found.to_markdown())


def test_a_metric_of_which_nothing_was_measured_is_shown_as_such() -> None:
    refused = chunk(record(0, "a", None, refused="no attention"), record(1, "a", None), metrics={})
    found = Results.of([refused]).table()
    assert found.best("aopc") is None
    assert found.tied("aopc") == ()
    cell = found["a", "aopc"]
    assert cell is not None
    assert (cell.n, cell.left_out, cell.refused) == (0, 1, 1)
    assert "–" in found.to_markdown()
    with pytest.raises(BadInput, match="row 2 has a number by aopc"):
        Results.of([chunk(record(2, "a", 0.5), metrics={})])


def test_infinite_values_give_an_infinite_mean_and_no_interval() -> None:
    found = table({"a": [-1.0, -math.inf, -2.0], "b": [-1.0, -1.0, -2.0]}, "log_odds")
    cell = found["a", "log_odds"]
    assert cell is not None
    assert cell.mean == -math.inf
    assert math.isnan(cell.low)
    assert found.best("log_odds") == "a"
    assert "-inf" in found.to_markdown()


def test_resamples_must_be_at_least_one() -> None:
    with pytest.raises(BadOption, match="resamples=0"):
        table({"a": [1.0]}, resamples=0)


# Pairs


def test_differences_are_paired_over_common_rows() -> None:
    base = spread(1)
    first: list[float | None] = [None if row == 7 else value for row, value in enumerate(base)]
    second: list[float | None] = [None if row < 2 else v + 0.01 + 0.001 * (row % 5) for row, v in enumerate(base)]
    found = table({"a": first, "b": second}, resamples=200)
    pairs = [(x, y) for x, y in zip(first, second, strict=True) if x is not None and y is not None]
    drawn = [mean([pairs[p][0] - pairs[p][1] for p in places]) for places in draws(len(pairs), 200, 0)]
    difference, (one, other) = found.compare("aopc", "a", "b"), (found[m, "aopc"] for m in "ab")
    assert difference is not None
    assert one is not None
    assert other is not None
    assert difference.n == len(pairs) == 37
    assert close(difference, mean([x - y for x, y in pairs]), *percentiles(drawn))
    assert difference.low < difference.high < 0  # clear, though the intervals of the two overlap
    assert other.low < one.mean < other.high
    assert found.tied("aopc") == ()
    back = found.compare("aopc", "b", "a")
    assert back is not None
    assert (back.mean, back.low, back.high) == (-difference.mean, -difference.high, -difference.low)


@pytest.mark.parametrize(("metric", "best"), [("aopc", "high"), ("log_odds", "low")])
def test_the_best_is_so_by_the_direction_of_the_metric(metric: str, best: str) -> None:
    found = table({"low": [0.1, 0.2], "high": [0.8, 0.9], "ceiling": [9.0, 9.0], "chance": [-9.0, -9.0]}, metric)
    assert found.best(metric) == best


def test_equal_methods_tie_and_clear_ones_do_not() -> None:
    values = spread(1)
    found = table({"a": values, "b": values, "worse": [v - 0.1 for v in values]})
    assert found.best("aopc") == "a"
    assert found.tied("aopc") == ("b",)
    assert found.compare("aopc", "a", "b") == Difference(0.0, 0.0, 0.0, 40)


def test_labels_that_are_not_there_are_refused_with_the_nearest() -> None:
    found = table({"attcat": [1.0]})
    with pytest.raises(BadOption, match="no method 'atcat' in this table; did you mean 'attcat'"):
        found["atcat", "aopc"]
    with pytest.raises(BadOption, match="no metric 'aopcc' in this table; did you mean 'aopc'"):
        found.best("aopcc")


# Shares


def test_shares_are_over_rows_that_have_all_three() -> None:
    method, ceiling, chance = spread(1, 60), [0.9 + v / 10 for v in spread(2, 60)], [v / 5 for v in spread(3, 60)]
    reached: list[float | None] = [None if row % 4 == 0 else v for row, v in enumerate(ceiling)]
    random_: list[float | None] = [None if row == 5 else v for row, v in enumerate(chance)]
    mine: list[float | None] = [None if row == 6 else v for row, v in enumerate(method)]
    found = table({"ceiling": reached, "a": mine, "chance": random_}, resamples=250)
    rows = [row for row in range(60) if row % 4 and row not in (5, 6)]

    def share(places: Sequence[int]) -> float:
        low = mean([chance[rows[p]] for p in places])
        return (mean([method[rows[p]] for p in places]) - low) / (mean([ceiling[rows[p]] for p in places]) - low)

    cell = found.share("a", "aopc")
    assert cell is not None
    assert cell.n == len(rows) == 43
    drawn = [share(places) for places in draws(len(rows), 250, 0)]
    assert close(cell, share(range(len(rows))), *percentiles(drawn))
    assert found.methods == ("a", "ceiling", "chance")
    assert any("15 of 59 rows have no ceiling by aopc" in line for line in found.footer)
    markdown = found.to_markdown()
    assert re.search(r"\| method +\| +`aopc` ↑ \| +n \| +share \|", markdown)
    assert re.search(r"\| `a` +\|.*\| 59 \| 0\.\d{3} \[0\.\d{3}, 0\.\d{3}\] \|", markdown)
    assert re.search(r"\| \*ceiling\* +\|.*\| 45 \| +– \|", markdown)


def test_shares_are_not_clipped() -> None:
    found = table({"above": [2.0, 3.0], "below": [-1.0, -1.0], "ceiling": [1.0, 1.0], "chance": [0.0, 0.0]})
    above, below = (found.share(name, "aopc") for name in ("above", "below"))
    assert above is not None
    assert below is not None
    assert (above.mean, below.mean) == pytest.approx((2.5, -1.0))
    assert "every row has a ceiling by aopc" in found.footer
    assert found.share("ceiling", "aopc") is None


@pytest.mark.parametrize(
    "values",
    [
        {"a": [1.0]},
        {"a": [1.0], "ceiling": [2.0]},
        {"a": [1.0, None], "ceiling": [None, 2.0], "chance": [0.0, 0.0]},
        {"a": [1.0, 2.0], "ceiling": [0.5, 0.5], "chance": [0.5, 0.5]},
    ],
)
def test_there_is_no_share_where_nothing_can_be_attained(values: Values) -> None:
    found = table(values)
    assert found.share("a", "aopc") is None
    assert "share:" not in found.to_markdown()


# Metrics of a corpus


def answers(seed: int, count: int) -> list[dict[str, Any] | None]:
    generator = random.Random(seed)
    found: list[dict[str, Any] | None] = [
        {"counts": sorted(generator.randint(0, 3) for _ in range(2)), "length": generator.randint(3, 9)}
        for _ in range(count)
    ]
    found[2] = None
    return found


def test_a_ratio_of_means_is_reduced_from_details() -> None:
    details = answers(1, 30)
    values = [None if d is None else float(np.mean(d["counts"])) for d in details]
    records = [
        record(row, "a", v, RATIO, detail=d, curve=tuple(map(float, d["counts"])) if d else (None, None))
        for row, (v, d) in enumerate(zip(values, details, strict=True))
    ]
    random.Random(0).shuffle(records)
    found = Results.of([chunk(*records)]).table()
    kept = [d for d in details if d is not None]

    def ratio(chosen: Sequence[dict[str, Any]]) -> float:
        return mean([mean(d["counts"]) for d in chosen]) / mean([d["length"] for d in chosen])

    drawn = [ratio([kept[p] for p in places]) for places in draws(len(kept), 200, 0)]
    cell = found["a", RATIO]
    assert cell is not None
    assert (cell.n, cell.left_out) == (29, 1)
    assert close(cell, ratio(kept), *percentiles(drawn))
    assert cell.mean != pytest.approx(mean([mean(d["counts"]) / d["length"] for d in kept]))
    assert found.curve("a", RATIO) == ((2.0, 4.0), tuple(mean([d["counts"][n] for d in kept]) for n in range(2)))
    assert found.footer[-1].endswith(f"1000 resamples of the rows, seed 0 (200 for {RATIO})")
    assert f"{RATIO} leaves out 1 row" in found.footer


def test_overlap_of_words_has_no_number_for_an_example() -> None:
    def said(shared: str) -> list[dict[str, Any]]:
        words = [["good", 2.0], [shared, 1.0], ["rare", 0.1]], [["bad", 2.0], ["film", 1.0]]
        return [{"class": row % 2, "words": words[row % 2]} for row in range(8)]

    records = [
        record(row, method, None, OVERLAP, detail=detail)
        for method, shared in (("vague", "film"), ("sharp", "fine"), ("twin", "fine"))
        for row, detail in enumerate(said(shared))
    ]
    accumulated = Results.of([chunk(*records)])
    found = accumulated.table(resamples=50)
    assert accumulated.means() == {}
    vague, sharp = found["vague", OVERLAP], found["sharp", OVERLAP]
    assert (vague.mean, sharp.mean) == (0.5, 0.0)  # one of the two highest words is shared
    assert np.isnan([vague.low, vague.high, sharp.low, sharp.high]).all()
    assert found.best(OVERLAP) == "sharp"
    assert found.tied(OVERLAP) == ("vague", "twin")  # without an interval, nothing is reliably worse
    difference = found.compare(OVERLAP, "vague", "sharp")
    assert difference.mean == 0.5
    assert np.isnan([difference.low, difference.high]).all()
    none = f"{OVERLAP}: no interval, since rows that are drawn again have fewer distinct texts"
    assert found.footer[-1] == none


# Curves, and the order in which chunks come


def many(seed: int = 0, rows: int = 200, size: int = 16) -> list[Chunk]:
    """Chunks of three methods and the references, one method added later; numbers of very different size."""
    generator = random.Random(seed)
    found, added = [], []
    for start in range(0, rows, size):
        numbers = [row for row in range(start, min(rows, start + size)) if row % 50 != 7]
        ways = ["b", "a", "c|d_e", *(["chance", "ceiling"] if start < 100 else [])]

        def made(row: int, method: str, metric: str) -> Record:
            value = generator.gauss(0, 1) * 10 ** generator.randint(-12, 12)
            curve = (value, None if generator.random() < 0.2 else value / 3, generator.gauss(0, 1e16))
            return record(row, method, value, metric, curve=curve if metric == "aopc" else ())

        seen = tuple({"row": row, "gold": row % 2, "predicted": int(row % 3 > 0)} for row in numbers)
        skipped = {row: "empty" for row in range(start, min(rows, start + size)) if row % 50 == 7}
        records = [made(row, m, k) for row in numbers for m in ways for k in ("log_odds", "aopc")]
        found.append(chunk(*records, start=start, examples=seen, skipped=skipped))
        later = [made(row, "added", k) for row in numbers for k in ("log_odds", "aopc")]
        added.append(chunk(*later, start=start, examples=seen, skipped=skipped))
    return [*found, *added]


def everything(found: Table) -> tuple[Any, ...]:
    curves = [found.curve_cells(m, k) for m in found.methods for k in found.metrics]
    return found.to_csv(), found.to_markdown(), found.to_latex(), str(found), found._repr_html_(), repr(curves)


def test_the_order_of_chunks_does_not_matter_to_the_last_bit() -> None:
    chunks = many()
    first = everything(Results.of(chunks).table())
    for seed in range(3):
        random.Random(seed).shuffle(chunks)
        assert everything(Results.of(chunks).table()) == first
    found = Results.of(chunks).table()
    assert found.methods == ("b", "a", "c|d_e", "added", "chance", "ceiling")
    assert found.metrics == ("log_odds", "aopc")


def test_a_table_read_from_a_journal_is_the_same(tmp_path: Path) -> None:
    chunks = many(1, 60)
    with Journal.open(tmp_path, {"about": {"model": "m", "data": "d"}}) as journal:
        for one in chunks:
            journal.append(one)
    with Journal.open(tmp_path, {"about": {"model": "m", "data": "d"}}) as journal:
        again = Results.of(journal.chunks(), journal.run).table()
    assert everything(again) == everything(Results.of(chunks, {"about": {"model": "m", "data": "d"}}).table())


def test_curves_are_exact_means_without_what_is_left_out() -> None:
    from fractions import Fraction

    chunks = many(2)
    found = Results.of(chunks).table().curve("a", "aopc")
    curves = [r.curve for c in chunks for r in c.records if (r.method, r.metric) == ("a", "aopc")]
    assert found is not None
    assert found[0] == tuple(AT)
    for point, ours in enumerate(found[1]):
        known = [Fraction(v) for v in (curve[point] for curve in curves) if v is not None]
        assert ours == pytest.approx(float(sum(known) / len(known)), rel=1e-15)
    assert len(curves) > len([c for c in curves if c[1] is not None]) > 64


def test_curves_of_zeros_and_of_nothing() -> None:
    records = [record(row, "a", 0.5, curve=(0.0, None, 0.25 * row)) for row in range(3)]
    found = Results.of([chunk(*records, record(0, "b", 0.5))]).table()
    curve = found.curve("a", "aopc")
    assert curve is not None
    assert repr(curve[1]) == "(0.0, nan, 0.25)"
    assert found.curve("b", "aopc") is None
    infinite = [record(row, "a", 0.5, curve=(-math.inf, 1.0, math.inf if row else -math.inf)) for row in range(70)]
    assert repr(Results.of([chunk(*infinite)]).table().curve("a", "aopc")) == f"({tuple(AT)}, (-inf, 1.0, nan))"
    with pytest.raises(BadInput, match="not as described"):
        Results.of([chunk(record(0, "a", 0.5, curve=(1.0, 2.0)))])


def test_nothing_is_counted_twice() -> None:
    twice = Results.of([chunk(record(4, "a", 0.5)), chunk(record(4, "a", 0.5))])
    with pytest.raises(BadInput, match="row 4 has two numbers of a by aopc"):
        twice.table()
    other = {"aopc": {**FACTS["aopc"], "options": {"hide": "mask"}}}
    with pytest.raises(BadInput, match="aopc was measured in two ways"):
        Results.of([chunk(record(0, "a", 0.5)), chunk(record(1, "a", 0.5), metrics=other)])
    seen = ({"row": 0, "gold": 1, "predicted": 1},)
    again = Results.of([chunk(record(0, m, 0.5), examples=seen) for m in "ab"])
    assert again.table().footer[0] == "1 example; the model is right on 1 of them (100.0 %)"


# What is said below a table


def test_the_footer_tells_what_was_left_out_and_why() -> None:
    examples = tuple({"row": row, "gold": None if row == 2 else 1, "predicted": int(row != 3)} for row in range(5))
    records = [record(row, "a", None if row == 1 else 0.5) for row in range(4)]
    records += [record(row, "flow", None, k, refused=f"of {row // 3}") for row in range(4) for k in FACTS]
    records += [record(row, "plain", None, refused="no\n\n  reason") for row in range(2)]
    skipped = {row: f"bad {row}" for row in (4, *range(20, 27))}
    about = {"model": "some/model", "revision": "abc", "data": "reviews.csv"}
    found = Results.of([chunk(*records, examples=examples, skipped=skipped)], {"data": "f00d", "about": about})
    assert found.table(resamples=10, seed=3).footer == [
        "model: some/model",
        "revision: abc",
        "data: reviews.csv",
        "4 examples; the model is right on 2 of the 3 with a gold label (66.7 %)",
        "8 rows skipped (counted from 0): row 4: bad 4; row 20: bad 20; row 21: bad 21; row 22: bad 22; row 23: bad 23"
        "; and 3 more",
        "flow refused 4 rows, most often: of 0",
        "plain refused 2 rows: no reason",
        "aopc leaves out up to 1 row",
        "aopc, n = 3: too few rows to rely on any number",
        "in brackets: 95 % intervals, of fewer than 30 rows by Student's t, of zeros and ones by Wilson's",
    ]


def test_without_gold_labels_there_is_no_accuracy() -> None:
    examples = ({"row": 0, "units": 3, "gold": None}, {"row": 1, "units": 3, "predicted": 1})
    assert Results.of([chunk(record(0, "a", 0.5), examples=examples)]).table().footer[0] == "2 examples"


# Formats

HOSTILE = "a|b_c*d*[e]<b>&%$#{f}~^\\`g`"


class Page(HTMLParser):
    """The cells of a page, and its tags; raises if they are not nested well."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"th", "td"} & set(self.open):
            self.cells[-1] += data


@pytest.fixture(scope="module")
def shown() -> Table:
    values = {"good": [0.5, 0.625, 0.75], HOSTILE: [0.5, 0.625, 0.75], "poor": [-0.25, -0.125, -0.5]}
    facts = {"aopc": FACTS["aopc"], HOSTILE: {**FACTS["log_odds"], "at": AT}}
    records = [
        Record("", row, method, metric, value, curve=(0.0, value, 2 * value))
        for method, own in values.items()
        for row, value in enumerate(own)
        for metric in facts
    ]
    return Results.of([chunk(*records, metrics=facts)], {"model": HOSTILE}).table(resamples=100)


def test_markdown_has_whole_rows_whatever_the_labels(shown: Table) -> None:
    blocks = shown.to_markdown().split("\n\n")
    assert blocks[1] == "Paired differences to the best of each metric:"
    for block in (blocks[0], blocks[2]):
        lines = block.split("\n")
        assert len({len(line) for line in lines}) == 1  # aligned
        assert len(lines) == 5
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}
    label = r"`` a\|b_c*d*[e]<b>&%$#{f}~^\`g` ``"
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in blocks[0].split("\n")]
    assert rows[0] == ["method", "`aopc` ↑ (n = 3)", f"{label} ↓ (n = 3)"]
    assert rows[1][0].startswith(":-")
    assert rows[1][1].endswith("-:")
    assert [row[0] for row in rows[2:]] == ["`good`", label, "`poor`"]
    assert re.fullmatch(r"\*\*0\.625\*\* \[0\.\d{3}, 0\.\d{3}\]", rows[2][1])
    assert re.fullmatch(r"≈ 0\.625 \[0\.\d{3}, 0\.\d{3}\]", rows[3][1])
    assert re.fullmatch(r"\*\*-0\.292\*\* \[-0\.\d{3}, 0\.\d{3}\]", rows[4][2])
    apart = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in blocks[2].split("\n")]
    assert apart[2][1] == apart[4][2] == "**best**"
    assert apart[3][1] == "≈ +0.000 [+0.000, +0.000]"
    assert re.fullmatch(r"-0\.917 \[-\d\.\d{3}, -0\.\d{3}\]", apart[4][1])
    assert blocks[3].startswith("- ↑ higher is better")
    assert r"- model: a\|b_c\*d\*\[e\]\<b\>\&%$\#{f}\~^\\\`g\`" in blocks[3].split("\n")


def test_csv_has_every_digit(shown: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(shown.to_csv())))
    assert [(row["method"], row["metric"]) for row in rows] == [
        *((m, "aopc") for m in shown.methods),
        *((m, HOSTILE) for m in shown.methods),
    ]
    for row in rows:
        cell = shown[row["method"], row["metric"]]
        assert cell is not None
        assert [float(row[name]) for name in ("mean", "low", "high")] == [cell.mean, cell.low, cell.high]
        assert [int(row[name]) for name in ("n", "left_out", "refused")] == [3, 0, 0]
        apart = shown.compare(row["metric"], row["method"], shown.best(row["metric"]) or "")
        assert apart is not None
        found = [float(row[f"difference_to_best{end}"]) for end in ("", "_low", "_high")]
        assert found == [apart.mean, apart.low, apart.high]
        assert row["share"] == row["share_low"] == row["share_high"] == ""


def test_csv_has_shares() -> None:
    found = table({"a": [0.5, 0.75], "ceiling": [1.0, 1.0], "chance": [0.0, 0.25]})
    first, *others = csv.DictReader(io.StringIO(found.to_csv()))
    share = found.share("a", "aopc")
    assert share is not None
    assert [float(first[n]) for n in ("share", "share_low", "share_high")] == [share.mean, share.low, share.high]
    assert [row["share"] for row in others] == ["", ""]


def test_latex_is_escaped(shown: Table) -> None:
    lines = shown.to_latex().split("\n")
    body = [line for line in lines if line and not line.startswith("%")]
    assert body[:2] == [r"\begin{tabular}{lrr}", r"\toprule"]
    assert body[-2:] == [r"\bottomrule", r"\end{tabular}"]
    label = r"a\textbar{}b\_c*d*{[}e]\textless{}b\textgreater{}\&\%\$\#\{f\}\textasciitilde{}\textasciicircum{}"
    label += r"\textbackslash{}`g`"
    rows = [line for line in body if line.endswith(r" \\")]
    assert rows[0] == rf"method & aopc $\uparrow$ (n = 3) & {label} $\downarrow$ (n = 3) \\"
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {2}
    assert rows[1].startswith(r"good & \textbf{0.625} [0.")
    assert rows[2].startswith(rf"{label} & $\approx$ 0.625 [0.")
    assert r" & $-$0.292 [$-$0." in rows[3]


def test_latex_sets_references_apart() -> None:
    lines = table({"a": [0.5, 0.75], "ceiling": [1.0, 1.0], "chance": [0.0, 0.25]}).to_latex().split("\n")
    assert [line.split(" ")[0] for line in lines if not line.startswith("%")] == [
        *(r"\begin{tabular}{lrr}", r"\toprule", "method", r"\midrule", "a"),
        *(r"\midrule", "ceiling", "chance", r"\bottomrule", r"\end{tabular}", ""),
    ]


def test_a_page_is_escaped(shown: Table) -> None:
    page = Page(shown._repr_html_())
    assert {"script", "f"}.isdisjoint(page.tags)
    assert page.cells[:3] == ["method", "aopc ↑ (n = 3)", f"{HOSTILE} ↓ (n = 3)"]
    assert [page.cells[n] for n in (3, 6, 9)] == list(shown.methods)
    assert page.cells[4].startswith("0.625 [0.")
    assert page.cells[7].startswith("≈ 0.625 [0.")
    source = shown._repr_html_()
    assert source.count("<b>") == source.count("</b>") == 4  # the best, and `best`, of two metrics


def test_text_is_plain_and_marks_the_best(shown: Table) -> None:
    lines = str(shown).split("\n")
    assert "\x1b" not in str(shown)
    assert lines[0].split("  ")[0] == "method"
    assert lines[2].startswith("good ")
    assert re.search(r"\* 0\.625 \[0\.\d{3}, 0\.\d{3}\]", lines[2])
    assert lines[3].startswith(HOSTILE + " ")
    assert len({line.rindex("]") for line in lines[2:5]}) == 1  # aligned
    assert lines[5] == ""
    assert "* best" in lines[6]


def test_a_narrow_terminal_gets_one_metric_below_the_other(monkeypatch: pytest.MonkeyPatch, shown: Table) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    wide = re.sub(r"\x1b\[[\d;]*m", "", str(shown))
    monkeypatch.setenv("COLUMNS", "80")
    coloured = str(shown)
    narrow = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert "\x1b[1;38;2;0;114;178m0.625" in coloured
    assert wide.count("method ") == 1
    assert narrow.count("method  ") == 2
    assert all(len(line) <= 80 for line in narrow.split("\n")[:11])


def test_the_live_view_has_the_means_so_far() -> None:
    def printed(found: Results) -> list[str]:
        console = Console(width=100, file=io.StringIO(), record=True)
        console.print(live(found))
        return [line.rstrip() for line in console.export_text().split("\n") if line.strip()]

    assert printed(Results())[-1].strip() == "means of 0 examples so far"
    found = Results()
    values: dict[str, float] = {"ceiling": 0.9, "good": 0.5, "[bad]": 0.25}
    for row in range(2):
        records = [record(row, m, v + row / 4, k) for m, v in values.items() for k in ("aopc", "log_odds")]
        found.add(chunk(*records, record(row, "good", None, OVERLAP, detail={}), examples=({"row": row},)))
    assert found.means()["good", "aopc"] == 0.625
    head, _, *rows, caption = printed(found)
    assert head.split() == ["method", "aopc", "↑", "log_odds", "↓"]
    assert [row.split() for row in rows] == [
        ["good", "*", "0.625", "0.625"],
        ["[bad]", "0.375", "*", "0.375"],
        ["ceiling", "1.025", "1.025"],
    ]
    assert caption.strip() == "means of 2 examples so far"


# Files and figures


def test_everything_is_saved(shown: Table, tmp_path: Path) -> None:
    written = shown.save(tmp_path / "deep" / "folder")
    names = ["table.md", "table.csv", "table.tex", "curves.csv", "curves-aopc.png"]
    assert [path.name for path in written][:5] == names
    assert len(written) == 6
    assert {path.name for path in (tmp_path / "deep" / "folder").iterdir()} == {path.name for path in written}
    assert "/" not in written[5].name.removeprefix("curves-")
    assert written[0].read_text(encoding="utf-8") == shown.to_markdown()
    assert written[4].read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="could not write to"):
        shown.save(tmp_path / "file")


def curved(count: int, at: list[float], references: bool = True) -> Table:
    ways = [f"way{n}" for n in range(count)] + (["chance", "ceiling"] if references else [])
    facts = {"aopc": {**FACTS["aopc"], "at": at}}
    records = [
        record(row, way, (n + row) / 10, curve=tuple((n + row) * (place + 1) / 10 for place in range(len(at))))
        for n, way in enumerate(ways)
        for row in range(3)
    ]
    return Results.of([chunk(*records, metrics=facts)]).table(resamples=10)


def test_points_of_curves_have_intervals_and_are_saved(tmp_path: Path) -> None:
    from scipy.stats import t

    found = curved(2, AT)
    at, cells = zip(*found.curve_cells("way1", "aopc"), strict=True)
    assert at == tuple(AT)
    values = np.array([0.2, 0.4, 0.6])  # of three rows at the second point
    low, high = t.interval(0.95, 2, values.mean(), values.std(ddof=1) / math.sqrt(3))
    assert (cells[1].mean, cells[1].low, cells[1].high, cells[1].n) == (*map(pytest.approx, (0.4, low, high)), 3)
    found.save(tmp_path)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "curves.csv").read_text(encoding="utf-8"))))
    assert len(lines) == len(found.methods) * len(AT)
    (line,) = [line for line in lines if (line["method"], line["at"]) == ("way1", "0.5")]
    assert line["metric"] == "aopc"
    written = [float(line[name]) for name in ("mean", "low", "high", "n")]
    assert written == pytest.approx([0.4, low, high, 3])


def test_intervals_of_curves_stay_within_what_is_possible() -> None:
    game = "hiding_game"
    known = {game: {"name": game, "options": {}, "higher_is_better": False, "level": "example", "at": [0.0, 0.5, 1.0]}}
    curves = [(1.0, 1.0, None), (1.0, 0.0, None), (1.0, 1.0, 0.0)]
    records = [record(row, "a", 0.5, game, curve=curve) for row, curve in enumerate(curves)]
    alike, share, single = (
        cell for _, cell in Results.of([chunk(*records, metrics=known)]).table().curve_cells("a", game)
    )
    assert (share.low, share.high) == (0, 1)
    assert math.isnan(alike.low), "rows that are all alike do not tell"
    assert (single.mean, single.n, math.isnan(single.high)) == (0, 1, True)


def test_a_figure_shows_every_curve_the_best_strongest() -> None:
    from matplotlib.colors import to_hex

    found = curved(20, AT)
    drawn = found.figure("aopc")
    (axes,) = drawn.axes
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert tuple(lines) == found.methods
    for method, line in lines.items():
        curve = found.curve(method, "aopc")
        assert curve is not None
        assert np.asarray(line.get_xdata()).tolist() == [0.0, 50.0, 100.0]
        assert tuple(np.asarray(line.get_ydata()).tolist()) == curve[1]
    widths = {method: line.get_linewidth() for method, line in lines.items()}
    strong = {method for method in found.methods[:20] if widths[method] > 2}
    assert strong == {f"way{n}" for n in range(14, 20)}
    assert len({to_hex(lines[method].get_color()) for method in strong}) == 6
    greys = [to_hex(lines[name].get_color()) for name in ("chance", "ceiling")]
    assert greys == ["#666666"] * 2
    assert all(lines[name].is_dashed() for name in ("chance", "ceiling"))
    looks = [(to_hex(li.get_color()), str(li.get_linestyle()), li.get_linewidth()) for li in axes.get_lines()]
    assert len(set(looks[:20])) == 20
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == list(found.methods)


def test_a_figure_counts_units_where_the_metric_does() -> None:
    (axes,) = curved(2, [10.0, 20.0, 80.0], references=False).figure("aopc").axes
    assert np.asarray(axes.get_lines()[0].get_xdata()).tolist() == [10.0, 20.0, 80.0]
    assert "%" not in axes.get_xlabel()


@pytest.mark.parametrize("make", [lambda: table({"a": [1.0]}), lambda: curved(2, [20.0])])
def test_there_is_no_figure_without_curves(make: Callable[[], Table], tmp_path: Path) -> None:
    found = make()
    with pytest.raises(BadInput, match="aopc has no curve"):
        found.figure("aopc")
    assert [path.suffix for path in found.save(tmp_path)] == [".md", ".csv", ".tex"]


def test_dollars_are_drawn_as_they_are() -> None:
    records = [record(0, name, 0.5, curve=(0.0, 1.0, 2.0)) for name in ("$x$", "plain_x")]
    drawn = Results.of([chunk(*records)]).table().figure("aopc")
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [r"\$x\$", "plain_x"]


def test_labels_stand_in_order_of_first_appearance() -> None:
    for order in itertools.permutations(["z", "a", "ceiling", "chance"]):
        found = table({name: [0.5, 0.25] for name in order})
        ordinary = tuple(name for name in order if name in "za")
        assert found.methods[:2] == ordinary
        assert set(found.methods[2:]) == {"ceiling", "chance"}


def test_a_report_answers_its_own_title(shown: Table) -> None:
    (answer, *_) = verdicts(shown)
    assert answer.startswith(f"By aopc believe {shown.best('aopc')} (")
    assert escape(answer) in shown.render("html")
    assert not [line for line in verdicts(replace(shown, methods=("poor",))) if "believe" in line and "good" in line]
