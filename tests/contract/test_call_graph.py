"""While the package runs, no two rooms call each other, and no room calls one that stands above it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import call_graph
from tools.call_graph import CALLS, Graph, layers, profiled, report, two_way

ORDER = ("low", "middle", "high")
DOWN = (("high/a.py", "f"), ("low.py", "g"))
UP = (("low.py", "g"), ("middle/b.py", "h"))


def graph_of(*calls: tuple[tuple[str, str], tuple[str, str]]) -> Graph:
    return Graph(set(calls), {file for call in calls for file, _ in call})


def test_edges_between_rooms() -> None:
    graph = graph_of(DOWN, UP, (("high/a.py", "f"), ("high/c.py", "i")), (UP[1], UP[0]))
    assert graph.rooms == {("high", "low"), ("low", "middle"), ("middle", "low")}
    assert graph.upwards(ORDER) == [("low", "middle")]
    assert two_way(graph.rooms) == [("low", "middle")]
    assert graph.behind(("low", "middle")) == ["low.py:g -> middle/b.py:h"]
    assert graph.upwards(("low", "high")) == [("low", "middle")], "a room without a layer stands above all"


def test_what_is_wrong_is_said_with_the_functions(capsys: pytest.CaptureFixture[str]) -> None:
    assert report({"explain": graph_of(DOWN)}, ORDER, edges=False)
    assert "->" not in capsys.readouterr().out
    assert not report({"explain": graph_of(DOWN, UP)}, ORDER, edges=False)
    assert "low -> middle\n    low.py:g -> middle/b.py:h" in capsys.readouterr().out


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package in place of this one: `high.work` calls `low.each` with a function of its own, and sorts in between."""
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "low.py").write_text("def each(call):\n    return sorted([2, 1], key=lambda n: call(n))\n")
    (tmp_path / "high.py").write_text("import low\ndef work():\n    return low.each(own)\ndef own(n):\n    return n\n")
    monkeypatch.setattr("whyformer.__file__", str(tmp_path / "__init__.py"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("low", "high"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("package")
def test_a_callback_is_an_edge_upwards() -> None:
    import high  # type: ignore[import-not-found]

    graph = Graph()
    with profiled(graph):
        high.work()
    assert graph.rooms == {("high", "low"), ("low", "high")}
    assert graph.upwards(("low", "high")) == [("low", "high")]
    assert sys.getprofile() is None


@pytest.mark.slow
def test_every_room_calls_downwards_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(call_graph.measured(list(CALLS)), layers(), edges=False), capsys.readouterr().out
