"""Whatever is typed: one line of error at most, no traceback, no raw escape, no half-written file."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

from tests.fuzz.amount import CASES, SEED
from tests.fuzz.command_lines import Workspace, command_lines, prepare
from tests.helpers import cases
from whyformer.cli import main

AT_ONCE = 20  # command lines in one test
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
DRAFT = re.compile(r"\.[0-9a-f]{16}")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    model = tmp_path_factory.mktemp("model")
    subject = cases.subject()
    subject.model.save_pretrained(model)
    subject.tokenizer.save_pretrained(model)
    return prepare(tmp_path_factory.mktemp("fuzz"), model)


@pytest.mark.parametrize("number", range(0, CASES, AT_ONCE))
def test_a_command_line_ends_in_one_line_or_a_result(
    workspace: Workspace, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some names of files are relative
    for line in command_lines(workspace, SEED * CASES + number, AT_ONCE):
        status, output, errors = run(line)
        shown = f"{line!r}\n--- exit {status}\n{output[-500:]!r}\n{errors[-1500:]}"
        assert status in (0, 1, 2), shown
        assert "Traceback" not in errors, shown
        assert "internal error" not in errors, shown
        assert not RAW.search(output + errors), shown
        assert status == 0 or errors, shown
        check_files(workspace.folder, shown)
        check_files(tmp_path, shown)


def run(line: list[str]) -> tuple[int, str, str]:
    """Run a command line in this process: its status, standard output and standard error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    saved = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, (sys.stdout, sys.stderr) = io.StringIO("a film"), streams
    try:
        main(line)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.stdin, sys.stdout, sys.stderr = saved
    output, errors = (stream.buffer.getvalue().decode("utf-8") for stream in streams)
    return status, output, errors


def check_files(folder: Path, shown: str) -> None:
    """Nothing half-written, no drafts."""
    names = [path.name for path in folder.rglob("*")]
    assert not [name for name in names if DRAFT.match(name)], shown
    assert "pwned" not in names, shown
    page, saved = folder / "out.html", folder / "out.json"
    if page.exists():
        assert page.read_text(encoding="utf-8").rstrip().endswith("</html>"), shown
    if saved.exists():
        json.loads(saved.read_text(encoding="utf-8"))
