"""Journal: an append-only file of results, chunk by chunk; what a run left off, another takes up.

The first line holds the facts of the run, and a checksum of them. Then each chunk is one line per record and one commit
line, which holds the rest of the chunk, the number of its records, and a checksum of all that. Only what is committed
counts: a run that was killed, or a full disk, leaves a tail without a valid commit, which readers ignore and the next
writer cuts off.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from dataclasses import fields as fields_of
from errno import EDQUOT, EFBIG, EIO, ENOSPC
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from filelock import BaseFileLock, FileLock, Timeout

from whyformer.errors import BadInput, BadOption
from whyformer.results.evaluation import Chunk, Record
from whyformer.storage.files import naming, parsed_json, path_of, regular, replacing
from whyformer.storage.schema import (
    Form,
    Misfit,
    count,
    every,
    fields,
    finite,
    flag,
    index,
    named,
    one_of,
    optional,
    plain,
    text,
)

SCHEMA, VERSION = "whyformer/journal", 1
FILE, LOCK = "journal.jsonl", "lock"
ABOUT = "about"
HASHED = {  # facts that are hashes, with what they are made of
    "data": "its files, the rows that were chosen, the columns and the labels count",
    "model": "its weights, configuration and tokenizer count",
}
COMMIT = b'{"commit":'
SEALED = re.compile(rb'(\{"commit":.+,"records":(\d{1,18})),"checksum":"([0-9a-f]{64})"\}\n')
SEALED_OPENING = re.compile(rb'(\{"schema":.+),"checksum":"([0-9a-f]{64})"\}\n')
HEX = re.compile("(?:[0-9a-f]{2})+")
ELSEWHERE = "put back a copy of the file, or give another folder"

_KEYED = fields({"key": text})
_RECORD = fields(
    {"key": text, "row": count, "method": text, "metric": text, "value": optional(finite)},
    {"curve": every(optional(finite)), "detail": plain, "refused": optional(text)},
)
_METRIC = {"name": text, "options": named(plain), "higher_is_better": optional(flag)}
_COMMIT = fields(
    {
        "start": count,
        "stop": count,
        "metrics": named(fields({}, {**_METRIC, "level": one_of("example", "corpus"), "at": optional(every(finite))})),
        "examples": every(fields({"row": count})),
        "skipped": named(text, index),
        "counts": named(finite),
    }
)
_RUN = fields({}, {ABOUT: fields({}, {"labels": every(text)})})


class Journal:
    """The results in a folder: `open` to add to them, `read` to read them, also while another process adds to them."""

    def __init__(self, folder: str | Path, begin: Callable[[], Mapping[str, Any]] | None = None) -> None:
        self.path = Path(folder) / FILE
        self._keys = _Keys()
        self._descriptor: int | None = None
        self._opened = ExitStack()
        self._torn = False  # whether half a chunk may stand behind the last commit
        self._begin = begin  # tells the facts of a run of which nothing is written yet
        if begin is not None:
            return
        self.run, self._end = _opening(self.path)
        for chunk in _committed(self.path):
            keys = {_packed(facts["key"]) for facts in chunk.records(_KEYED)}
            if len(keys) < len(chunk.lines) or keys & self._keys.packed:
                start = chunk.commit["start"]
                raise BadInput(f"{self.path} has a record of the rows from {start} on twice: {ELSEWHERE}")
            self._keys.packed |= keys
            self._end = chunk.end

    @classmethod
    def open(cls, folder: str | Path, run: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> Self:
        """The journal of a folder, made if there is none, for one writer.

        `run` is what determines all its numbers; `run["about"]`, what people call that, may differ. If it is a
        function, a journal is made with the first chunk, and nobody waits for the facts before. A folder that is a link
        is followed; a journal that is one is refused, because what it points to would grow.
        """
        path = path_of(folder) / FILE
        with ExitStack() as opened, naming(path, "write"):
            opened.callback(_locked(path.parent).release)
            if path.is_symlink():
                raise BadInput(f"{path} is a link, and what it points to is not written to: link the folder instead")
            is_there = regular(path).exists()
            if callable(run) and not is_there:
                journal = cls(folder, run)
            else:
                asked: dict[str, Any] = json.loads(_dumped(run() if callable(run) else run))
                if not is_there:
                    _create(path, asked)
                journal = cls(folder)
                if difference := _difference(asked, journal.run):
                    what = f"another run{_called(journal.run)}"
                    raise BadOption(f"{path} holds {what}: {difference}; give another folder, or ask for the same run")
                journal._open_file(opened)
            journal._opened = opened.pop_all()
        return journal

    def _open_file(self, opened: ExitStack) -> None:
        descriptor = os.open(self.path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        opened.callback(os.close, descriptor)
        self._cut(descriptor)
        self._descriptor = descriptor

    def _make(self, begin: Callable[[], Mapping[str, Any]]) -> None:
        """Make the file of a journal that was opened before its facts were known."""
        asked = json.loads(_dumped(begin()))
        with naming(self.path, "write"):
            _create(self.path, asked)
            self.run, self._end = _opening(self.path)
            self._open_file(self._opened)
        self._begin = None

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """The journal of a folder as it is now, for reading; nothing is locked or repaired."""
        path = path_of(folder) / FILE
        if not regular(path).exists():
            raise BadInput(f"there are no results in {folder}: no file {FILE}; give the folder that a run wrote to")
        with naming(path, "read"):
            return cls(folder)

    @property
    def keys(self) -> Set[str]:
        """The keys of all committed records."""
        return self._keys

    def chunks(self) -> Iterator[Chunk]:
        """The chunks in the order in which they were written, streamed from the file."""
        for chunk in () if self._begin else _committed(self.path, self._end):
            yield chunk.read()

    def append(self, chunk: Chunk) -> None:
        """Write a chunk, which is on the disk when this returns; if it cannot be written, nothing of it is left."""
        if self._begin is not None:
            self._make(self._begin)
        if self._descriptor is None:
            raise ValueError(f"{self!r} is not open for writing")
        keys = {_packed(record.key) for record in chunk.records}
        if len(keys) < len(chunk.records) or keys & self._keys.packed:
            raise ValueError(f"rows {chunk.start} to {chunk.stop - 1}: a record is there twice, or in {self!r} already")
        data = _lines(chunk)
        try:
            self._check(self._descriptor)
            self._write(self._descriptor, data, keys)
        except OSError as error:
            once = "there is room" if error.errno in (ENOSPC, EDQUOT, EFBIG) else "it can be written to"
            safe = f"{len(self)} records are safe there, and the same command goes on once {once}"
            raise BadInput(f"could not write {self.path}: {error.strerror or error}; {safe}") from error

    def _check(self, descriptor: int) -> None:
        if self._torn:
            self._cut(descriptor)
        status = os.fstat(descriptor)
        if status.st_size != self._end or not status.st_nlink:
            raise BadInput(f"{self.path} was changed or removed while this run was writing to it: {ELSEWHERE}")

    def _write(self, descriptor: int, data: bytes, keys: set[bytes | str]) -> None:
        end = self._end
        try:
            self._torn = True
            os.lseek(descriptor, end, os.SEEK_SET)
            _put(descriptor, data)
            self._keys.packed |= keys
            self._end = end + len(data)
            self._torn = False
        except BaseException:  # also Ctrl-C: all is again as it was before
            self._torn, self._end = True, end
            self._keys.packed -= keys
            with suppress(OSError):  # then the next append, or the next run, cuts it off
                self._cut(descriptor)
            raise

    def _cut(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size > self._end:
            os.ftruncate(descriptor, self._end)
            os.fsync(descriptor)
        self._torn = False

    def close(self) -> None:
        """Stop writing, so that another run may."""
        self._descriptor = self._begin = None
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Journal({str(self.path.parent)!r}, {len(self)} records)"


class _Keys(Set[str]):
    """A set of keys that holds those in hexadecimal as bytes, in half the memory."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.packed = set(map(_packed, keys))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and _packed(key) in self.packed

    def __iter__(self) -> Iterator[str]:
        return (key.hex() if isinstance(key, bytes) else key for key in self.packed)

    def __len__(self) -> int:
        return len(self.packed)


