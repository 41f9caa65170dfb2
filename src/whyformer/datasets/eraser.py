"""The ERASER folder: documents, and one line per example with the tokens of its rationale."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from whyformer.datasets.files import JSONLines
from whyformer.datasets.source import Row, content_hash
from whyformer.errors import BadInput

EVIDENCE = ("evidence_start_token", "evidence_end_token")


@dataclass
class EraserFolder:
    """`docs/` or `docs.jsonl`, and the lines of one split.

    A query that differs from row to row is the first text of a pair (query, document). One that is the same everywhere,
    as in Movie Reviews, asks nothing of a text and is left out. Two documents without a query are a pair themselves.
    Further documents are joined by line breaks.
    """

    folder: Path
    split: str
    format = "eraser"
    seekable = False
    _offsets: dict[str, int] = field(default_factory=dict, repr=False)  # of the documents in docs.jsonl

    @property
    def where(self) -> str:
        """The file of the split, for messages."""
        return str(self._lines.path)

    @property
    def _lines(self) -> JSONLines:
        return JSONLines(self.folder / f"{self.split}.jsonl")

    @cached_property
    def asks(self) -> bool:
        """Whether the query belongs to the text: whether two rows have different ones."""
        first = None
        for row in self._lines.rows():
            query = None if isinstance(row, str) else _query(row)
            if query and first and query != first:
                return True
            first = first or query
        return False

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        """The columns of the text, as the first row has them."""
        if self.asks:
            return "query", "document"
        first = next((row for row in self._lines.rows() if not isinstance(row, str)), {})
        return ("premise", "hypothesis") if len(_documents(first)) == 2 else ("document",)

    def columns(self) -> list[str]:
        """The text or pair, the label, the tokens of the rationale."""
        return [*self._texts, "label", *EVIDENCE]

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows from number `start` on, each with its documents."""
        for line in islice(self._lines.rows(), start, None):
            yield line if isinstance(line, str) else self._row(line)

    def _row(self, line: Any) -> Row:
        names = _documents(line)
        texts = [self._document(name) for name in names]
        missing = [name for name, text in zip(names, texts, strict=True) if text is None]
        if missing or not names:
            return f"no document {', '.join(missing) or 'is named'}"
        held = [text or "" for text in texts]
        lengths = [len(text.split()) for text in held]
        before = {name: sum(lengths[:i]) for i, name in enumerate(names)}
        try:
            marked = [
                (before[one["docid"]] + one["start_token"], before[one["docid"]] + one["end_token"])
                for group in line.get("evidences") or []
                for one in group
            ]
        except (KeyError, TypeError) as error:
            return f"an evidence lacks its document or tokens: {error!r}"
        values = [_query(line), "\n".join(held)] if self.asks else held if len(self._texts) == 2 else ["\n".join(held)]
        if len(values) != len(self._texts):
            return f"{len(values)} documents where the first row has 2"
        return {
            **dict(zip(self._texts, values, strict=True)),
            "label": line.get("classification"),
            **{name: [span[i] for span in marked] for i, name in enumerate(EVIDENCE)},
            "annotation_id": line.get("annotation_id"),
        }

    def _document(self, name: str) -> str | None:
        path = self.folder / "docs" / name
        if path.is_file():
            return path.read_text(encoding="utf-8", errors="surrogateescape")
        flat = self.folder / "docs.jsonl"
        if not flat.is_file():
            return None
        with flat.open("rb") as file:
            if not self._offsets:
                offset = 0
                for line in file:
                    self._offsets[json.loads(line)["docid"]] = offset
                    offset += len(line)
            if name not in self._offsets:
                return None
            file.seek(self._offsets[name])
            document = json.loads(file.readline())["document"]
        return document if isinstance(document, str) else "\n".join(" ".join(sentence) for sentence in document)

    def count(self) -> int | None:
        """Not known before the file was read."""
        return None

    def digest(self) -> str:
        """A hash of the lines and of all documents."""
        documents = sorted((self.folder / "docs").glob("*"))
        flat = self.folder / "docs.jsonl"
        return content_hash([self._lines.path, *documents, *([flat] if flat.is_file() else [])])


def is_eraser(folder: Path) -> bool:
    """Whether a folder is laid out as ERASER's."""
    return ((folder / "docs").is_dir() or (folder / "docs.jsonl").is_file()) and bool(eraser_splits(folder))


def eraser_splits(folder: Path) -> list[str]:
    """The splits that a folder has."""
    return [name for name in ("train", "val", "test") if (folder / f"{name}.jsonl").is_file()]


def open_eraser(folder: Path, split: str) -> EraserFolder:
    """One split of an ERASER folder."""
    if split not in eraser_splits(folder):
        raise BadInput(f"{folder} has no split {split!r}; found {', '.join(eraser_splits(folder)) or 'none'}")
    return EraserFolder(folder, split)


def _query(line: Any) -> str | None:
    query = line.get("query")
    query = " ".join(query) if isinstance(query, list) else query
    return query if isinstance(query, str) and query.strip() and query != "None" else None


def _documents(line: Any) -> list[str]:
    """The documents of a row, a premise before its hypothesis: those it names, else of its evidences, else its own."""
    evidences = [one["docid"] for group in line.get("evidences") or [] for one in group if "docid" in one]
    names = line.get("docids") or list(dict.fromkeys(evidences)) or [line.get("annotation_id")]
    return sorted((str(name) for name in names if name), key=lambda name: name.endswith("_hypothesis"))
