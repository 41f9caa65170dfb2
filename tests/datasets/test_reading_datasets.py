"""Every format, written here in a few rows, is read into the same Examples."""

import json
import pickle
import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.rows import write_csv, write_jsonl, write_parquet, write_tsv
from whyformer.datasets import Answer, Dataset, Example, open_dataset
from whyformer.errors import BadInput, BadOption

ROWS = [{"sentence": f'film number {i}, a "good" one\nindeed', "label": i % 2} for i in range(10)]


WRITERS: dict[str, Callable[[Path, Sequence[dict[str, Any]]], Path]] = {
    "csv": write_csv,
    "tsv": write_tsv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
}
each_format = pytest.mark.parametrize("ending", WRITERS)


def known_length(data: Dataset) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None


@each_format
def test_tables_give_the_same_examples_twice(tmp_path: Path, ending: str) -> None:
    data = open_dataset(WRITERS[ending](tmp_path / f"a.{ending}", ROWS))
    expected = [Example(i, row["sentence"], row["label"]) for i, row in enumerate(ROWS)]
    assert list(data) == list(data) == expected
    assert data
    assert data.format == ("csv" if ending == "tsv" else ending)
    assert known_length(data) == (10 if ending == "parquet" else None)


@each_format
def test_rows_and_chunks_keep_the_row_numbers(tmp_path: Path, ending: str) -> None:
    data = open_dataset(WRITERS[ending](tmp_path / f"a.{ending}", ROWS))
    everything = list(data)
    assert list(data.chunks(4)) == [(0, 4), (4, 8), (8, 10)]
    assert [e for chunk in data.chunks(4) for e in data.rows(*chunk)] == everything
    assert data.rows(7, 9) == everything[7:9]
    assert data.rows(2, 3) == everything[2:3], "back again"
    assert data.rows(5, 99) == everything[5:]
    assert data.rows(10, 12) == data.rows(5, 5) == []
    again = pickle.loads(pickle.dumps(data))
    assert again.rows(3, 5) == everything[3:5]


@each_format
def test_a_limit_counts_the_examples_given_out(tmp_path: Path, ending: str) -> None:
    rows = [{**row, "sentence": "" if i == 1 else row["sentence"]} for i, row in enumerate(ROWS)]
    data = open_dataset(WRITERS[ending](tmp_path / f"a.{ending}", rows), limit=3, on_error="skip")
    assert [e.row for e in data] == [0, 2, 3]
    assert list(data.chunks(2)) == [(0, 2), (2, 4)]
    assert [e.row for chunk in data.chunks(2) for e in data.rows(*chunk)] == [0, 2, 3]
    assert [e.row for e in data.rows(0, 100)] == [0, 2, 3]
    with pytest.raises(BadOption, match="limit"):
        open_dataset(tmp_path / f"a.{ending}", limit=0)


@each_format
def test_the_digest_is_of_the_content(tmp_path: Path, ending: str) -> None:
    write = WRITERS[ending]
    first = open_dataset(write(tmp_path / f"a.{ending}", ROWS))
    moved = open_dataset(write(tmp_path / f"b.{ending}", ROWS), limit=2)
    changed = open_dataset(write(tmp_path / f"c.{ending}", [*ROWS[:9], {**ROWS[9], "label": 0}]))
    other = open_dataset(tmp_path / f"a.{ending}", columns={"text": "label", "label": "label"})
    assert first.digest == moved.digest
    assert len({first.digest, changed.digest, other.digest}) == 3


def peak_memory(data: Dataset) -> int:
    """What Python and Arrow hold at most while the data is read twice, in a row and in chunks."""
    data.rows(0, 1)  # imports are not counted
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    arrow = max(pa.total_allocated_bytes() - before for example in data if example.row % 100 == 0)
    assert sum(len(data.rows(*chunk)) for chunk in data.chunks(512)) == data.total()
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return python + arrow


