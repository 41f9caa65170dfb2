"""Files that are read line by line, or article by article: CSV, JSONL, rationale columns, SQuAD's JSON."""

import codecs
import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from whyformer.datasets.source import DataFile, RowFields, StoredRow
from whyformer.errors import BadInput, listed, shown
from whyformer.storage.files import LONGEST_TEXT, naming, parsed_json

BLOCK = 1 << 20  # characters of JSON read at once
_COMMENT = re.compile(r"#\s*(\w+)\s*=\s*(.*)")
_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[][{}]', re.DOTALL)  # or a string, with all brackets in it
_BETWEEN = ", \t\r\n"


START = 2**16  # bytes in which encoding and line ends are looked for
MARKS = {  # byte order marks, the longest first
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
DELIMITERS = (";", "\t", "|")  # beside the comma


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file in UTF-8, or in what its first bytes name.

    Bytes that are not of that encoding become surrogates, which are reported with their row.
    """
    with naming(path, "read"):
        with path.open("rb") as binary:
            start = binary.read(START)
        encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8-sig")
        old_mac = b"\r" in start and b"\n" not in start
        newline = "\r" if old_mac else "\n"
        with path.open(encoding=encoding, errors="surrogateescape", newline=newline) as file:
            yield from (line.replace("\r", "\n") for line in file) if old_mac else file


class TextFile(DataFile):
    """What the files that are read from the first row on have in common."""

    def rows(self) -> Iterator[StoredRow]:
        """All rows, from the first."""
        raise NotImplementedError

    def columns(self) -> list[str]:
        """The names in the first row that can be read."""
        count, reason = 0, ""
        for row in self.rows():
            if not isinstance(row, str):
                return list(row)
            count, reason = count + 1, reason or row
        bad = f" that can be used: {count:,} cannot, the first (row 0) because: {reason}" if count else ""
        raise BadInput(f"{self.where} holds no rows{bad}")

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The rows from number `start` on."""
        return islice(self.rows(), start, None)


@dataclass
class CSVFile(TextFile):
    """A table of texts with a header; fields with quotes may hold line breaks. Empty lines do not count.

    Without a `delimiter`, a header that has no comma and one of `;`, tab and `|` is split there. A first line such as
    `sep=;`, as Excel writes it, names the delimiter.
    """

    delimiter: str | None = None
    format = "csv"

    def _separated(self) -> tuple[str, int]:
        """The delimiter, and how many lines come before the header."""
        first = next(_lines(self.path), "")
        if named := re.fullmatch(r"sep=(.)\s*", first):
            return named[1], 1
        others = [one for one in DELIMITERS if one in first and "," not in first]
        return self.delimiter or (others[0] if len(others) == 1 else ","), 0

    def _lists(self) -> Iterator[list[str] | str]:
        """The fields of each row, or the reason why it has none."""
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST_TEXT))  # the module has one limit for all
        delimiter, before_header = self._separated()
        reader = csv.reader(islice(_lines(self.path), before_header, None), delimiter=delimiter)
        while True:
            before = reader.line_num
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if reader.line_num > before + 1:  # nobody can tell where the next row begins
                    last = f"the row from line {before + 1} on has no end in {reader.line_num - before:,} lines"
                    raise BadInput(f"{self.where}: {last} ({error}): is a quote not closed?") from error
                yield f"not CSV: {error}"
                continue
            if fields:
                yield fields

    def columns(self) -> list[str]:
        """The header."""
        header = next(self._lists(), [])
        if isinstance(header, str):
            raise BadInput(f"{self.where} cannot be read as CSV: its first line is {header}")
        if not header or len(set(header)) < len(header):
            problem = f"needs a first line with a different name for each column; found {listed(header) or 'nothing'}"
            raise BadInput(f"{self.where} {problem}")
        return header

    def rows(self) -> Iterator[StoredRow]:
        """All rows after the header."""
        header = self.columns()
        for fields in islice(self._lists(), 1, None):
            if isinstance(fields, str):
                yield fields
            elif len(fields) != len(header):
                yield f"{len(fields)} fields where the header has {len(header)}"
            else:
                yield dict(zip(header, fields, strict=True))


class JSONLines(TextFile):
    """One JSON object per line. Empty lines do not count."""

    format = "jsonl"

    def rows(self) -> Iterator[StoredRow]:
        """All objects."""
        for line in _lines(self.path):
            if not line.strip():
                continue
            try:
                row = parsed_json(line)
            except ValueError as error:
                yield f"not JSON: {error}"
            else:
                yield row or "an empty object" if isinstance(row, dict) else "not a JSON object"