def _packed(key: str) -> bytes | str:
    return bytes.fromhex(key) if HEX.fullmatch(key) else key


def _plain(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} of {type(value).__name__} cannot be written as JSON")


_dumped = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain).encode  # made once for all records


def _lines(chunk: Chunk) -> bytes:
    """A chunk as it is written: its records, what else there is, and the checksum of all that."""
    usual = {field.name: field.default for field in fields_of(Record)}
    records = [{n: v for n, v in vars(record).items() if v is not usual[n]} for record in chunk.records]
    commit = {f.name: getattr(chunk, f.name) for f in fields_of(Chunk) if f.name != "records"}
    sealed = "".join(f"{_dumped(record)}\n" for record in records)
    sealed += f'{{"commit":{_dumped(commit)},"records":{len(records)}'
    return f'{sealed},"checksum":"{sha256(sealed.encode()).hexdigest()}"}}\n'.encode()


@dataclass(frozen=True)
class _Committed:
    """A committed chunk as it lies in the file: its lines, the number of the first, and where it ends.

    That it is what was written does not mean that it was a journal's: what is read is checked.
    """

    path: Path
    first: int
    lines: list[bytes]
    sealed: bytes
    end: int

    @cached_property
    def commit(self) -> dict[str, Any]:
        """What stands beside the records."""
        number = self.first + len(self.lines)
        commit: dict[str, Any] = self._checked(self.sealed, number, fields({"commit": _COMMIT}))["commit"]
        return commit

    def records(self, form: Form) -> list[dict[str, Any]]:
        """The records, each in this form."""
        try:
            records: list[dict[str, Any]] = parsed_json(b"[%s]" % b",".join(self.lines))
            if len(records) == len(self.lines):
                for record in records:
                    form(record)
                return records
        except ValueError:  # the lines are read one by one, to say which
            pass
        return [self._checked(line, number, form) for number, line in enumerate(self.lines, self.first)]

    def read(self) -> Chunk:
        """The chunk."""
        known = {field.name for field in fields_of(Record)}
        facts = [{name: value for name, value in line.items() if name in known} for line in self.records(_RECORD)]
        records = tuple(Record(**{**of_row, "curve": tuple(of_row.get("curve", ()))}) for of_row in facts)
        commit = {field.name: self.commit[field.name] for field in fields_of(Chunk) if field.name in self.commit}
        skipped = {int(row): why for row, why in commit["skipped"].items()}
        return Chunk(**{**commit, "records": records, "examples": tuple(commit["examples"]), "skipped": skipped})

    def _checked(self, line: bytes, number: int, form: Form) -> Any:
        try:
            facts = parsed_json(line)
            form(facts)
        except ValueError as error:
            raise BadInput(f"{self.path}, line {number}: not as a journal has it, {error}: {ELSEWHERE}") from error
        return facts


