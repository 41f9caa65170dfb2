"""Trust: how far an explanation can be believed, measured against random orders and the best order found.

The first half is about classes, the second about what is said at a position: an answer in its context, the label of a
word, the next token.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.errors import BadInput, UnsupportedModel, shown
from whyformer.explain.explanation import Explanation, Trust
from whyformer.images import read_again
from whyformer.inputs.batch import ReadInput, TextInput, collate, encode
from whyformer.inputs.images import ImageInput
from whyformer.inputs.input import Kind, Places, TensorInput
from whyformer.methods.method import method_named
from whyformer.metrics import Case, measure
from whyformer.metrics.case import Units
from whyformer.metrics.faithfulness import TENTHS, flat
from whyformer.metrics.metric import metric_named
from whyformer.models.load import Subject
from whyformer.perturb import (
    LONGEST_SEARCH,
    ORDERS,
    Hidden,
    Hideable,
    Outcomes,
    count_of,
    hide_named,
    hideable,
    outcomes_of,
    outcomes_without,
)
from whyformer.prediction import Prediction
from whyformer.progress import part, report
from whyformer.show.layout import named
from whyformer.tasks.regression import Regression
from whyformer.tasks.targets import Label

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


SAME_MODEL = 0.05  # how far a probability may be from the one that was explained: half precision, another device
SAME_RUN = 1e-6  # how far it may be where what was seen while explaining is taken over
SIDE_BY_SIDE = 16  # inputs
IN_PLACE = ("token_labels", "masked_word", "next_token")  # what is said at a token, by its task


@dataclass(frozen=True, eq=False)
class _Question:
    """What several explanations have in common: the input, the explained class, and what is ranked.

    What is said at a place of the text is no class.
    """

    encoded: ReadInput
    target: int | None
    kind: Units
    explanations: list[Explanation]

    @property
    def index(self) -> int:
        """The explained class."""
        assert self.target is not None
        return self.target

    @cached_property
    def groups(self) -> list[list[int]]:
        """The positions of each unit that is ranked."""
        return self.encoded.groups(self.kind)

    @property
    def searched(self) -> bool:
        """Whether the best order is searched for."""
        return len(self.groups) <= LONGEST_SEARCH

    @property
    def cost(self) -> int:
        """About how many inputs the model has to be run on."""
        steps = 10 * (ORDERS + len(self.explanations)) + 1
        return steps + (len(self.groups) * (len(self.groups) + 1) // 2 if self.searched else 0)


def trust_of(explanations: Sequence[Explanation], explainer: Any = None) -> list[Trust]:
    """Measure how far explanations are to be believed; of one that was measured before, what was found then.

    They are measured together: explanations of the same input and class share the random orders and the search, and
    equal inputs of the model are run once; what `stepwise` saw on its way is not run again. An explanation that was
    loaded needs the `explainer` of its model, or the subject. What is found is kept in the explanation.
    """
    if explainer is not None and not isinstance(getattr(explainer, "subject", explainer), Subject):
        raise BadInput(f"trust needs an Explainer or its subject; found {shown(explainer)}")
    new = list({id(e): e for e in explanations if e.trusted is None}.values())
    subjects = [_subject(explanation, explainer) for explanation in new]
    for subject in {id(s): s for s in subjects}.values():
        explained = [e for e, s in zip(new, subjects, strict=True) if s is subject]
        questions = _questions(subject, explained)
        of_classes = [question for question in questions if question.target is not None]
        in_place = [question for question in questions if question.target is None]
        for explanation, trust in chain(_measured(subject, of_classes), _measured_in_place(subject, in_place)):
            object.__setattr__(explanation, "trusted", trust)
    return [e.trusted for e in explanations if isinstance(e.trusted, Trust)]


def _subject(explanation: Explanation, explainer: Any) -> Subject:
    subject: Subject | None = (
        vars(explanation)["subject"] if explainer is None else getattr(explainer, "subject", explainer)
    )
    if subject is None:
        raise BadInput(
            "trust runs the model, and this explanation has none, because it was loaded or unpickled: call "
            "e.trust(explainer) with the Explainer of the model that was explained"
        )
    return subject


def _questions(subject: Subject, explanations: Sequence[Explanation]) -> list[_Question]:
    """What is to be measured, each input and class once; raises where trust is not defined."""
    questions: dict[Any, _Question] = {}
    for explanation in explanations:
        _check_target(subject, explanation)
        target, index = explanation.target, explanation.target.index
        placed = target.span or target.place
        kind: Units = "word" if any(unit.kind == "word" for unit in explanation.units) else "token"
        key = (explanation.texts, id(explanation.image), index, placed, kind)
        if key not in questions:
            questions[key] = _Question(_encoded(subject, explanation), None if placed else index, kind, [])
        _check_units(explanation, questions[key].encoded, kind)
        questions[key].explanations.append(explanation)
    return list(questions.values())


def _check_target(subject: Subject, explanation: Explanation) -> None:
    """Raise where trust is not defined: it follows one probability, of a class or of what is said at a place."""
    target, versus = explanation.target, explanation.versus
    forms = ["answer"] if target.span is not None else IN_PLACE if target.place is not None else ["classes"]
    if subject.task not in forms:
        what = "an answer" if target.span else "an output at a token" if target.place else "a class"
        raise UnsupportedModel(f"trust follows the probability of {what}; {type(subject.model).__name__} gives none")
    if explanation.prediction.probabilities is None or Regression.fits(subject.model):
        raise UnsupportedModel("trust follows the probability of a class, and a regression model gives none")
    if versus is not None:
        raise BadInput(
            f"trust follows the probability of one output, and this explains why {target.name} rather than "
            f"{versus.name}: explain {target.name} without versus"
        )
    if "windows" in explanation.diagnostics:
        raise BadInput("trust hides tokens of one window, and this explanation is the mean over several (merge)")
    if "window" in explanation.diagnostics:
        raise BadInput("trust hides tokens of a whole context, and this explanation is of one window of a long one")
    _check_input(subject, explanation)


def _check_input(subject: Subject, explanation: Explanation) -> None:
    if not explanation.texts and explanation.image is None:
        raise BadInput("trust hides units of a text or an image, and this explanation has neither")
    if (explanation.image is not None) != subject.takes_images:
        raise BadInput("this is not the model that was explained: one takes images, the other texts")


def _encoded(subject: Subject, explanation: Explanation) -> ReadInput:
    texts, image = explanation.texts, explanation.image
    if image is not None:
        return read_again(subject, image)
    return encode(subject, texts[0] if len(texts) == 1 else (texts[0], texts[1]))


def _check_units(explanation: Explanation, encoded: ReadInput, kind: Units) -> None:
    if isinstance(encoded, TextInput):
        cut, units = "this tokenizer does not cut the text", tuple(unit for unit, _ in encoded.words)
        units = encoded.units if kind == "token" else units
    else:
        cut, units = "this model does not cut the image", encoded.units
    if explanation.units != units:
        raise BadInput(
            f"{cut} into the {len(explanation.units)} units of the explanation: give "
            f"the explainer of the model that was explained ({explanation.provenance.get('model', 'not named')})"
        )
    if explanation.scores.shape != (len(explanation.units),) or not np.isfinite(explanation.scores).all():
        scores = f"shape {explanation.scores.shape}, {int((~np.isfinite(explanation.scores)).sum())} not finite"
        raise BadInput(f"units are ranked by one finite score for each of {len(explanation.units)}; found {scores}")


def _measured(subject: Subject, questions: Sequence[_Question]) -> Iterator[tuple[Explanation, Trust]]:
    """Inputs of the same kind go on side by side, a few at a time."""
    if not questions:
        return
    outcomes = Outcomes(subject.model)
    outcomes.expected = sum(question.cost for question in questions)
    for kind in dict.fromkeys((question.kind, question.searched) for question in questions):
        alike = [question for question in questions if (question.kind, question.searched) == kind]
        for start in range(0, len(alike), SIDE_BY_SIDE):
            yield from _side_by_side(subject, outcomes, alike[start : start + SIDE_BY_SIDE])
            outcomes.forget()


def _measured_in_place(subject: Subject, questions: Sequence[_Question]) -> Iterator[tuple[Explanation, Trust]]:
    """One text after the other."""
    for number, question in enumerate(questions):
        with part(number, len(questions)):
            yield from trust_in_place(subject, question.encoded, question.kind, question.explanations, SAME_MODEL)


def _side_by_side(
    subject: Subject, outcomes: Outcomes, questions: Sequence[_Question]
) -> list[tuple[Explanation, Trust]]:
    before = outcomes.counts.run
    case = _case(subject, outcomes, questions)
    units = questions[0].kind
    most = max(len(question.explanations) for question in questions)
    turns = [[question.explanations[n % len(question.explanations)] for question in questions] for n in range(most)]
    cases = [_ranked(case, units, turn) for turn in turns]
    cases += [_shuffled(case, units, seed) for seed in range(ORDERS)]
    if questions[0].searched:
        cases.append(case.best("explained", units=units))
    options = {"target": "explained", "units": units}
    aopc = [measured.values.tolist() for measured in measure([(metric_named("aopc"), one, options) for one in cases])]
    ranked, random, best = aopc[:most], aopc[most : most + ORDERS], aopc[most + ORDERS :]
    trusts = []
    for row, question in enumerate(questions):
        by_chance, ceiling = tuple(values[row] for values in random), best[0][row] if best else None
        shown = "patch" if isinstance(question.encoded, ImageInput) else units
        about = (len(question.groups), shown, outcomes.counts.run - before)
        for turn, explanation in enumerate(question.explanations):
            trust = Trust(ranked[turn][row], by_chance, ceiling, explanation.target.name, *about)
            trusts.append((explanation, trust))
    return trusts


def _case(subject: Subject, outcomes: Outcomes, questions: Sequence[_Question]) -> Case:
    """The inputs with no scores yet, if this model is the one that was explained."""
    batch = collate(subject, [question.encoded for question in questions])
    prediction = Prediction(subject.model, batch, [question.index for question in questions])
    if prediction.task.name != "classes":
        raise UnsupportedModel(f"trust follows the probability of a class; {type(subject.model).__name__} gives none")
    case = Case(prediction.settled(), torch.zeros(prediction.padding.shape, dtype=torch.float64), outcomes)
    whole = case.probabilities([[[]] for _ in questions], "delete")
    for question, row, (now, *_) in zip(questions, case.inputs, whole, strict=True):
        for explanation in question.explanations:
            then = explanation.prediction.probabilities or ()
            if len(then) != case.classes or abs(then[question.index] - float(now[question.index])) > SAME_MODEL:
                raise another_model(explanation)
            _take_over(explanation, row, now, outcomes)
    return case


def _take_over(explanation: Explanation, row: TensorInput, whole: Tensor, outcomes: Outcomes) -> None:
    """Tell the engine what the model said while units were hidden for an explanation, if they were deleted.

    What a run on another device or in another precision saw is not taken over.
    """
    seen = next((one for one in explanation.seen if one.hide == "delete" and one.probabilities is not None), None)
    if seen is None or len(seen.hidden_in) != len(row):
        return
    steps = enumerate(seen.probabilities or ())
    by_step = {step: torch.tensor(shares, dtype=torch.float64) for step, shares in steps if shares is not None}
    gone = [[place for place, step in enumerate(seen.hidden_in) if 0 < step <= after] for after in by_step]
    rows = [row.without(places, hide_named("delete")) for places in gone]
    both = torch.stack((whole, outcomes.of(rows[-1:], len(whole))[0]))  # all orders end there, so it is run anyway
    precise = explanation.provenance.get("dtype") in ("float32", "float64")
    if precise and float((torch.stack((by_step[0], by_step[max(by_step)])) - both).abs().max()) <= SAME_RUN:
        outcomes.know(rows, torch.stack(list(by_step.values())))


def _ranked(case: Case, units: Units, explanations: Sequence[Explanation]) -> Case:
    """The case with units ranked by explanations, one for each input, ties by position."""
    scores = [e.scores[[not unit.special for unit in e.units]] for e in explanations]
    return case.ordered([np.argsort(-row, kind="stable").tolist() for row in scores], units)


def _shuffled(case: Case, units: Units, seed: int) -> Case:
    """The case with units in a random order."""
    return replace(case, scores=method_named("random")(case.prediction, seed=seed).total).shuffled(units)
