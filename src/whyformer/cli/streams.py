"""What is printed, and where: results on standard output, remarks on standard error, nothing that steers a terminal."""

import codecs
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whyformer.errors import BadInput
from whyformer.escapes import escaped, visible, visible_beside_colours, visible_json
from whyformer.progress import tell

LONGEST = 2000  # characters of a remark
SINGLE = dict(zip("█░▓┃│◆─━↑↓≈×−·–—‘’“”⟨⟩", "#.:||o--^v~x----''\"\"<>", strict=True))
PLAIN = SINGLE | {"→": "->", "±": "+-", "…": "..."}  # for streams that do not know them


def put(text: str, *, coloured: bool = False) -> None:
    """Print a result on standard output; `coloured`: colour codes in it are ours."""
    _write((visible_beside_colours if coloured else visible)(text))


def put_json(data: Mapping[str, Any]) -> None:
    """Print data as one line of JSON, in the characters that standard output takes."""
    text = visible_json(json.dumps(data, ensure_ascii=False))
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(data)
    _write(text)


def say(text: str) -> None:
    """Tell something about the run, in one line on standard error."""
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    tell(line)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # whoever was reading has seen enough
        raise
    except OSError as error:
        raise BadInput(f"could not write to standard output: {error.strerror}") from error


def open_streams() -> None:
    """Make the process's standard streams ready: none is missing, and no character is too much for them."""
    for name, mode in (("stdin", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  (to the end)
    if sys.stdout is None:
        raise BadInput("standard output is closed, so there is no place for results: > /dev/null throws them away")
    codecs.register_error("whyformer", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="whyformer")


def close_streams() -> None:
    """Throw away what standard output did not take, or else Python would try again, and complain, when it ends."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plainer(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that a stream cannot hold."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(PLAIN.get(character) or escaped(character) for character in characters), error.end
