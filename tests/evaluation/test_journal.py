"""The journal: what is written comes back, and nothing is lost or doubled, whatever ends a run."""

import errno
import inspect
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import pytest

import whyformer
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.journal import Journal
from whyformer.results.evaluation import Chunk, Record

RUN = {"model": {"fingerprint": "f00d", "labels": ["NEGATIVE", "POSITIVE"]}, "data": "abc", "dtype": "float32", "n": 3}


def key(*parts: Any) -> str:
    return sha256(repr(parts).encode()).hexdigest()[:32]


def made(index: int, records: int = 2) -> Chunk:
    """The chunk of this number: always the same."""
    start = 1000 * index
    rows = range(start, start + records)
    return Chunk(
        start,
        start + 1000,
        tuple(Record(key(row), row, "attcat(states=inputs)", "aopc", 1 / (row + 3), (0.0, None, 0.1)) for row in rows),
        {"aopc": {"name": "aopc", "level": "example", "at": [0.0, 0.5, 1.0]}},
        tuple({"row": row, "units": 7, "probability": row / 3} for row in rows),
        {start + 999: "empty"},
        {"evaluations": index},
    )


def written(folder: Path, chunks: Sequence[Chunk], run: Any = RUN) -> bytes:
    """The file of a run that was not interrupted."""
    with Journal.open(folder, run) as journal:
        for chunk in chunks:
            journal.append(chunk)
    return file_of(folder).read_bytes()


def file_of(folder: Path) -> Path:
    return folder / "journal.jsonl"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not wait for the disk: for tests that write hundreds of times."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def child() -> Iterator[Callable[[Path, str], subprocess.Popen[str]]]:
    """Starts a process that has the names of this file; it does not import the package, so it is there at once."""
    started: list[subprocess.Popen[str]] = []
    preamble = [
        "import resource, sys, time, types",
        "from hashlib import sha256",
        "from pathlib import Path",
        "from typing import Any",
        "package = sys.modules['whyformer'] = types.ModuleType('whyformer')",
        f"package.__path__ = {list(whyformer.__path__)!r}",
        "from whyformer.errors import BadInput",
        "from whyformer.evaluation.journal import Chunk, Journal, Record",
        f"RUN = {RUN!r}",
        *map(inspect.getsource, (key, made)),
    ]

    def start(folder: Path, code: str) -> subprocess.Popen[str]:
        lines = [*preamble, f"folder = Path({str(folder)!r})", code]
        process = subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# What is written comes back


def test_what_is_written_comes_back_exactly(tmp_path: Path) -> None:
    numbers = (0.1, 1 / 3, -0.0, 5e-324, sys.float_info.max, 2.0**-1074, 1e22, math.pi, -123456.789e-12, 0.0)
    records = (
        Record(key("a"), 7, "attcat", "aopc", math.nextafter(0.1, 1), (*numbers, None)),
        Record("no hexadecimal, ü \ud800 \u2028 \n", 2**60, "méthode\n", "log_odds(hide=pad)", None, refused='a "b"\n'),
        Record("KEY", 8, "rollout", "token_overlap", -0.0, (), {"words": [["a", 1.5, None], []], "deep": {"x": True}}),
        Record("", 9, "", "", 3.0, detail=[]),
        Record("c0ffe", 9, "m", "n", 1.0, detail=0),
    )
    metrics = {"aopc": {"name": "aopc", "options": {"fractions": [0.0, 0.1]}, "higher_is_better": True, "at": None}}
    first = Chunk(
        0, 16, records, metrics, ({"row": 7, "gold": None, "probability": 0.1},), {3: "why\n", 11: ""}, {"n": 2}
    )
    empty = Chunk(16, 20, ())
    written(tmp_path, [first, empty])
    for journal in (Journal.read(tmp_path), Journal.open(tmp_path, RUN)):
        with journal:
            read = list(journal.chunks())
            assert read == [first, empty] == list(journal.chunks())
            assert [math.copysign(1, v) for v in read[0].records[0].curve[:-1] if v is not None] == [
                math.copysign(1, v) for v in numbers
            ]
            assert [type(row) for row in read[0].skipped] == [int, int]
            assert isinstance(read[0].records[0].curve, tuple)
            assert isinstance(read[0].examples, tuple)
            assert read[1] == Chunk(16, 20, (), {}, (), {}, {})
            assert journal.run == RUN
            assert len(journal) == 5
            assert repr(journal) == f"Journal({str(tmp_path)!r}, 5 records)"


