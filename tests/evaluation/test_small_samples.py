"""Few rows, and numbers that differ by rounding alone: intervals, ties, shares and the marks that are printed."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy

from whyformer.evaluation.evaluate import Results, Table
from whyformer.evaluation.journal import Journal
from whyformer.evaluation.recommend import Recommendation
from whyformer.results.evaluation import SMALL, Chunk, Difference, Record, _percentiles
from whyformer.show.tables import live

METRICS = {
    "aopc": {"name": "aopc", "options": {}, "higher_is_better": True, "level": "example", "at": [0.0, 1.0]},
    "log_odds": {"name": "log_odds", "options": {}, "higher_is_better": False, "level": "example"},
    "hiding_game": {"name": "hiding_game", "options": {}, "higher_is_better": False, "level": "example"},
}


def results(values: dict[str, Sequence[float]], metric: str = "aopc", run: dict[str, object] | None = None) -> Results:
    records = [
        Record(f"{method}/{row}", row, method, metric, float(value), (0.0, value) if metric == "aopc" else ())
        for method, own in values.items()
        for row, value in enumerate(own)
    ]
    return Results.of([Chunk(0, 1000, tuple(records), METRICS)], run)


def table(values: dict[str, Sequence[float]], metric: str = "aopc", resamples: int = 1000) -> Table:
    return results(values, metric).table(resamples)


def drawn(count: int, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).normal(0.4, 0.2, count).tolist()


@pytest.mark.parametrize("count", [2, 3, 5, 12, 29])
def test_few_rows_have_the_interval_of_student(count: int) -> None:
    one, other = drawn(count), drawn(count, 1)
    found = table({"a": one, "b": other})
    cell, gap = found["a", "aopc"], found.compare("aopc", "a", "b")
    assert cell is not None
    assert gap is not None
    for numbers, values in ((cell, one), (gap, np.subtract(one, other))):
        expected = scipy.stats.t.interval(0.95, count - 1, np.mean(values), scipy.stats.sem(values))
        assert (numbers.low, numbers.high) == pytest.approx(expected, abs=1e-9)


def test_many_rows_have_percentiles_as_before() -> None:
    values = drawn(SMALL)
    cell = table({"a": values})["a", "aopc"]
    assert cell is not None
    draws = np.random.default_rng(0).integers(SMALL, size=(1000, SMALL))
    expected = np.quantile(np.array(values)[draws].mean(1), [0.025, 0.975])
    assert (cell.low, cell.high) == pytest.approx(tuple(expected), abs=1e-12)


def test_the_interval_of_a_share_holds_the_truth_as_often_as_it_says() -> None:
    random, held = np.random.default_rng(0), []
    for _ in range(300):
        room = random.beta(2, 2, 8)
        method = 0.6 * room + random.normal(0, 0.15, 8)
        share = table({"a": method.tolist(), "ceiling": room.tolist(), "chance": [0.0] * 8}).share("a", "aopc")
        assert share is not None
        held.append(share.low <= 0.6 <= share.high)
    assert 0.91 <= np.mean(held) <= 0.99  # percentiles: 0.88


@pytest.mark.parametrize("ones", [0, 1, 4, 5])
def test_few_zeros_and_ones_have_the_interval_of_wilson(ones: int) -> None:
    cell = table({"a": [1.0] * ones + [0.0] * (5 - ones)}, "hiding_game")["a", "hiding_game"]
    assert cell is not None
    expected = scipy.stats.binomtest(ones, 5).proportion_ci(method="wilson")
    assert (cell.low, cell.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_numbers_without_spread_have_no_interval() -> None:
    found = table({"a": [0.5] * 4, "b": [0.25 + 1e-9 * row for row in range(4)]})
    for method in "ab":
        cell = found[method, "aopc"]
        assert cell is not None
        assert math.isnan(cell.low)
    gap = found.compare("aopc", "a", "b")
    assert gap is not None
    assert math.isnan(gap.low)  # two texts that agree prove nothing
    assert found.tied("aopc") == ("b",)
    assert found.compare("aopc", "a", "a") == Difference(0.0, 0.0, 0.0, 4)


def test_small_samples_are_marked() -> None:
    few, some, many = (table({"a": drawn(count)}).footer for count in (3, 8, 30))
    assert "aopc, n = 3: too few rows to rely on any number" in few
    assert "aopc, n = 8: a small sample" in some
    assert (
        some[-1] == "in brackets: 95 % intervals, of fewer than 30 rows by Student's t, of zeros and ones by Wilson's"
    )
    assert not any("small" in line or "few" in line for line in many)
    assert many[-1] == "in brackets: 95 % intervals, the percentiles of 1000 resamples of the rows, seed 0"
    both = results({"a": drawn(40), "b": drawn(12)}).table().footer
    assert "aopc, n = 12: a small sample" in both
    assert both[-1].startswith(
        "in brackets: 95 % intervals, the percentiles of 1000 resamples of the rows, seed 0; of few"
    )


# Ties


def nudged(values: Sequence[float], seed: int) -> list[float]:
    """The same values from another batch: other in the last digits of float32."""
    noise = np.random.default_rng(seed).normal(0, 3e-7, len(values))
    return [value * (1 + apart) for value, apart in zip(values, noise, strict=True)]


@pytest.mark.parametrize("count", [12, 40])
@pytest.mark.parametrize("metric", ["aopc", "log_odds"])
def test_what_differs_by_rounding_is_a_tie_and_the_first_is_the_best(count: int, metric: str) -> None:
    values = drawn(count)
    sign = -1 if metric == "aopc" else 1
    worse = [value + sign * (0.1 + 0.01 * (row % 3)) for row, value in enumerate(values)]
    fresh = table({"a": values, "b": values, "worse": worse}, metric)
    for seed in range(6):
        again = table({"a": nudged(values, seed), "b": nudged(values, 50 + seed), "worse": worse}, metric)
        assert (again.best(metric), again.tied(metric)) == (fresh.best(metric), fresh.tied(metric)) == ("a", ("b",))
        assert again.compare(metric, "b", "a") == Difference(0.0, 0.0, 0.0, count)
        assert again.to_markdown() == fresh.to_markdown()
        assert again.to_latex() == fresh.to_latex()


def test_a_difference_of_one_printed_digit_is_none_of_rounding() -> None:
    values = drawn(40)
    found = table({"a": values, "b": [value + 0.001 for value in values]})
    assert found.best("aopc") == "b"
    assert found.tied("aopc") == ()


def test_there_is_no_share_of_nothing_but_rounding() -> None:
    values = drawn(40)
    found = table({"a": values, "ceiling": nudged(values, 1), "chance": values})
    assert found.share("a", "aopc") is None


def test_curves_and_the_live_view_rank_ties_by_the_order_of_the_table() -> None:
    values = drawn(12)
    for seed in range(4):
        own = {name: nudged(values, seed * 10 + n) for n, name in enumerate("abcdefgh")}
        lines = {line.get_label(): line for line in table(own).figure("aopc").axes[0].get_lines()}
        assert [name for name, line in lines.items() if line.get_linewidth() > 2] == list("abcdef")
        (means, _) = live(results(own)).renderables
        assert [str(cell).startswith("* ") for cell in means.columns[1].cells] == [True] + [False] * 7


# Names that spreadsheets, files and LaTeX trip over


def test_no_cell_of_a_csv_is_a_formula() -> None:
    names = ['=HYPERLINK("http://evil","x")', "+1", "-1", "@x", "\tx", "\rx", "plain"]
    written = table({name: [-0.5, -0.25] for name in names}).to_csv()
    rows = list(csv.DictReader(io.StringIO(written, newline="")))
    assert [row["method"] for row in rows] == [*(f"'{name}" for name in names[:-1]), "plain"]
    assert {float(row["mean"]) for row in rows} == {-0.375}  # numbers stay numbers


def test_data_whose_name_is_not_utf8(tmp_path: Path) -> None:
    name = b"b\xe9d.csv".decode("utf-8", "surrogateescape")
    found = results({"a": drawn(3), "\ud800": drawn(3)}, run={"about": {"model": "\ud800", "data": name}}).table()
    written = {path.name: path.read_bytes().decode("utf-8") for path in found.save(tmp_path) if path.suffix != ".png"}
    assert "data: b\\\\udce9d.csv" in written["table.md"]
    assert r"\textbackslash{}ud800 &" in written["table.tex"]
    assert "\\ud800,aopc" in written["table.csv"]


def test_a_resumed_journal_without_a_checksum_above_goes_on(tmp_path: Path) -> None:
    """As earlier versions wrote it."""
    run = {"n": 1, "about": {"model": "m"}}
    opening = {"schema": "whyformer/journal", "schema_version": 1, "run": run}
    (tmp_path / "journal.jsonl").write_text(json.dumps(opening, separators=(",", ":")) + "\n")
    chunk = Chunk(0, 16, (Record("aa", 0, "attcat", "aopc", 0.5),), METRICS)
    with Journal.open(tmp_path, run) as journal:
        journal.append(chunk)
    assert len(Journal.read(tmp_path)) == 1


@pytest.mark.parametrize(("count", "remark"), [(3, ", too few to rely on"), (8, ", a small sample"), (30, "")])
def test_a_recommendation_says_that_it_is_of_few_texts(count: int, remark: str) -> None:
    found = table({"a": drawn(count), "random": drawn(count, 1)})
    for reliable, words in ((True, f", {count} texts{remark}."), (False, f"(aopc, {count} texts{remark}).")):
        assert Recommendation(found, "aopc", "a", (), reliable).sentence.endswith(words)
    same = table({"a": [0.5] * count, "random": [0.1] * count})
    assert "nan" not in Recommendation(same, "aopc", "a", (), True).sentence


def test_one_row_has_no_percentiles() -> None:
    assert all(map(math.isnan, _percentiles(np.full(100, 0.5), 1)))
    assert _percentiles(np.full(100, 0.5), 2) == (0.5, 0.5)
