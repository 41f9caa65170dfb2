"""Output formats: every kind of result in every format that it has, by name and by the ending of a file."""

import csv
import io
from pathlib import Path

import pytest

from whyformer import Comparison, Explainer, Explanation, Table
from whyformer.errors import BadOption
from whyformer.evaluation.evaluate import Results
from whyformer.results.evaluation import Chunk, Record
from whyformer.show.grid import Grid, Words, as_latex, as_markdown, pipes, plain_grid
from whyformer.show.render import FORMATS, format_of, output_format, text_of
from whyformer_papers.words import WordTable

TEXT = "a gorgeous | witty_ film"
METRIC = {"aopc": {"name": "aopc", "options": {}, "level": "example", "higher_is_better": True}}


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return Explainer.load("sentiment").explain(TEXT, "attcat")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return Explainer.load("sentiment").compare(TEXT, ["attcat", "rollout"])


def table() -> Table:
    return Results.of([Chunk(0, 1, (Record("k", 0, "attcat", "aopc", 0.5),), METRIC)]).table()


def words() -> WordTable:
    return WordTable({0: {"war": 1.0}, 1: {"fun": 2.0}}, ("BAD", "GOOD"), "attcat", {0: 1, 1: 1})


def test_an_explanation_is_written_by_the_ending_and_loaded(explanation: Explanation, tmp_path: Path) -> None:
    signs = {"html": b"<!doctype html", "txt": b"POSITIVE", "csv": b"unit,attcat", "md": b"| unit | attcat |"}
    signs |= {"tex": rb"\begin{tabular}{lr}", "png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "json": b"{"}
    for ending, first in signs.items():
        assert explanation.save(tmp_path / f"e.{ending}").read_bytes().startswith(first), ending
    assert Explanation.load(tmp_path / "e.json").to_dict() == explanation.to_dict()
    assert explanation.save(tmp_path / "plain").read_bytes() == (tmp_path / "e.json").read_bytes()
    assert explanation.save(tmp_path / "E.HTM").read_bytes() == (tmp_path / "e.html").read_bytes()
    with pytest.raises(BadOption, match=r"e\.foo' has the ending of no output format: known are .*\.csv, .*\.html"):
        explanation.save(tmp_path / "e.foo")
    assert not (tmp_path / "e.foo").exists()


def test_scores_as_tables(explanation: Explanation, comparison: Comparison) -> None:
    rows = list(csv.reader(io.StringIO(str(explanation.render("csv")))))
    shown = [place for place, unit in enumerate(explanation.units) if not unit.special]
    assert [row[0] for row in rows] == ["unit", *(explanation.units[place].text for place in shown)]
    assert [float(row[1]) for row in rows[1:]] == [float(explanation.scores[place]) for place in shown]
    lines = str(comparison.render("markdown")).splitlines()
    assert lines[:2] == ["| unit | attcat | rollout |", "| --- | --- | --- |"]
    assert [line.split(" | ")[0] for line in lines if r"\|" in line] == [r"| \|"]
    for column in (1, 2):
        bold = [line for line in lines if line.strip("| ").split(" | ")[column].startswith("**")]
        assert len(bold) == 1
    assert r"witty & " in str(comparison.render("latex"))
    assert r"\textbar{}" in str(comparison.render("latex"))


def test_every_kind_of_result_has_its_formats(explanation: Explanation, comparison: Comparison) -> None:
    results = {"explanation": explanation, "comparison": comparison, "table": table(), "words": words()}
    had = {
        kind: {name for name, form in FORMATS.items() if form.takes(type(result))} for kind, result in results.items()
    }
    everything = {"text", "html", "json", "csv", "markdown", "latex", "png", "svg", "pdf"}
    assert had == {
        "explanation": everything,
        "comparison": everything,
        "table": {"text", "html", "csv", "markdown", "latex"},
        "words": {"text", "json", "markdown"},
    }
    for kind, result in results.items():
        for name in had[kind]:
            assert result.render(name), (kind, name)
    assert (table().render("csv"), words().render("text")) == (table().to_csv(), str(words()))
    with pytest.raises(BadOption, match="Table cannot be written as png; known: csv, html, latex, markdown, text"):
        table().render("png")
    with pytest.raises(BadOption, match="png is no text that could be shown here"):
        text_of(explanation, "png")
    with pytest.raises(BadOption, match=r"no format 'htlm'; did you mean 'html'\?"):
        table().render("htlm")


def test_a_format_of_ones_own(explanation: Explanation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FORMATS, "known", dict(FORMATS.known))
    own = output_format("own", ".own")
    with pytest.raises(BadOption, match="Explanation cannot be written as own"):
        explanation.render("own")
    own.of(Explanation)(lambda explanation, mark="!": explanation.target.name + mark)
    assert (explanation.render("own"), explanation.render("own", mark="?")) == ("POSITIVE!", "POSITIVE?")
    assert format_of("x.OWN") is own
    with pytest.raises(ValueError, match="there is a format 'own' already"):
        output_format("own")


def test_grids() -> None:
    grid = Grid(("a_b", "c"), [(Words("x|y\nz"), Words("1", bold=True, number=1.25))])
    assert as_markdown(grid) == "| a_b | c |\n| --- | --- |\n| x\\|y z | **1** |"
    assert r"a\_b & c \\" in as_latex(grid)
    assert r"x\textbar{}y z & \textbf{1} \\" in as_latex(grid)
    assert pipes([["method", "n"], ["a", "10"]], aligned=True) == "| method |  n |\n| :----- | -: |\n| a      | 10 |"
    assert plain_grid(("a",), [("b",)]).rows == [(Words("b"),)]