def test_tuples_and_other_mappings_are_written_as_lists_and_objects(tmp_path: Path) -> None:
    proxy = MappingProxyType({"options": MappingProxyType({"at": (0.5, 1.0)})})
    written(tmp_path, [Chunk(0, 1, (Record("a", 0, "m", "n", 1.0, detail=(1, (2,))),), {"n": proxy})])
    (chunk,) = Journal.read(tmp_path).chunks()
    assert chunk.records[0].detail == [1, [2]]
    assert chunk.metrics == {"n": {"options": {"at": [0.5, 1.0]}}}


def test_the_file_is_as_described(tmp_path: Path) -> None:
    """Read without the journal: a header, a line for each record, a commit with a checksum of all bytes before it."""
    content = written(tmp_path, [made(0), made(1, records=1)])
    header, *lines = content.splitlines(keepends=True)
    before, _, after = header.rpartition(b',"checksum":"')
    assert json.loads(before + b"}") == {"schema": "whyformer/journal", "schema_version": 1, "run": RUN}
    assert after == f'{sha256(before).hexdigest()}"}}\n'.encode()
    assert [next(iter(json.loads(line))) for line in lines] == ["key", "key", "commit", "key", "commit"]
    values = [key(0), 0, "attcat(states=inputs)", "aopc", 1 / 3, [0.0, None, 0.1]]
    assert json.loads(lines[0]) == dict(zip(["key", "row", "method", "metric", "value", "curve"], values, strict=True))
    for records in (lines[:3], lines[3:]):
        body, _, checksum = b"".join(records).rpartition(b',"checksum":')
        assert checksum == b'"' + sha256(body).hexdigest().encode() + b'"}\n'
        commit = json.loads(records[-1])
        assert commit["records"] == len(records) - 1
        assert list(commit["commit"]) == ["start", "stop", "metrics", "examples", "skipped", "counts"]
    assert {path.name for path in tmp_path.iterdir()} == {"journal.jsonl", "lock"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["value", "curve", "detail", "counts"])
def test_what_json_cannot_say_is_refused_and_nothing_is_written(tmp_path: Path, value: float, where: str) -> None:
    given = {"value": 1.0, "curve": (), "detail": None, "counts": 0}
    given[where] = (value,) if where == "curve" else value
    counts: Any = {"n": given.pop("counts")}
    bad = Chunk(4, 8, (Record(key("x"), 4, "m", "n", **given),), counts=counts)  # type: ignore[arg-type]
    with Journal.open(tmp_path, RUN) as journal:
        journal.append(made(0))
        with pytest.raises(ValueError, match="JSON"):
            journal.append(bad)
        assert key("x") not in journal
        journal.append(made(1))
    assert file_of(tmp_path).read_bytes() == written(tmp_path / "other", [made(0), made(1)])


def test_what_is_no_plain_data_is_refused(tmp_path: Path) -> None:
    with Journal.open(tmp_path, RUN) as journal:
        with pytest.raises(TypeError, match="cannot be written as JSON"):
            journal.append(Chunk(0, 1, (Record("a", 0, "m", "n", 1.0, detail={1, 2}),)))
        assert len(journal) == 0


def test_keys_are_a_set_of_strings(tmp_path: Path) -> None:
    """Hexadecimal keys are kept as bytes, and still are not taken for others: `7a7a` is not `zz`, `AB` not `ab`."""
    names = ["7a7a", "zz", "AB", "ab", "abc", "0abc", "", "ü", key("a")]
    with Journal.open(tmp_path, RUN) as journal:
        journal.append(Chunk(0, 1, tuple(Record(name, 0, "m", "n", 1.0) for name in names)))
        assert journal.keys == set(names)
        assert sorted(journal.keys) == sorted(names)
        assert {*names, "new"} - journal.keys == {"new"}
        assert journal.keys & {"zz", "new"} == {"zz"}
        assert all(name in journal and name in journal.keys for name in names)
        assert not any(name in journal for name in ("7A7A", "aB", "0ab", "new", b"zz", b"\xab", None, 7))
    assert Journal.read(tmp_path).keys == set(names)


