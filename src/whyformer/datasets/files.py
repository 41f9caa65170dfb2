"""Files that are read line by line, or article by article: CSV, JSONL, rationale columns, SQuAD's JSON."""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from whyformer.datasets.source import BLOCK, Row, content_hash
from whyformer.errors import BadInput

LONGEST_FIELD = 1 << 24  # characters; the csv module would stop at 131,072
_COMMENT = re.compile(r"#\s*(\w+)\s*=\s*(.*)")


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file; bytes that are not UTF-8 become surrogates, which are reported with their row."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        yield from file


@dataclass
class TextFile:
    """What the files that are read line by line have in common."""

    path: Path
    format = "text"
    seekable = False

    @property
    def where(self) -> str:
        """The file, for messages."""
        return str(self.path)

    def rows(self) -> Iterator[Row]:
        """All rows, from the first."""
        raise NotImplementedError

    def columns(self) -> list[str]:
        """The names in the first row that can be read."""
        first = next((row for row in self.rows() if not isinstance(row, str)), None)
        if not first:
            raise BadInput(f"{self.where} holds no rows")
        return list(first)

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows from number `start` on."""
        return islice(self.rows(), start, None)

    def count(self) -> int | None:
        """Not known before the file was read."""
        return None

    def digest(self) -> str:
        """A hash of the content."""
        return content_hash([self.path])


@dataclass
class CSVFile(TextFile):
    """A table of texts with a header; fields with quotes may hold line breaks. Empty lines do not count."""

    delimiter: str = ","
    format = "csv"

    def _reader(self) -> Iterator[list[str]]:
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))  # the module has one limit for all
        try:
            yield from filter(None, csv.reader(_lines(self.path), delimiter=self.delimiter))
        except csv.Error as error:
            raise BadInput(f"{self.where} cannot be read as CSV: {error}") from error

    def columns(self) -> list[str]:
        """The header."""
        header = next(self._reader(), [])
        if not header or len(set(header)) < len(header):
            raise BadInput(f"{self.where} needs a first line with a different name for each column; found {header}")
        return header

    def rows(self) -> Iterator[Row]:
        """All rows after the header."""
        header = self.columns()
        for fields in islice(self._reader(), 1, None):
            if len(fields) != len(header):
                yield f"{len(fields)} fields where the header has {len(header)}"
            else:
                yield dict(zip(header, fields, strict=True))


@dataclass
class JSONLines(TextFile):
    """One JSON object per line. Empty lines do not count."""

    format = "jsonl"

    def rows(self) -> Iterator[Row]:
        """All objects."""
        for line in _lines(self.path):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                yield f"not JSON: {error}"
                continue
            yield row if isinstance(row, dict) else "not a JSON object"


@dataclass
class RationaleColumns(TextFile):
    """One token per line, then 0 or 1 after white space or a tab; a blank line ends an example.

    The label stands in a comment before the example, `# label = POSITIVE`, or as a third column of its lines.
    """

    format = "conll"

    def rows(self) -> Iterator[Row]:
        """One record per example."""
        block: list[str] = []
        for line in _lines(self.path):
            if line.strip():
                block.append(line.strip())
            elif block:
                yield _annotated(block)
                block = []
        if block:
            yield _annotated(block)


def _annotated(block: list[str]) -> Row:
    """The record of one block of lines."""
    comments = [_COMMENT.fullmatch(line) for line in block]
    record: dict[str, Any] = {found[1]: found[2] for found in comments if found}
    lines = [line for line, comment in zip(block, comments, strict=True) if not comment]
    fields = [line.split("\t") if "\t" in line else line.split() for line in lines]
    if not fields:
        return "no tokens"
    for number, line in enumerate(fields, 1):
        if len(line) not in (2, 3) or line[1] not in ("0", "1"):
            return f"token {number} is not 'TOKEN 0' or 'TOKEN 1': {' '.join(line)!r}"
    labels = {line[2] for line in fields if len(line) == 3}
    if len(labels) > 1:
        return f"the tokens have different labels: {', '.join(sorted(labels))}"
    if labels:
        record["label"] = labels.pop()
    return {**record, "tokens": [line[0] for line in fields], "rationale": [int(line[1]) for line in fields]}


@dataclass
class SquadJSON(TextFile):
    """SQuAD's own JSON, version 1 or 2, read article by article."""

    format = "squad"

    def columns(self) -> list[str]:
        """As in the parquet files of the hub."""
        return ["id", "title", "question", "context", "answers"]

    def rows(self) -> Iterator[Row]:
        """One record per question."""
        for article in self._articles():
            for paragraph in article.get("paragraphs", []):
                for asked in paragraph.get("qas", []):
                    answers = [] if asked.get("is_impossible") else asked.get("answers") or []
                    yield {
                        "id": asked.get("id"),
                        "title": article.get("title"),
                        "question": asked.get("question"),
                        "context": paragraph.get("context"),
                        "answers": {
                            "text": [answer.get("text") for answer in answers],
                            "answer_start": [answer.get("answer_start") for answer in answers],
                        },
                    }

    def _articles(self) -> Iterator[Any]:
        """The objects of the list `data`, decoded one at a time."""
        decode = json.JSONDecoder().raw_decode
        with self.path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
            rest = file.read(BLOCK)
            _, found, rest = rest.partition('"data"')
            rest = rest.lstrip().removeprefix(":").lstrip()
            if not found or not rest.startswith("["):
                raise BadInput(
                    f'{self.where} is not SQuAD\'s {{"data": […]}}; write other data as JSONL, one object a line'
                )
            rest = rest[1:].lstrip()
            while not rest.startswith("]"):
                try:
                    article, end = decode(rest)
                except ValueError as error:
                    more = file.read(max(BLOCK, len(rest)))
                    if not more:
                        raise BadInput(f"{self.where} is not whole: {error}") from error
                    rest += more
                    continue
                yield article
                rest = rest[end:].lstrip().removeprefix(",").lstrip() or file.read(BLOCK).lstrip().lstrip(",").lstrip()
