"""Whatever is written is there whole or not at all, beside links, pipes, full disks and other processes."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import whyformer
from whyformer import Comparison, Explainer, Explanation
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import Results, Table
from whyformer.evaluation.journal import Journal
from whyformer.methods import logit_lens
from whyformer.methods.head_mask import HeadMask
from whyformer.results.evaluation import Chunk, Record
from whyformer.show.pictures import write_figure
from whyformer.storage.files import comma_separated
from whyformer.tasks.targets import Label
from whyformer_papers import reproduce
from whyformer_papers.reproduce.result import Reproduced
from whyformer_papers.words.table import WordTable, save_tables

RUN = {"n": 1}
METRICS = {"aopc": {"name": "aopc", "options": {}, "higher_is_better": True, "level": "example", "at": [0.0, 1.0]}}
CHUNK = Chunk(0, 16, (Record("aa", 0, "attcat", "aopc", 0.5, (0.0, 1.0)),), METRICS)


@cache
def explanation() -> Explanation:
    return Explainer.load("sentiment").explain("a fine film", "attcat")


def table() -> Table:
    return Results.of([CHUNK]).table()


def words() -> WordTable:
    return WordTable({0: {"war": 1.0}}, ("BAD",), "attcat", {0: 1})


def empty_figure() -> Any:
    from matplotlib.figure import Figure

    return Figure()


WAYS: dict[str, Callable[[Path], Any]] = {
    "explanation": lambda path: explanation().save(path),
    "page": lambda path: explanation().to_html(path),
    "comparison": lambda path: Comparison((explanation(),)).save(path),
    "compared": lambda path: Comparison((explanation(),)).to_html(path),
    "words": lambda path: words().save(path),
    "tables": lambda path: save_tables({"attcat": words()}, path),
    "mask": lambda path: HeadMask(np.eye(2)).save(path),
    "picture": lambda path: write_figure(empty_figure(), path),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("file.png" if way == "picture" else "file.json")  # endings tell formats
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(BadInput, match=rf"could not write .*{path.name}': No space left"):
            WAYS[way](path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "old"
    victim = tmp_path / "victim"
    path.rename(victim)
    path.symlink_to(victim)
    WAYS[way](path)
    assert victim.read_text() == "old"  # the link is replaced, not followed
    assert not path.is_symlink()
    for odd in (None, 3, "a\0b", "\ud800"):
        with pytest.raises(BadInput, match="file"):
            WAYS[way](odd)  # type: ignore[arg-type]
    WAYS[way](Path("/dev/null"))


def test_lone_surrogates_are_saved_and_read_back(tmp_path: Path) -> None:
    old = tmp_path / "page.html"
    old.write_text("old")
    odd = replace(explanation(), target=Label(0, "\ud800\u202e"), texts=("a fine film\udce9",))
    assert "\\ud800" in odd.to_html(old).read_text(encoding="utf-8")
    again = Explanation.load(odd.save(tmp_path / "e.json"))
    assert (again.target, again.texts) == (odd.target, odd.texts)
    assert WordTable.load(WordTable({0: {"\ud800": 1.0}}, ("\ud800",), "a", {0: 1}).save(tmp_path / "t.json")).labels


# Folders


def test_links_in_a_folder_are_replaced_and_pipes_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("safe")
    out = tmp_path / "out"
    out.mkdir()
    (out / "journal.new").symlink_to(victim)
    (out / "table.md").symlink_to(victim)
    with Journal.open(out, RUN) as journal:
        journal.append(CHUNK)
    table().save(out)
    assert victim.read_text() == "safe"
    assert not (out / "table.md").is_symlink()
    assert not (out / "journal.jsonl").is_symlink()
    for name in ("table.csv", "curves-aopc.png"):
        (out / name).unlink()
        os.mkfifo(out / name)
        with pytest.raises(BadInput, match=rf"{name}' is not a file"):
            table().save(out)
        (out / name).unlink()


def test_a_journal_that_is_a_pipe_or_a_link(tmp_path: Path) -> None:
    pipe, link, real = (tmp_path / name for name in ("pipe", "link", "real"))
    for folder in (pipe, link):
        folder.mkdir()
    os.mkfifo(pipe / "journal.jsonl")
    for use in (lambda: Journal.open(pipe, RUN), lambda: Journal.read(pipe)):
        with pytest.raises(BadInput, match="is not a file"):
            use()
    with Journal.open(real, RUN) as journal:
        journal.append(CHUNK)
    before = (real / "journal.jsonl").read_bytes()
    (link / "journal.jsonl").symlink_to(real / "journal.jsonl")
    with pytest.raises(BadInput, match=r"journal\.jsonl is a link.*: link the folder instead"):
        Journal.open(link, RUN)
    assert (real / "journal.jsonl").read_bytes() == before
    assert len(Journal.read(link)) == 1  # reading harms nobody
    (tmp_path / "folder").symlink_to(real)
    with Journal.open(tmp_path / "folder", RUN) as journal:
        assert len(journal) == 1


def test_a_journal_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(BadInput, match="No space left"):
            Journal.open(tmp_path, RUN)
    assert {file.name for file in tmp_path.iterdir()} <= {"lock"}


def test_pictures_have_an_ending_that_is_known(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"x\.foo' is no picture: known endings are .*png"):
        write_figure(empty_figure(), tmp_path / "x.foo")
    assert write_figure(empty_figure(), tmp_path / "X.SVG").read_bytes().startswith(b"<?xml")
    assert write_figure(empty_figure(), tmp_path / "plain").read_bytes().startswith(b"\x89PNG")


def test_cells_of_a_spreadsheet() -> None:
    assert comma_separated([["=1+1", -0.5, None, "-"], ["@", 3, "a,b", "'x"]]) == "'=1+1,-0.5,,'-\n'@,3,\"a,b\",'x\n"


SPEAKING = """
import sys, types
package = sys.modules["whyformer"] = types.ModuleType("whyformer")
package.__path__ = {path!r}
from whyformer.storage import files
files.write("/dev/stdout", "through")
"""


def test_what_is_written_to_standard_output_arrives() -> None:
    code = SPEAKING.format(path=list(whyformer.__path__))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "through"


def test_an_lm_head_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(to_diff_dict=dict, model_type="bert")
    held = SimpleNamespace(config=config), {"weight": torch.eye(2)}
    monkeypatch.setattr(logit_lens, "_stored", lambda source: held)
    path = logit_lens.save_head("x", tmp_path / "head.safetensors")
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"could not write .*head\.safetensors': No space left"):
        logit_lens.save_head("x", path)
    assert [file.name for file in tmp_path.iterdir()] == ["head.safetensors"]
    assert path.read_bytes() == before


def test_what_is_reproduced_replaces_links_and_refuses_pipes(tmp_path: Path) -> None:
    found = Reproduced(reproduce.reproduction_named("attcat-table-1"), ())
    victim = tmp_path / "victim"
    victim.write_text("safe")
    (tmp_path / "attcat-table-1.md").symlink_to(victim)
    assert [path.name for path in reproduce.write(found, tmp_path)] == ["attcat-table-1.md", "attcat-table-1.csv"]
    assert victim.read_text() == "safe"
    (tmp_path / "attcat-table-1.csv").unlink()
    os.mkfifo(tmp_path / "attcat-table-1.csv")
    with pytest.raises(BadInput, match=r"attcat-table-1\.csv' is not a file"):
        reproduce.write(found, tmp_path)
