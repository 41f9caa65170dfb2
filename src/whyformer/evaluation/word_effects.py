"""Checking words: what a model says of texts once a word that it relies on is deleted."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from whyformer.inputs.encoding import TextInput, encode
from whyformer.inputs.fillers import Fillers
from whyformer.inputs.input import TensorInput
from whyformer.models.loading import Subject
from whyformer.perturb import Outcomes, hide_named
from whyformer.progress import listening
from whyformer.results.shortcuts import ExplainedText, ShortcutReportData, ShortcutWord, WordEffect

DELETE = hide_named("delete")
ReportOf = TypeVar("ReportOf", bound=ShortcutReportData)


class Question(NamedTuple):
    """A text with and without a word, and the class that the model says of it."""

    word: ShortcutWord
    predicted: int
    whole: TensorInput
    without: TensorInput


class Change(NamedTuple):
    """What happened to the probability of the class, and how far its log-odds fell."""

    before: float
    after: float
    log_odds: float


def checked_words(subject: Subject, report: ReportOf, sides: Sequence[str], texts: int) -> ReportOf:
    """With the effect of deleting each word, wherever it stands on its side, from so many of the texts that hold it."""
    questions = list(_questions(subject, report, sides, texts))
    if not questions:
        return report
    engine = Outcomes(subject.model)
    asked = [one for question in questions for one in (question.whole, question.without)]
    with listening(None):  # whoever counts texts is not told of these
        logits = engine.logits(asked, len(subject.labels))
    shares = engine.task.probabilities(logits)
    assert shares is not None  # the engine refuses models without probabilities
    changes: defaultdict[tuple[str | None, str], list[Change]] = defaultdict(list)
    for place, (word, predicted, *_) in enumerate(questions):
        two = slice(2 * place, 2 * place + 2)
        before, after = shares[two, predicted].tolist()
        with_it, without = engine.task.log_odds(logits[two], torch.tensor(predicted)).tolist()
        changes[word.side, word.word].append(Change(before, after, with_it - without))
    return report.with_effects({key: _mean(measured) for key, measured in changes.items()})


def _questions(subject: Subject, report: ShortcutReportData, sides: Sequence[str], texts: int) -> Iterator[Question]:
    fillers = Fillers.of(subject.model, subject.tokenizer)
    inputs: dict[int, TextInput] = {}
    for word in report.words:
        for row in [row for row in word.rows if row in report.examples][:texts]:
            text = report.examples[row]
            if row not in inputs:
                inputs[row] = _input(subject, text, fillers)
            places = _places(inputs[row], word, sides)
            yield Question(word, text.predicted, inputs[row], inputs[row].without(places, DELETE))


def _input(subject: Subject, text: ExplainedText, fillers: Fillers) -> TextInput:
    """The text as the model takes it, as those are written of which something is deleted."""
    whole = encode(subject, text.texts[0] if len(text.texts) == 1 else (text.texts[0], text.texts[1]))
    attended = {"attention_mask": np.ones(len(whole), dtype=np.int64)}
    return replace(whole, tensors={**whole.tensors, **attended}, fillers=fillers)


def _places(whole: TextInput, word: ShortcutWord, sides: Sequence[str]) -> list[int]:
    """Where the tokens of a word stand, on its side."""
    part = None if word.side is None else list(sides).index(word.side)
    same = (at for unit, at in whole.words if unit.text.lower() == word.word and part in (None, unit.part))
    return [place for places in same for place in places]


def _mean(changes: Sequence[Change]) -> WordEffect:
    before, after, odds = (math.fsum(column) / len(changes) for column in zip(*changes, strict=True))
    return WordEffect(len(changes), before, after, odds)
