"""Checking reasons: the strongest words of an explanation are hidden, one at a time, and the model is asked again."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from whyformer.errors import WhyformerError
from whyformer.explain.explanation import Explanation
from whyformer.explain.request import ExplainedOutput, ExplainedRun
from whyformer.inputs.images import ImageInput
from whyformer.inputs.input import Kind, Places
from whyformer.inputs.units import join_words
from whyformer.perturb import Hidden, Hideable, Outcome, hide_named, hideable, outcomes_of, outcomes_without
from whyformer.prediction import Prediction
from whyformer.results.checked import Checked, Effect, EffectQuantity, directions

USUAL = 3  # words or regions
LONGEST = 128  # units of a text that is checked by default
HIDE = "delete"
UNCHECKED = "unchecked"  # the key of diagnostics that says why nothing was checked
TOO_LONG = f"the text has more than {LONGEST} units; check={USUAL} (--check {USUAL}) checks it all the same"

Group = tuple[str, list[int]]  # a word or region, and the places of its units


def checked_run(explanations: Sequence[Explanation], run: ExplainedRun, check: int | None) -> list[Explanation]:
    """The explanations of a run with what the model says without the strongest words or regions of each.

    All that one turn of the run asks is one batch. A model that does not run without some of its input is left alone,
    and `diagnostics` says why.
    """
    done = list(explanations)
    for number, turn in enumerate(run.turns):
        places = [n for n, question in enumerate(run.questions) if question.turn == number and question.other is None]
        if check == 0 or not places:
            continue
        try:
            checks = _checks(turn, [run.questions[n] for n in places], [done[n] for n in places], check)
        except WhyformerError as error:
            for n in places:
                done[n] = replace(done[n], diagnostics={**done[n].diagnostics, UNCHECKED: str(error)})
            continue
        for n, result in zip(places, checks, strict=True):
            reason = {} if result is not None else {UNCHECKED: TOO_LONG}
            done[n] = replace(done[n], checked=result, diagnostics={**done[n].diagnostics, **reason})
    return done


def _checks(
    turn: Prediction, questions: Sequence[ExplainedOutput], explanations: Sequence[Explanation], check: int | None
) -> list[Checked | None]:
    """The check of each explanation of a turn, or None for a text that is too long to be checked by default."""
    hide = hide_named(HIDE)
    kind: Kind = "token" if turn.batch.is_images else "word"
    texts, whole = hideable(turn, kind, hide), outcomes_of(turn)
    alone = [_strongest(e, texts[q.row], check) for q, e in zip(questions, explanations, strict=True)]
    sides = [_sides(e, groups or []) for e, groups in zip(explanations, alone, strict=True)]
    hidden = [
        Hidden(texts[question.row], places)
        for question, groups, together in zip(questions, alone, sides, strict=True)
        for _, places in (*(groups or ()), *together)
    ]
    outcomes = iter(outcomes_without(turn, hidden, hide))
    checks: list[Checked | None] = []
    for question, explanation, groups, together in zip(questions, explanations, alone, sides, strict=True):
        if groups is None:
            checks.append(None)
            continue
        before = whole[question.row]
        effects = [_effects(explanation, some, before, [next(outcomes) for _ in some]) for some in (groups, together)]
        checks.append(_checked(explanation, before, *effects))
    return checks


def _strongest(explanation: Explanation, text: Hideable, check: int | None) -> list[Group] | None:
    """The words or regions with the largest scores among those that can be hidden; None if it is too long."""
    picture = isinstance(text.input, ImageInput)
    if check is None and not picture and sum(not unit.special for unit in explanation.units) > LONGEST:
        return None
    groups = [group for group in _groups(explanation, text) if _score(explanation, group[1])]
    groups.sort(key=lambda group: -abs(_score(explanation, group[1])))
    return groups[: USUAL if check is None else check]


def _sides(explanation: Explanation, groups: list[Group]) -> list[Group]:
    """The words whose scores are for the output at once, then those against it, where there are several of a kind."""
    signs = [_score(explanation, places) > 0 or not explanation.signed for _, places in groups]
    split = [[group for group, sign in zip(groups, signs, strict=True) if sign is side] for side in (True, False)]
    return [_together(side) for side in split if len(side) > 1]


def _together(groups: list[Group]) -> Group:
    """Words or regions as one group."""
    return ", ".join(text for text, _ in groups), sorted(place for _, places in groups for place in places)


def _groups(explanation: Explanation, text: Hideable) -> list[Group]:
    """What can be hidden, as people call it: words, or cells of an image."""
    if isinstance(text.input, ImageInput):
        return [(text.input.place_name(cell), cell) for cell in text.input.patches.cells()]
    free = {tuple(places) for places in text.units}
    words = join_words(explanation.units, explanation.texts)
    return [(unit.text, places) for unit, places in words if tuple(places) in free]


def _effects(
    explanation: Explanation, groups: Sequence[Group], whole: Outcome, seen: Sequence[Outcome]
) -> tuple[Effect, ...]:
    falls = [_fallen(whole, outcome) for outcome in seen]
    ways = directions(falls, _measure(whole))
    return tuple(
        Effect(text, tuple(places), _score(explanation, places), fall, way, outcome.output, outcome.probability)
        for (text, places), fall, way, outcome in zip(groups, falls, ways, seen, strict=True)
    )


def _checked(
    explanation: Explanation, whole: Outcome, effects: tuple[Effect, ...], together: tuple[Effect, ...]
) -> Checked:
    signed, before = explanation.signed, (whole.output, whole.probability)
    return Checked(HIDE, _measure(whole), signed, *before, effects, together)


def _measure(whole: Outcome) -> EffectQuantity:
    return "output" if whole.log_odds is None else "log_odds"


def _fallen(whole: Outcome, without: Outcome) -> float:
    """How far the log-odds fell, or else the output."""
    if whole.log_odds is None or without.log_odds is None:
        return whole.output - without.output
    return whole.log_odds - without.log_odds


def _score(explanation: Explanation, places: Places) -> float:
    """The score of a word or region: the sum over its units, or the highest of them where scores are an order."""
    scores: np.ndarray = explanation.scores[list(places)]
    return float(scores.max() if explanation.ranks else scores.sum())
