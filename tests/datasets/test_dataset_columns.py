"""Which columns are read, which rows are bad, and what a label means."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.rows import write_csv, write_jsonl, write_parquet
from whyformer.datasets import label_index, open_dataset
from whyformer.errors import BadInput, BadOption


@pytest.mark.parametrize(
    ("row", "text", "label"),
    [
        ({"sentence": "a", "label": 1, "idx": 0}, "a", 1),
        ({"Text": "a", "Target": "x"}, "a", "x"),
        ({"title": "t", "content": "a", "label": 0}, "a", 0),
        ({"premise": "a", "hypothesis": "b", "gold_label": "neutral"}, ("a", "b"), "neutral"),
        ({"question1": "a", "question2": "b", "label": 1}, ("a", "b"), 1),
        ({"sentence1": "a", "sentence2": "b"}, ("a", "b"), None),
        ({"question": "a", "context": "b"}, ("a", "b"), None),
        ({"review": "a", "label": -1}, "a", None),
        ({"review": "a", "label": True}, "a", 1),
        ({"review": "a", "label": 1.0}, "a", 1),
        ({"review": "a", "label": "2"}, "a", 2),
    ],
)
def test_columns_are_found_by_convention(tmp_path: Path, row: dict[str, Any], text: Any, label: Any) -> None:
    (only,) = open_dataset(write_jsonl(tmp_path / "a.jsonl", [row]))
    assert (only.text, only.label, only.answers) == (text, label, None)


def test_columns_are_named(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "no", "body": "a", "other": "b", "y": "1"}])
    (one,) = open_dataset(path, columns={"text": "body", "label": "y"})
    assert (one.text, one.label, one.meta) == ("a", 1, {"text": "no", "other": "b"})
    (pair,) = open_dataset(path, columns={"text": ("body", "other")})
    assert pair.text == ("a", "b")


@pytest.mark.parametrize(
    ("names", "columns", "message"),
    [
        (["text", "sentence"], None, r"the text may be text or sentence; .*found text, sentence"),
        (["premise", "hypothesis", "text"], None, r"premise \+ hypothesis or text"),
        (["text", "label", "target"], None, r"the label may be 'label' or 'target'"),
        (["a", "b"], None, r"no text column is known by its name; .*found a, b"),
        (["a", "b"], {"text": "c"}, r"no column 'c' for text: .*a, b"),
        (["text", "answers"], {"answers": "answers"}, r"answers need a question"),
    ],
)
def test_what_is_ambiguous_or_missing_is_refused(
    tmp_path: Path, names: list[str], columns: Mapping[str, str] | None, message: str
) -> None:
    path = write_csv(tmp_path / "a.csv", [dict.fromkeys(names, "x")])
    with pytest.raises(BadInput, match=message):
        open_dataset(path, columns=columns)


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"text": "x"}])
    with pytest.raises(BadOption, match="did you mean 'label'"):
        open_dataset(path, columns={"labl": "text"})
    with pytest.raises(BadOption, match="one column or a pair"):
        open_dataset(path, columns={"text": ("text", "text", "text")})
    with pytest.raises(BadOption, match=r"on_error takes refuse \| skip; found 'ignore'"):
        open_dataset(path, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="has no splits"):
        open_dataset(path, split="test")
    with pytest.raises(BadOption, match="local= is for recipes"):
        open_dataset(path, local=tmp_path)


BAD: list[tuple[Any, str]] = [
    ({"text": "", "label": 0}, "'text' is empty"),
    ({"text": " \n", "label": 0}, "'text' is empty"),
    ({"text": None, "label": 0}, "no value for 'text'"),
    ({"label": 0}, "no value for 'text'"),
    ({"text": 7, "label": 0}, "'text' is int, not text"),
    ({"text": "a\ud800", "label": 0}, "'text' is not valid UTF-8; a file has to be saved as UTF-8"),
    ({"text": "a"}, "no value for 'label'"),
    ({"text": "a", "label": ""}, "the label is empty"),
    ({"text": "a", "label": 0.5}, "the label is 0.5, neither a name nor an index"),
    ({"text": "a", "label": 2}, "label 2 is outside 0 … 1 (no, yes)"),
    ({"text": "a", "label": "maybe"}, "label 'maybe' is none of the labels: known: no, yes"),
    ([1], "not a JSON object"),
]


@pytest.mark.parametrize(("row", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_bad_rows_are_refused_with_their_number_or_skipped(tmp_path: Path, row: Any, reason: str) -> None:
    good = {"text": "fine", "label": "yes"}
    path = write_jsonl(tmp_path / "a.jsonl", [good, good, row, good])
    with pytest.raises(BadInput) as error:
        list(open_dataset(path, labels=["no", "yes"]))
    assert str(error.value).startswith(f"{path}, row 2 (counted from 0): {reason}; on_error='skip'")
    data = open_dataset(path, labels=["no", "yes"], on_error="skip")
    for _ in range(2):
        assert [(e.row, e.label) for e in data] == [(0, 1), (1, 1), (3, 1)]
        assert [(bad.row, bad.reason) for bad in data.skipped] == [(2, reason)]
    with pytest.raises(TypeError):
        len(data)


def test_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbftext,label\r\nfine,1\r\n\r\na,b,c\r\n\xff,1\r\n" + b"x" * 200_000 + b",0\r\n")
    data = open_dataset(path, on_error="skip")
    assert [(e.row, e.label) for e in data] == [(0, 1), (3, 0)]
    assert [(b.row, b.reason) for b in data.skipped] == [
        (1, "3 fields where the header has 2"),
        (2, "'text' is not valid UTF-8; a file has to be saved as UTF-8"),
    ]
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"text": "a"}\n\n{"text": \n{"text": "b"}')
    data = open_dataset(lines, on_error="skip")
    assert [(e.row, e.text) for e in data] == [(0, "a"), (2, "b")]
    assert data.skipped[0].row == 1
    assert data.skipped[0].reason.startswith("not JSON")


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", ""), ("b.csv", "a,a\n1,2\n"), ("c.jsonl", "\n"), ("d.parquet", "x")]
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=name):
        open_dataset(tmp_path / name)


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    for source, message in (
        ("nowhere.csv", "no file or folder"),
        (tmp_path / "nowhere", "no file or folder"),
        ("csv:nowhere", "no file 'nowhere'"),
        ("a/b/c/d", "no file or folder"),
        (tmp_path / "notes.txt", "not known by its ending"),
        (tmp_path / "empty", "holds no data"),
    ):
        with pytest.raises(BadInput, match=message):
            open_dataset(source)


def test_heavy_columns_are_not_read(tmp_path: Path) -> None:
    rows = [{"text": "a", "image": {"bytes": b"xx"}, "idx": 3, "long": "x" * 999}]
    (only,) = open_dataset(write_parquet(tmp_path / "a.parquet", rows))
    assert only.meta == {"idx": 3}


@pytest.mark.parametrize(
    ("label", "index"),
    [(0, 0), (2, 2), ("POSITIVE", 1), ("positive", 1), ("POS", 1), ("sci tech", 2), ("Sci/Tech", 2), ("1", 1)],
)
def test_label_index(label: int | str, index: int) -> None:
    assert label_index(label, ["NEGATIVE", "POSITIVE", "Sci-Tech"]) == index


@pytest.mark.parametrize("label", [3, -1, "NEGATIV E S", "NE", "7", "", True, None, 1.0])
def test_labels_that_are_none(label: Any) -> None:
    with pytest.raises(BadInput, match="label"):
        label_index(label, ["NEGATIVE", "POSITIVE", "Sci-Tech"])


def test_a_name_comes_before_a_number() -> None:
    assert label_index("1", ["1", "0"]) == 0
    assert label_index("entail", ["entailment", "not_entailment"]) == 0
    with pytest.raises(BadInput):
        label_index("same", ["same a", "same b"])
