"""Texts that stand in for those of a figure: some of each class, which the model classifies right."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from whyformer.datasets import Dataset, Example, label_index
from whyformer.errors import BadInput
from whyformer.inputs.batch import Text, collate, encode
from whyformer.models.load import Subject
from whyformer.prediction import Prediction

MOST = 1000  # texts that the model is asked about


class ClassText(NamedTuple):
    """A text, and the name of its gold class."""

    text: Text
    gold: str | None = None


@dataclass(frozen=True)
class EachClass:
    """Examples of a figure: the first texts of each gold class that are short and that the model classifies right.

    `longest` is how many tokens they may have; a picture of more is too wide to be read.
    """

    longest: int = 64

    def texts(self, subject: Subject, data: Dataset, count: int) -> tuple[list[ClassText], list[str]]:
        """So many texts of each class, and a sentence for each class that has fewer."""
        by_class: dict[int, list[ClassText]] = {gold: [] for gold in range(len(subject.labels))}
        for example, gold in self._classified_right(subject, data):
            if len(by_class[gold]) < count:
                by_class[gold].append(ClassText(example.text, subject.labels[gold]))
            if all(len(texts) == count for texts in by_class.values()):
                break
        chosen = [one for texts in by_class.values() for one in texts]
        rule = f"of at most {self.longest} tokens that the model classifies right"
        if not chosen:
            raise BadInput(f"{data.name} ({data.source.where}) has no text {rule}; texts= takes others")
        few = [
            f"{len(texts) or 'no'} text{'' if len(texts) == 1 else 's'} of the class {subject.labels[gold]} {rule}: "
            f"{count} {'was' if count == 1 else 'were'} asked for"
            for gold, texts in by_class.items()
            if len(texts) < count
        ]
        return chosen, few

    def _classified_right(self, subject: Subject, data: Dataset) -> Iterator[tuple[Example, int]]:
        """The short texts whose predicted class is the gold one, with that; the model is asked about `MOST`."""
        asked = 0
        for example in data:
            encoded = encode(subject, example.text)
            if example.label is None or sum(not unit.special for unit in encoded.units) > self.longest:
                continue
            gold = label_index(example.label, subject.labels)
            if int(Prediction(subject.model, collate(subject, [encoded])).predicted[0]) == gold:
                yield example, gold
            asked += 1
            if asked == MOST:
                return