def _committed(path: Path, stop: int | None = None) -> Iterator[_Committed]:
    """The committed chunks, one after the other.

    A killed run leaves part of one chunk at the end of the file, and nothing behind its commit line. Anything else that
    is not as it was written is damage, and raises.
    """
    with path.open("rb") as file:
        stop = os.fstat(file.fileno()).st_size if stop is None else stop
        position = len(file.readline())
        lines: list[bytes] = []
        broken = False  # whether the last line is a commit that is not valid
        for number, line in enumerate(file, 2):
            position += len(line)
            if position > stop:  # written since
                return
            sealed = _sealed(lines, line)
            if broken or (sealed is not None and sealed < len(lines)):
                raise _damage(path, lines[: len(lines) - (sealed or 0)], number - len(lines))
            if sealed is None:
                lines.append(line)
                broken = line.startswith(COMMIT)
            else:
                yield _Committed(path, number - len(lines), lines, line, position)
                lines = []


def _sealed(lines: list[bytes], line: bytes) -> int | None:
    """How many of the last lines are committed by this one; None if it is no commit, or not what was written."""
    parts = SEALED.fullmatch(line)
    if parts is None or int(parts[2]) > len(lines):
        return None
    records = lines[len(lines) - int(parts[2]) :]
    return len(records) if _checksum(b"".join([*records, parts[1]])) == parts[3] else None


