"""Treebanks, parsed texts and word frequencies that are damaged, long or odd."""

import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.conllu import ENGLISH, word
from whyformer.errors import BadInput
from whyformer_papers.heads import Treebank, parsed_by
from whyformer_papers.heads.treebank import sentences
from whyformer_papers.words.idf import Idf

DIGITS = "9" * 5_000


@pytest.mark.parametrize(
    "lines", [[word(1, "a", DIGITS, "root")], [word(f"1-{DIGITS}", "a")], [word(DIGITS, "a", 0, "root")]]
)
def test_numbers_of_very_many_digits_are_refused(lines: list[str]) -> None:
    with pytest.raises(BadInput, match=r"the treebank, line 1: ") as error:
        list(sentences(lines))
    assert len(str(error.value)) < 300


def test_a_byte_order_mark_is_no_part_of_a_treebank(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text("\n".join(["# only a comment", "", *ENGLISH, ""]), encoding="utf-8-sig")
    assert len(list(Treebank(path))) == len(Treebank(path)) == 1


def test_a_treebank_may_come_through_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("\n".join([*ENGLISH, ""])))
    writer.start()
    treebank = Treebank(tmp_path / "pipe")
    writer.join()
    assert len(list(treebank)) == len(list(treebank)) == len(treebank) == 1
    assert treebank.provenance["treebank"] == "pipe"
    with pytest.raises(BadInput, match="it is a device"):
        Treebank(Path("/dev/zero"))


def test_a_long_sentence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyformer_papers.heads.treebank.LONGEST_TEXT", 10)
    with pytest.raises(BadInput, match="line 2: the sentence has more than 10 characters"):
        list(sentences(ENGLISH))


def test_what_a_pipeline_raises_is_named() -> None:
    class Pipeline:
        meta = ()

        def pipe(self, texts: Any, batch_size: int) -> Any:
            raise ValueError("[E088] Text of length 2000000 exceeds maximum of 1000000.\nmore")

    with pytest.raises(BadInput, match=r"the spaCy pipeline failed after 0 texts: \[E088\] .* \(ValueError\)$"):
        list(parsed_by(Pipeline(), ["a"]))
    with pytest.raises(BadInput, match="a list of texts is needed, found the text 'a b'"):
        parsed_by(Pipeline(), "a b")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", "[" * 100_000, "not JSON: its brackets are nested too deeply"),
        ("a.json", json.dumps({"film": 10**400}), "where a number of 0 or more is needed"),
        ("a.json", json.dumps({"documents": 10**400, "doc_freq": {"film": 1}}), "documents, where 1 … "),
        ("a.json", json.dumps({"documents": True, "doc_freq": {"film": 1}}), "documents, where 1 … "),
        ("a.csv", "word,idf\nfilm\nthe,1\n", "the row of 'film' has 1 columns, fewer than the header"),
        ("a.csv", "word,idf,idf\nfilm,1,2\n", "two columns 'idf'"),
        ("a.csv", f"# documents = {DIGITS}\nword,doc_freq\nfilm,1\n", "does not say of how many documents"),
        ("a.csv", ",".join(f"c{i}" for i in range(5_000)), "found c0, c1"),
        (
            "a.csv.gz",
            gzip.compress(b"word,idf\nfilm,1\n", mtime=0)[:-12] + b"\xff" * 12,
            "could not read the word frequencies",
        ),
    ],
)
def test_damaged_word_frequencies(tmp_path: Path, name: str, content: str | bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=reason) as error:
        Idf.read(tmp_path / name)
    assert name in str(error.value)
    assert len(str(error.value)) < 1_000


def test_damaged_parquet_frequencies(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([["a"], [1.0], [2.0]], names=["word", "idf", "idf"]), path)
    with pytest.raises(BadInput, match="two columns 'idf'"):
        Idf.read(path)
    path.write_bytes(path.read_bytes()[:-30] + b"PAR1")
    with pytest.raises(BadInput, match=r"a\.parquet' cannot be read as Parquet"):
        Idf.read(path)
