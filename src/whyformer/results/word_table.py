"""TokenTable: which words speak for which class, summed over many explanations, and which words classes share."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from whyformer.datasets import label_index
from whyformer.errors import BadInput, BadOption
from whyformer.methods.registry import list_methods, method_named
from whyformer.methods.specs import MethodSpec
from whyformer.metrics.idf import Idf
from whyformer.metrics.overlap import Totals, WordSums, shared_share, top_words, word_record
from whyformer.results.explanation import Explanation
from whyformer.results.table import Table
from whyformer.storage.files import read_json, write
from whyformer.storage.forms import (
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

SCHEMA, SCHEMA_OF_SEVERAL = "whyformer/token-table", "whyformer/token-tables"
SCHEMA_VERSION = 1
MOST_CLASSES = 1_000_000  # of a model whose labels are not known
TOP = 50  # words of each class, as in the paper
LINES = 10  # of them that are printed
METRIC = "token_overlap"

Pair = tuple[str, str]  # the names of two classes


class Word(NamedTuple):
    """A word with its sum."""

    word: str
    score: float


@dataclass(frozen=True)
class TokenTable:
    """Of each predicted class the words with the sums of their scores, times how rare they are.

    A word is what `units.join_words` calls one, lower-cased: a run of letters and digits, or a punctuation mark or
    sign. Its score in a text is the sum of its tokens' scores, weighted by its inverse document frequency (`Idf`).
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
    def of(cls, explanations: Iterable[Explanation], *, idf: Idf | None = None) -> "TokenTable":
        """Sum up explanations of what a model predicted, by one method; they may come as a stream.

        Without an `idf` words are weighted by the small table that comes along.
        """
        weights, sums = Idf.bundled() if idf is None else idf, WordSums()
        first: tuple[Any, ...] = ()
        provenance: dict[str, Any] = {}
        for explanation in explanations:
            index, own = _predicted(explanation), (_called(explanation), explanation.prediction.labels)
            first, provenance = first or own, provenance or dict(explanation.provenance)
            if own != first:
                raise BadInput(
                    f"one table is of one method and one model; found explanations by {first[0]} for the classes "
                    f"{', '.join(first[1])} and by {own[0]} for {', '.join(own[1])}"
                )
            sums.add(word_record(index, explanation.units, explanation.texts, explanation.scores, weights))
        if not first:
            raise BadInput("there is no explanation to sum up")
        return cls(sums.totals, first[1], first[0], dict(sums.texts), {**provenance, "idf": weights.source})

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that were predicted, in order of their indices."""
        return tuple(self._name(index) for index in sorted(self.totals))

    def top(self, k: int, label: int | str) -> list[Word]:
        """The k words with the highest sums of a class, given by name or index."""
        own = self.totals[self._index(label)]
        return [Word(word, own[word]) for word in top_words(own, k)]

    def overlap(self, k: int) -> float:
        """The share of the top k words that two classes have in common: shared count / (C(C, 2) · k), 0 … 1."""
        return self.overlaps([k])[k]

    def overlaps(self, ks: Iterable[int] = range(1, TOP + 1)) -> dict[int, float]:
        """The share for every k."""
        wanted = list(ks)
        tops = [top_words(self.totals[index], max(wanted)) for index in self._compared] if wanted else []
        return {k: shared_share(tops, k) for k in wanted}

    def shared(self, one: int | str, other: int | str, k: int = TOP) -> tuple[str, ...]:
        """The words that are among the top k of two classes, those that stand highest in both first."""
        first, second = (self._index(label) for label in (one, other))
        if first == second:
            raise BadOption(f"a class shares its words with another; {self._name(first)} is given twice")
        tops = [top_words(self.totals[index], k) for index in (first, second)]
        places = [{word: place for place, word in enumerate(top)} for top in tops]
        common = places[0].keys() & places[1].keys()
        return tuple(sorted(common, key=lambda word: (places[0][word] + places[1][word], word)))

    def shared_counts(self, k: int = TOP) -> dict[Pair, int]:
        """How many of the top k words each two classes have in common."""
        return {
            (self._name(one), self._name(other)): len(self.shared(one, other, k))
            for one, other in combinations(self._compared, 2)
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `save` writes it; the words of each class, highest first."""
        totals = {str(i): {word: own[word] for word in top_words(own, len(own) or 1)} for i, own in self.totals.items()}
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
    def from_dict(cls, data: Any) -> "TokenTable":
        """The table that `to_dict` gave."""
        return cls._of(TABLE.checked(data))

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> "TokenTable":
        """From data that was checked."""
        totals = {int(at): {word: float(score) for word, score in own.items()} for at, own in data["totals"].items()}
        texts = {int(at): texts for at, texts in data["texts"].items()}
        return cls(totals, tuple(data["labels"]), data["method"], texts, data["provenance"])

    def save(self, path: str | Path) -> Path:
        """Write the table as JSON."""
        return write(path, json.dumps(self.to_dict(), ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, path: str | Path) -> "TokenTable":
        """Read what `save` wrote."""
        found = load_tables(path)
        if len(found) != 1:
            raise BadInput(f"{str(path)!r} holds {len(found)} tables ({', '.join(found)}): read it with load_tables")
        return next(iter(found.values()))

    def to_markdown(self, k: int = TOP, lines: int = LINES) -> str:
        """The highest words of each class, and the words among the top k that each two classes share."""
        from whyformer.show.words import as_markdown

        return as_markdown(self, k, lines)

    def to_text(self, k: int = TOP, lines: int = LINES) -> str:
        """The same for a terminal."""
        from whyformer.show.words import as_text

        return as_text(self, k, lines)

    def __str__(self) -> str:
        return self.to_text()

    @property
    def _compared(self) -> list[int]:
        if len(self.totals) < 2:
            (name,) = self.classes
            count = sum(self.texts.values())
            raise BadInput(
                f"words are compared between classes, and the model calls all {count} texts {name}: give texts of "
                "several classes"
            )
        return sorted(self.totals)

    def _name(self, index: int) -> str:
        return self.labels[index] if index < len(self.labels) else str(index)

    def _index(self, label: int | str) -> int:
        names = [self._name(index) for index in range(max(len(self.labels), max(self.totals) + 1))]
        index = label if isinstance(label, int) and label in self.totals else label_index(label, names)
        if index not in self.totals:
            raise BadInput(f"the model predicted {self._name(index)} for no text: there are {', '.join(self.classes)}")
        return index


def tables_of(results: Table) -> dict[str, TokenTable]:
    """The tables of words of an evaluation that measured `token_overlap`, by method."""
    about = results.run.get("about", {})
    found: dict[str, TokenTable] = {}
    for method, metric in results.series:
        details = results.series[method, metric].details
        if results.facts.get(metric, {}).get("name") != METRIC or method in found or not details:
            continue
        sums = WordSums()
        for row, detail in zip(results.series[method, metric].rows, details, strict=True):
            words = json.loads(zlib.decompress(detail))
            try:
                _WORDS(words)
            except Misfit as misfit:
                raise BadInput(f"row {row} has no words of {method} by {metric}: {misfit}") from misfit
            sums.add(words)
        provenance = {name: about[name] for name in ("model", "revision", "data") if about.get(name)}
        found[method] = TokenTable(sums.totals, tuple(about.get("labels", ())), method, dict(sums.texts), provenance)
    if not found:
        raise BadInput(f"this evaluation has no words: measure {METRIC} (--metrics {METRIC})")
    return {method: found[method] for method in results.methods if method in found}


def save_tables(tables: Mapping[str, TokenTable], path: str | Path) -> Path:
    """Write the tables of several methods to one JSON file."""
    several = [table.to_dict() for table in tables.values()]
    data = {"schema": SCHEMA_OF_SEVERAL, "version": SCHEMA_VERSION, "tables": several}
    return write(path, json.dumps(data, ensure_ascii=False, indent=1))


def load_tables(path: str | Path) -> dict[str, TokenTable]:
    """Read what `save_tables` or `TokenTable.save` wrote, by method."""
    data = read_json(path, TABLE.kind)
    if isinstance(data, dict) and data.get("schema") == SCHEMA_OF_SEVERAL:
        several = TABLES.checked(data, path)["tables"]
    else:
        several = [TABLE.checked(data, path)]
    return {table.method: table for table in map(TokenTable._of, several)}


def _predicted(explanation: Explanation) -> int:
    """The index of the predicted class, which has to be the one that is explained."""
    said, target = explanation.prediction, explanation.target
    if said.index is None or said.probabilities is None:
        raise BadInput(
            "words are summed by predicted class: a model that answers questions, or has one output, has none"
        )
    if target.index != said.index or explanation.versus is not None:
        raise BadInput(
            f"words are summed by predicted class, here {said.label}, and this explains {target.name}"
            f"{'' if explanation.versus is None else f' rather than {explanation.versus.name}'}: leave the target out"
        )
    return said.index


def _called(explanation: Explanation) -> str:
    """The method as it is written; one that is not registered here, with all its options."""
    if explanation.method in list_methods():
        return MethodSpec(method_named(explanation.method), explanation.options).label
    options = ", ".join(f"{name}={value}" for name, value in sorted(explanation.options.items()))
    return f"{explanation.method}({options})" if options else explanation.method


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


_WORDS = fields({"class": count, "words": every(_score)})
_TABLE = fields(
    {
        "method": text,
        "labels": every(text),
        "texts": named(whole(1), index),
        "totals": named(named(number()), index),
        "provenance": both(plain, fields({}, {"refused": named(count)})),
    }
)
TABLE = Format(
    "saved table of words",
    SCHEMA,
    SCHEMA_VERSION,
    (_TABLE, _is_numbered_alike),
    "version",
    "`whyformer tokens --out` writes one",
)
TABLES = Format(
    "file of saved tables of words",
    SCHEMA_OF_SEVERAL,
    SCHEMA_VERSION,
    (fields({"tables": every(TABLE.check, at_least=1)}), _are_of_several_methods),
    "version",
    "`whyformer tokens --out` writes one",
)
