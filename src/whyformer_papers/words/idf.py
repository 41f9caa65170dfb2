"""Frequencies: how rare words are, from a file, from the small table that comes along, or counted in texts."""

import csv
import gzip
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from whyformer.errors import BadInput, MissingExtra, WhyformerError, listed, reason_of, shown
from whyformer.inputs.units import split_words
from whyformer.storage.files import parsed_json

BUNDLED_WORDS = Path(__file__).parent / "frequencies.tsv.gz"
WORD, VALUE, COUNT = "word", "idf", "doc_freq"  # the columns of a file
MOST_DOCUMENTS = 10**15
_DOCUMENTS = re.compile(r"#\s*documents\s*=\s*(\d{1,20})\s*")

Entries = Iterator[tuple[Any, Any]]  # words with their numbers


def rarity(count: float, documents: int, *, smooth: bool = False) -> float:
    """The inverse document frequency of a word that stands in `count` documents: `log(N / n)`.

    A word that stands everywhere weighs nothing. `smooth` is what scikit-learn computes, `log((1 + N) / (1 + n)) + 1`:
    such a word keeps the weight 1, so that what an explanation gives to function words still counts.
    """
    return math.log((1 + documents) / (1 + count)) + 1 if smooth else math.log(documents / count)


@dataclass(frozen=True)
class Idf:
    """The inverse document frequency of lower-cased words; a word that was not seen gets the largest.

    Where the source lists no punctuation marks or signs at all, as tables of words do, it says nothing of them: since
    they stand in nearly every document, they get the smallest. Without any values every word weighs 1. Where documents
    are counted, `smooth` keeps function words, see `rarity`.
    """

    values: Mapping[str, float]
    source: str = field(default="given", compare=False)

    @classmethod
    def of(cls, texts: Iterable[str], source: str = "the texts themselves", *, smooth: bool = False) -> "Idf":
        """Counted over texts."""
        counts: Counter[str] = Counter()
        documents = 0
        for text in texts:
            documents += 1
            counts.update({_spelled(text[slice(*span)]) for span in split_words(text)})
        values = {word: rarity(count, documents, smooth=smooth) for word, count in counts.items()}
        return cls(values, _called(source, smooth))

    @classmethod
    @cache
    def bundled(cls, *, smooth: bool = False) -> "Idf":
        """The small table that comes along: in how many Wikipedia articles the commonest English words stand."""
        values = cls.read(BUNDLED_WORDS, smooth=smooth).values
        return cls(values, _called(f"the {len(values):,} commonest words of English Wikipedia", smooth))

    @classmethod
    def read(cls, path: str | Path, *, smooth: bool = False) -> "Idf":
        """A table of words: csv, tsv (both may end in .gz), parquet or JSON.

        A table has the columns `word` and `idf`, which is taken as it stands; or `word` and `doc_freq`, in how many
        documents the word stands, and before the header a line `# documents = 26782`. JSON has the words with their
        idf as one object, or `{"documents": 26782, "doc_freq": {"film": 4228, …}}`. Of two spellings of one word, such
        as with capitals, the commoner counts.
        """
        path = Path(path)
        try:
            documents, entries = _opened(path)
            values = _values(path, documents, entries, smooth)
        except OSError as error:
            raise BadInput(f"could not read the word frequencies {str(path)!r}: {error.strerror or error}") from error
        except (ValueError, csv.Error, EOFError, zlib.error) as error:  # a ValueError: not UTF-8, or a NUL in the name
            raise BadInput(f"could not read the word frequencies {str(path)!r}: {reason_of(error)}") from error
        if not values:
            raise BadInput(f"there are no words in {str(path)!r}")
        return cls(values, _called(f"{path.name}, {len(values):,} words", smooth and documents is not None))

    @cached_property
    def largest(self) -> float:
        """What an unseen word gets."""
        return max(self.values.values(), default=1.0)

    @cached_property
    def smallest(self) -> float:
        """What marks get where the source knows none."""
        return min(self.values.values(), default=1.0)

    def __getitem__(self, word: str) -> float:
        value = self.values.get(_spelled(word))
        if value is not None:
            return value
        return self.smallest if _is_mark(word) and not self._lists_marks else self.largest

    @cached_property
    def _lists_marks(self) -> bool:
        return any(map(_is_mark, self.values))


def _called(source: str, smooth: bool) -> str:
    return f"{source}, smoothed" if smooth else source


def _spelled(word: str) -> str:
    """As words are looked up: in small letters, with straight apostrophes."""
    return word.lower().replace("’", "'")


def _is_mark(word: str) -> bool:
    return not any(character.isalnum() for character in word)


