"""The ERASER folder: documents, and one line per example with the tokens of its rationale."""

import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, TypeGuard

from whyformer.datasets.columns import EVIDENCE_TOKENS
from whyformer.datasets.dataset import Unusable
from whyformer.datasets.parsing import checked_spans
from whyformer.datasets.source import RowFields, Source, StoredRow, content_hash
from whyformer.datasets.text_files import JSONLines
from whyformer.errors import BadInput, listed, shown
from whyformer.storage.files import LONGEST_TEXT, inside, mode_of, naming, parsed_json, regular

_LONGEST_CHARACTER = 4  # bytes in UTF-8


@dataclass
class EraserFolder(Source):
    """`docs/` or `docs.jsonl`, and the lines of one split.

    A query that differs from row to row is the first text of a pair (query, document). One that is the same everywhere,
    as in Movie Reviews, asks nothing of a text and is left out. Two documents without a query are a pair themselves.
    Further documents are joined by line breaks. A document that a row names never lies outside the folder.
    """

    folder: Path
    split: str
    format = "eraser"

    @property
    def where(self) -> str:
        """The file of the split, for messages."""
        return str(self._lines.path)

    @property
    def _lines(self) -> JSONLines:
        return JSONLines(self.folder / f"{self.split}.jsonl")

    def _usable(self) -> Iterator[RowFields]:
        return (row for row in self._lines.rows() if not isinstance(row, str))

    @cached_property
    def _flat(self) -> "_FlatDocuments | None":
        path = regular(self.folder / "docs.jsonl")
        return _FlatDocuments(path) if path.is_file() else None

    @cached_property
    def asks(self) -> bool:
        """Whether the query belongs to the text: whether two rows have different ones."""
        queries = filter(None, map(_query, self._usable()))
        first = next(queries, None)
        return any(query != first for query in queries)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        """The columns of the text, as the first row has them."""
        if self.asks:
            return "query", "document"
        for row in self._usable():
            with suppress(Unusable):
                return ("premise", "hypothesis") if len(_documents(row)) == 2 else ("document",)
        return ("document",)

    def columns(self) -> list[str]:
        """The text or pair, the label, the tokens of the rationale."""
        return [*self._texts, "label", *EVIDENCE_TOKENS]

    def read(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[StoredRow]:
        """The rows from number `start` on, each with its documents."""
        for line in islice(self._lines.rows(), start, None):
            try:
                yield line if isinstance(line, str) else self._record(line)
            except (Unusable, BadInput) as reason:
                yield str(reason)

    def _record(self, line: RowFields) -> RowFields:
        texts = self._read_documents(_documents(line))
        joined = "\n".join(texts.values())
        values = [_query(line), joined] if self.asks else list(texts.values()) if len(self._texts) == 2 else [joined]
        if len(values) != len(self._texts):
            raise Unusable(f"{len(values)} documents where the first row has 2")
        marked = _marked(line, texts)
        return {
            **dict(zip(self._texts, values, strict=True)),
            "label": line.get("classification"),
            **{name: [span[i] for span in marked] for i, name in enumerate(EVIDENCE_TOKENS)},
            "annotation_id": line.get("annotation_id"),
        }

    def _read_documents(self, names: Sequence[str]) -> dict[str, str]:
        texts = {name: text for name in names if (text := self._document(name)) is not None}
        missing = [name for name in names if name not in texts]
        if missing or not names:
            damage = f" ({self._flat.damage})" if self._flat is not None and self._flat.damage else ""
            raise Unusable(f"no document {listed(missing) if missing else 'is named'}{damage}")
        return texts

    def _document(self, name: str) -> str | None:
        text = self._flat.document(name) if self._flat is not None else None
        if text is not None or not (self.folder / "docs").is_dir():
            return text
        path = inside(self.folder / "docs", name)
        if not stat.S_ISREG(mode_of(path)):
            return None
        with naming(path, "read the document"):
            if path.stat().st_size > LONGEST_TEXT * _LONGEST_CHARACTER:
                raise Unusable(f"the document {shown(name)} has more than {LONGEST_TEXT:,} characters")
            return path.read_text(encoding="utf-8-sig", errors="surrogateescape")

    def digest(self) -> str:
        """A hash of the lines and of all documents."""
        documents = [path for path in sorted((self.folder / "docs").rglob("*")) if not regular(path).is_dir()]
        return content_hash([self._lines.path, *documents, *([self._flat.path] if self._flat else [])])


@dataclass
class _FlatDocuments:
    """`docs.jsonl`: one document per line; where each begins is kept, and one is read at a time."""

    path: Path
    damage: str = field(default="", init=False)  # the first line that cannot be used, and why

    @cached_property
    def _offsets(self) -> dict[str, int]:
        offsets: dict[str, int] = {}
        place = 0
        with naming(self.path, "read the documents"), self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        offsets[_parsed_document(line)[0]] = place
                    except (Unusable, ValueError) as error:
                        self.damage = self.damage or f"{self.path}, line {number}: {error}"
                place += len(line)
        return offsets

    def document(self, name: str) -> str | None:
        """The text of a document, its sentences joined by line breaks."""
        if name not in self._offsets:
            return None
        with naming(self.path, "read the documents"), self.path.open("rb") as file:
            file.seek(self._offsets[name])
            return _parsed_document(file.readline())[1]


def _parsed_document(line: bytes) -> tuple[str, str]:
    """The name and the text of a document in `docs.jsonl`: a text, or sentences as lists of words."""
    held = parsed_json(line)
    if not isinstance(held, dict) or not isinstance(held.get("docid"), str | int):
        raise Unusable("not an object with a 'docid'")
    document = held.get("document")
    if isinstance(document, list):
        if not all(_are_words(sentence) for sentence in document):
            raise Unusable(f"the document {shown(held['docid'])} is not a list of sentences of words")
        document = "\n".join(" ".join(sentence) for sentence in document)
    if not isinstance(document, str):
        raise Unusable(f"the document {shown(held['docid'])} is {shown(document)}, not text")
    return str(held["docid"]), document


def _are_words(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def is_eraser(folder: Path) -> bool:
    """Whether a folder is laid out as ERASER's."""
    documents = (folder / "docs").is_dir() or regular(folder / "docs.jsonl").is_file()
    return documents and bool(eraser_splits(folder))


def eraser_splits(folder: Path) -> list[str]:
    """The splits that a folder has."""
    return [name for name in ("train", "val", "test") if regular(folder / f"{name}.jsonl").is_file()]


def _query(line: RowFields) -> str | None:
    query = line.get("query")
    query = " ".join(query) if _are_words(query) else query
    return query if isinstance(query, str) and query.strip() and query != "None" else None


def _evidences(line: RowFields) -> list[Mapping[str, Any]]:
    groups = line.get("evidences") or []
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise Unusable(f"'evidences' is {shown(groups)}, not a list of lists")
    evidences = [one for group in groups for one in group]
    for one in evidences:
        if not isinstance(one, Mapping) or not {"docid", "start_token", "end_token"} <= set(one):
            raise Unusable(f"the evidence {shown(one)} is not an object with 'docid', 'start_token' and 'end_token'")
    return evidences


def _documents(line: RowFields) -> list[str]:
    """The documents of a row, a premise before its hypothesis: those it names, else of its evidences, else its own."""
    evidences = [one["docid"] for one in _evidences(line)]
    names = line.get("docids") or evidences or [line.get("annotation_id")]
    if not isinstance(names, list) or not all(name is None or isinstance(name, str | int) for name in names):
        raise Unusable(f"the documents are {shown(names)}, not a list of names")
    unique = dict.fromkeys(str(name) for name in names if name)
    return sorted(unique, key=lambda name: name.endswith("_hypothesis"))


def _marked(line: RowFields, texts: Mapping[str, str]) -> list[tuple[int, int]]:
    """The tokens of the evidences, counted over all documents of the row."""
    lengths = {name: len(text.split()) for name, text in texts.items()}
    before = dict(zip(lengths, accumulate(lengths.values(), initial=0), strict=False))
    marked = []
    for one in _evidences(line):
        name = str(one["docid"])
        if name not in lengths:
            raise Unusable(f"an evidence stands in {shown(name)}, which is none of the row's documents")
        spans = checked_spans([(one["start_token"], one["end_token"])], lengths[name])
        marked += [(before[name] + start, before[name] + end) for start, end in spans]
    return marked
