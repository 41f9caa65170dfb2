"""Treebanks in CoNLL-U, the format of Universal Dependencies, as parsed sentences; read as a stream."""

import codecs
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from whyformer.errors import BadInput, shown
from whyformer.inputs.units import Span
from whyformer.storage.files import LONGEST_TEXT, naming, spooled
from whyformer_papers.heads.sentences import Sentence

COLUMNS = 10
LONGEST_NUMBER = 9  # digits; no sentence has as many words
_TEXT = "# text ="
_SEVERAL = re.compile(r"[0-9]+([-.])[0-9]+")  # the number of words that are written as one, or of an empty node


@dataclass(frozen=True)
class Treebank:
    """The sentences of a CoNLL-U file; each pass over it reads the file anew, and a pipe is copied at first."""

    path: Path
    _copy: Path = field(init=False, repr=False, compare=False)  # the file itself unless it is a pipe

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "_copy", spooled(self.path))
        with self._opened():
            pass

    def __iter__(self) -> Iterator[Sentence]:
        with self._opened() as file:
            yield from sentences(_decoded(file, str(self.path)), str(self.path))

    def __len__(self) -> int:
        """How many sentences there are, by their first words."""
        with self._opened() as file:
            lines = (line.removeprefix(codecs.BOM_UTF8) for line in file)
            blocks = groupby(lines, key=lambda line: bool(line.strip()))
            return sum(any(not line.startswith((b"#", b"0.")) for line in block) for filled, block in blocks if filled)

    @property
    def provenance(self) -> dict[str, Any]:
        """The file's name and a hash of its bytes."""
        with self._opened() as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
            return {"treebank": self.path.name, "file_digest": digest.hexdigest()}

    @contextmanager
    def _opened(self) -> Iterator[BufferedReader]:
        with naming(self.path, "read the treebank"), self._copy.open("rb") as file:
            yield file


def sentences(lines: Iterable[str], where: str = "the treebank") -> Iterator[Sentence]:
    """The sentences in lines of CoNLL-U; `where` names them in errors, beside the number of the line."""
    for filled, numbered in groupby(enumerate(lines, 1), key=lambda entry: bool(entry[1].strip())):
        block = _Block(where)
        for number, line in numbered if filled else ():
            block.add(number, line.rstrip("\r\n"))
        if block.surfaces:
            yield block.sentence()


@dataclass
class _Surface:
    """What is written in one piece: a word, or several words as one."""

    form: str
    line: int
    space_after: bool
    last: int  # the number of its last word
    words: list[str] = field(default_factory=list)


@dataclass
class _Block:
    """The lines of one sentence."""

    where: str
    text: str | None = None
    surfaces: list[_Surface] = field(default_factory=list)
    heads: list[tuple[int, int, str]] = field(default_factory=list)  # line, head, label

    def add(self, number: int, line: str) -> None:
        """Take in one line that is not empty."""
        if line.startswith("#"):
            if line.startswith(_TEXT):
                self.text = line.removeprefix(_TEXT).strip()
            return
        columns = line.split("\t")
        if len(columns) != COLUMNS:
            self._wrong(number, f"{len(columns)} columns separated by tabs, where CoNLL-U has {COLUMNS}")
        identity, form, misc = columns[0], columns[1], columns[9]
        if not form.strip():
            self._wrong(number, "the word is empty")
        several = _SEVERAL.fullmatch(identity)
        if several and several[1] == ".":
            return  # an empty node: not in the text
        spaced = "SpaceAfter=No" not in misc.split("|")
        if several:
            self._begin(number, identity, form, spaced)
        else:
            self._word(number, columns, spaced)

    def _begin(self, number: int, identity: str, form: str, spaced: bool) -> None:
        first, last = map(_number, identity.split("-"))
        if first is None or last is None or first != len(self.heads) + 1 or last <= first or self._inside():
            self._wrong(
                number, f"the words {identity[:40]} are written as one, but the next word is {len(self.heads) + 1}"
            )
        self.surfaces.append(_Surface(form, number, spaced, last))

    def _word(self, number: int, columns: list[str], spaced: bool) -> None:
        identity, form, head, label = columns[0], columns[1], _number(columns[6]), columns[7]
        expected = len(self.heads) + 1
        if identity != str(expected):
            self._wrong(number, f"the word has the number {shown(identity)}, where {expected} follows")
        if head is None:
            needed = "the number of a word, or 0 for the root, is needed"
            self._wrong(number, f"the head is {shown(columns[6])}, where {needed}")
        if head == expected:
            self._wrong(number, f"the word {expected} is its own head")
        if label in ("", "_"):
            self._wrong(number, "the relation is missing")
        if not self._inside():
            self.surfaces.append(_Surface(form, number, spaced, expected))
        self.surfaces[-1].words.append(form)
        self.heads.append((number, head, label))

    def _inside(self) -> bool:
        """Whether the next word belongs to several that are written as one."""
        return bool(self.surfaces) and self.surfaces[-1].last > len(self.heads)

    def sentence(self) -> Sentence:
        """The sentence, once all its lines are known."""
        if self._inside():
            last = self.surfaces[-1]
            self._wrong(last.line, f"the words up to {last.last} are written as one, but the last is {len(self.heads)}")
        for line, head, _ in self.heads:
            if head > len(self.heads):
                self._wrong(line, f"the head is {head}, but the sentence has {len(self.heads)} words")
        text = self.text
        if text is None:
            text = "".join(surface.form + " " * surface.space_after for surface in self.surfaces).strip()
        if len(text) > LONGEST_TEXT:
            self._wrong(self.surfaces[0].line, f"the sentence has more than {LONGEST_TEXT:,} characters")
        relations = [(word, head - 1, label) for word, (_, head, label) in enumerate(self.heads) if head]
        return Sentence(text, tuple(self._spans(text)), tuple(relations))

    def _spans(self, text: str) -> Iterator[Span]:
        place = 0
        for surface in self.surfaces:
            while place < len(text) and text[place].isspace():
                place += 1
            start, place = place, place + len(surface.form)
            if text[start:place] != surface.form:
                following = text[start : start + 20]
                self._wrong(surface.line, f"{shown(surface.form)} is not what `# text` goes on with: {following!r}")
            yield from _inner(surface, start)

    def _wrong(self, line: int, reason: str) -> NoReturn:
        raise BadInput(f"{self.where}, line {line}: {reason}")


def _inner(surface: _Surface, start: int) -> Iterator[Span]:
    """The spans of the words of a surface: parts of it where it is spelled from them, else all of it."""
    spelled = "".join(surface.words)
    apart = len(spelled) == len(surface.form) and spelled.casefold() == surface.form.casefold()
    for word in surface.words:
        yield (start, start + len(word)) if apart else (start, start + len(surface.form))
        start += len(word) if apart else 0


def _number(text: str) -> int | None:
    """The number of a word; None if it cannot be one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER else None


def _decoded(lines: Iterable[bytes], where: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{where}, line {number}: not UTF-8 ({error.reason})") from error
