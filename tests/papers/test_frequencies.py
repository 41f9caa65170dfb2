"""How rare words are: read from files, from the table that comes along, or counted."""

import gzip
import json
import math
from pathlib import Path

import pytest

from whyformer import BadInput, MissingExtra
from whyformer_papers.words.idf import BUNDLED_WORDS, Idf, rarity


def weight(count: int, documents: int) -> float:
    return math.log(documents) - math.log(count)


def test_a_word_that_stands_everywhere_weighs_nothing() -> None:
    assert rarity(1000, 1000) == 0
    assert rarity(10, 1000) == pytest.approx(math.log(100))
    assert Idf.bundled()["the"] == pytest.approx(0.0027, abs=1e-4)
    assert Idf.bundled()["."] < 0.01, "a mark weighs as the commonest word"


def test_smoothed_weights_keep_such_words(tmp_path: Path) -> None:
    assert rarity(1000, 1000, smooth=True) == 1
    assert rarity(9, 999, smooth=True) == pytest.approx(math.log(100) + 1)
    counted = Idf.of(["a film", "a play", "a film"], smooth=True)
    assert counted.values == {
        "a": 1.0,
        "film": pytest.approx(math.log(4 / 3) + 1),
        "play": pytest.approx(math.log(2) + 1),
    }
    assert counted.source == "the texts themselves, smoothed"
    assert Idf.bundled(smooth=True)["the"] == pytest.approx(math.log(26783 / 26711) + 1)
    assert Idf.bundled(smooth=True).source.endswith("Wikipedia, smoothed")
    (tmp_path / "a.csv").write_text(COUNTED["a.csv"])
    counts = Idf.read(tmp_path / "a.csv", smooth=True)
    assert counts.values == {"the": 1.0, "film": pytest.approx(math.log(11 / 5) + 1)}
    assert counts.source == "a.csv, 2 words, smoothed"
    (tmp_path / "b.csv").write_text("word,idf\nthe,0.5\n")
    as_it_stands = Idf.read(tmp_path / "b.csv", smooth=True)
    assert (as_it_stands.values, as_it_stands.source) == ({"the": 0.5}, "b.csv, 1 words")


def test_the_bundled_table() -> None:
    """Words in small letters, in order, with counts; it is small, and what it weighs follows from the counts."""
    assert BUNDLED_WORDS.stat().st_size < 200_000
    first, header, *lines = gzip.decompress(BUNDLED_WORDS.read_bytes()).decode().splitlines()
    assert (first, header) == ("# documents = 26782", "word\tdoc_freq")
    counts = {word: int(count) for word, count in (line.split("\t") for line in lines)}
    assert len(counts) == len(lines) == 30_000
    assert list(counts) == sorted(counts)
    assert all(word == word.lower() and 0 < count <= 26782 for word, count in counts.items())
    assert counts["the"] == 26710 == max(counts.values())
    idf = Idf.bundled()
    assert idf is Idf.bundled()
    for word in ("the", "film", "it's", min(counts, key=lambda word: counts[word])):
        assert idf[word] == pytest.approx(weight(counts[word], 26782))
    assert idf["The"] == idf["the"] == idf.smallest
    assert idf["it’s"] == idf["it's"]
    assert "zijlaard" not in counts
    assert idf["zijlaard"] == idf.largest == pytest.approx(weight(min(counts.values()), 26782))


def test_marks_weigh_least_where_the_table_knows_none() -> None:
    words = Idf({"the": 1.0, "film": 3.0})
    assert words["."] == words["$"] == words["—"] == 1.0
    assert words["unseen"] == words["42"] == 3.0
    with_marks = Idf({"the": 1.0, ".": 1.5, "film": 3.0})
    assert with_marks["."] == 1.5
    assert with_marks["$"] == 3.0


def test_without_values_every_word_weighs_one() -> None:
    assert Idf({})["film"] == Idf({})["."] == 1.0


