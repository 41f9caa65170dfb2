"""Data sets explained into a folder: one command, which can be stopped and goes on."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import cases, evaluated
from tests.helpers.commands import Run, replaced
from whyformer import Explainer, Explanations
from whyformer.explain.folder import explained_examples
from whyformer.tolerance import close

COUNT = 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    cases.subject().model.save_pretrained(folder)
    cases.subject().tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def asked(model: Path, tmp_path: Path) -> list[Any]:
    data = evaluated.data(tmp_path, COUNT)
    return ["explain", "-m", model, "--method", "input_x_gradient", "--data", data, "--batch-size", 4]


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / "table.csv").read_text(encoding="utf-8"))))


def test_a_page_and_a_table_are_written(asked: list[Any], tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    status, printed, told = run(*asked, "--out", out)
    assert (status, told.splitlines()[-1]) == (0, f"whyformer: wrote index.html and table.csv to {out}")
    assert len(printed.splitlines()) == COUNT + 3
    assert printed.startswith(f"Explanations of {COUNT} texts: ")
    rows = table(out)
    assert [row["text"] for row in rows] == evaluated.texts(COUNT)
    assert [int(row["row"]) for row in rows] == list(range(COUNT))
    assert all(row["label"] in cases.subject().labels for row in rows)
    assert '"rows":[' in (out / "index.html").read_text(encoding="utf-8")
    loaded = Explanations.load(out)
    alone = Explainer(cases.subject()).explain(evaluated.texts(COUNT)[3], "input_x_gradient")
    assert close(loaded[3].scores, alone.scores)
    assert loaded.labels == tuple(row["label"] for row in rows)


def test_an_interrupted_run_goes_on(
    asked: list[Any], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = tmp_path / "out", []
    explain = Explainer.explain

    def stopped(self: Explainer, **options: Any) -> Any:
        calls.append(options["text"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return explain(self, **options)

    monkeypatch.setattr(Explainer, "explain", stopped)
    status, _, told = run(*asked, "--out", out)
    assert status == 130
    assert f"what is done is in {out}; the same command goes on" in told
    assert [e.row for e in explained_examples(out)] == [0, 1, 2, 3]
    assert not (out / "table.csv").exists()
    told_of: list[tuple[int, int]] = []
    monkeypatch.setattr("whyformer.explain.folder.report", lambda *done: told_of.append(done))
    assert run(*asked, "--out", out).status == 0
    assert told_of[:3] == [(1, 3), (2, 3), (0, COUNT)]
    texts = evaluated.texts(COUNT)
    assert calls[2:] == [texts[4:8], texts[8:]]
    assert [row["text"] for row in table(out)] == texts
    assert run(*asked, "--out", out).status == 0
    assert len(calls) == 4


def test_a_limit_can_be_raised(asked: list[Any], tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    for limit in (3, 7):
        assert run(*asked, "--out", out, "--limit", limit).status == 0
        assert [int(row["row"]) for row in table(out)] == list(range(limit))


@pytest.mark.parametrize(
    ("other", "flags", "told"),
    [
        ({}, ("--target", 1), "asked.target asked for: '1', found: None"),
        ({"method": "attcat"}, (), "methods asked for"),
        ({}, ("--words",), "asked.words asked for: 'True', found: 'False'"),
    ],
)
def test_another_run_in_the_folder_is_refused(
    asked: list[Any], tmp_path: Path, run: Run, other: dict[str, str], flags: tuple[Any, ...], told: str
) -> None:
    out = tmp_path / "out"
    assert run(*asked, "--out", out, "--limit", 2).status == 0
    refused = run(*replaced(asked, **other), "--out", out, "--limit", 2, *flags)
    assert refused.status == 2
    assert told in refused.err


def test_other_data_in_the_folder_is_refused(asked: list[Any], tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    assert run(*asked, "--out", out).status == 0
    (tmp_path / "other.csv").write_text("text\na film\n", encoding="utf-8")
    refused = run(*replaced(asked, data=tmp_path / "other.csv"), "--out", out)
    assert (refused.status, "holds another run" in refused.err) == (2, True)
    reported = run("report", out)
    assert (reported.status, "holds explanations, and no evaluation: open index.html" in reported.err) == (2, True)


def test_bad_rows_are_named_by_their_numbers(asked: list[Any], tmp_path: Path, run: Run) -> None:
    data, out = tmp_path / "bad.jsonl", tmp_path / "out"
    lines = [{"text": "a film", "label": "five stars"}, {"text": "", "label": ""}, "no object"]
    lines.append({"text": "fine", "label": None})
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    refused = run(*replaced(asked, data=data), "--out", out)
    assert (refused.status, "row 1 (counted from 0): 'text' is empty" in refused.err) == (2, True)
    done = run(*replaced(asked, data=data), "--out", out, "--on-error", "skip")
    assert "rows that were skipped: 2; row 1 (counted from 0): 'text' is empty" in done.err
    assert [(row["row"], row["label"], row["right"]) for row in table(out)] == [("0", "five stars", ""), ("3", "", "")]
    loaded = Explanations.load(out)
    assert (loaded.rows, [row for row, _ in loaded.skipped]) == ((0, 3), [1, 2])


def test_without_a_folder_there_is_a_short_table(asked: list[Any], tmp_path: Path, run: Run) -> None:
    page, saved = tmp_path / "page.html", tmp_path / "all.jsonl"
    status, printed, told = run(*asked, "--html", page, "--out", saved)
    assert (status, printed.splitlines()[0].startswith("Explanations of 10 texts: ")) == (0, True)
    assert f"wrote {page}" in told
    assert len(Explanations.load(saved)) == COUNT
    lines = run(*asked, "--json").out.splitlines()
    assert [json.loads(line)["row"] for line in lines] == list(range(COUNT))


def test_methods_are_compared(asked: list[Any], tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    compare = ["compare", *asked[1:3], "--methods", "attcat,rollout", *asked[5:7], "--limit", 3]
    refused = run(*compare)
    assert (refused.status, "give --out FOLDER" in refused.err) == (2, True)
    assert run(*compare, "--out", out).status == 0
    assert [(row["row"], row["method"]) for row in table(out)] == [
        (str(n), m) for n in range(3) for m in ("attcat", "rollout")
    ]
    assert [[e.method for e in one.explanations] for one in explained_examples(out)] == [["attcat", "rollout"]] * 3


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--data", "x.csv", "a text"), "--data stands alone: leave TEXT out"),
        (("--data", "x.csv", "--file", "y"), "--data stands alone: leave --file out"),
        (("a text", "--limit", 3), "--limit is of a data set: give that with --data"),
        (("a text", "--label", "y"), "--label is of a data set"),
        (("--data", "x.csv", "--out", "folder", "--json"), "leave --html and --json out"),
    ],
)
def test_flags_that_do_not_go_together(run: Run, flags: tuple[Any, ...], told: str) -> None:
    refused = run("explain", *flags)
    assert (refused.status, told in refused.err) == (2, True)


def test_a_file_that_cannot_be_written_is_no_folder(tmp_path: Path, run: Run) -> None:
    data = tmp_path / "texts.csv"
    data.write_text("text\na fine film\n")
    for name in ("table.xlsx", "page.docx"):
        status, _, error = run("explain", data, "-m", "sentiment", "--out", tmp_path / name)
        assert status == 2
        assert "is no file ending that can be written; known: .csv" in error
        assert not (tmp_path / name).exists()