@pytest.mark.long
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "one group"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, ending: str) -> None:
    peaks = []
    # a row group is decoded page by page, so the smaller file must hold more than one page of 1 MB
    for rows in (10_000, 20_000) if ending == "one group" else (1_000, 20_000):
        numbers = random.Random(rows)
        made = [{"text": " ".join(map(str, numbers.choices(range(9_999), k=30))), "label": i % 2} for i in range(rows)]
        path = tmp_path / f"{rows}.{'parquet' if ending == 'one group' else ending}"
        if path.suffix == ".parquet":
            write_parquet(path, made, 10**6 if ending == "one group" else 500)
        else:
            WRITERS[ending](path, made)
        del made
        peaks.append(peak_memory(open_dataset(path)))
    assert peaks[1] <= 1.1 * peaks[0]


def test_shards_are_one_data_set(tmp_path: Path) -> None:
    for number, part in enumerate((ROWS[:3], ROWS[3:8], ROWS[8:])):
        write_parquet(tmp_path / f"test-{number:05}-of-00003.parquet", part, 2)
    write_parquet(tmp_path / "train.parquet", ROWS)
    data = open_dataset(tmp_path, split="test")
    whole = open_dataset(tmp_path, split="train")
    assert list(data) == list(whole) == [e for i in range(10) for e in data.rows(i, i + 1)]
    assert [data.rows(i, i + 2) for i in (8, 3, 0, 7)] == [whole.rows(i, i + 2) for i in (8, 3, 0, 7)]
    assert len(data) == 10
    assert data.digest != whole.digest
    assert open_dataset(tmp_path).source.where.startswith(str(tmp_path / "test-00000")), "validation, else test"
    with pytest.raises(BadInput, match="no split 'dev'; found test, train"):
        open_dataset(tmp_path, split="dev")


def test_shards_of_text_files(tmp_path: Path) -> None:
    for number, part in enumerate((ROWS[:3], ROWS[3:])):
        write_jsonl(tmp_path / f"dev-{number:05}-of-00002.jsonl", part)
    data = open_dataset(tmp_path, split="validation")
    assert [e.row for e in data.rows(2, 5)] == [2, 3, 4]
    assert data.rows(4, 5)[0].text == ROWS[4]["sentence"]
    assert data.total() == 10


def test_a_folder_may_hold_part_of_a_split(tmp_path: Path) -> None:
    write_csv(tmp_path / "test_2000.csv", ROWS)
    assert len(list(open_dataset(tmp_path, split="test"))) == 10
    assert len(list(open_dataset(tmp_path))) == 10
    write_csv(tmp_path / "train.csv", ROWS)
    with pytest.raises(BadInput, match=r"several splits.*test_2000, train"):
        open_dataset(tmp_path)


MOVIES = [
    ("one.txt", "a fine film .\nreally  good , all of it", "POS", [(1, 3, "fine film"), (5, 6, "good")]),
    ("two.txt", "not good", "NEG", [(0, 2, "not good"), (1, 1, "")]),
]


def write_eraser(folder: Path, queries: Sequence[str | None] = (None, None)) -> Path:
    lines = []
    for (name, text, label, spans), query in zip(MOVIES, queries, strict=True):
        (folder / "docs").mkdir(exist_ok=True, parents=True)
        (folder / "docs" / name).write_text(text)
        evidences = [[{"docid": name, "start_token": a, "end_token": b, "text": t}] for a, b, t in spans]
        lines.append({"annotation_id": name, "classification": label, "evidences": evidences, "query": query})
    write_jsonl(folder / "val.jsonl", lines)
    return folder


