"""Files are written whole or not at all, and only files are read from folders."""

import os
import stat
from pathlib import Path

import pytest

from whyformer.errors import BadInput
from whyformer.storage import files


def test_the_old_file_stays_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail() -> None:
        with files.replacing(path) as draft:
            draft.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_characters_that_utf8_cannot_hold_are_escaped(tmp_path: Path) -> None:
    assert files.write(tmp_path / "a", "\ud800é").read_text(encoding="utf-8") == "\\ud800é"


def test_a_linked_file_is_replaced_and_a_linked_folder_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("safe")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "table.md").symlink_to(tmp_path / "victim")
    (tmp_path / "linked").symlink_to(tmp_path / "out")
    files.write(tmp_path / "linked" / "table.md", "new")
    assert (tmp_path / "victim").read_text() == "safe"
    assert not (tmp_path / "out" / "table.md").is_symlink()
    assert (tmp_path / "out" / "table.md").read_text() == "new"


def test_rights_are_kept_and_new_files_have_the_usual_ones(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        path = files.write(tmp_path / "a", "1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o600)
        assert stat.S_IMODE(files.write(path, "2").stat().st_mode) == 0o600
    finally:
        os.umask(mask)


def test_devices_and_pipes_that_are_named_are_written_through(tmp_path: Path) -> None:
    files.write("/dev/null", "gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    redirected = tmp_path / "redirected"
    with redirected.open("wb") as file:
        files.write(f"/dev/fd/{file.fileno()}", "through")
    assert redirected.read_text() == "through"


@pytest.mark.parametrize("name", ["missing/page.html", "folder"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match="could not write"):
        files.write(tmp_path / name, "x")


def test_names_in_data_stay_in_their_folder(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "secret").write_text("x")
    (docs / "link").symlink_to(tmp_path / "secret")
    (docs / "fine").write_text("x")
    assert files.inside(docs, "fine").read_text() == "x"
    for name in ("../secret", str(tmp_path / "secret"), "link"):
        with pytest.raises(BadInput, match="outside"):
            files.inside(docs, name)


def test_pipes_are_not_read_from_folders(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="not a file"):
        files.inside(tmp_path, "pipe")


@pytest.mark.parametrize(("content", "reason"), [(b"[" * 100_000, "deeply"), (b"{", "not JSON"), (b"\xff", "UTF-8")])
def test_json_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(BadInput, match=reason) as raised:
        files.read_json(tmp_path / "f.json", "head mask")
    assert "f.json" in str(raised.value)
    assert "head mask" in str(raised.value)
