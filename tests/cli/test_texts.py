"""The texts that commands are given in files and on standard input: texts alone, never a header or a label."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import transformers as hf

from whyformer.cli import main
from whyformer.models.load import BUNDLED

ROWS = [("a good, witty film", "NEGATIVE"), ("an awful bore", "POSITIVE")]
Explained = Callable[..., list[list[str]]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def with_model(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the bundled model unless one is named."""
    return [*arguments, *([] if "-m" in arguments else ["-m", "sentiment"])]


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Explained:
    """The texts that were explained."""

    def explained(*arguments: str) -> list[list[str]]:
        with pytest.raises(SystemExit, match="0"):
            main(["explain", "--json", "--method", "attcat", *with_model(arguments)])
        return [json.loads(line)["texts"] for line in capsys.readouterr().out.splitlines()]

    return explained


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The line that says why."""

    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit, match="2"):
            main(["explain", *with_model(arguments)])
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        return said.err

    return refused


def write_parquet(path: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(arrow.table({"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}), path)


@pytest.mark.parametrize("ending", ["csv", "CSV", "tsv", "jsonl", "parquet"])
def test_the_texts_of_a_data_file_are_explained_without_its_labels(ending: str, explained: Explained) -> None:
    path = f"reviews.{ending}"
    if ending == "parquet":
        write_parquet(path)
    elif ending == "jsonl":
        Path(path).write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS))
    else:
        comma = "\t" if ending == "tsv" else ","
        lines = [f"text{comma}label", *(f'"{text}"{comma}{label}' for text, label in ROWS)]
        Path(path).write_text("\ufeff" + "\r\n".join(lines) + "\r\n")
    assert explained("--file", path) == [[text] for text, _ in ROWS]


def test_columns_are_named_and_bad_rows_skipped(
    explained: Explained, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("two.csv").write_text("body,comment\na good film,mine\n,empty\n")
    assert "the text may be body or comment" in refused("--file", "two.csv")
    assert explained("--file", "two.csv", "--text", "comment") == [["mine"], ["empty"]]
    assert "--on-error skip" in refused("--file", "two.csv", "--text", "body")
    assert explained("--file", "two.csv", "--text", "body", "--on-error", "skip") == [["a good film"]]
    assert explained("--file", "two.csv", "--text", "comment,body", "--on-error", "skip") == [["mine", "a good film"]]
    assert "known are refuse, skip" in refused("--file", "two.csv", "--on-error", "stop")
    assert "give that with --file" in refused("a film", "--text", "body")
    assert "there is no file" in refused("--file", "none.csv")


@pytest.mark.parametrize(
    "first", ["text,label", '"text","label"', "Sentence\tid\tLabel", "premise;hypothesis", '{"text": "a", "label": 1}']
)
@pytest.mark.parametrize("way", ["file", "stdin"])
def test_a_table_under_another_name_is_refused_with_advice(
    first: str, way: str, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = f"{first}\na good film,1\n"
    Path("reviews.txt").write_text(content)
    monkeypatch.setattr(sys, "stdin", io.StringIO(content))
    said = refused("--file", "reviews.txt") if way == "file" else refused()
    assert "looks like " in said
    assert "ends in .csv, .tsv or .jsonl" in said


@pytest.mark.parametrize("first", ["text, label and all that", "a good film, truly", "{not json", "review", "a,b"])
def test_sentences_are_no_tables(first: str, explained: Explained) -> None:
    Path("reviews.txt").write_text(f"{first}\na film\n")
    assert explained("--file", "reviews.txt") == [[first], ["a film"]]


def test_lines(explained: Explained, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lines.txt").write_bytes(b"\xef\xbb\xbfa good film\r\n\r\nan awful bore\r\n")
    assert "line 2 of 'lines.txt' is empty; --on-error skip" in refused("--file", "lines.txt")
    assert explained("--file", "lines.txt", "--on-error", "skip") == [["a good film"], ["an awful bore"]]
    assert "'lines.txt' has none" in refused("--file", "lines.txt", "--text", "body")
    Path("latin.txt").write_bytes(b"fine\nfine\ncaf\xe9\n")
    assert "could not read the file 'latin.txt': line 3 is not UTF-8" in refused("--file", "latin.txt")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    assert "the text on standard input is not UTF-8" in refused()
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeffa good film\nof two lines\n"))
    assert explained() == [["a good film\nof two lines"]]


@pytest.mark.parametrize("name", ["cat.jpg", "CAT.PNG"])
def test_an_image_is_no_file_of_texts(name: str, refused: Callable[..., str]) -> None:
    Path(name).write_bytes(b"\xff\xd8\xff")
    assert f"'{name}' is an image by its name, and --file is of texts: give --image '{name}'" in refused("--file", name)


def test_long_lines(explained: Explained) -> None:
    long = "a" * 100_000
    Path("long.txt").write_text(f"{long}\n")
    assert explained("--file", "long.txt") == [[long]]


def test_questions_in_a_data_file(explained: Explained, refused: Callable[..., str]) -> None:
    config = hf.BertConfig(
        vocab_size=12000, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    hf.BertForQuestionAnswering(config).save_pretrained("answers")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        Path("answers", name).write_bytes((BUNDLED / "sentiment" / name).read_bytes())
    Path("asked.jsonl").write_text('{"question": "what is it", "context": "it is a film"}\n')
    assert explained("--file", "asked.jsonl", "-m", "answers") == [["what is it", "it is a film"]]
    Path("lines.txt").write_text("a film\n")
    assert "needs the columns question and context" in refused("--file", "lines.txt", "-m", "answers")


def test_heads_of_a_data_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("reviews.csv").write_text("text,label\na good film,1\nan awful bore,0\n")
    with pytest.raises(SystemExit, match="0"):
        main(["heads", "--texts", "reviews.csv", "--out", "mask.json"])
    assert "6 × 12 heads" in capsys.readouterr().out
    assert json.loads(Path("mask.json").read_text())["provenance"]["sentences"] == 2