def test_a_record_that_is_there_already_is_refused(tmp_path: Path) -> None:
    twice = Record("b", 9, "m", "n", 1.0)
    with Journal.open(tmp_path, RUN) as journal:
        journal.append(made(0))
        before = file_of(tmp_path).read_bytes()
        for records in ((made(0).records[1],), (Record("c", 9, "m", "n", 1.0), twice, twice)):
            with pytest.raises(ValueError, match="rows 8 to 11: a record is there twice"):
                journal.append(Chunk(8, 12, records))
        assert journal.keys == {key(0), key(1)}
        assert file_of(tmp_path).read_bytes() == before
        journal.append(Chunk(8, 12, (twice,)))


def test_a_file_with_a_record_twice_is_refused(tmp_path: Path) -> None:
    content = written(tmp_path, [made(0), made(1)])
    header = content.index(b"\n") + 1
    file_of(tmp_path).write_bytes(content + content[header:])
    with pytest.raises(BadInput, match=r"journal\.jsonl has a record of the rows from 0 on twice"):
        Journal.read(tmp_path)


def test_only_an_open_journal_is_written_to(tmp_path: Path) -> None:
    with Journal.open(tmp_path, RUN) as journal:
        journal.append(made(0))
    journal.close()
    for closed in (journal, Journal.read(tmp_path)):
        with pytest.raises(ValueError, match="not open for writing"):
            closed.append(made(1))
        assert list(closed.chunks()) == [made(0)]


@pytest.mark.long
def test_chunks_are_streamed(tmp_path: Path, quick: None) -> None:
    """Reading holds a chunk and the keys, not the file."""
    with Journal.open(tmp_path, RUN) as journal:
        for i in range(150):
            rows = range(20 * i, 20 * i + 20)
            journal.append(Chunk(0, 1, tuple(Record(key(row), row, "m", "n", 0.5, (0.25,) * 250) for row in rows)))
    tracemalloc.start()
    journal = Journal.read(tmp_path)
    assert sum(len(chunk.records) for chunk in journal.chunks()) == 3000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = file_of(tmp_path).stat().st_size
    assert size > 3_500_000
    assert peak < size / 3


# Which run it is


