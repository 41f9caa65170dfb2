"""Which words speak for which class, summed over many explanations, and which words classes share."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from whyformer.datasets import label_index
from whyformer.errors import BadInput, BadOption
from whyformer.metrics.metric import metric_named
from whyformer.registry.options import validated
from whyformer.results.evaluation import TableData
from whyformer.results.explanation import ExplanationData
from whyformer.results.shortcuts import of_one_method, written
from whyformer.show.render import JSON, MARKDOWN, TEXT, Renderable, text_of
from whyformer.storage.files import read_json, write
from whyformer.storage.schema import (
    Format,
    Misfit,
    both,
    count,
    every,
    fields,
    index,
    must,
    named,
    number,
    plain,
    text,
    whole,
)
from whyformer_papers.words.idf import Idf
from whyformer_papers.words.overlap import Counting, Totals, WordSums, shared_share, top_words

SCHEMA, SCHEMA_OF_SEVERAL = "whyformer/word-table", "whyformer/word-tables"
SCHEMA_VERSION = 1
MOST_CLASSES = 1_000_000  # of a model whose labels are not known
TOP = 50  # words of each class, as in the paper
LINES = 10  # of them that are printed
METRIC = "token_overlap"
WORDS_EACH = Counting()  # what is summed unless something else is asked for

ClassPair = tuple[str, str]  # the names of two classes


class Word(NamedTuple):
    """A word with its sum."""

    word: str
    score: float


@dataclass(frozen=True)
class WordTable(Renderable):
    """Of each predicted class the words with the sums of their scores, times how rare they are.

    A word is what `units.join_words` calls one, lower-cased: a run of letters and digits, or a punctuation mark or
    sign. Its score in a text is the sum of its tokens' scores, weighted by its inverse document frequency (`Idf`). With
    another `Counting`, which `provenance` then names, a word is a token, or counts once a text.
    `totals` are by the index of the class that the model predicted; classes that it never predicted are not there.
    `texts` counts the texts of each. Special tokens are no words.
    """

    totals: Totals
    labels: tuple[str, ...]
    method: str
    texts: Mapping[int, int]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.totals or set(self.totals) != set(self.texts):
            raise BadInput("a table of words needs at least one text, and the number of texts of each class")

    @classmethod
    def of(
        cls, explanations: Iterable[ExplanationData], *, idf: Idf | None = None, counting: Counting = WORDS_EACH
    ) -> "WordTable":
        """Sum up explanations of what a model predicted, by one method; they may come as a stream.

        Without an `idf` words are weighted by the small table that comes along. `counting` may say to sum tokens, or
        each distinct word of a text once.
        """
        weights, sums = Idf.bundled() if idf is None else idf, WordSums()
        method, labels, provenance = "", tuple[str, ...](), dict[str, Any]()
        for row, explanation, predicted in of_one_method(explanations):
            if not row:
                method, labels = written(explanation), explanation.prediction.labels
                provenance = dict(explanation.provenance)
            sums.add(counting.record(predicted, explanation.units, explanation.texts, explanation.scores))
        provenance |= {"idf": weights.source, **counting.provenance}
        return cls(sums.totals(weights), labels, method, dict(sums.texts), provenance)

    @classmethod
    @validated
    def load(cls, path: str | Path) -> "WordTable":
        """Read what `save` wrote as JSON."""
        tables = load_tables(path)
        if len(tables) != 1:
            raise BadInput(f"{str(path)!r} holds {len(tables)} tables ({', '.join(tables)}): read it with load_tables")
        return next(iter(tables.values()))

    @validated
    def to_markdown(self, k: int = TOP, lines: int = LINES) -> str:
        """The highest words of each class, and the words among the top k that each two classes share."""
        return text_of(self, "markdown", k=k, lines=lines)

    @validated
    def to_text(self, k: int = TOP, lines: int = LINES) -> str:
        """The same for a terminal."""
        return text_of(self, "text", k=k, lines=lines)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that were predicted, in order of their indices."""
        return tuple(self.name_of(index) for index in sorted(self.totals))

    @validated
    def top(self, k: int, label: int | str) -> list[Word]:
        """The k words with the highest sums of a class, given by name or index."""
        sums = self.totals[self._index(label)]
        return [Word(word, sums[word]) for word in top_words(sums, k)]

    @validated
    def overlap(self, k: int) -> float:
        """The share of the top k words that two classes have in common: shared count / (C(C, 2) · k), 0 … 1."""
        return self.overlaps([k])[k]

    @validated
    def overlaps(self, ks: Iterable[int] = range(1, TOP + 1)) -> dict[int, float]:
        """The share for every k."""
        wanted = list(ks)
        tops = [top_words(self.totals[index], max(wanted)) for index in self._compared] if wanted else []
        return {k: shared_share(tops, k) for k in wanted}

    @validated
    def shared(self, one: int | str, other: int | str, k: int = TOP) -> tuple[str, ...]:
        """The words that are among the top k of two classes, those that stand highest in both first."""
        first, second = (self._index(label) for label in (one, other))
        if first == second:
            raise BadOption(f"a class shares its words with another; {self.name_of(first)} is given twice")
        tops = [top_words(self.totals[index], k) for index in (first, second)]
        places = [{word: place for place, word in enumerate(top)} for top in tops]
        common = places[0].keys() & places[1].keys()
        return tuple(sorted(common, key=lambda word: (places[0][word] + places[1][word], word)))

    @validated
    def shared_counts(self, k: int = TOP) -> dict[ClassPair, int]:
        """How many of the top k words each two classes have in common."""
        return {
            (self.name_of(one), self.name_of(other)): len(self.shared(one, other, k))
            for one, other in combinations(self._compared, 2)
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `save` writes it; the words of each class, highest first."""
        totals = {
            str(i): {word: sums[word] for word in top_words(sums, len(sums) or 1)} for i, sums in self.totals.items()
        }
        return {
            "schema": SCHEMA,
            "version": SCHEMA_VERSION,
            "method": self.method,
            "labels": list(self.labels),
            "texts": {str(index): count for index, count in sorted(self.texts.items())},
            "totals": totals,
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, data: Any) -> "WordTable":
        """The table that `to_dict` gave."""
        return cls.of_checked(TABLE.checked(data))

    @classmethod
    def of_checked(cls, data: Mapping[str, Any]) -> "WordTable":
        """From data that was checked."""
        totals = {int(at): {word: float(score) for word, score in of.items()} for at, of in data["totals"].items()}
        texts = {int(at): texts for at, texts in data["texts"].items()}
        return cls(totals, tuple(data["labels"]), data["method"], texts, data["provenance"])

    @property
    def _compared(self) -> list[int]:
        if len(self.totals) < 2:
            all_texts = f"all {sum(self.texts.values())} texts {self.classes[0]}"
            raise BadInput(
                f"words are compared between classes, and the model calls {all_texts}: give texts of several classes"
            )
        return sorted(self.totals)

    def name_of(self, index: int) -> str:
        """The name of a class; its index where there are no names."""
        return self.labels[index] if index < len(self.labels) else str(index)

    def _index(self, label: int | str) -> int:
        names = [self.name_of(index) for index in range(max(len(self.labels), max(self.totals) + 1))]
        index = label if isinstance(label, int) and label in self.totals else label_index(label, names)
        if index not in self.totals:
            raise BadInput(
                f"the model predicted {self.name_of(index)} for no text: there are {', '.join(self.classes)}"
            )
        return index


def _score(value: Any) -> None:
    """A word with its score."""
    must(isinstance(value, list) and len(value) == 2, "is not a word and its score")
    text(value[0])
    number()(value[1])


def _is_numbered_alike(data: Mapping[str, Any]) -> None:
    """Every class that has words has a number of texts, and a name where there are names."""
    known = {int(at) for at in data["totals"]}
    must(bool(known), "has no class", "totals")
    must(known == {int(at) for at in data["texts"]}, "has other classes than 'texts'", "totals")
    labels = len(data["labels"]) or MOST_CLASSES
    must(max(known) < labels, f"has a class {max(known)}, and there are {labels} labels", "totals")


def _are_of_several_methods(data: Mapping[str, Any]) -> None:
    methods = [table["method"] for table in data["tables"]]
    must(len(set(methods)) == len(methods), "has two tables of one method", "tables")


WORDS = fields({"class": count, "words": every(_score)}, {"letters": named(text)})
_TABLE = fields(
    {
        "method": text,
        "labels": every(text),
        "texts": named(whole(1), index),
        "totals": named(named(number()), index),
        "provenance": both(plain, fields({}, {"refused": named(count)})),
    }
)
_WRITTEN_BY = ("version", "`whyformer words --out` writes one")
TABLE = Format("saved table of words", SCHEMA, SCHEMA_VERSION, (_TABLE, _is_numbered_alike), *_WRITTEN_BY)
_TABLES = (fields({"tables": every(TABLE.check, at_least=1)}), _are_of_several_methods)
TABLES = Format("file of saved tables of words", SCHEMA_OF_SEVERAL, SCHEMA_VERSION, _TABLES, *_WRITTEN_BY)


def tables_of(results: TableData, counting: Counting | None = None, idf: Idf | None = None) -> dict[str, WordTable]:
    """The tables of words of an evaluation that measured `token_overlap`, by method.

    If it counted them in several ways, `counting` says which is meant. Words are weighted as `WordTable.of` does it.
    """
    measured = {m: _counting(facts) for m, facts in results.facts.items() if facts.get("name") == METRIC}
    chosen = _chosen(measured.values(), counting)
    about = results.run.get("about", {})
    provenance = {name: about[name] for name in ("model", "revision", "data") if about.get(name)}
    weights, tables = Idf.bundled() if idf is None else idf, dict[str, WordTable]()
    for (method, metric), series in results.series.items():
        if measured.get(metric) != chosen or method in tables or not series.details:
            continue
        sums = WordSums()
        for row, detail in zip(series.rows, series.details, strict=True):
            words = json.loads(zlib.decompress(detail))
            try:
                WORDS(words)
            except Misfit as misfit:
                raise BadInput(f"row {row} has no words of {method} by {metric}: {misfit}") from misfit
            sums.add(words)
        told = {**provenance, "idf": weights.source, **chosen.provenance}
        tables[method] = WordTable(sums.totals(weights), tuple(about.get("labels", ())), method, dict(sums.texts), told)
    if not tables:
        raise BadInput(f"this evaluation has no words: every text was refused, or measure {METRIC}")
    return {method: tables[method] for method in results.methods if method in tables}


def _counting(facts: Mapping[str, Any]) -> Counting:
    """How a metric counted; what is not said there has its default."""
    stated = {name: value for name, value in facts.get("options", {}).items() if name in Counting._fields}
    return Counting(**metric_named(METRIC).checked(stated))


def _chosen(ways: Iterable[Counting], wanted: Counting | None) -> Counting:
    """The way to count that is wanted, or the only one."""
    distinct = list(dict.fromkeys(ways))
    if not distinct:
        raise BadInput(f"this evaluation has no words: measure {METRIC} (--metrics {METRIC})")
    if wanted is None and len(distinct) > 1:
        raise BadInput(
            f"this evaluation counted {'; '.join(map(str, distinct))}: say which, with units and once "
            "(--units word or token, --once or --no-once)"
        )
    if wanted is not None and wanted not in distinct:
        once = str(wanted.once).lower()
        raise BadInput(
            f"this evaluation counted {'; '.join(map(str, distinct))}, not {wanted}: measure "
            f"{METRIC}(units={wanted.units}, once={once})"
        )
    return wanted or distinct[0]


def save_tables(tables: Mapping[str, WordTable], path: str | Path) -> Path:
    """Write the tables of several methods to one JSON file."""
    several = [table.to_dict() for table in tables.values()]
    data = {"schema": SCHEMA_OF_SEVERAL, "version": SCHEMA_VERSION, "tables": several}
    return write(path, json.dumps(data, ensure_ascii=False, indent=1))


def load_tables(path: str | Path) -> dict[str, WordTable]:
    """Read what `save_tables` or `WordTable.save` wrote, by method."""
    data = read_json(path, TABLE.kind)
    if isinstance(data, dict) and data.get("schema") == SCHEMA_OF_SEVERAL:
        several = TABLES.checked(data, path)["tables"]
    else:
        several = [TABLE.checked(data, path)]
    return {table.method: table for table in map(WordTable.of_checked, several)}


JSON.of(WordTable)(lambda table: json.dumps(table.to_dict(), ensure_ascii=False, indent=1))


@TEXT.of(WordTable)
def _as_text(table: WordTable, **options: Any) -> str:
    from whyformer_papers.words.text import as_text

    return as_text(table, **options)


@MARKDOWN.of(WordTable)
def _as_markdown(table: WordTable, **options: Any) -> str:
    from whyformer_papers.words.text import as_markdown

    return as_markdown(table, **options)
