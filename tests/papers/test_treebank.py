"""CoNLL-U: spans, relations, what is skipped, and what is refused with file, line and reason."""

from pathlib import Path

import pytest

from tests.helpers.conllu import ENGLISH, SPANISH, word
from whyformer.errors import BadInput
from whyformer_papers.heads import Sentence, Treebank
from whyformer_papers.heads.sentences import relation_of
from whyformer_papers.heads.treebank import sentences


def spelled(sentence: Sentence) -> list[str]:
    return [sentence.text[slice(*span)] for span in sentence.words]


def test_words_written_as_one_share_their_span_and_empty_nodes_are_no_words() -> None:
    (sentence,) = sentences(SPANISH)
    assert sentence.text == "¡Dámelo del coche!"
    assert spelled(sentence) == ["¡", "Dámelo", "Dámelo", "Dámelo", "del", "del", "coche", "!"]
    assert sentence.words[1] == sentence.words[2] == (1, 7)
    assert sentence.relations == (
        (0, 1, "punct"),
        (2, 1, "obl:arg"),
        (3, 1, "obj"),
        (4, 6, "case"),
        (5, 6, "det"),
        (6, 1, "obl"),
        (7, 1, "punct"),
    )


def test_words_of_which_a_surface_is_spelled_have_their_own_spans() -> None:
    (sentence,) = sentences(ENGLISH)
    assert sentence.text == "We don't see it."
    assert spelled(sentence) == ["We", "do", "n't", "see", "it", "."]
    assert sentence.words[1:3] == ((3, 5), (5, 8))
    assert (2, 3, "advmod") in sentence.relations
    assert len(sentence.relations) == 5


def test_the_spaces_of_the_text_count() -> None:
    lines = ["# text = a  b c", word(1, "a", 2, "x"), word(2, "b c", 0, "root")]
    assert spelled(next(sentences(lines))) == ["a", "b c"]


def test_a_file_is_a_stream_that_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "two.conllu"
    text = "\n".join([*SPANISH, "", "", *ENGLISH]).replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    treebank = Treebank(path)
    assert len(treebank) == 2
    assert list(treebank) == list(treebank) == [*sentences(SPANISH), *sentences(ENGLISH)]
    said = treebank.provenance
    assert said["treebank"] == "two.conllu"
    path.write_bytes(path.read_bytes() + b"\r\n")
    assert treebank.provenance["file_digest"] != said["file_digest"]
    assert not list(sentences(["# only a comment", "", ""]))


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        (["1\tWe\t_"], 1, "3 columns"),
        ([word(1, "We", 0, "root").replace("\t", " ")], 1, "1 columns"),
        (["# text = a", word(1, " ", 0, "root")], 2, "the word is empty"),
        ([word(2, "We", 0, "root")], 1, "number '2', where 1 follows"),
        ([word(1, "We", 0, "root"), word("x", "We", 1, "y")], 2, "number 'x', where 2 follows"),
        ([word(1, "We", "_", "root")], 1, "the head is '_'"),
        ([word(1, "We", "-1", "root")], 1, "the head is '-1'"),
        ([word(1, "We", 1, "root")], 1, "its own head"),
        ([word(1, "We", 0, "_")], 1, "the relation is missing"),
        ([word(1, "We", 2, "x"), word(2, "do", 3, "y")], 2, "the head is 3, but the sentence has 2 words"),
        ([word("2-3", "don't")], 1, "2-3 are written as one, but the next word is 1"),
        ([word("1-1", "don't")], 1, "1-1 are written as one"),
        ([word("1-3", "abc"), word(1, "a", 2, "x"), word("2-3", "bc")], 3, "2-3 are written as one"),
        ([word("1-3", "abc"), word(1, "a", 2, "x"), word(2, "b", 0, "root")], 1, "up to 3 are written as one"),
        (["# text = We see", word(1, "We", 2, "x"), word(2, "go", 0, "root")], 3, "'go' is not what .* 'see'"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, lines: list[str], line: int, reason: str) -> None:
    path = tmp_path / "bad.conllu"
    path.write_text("\n".join([*ENGLISH, "", *lines, ""]))
    with pytest.raises(BadInput, match=f"bad.conllu, line {len(ENGLISH) + 1 + line}: .*{reason}"):
        list(Treebank(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"could not read the treebank .*none.conllu"):
        Treebank(tmp_path / "none.conllu")
    path = tmp_path / "latin.conllu"
    path.write_bytes(b"# text = a\n" + word(1, "caf\xe9", 0, "root").encode("latin-1"))
    with pytest.raises(BadInput, match="line 2: not UTF-8"):
        list(Treebank(path))


def test_labels() -> None:
    assert [relation_of(label) for label in ("nsubj", "obj", "dobj", "amod", "advmod")] == [
        *("nsubj", "dobj", "dobj", "amod", "advmod")
    ]
    others = ("nsubj:pass", "nsubjpass", "iobj", "obl", "advmod:emph")
    assert [relation_of(label) for label in others] == [None] * 5
    assert [relation_of(label, subtypes=True) for label in others] == ["nsubj", "nsubj", None, None, "advmod"]


def test_sentences_are_checked() -> None:
    with pytest.raises(BadInput, match="outside its text"):
        Sentence("a b", ((0, 1), (2, 4)), ())
    with pytest.raises(BadInput, match="not between two of the 1 words"):
        Sentence("a b", ((0, 1),), ((0, 1, "nsubj"),))