def test_counted_in_texts() -> None:
    idf = Idf.of(["A film.", "a film of a film", "it’s a play."])
    counts = {"a": 3, "film": 2, ".": 2, "of": 1, "it's": 1, "play": 1}
    assert {word: pytest.approx(weight(count, 3)) for word, count in counts.items()} == idf.values
    assert idf["!"] == idf["unseen"] == idf["play"]


TABLES = {
    "a.csv": 'word,count,idf\nThe,9,1.5\nthe,5,2.5\n"a,b",1,4\n',
    "a.tsv": "word\tidf\nThe\t1.5\nthe\t2.5\na,b\t4\n",
    "a.json": json.dumps({"The": 1.5, "the": 2.5, "a,b": 4}),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("packed", [False, True])
def test_files_with_an_idf(name: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(TABLES[name].encode()) if packed else TABLES[name].encode())
    idf = Idf.read(path)
    assert idf.values == {"the": 1.5, "a,b": 4.0}  # of two spellings the commoner
    assert idf.source == f"{path.name}, 2 words"


COUNTED = {
    "a.csv": "# made by hand\n# documents = 10\nword,doc_freq\nthe,10\nfilm,4\n",
    "a.tsv": "# documents = 10\nword\tdoc_freq\nthe\t10\nfilm\t4\n",
    "a.json": json.dumps({"documents": 10, "doc_freq": {"the": 10, "film": 4}}),
}


@pytest.mark.parametrize("name", COUNTED)
def test_files_with_counts(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(COUNTED[name])
    assert Idf.read(tmp_path / name).values == {"the": 0.0, "film": pytest.approx(math.log(10 / 4))}


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(
        pyarrow.table({"word": ["the", "film"], "idf": [1.0, 3.5], "n": [2, 1]}), tmp_path / "a.parquet"
    )
    assert Idf.read(tmp_path / "a.parquet").values == {"the": 1.0, "film": 3.5}
    parquet.write_table(pyarrow.table({"word": ["the"], "doc_freq": [3]}), tmp_path / "b.parquet")
    with pytest.raises(BadInput, match="needs a header with the columns 'word' and 'idf'"):
        Idf.read(tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_text("no parquet")
    with pytest.raises(BadInput, match="cannot be read as Parquet"):
        Idf.read(tmp_path / "c.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="pip install pyarrow"):
        Idf.read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "the 1", r"read from \.csv"),
        ("a.csv", "", "found nothing"),
        ("a.csv", "token,weight\nthe,1\n", "found token, weight"),
        ("a.csv", "word,doc_freq\nthe,1\n", "does not say of how many documents"),
        ("a.csv", "# documents = 3\nword,doc_freq\nthe,4\n", "'the' stands in 4 of 3 documents"),
        ("a.csv", "# documents = 3\nword,doc_freq\nthe,0\n", "'the' stands in 0 of 3 documents"),
        ("a.csv", "word,idf\nthe,often\n", "'the' has 'often'"),
        ("a.csv", "word,idf\nthe,nan\n", "'the' has 'nan'"),
        ("a.csv", "word,idf\nthe,-1\n", "'the' has '-1'"),
        ("a.csv", "word,idf\n", "there are no words"),
        ("a.json", "{", "are not JSON"),
        ("a.json", "[1]", "but a list"),
        ("a.json", '{"doc_freq": {"the": 1}}', "of how many 'documents'"),
        ("a.csv.gz", "no gzip", "could not read"),
    ],
)
def test_files_that_cannot_be_used(name: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=said):
        Idf.read(tmp_path / name)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"could not read the word frequencies .*no\.csv"):
        Idf.read(tmp_path / "no.csv")
    (tmp_path / "a.csv").write_bytes(b"word,idf\n\xff,1\n")
    with pytest.raises(BadInput, match="could not read"):
        Idf.read(tmp_path / "a.csv")
