"""The command `words`: words by class, what classes share, their pictures."""

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.commands import status_of
from tests.helpers.evaluated import alike, in_order, own_registry, registered
from whyformer.prediction import Prediction
from whyformer.tolerance import ROUNDING
from whyformer_papers.words.idf import Idf
from whyformer_papers.words.table import load_tables

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
def test_tables_are_printed_written_and_drawn(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, overlap, shared, clouds = (tmp_path / name for name in ("t.json", "o.png", "s.svg", "c.png"))
    files = ("--out", out, "--overlap", overlap, "--shared", shared, "--clouds", clouds)
    methods = ("--methods", "attn_lrp,attcat(states=inputs)", "--device", "cpu")
    assert status_of("words", "-m", "sentiment", "--data", data, *methods, "--top", 3, "--lines", 2, *files) == 0
    said = capsys.readouterr()
    assert "attn_lrp: two classes share 0.0 % of their top 3 words" in said.out
    assert "attcat(states=inputs): two classes" in said.out
    assert "NEGATIVE (3 texts)" in said.out
    assert "witty" in said.out
    assert [line.split()[-1] for line in said.err.splitlines()] == [
        str(path) for path in (out, overlap, shared, clouds)
    ]
    assert overlap.read_bytes().startswith(b"\x89PNG")
    assert clouds.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in shared.read_text()
    tables = load_tables(out)
    assert list(tables) == ["attn_lrp", "attcat(states=inputs)"]
    assert tables["attn_lrp"].top(1, "POSITIVE")[0].word == "witty"
    assert tables["attn_lrp"].provenance["idf"] == Idf.bundled().source

    assert status_of("words", "--from", out, "--format", "markdown", "--lines", 1, "--top", 3) == 0
    printed = capsys.readouterr().out
    assert "| classes | shared of the top 3 | words |" in printed
    assert printed.count("\n| 1 |") == 2


def test_the_words_of_an_evaluation(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "plain.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in ROWS))
    chosen = ("--methods", "rollout", "--metrics", "token_overlap", "--out", tmp_path / "run")
    assert status_of("evaluate", "-m", "sentiment", "--data", texts, *chosen) == 0
    capsys.readouterr()
    assert status_of("words", "--from", tmp_path / "run", "--out", tmp_path / "t.json") == 0
    assert capsys.readouterr().out.startswith("rollout: two classes share")
    assert sum(load_tables(tmp_path / "t.json")["rollout"].texts.values()) == len(ROWS)


def test_tokens_in_place_of_words(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.json"
    assert (
        status_of(
            "words",
            "-m",
            "sentiment",
            "--data",
            data,
            "--methods",
            "rollout",
            "--units",
            "token",
            "--once",
            "--out",
            out,
        )
        == 0
    )
    table = load_tables(out)["rollout"]
    assert table.provenance["counted"] == "tokens, each once a text"
    assert any(word.startswith("##") for words in table.totals.values() for word in words)
    capsys.readouterr()
    texts = tmp_path / "plain.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in ROWS))
    metrics = "token_overlap,token_overlap(units=token, once=true)"
    run = ("--methods", "rollout", "--metrics", metrics, "--out", tmp_path / "run")
    assert status_of("evaluate", "-m", "sentiment", "--data", texts, *run) == 0
    assert status_of("words", "--from", tmp_path / "run") == 2
    assert "say which" in capsys.readouterr().err
    other = tmp_path / "other.json"
    assert status_of("words", "--from", tmp_path / "run", "--units", "token", "--once", "--out", other) == 0
    again = load_tables(other)["rollout"]
    assert alike(again.totals, table.totals, torch.float32)
    assert status_of("words", "--from", tmp_path / "run", "--units", "word", "--out", other) == 0
    assert "counted" not in load_tables(other)["rollout"].provenance


@pytest.mark.long
def test_weights(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "idf.csv").write_text("word,idf\nfilm,100\nwitty,0\nelse,0\n")
    found = {}
    for name in ("none", "data", f"corpus:{data}", tmp_path / "idf.csv"):
        out = tmp_path / "t.json"
        assert (
            status_of("words", "-m", "sentiment", "--data", data, "--methods", "rollout", "--idf", name, "--out", out)
            == 0
        )
        found[str(name)] = load_tables(out)["rollout"].totals
        capsys.readouterr()
    plain, weighted = found["none"], found[str(tmp_path / "idf.csv")]
    for index, words in plain.items():
        assert weighted[index]["film"] == pytest.approx(100 * words["film"], rel=ROUNDING[torch.float32])
        assert weighted[index].get("witty", 0.0) == 0.0
    counted = Idf.of(ROWS)
    for index, words in plain.items():
        expected = {word: score * counted[word] for word, score in words.items()}
        assert found["data"][index] == pytest.approx(expected, rel=ROUNDING[torch.float32])
    assert alike(found["data"], found[f"corpus:{data}"], torch.float32)


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
            status_of("words", "-m", "sentiment", "--data", data, "--methods", "stopping", "--chunk", 4, "--out", out)
            == 0
        )
    said = capsys.readouterr()
    assert "interrupted: this is of the first 4 texts" in said.err
    assert "stopping: two classes share" in said.out
    assert sum(load_tables(out)["stopping"].texts.values()) == 4


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
                "words",
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
        (["--from", "t.json", "--idf", "none"], "leave them out"),
        (["--from", ".", "--idf", "data"], "give corpus:DATA"),
        (["--from", "t.json", "--once"], "leave them out"),
        (["--data", "DATA", "--units", "letter"], "option units takes word | token; found 'letter'"),
        (["--data", "DATA", "--format", "html"], "known are text, markdown"),
        (["--data", "DATA", "--top", "0"], "at least 1"),
        (["--data", "DATA", "--overlap", "o.txt"], "is no picture"),
        (["--data", "DATA", "--out", "no/t.json"], "there is no folder 'no'"),
        (["--data", "DATA", "--out", "."], "could not write '.': it is a folder; give a file in it"),
        (["-m", "sentiment", "--data", "DATA", "--methods", "nothing"], "there is no method 'nothing'"),
        (["-m", "sentiment", "--data", "DATA", "--idf", "no.csv"], "could not read the word frequencies"),
        (
            ["-m", "sentiment", "--data", "DATA", "--limit", "1", "--overlap", "o.png"],
            "the model calls all 1 texts POSITIVE",
        ),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], said: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    assert status_of("words", *(str(data) if argument == "DATA" else argument for argument in arguments)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("whyformer: error: ")
    assert said in lines[0]


def test_a_missing_extra_is_said_before_anything_is_run(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wordcloud", None)
    monkeypatch.setattr("whyformer.cli.app.Loading.explainer", lambda *_: pytest.fail("a model was loaded"))
    assert status_of("words", "-m", "sentiment", "--data", data, "--clouds", data.parent / "c.png") == 2
    assert "pip install wordcloud" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "folder"], "could not write 'folder': it is a folder"),
        (["--overlap", "folder.png"], "could not write 'folder.png': it is a folder"),
        (["--clouds", "c.png", "--font", "none.ttf"], "could not read the font 'none.ttf'"),
        (["--clouds", "c.png", "--font", "reviews.jsonl"], "could not read the font 'reviews.jsonl'"),
        (["--clouds", "c.png", "--font", "folder"], "could not read the font 'folder'"),
    ],
)
def test_what_cannot_be_written_or_read_is_said_before_anything_is_run(
    arguments: list[str], said: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    for name in ("folder", "folder.png"):
        Path(name).mkdir()
    monkeypatch.setattr("whyformer.cli.app.Loading.explainer", lambda *_: pytest.fail("a model was loaded"))
    assert status_of("words", "-m", "sentiment", "--data", data, *arguments) == 2
    assert said in capsys.readouterr().err