def test_a_run_takes_up_where_another_left_off(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", [made(i) for i in range(6)])
    for i in range(6):
        with Journal.open(tmp_path / "parts" / "deep", RUN) as journal:
            assert journal.keys == {r.key for j in range(i) for r in made(j).records}
            assert list(journal.chunks()) == [made(j) for j in range(i)]
            journal.append(made(i))
            assert list(journal.chunks()) == [made(j) for j in range(i + 1)]
    assert file_of(tmp_path / "parts" / "deep").read_bytes() == whole


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"dtype": "float64"}, "dtype asked for: 'float64', found: 'float32'"),
        ({"model": {**RUN["model"], "labels": ["POSITIVE"]}}, r"model\.labels asked for: \['POSITIVE'\]"),  # type: ignore[dict-item]
        ({"n": 3.0}, r"n asked for: 3\.0, found: 3"),
        ({"n": True}, "n asked for: True, found: 3"),
        ({"seed": 1}, "seed asked for: 1, found: None"),
        ({"data": "x", "n": 9}, r"data is not the same \(its files"),
    ],
)
def test_another_run_is_refused_and_the_first_fact_named(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    before = written(tmp_path, [made(0)])
    with pytest.raises(BadOption, match=rf"journal\.jsonl holds another run: {words}.*; give another folder"):
        Journal.open(tmp_path, RUN | changed)
    assert file_of(tmp_path).read_bytes() == before
    with Journal.open(tmp_path, RUN) as journal:  # the lock was given back
        assert len(journal) == 2


def test_a_fact_that_is_no_longer_there_is_named(tmp_path: Path) -> None:
    written(tmp_path, [])
    with pytest.raises(BadOption, match="n asked for: None, found: 3"):
        Journal.open(tmp_path, {name: fact for name, fact in RUN.items() if name != "n"})


def test_facts_are_compared_as_they_are_written(tmp_path: Path) -> None:
    run = {"layers": (0, 1), "options": MappingProxyType({"x": 0.1, "y": None})}
    written(tmp_path, [], run)
    with Journal.open(tmp_path, {"options": {"y": None, "x": 0.1}, "layers": [0, 1]}) as journal:
        assert journal.run == {"layers": [0, 1], "options": {"x": 0.1, "y": None}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1: not the first line of a journal"),
        (b"\x00" * 100, "line 1: not the first line of a journal"),
        (b"a,b\n1,2\n", "line 1: not the first line of a journal"),
        (b"[1]\n", "line 1: not the first line of a journal"),
        (b'{"schema": "whyformer/explanation", "schema_version": 1, "run": {}}\n', "line 1: not the first line"),
        (b'{"schema": "whyformer/journal", "schema_version": 1}\n', "line 1: not the first line of a journal"),
        (
            b'{"schema": "whyformer/journal", "schema_version": 2, "run": {}}\n',
            "version 2; this whyformer reads version 1",
        ),
        (b'{"schema": "whyformer/journal", "schema_version": 1, "run": {}}', "line 1: not the first line of a journal"),
    ],
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, content: bytes, words: str) -> None:
    file_of(tmp_path).write_bytes(content)
    for start in (lambda: Journal.open(tmp_path, {}), lambda: Journal.read(tmp_path)):
        with pytest.raises(BadInput, match=words):
            start()
    assert file_of(tmp_path).read_bytes() == content


