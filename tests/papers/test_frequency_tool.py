"""The bundled word frequencies are made from a table of counts."""

import gzip
import sys
from pathlib import Path

import pytest

from tests.helpers.rows import write_parquet
from tools import word_frequencies


def test_the_commonest_words_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_parquet(tmp_path / "counts.parquet", [{"word": "film", "doc_freq": 7}, {"word": "rare", "doc_freq": 1}])
    given = [str(tmp_path / "counts.parquet"), "--documents", "9", "--words", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["word_frequencies.py", *given])
    word_frequencies.main()
    assert "1 words that stand in 7 documents" in capsys.readouterr().out
    assert gzip.decompress((tmp_path / "out").read_bytes()).decode() == "# documents = 9\nword\tdoc_freq\nfilm\t7\n"
