"""All recipes at once: what is run with which options, shared journals, one page, and why others are not there."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import status_of
from whyformer.errors import BadInput, BadOption
from whyformer.show.grid import Grid, Words
from whyformer_papers import reproduce as papers
from whyformer_papers.reproduce import everything, reproduction_named, reproductions, run_all, tables
from whyformer_papers.reproduce.page import _table, as_html, as_markdown
from whyformer_papers.reproduce.sources import ReproductionSettings, given_limits

ROWS = [
    ("a gorgeous, witty, seductive film that never once loses its way", 1),
    ("the plot is dull and the acting is worse than anything i saw this year", 0),
]
TABLE = replace(
    reproduction_named("attcat-table-1"), rows=tuple(r for r in reproduction_named("attcat-table-1").rows[:1])
)
FIGURES = [reproduction_named(name) for name in ("attcat-figure-4", "transformer-attribution-table-1")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "sst2"
    folder.mkdir(parents=True)
    lines = [json.dumps({"text": text, "label": label}) for text, label in ROWS]
    (folder / "validation.jsonl").write_text("\n".join(lines))
    return folder.parent


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = {recipe.name: recipe for recipe in (TABLE, *FIGURES)}
    monkeypatch.setattr(everything, "reproductions", lambda: recipes)


@pytest.mark.long
def test_one_page_of_what_can_be_run(tmp_path: Path, data: Path, few: None) -> None:
    said: list[str] = []
    options: dict[str, Any] = {"data": data, "instead": {"sst2": "sentiment"}, "only": ["sst2", "imagenet"]}
    found = run_all(tmp_path / "out", say=said.append, **options)
    assert list(found.done) == ["attcat-table-1", "attcat-figure-4"]
    assert "--model imagenet=NAME" in found.refused["transformer-attribution-table-1"]
    assert said == [f"{name} ({n} of 3)" for n, name in enumerate((TABLE.name, *(f.name for f in FIGURES)), 1)]
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    listed = (tmp_path / "out" / "index.md").read_text(encoding="utf-8")
    for shown in (page, listed):
        assert "0.331" in shown, "the published number of RawAtt"
        assert "attcat-figure-4-sst2-0.png" in shown
        assert "transformer-attribution-table-1" in shown
        assert TABLE.title in shown
    assert (tmp_path / "out" / "attcat-figure-4-sst2-0.png").is_file()
    assert "## attcat-table-1" in listed
    assert "http" not in page.partition("</style>")[2], "nothing is fetched"
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == ["sst2-attcat-sst2"]


@pytest.mark.long
def test_recipes_of_the_same_data_share_a_journal(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = replace(TABLE, name="attcat-twin")
    monkeypatch.setattr(everything, "reproductions", lambda: {r.name: r for r in (TABLE, twin)})
    run_all(tmp_path / "out", data=data, instead={"sst2": "sentiment"}, only=["sst2"])
    journals = sorted(path.parent.name for path in (tmp_path / "out").rglob("journal.jsonl"))
    assert journals == ["protocol-attcat", "sst2-attcat-sst2"]
    sizes = {path: path.stat().st_size for path in (tmp_path / "out").rglob("journal.jsonl")}
    run_all(tmp_path / "out", data=data, instead={"sst2": "sentiment"}, only=["sst2"])
    assert {path: path.stat().st_size for path in sizes} == sizes, "nothing is measured twice"


@pytest.mark.long
def test_what_was_measured_elsewhere(tmp_path: Path, data: Path, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"data": data, "instead": {"sst2": "sentiment"}, "only": ["sst2"]}
    with pytest.raises(BadOption, match=r"measured=True \(--measured\) shows what a folder holds"):
        papers.run(TABLE, measured=True, **options)
    (before,) = [e for e in run_all(tmp_path / "out", **options).done.values() if e.reproduced.entries]
    monkeypatch.setattr(tables, "evaluate", lambda *_, **__: pytest.fail("it measures"))
    (after,) = [e for e in run_all(tmp_path / "out", measured=True, **options).done.values() if e.reproduced.entries]
    assert [e.ours for e in after.reproduced.entries] == [e.ours for e in before.reproduced.entries]
    assert any("measured before, on cpu with torch" in line for line in after.reproduced.footer)
    (data / "sst2" / "validation.jsonl").write_text(json.dumps({"text": "another text", "label": 1}))
    found = run_all(tmp_path / "out", measured=True, **options)
    assert "was measured with another data than sentiment on sst2@attcat" in found.refused[TABLE.name]
    found = run_all(tmp_path / "empty", measured=True, **options)
    assert "it was not measured (there are no results" in found.refused[TABLE.name]


def test_each_recipe_gets_the_options_that_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, dict[str, Any]] = {}

    def stand_in(recipe: Any, **options: Any) -> Any:
        asked[recipe.name] = options
        raise BadInput("not\nthis one")

    monkeypatch.setattr(everything, "run", stand_in)
    options: dict[str, Any] = {
        "heads": {"sst2": "a.json", "squad": "b.json"},
        "lm_heads": {"sst2": "folder"},
        "spacy": None,
        "instead": {"yelp": "imdb"},
    }
    found = run_all(tmp_path, limit={None: 5, "sst2": 7}, **options)
    waiting = {name for name, recipe in reproductions().items() if recipe.refusal}
    assert {reason for name, reason in found.refused.items() if name not in waiting} == {"not this one"}, "on one line"
    assert all(found.refused[name].startswith("waits for") for name in waiting), "without the name before it"
    assert set(asked) == set(reproductions()) - waiting
    table = asked["mask-lrp-table-1"]
    assert table["heads"] == {"sst2": "a.json"}
    assert table["instead"] == {"yelp": "imdb"}
    assert table["limit"] == {None: 5, "sst2": 7}
    assert "lm_heads" not in table
    assert asked["mask-lrp-table-2"]["limit"] == {None: 5}
    assert asked["mask-lrp-figure-6"]["limit"] is None, "figures of texts show one of each kind"
    assert "heads" not in asked["attcat-table-1"]
    assert asked["decoded-table-1"]["lm_heads"] == {"sst2": "folder"}
    asked.clear()
    found = run_all(tmp_path, only=["agnews"])
    assert set(asked) == set(found.refused), "of the others nothing is told"
    assert set(asked) == {
        name for name in reproductions() if any(c.folder == "agnews" for c in reproductions()[name].columns)
    }


def test_texts_that_the_papers_do_not_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[str]] = {}

    def stand_in(recipe: Any, *, only: list[str], **_: Any) -> Any:
        asked[recipe.name] = only
        raise BadInput("not now")

    monkeypatch.setattr(everything, "run", stand_in)
    run_all(tmp_path, printed_texts=True)
    assert asked["attcat-figure-5"] == ["squad", "sst2"]
    assert asked["mask-lrp-table-1"] == ["sst2", "imdb", "yelp", "nli", "qqp"], "numbers show no texts"
    assert "imdb" not in asked.get("mask-lrp-figure-6", [])


def test_columns_that_no_recipe_has(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no recipe has a column 'sst'; did you mean 'sst2'"):
        run_all(tmp_path, only=["sst"])
    with pytest.raises(BadOption, match="no recipe has a column 'sst'"):
        run_all(tmp_path, limit={"sst": 3})
    with pytest.raises(BadOption, match=r"one head mask, and there are many columns: write COLUMN=FILE"):
        run_all(tmp_path, heads="heads.json")


def test_nothing_in_a_reason_is_taken_for_the_page() -> None:
    refused = {"attcat-table-1": "there is no folder '<b>a_b_c</b>'"}
    page, listed = as_html({}, refused), as_markdown({}, refused)
    assert "no folder &#x27;&lt;b&gt;a_b_c&lt;/b&gt;&#x27;" in page
    assert "<b>" not in page.partition("</style>")[2] + listed
    shown = _table(Grid(("<i>",), [(Words("<b>", bold=True),), (Words("<u>"),)]))
    assert "<th>&lt;i&gt;</th>" in shown
    assert "<td><b>&lt;b&gt;</b></td>" in shown
    assert "<td>&lt;u&gt;</td>" in shown


def test_limits_by_column() -> None:
    assert given_limits([]) is None
    assert given_limits(["500", "sst2=872"]) == {None: 500, "sst2": 872}
    limits = {None: 500, "sst2": 872}
    settings = ReproductionSettings(**{field.name: None for field in fields(ReproductionSettings)} | {"limit": limits})  # type: ignore[arg-type]
    by_column = {column.folder: settings.limit_of(column) for column in TABLE.columns}
    assert by_column == {**dict.fromkeys(by_column, 500), "sst2": 872}
    for wrong in ("many", "sst2=", "=5", "0", "sst2=-1"):
        with pytest.raises(BadOption, match="written as N, or as COLUMN=N"):
            given_limits([wrong])
    with pytest.raises(BadOption, match="attcat-table-1 has no column 'sst'"):
        papers.run(reproduction_named("attcat-table-1"), limit={"sst": 3})


@pytest.mark.long
def test_the_command(tmp_path: Path, data: Path, few: None, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    flags = ("--data", data, "--model", "sst2=sentiment", "--only", "sst2", "--limit", "sst2=1", "--out", out)
    assert status_of("reproduce", "--all", *flags) == 0
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines()][1:] == [[TABLE.name, "done"], [FIGURES[0].name, "done"]]
    assert "wrote index.html and index.md" in shown.err
    assert "1 texts were measured (at most 1 were asked for)" in (out / "index.md").read_text(encoding="utf-8")
    assert status_of("reproduce", "--all") == 2
    assert "--all needs --out" in capsys.readouterr().err
    assert status_of("reproduce", "attcat-table-1", "--all", "--out", out) == 2
    assert "one recipe, or all of them" in capsys.readouterr().err
    assert status_of("reproduce", "attcat-table-1", "--printed-texts") == 2
    assert "--printed-texts is for --all" in capsys.readouterr().err