def test_there_must_be_something_to_read_and_a_folder_to_write_to(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there are no results in .*nowhere: no file journal\.jsonl"):
        Journal.read(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(BadInput, match=r"could not write .*file"):
        Journal.open(tmp_path / "file", RUN)
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"could not read .*: Is a directory"):
        Journal.read(tmp_path)


# Torn tails and damage


@pytest.mark.long
def test_a_tail_torn_at_any_byte_is_cut_off(tmp_path: Path, quick: None) -> None:
    """Of the last chunk only the first n bytes are there; the next run writes it again, and all is as if never torn."""
    before = len(written(tmp_path / "a", [made(0), made(1)]))
    whole = written(tmp_path / "a", [made(2)])
    path = file_of(tmp_path / "a")
    for length in range(before, len(whole)):
        path.write_bytes(whole[:length])
        reader = Journal.read(tmp_path / "a")
        assert list(reader.chunks()) == [made(0), made(1)]
        assert path.stat().st_size == length  # readers repair nothing
        with Journal.open(tmp_path / "a", RUN) as journal:
            assert journal.keys == reader.keys == {r.key for i in (0, 1) for r in made(i).records}
            assert path.read_bytes() == whole[:before]
            journal.append(made(2))
        assert path.read_bytes() == whole
    assert len(whole) - before > 500


@pytest.mark.parametrize(
    "damage", [lambda byte: byte ^ 1, lambda byte: 0, lambda byte: 10], ids=["bit", "zero", "line"]
)
def test_a_last_chunk_damaged_at_any_byte_is_never_taken_for_sound(
    tmp_path: Path, quick: None, damage: Callable[[int], int]
) -> None:
    before = len(written(tmp_path / "a", [made(0), made(1)]))
    whole = written(tmp_path / "a", [made(2)])
    path = file_of(tmp_path / "a")
    refused = 0
    for at in range(before, len(whole)):
        if damage(whole[at]) == whole[at]:
            continue
        path.write_bytes(whole[:at] + bytes([damage(whole[at])]) + whole[at + 1 :])
        try:
            with Journal.open(tmp_path / "a", RUN) as journal:
                journal.append(made(2))
            assert path.read_bytes() == whole
        except BadInput:  # a commit line broken in two: there is something behind it
            refused += 1
    assert refused == 0 or damage(0) == 10


@pytest.mark.parametrize(
    "damage", [lambda byte: byte ^ 1, lambda byte: 0, lambda byte: 10], ids=["bit", "zero", "line"]
)
def test_damage_before_the_last_chunk_is_an_error_with_its_line(
    tmp_path: Path, quick: None, damage: Callable[[int], int]
) -> None:
    header = len(written(tmp_path / "a", []))
    first = len(written(tmp_path / "a", [made(0)]))
    whole = written(tmp_path / "a", [made(1)])
    path = file_of(tmp_path / "a")
    for at in range(header, first):
        if damage(whole[at]) == whole[at]:
            continue
        damaged = whole[:at] + bytes([damage(whole[at])]) + whole[at + 1 :]
        path.write_bytes(damaged)
        line = whole[:at].count(b"\n") + 1
        for start in (lambda: Journal.open(tmp_path / "a", RUN), lambda: Journal.read(tmp_path / "a")):
            with pytest.raises(BadInput, match=r"journal\.jsonl, line \d+: damaged") as caught:
                start()
            first_line, last_line = map(int, str(caught.value).split("lines ")[1].split(" do")[0].split(" to "))
            assert 2 == first_line <= line <= last_line
        assert path.read_bytes() == damaged  # nothing is cut off that may be saved


def test_the_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    lines = written(tmp_path, [made(0), made(1), made(2)]).splitlines(keepends=True)
    assert len(lines) == 10
    for number, expected in {5: 5, 6: 6, 7: 7, 4: 4}.items():
        broken = [*lines[: number - 1], b"{" + lines[number - 1], *lines[number:]]
        file_of(tmp_path).write_bytes(b"".join(broken))
        with pytest.raises(BadInput, match=f"line {expected}: damaged"):
            Journal.read(tmp_path)


@pytest.mark.parametrize("missing", [2, 3, 4, 5, 6, 7])
def test_a_missing_line_is_damage(tmp_path: Path, missing: int) -> None:
    lines = written(tmp_path, [made(0), made(1), made(2)]).splitlines(keepends=True)
    file_of(tmp_path).write_bytes(b"".join(lines[: missing - 1] + lines[missing:]))
    with pytest.raises(BadInput, match="damaged"):
        Journal.open(tmp_path, RUN)


def test_a_damaged_first_line_is_never_taken_for_sound(tmp_path: Path) -> None:
    whole = written(tmp_path, [made(0)])
    for at in range(whole.index(b"\n") + 1):
        damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        file_of(tmp_path).write_bytes(damaged)
        with pytest.raises((BadInput, BadOption)):
            Journal.open(tmp_path, RUN)
        assert file_of(tmp_path).read_bytes() == damaged


def test_other_line_ends_are_damage_and_not_a_tail(tmp_path: Path) -> None:
    """As an editor or a version control system may leave them: all checksums are wrong, and nothing may be cut off."""
    content = written(tmp_path, [made(0), made(1)]).replace(b"\n", b"\r\n")
    file_of(tmp_path).write_bytes(content)
    with pytest.raises(BadInput, match="damaged"):
        Journal.open(tmp_path, RUN)
    assert file_of(tmp_path).read_bytes() == content


def test_a_half_made_journal_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "journal.new").write_bytes(b'{"schema": "whyf')
    whole = written(tmp_path, [made(0)])
    assert whole == written(tmp_path / "other", [made(0)])


def test_a_reader_beside_a_writer_sees_what_was_committed_when_it_came(tmp_path: Path) -> None:
    with Journal.open(tmp_path, RUN) as journal:
        journal.append(made(0))
        reader = Journal.read(tmp_path)
        chunks = reader.chunks()
        journal.append(made(1))
        assert list(chunks) == [made(0)]
        assert len(reader) == 2
        assert list(Journal.read(tmp_path).chunks()) == [made(0), made(1)]


# Two writers


def test_a_second_run_is_refused_at_once(tmp_path: Path, child: Any) -> None:
    with Journal.open(tmp_path, RUN) as journal:
        journal.append(made(0))
        for run in (RUN, {}):
            with pytest.raises(BadInput, match=r"another run is writing to .*: wait for it, stop it, or give another"):
                Journal.open(tmp_path, run)
        code = "try:\n    Journal.open(folder, RUN)\nexcept BadInput as error:\n    print(error)"
        assert said(child(tmp_path, code)).startswith(f"another run is writing to {tmp_path}: ")
        journal.append(made(1))
    with Journal.open(tmp_path, RUN) as journal:
        assert len(journal) == 4


