"""The command `tokens`: the words that a model relies on."""

import csv
import json
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.commands import status_of
from tests.helpers.evaluated import in_order, own_registry, registered
from whyformer.evaluation.shortcuts import load_reports
from whyformer.prediction import Prediction

ROWS = [
    *("a gorgeous and witty film", "a dull and lifeless mess", "not bad at all", "a tedious film"),
    *("witty, witty, witty", "the worst film of the year"),
]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Texts in JSON lines; there is no pyarrow."""
    for name in ("pyarrow", "pyarrow.parquet", "datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "reviews.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": "whatever"}) + "\n" for text in ROWS))
    return path


@pytest.mark.long
def test_the_words_that_a_model_relies_on(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = ("POSITIVE", "NEGATIVE", "NEGATIVE", "NEGATIVE", "positive", 0)
    rows = [{"text": text, "y": label} for text, label in zip(ROWS, labels, strict=True)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page, words, out = (tmp_path / name for name in ("w.html", "w.csv", "t.json"))
    chosen = ("-m", "sentiment", "--data", data, "--label", "y", "--methods", "attn_lrp", "--lines", 3)
    assert status_of("tokens", *chosen, "--check", 2, "--html", page, "--out", words) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "attn_lrp: the words that the model relies on"
    assert lines[1].endswith("reviews.jsonl · 6 texts")
    assert lines[3].split("   ")[-1].strip() == "rows"
    assert "without it" in lines[3]
    assert "in the data" in lines[3]
    assert sum(" % → " in line for line in lines) == 3
    assert "deleted (2 texts)" in said.out
    assert "have no label" not in said.err
    written = list(csv.DictReader(words.read_text().splitlines()))
    assert {row["word"] for row in written} >= {"witty", "worst"}
    (witty,) = (row for row in written if row["word"] == "witty")
    assert (witty["texts"], witty["texts POSITIVE"], witty["rows"].split()) == ("2", "2", ["0", "4"])
    assert (witty["label"], float(witty["label_share"]), witty["checked"]) == ("POSITIVE", 1.0, "2")
    assert float(witty["after"]) < float(witty["before"])
    assert '<a href="#row-4">4</a>' in page.read_text()
    assert 'id="row-4"' in page.read_text()

    assert status_of("tokens", *chosen, "--wrong", "--check", 0, "--out", out) == 0
    said = capsys.readouterr()
    assert "1 text of which it is wrong" in said.out
    assert "without it" not in said.out
    assert [word.rows for word in load_reports(out)["attn_lrp"].words] == [(2,)] * 4
    assert status_of("tokens", "--from", out, "--html", page) == 0
    assert 'id="row-2"' in page.read_text()


def test_ctrl_c_prints_and_writes_what_is_done(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def stopping(prediction: Prediction) -> torch.Tensor:
        """Ctrl-C at the second batch."""
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return in_order(prediction)

    out = tmp_path / "t.json"
    with own_registry():
        registered(stopping)
        assert (
            status_of("tokens", "-m", "sentiment", "--data", data, "--methods", "stopping", "--chunk", 4, "--out", out)
            == 0
        )
    said = capsys.readouterr()
    assert "interrupted: this is of the first 4 texts" in said.err
    assert "stopping: the words that the model relies on" in said.out
    assert sum(load_reports(out)["stopping"].texts.values()) == 4


@pytest.mark.long
def test_what_was_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def choosy(prediction: Prediction) -> torch.Tensor:
        """Short texts alone."""
        from whyformer import BadInput

        if prediction.padding.shape[1] > 5:
            raise BadInput("too long for me")
        return in_order(prediction)

    (tmp_path / "t.csv").write_text("text\na film\n''\n\"\"\na witty film indeed\n" + "film " * 600 + "\n")
    with own_registry():
        registered(choosy)
        assert (
            status_of(
                "tokens",
                "-m",
                "sentiment",
                "--data",
                tmp_path / "t.csv",
                "--methods",
                "choosy,rollout",
                "--on-error",
                "skip",
            )
            == 0
        )
    said = capsys.readouterr().err
    assert "1 texts were cut at the model's window" in said
    assert "choosy refused 2 texts: too long for me" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --data"),
        (["--data", "DATA", "--from", "t.json"], "give --data"),
        (["--data", "DATA", "--format", "html"], "known are text, markdown"),
        (["--data", "DATA", "--lines", "0"], "at least 1"),
        (["--data", "DATA", "--out", "no/t.json"], "there is no folder 'no'"),
        (["--data", "DATA", "--out", "."], "could not write '.': it is a folder; give a file in it"),
        (["-m", "sentiment", "--data", "DATA", "--methods", "nothing"], "there is no method 'nothing'"),
        (["--from", "t.json", "--wrong"], "--wrong is for texts that are explained"),
        (["--from", "t.json", "--check", "0"], "--check is for texts that are explained"),
        (["--from", "t.json", "--label", "gold"], "--label is for texts that are explained"),
        (
            ["-m", "sentiment", "--data", "DATA", "--check", "-1"],
            "check=-1: a word is deleted from 0 (it is not checked) to 100 texts",
        ),
        (
            ["-m", "sentiment", "--data", "DATA", "--wrong"],
            "none of the 6 texts has a label of the model's (row 0: label 'whatever' is",
        ),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], said: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    assert status_of("tokens", *(str(data) if argument == "DATA" else argument for argument in arguments)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    error = [line for line in lines if "have no label of this model" not in line]
    assert len(error) == 1
    assert error[0].startswith("whyformer: error: ")
    assert said in error[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "folder"], "could not write 'folder': it is a folder"),
    ],
)
def test_what_cannot_be_written_or_read_is_said_before_anything_is_run(
    arguments: list[str], said: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    for name in ("folder", "folder.png"):
        Path(name).mkdir()
    monkeypatch.setattr("whyformer.cli.app.Loading.explainer", lambda *_: pytest.fail("a model was loaded"))
    assert status_of("tokens", "-m", "sentiment", "--data", data, *arguments) == 2
    assert said in capsys.readouterr().err