class RationaleColumns(TextFile):
    """One token per line, then 0 or 1 after white space or a tab; a blank line ends an example.

    The label stands in a comment before the example, `# label = POSITIVE`, or as a third column of its lines.
    """

    format = "conll"

    def rows(self) -> Iterator[StoredRow]:
        """One record per example."""
        for filled, lines in groupby(map(str.strip, _lines(self.path)), key=bool):
            if filled:
                yield _annotated(list(lines))


def _annotated(block: list[str]) -> StoredRow:
    """The record of one block of lines."""
    comments = [_COMMENT.fullmatch(line) for line in block]
    record: dict[str, Any] = {comment[1]: comment[2] for comment in comments if comment}
    lines = [line for line, comment in zip(block, comments, strict=True) if not comment]
    fields = [line.split("\t") if "\t" in line else line.split() for line in lines]
    if not fields:
        return "no tokens"
    for number, line in enumerate(fields, 1):
        if len(line) not in (2, 3) or line[1] not in ("0", "1"):
            return f"token {number} is not 'TOKEN 0' or 'TOKEN 1': {shown(' '.join(line))}"
    labels = {line[2] for line in fields if len(line) == 3}
    if len(labels) > 1:
        return f"the tokens have different labels: {listed(sorted(labels))}"
    if labels:
        record["label"] = labels.pop()
    return {**record, "tokens": [line[0] for line in fields], "rationale": [int(line[1]) for line in fields]}


class SquadJSON(TextFile):
    """SQuAD's own JSON, version 1 or 2, read article by article.

    Each question is a row. An article, paragraph or question that cannot be used is a bad row.
    """

    format = "squad"

    def columns(self) -> list[str]:
        """As in the parquet files of the hub."""
        return ["id", "title", "question", "context", "answers"]

    def rows(self) -> Iterator[StoredRow]:
        """One record per question."""
        for article in self._articles():
            for paragraph in _objects(article, "paragraphs"):
                around = {"title": _held(article, "title"), "context": _held(paragraph, "context")}
                for question in _objects(paragraph, "qas"):
                    yield question if isinstance(question, str) else _asked(question, around)

    def _articles(self) -> Iterator[StoredRow]:
        """The objects of the list `data`, decoded one at a time."""
        with naming(self.path, "read"), self.path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
            _, name, rest = file.read(BLOCK).partition('"data"')
            rest = rest.lstrip().removeprefix(":").lstrip()
            if not name or not rest.startswith("["):
                raise BadInput(
                    f'{self.where} is not SQuAD\'s {{"data": […]}}; write other data as JSONL, one object a line'
                )
            rest, number = rest[1:].lstrip(), 0
            while not rest.startswith("]"):
                article, end = _decoded(rest)
                if end is None:
                    more = file.read(max(BLOCK, len(rest)))
                    if not more:
                        raise BadInput(f"{self.where} is not whole: article {number} is {article}")
                    rest = (rest + more).lstrip(_BETWEEN)
                    continue
                yield f"article {number} is {article}" if isinstance(article, str) else article
                number += 1
                rest = rest[end:].lstrip(_BETWEEN)


def _decoded(text: str) -> tuple[StoredRow, int | None]:
    """The object that a text begins with, or what is wrong with it, and where it ends; None if beyond the text."""
    try:
        article, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}", _end_of_object(text)
    return article if isinstance(article, dict) else f"{shown(article)}, not an object", end


def _end_of_object(text: str) -> int | None:
    """Where the object that a text begins with ends, by its brackets, however deep; None if beyond the text."""
    if not text.startswith("{"):
        return None
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return None


def _objects(holder: StoredRow, name: str) -> Iterator[StoredRow]:
    """The objects in a list of the holder; where there is no object, or no list, comes the reason as text."""
    if isinstance(holder, str):
        yield holder
        return
    values = holder.get(name, [])
    if not isinstance(values, list):
        yield f"{name!r} is {shown(values)}, not a list"
        return
    for value in values:
        yield value if isinstance(value, dict) else f"{name!r} has {shown(value)} in it, which is not an object"


def _held(holder: StoredRow, name: str) -> Any:
    return None if isinstance(holder, str) else holder.get(name)


def _asked(question: RowFields, around: RowFields) -> StoredRow:
    """The row of one question."""
    impossible = question.get("is_impossible")
    if impossible not in (None, True, False):
        return f"'is_impossible' is {shown(impossible)}, neither true nor false"
    answers = [] if impossible else list(_objects({"answers": question.get("answers") or []}, "answers"))
    for answer in answers:
        if isinstance(answer, str):
            return answer
    starts = {name: [_held(answer, name) for answer in answers] for name in ("text", "answer_start")}
    return {"id": question.get("id"), "question": question.get("question"), **around, "answers": starts}