def test_eraser_folder(tmp_path: Path) -> None:
    data = open_dataset(write_eraser(tmp_path, ["What is it?", "What is it?"]), labels=["NEGATIVE", "POSITIVE"])
    first, second = data
    assert data.format == "eraser"
    assert (first.text, first.label, first.meta) == (MOVIES[0][1], 1, {"annotation_id": "one.txt"})
    assert first.rationale is not None
    assert second.rationale is not None
    assert [u.text for u in first.rationale.units] == MOVIES[0][1].split()
    assert all(first.text[slice(*u.span)] == u.text for u in first.rationale.units if u.span)
    assert first.rationale.spans == ((1, 3), (5, 6))
    assert [u.text for u, m in zip(first.rationale.units, first.rationale.marked, strict=True) if m] == [
        *("fine", "film"),
        "good",
    ]
    assert second.rationale.spans == ((0, 2),), "what marks nothing is left out"
    before = data.digest
    (tmp_path / "docs" / "two.txt").write_text("not bad")
    assert open_dataset(tmp_path).digest != before


def test_eraser_queries_that_differ_make_pairs(tmp_path: Path) -> None:
    first, _ = open_dataset(write_eraser(tmp_path, ["Is it good?", "Is it bad?"]), split="validation")
    assert first.text == ("Is it good?", MOVIES[0][1])
    assert first.rationale is not None
    assert {u.part for u in first.rationale.units} == {1}
    assert first.rationale.spans == ((1, 3), (5, 6))
    assert first.answers is None
    assert first.question is None


def test_eraser_two_documents_are_a_pair(tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "docs.jsonl",
        [{"docid": "7_hypothesis", "document": "a man sleeps"}, {"docid": "7_premise", "document": "a man runs fast"}],
    )
    evidence = [{"docid": "7_premise", "start_token": 2, "end_token": 3}]
    evidence += [{"docid": "7_hypothesis", "start_token": 2, "end_token": 3}]
    line = {"annotation_id": "7", "classification": "contradiction", "evidences": [evidence], "query": "None"}
    write_jsonl(tmp_path / "test.jsonl", [line, {**line, "docids": ["8_premise", "8_hypothesis"]}])
    data = open_dataset(tmp_path, on_error="skip")
    (only,) = data
    assert only.text == ("a man runs fast", "a man sleeps")
    assert only.rationale is not None
    marked = [u for u, m in zip(only.rationale.units, only.rationale.marked, strict=True) if m]
    assert [(u.text, u.part, u.span) for u in marked] == [("runs", 0, (6, 10)), ("sleeps", 1, (6, 12))]
    assert [(bad.row, bad.reason) for bad in data.skipped] == [(1, "no document 8_premise, 8_hypothesis")]


def test_flat_eraser_table(tmp_path: Path) -> None:
    rows = [
        {"review": text, "label": i, "evidences": [t for *_, t in spans], "query": "What?"}
        for i, (_, text, _, spans) in enumerate(MOVIES)
    ]
    by_text = open_dataset(write_parquet(tmp_path / "a.parquet", rows))
    for row, (*_, spans) in zip(rows, MOVIES, strict=True):
        row["evidence_start_token"] = [start for start, *_ in spans]
        row["evidence_end_token"] = [end for _, end, _ in spans]
    by_place = open_dataset(write_parquet(tmp_path / "b.parquet", rows))
    assert [e.rationale for e in by_text] == [e.rationale for e in by_place]
    assert by_place.rows(0, 1)[0].text == MOVIES[0][1]
    rows[1]["evidence_end_token"] = [9, 1]
    with pytest.raises(BadInput, match=r"row 1 .*0 … 9 is outside the 2 tokens"):
        list(open_dataset(write_parquet(tmp_path / "c.parquet", rows)))
    lost = open_dataset(write_jsonl(tmp_path / "d.jsonl", [{"text": "a b", "evidences": ["c"]}]), on_error="skip")
    assert list(lost) == []
    assert "does not stand in the text" in lost.skipped[0].reason


