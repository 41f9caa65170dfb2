"""The command `heads`: a mask, its pictures, and a method that uses it."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import status_of
from whyformer.methods.head_mask import HeadMask

SENTENCE = """\
# text = Critics liked the witty film.
1	Critics	critic	NOUN	_	_	2	nsubj	_	_
2	liked	like	VERB	_	_	0	root	_	_
3	the	the	DET	_	_	5	det	_	_
4	witty	witty	ADJ	_	_	5	amod	_	_
5	film	film	NOUN	_	_	2	obj	_	SpaceAfter=No
6	.	.	PUNCT	_	_	2	punct	_	_

"""


@pytest.mark.long
def test_a_mask_is_found_written_drawn_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.conllu").write_text(SENTENCE * 2)
    out, figure, positions = (tmp_path / name for name in ("heads.json", "heads.png", "positions.png"))
    files = ("--out", out, "--figure", figure, "--positions", positions)
    assert status_of("heads", "--treebank", tmp_path / "tiny.conllu", *files) == 0
    assert "6 × 12 heads" in capsys.readouterr().out
    assert HeadMask.load(out).provenance["sentences"] == 2
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert positions.read_bytes().startswith(b"\x89PNG")
    assert status_of("explain", "a witty film", "--method", "mask_lrp", "--head-mask", out, "--json") == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["options"] == {"head_mask": str(out)}
    assert (
        status_of("explain", "a witty film", "--method", "mask_lrp", "--json") == 0
    )  # the mask that comes with the model
    assert json.loads(capsys.readouterr().out)["units"] != explained["units"]


def test_the_search_is_chosen_by_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.conllu").write_text(SENTENCE * 2)
    out = tmp_path / "heads.json"
    source = ("--treebank", tmp_path / "tiny.conllu", "--out", out)
    authors = ("--direction", "dependent_to_head", "--pieces", "first", "--special-tokens", "--subtypes")
    assert status_of("heads", *source, *authors) == 0
    mask = HeadMask.load(out)
    assert mask.direction == "dependent_to_head"
    assert mask.provenance["options"] == {"pieces": "first", "special_tokens": True, "subtypes": True}
    assert status_of("heads", *source, "--pieces", "last") == 2
    assert "pieces 'last' is not known" in capsys.readouterr().err
    (tmp_path / "texts.txt").write_text("a witty film\n")
    plain = ("--texts", tmp_path / "texts.txt", "--out", out)
    assert status_of("heads", *plain, "--special-tokens") == 0
    assert HeadMask.load(out).provenance["options"] == {"special_tokens": True}


def test_plain_texts_give_positional_heads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("a witty film\nthe actors like it\n")
    assert status_of("heads", "--texts", tmp_path / "texts.txt", "--out", tmp_path / "heads.json") == 0
    assert not HeadMask.load(tmp_path / "heads.json").syntactic.any()
    capsys.readouterr()


@pytest.mark.parametrize("arguments", [[], ["--treebank", "a.conllu", "--texts", "b.txt"], ["--spacy", "en"]])
def test_one_source_is_needed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("heads", *arguments) == 2
    assert capsys.readouterr().err.startswith("whyformer: error: give --treebank")


def test_a_byte_order_mark_is_no_part_of_the_texts(tmp_path: Path) -> None:
    for name, encoding in (("marked", "utf-8-sig"), ("plain", "utf-8")):
        (tmp_path / f"{name}.txt").write_text("a good film\n", encoding=encoding)
        assert status_of("heads", "--texts", tmp_path / f"{name}.txt", "--out", tmp_path / f"{name}.json") == 0
    marked, plain = (HeadMask.load(tmp_path / f"{name}.json") for name in ("marked", "plain"))
    assert marked.provenance["corpus"]["digest"] == plain.provenance["corpus"]["digest"]
