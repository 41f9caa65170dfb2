"""Measuring: the numbers of one chunk of examples that are missing, each with the key that says what determines it."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from whyformer.datasets import Example
from whyformer.errors import BadInput
from whyformer.evaluation.chunk import Asked, Wanted
from whyformer.evaluation.examples import Item, batches, hashed, item_of
from whyformer.perturb import ORDERS
from whyformer.results.records import Chunk
from whyformer.results.table import CEILING, CHANCE, Pair


@dataclass(frozen=True)
class Task:
    """A chunk that is to be measured: its items, of each the keys that are missing, and the rows left out."""

    start: int
    stop: int
    items: tuple[Item, ...]
    missing: Mapping[int, Mapping[Pair, str]]
    left_out: Mapping[int, str]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not any(self.missing.values())


@dataclass(frozen=True)
class Measuring(Wanted):
    """Measures what is wanted, chunk by chunk."""

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What determines every number, beside the example, the method and the metric."""
        packages = self.subject.provenance["packages"]
        return {"model": self.subject.fingerprint, "device": self.subject.device.type, **packages}

    def keys(self, item: Item) -> dict[Pair, str]:
        """Of each pair the hash of everything that determines its number."""
        beyond = item.row >= self.settings.ceiling
        of_row = [pair for pair in self.pairs if not (beyond and pair[0] in (CEILING, CHANCE))]
        about = [self._key, item.row, item.content]
        return {pair: hashed([*about, *(self._facts_of[label] for label in pair)]) for pair in of_row}

    def task(
        self, start: int, stop: int, examples: Sequence[Example], skipped: Mapping[int, str], known: Container[str]
    ) -> "Task":
        """What is to be done about some rows, given the keys that are known."""
        left_out = dict(skipped)
        items = tuple(self._items(examples, left_out))
        missing = {i.row: {pair: key for pair, key in self.keys(i).items() if key not in known} for i in items}
        return Task(start, stop, items, missing, left_out)

    def __call__(self, task: "Task") -> Chunk:
        """The numbers of a chunk that are missing; records in order of row, method and metric."""
        keys, left_out = task.missing, dict(task.left_out)
        asked = Asked(self, {pair for own in keys.values() for pair in own})
        wanted = [item for item in task.items if keys[item.row]]
        for batch in batches(wanted, self.subject.device.type, self.settings.ceiling):
            asked.explain(batch)
        asked.answer()
        left_out |= asked.left_out
        records = [
            asked.record(item, pair, key)
            for item in task.items
            if item.row not in left_out
            for pair, key in keys[item.row].items()
        ]
        said = tuple(asked.said[item.row] for item in wanted)
        counts = vars(asked.outcomes.counts)
        return Chunk(task.start, task.stop, tuple(records), asked.metric_facts, said, left_out, counts)

    @cached_property
    def _key(self) -> str:
        return hashed(self.facts)

    @cached_property
    def _facts_of(self) -> dict[str, Any]:
        words = None if self.idf is None else hashed(sorted(self.idf.values.items()))
        ways = {CHANCE: {"name": CHANCE, "orders": ORDERS}, CEILING: {"name": CEILING, "beam": self.settings.beam}}
        metrics = {m.label: m.facts | ({"idf": words} if "idf" in m.of.needs else {}) for m in self.metrics}
        return {method.label: method.facts for method in self.methods} | metrics | ways

    def _items(self, examples: Sequence[Example], left_out: dict[int, str]) -> Iterator[Item]:
        for example in examples:
            try:
                item = item_of(self.subject, example)
                self._check_gold(item)
            except BadInput as error:
                if not self.settings.skip_bad_rows:
                    advice = "on_error='skip' (--on-error skip) leaves such rows out"
                    raise BadInput(f"row {example.row} (counted from 0): {error}; {advice}") from error
                left_out[example.row] = str(error)
                continue
            shortest = self.settings.shortest
            if shortest is not None and len(item.encoded.units) < shortest:
                left_out[example.row] = f"fewer than {shortest} tokens"
            else:
                yield item

    def _check_gold(self, item: Item) -> None:
        for metric in self.metrics:
            of_gold = metric.facts["options"].get("target") == "gold" or "gold" in metric.of.needs
            if of_gold and item.said.gold is None:
                raise BadInput(f"{metric.of.name} needs the gold label, and there is none")