def _opened(path: Path) -> tuple[int | None, Entries]:
    """The words of a file with their numbers; if these are counts, of how many documents."""
    packed = path.suffix.casefold() == ".gz"
    kind = (path.with_suffix("") if packed else path).suffix.casefold()
    if kind in (".parquet", ".pq") and not packed:
        return None, _parquet(path)
    if kind not in (".csv", ".tsv", ".json"):
        raise BadInput(
            f"word frequencies are read from .csv, .tsv, .json, .csv.gz, .tsv.gz or .parquet; found {str(path)!r}"
        )
    content = path.read_bytes()  # once: it may be a pipe
    text = (gzip.decompress(content) if packed else content).decode("utf-8-sig")
    return _from_json(path, text) if kind == ".json" else _from_lines(path, text, kind == ".tsv")


def _from_lines(path: Path, text: str, tabs: bool) -> tuple[int | None, Entries]:
    lines = io.StringIO(text, newline="")
    documents, place = None, 0
    while (line := lines.readline()).startswith("#"):
        if match := _DOCUMENTS.fullmatch(line):
            documents = _documents(path, int(match[1]))
        place = lines.tell()
    lines.seek(place)
    rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(lines)
    header = next(rows, [])
    word, number = _columns(path, header, documents)
    return (None if header[number] == VALUE else documents), _entries(path, rows, word, number)


def _entries(path: Path, rows: Iterable[list[str]], word: int, number: int) -> Entries:
    for row in filter(None, rows):
        if len(row) <= max(word, number):
            raise BadInput(f"{str(path)!r}: the row of {shown(row[0])} has {len(row)} columns, fewer than the header")
        yield row[word], row[number]


def _documents(path: Path, count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MOST_DOCUMENTS:
        raise BadInput(f"{str(path)!r} is of {shown(count)} documents, where 1 … {MOST_DOCUMENTS:,} are needed")
    return count


def _columns(path: Path, header: list[str], documents: int | None) -> tuple[int, int]:
    """The places of the words and of their numbers."""
    if WORD not in header or not {VALUE, COUNT} & set(header):
        raise BadInput(
            f"{str(path)!r} needs a header with the columns {WORD!r} and {VALUE!r} (or {COUNT!r}); found "
            f"{listed(header) if header else 'nothing'}"
        )
    if twice := [name for name in (WORD, VALUE, COUNT) if header.count(name) > 1]:
        raise BadInput(f"{str(path)!r} has two columns {twice[0]!r}")
    if VALUE not in header and documents is None:
        raise BadInput(
            f"{str(path)!r} has {COUNT!r} and does not say of how many documents: write '# documents = NUMBER' before "
            f"the header, or give a column {VALUE!r}"
        )
    return header.index(WORD), header.index(VALUE if VALUE in header else COUNT)


def _from_json(path: Path, text: str) -> tuple[int | None, Entries]:
    try:
        data = parsed_json(text)
    except ValueError as error:
        raise BadInput(f"the word frequencies {str(path)!r} are not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadInput(f"{str(path)!r} holds no object of words and numbers, but a {type(data).__name__}")
    if isinstance(data.get(COUNT), dict):
        if "documents" not in data:
            raise BadInput(f"{str(path)!r} has {COUNT!r} and does not say of how many 'documents'")
        return _documents(path, data["documents"]), iter(data[COUNT].items())
    return None, iter(data.items())


def _parquet(path: Path) -> Entries:
    try:
        _, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtra("word frequencies in parquet need pyarrow: pip install pyarrow") from error
    try:
        _columns(path, [name for name in parquet.read_schema(path).names if name != COUNT], None)
        table = parquet.read_table(path, columns=[WORD, VALUE])
        return zip(table[WORD].to_pylist(), table[VALUE].to_pylist(), strict=True)
    except (WhyformerError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # pyarrow raises what it likes
        raise BadInput(f"{str(path)!r} cannot be read as Parquet: {reason_of(error)}") from error


def _values(path: Path, documents: int | None, entries: Entries, smooth: bool) -> dict[str, float]:
    values: dict[str, float] = {}
    for word, number in entries:
        try:
            value = float(number)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not isinstance(word, str) or not math.isfinite(value) or value < 0:
            needed = "where a number of 0 or more is needed"
            raise BadInput(f"{str(path)!r}: {shown(word)} has {shown(number)}, {needed}")
        if documents is not None:
            if not 0 < value <= documents:
                raise BadInput(f"{str(path)!r}: {shown(word)} stands in {number} of {documents} documents")
            value = rarity(value, documents, smooth=smooth)
        spelled = _spelled(word)
        values[spelled] = min(value, values.get(spelled, math.inf))
    return values