def test_a_killed_run_holds_nothing(tmp_path: Path, child: Any) -> None:
    holder = child(tmp_path, "j = Journal.open(folder, RUN)\nprint('open', flush=True)\ntime.sleep(600)")
    assert said(holder) == "open"
    with pytest.raises(BadInput, match="another run is writing"):
        Journal.open(tmp_path, RUN)
    holder.kill()
    holder.wait()
    with Journal.open(tmp_path, RUN) as journal:
        journal.append(made(0))


def test_a_file_that_something_else_changed_is_not_written_to(tmp_path: Path) -> None:
    for change in (lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes() + b"note\n")):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with Journal.open(folder, RUN) as journal:
            journal.append(made(0))
            change(file_of(folder))
            for _ in range(2):
                with pytest.raises(BadInput, match="changed or removed while this run was writing"):
                    journal.append(made(1))
            assert len(journal) == 2


# What ends a write


def failing(real: Callable[..., Any], error: BaseException, part: float = 0.0) -> Callable[..., Any]:
    """A function that does part of what it should, and then fails."""
    calls: list[int] = []

    def fail(descriptor: int, *arguments: Any) -> Any:
        calls.append(descriptor)
        if arguments and part and len(calls) == 1:
            real(descriptor, arguments[0][: int(part * len(arguments[0]))])
        raise error

    return fail


@pytest.mark.parametrize("function", ["write", "fsync"])
@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("number", "once"), [(errno.ENOSPC, "there is room"), (errno.EIO, "it can be written to")], ids=["full", "broken"]
)
def test_a_failed_write_leaves_what_was_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, part: float, number: int, once: str
) -> None:
    whole = written(tmp_path / "whole", [made(0), made(1)])
    with Journal.open(tmp_path / "a", RUN) as journal:
        journal.append(made(0))
        before = file_of(tmp_path / "a").read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, function, failing(getattr(os, function), OSError(number, os.strerror(number)), part))
            words = f"{os.strerror(number)}; 2 records are safe there, and the same command goes on once {once}"
            with pytest.raises(BadInput, match=f"could not write .*journal.jsonl: {words}$"):
                journal.append(made(1))
        assert file_of(tmp_path / "a").read_bytes() == before
        assert journal.keys == {r.key for r in made(0).records}
        journal.append(made(1))
    assert file_of(tmp_path / "a").read_bytes() == whole


@pytest.mark.parametrize("again", ["the same journal", "another run"])
def test_a_tail_that_cannot_be_cut_off_is_cut_off_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    whole = written(tmp_path / "whole", [made(0), made(1)])
    path = file_of(tmp_path / "a")
    with Journal.open(tmp_path / "a", RUN) as journal:
        journal.append(made(0))
        size = path.stat().st_size
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", failing(os.write, OSError(errno.ENOSPC, "full"), 0.7))
            patch.setattr(os, "ftruncate", failing(os.ftruncate, OSError(errno.EIO, "broken")))
            for reason in ("full", "broken"):
                with pytest.raises(BadInput, match=f": {reason}; 2 records are safe"):
                    journal.append(made(1))
                assert path.stat().st_size > size
                assert list(Journal.read(tmp_path / "a").chunks()) == [made(0)]
        if again == "the same journal":
            journal.append(made(1))
    if again == "another run":
        with Journal.open(tmp_path / "a", RUN) as journal:
            assert path.stat().st_size == size
            journal.append(made(1))
    assert path.read_bytes() == whole


