"""Which words speak for which class, summed over many explanations, and which words classes share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple, Self

from whyformer.datasets import label_index
from whyformer.errors import BadInput, BadOption
from whyformer.methods.registry import list_methods, method_named
from whyformer.methods.specs import MethodSpec
from whyformer.metrics.idf import Idf
from whyformer.metrics.overlap import Counting, Totals, WordSums, shared_share, top_words
from whyformer.registry.arguments import validated
from whyformer.results.explanation import ExplanationData
from whyformer.results.shortcuts import LEANING, ExplainedText, Leaning, LeaningSums, scored_words
from whyformer.storage.forms import (
    Format,
    both,
    count,
    every,
    fields,
    index,
    must,
    named,
    number,
    optional,
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
WORDS_EACH = Counting()  # what is summed unless something else is asked for

Pair = tuple[str, str]  # the names of two classes


class Word(NamedTuple):
    """A word with its sum."""

    word: str
    score: float


@dataclass(frozen=True)
class TokenTableData:
    """What a `TokenTable` is made of, which says what the fields mean, and what is computed from it."""

    totals: Totals
    labels: tuple[str, ...]
    method: str
    texts: Mapping[int, int]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    leaning: Leaning | None = None

    def __post_init__(self) -> None:
        if not self.totals or set(self.totals) != set(self.texts):
            raise BadInput("a table of words needs at least one text, and the number of texts of each class")

    @classmethod
    def of(
        cls, explanations: Iterable[ExplanationData], *, idf: Idf | None = None, counting: Counting = WORDS_EACH
    ) -> Self:
        """Sum up explanations of what a model predicted, by one method; they may come as a stream.

        Without an `idf` words are weighted by the small table that comes along. `counting` may say to sum tokens, or
        each distinct word of a text once.
        """
        weights, sums, leaning = Idf.bundled() if idf is None else idf, WordSums(), LeaningSums()
        first: tuple[Any, ...] = ()
        provenance: dict[str, Any] = {}
        for row, explanation in enumerate(explanations):
            index, method_and_labels = _predicted(explanation), (_called(explanation), explanation.prediction.labels)
            first, provenance = first or method_and_labels, provenance or dict(explanation.provenance)
            if method_and_labels != first:
                raise BadInput(
                    f"one table is of one method and one model; found explanations by {first[0]} for the classes "
                    f"{', '.join(first[1])} and by {method_and_labels[0]} for {', '.join(method_and_labels[1])}"
                )
            sums.add(counting.record(index, explanation.units, explanation.texts, explanation.scores, weights))
            leaning.add(_explained(row, index, explanation))
        if not first:
            raise BadInput("there is no explanation to sum up")
        provenance |= {"idf": weights.source, **counting.provenance}
        return cls(sums.totals, first[1], first[0], dict(sums.texts), provenance, leaning.leaning())

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
    def shared_counts(self, k: int = TOP) -> dict[Pair, int]:
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
            "leaning": None if self.leaning is None else self.leaning.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The table that `to_dict` gave."""
        return cls._of(TABLE.checked(data))

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Self:
        """From data that was checked."""
        totals = {int(at): {word: float(score) for word, score in of.items()} for at, of in data["totals"].items()}
        texts = {int(at): texts for at, texts in data["texts"].items()}
        leaning = None if data.get("leaning") is None else Leaning.of(data["leaning"])
        return cls(totals, tuple(data["labels"]), data["method"], texts, data["provenance"], leaning)

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


def _predicted(explanation: ExplanationData) -> int:
    """The index of the predicted class, which has to be the one that is explained."""
    prediction, target = explanation.prediction, explanation.target
    if prediction.index is None or prediction.probabilities is None:
        raise BadInput(
            "words are summed by predicted class: a model that answers questions, or has one output, has none"
        )
    if target.index != prediction.index or explanation.versus is not None:
        raise BadInput(
            f"words are summed by predicted class, here {prediction.label}, and this explains {target.name}"
            f"{'' if explanation.versus is None else f' rather than {explanation.versus.name}'}: leave the target out"
        )
    return prediction.index


def _explained(row: int, predicted: int, explanation: ExplanationData) -> ExplainedText:
    """What words are counted in, of an explanation that stands at some place of a stream."""
    words = scored_words(explanation.units, explanation.texts, explanation.scores, explanation.ranks)
    probability = explanation.prediction.probability
    return ExplainedText(row, explanation.texts, words, predicted, probability, signed=explanation.signed)


def _called(explanation: ExplanationData) -> str:
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
    if leaning := data.get("leaning"):
        must(_classes_of(leaning) <= known, "has a class that is not in 'totals'", "leaning")
        numbered = {int(at) for at in leaning["labels"]} | _gold_of(leaning)
        must(max(numbered, default=0) < labels, f"has a label {max(numbered, default=0)} of {labels}", "leaning")


def _classes_of(leaning: Mapping[str, Any]) -> set[int]:
    """The predicted classes that are named; every word has some, and all are counted."""
    counted = {int(at) for at in leaning["texts"]}
    named_there = {int(at) for word in leaning["words"] for at in word["classes"]}
    must(named_there <= counted, "has a class that is not in 'texts'", "leaning")
    must(all(word["classes"] for word in leaning["words"]), "has a word of no class", "leaning")
    return counted | {example["predicted"] for example in leaning["examples"]}


def _gold_of(leaning: Mapping[str, Any]) -> set[int]:
    told = [word["label"]["label"] for word in leaning["words"] if word["label"]]
    return {*told, *(example["gold"] for example in leaning["examples"] if example["gold"] is not None)}


def _are_of_several_methods(data: Mapping[str, Any]) -> None:
    methods = [table["method"] for table in data["tables"]]
    must(len(set(methods)) == len(methods), "has two tables of one method", "tables")


WORDS = fields({"class": count, "words": every(_score)})
_TABLE = fields(
    {
        "method": text,
        "labels": every(text),
        "texts": named(whole(1), index),
        "totals": named(named(number()), index),
        "provenance": both(plain, fields({}, {"refused": named(count)})),
    },
    {"leaning": optional(LEANING)},  # not there in tables that were made of an evaluation, or saved long ago
)
_WRITTEN_BY = ("version", "`whyformer tokens --out` writes one")
TABLE = Format("saved table of words", SCHEMA, SCHEMA_VERSION, (_TABLE, _is_numbered_alike), *_WRITTEN_BY)
_TABLES = (fields({"tables": every(TABLE.check, at_least=1)}), _are_of_several_methods)
TABLES = Format("file of saved tables of words", SCHEMA_OF_SEVERAL, SCHEMA_VERSION, _TABLES, *_WRITTEN_BY)