def test_rationale_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("# label = POSITIVE\n# id = 7\na 0\nfine 1\nfilm 1\n# 0\n\n\n# label = NEGATIVE\nbad\t1\n")
    first, second = open_dataset(path)
    assert (first.text, first.label, first.meta) == ("a fine film #", "POSITIVE", {"id": "7"})
    assert first.rationale is not None
    assert first.rationale.spans == ((1, 3),)
    assert [first.text[slice(*u.span)] for u in first.rationale.units if u.span] == ["a", "fine", "film", "#"]
    assert second.rationale is not None
    assert second.rationale.marked == (True,)
    path = tmp_path / "b.txt"
    path.write_text("good 1 1\nfilm 0 1\n\nbad 1 0\nfilm x 0\n\nbad 1 0\nfilm 0 1\n\n# label = 1\n")
    data = open_dataset(f"conll:{path}", on_error="skip")
    assert [(e.text, e.label) for e in data] == [("good film", 1)]
    assert [bad.row for bad in data.skipped] == [1, 2, 3]


ARTICLES = [
    {
        "title": f"article {a}",
        "paragraphs": [
            {
                "context": f"Paris is the capital of France {a}.",
                "qas": [
                    {"id": f"{a}-0", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 0}] * 2},
                    {"id": f"{a}-1", "question": "When?", "answers": [], "is_impossible": True},
                ],
            }
        ],
    }
    for a in range(3)
]


@pytest.mark.parametrize("indent", [None, 2])
def test_squad_json(tmp_path: Path, indent: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyformer.datasets.text_files.BLOCK", 64)  # an article takes several blocks
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"version": "v2.0", "data": ARTICLES}, indent=indent))
    data = open_dataset(path)
    examples = list(data)
    assert len(examples) == 6
    assert data.format == "squad"
    assert examples[2].text == ("Where?", "Paris is the capital of France 1.")
    assert examples[2].answers == (Answer("Paris", 0),) * 2
    assert examples[2].answers[0].span == (0, 5)
    assert (examples[3].question, examples[3].answers) == ("When?", ())
    assert examples[3].context == examples[2].text[1]
    assert examples[3].meta == {"id": "1-1", "title": "article 1"}
    assert data.rows(4, 6) == examples[4:]


@pytest.mark.parametrize("text", ['{"version": 1}', "[1, 2]", '{"data": {}}', '{"data": [{"title": "a"'])
def test_json_that_is_not_squad(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"is not (SQuAD|whole)"):
        list(open_dataset(path))


def test_squad_parquet(tmp_path: Path) -> None:
    rows = [
        {"question": "Where?", "context": "In Paris.", "answers": {"text": ["Paris"], "answer_start": [3]}},
        {"question": "When?", "context": "In Paris.", "answers": {"text": [], "answer_start": []}},
        {"question": "Who?", "context": "In Paris.", "answers": {"text": ["Paris"], "answer_start": [0]}},
    ]
    data = open_dataset(write_parquet(tmp_path / "a.parquet", rows), on_error="skip")
    assert [e.answers for e in data] == [(Answer("Paris", 3),), ()]
    assert "does not stand at character 0" in data.skipped[0].reason