@pytest.mark.parametrize(("function", "part"), [("write", 0.0), ("write", 0.5), ("write", 1.0), ("fsync", 0.0)])
@pytest.mark.parametrize("again", ["the same journal", "another run"])
def test_ctrl_c_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, part: float, again: str
) -> None:
    whole = written(tmp_path / "whole", [made(0), made(1)])
    with Journal.open(tmp_path / "a", RUN) as journal:
        journal.append(made(0))
        with monkeypatch.context() as patch:
            patch.setattr(os, function, failing(getattr(os, function), KeyboardInterrupt(), part))
            with pytest.raises(KeyboardInterrupt):
                journal.append(made(1))
        assert journal.keys == {r.key for r in made(0).records}
        assert list(journal.chunks()) == [made(0)]
        if again == "the same journal":
            journal.append(made(1))
    if again == "another run":
        with Journal.open(tmp_path / "a", RUN) as journal:
            journal.append(made(1))
    assert file_of(tmp_path / "a").read_bytes() == whole


def interrupted(call: Callable[[], None], line: int) -> bool:
    """Whether Ctrl-C came before the call was done; it comes before this line of the journal's code is run."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != inspect.getfile(Journal):
            return None
        lines += event == "line"
        if event == "line" and lines == line:
            raise KeyboardInterrupt
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(previous)
    return False


def test_ctrl_c_at_any_line_leaves_all_or_nothing(tmp_path: Path, quick: None) -> None:
    whole = written(tmp_path / "whole", [made(0), made(1)])
    for line in count(1):
        folder = tmp_path / str(line)
        with Journal.open(folder, RUN) as journal:
            journal.append(made(0))
            ended = interrupted(lambda journal=journal: journal.append(made(1)), line)
            committed = [made(0)] if ended else [made(0), made(1)]
            assert journal.keys == {record.key for chunk in committed for record in chunk.records}
            assert list(journal.chunks()) == committed == list(Journal.read(folder).chunks())
            if not ended:
                break
            journal.append(made(1))
        assert file_of(folder).read_bytes() == whole
    assert line > 30


def test_a_short_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = written(tmp_path / "whole", [made(0), made(1)])
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:100]))
    assert written(tmp_path / "a", [made(0), made(1)]) == whole


def test_a_write_that_gets_nowhere_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.open(tmp_path, RUN) as journal:
        monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
        with pytest.raises(BadInput, match="nothing was written; 0 records are safe"):
            journal.append(made(0))


def test_a_chunk_is_one_write_and_counts_once_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []

    def watch(name: str, real: Callable[..., Any]) -> None:
        def noting(*given: Any) -> Any:
            calls.append((name, len(journal)))
            return real(*given)

        monkeypatch.setattr(os, name, noting)

    with Journal.open(tmp_path, RUN) as journal:
        watch("write", os.write)
        watch("fsync", os.fsync)
        for i in range(3):
            calls.clear()
            journal.append(made(i))
            assert calls == [("write", 2 * i), ("fsync", 2 * i)]


def test_a_journal_that_cannot_be_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(os.write, OSError(errno.ENOSPC, "No space left on device"), 0.5))
        with pytest.raises(BadInput, match=r"could not write .*journal\.jsonl': No space left on device"):
            Journal.open(tmp_path, RUN)
    with pytest.raises(BadInput, match="there are no results"):
        Journal.read(tmp_path)
    assert written(tmp_path, [made(0)]) == written(tmp_path / "other", [made(0)])


FULL = """
with Journal.open(folder, RUN) as journal:
    journal.append(made(0))
    room = (folder / "journal.jsonl").stat().st_size + {room}
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        journal.append(made(1))
    except BadInput as error:
        print(error)
    print((folder / "journal.jsonl").stat().st_size, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    {then}
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the size of files is limited on Unix only")
@pytest.mark.parametrize("room", [0, 1, 300])
@pytest.mark.parametrize("then", ["journal.append(made(1))", "pass"])
def test_a_file_that_may_not_grow(tmp_path: Path, child: Any, room: int, then: str) -> None:
    """The kernel itself cuts the write short, as it does on a full disk."""
    before = len(written(tmp_path / "whole", [made(0)]))
    whole = written(tmp_path / "whole", [made(1)])
    process = child(tmp_path / "a", FULL.format(room=room, then=then))
    assert said(process) == (
        f"could not write {file_of(tmp_path / 'a')}: File too large; 2 records are safe there, "
        "and the same command goes on once there is room"
    )
    assert said(process) == str(before)
    assert process.wait() == 0
    if then == "pass":
        written(tmp_path / "a", [made(1)])
    assert file_of(tmp_path / "a").read_bytes() == whole


# kill -9

SLOW = """
import os
real = os.write
def slow(descriptor, data):
    time.sleep(0.001)
    return real(descriptor, data[:4096])
os.write = slow
"""
WORK = """
with Journal.open(folder, RUN) as journal:
    start = sum(1 for _ in journal.chunks())
    print(start, flush=True)
    for index in range(start, 1_000_000):
        journal.append(made(index, 1 + 379 * index % 1000))
"""


@pytest.mark.long
def test_killed_at_random_moments_nothing_is_lost_or_doubled(tmp_path: Path, child: Any) -> None:
    """Every other run has a slow disk, so that it is killed with half a chunk written."""
    moments = random.Random(5)
    path = file_of(tmp_path / "a")
    done = torn = 0
    for kill in range(20):
        process = child(tmp_path / "a", SLOW + WORK if kill % 2 else WORK)
        there = int(said(process))
        assert there == done  # what was committed stays
        size = path.stat().st_size
        while kill % 2 and path.stat().st_size == size and process.poll() is None:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.03))
        process.kill()
        assert process.wait() == -signal.SIGKILL  # it was still at work
        done = sum(1 for _ in Journal.read(tmp_path / "a").chunks())
        assert done >= there
        torn += not path.read_bytes().endswith(b'"}\n')
    assert done > 0
    assert torn > 0
    chunks = [made(i, 1 + 379 * i % 1000) for i in range(done + 3)]
    whole = written(tmp_path / "whole", chunks)
    assert written(tmp_path / "a", chunks[done:]) == whole
    journal = Journal.read(tmp_path / "a")
    assert list(journal.chunks()) == chunks
    assert len(journal) == sum(len(chunk.records) for chunk in chunks)


