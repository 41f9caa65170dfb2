"""Trust in explanations of what is said at a place: an answer in its context, the label of a word, the next token."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from whyformer.errors import BadInput
from whyformer.explain.explanation import Explanation, Trust
from whyformer.inputs.encoding import ReadInput, TextInput, collate
from whyformer.inputs.input import Kind, Places
from whyformer.methods.registry import method_named
from whyformer.metrics.faithfulness import TENTHS, flat
from whyformer.models.loading import Subject
from whyformer.perturb import ORDERS, Hidden, Hideable, count_of, hide_named, hideable, outcomes_of, outcomes_without
from whyformer.prediction import Prediction
from whyformer.progress import report
from whyformer.show.layout import named
from whyformer.tasks.label import Label

HIDE = "delete"


class _Falls:
    """How far the probability of one output falls while units are deleted in some order, on average over tenths.

    The units where the output is said stay, and so does all of an answer.
    """

    def __init__(self, subject: Subject, encoded: ReadInput, kind: Kind, target: Label):
        batch = collate(subject, [encoded])
        chosen = torch.tensor([_chosen(target)], device=batch.tensors["input_ids"].device)
        self.prediction = Prediction(subject.model, batch, chosen=(chosen, None))
        self.text: Hideable = hideable(self.prediction, kind, hide_named(HIDE))[0]
        answer = set(range(target.span.tokens[0], target.span.tokens[1] + 1)) if target.span else set()
        self.units = [group for group in self.text.units if not answer.intersection(group)]
        self.whole = self._probability(outcomes_of(self.prediction)[0].probability)
        self.known: dict[frozenset[int], float] = {frozenset(): self.whole}

    @staticmethod
    def _probability(probability: float | None) -> float:
        assert probability is not None  # `_check_target` refuses what has none
        return probability

    @property
    def evaluations(self) -> int:
        """How many inputs were run."""
        return len(self.known)

    def of(self, order: Sequence[Places]) -> float:
        """The mean fall of one order."""
        steps = [frozenset(flat(list(map(list, order[: count_of(q, len(order))])))) for q in TENTHS]
        new = [places for places in dict.fromkeys(steps) if places not in self.known]
        hidden = [Hidden(self.text, sorted(places)) for places in new]
        outcomes = outcomes_without(self.prediction, hidden, hide_named(HIDE)) if hidden else []
        self.known |= {p: self._probability(o.probability) for p, o in zip(new, outcomes, strict=True)}
        return float(np.mean([self.whole - self.known[places] for places in steps]))

    def ranked(self, scores: Sequence[float]) -> list[Places]:
        """The units by a score of each, highest first, ties in order of position."""
        return [self.units[n] for n in np.argsort(-np.asarray(scores), kind="stable")]

    def at_random(self, seed: int) -> list[Places]:
        """The units in a random order: by the random score of the first token of each."""
        scores = method_named("random")(self.prediction, seed=seed).total[0].tolist()
        return self.ranked([scores[int(self.text.positions[unit[0]])] for unit in self.units])


def trust_in_place(
    subject: Subject, encoded: ReadInput, kind: Kind, explanations: Sequence[Explanation], close: float
) -> Iterable[tuple[Explanation, Trust]]:
    """Measure explanations of one output of one text, which share the random orders. The best one is not searched for.

    `close` is how far the probability may be from the one that was explained.
    """
    falls = _Falls(subject, encoded, kind, explanations[0].target)
    if not falls.units:
        raise BadInput("trust hides what stands beside the explained output, and there is nothing beside it")
    for explanation in explanations:
        then = _probability_then(explanation)
        if then is not None and abs(then - falls.whole) > close:
            raise another_model(explanation)
    turns = len(explanations) + ORDERS
    aopc, by_chance = [], []
    for number, explanation in enumerate(explanations):
        aopc.append(falls.of(falls.ranked(_scores(explanation, encoded, kind, falls.units))))
        report(number + 1, turns)
    for seed in range(ORDERS):
        by_chance.append(falls.of(falls.at_random(seed)))
        report(len(explanations) + seed + 1, turns)
    target = explanations[0].target
    trust = Trust(0.0, tuple(by_chance), None, named(target), len(falls.units), kind, falls.evaluations, "token")
    trust = replace(trust, output="answer") if target.span else trust
    return [(e, replace(trust, aopc=fall)) for e, fall in zip(explanations, aopc, strict=True)]


def another_model(explanation: Explanation) -> BadInput:
    """What is said to whoever gives another model than the one that was explained."""
    return BadInput(
        f"this is not the model that was explained ({explanation.provenance.get('model', 'not named')}): its "
        f"probability of {explanation.target.name} is another; give the explainer of that model"
    )


def _chosen(target: Label) -> tuple[int, int]:
    """An output as its task writes it: the first and last token of an answer, or an index and where it is said."""
    if target.span is not None:
        return target.span.tokens
    assert target.index is not None
    assert target.place is not None
    return target.index, target.place.token


def _scores(explanation: Explanation, encoded: ReadInput, kind: Kind, units: Sequence[Places]) -> list[float]:
    """The score of each unit that is hidden."""
    if kind == "token":
        return [float(explanation.scores[unit[0]]) for unit in units]
    assert isinstance(encoded, TextInput)
    number_of = {tuple(places): number for number, (_, places) in enumerate(encoded.words)}
    return [float(explanation.scores[number_of[tuple(unit)]]) for unit in units]


def _probability_then(explanation: Explanation) -> float | None:
    """How probable the explained output was, if that was kept."""
    target, said = explanation.target, explanation.prediction
    if target.span is not None:
        return said.probability if target.span == said.span else None
    indices = range(len(said.labels)) if said.indices is None else said.indices
    return dict(zip(indices, said.probabilities or (), strict=False)).get(target.index or 0)