def test_tokens_with_rationales_of_several_people(tmp_path: Path) -> None:
    rows = [
        {"post_tokens": ["you", "are", "bad"], "annotators_label": [0, 0, 2], "rationales": [[0, 0, 1], [0, 1, 1]]},
        {"post_tokens": ["fine"], "annotators_label": [1, 1, 1], "rationales": []},
        {"post_tokens": ["odd"], "annotators_label": [0, 1, 2], "rationales": []},
        {"post_tokens": ["odd", "one"], "annotators_label": [0, 0, 0], "rationales": [[1]]},
    ]
    data = open_dataset(write_jsonl(tmp_path / "a.jsonl", rows), on_error="skip")
    first, second = data
    assert (first.text, first.label) == ("you are bad", 0)
    assert first.rationale is not None
    assert first.rationale.spans == ((1, 3),)
    assert second.rationale is not None
    assert second.rationale.marked == (False,)
    assert [bad.row for bad in data.skipped] == [2, 3]
    hub = {"post_tokens": ["a"], "annotators": {"label": [1, 1, 0]}, "rationales": [[1]]}
    assert next(iter(open_dataset(write_jsonl(tmp_path / "b.jsonl", [hub])))).label == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tokens": "a b", "rationale": [0, 1]}, "'tokens' is not a list of words"),
    ({"tokens": [], "rationale": []}, "'tokens' is empty"),
    ({"tokens": ["a"], "rationale": [2]}, "the rationale is not one 0 or 1 for each of the 1 tokens"),
    ({"text": "a", "evidences": "a"}, "the evidences are not a list of texts"),
    ({"question": "a", "context": "b", "answers": ["b"]}, "'answers' is not {text: […], answer_start: […]}"),
    (
        {"question": "a", "context": "b", "answers": {"text": ["b"], "answer_start": []}},
        "'answers' does not have one start for each text",
    ),
]


@pytest.mark.parametrize(("row", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_annotations_of_the_wrong_form(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    data = open_dataset(write_jsonl(tmp_path / "a.jsonl", [row]), on_error="skip")
    assert list(data) == []
    assert [bad.reason for bad in data.skipped] == [reason]


def test_eraser_rows_of_the_wrong_form(tmp_path: Path) -> None:
    folder = write_eraser(tmp_path)
    line = {"annotation_id": "one.txt", "classification": "POS"}
    with (folder / "val.jsonl").open("a") as file:
        file.write(json.dumps({**line, "evidences": [[{"docid": "one.txt", "start_token": 0}]]}) + "\n")
        file.write("{\n" + json.dumps({**line, "annotation_id": "gone.txt"}) + "\n")
    data = open_dataset(folder, on_error="skip")
    assert [e.row for e in data] == [0, 1]
    assert [bad.row for bad in data.skipped] == [2, 3, 4]
    assert data.skipped[2].reason == "no document gone.txt"


def test_tokens_beside_their_text(tmp_path: Path) -> None:
    row = {"text": "It's  good.", "tokens": ["It", "'s", "good", "."], "rationale": [0, 0, 1, 0], "label": "yes"}
    (only,) = open_dataset(write_jsonl(tmp_path / "a.jsonl", [row]))
    assert only.text == "It's  good."
    assert only.rationale is not None
    assert [u.span for u in only.rationale.units] == [(0, 2), (2, 4), (6, 10), (10, 11)]
    assert only.rationale.spans == ((2, 3),)


SPELLINGS: dict[str, bytes] = {
    "semicolons": b'text;label\n"a; good, film";1\n',
    "tabs": b"text\tlabel\na; good, film\t1\n",
    "bars": b"text|label\na; good, film|1\n",
    "a first line of Excel": b'sep=;\ntext;label\n"a; good, film";1\n',
    "a byte order mark": b'\xef\xbb\xbftext,label\n"a; good, film",1\n',
    "UTF-16": 'text,label\n"a; good, film",1\n'.encode("utf-16"),
    "UTF-16, big endian": b"\xfe\xff" + 'text,label\n"a; good, film",1\n'.encode("utf-16-be"),
    "UTF-32": 'text,label\n"a; good, film",1\n'.encode("utf-32"),
    "CR LF": b'text,label\r\n"a; good, film",1\r\n',
    "CR": b'text,label\r"a; good, film",1\r',
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_csv_files_as_programs_write_them(spelling: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(SPELLINGS[spelling])
    (one,) = open_dataset(tmp_path / "a.csv")
    assert (one.text, one.label) == ("a; good, film", 1)


def test_a_comma_in_the_header_separates(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,a;b\na film;1,2\n")
    assert next(iter(open_dataset(tmp_path / "a.csv"))).text == "a film;1"
