"""Files: written whole or not at all, read with errors that name them. Also CSV in which no text is a formula."""

import atexit
import csv
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whyformer.errors import BadInput, shown

DEVICES = ("/dev", "/proc")  # what lies there is written through, never replaced
MEMORY_DISK = "/dev/shm"
LONGEST_NAME = 300  # characters of a path in messages
LONGEST_TEXT = 1 << 24  # characters of one text in data; a longer one is a mistake, and would hold up a run


def write(path: str | Path, text: str) -> Path:
    """Write a text file in UTF-8. Characters that it cannot hold (lone surrogates) are escaped."""
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a file: the old one stays as it is until the new one is complete."""
    with replacing(path) as draft:
        draft.write_bytes(content)
    return Path(path)


def make_folder(path: str | Path) -> Path:
    """The folder of that name, made if there is none."""
    folder = path_of(path)
    with naming(folder, "write to"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A draft beside the file, which takes its place when all went well; otherwise the file is as it was.

    A folder that is a link is followed; a file that is a link is replaced, and what it points to is left alone. Devices
    and pipes that are named on purpose (`/dev/stdout`, `/dev/null`) are written through.
    """
    path = path_of(path)
    with naming(path, "write"):
        check_place(path)
        if _is_written_through(path):
            yield path
            return
        draft = _draft_beside(path)
        try:
            yield draft
            _finish(draft, path)
        finally:
            draft.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Raise before any work is done if a file cannot be written there: no such folder, or it is a folder."""
    if path.is_dir():
        raise BadInput(f"could not write {str(path)!r}: it is a folder; give a file in it")
    if not path.parent.is_dir():
        raise BadInput(f"could not write {str(path)!r}: there is no folder {str(path.parent)!r}")


def read(path: str | Path, kind: str = "file") -> str:
    """The text of a file in UTF-8, without a byte order mark; `kind` is what people call it."""
    with naming(path_of(path), f"read the {kind}"):
        return Path(path).read_text(encoding="utf-8-sig")


def read_json(path: str | Path, kind: str = "file") -> Any:
    """What a JSON file holds; `kind` is what people call it."""
    with naming(path_of(path), f"read the {kind}"):
        content = Path(path).read_bytes()
    try:
        return parsed_json(content.decode("utf-8"))
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise BadInput(f"the {kind} {str(path)!r} is not JSON: {reason}") from error


def parsed_json(text: str | bytes) -> Any:
    """What a JSON text holds; whatever is wrong with it, brackets without end included, is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def inside(folder: Path, name: str) -> Path:
    """The regular file of that name in a folder; names in data never lead out of it, nor to a device or pipe."""
    path = folder / name
    try:
        leaves = not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself, a NUL
        raise BadInput(f"{shown(name)} cannot be a file in {str(folder)!r}: {error}") from error
    if leaves:
        raise BadInput(f"{shown(name)} lies outside {str(folder)!r}: names in data must stay in their folder")
    return regular(path)


def mode_of(path: Path) -> int:
    """What lies at a path, as `stat` tells it; 0 for nothing, and for names that no file can have."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def regular(path: Path) -> Path:
    """The path, unless a device, socket or pipe lies there: to open one could wait for ever."""
    mode = mode_of(path)
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a missing file is reported by whoever opens it
        raise BadInput(f"{str(path)!r} is not a file: devices, sockets and pipes are not read from folders")
    return path


def spooled(path: Path) -> Path:
    """A file that can be read several times: the path itself, or a copy of what comes out of a pipe.

    Pipes (`/dev/stdin`, `<(command)`) can be read once. The copy lasts as long as the process. Devices may have no end,
    and are refused.
    """
    mode = mode_of(path)
    if not mode or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return path
    with naming(path, "read"), path.open("rb") as pipe:
        if not (stat.S_ISFIFO(mode) or pipe.isatty()):
            raise BadInput(f"could not read {str(path)!r}: it is a device; give a file or a pipe")
        with tempfile.NamedTemporaryFile(prefix="whyformer-", delete=False) as copy:
            atexit.register(Path(copy.name).unlink, missing_ok=True)
            shutil.copyfileobj(pipe, copy)
    return Path(copy.name)


def named_path(text: str) -> Path | None:
    """The existing file or folder that a text names, or None."""
    if not text.strip() or "\n" in text:
        return None
    path = Path(text)
    try:
        return path if path.exists() else None
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return None


def path_of(path: str | Path) -> Path:
    """The path, if a file can have it."""
    if not isinstance(path, (str, os.PathLike)):
        raise BadInput(f"a file is given by its path, as text or as a Path; found {path!r}")
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise BadInput(f"{str(path)!r} cannot be the name of a file: it holds a character that names never have")
    return Path(path)


@contextmanager
def naming(path: Path, action: str) -> Iterator[None]:
    """Turn errors of the system into one sentence: what could not be done to which file, and why."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else f"line {_line(error)} is not UTF-8"
        raise BadInput(f"could not {action} {shown(str(path), LONGEST_NAME)}: {reason}") from error


def _line(error: UnicodeDecodeError) -> int:
    return error.object.count(b"\n", 0, error.start) + 1


def _is_written_through(path: Path) -> bool:
    folder = path.parent.resolve()
    if folder.is_relative_to(MEMORY_DISK):
        return False
    special = path.exists() and not path.is_file()
    return special or any(folder.is_relative_to(place) for place in DEVICES)


def _draft_beside(path: Path) -> Path:
    """A new, empty file in the same folder, under a name that nobody can have prepared; endings tell formats."""
    ending = path.suffix if len(path.suffix) <= 16 else ""
    draft = path.parent / f".{secrets.token_hex(8)}{ending}"
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666))
    return draft


def _finish(draft: Path, path: Path) -> None:
    """Wait until the draft is on the disk, and move it into place with the rights of what it replaces."""
    if path.is_file() and not path.is_symlink():
        draft.chmod(stat.S_IMODE(path.stat().st_mode))
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(path)


END = "\r\n"  # the writer quotes cells that hold either character
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")  # what cells begin with that spreadsheets compute


def comma_separated(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV: numbers with every digit, None as nothing, text that begins like a formula behind an apostrophe."""
    lines = _Lines()
    csv.writer(lines, lineterminator=END).writerows([_cell(value) for value in row] for row in rows)
    return "".join(f"{line.removesuffix(END)}\n" for line in lines)


class _Lines(list[str]):
    def write(self, line: str) -> None:
        """What the writer calls once for each row."""
        self.append(line)


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