def test_a_journal_whose_facts_come_later_is_made_with_the_first_chunk(tmp_path: Path) -> None:
    asked: list[int] = []

    def facts() -> dict[str, Any]:
        asked.append(1)
        return RUN

    with Journal.open(tmp_path, facts) as journal:
        assert not file_of(tmp_path).exists()
        assert (list(journal.chunks()), len(journal), key(0) in journal, asked) == ([], 0, False, [])
        with pytest.raises(BadInput, match="another run is writing"):
            Journal.open(tmp_path, facts)
        journal.append(made(0))
        journal.append(made(1))
        assert list(journal.chunks()) == [made(0), made(1)]
    assert asked == [1]
    assert file_of(tmp_path).read_bytes() == written(tmp_path / "at once", [made(0), made(1)])


def test_facts_are_asked_at_once_where_there_is_a_journal(tmp_path: Path) -> None:
    written(tmp_path, [made(0)])
    with pytest.raises(BadOption, match="holds another run"):
        Journal.open(tmp_path, lambda: {**RUN, "n": 4})
    with Journal.open(tmp_path, lambda: RUN) as journal:
        journal.append(made(1))
    assert list(Journal.read(tmp_path).chunks()) == [made(0), made(1)]


def test_a_journal_that_got_no_chunk_is_not_made_and_leaves_the_folder_to_others(tmp_path: Path) -> None:
    with Journal.open(tmp_path, lambda: RUN) as journal:
        pass
    assert not file_of(tmp_path).exists()
    with pytest.raises(ValueError, match="not open for writing"):
        journal.append(made(0))
    written(tmp_path, [made(0)])


def test_facts_that_cannot_be_had_leave_no_file(tmp_path: Path) -> None:
    def failing() -> dict[str, Any]:
        raise BadInput("no weights")

    with Journal.open(tmp_path, failing) as journal, pytest.raises(BadInput, match=r"^no weights"):
        journal.append(made(0))
    assert not file_of(tmp_path).exists()


def test_what_is_wrong_with_facts_is_not_wrong_with_the_file(tmp_path: Path) -> None:
    def failing() -> dict[str, Any]:
        raise OSError("the data cannot be read")

    with Journal.open(tmp_path, failing) as journal, pytest.raises(OSError, match=r"^the data"):
        journal.append(made(0))
