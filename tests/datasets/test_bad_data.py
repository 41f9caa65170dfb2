"""Data that is damaged, hostile or odd: one bad row is one bad row, and every error names file, row and reason."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.rows import write_csv, write_jsonl, write_parquet
from whyformer.datasets import Dataset, open_dataset
from whyformer.datasets.hub import _check_files
from whyformer.errors import BadInput, BadOption, listed, shown
from whyformer.storage.files import LONGEST_TEXT

DEEP = "[" * 100_000
DIGITS = "9" * 5_000
GOOD = {"text": "fine", "label": 1}


def skipped(data: Dataset) -> dict[int, str]:
    """The reasons of all bad rows by their numbers."""
    assert [example.row for example in data]
    return {bad.row: bad.reason for bad in data.skipped}


BAD_LINES = [
    (json.dumps({"text": "a", "label": [{"a": 1}]}), "not one name or index for each annotator"),
    (json.dumps({"text": "a", "label": [[1]]}), "not one name or index for each annotator"),
    (json.dumps({"text": "a", "label": {"label": {}}}), "neither a name nor an index"),
    (f'{{"text": "a", "label": {"[" * 500}{"]" * 500}}}', "not one name or index"),
    (f'{{"text": "a", "label": {DIGITS}}}', "not JSON: Exceeds the limit"),
    (json.dumps({"text": "a", "label": DIGITS}), "a number of 5,000 digits, too large for an index"),
    (json.dumps({"text": "a", "label": 10**30}), "too large for an index"),
    (DEEP, "not JSON: its brackets are nested too deeply"),
    ("{}", "an empty object"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=[reason for _, reason in BAD_LINES])
def test_one_bad_line_does_not_end_the_run(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([json.dumps(GOOD), line, json.dumps(GOOD)]))
    data = open_dataset(path, on_error="skip")
    assert [example.row for example in data] == [0, 2]
    assert reason in data.skipped[0].reason
    with pytest.raises(BadInput, match=r"a\.jsonl, row 1 \(counted from 0\): ") as error:
        list(open_dataset(path))
    assert reason in str(error.value)
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (["0"], ["1"], "two whole numbers are needed"),
        ([0.5], [1.5], "two whole numbers are needed"),
        ([True], [2], "two whole numbers are needed"),
        ([float("nan")], [1], "two whole numbers are needed"),
        (0, 1, "not two lists of the same length"),
        ([0], [1, 2], "not two lists of the same length"),
        ([-1], [1], "outside the 3 tokens"),
        ([2], [1], "outside the 3 tokens"),
        ([10**300], [10**301], "outside the 3 tokens"),
    ],
)
def test_rationales_that_are_no_tokens(tmp_path: Path, start: Any, end: Any, reason: str) -> None:
    row = {"text": "a fine film", "label": 1, "evidence_start_token": [0.0], "evidence_end_token": [2]}
    rows = [row, {**row, "evidence_start_token": start, "evidence_end_token": end}]
    assert reason in skipped(open_dataset(write_jsonl(tmp_path / "a.jsonl", rows), on_error="skip"))[1]


def test_large_labels_keep_every_digit(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"text": "a", "label": "900719925474099301"}, {"text": "b", "label": "-1.0"}])
    assert [example.label for example in open_dataset(path)] == [900719925474099301, None]


def test_a_file_of_bad_rows_says_why_and_an_empty_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("x\ny\n")
    (tmp_path / "a.conll").write_text("x\ny\n")
    for name, count in (("a.jsonl", 2), ("a.conll", 1)):
        with pytest.raises(
            BadInput, match=rf"{name} holds no rows that can be used: {count} cannot, .* because: (not JS|tok)"
        ):
            open_dataset(tmp_path / name)
    (tmp_path / "a.csv").write_text("text,label\n")
    empty = pa.table({"text": pa.array([], pa.string())})
    pq.write_table(empty, tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text('{"data": []}')
    for name in ("a.csv", "a.parquet", "a.json"):
        with pytest.raises(BadInput, match=f"{name} holds no rows"):
            list(open_dataset(tmp_path / name).chunks(16))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.conll", "a.json", "a.parquet"])
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    path.write_text("x")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(pq, "ParquetFile", refuse)
    with pytest.raises(BadInput, match=f"{name}.*Permission denied"):
        list(open_dataset(path))


def test_a_damaged_csv_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\na,1\n" + "x" * (LONGEST_TEXT + 1) + ",1\nb\rc,0\nd,1\n")
    reasons = skipped(open_dataset(path, on_error="skip"))
    assert reasons[1] == f"not CSV: field larger than field limit ({LONGEST_TEXT})"
    assert reasons[2].startswith("not CSV: new-line character seen in unquoted field")
    write(path, 'text,label\na,1\n"b' + f"{'x' * 4_000},1\n" * 5_000)
    with pytest.raises(BadInput, match=r"a\.csv: the row from line 3 on has no end .* is a quote not closed\?"):
        list(open_dataset(path, on_error="skip"))


def test_a_text_has_a_longest_length_in_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LONGEST_TEXT == 16_777_216
    monkeypatch.setattr("whyformer.datasets.parsing.LONGEST_TEXT", 1_000)
    rows = [GOOD, {"text": "x " * 501, "label": 1}]
    write_csv(tmp_path / "a.csv", rows)
    write_jsonl(tmp_path / "a.jsonl", rows)
    write_parquet(tmp_path / "a.parquet", rows)
    (tmp_path / "a.conll").write_text("fine 1\n\n" + "x 1\n" * 501)
    for name in ("a.csv", "a.jsonl", "a.parquet", "a.conll"):
        reason = skipped(open_dataset(tmp_path / name, on_error="skip"))[1]
        assert reason.endswith("characters, more than the 1,000 of the longest text")
    assert 1 in skipped(open_dataset(rows, on_error="skip"))


def test_damaged_parquet(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [{"text": f"a film {i}", "label": i % 2} for i in range(2_000)])
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xfe" * 500 + content[504:])
    with pytest.raises(BadInput, match=r"a\.parquet cannot be read as Parquet: "):
        list(open_dataset(path, on_error="skip"))
    path.write_bytes(content[:-20])
    with pytest.raises(BadInput, match=r"a\.parquet cannot be read as Parquet: "):
        open_dataset(path)
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), path)
    with pytest.raises(BadInput, match="needs a different name for each column; found text, text"):
        open_dataset(path)
    texts = pa.array([b"ok", b"\xff\xfe", b"fine"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": texts}), path)
    assert skipped(open_dataset(path, on_error="skip"))[1].startswith("not readable: 'utf-8' codec")


def paragraph(answers: Any, **more: Any) -> dict[str, Any]:
    return {"context": "In Paris.", "qas": [{"question": "Where?", "id": "1", "answers": answers, **more}]}


WRONG_ANSWERS: list[tuple[Any, str]] = [
    ([{"text": "Paris", "answer_start": -6}], "does not stand at character -6"),
    ([{"text": "Paris", "answer_start": 900}], "does not stand at character 900"),
    ([{"text": "Paris", "answer_start": 0}], "does not stand at character 0"),
    ([{"text": "", "answer_start": 0}], "an answer is empty"),
    ([{"text": "Paris", "answer_start": "3"}], "is not a text with its first character's number"),
    ([{"text": "Paris", "answer_start": True}], "is not a text with its first character's number"),
    ([{"text": 5, "answer_start": 3}], "is not a text with its first character's number"),
    ([{}], "is not a text with its first character's number"),
    (["Paris"], "'answers' has 'Paris' in it, which is not an object"),
    ("Paris", "'answers' is 'Paris', not a list"),
    (7, "'answers' is 7, not a list"),
]


@pytest.mark.parametrize(("answers", "reason"), WRONG_ANSWERS, ids=[reason for _, reason in WRONG_ANSWERS])
def test_a_wrong_answer_is_a_bad_row_and_not_an_unanswered_question(tmp_path: Path, answers: Any, reason: str) -> None:
    good = paragraph([{"text": "Paris", "answer_start": 3}])
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [good, paragraph(answers), good]}]}))
    data = open_dataset(path, on_error="skip")
    assert [example.row for example in data] == [0, 2]
    assert reason in data.skipped[0].reason
    with pytest.raises(BadInput, match=r"dev\.json, row 1 \(counted from 0\)"):
        list(open_dataset(path))


@pytest.mark.parametrize("block", [64, 1 << 20])
def test_what_is_no_article_paragraph_or_question_is_a_bad_row(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whyformer.datasets.text_files.BLOCK", block)
    good = json.dumps({"title": "}", "paragraphs": [paragraph([{"text": "Paris", "answer_start": 3}])]})
    articles = [
        *(good, '"x"', "5", '{"paragraphs": 5}', '{"paragraphs": ["x"]}', '{"paragraphs": [{"qas": "x"}]}'),
        *('{"paragraphs": [{"qas": [7]}]}', f'{{"paragraphs": {"[" * 5_000}{"]" * 5_000}}}', f'{{"a": {DIGITS}}}'),
        *('{"a" "b}"}', json.dumps({"paragraphs": [paragraph([], is_impossible="no")]}), good),
    ]
    path = tmp_path / "dev.json"
    path.write_text('{"version": "2", "data": [' + ", ".join(articles) + "]}")
    data = open_dataset(path, on_error="skip")
    assert [example.row for example in data] == [0, len(articles) - 1]
    reasons = [bad.reason for bad in data.skipped]
    assert reasons[:2] == ["article 1 is 'x', not an object", "article 2 is 5, not an object"]
    assert reasons[2] == "'paragraphs' is 5, not a list"
    assert reasons[6].startswith(("article 7 is not JSON", "'paragraphs' has "))  # how deep Python reads, depends on it
    assert reasons[7].startswith("article 8 is not JSON: Exceeds the limit")
    assert reasons[8].startswith("article 9 is not JSON")
    assert reasons[9] == "'is_impossible' is 'no', neither true nor false"


def evidence(name: Any, start: Any = 0, end: Any = 1) -> list[list[dict[str, Any]]]:
    return [[{"docid": name, "start_token": start, "end_token": end}]]


ERASER: list[tuple[dict[str, Any], str]] = [
    ({"annotation_id": "../secret.txt"}, "lies outside"),
    ({"annotation_id": "link"}, "lies outside"),
    ({"docids": ["/etc/passwd"]}, "lies outside"),
    ({"evidences": evidence("../secret.txt")}, "lies outside"),
    ({"annotation_id": "pipe"}, "is not a file: devices, sockets and pipes"),
    ({"annotation_id": "folder"}, "no document folder"),
    ({"annotation_id": "x" * 5_000}, "no document xxx"),
    ({"annotation_id": "a\0b"}, "cannot be a file"),
    ({"annotation_id": ["x"]}, "not a list of names"),
    ({"docids": 5}, "not a list of names"),
    ({"docids": "one"}, "not a list of names"),
    ({"evidences": 5}, "'evidences' is 5, not a list of lists"),
    ({"evidences": [{"docid": "one"}]}, "not a list of lists"),
    ({"evidences": [[5]]}, "is not an object with 'docid'"),
    ({"evidences": [[{"docid": "one"}]]}, "is not an object with 'docid'"),
    ({"evidences": evidence("one", 0.5, 1.5)}, "two whole numbers are needed"),
    ({"evidences": evidence("one", "0", "1")}, "two whole numbers are needed"),
    ({"evidences": evidence("one", 0, 9)}, "outside the 3 tokens"),
    ({"evidences": evidence("two"), "docids": ["one"]}, "none of the row's documents"),
]


def eraser(folder: Path, lines: Sequence[dict[str, Any]]) -> Path:
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "one").write_bytes(b"\xef\xbb\xbfa fine film")
    write_jsonl(folder / "val.jsonl", [{"annotation_id": "one", "classification": "POS", **line} for line in lines])
    return folder


@pytest.mark.parametrize(("line", "reason"), ERASER, ids=[f"{n} {reason}" for n, (_, reason) in enumerate(ERASER)])
def test_bad_rows_of_eraser_folders(tmp_path: Path, line: dict[str, Any], reason: str) -> None:
    folder = eraser(tmp_path / "data", [{}, line, {}])
    (folder / "secret.txt").write_text("password")
    (folder / "docs" / "link").symlink_to(folder / "secret.txt")
    (folder / "docs" / "folder").mkdir()
    os.mkfifo(folder / "docs" / "pipe")
    data = open_dataset(folder, on_error="skip")
    assert [(example.row, example.text) for example in data] == [(0, "a fine film"), (2, "a fine film")]
    assert reason in data.skipped[0].reason
    with pytest.raises(BadInput, match=r"val\.jsonl, row 1"):
        list(open_dataset(folder))


def test_documents_are_hashed_at_any_depth_and_pipes_are_not(tmp_path: Path) -> None:
    folder = eraser(tmp_path / "data", [{}])
    before = open_dataset(folder).digest
    (folder / "docs" / "more").mkdir()
    assert open_dataset(folder).digest == before
    (folder / "docs" / "more" / "two").write_text("x")
    assert open_dataset(folder).digest != before
    os.mkfifo(folder / "docs" / "pipe")
    with pytest.raises(BadInput, match="not a file"):
        assert open_dataset(folder).digest


def test_damaged_documents_of_eraser(tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "val.jsonl", [{"annotation_id": name, "classification": "POS"} for name in ("a", "b", "../c")]
    )
    (tmp_path / "docs.jsonl").write_text('{"docid": "a", "document": "x y"}\n{\n{"docid": "../c", "document": [["z"]]}')
    data = open_dataset(tmp_path, on_error="skip")
    assert [example.text for example in data] == ["x y", "z"]
    assert data.skipped[0].reason.startswith("no document b (")
    assert "docs.jsonl, line 2: Expecting" in data.skipped[0].reason


def test_pipes_and_devices_are_not_read_from_folders(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "test.csv")
    with pytest.raises(BadInput, match=r"test\.csv' is not a file"):
        open_dataset(tmp_path)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "test.csv").symlink_to("/dev/zero")
    with pytest.raises(BadInput, match="is not a file"):
        open_dataset(tmp_path / "linked")


def test_a_pipe_that_is_named_is_read_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    writer = threading.Thread(target=lambda: (tmp_path / "a.csv").write_text("text,label\nfine,1\nbad,0\n,1\n"))
    writer.start()
    data = open_dataset(tmp_path / "a.csv", on_error="skip")
    writer.join()
    assert [example.text for example in data] == [example.text for example in data] == ["fine", "bad"]
    assert data.digest == open_dataset(write(tmp_path / "b.csv", "text,label\nfine,1\nbad,0\n,1\n")).digest
    assert data.source.where == data.name == str(tmp_path / "a.csv")
    reading, writing = os.pipe()
    os.write(writing, b'{"text": "fine"}\n')
    os.close(writing)
    assert len(list(open_dataset(f"jsonl:/dev/fd/{reading}"))) == 1
    with pytest.raises(BadInput, match="it is a device"):
        open_dataset("csv:/dev/zero")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import datasets

    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.Dataset.from_list([GOOD] * 100).save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved"


def cut(folder: Path) -> None:
    (arrow,) = folder.glob("*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:-500])


def lead_out(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    (arrow,) = folder.glob("*.arrow")
    arrow.rename(folder.parent / "elsewhere.arrow")
    state["_data_files"][0]["filename"] = "../elsewhere.arrow"
    (folder / "state.json").write_text(json.dumps(state))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "no arrow": lambda folder: next(folder.glob("*.arrow")).unlink(),
    "cut arrow": cut,
    "state": lambda folder: (folder / "state.json").write_text("{"),
    "state of another kind": lambda folder: (folder / "state.json").write_text("[1]"),
    "info": lambda folder: (folder / "dataset_info.json").write_text("{"),
    "info of another kind": lambda folder: (folder / "dataset_info.json").write_text("[]"),
    "outside": lead_out,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_saved_folders_are_named(saved: Path, damage: str) -> None:
    assert len(open_dataset(saved)) == 100
    DAMAGES[damage](saved)
    with pytest.raises(BadInput, match=str(saved)):
        list(open_dataset(saved))


def test_hub_folders_that_are_damaged_or_lead_out(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("password\n")
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\na,1\nb,c,d,e\n")
    with pytest.raises(BadInput, match=f"hub:{folder} cannot be read as a data set: .*ParserError"):
        list(open_dataset(f"hub:{folder}"))
    for name in ("../secret.txt", str(tmp_path / "secret.txt")):
        (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files: '{name}'\n---\n")
        with pytest.raises(BadInput, match=r"its card names .*secret\.txt', which lies outside"):
            open_dataset(f"hub:{folder}")
    with pytest.raises(BadInput, match="needs the name"):
        open_dataset("hub:")


def test_the_card_of_a_hub_data_set_names_no_file_of_this_machine(tmp_path: Path) -> None:
    def builder(base: str | None, *names: str) -> Any:
        return SimpleNamespace(base_path=base, config=SimpleNamespace(data_files={"train": list(names)}))

    _check_files(
        builder("hf://datasets/a/b@1", "hf://datasets/a/b@1/x.csv", "zip://x.csv::hf://datasets/a/b@1/x.zip"), "b"
    )
    _check_files(builder(str(tmp_path), str(tmp_path / "x.csv"), f"zip://x.csv::{tmp_path}/x.zip"), "b")
    _check_files(builder(None), "b")
    for base, name in (("hf://datasets/a/b@1", "/etc/passwd"), (str(tmp_path), "https://example.org/x.csv")):
        with pytest.raises(BadInput, match="which lies outside"):
            _check_files(builder(base, name), "b")


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    for source in (
        "x" * 5_000,
        f"{'x' * 300}.csv",
        Path("x" * 300),
        "a\0b",
        "csv:a\0b",
        f"csv:{'x' * 5_000}",
        "a\ud800.csv",
    ):
        with pytest.raises(BadInput, match="there is no file") as error:
            open_dataset(source)
        assert len(str(error.value)) < 400


@pytest.mark.parametrize("line", ["a film", "a film,1,more"])
def test_a_row_of_a_csv_file_has_as_many_fields_as_the_header(line: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"text,label\na good film,1\n{line}\n")
    with pytest.raises(BadInput, match=rf"row 1 .*: {line.count(',') + 1} fields where the header has 2"):
        list(open_dataset(path))
    skipping = open_dataset(path, on_error="skip")
    assert [one.text for one in skipping] == ["a good film"]


@pytest.mark.parametrize("label", [-7, -2, "-7"])
def test_minus_one_alone_is_no_label(label: Any) -> None:
    assert next(iter(open_dataset([("a film", -1)], labels=["bad", "good"]))).label is None
    with pytest.raises(BadInput, match=r"label -7|label -2"):
        list(open_dataset([("a film", label)], labels=["bad", "good"]))


def test_huge_and_odd_limits(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [GOOD] * 3)
    for options in ({"limit": 10**30}, {"sample": 10**30}, {"limit": 10**30, "sample": 10**40}):
        data = open_dataset(path, on_error="skip", **options)  # type: ignore[arg-type]
        assert len(list(data)) == len(data.rows(0, 10**30)) == 3
        assert len(list(data.chunks(2))) == 2
    wrong: Any
    for wrong in ("5", 2.5, True):
        with pytest.raises(BadOption, match="limit takes a whole number"):
            open_dataset(path, limit=wrong)


def test_many_columns_are_not_all_listed_and_flags_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ",".join(f"c{i}" for i in range(5_000)) + "\n")
    with pytest.raises(
        BadInput, match=r"columns=\{'text': 'NAME'\} \(--text NAME\); found c0, .*, … and 4,9\d\d more"
    ) as error:
        open_dataset(path)
    assert len(str(error.value)) < 400
    with pytest.raises(BadInput, match=r"\(--label label\)"):
        open_dataset(write(path, "text,label,target\na,1,1\n"))
    wrong: Any
    for wrong in (["text"], {"text": 5}, {"label": ()}, {5: "text"}):
        with pytest.raises(BadOption, match=r"columns(=| takes)"):
            open_dataset(path, columns=wrong)


def test_a_row_of_several_files_is_named_by_its_own(tmp_path: Path) -> None:
    for number, rows in enumerate(([GOOD, GOOD], [GOOD, {"text": "", "label": 0}])):
        write_jsonl(tmp_path / f"test-{number:05}-of-00002.jsonl", rows)
    with pytest.raises(
        BadInput, match=r"test-00001-of-00002\.jsonl, row 1 \(counted from 0\), row 3 of all files: 'text' is"
    ):
        list(open_dataset(tmp_path))


def test_a_folder_does_not_stand_in_for_a_recipe_by_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nyu-mll/glue").mkdir(parents=True)
    with pytest.raises(BadInput, match="there is a folder of that name: give local="):
        open_dataset("sst2")
    Path("sst2").mkdir()
    write_csv(Path("sst2/validation.csv"), [GOOD])
    assert open_dataset("sst2").format == "csv", "a file or folder comes first"


def test_quotes_and_lists_are_short() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (nested, "x" * 10**6, 10**5_000, {"a": "y" * 10**5}, b"z" * 10**5, list(range(10**5))):
        assert len(shown(value)) < 120
    assert shown("a  b") == "'a  b'"
    assert len(listed(["x" * 10**6] * 20)) < 1_000
    while nested:  # else Python would take it apart all at once
        nested = nested.pop()