def _checksum(content: bytes) -> bytes:
    return sha256(content).hexdigest().encode()


def _damage(path: Path, lines: list[bytes], first: int) -> BadInput:
    facts = (_parsed(line) for line in lines)
    at = next((number for number, read in enumerate(facts, first) if "key" not in read), first)
    where = f"lines {first} to {first + len(lines) - 1}"
    return BadInput(
        f"{path}, line {at}: damaged, and there is more behind it; {where} do not fit together: {ELSEWHERE}"
    )


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        read = parsed_json(line)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _opening(path: Path) -> tuple[dict[str, Any], int]:
    """The facts of the run, from the first line of a journal, and where that line ends."""
    with path.open("rb") as file:
        line = file.readline()
    first = _parsed(line)
    if first.get("schema") != SCHEMA or not isinstance(first.get("run"), dict) or not line.endswith(b"\n"):
        raise BadInput(f"{path}, line 1: not the first line of a journal of results: {ELSEWHERE}")
    version = first.get("schema_version")
    if type(version) is not int or version != VERSION:
        advice = "use the whyformer that wrote it, or give another folder"
        raise BadInput(f"{path} is a journal of version {version!r}; this whyformer reads version {VERSION}: {advice}")
    sealed = SEALED_OPENING.fullmatch(line)  # journals of earlier versions have no checksum there
    if first.keys() != {"schema", "schema_version", "run"} and not (sealed and _checksum(sealed[1]) == sealed[2]):
        raise BadInput(f"{path}, line 1: damaged, its checksum is not right: {ELSEWHERE}")
    try:
        _RUN(first["run"])
    except Misfit as misfit:
        raise BadInput(f"{path}, line 1: the facts of the run are not as a journal has them, {misfit}") from misfit
    return first["run"], len(line)


def _create(path: Path, run: Mapping[str, Any]) -> None:
    """Make a journal without records, in one step: there is never half a first line."""
    facts = _dumped({"schema": SCHEMA, "schema_version": VERSION, "run": run}).encode().removesuffix(b"}")
    with replacing(path) as draft, draft.open("wb", buffering=0) as file:
        _put(file.fileno(), b'%s,"checksum":"%s"}\n' % (facts, _checksum(facts)))


def _put(descriptor: int, data: bytes) -> None:
    """Write all in one call, with another only if that fell short, to know why; and wait until it is on the disk."""
    done = 0
    while done < len(data):
        count = os.write(descriptor, memoryview(data)[done:])
        if not count:
            raise OSError(EIO, "nothing was written")
        done += count
    os.fsync(descriptor)


def _locked(folder: Path) -> BaseFileLock:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise BadInput(f"another run is writing to {folder}: wait for it, stop it, or give another folder") from error
    return lock


def _difference(asked: dict[str, Any], journalled: dict[str, Any], within: str = "") -> str:
    """The first fact in which two runs differ, in words; empty if there is none."""
    for name in asked | journalled:
        one, other = (side.get(name) if within or name != ABOUT else None for side in (asked, journalled))
        if isinstance(one, dict) and isinstance(other, dict):
            if inside := _difference(one, other, f"{within}{name}."):
                return inside
        elif _dumped(one) != _dumped(other):
            if name in HASHED:
                return f"{within}{name} is not the same ({HASHED[name]})"
            return f"{within}{name} asked for: {one!r}, found: {other!r}"
    return ""


def _called(run: Mapping[str, Any]) -> str:
    """What people call a run, in brackets; empty if that is not known."""
    about = run.get(ABOUT) or {}
    names = ", ".join(f"{name} {about[name]}" for name in ("model", "data") if about.get(name))
    return f" ({names})" if names else ""
