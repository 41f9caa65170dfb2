"""Checking reasons: the strongest words of an explanation are hidden, one at a time, and the model is asked again."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from whyformer.errors import BadInput, WhyformerError, shown
from whyformer.explain.explanation import Explanation
from whyformer.explain.questions import ExplainedOutput, ExplainedRun
from whyformer.inputs.images import ImageInput
from whyformer.inputs.input import Kind, Places
from whyformer.inputs.units import join_words
from whyformer.perturb import Hidden, Hideable, Outcome, hide_named, hideable, outcomes_of, outcomes_without
from whyformer.prediction import Prediction
from whyformer.results.checked import Checked, Effect, Measure, directions

USUAL = 3  # words or regions
LONGEST = 128  # units of a text that is checked unasked
MOST = 100  # inputs of a list that is checked unasked
HIDE = "delete"
UNCHECKED = "unchecked"  # where it is said why a model could not be asked

Group = tuple[str, list[int]]  # a word or region, and the places of its units


def check_count(check: int | None, inputs: int | None) -> int | None:
    """How many words or regions are checked: those asked for; None for the usual count, where texts are short."""
    if check is not None:
        if isinstance(check, bool) or not isinstance(check, int) or check < 0:
            raise BadInput(f"check is how many of the strongest words are hidden, 0 for none; found {shown(check)}")
        return check
    return None if inputs is not None and inputs <= MOST else 0


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
            done[n] = replace(done[n], checked=result)
    return done


def _checks(
    turn: Prediction, questions: Sequence[ExplainedOutput], explanations: Sequence[Explanation], check: int | None
) -> list[Checked | None]:
    """Of each explanation of a turn what was seen; None for one that is too long to be checked unasked."""
    hide = hide_named(HIDE)
    kind: Kind = "token" if turn.batch.is_images else "word"
    texts, whole = hideable(turn, kind, hide), outcomes_of(turn)
    chosen = [_strongest(e, texts[q.row], check) for q, e in zip(questions, explanations, strict=True)]
    chosen = [groups and _and_together(groups) for groups in chosen]
    hidden = [
        Hidden(texts[question.row], places)
        for question, groups in zip(questions, chosen, strict=True)
        for _, places in groups or ()
    ]
    outcomes = iter(outcomes_without(turn, hidden, hide))
    checks: list[Checked | None] = []
    for question, explanation, groups in zip(questions, explanations, chosen, strict=True):
        seen = [] if groups is None else [next(outcomes) for _ in groups]
        checks.append(None if groups is None else _checked(explanation, groups, whole[question.row], seen))
    return checks


def _strongest(explanation: Explanation, text: Hideable, check: int | None) -> list[Group] | None:
    """The words or regions with the largest scores among those that can be hidden; None if it is too long."""
    picture = isinstance(text.input, ImageInput)
    if check is None and not picture and sum(not unit.special for unit in explanation.units) > LONGEST:
        return None
    groups = [group for group in _groups(explanation, text) if _score(explanation, group[1])]
    groups.sort(key=lambda group: -abs(_score(explanation, group[1])))
    return groups[: USUAL if check is None else check]


def _and_together(groups: list[Group]) -> list[Group]:
    """Words or regions, and behind several all of them at once."""
    together = (", ".join(text for text, _ in groups), sorted(place for _, places in groups for place in places))
    return [*groups, together] if len(groups) > 1 else groups


def _groups(explanation: Explanation, text: Hideable) -> list[Group]:
    """What can be hidden, as people call it: words, or cells of an image."""
    if isinstance(text.input, ImageInput):
        return [(text.input.place_name(cell), cell) for cell in text.input.patches.cells()]
    free = {tuple(places) for places in text.units}
    words = join_words(explanation.units, explanation.texts)
    return [(unit.text, places) for unit, places in words if tuple(places) in free]


def _checked(explanation: Explanation, groups: Sequence[Group], whole: Outcome, seen: Sequence[Outcome]) -> Checked:
    measure: Measure = "output" if whole.log_odds is None else "log_odds"
    falls = [_fallen(whole, outcome) for outcome in seen]
    alone = len(falls) - 1 if len(falls) > 1 else len(falls)  # the last is of all of them at once
    ways = directions(falls[:alone], measure) + directions(falls[alone:], measure)
    made = [
        Effect(text, tuple(places), _score(explanation, places), fall, way, outcome.output, outcome.probability)
        for (text, places), fall, way, outcome in zip(groups, falls, ways, seen, strict=True)
    ]
    together = made.pop() if len(made) > 1 else None
    return Checked(HIDE, measure, explanation.signed, whole.output, whole.probability, tuple(made), together)


def _fallen(whole: Outcome, without: Outcome) -> float:
    """How far the log-odds fell, or else the output."""
    if whole.log_odds is None or without.log_odds is None:
        return whole.output - without.output
    return whole.log_odds - without.log_odds


def _score(explanation: Explanation, places: Places) -> float:
    """The score of a word or region: the sum over its units, or the highest of them where scores are an order."""
    scores: np.ndarray = explanation.scores[list(places)]
    return float(scores.max() if explanation.ranks else scores.sum())
