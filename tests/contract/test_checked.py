"""Reasons that were checked: what the model says without the strongest words, for every task, literally."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import cases, choosing, dual, evaluated, image_cases, questions, token_outputs
from whyformer import BadOption, Explainer, Explanation, open_dataset
from whyformer.errors import BadInput, UnsupportedModel
from whyformer.explain.check import LONGEST, UNCHECKED, _effects
from whyformer.inputs.units import join_words
from whyformer.perturb import Outcome
from whyformer.results.checked import LITTLE, Checked, Effect, directions
from whyformer.show.colors import AGAINST, FOR, NEUTRAL, strengths
from whyformer.show.layout import between, reasons, together_lines
from whyformer.tasks.task import log_odds as log_odds_of

TEXT = "a gorgeous, witty, seductive film that never bores"


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer.load("sentiment")


def logits_of(explainer: Explainer, ids: list[int]) -> np.ndarray:
    """What the plain model says of tokens."""
    with torch.no_grad():
        given = torch.tensor([ids])
        return (
            explainer.subject.model(input_ids=given, attention_mask=torch.ones_like(given)).logits[0].double().numpy()
        )


def log_odds(logits: np.ndarray, target: int) -> float:
    others = np.delete(logits, target)
    return float(logits[target] - np.log(np.exp(others).sum()))


def literal(explainer: Explainer, text: str, e: Explanation, count: int) -> list[tuple[str, float, float]]:
    """The strongest words, each with what is left of the probability and how far the log-odds fall, by loops."""
    ids = explainer.subject.tokenizer(text)["input_ids"]
    target = e.target.index
    assert target is not None
    whole = log_odds(logits_of(explainer, ids), target)
    words = join_words(e.units, e.texts)
    order = sorted(range(len(words)), key=lambda n: -abs(sum(e.scores[p] for p in words[n][1])))
    found = []
    for n in order[:count]:
        unit, places = words[n]
        left = logits_of(explainer, [i for place, i in enumerate(ids) if place not in places])
        share = np.exp(left[target]) / np.exp(left).sum()
        found.append((unit.text, float(share), whole - log_odds(left, target)))
    return found


@pytest.mark.parametrize("method", ["attn_lrp", "rollout", "attcat"])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_the_strongest_words_are_deleted_one_by_one(explainer: Explainer, method: str, count: int) -> None:
    e = explainer.explain(TEXT, method, check=count)
    assert e.checked is not None
    assert (e.checked.hide, e.checked.measure, len(e.checked.effects)) == ("delete", "log_odds", count)
    assert e.checked.probability == pytest.approx(e.prediction.probability, abs=1e-6)
    for effect, (text, share, fall) in zip(e.checked.effects, literal(explainer, TEXT, e, count), strict=True):
        assert effect.text == text
        assert effect.probability == pytest.approx(share, abs=1e-5)
        assert effect.effect == pytest.approx(fall, abs=1e-3)
        assert effect.score == pytest.approx(sum(e.scores[list(effect.units)]))
        assert effect.direction == (0 if abs(fall) < LITTLE else np.sign(fall))


def test_words_of_one_side_are_deleted_together_too(explainer: Explainer) -> None:
    text = "a slow and dull film that is saved by its gorgeous acting"
    checked = explainer.explain(text, check=5).checked
    assert checked is not None
    ids = explainer.subject.tokenizer(text)["input_ids"]
    sides = [[one for one in checked.effects if (one.score > 0) is side] for side in (True, False)]
    assert all(len(side) > 1 for side in sides)
    for together, side in zip(checked.together, sides, strict=True):
        gone = {place for effect in side for place in effect.units}
        left = logits_of(explainer, [i for place, i in enumerate(ids) if place not in gone])
        assert set(together.units) == gone
        assert together.output == pytest.approx(left[1], abs=1e-4)
    assert explainer.explain(text, check=1).checked.together == ()


def test_words_without_a_side_are_deleted_at_once(explainer: Explainer) -> None:
    checked = explainer.explain(TEXT, "rollout").checked
    assert checked is not None
    (together,) = checked.together
    assert set(together.units) == {place for effect in checked.effects for place in effect.units}


def test_it_is_done_by_default_for_what_is_short(explainer: Explainer) -> None:
    assert explainer.explain(TEXT).checked is not None
    assert explainer.explain(TEXT, check=0).checked is None
    long = "film " * (LONGEST + 1)
    assert explainer.explain(long).checked is None
    assert explainer.explain(long, check=1).checked is not None
    assert all(e.checked is None for e in explainer.compare(TEXT, "attcat,rollout"))
    assert all(e.checked is not None for e in explainer.compare(TEXT, "attcat,rollout", check=1))


def test_the_longest_checked_text_has_128_units(explainer: Explainer) -> None:
    at_most, longer = (explainer.explain("film " * count, "rollout") for count in (LONGEST, LONGEST + 1))
    assert at_most.checked is not None
    assert UNCHECKED not in at_most.diagnostics
    assert longer.checked is None
    assert "more than 128 units" in longer.diagnostics[UNCHECKED]


def test_words_that_score_0_are_not_checked(explainer: Explainer) -> None:
    with evaluated.own_registry():
        evaluated.registered(first_word_alone)
        checked = explainer.explain("a film and a plot", "first_word_alone").checked
    assert checked is not None
    assert [effect.text for effect in checked.effects] == ["a"]


def first_word_alone(prediction: Any) -> torch.Tensor:
    """1 for the first word."""
    return torch.nn.functional.one_hot(torch.tensor([1]), prediction.padding.shape[1]).float()


def test_without_signs_a_word_has_the_side_of_its_own_effect() -> None:
    alone = Effect("a", (1,), 0.5, 0.01, 0, 1.0, 0.7)
    both = Effect("a, b", (1, 2), 0.9, 2.0, 1, 1.0, 0.2)
    signed, unsigned = (Checked("delete", "log_odds", sign, 1.0, 0.7, (alone,), (both,)) for sign in (True, False))
    assert (signed.side(alone), unsigned.side(alone)) == (1, 0)


def test_every_container_is_checked_alike(explainer: Explainer) -> None:
    texts = [TEXT, "fine"]
    opened = open_dataset([{"text": text} for text in texts]).for_texts()
    containers = [texts, (text for text in texts), opened, explainer.stream(texts)]
    for container in containers:
        found = explainer.explain(container) if container is not containers[-1] else container
        assert [len(e.checked.effects) for e in found] == [3, 1]
    many = explainer.explain(["a film"] * 101, "rollout", batch_size=128)
    assert all(e.checked is not None for e in many)


@pytest.mark.parametrize("check", [-1, 1.5, "3", True])
def test_other_counts_are_refused(explainer: Explainer, check: Any) -> None:
    with pytest.raises(BadOption, match=r"check takes a whole number from 0 on \| none; found"):
        explainer.explain(TEXT, check=check)


def test_a_batch_is_checked_as_each_text_alone(explainer: Explainer) -> None:
    texts = [TEXT, "not a bad film", "dull"]
    for e in explainer.explain(texts):
        alone = explainer.explain(e.texts[0]).checked
        assert e.checked is not None
        assert alone is not None
        assert [effect.text for effect in e.checked.effects] == [effect.text for effect in alone.effects]
        assert [effect.effect for effect in e.checked.effects] == pytest.approx(
            [effect.effect for effect in alone.effects], abs=1e-3
        )


def test_what_is_set_against_another_class_is_checked_by_the_odds_of_the_two(explainer: Explainer) -> None:
    alone = explainer.explain(TEXT, "attcat", target="POSITIVE")
    against = explainer.explain(TEXT, "attcat", target="POSITIVE", versus="NEGATIVE")
    assert against.checked is not None
    same = {effect.text: effect.effect for effect in alone.checked.effects}  # of two classes the odds are these
    for effect in against.checked.effects:
        if effect.text in same:
            assert effect.effect == pytest.approx(same[effect.text], abs=1e-3)


def test_of_two_classes_that_are_compared_the_probabilities_are_those_of_the_two() -> None:
    explainer = Explainer(cases.subject("bert", labels=3))
    e = explainer.explain(TEXT, "attcat", check=1, target=0, versus=2)
    assert e.checked is not None
    (one,) = e.checked.effects
    output, _ = left_of(explainer, e, TEXT, gone=one.units)
    shares = [torch.as_tensor(logits)[[0, 2]].double().softmax(0) for logits in (e.prediction.logits, output.logits[0])]
    before, after = (float(share[0]) for share in shares)
    assert e.checked.probabilities(one, compared=True) == pytest.approx((before, after), abs=1e-5)
    assert between(before, after) in str(e) or f"{100 * after:.1f} % (log-odds" in str(e)
    assert e.versus is not None
    assert f"{e.target.name} vs {e.versus.name} without it" in str(e)


@pytest.mark.parametrize(
    ("sign", "direction", "told"),
    [
        (1, 1, ("both checked words for it, together", "50.0 % → 40.0 %", "")),
        (1, -1, ("both checked words for it, together", "50.0 % → 40.0 %", "against it, unlike their scores")),
        (-1, 1, ("both checked words against it, together", "50.0 % → 40.0 %", "for it, unlike their scores")),
        (-1, 0, ("both checked words against it, together", "50.0 % → 40.0 %", "")),
    ],
)
def test_words_of_a_side_that_do_what_their_scores_do_not_say_are_marked(
    explainer: Explainer, sign: int, direction: int, told: tuple[str, str, str]
) -> None:
    e = explainer.explain("fine dull film", "attcat", check=0)
    e = replace(e, scores=sign * np.array([0, 2.0, 0, 0.5, 0]))
    every = (Effect("fine, film", (1, 3), sign * 2.5, 3.0 * direction, direction, 0.0, 0.4),)
    effects = (effect(e, 1, 2.0, 1), effect(e, 3, 0.01, 0))
    e = replace(e, checked=Checked("delete", "log_odds", True, 1.0, 0.5, effects, every))
    assert together_lines(e) == [told]
    assert all(part in str(e) and part in str(e.render("html")) for part in told)
    unsigned = replace(e, signed=False, checked=replace(e.checked, signed=False))
    assert together_lines(unsigned) == [("both checked words, together", "50.0 % → 40.0 %", "")]


def test_an_image_is_checked_by_regions() -> None:
    subject = image_cases.subject()
    explainer = Explainer(subject)
    e = explainer.explain(image_cases.photo())
    assert e.checked is not None
    for effect in e.checked.effects:
        assert all(e.units[place].box is not None for place in effect.units)
        assert effect.score == pytest.approx(float(e.scores[list(effect.units)].sum()), rel=1e-5)
    assert [r.text for r in reasons(e, 6)] == [
        f"{n} {one.text}" for n, one in zip("①②③", e.checked.effects, strict=True)
    ]
    assert f"{e.target.name} without it" in str(e)


def test_regions_are_named_by_their_place_in_the_picture() -> None:
    upper, middle, lower = ("upper left", "upper center", "upper right"), ("left", "center", "right"), ("lower left",)
    for crop, width, names in (
        (False, 20, {1: upper[0], 2: upper[0], 3: upper[1], 5: upper[2], 11: middle[0], 13: middle[1], 21: lower[0]}),
        (True, 60, {1: upper[1], 5: upper[1], 11: middle[1], 13: middle[1], 15: middle[1]}),  # the middle third
    ):
        e = Explainer(image_cases.subject(crop=crop)).explain(image_cases.photo(width=width), check=25)
        assert e.checked is not None
        found = {effect.units[0]: effect.text for effect in e.checked.effects}
        assert {place: found[place] for place in names} == names


def test_an_image_is_checked_however_many_patches_it_has(explainer: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyformer.explain.check.LONGEST", 2)
    assert Explainer(image_cases.subject()).explain(image_cases.photo()).checked is not None
    assert explainer.explain("a fine film").checked is None


def test_a_model_that_cannot_be_asked_is_left_alone_and_that_is_said(
    explainer: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: Any, **__: Any) -> None:
        raise UnsupportedModel("needs its first word")

    monkeypatch.setattr("whyformer.explain.check.outcomes_without", refusing)
    e = explainer.explain(TEXT)
    assert e.checked is None
    assert e.diagnostics["unchecked"] == "needs its first word"
    assert "! the strongest words were not checked: needs its first word" in str(e)


def test_it_is_saved_and_read_again(explainer: Explainer, tmp_path: Any) -> None:
    for e in (explainer.explain(TEXT), explainer.explain(TEXT, check=0), explainer.explain(TEXT).by_word()):
        again = Explanation.load(e.save(tmp_path / "e.json"))
        assert again.checked == e.checked
    data = json.loads((tmp_path / "e.json").read_text(encoding="utf-8"))
    data["checked"]["effects"][0]["units"] = [len(data["units"])]
    with pytest.raises(BadInput, match=r"checked\.effects\[0\]\.units"):
        Explanation.from_dict(data)


def test_effects_follow_words(explainer: Explainer) -> None:
    e = explainer.explain(TEXT, check=5)
    words = e.by_word()
    assert e.checked is not None
    assert words.checked is not None
    for tokens, joined in zip(e.checked.effects, words.checked.effects, strict=True):
        (place,) = joined.units
        assert words.units[place].text == tokens.text
        assert words.scores[place] == pytest.approx(tokens.score)


def effect(e: Explanation, place: int, number: float, direction: int) -> Effect:
    return Effect(e.units[place].text, (place,), float(e.scores[place]), number, direction, 0.0, 0.4)


def test_colours_follow_the_effect(explainer: Explainer) -> None:
    e = explainer.explain("fine dull film", "attcat", check=0)
    e = replace(e, scores=np.array([0, 2.0, -1.0, 0.5, 0]))
    effects = (effect(e, 1, -2.0, -1), effect(e, 2, 0.01, 0), effect(e, 3, 1.0, 1))
    checked = replace(e, checked=Checked("delete", "log_odds", True, 1.0, 0.5, effects))
    assert strengths(e).tolist() == [0, 1, -0.5, 0.25, 0]
    assert strengths(checked).tolist() == [0, -1, 0, 0.25, 0]
    told = {reason.text: reason for reason in reasons(checked, 3)}
    assert [told[word].colour for word in ("fine", "dull", "film")] == [AGAINST, NEUTRAL, FOR]
    remarks = {word: told[word].remark for word in told}
    assert remarks == {"fine": "against it, unlike its score", "dull": "hardly matters alone", "film": ""}
    assert told["fine"].change == "50.0 % → 40.0 %"
    unsigned = replace(checked, signed=False, checked=replace(checked.checked, signed=False))
    assert strengths(unsigned).tolist() == [0, 1, -0.5, 0.25, 0], "without a sign there is none to be wrong"
    assert "unlike" not in str(unsigned)


@pytest.mark.parametrize(("together", "shown"), [(None, 0), (0, 0), (1, 0.25), (-1, 0)])
def test_words_that_say_the_same_keep_their_colour(explainer: Explainer, together: int | None, shown: float) -> None:
    """A word that hardly matters alone, if all of them do together what its score says."""
    e = explainer.explain("fine dull film", "attcat", check=0)
    e = replace(e, scores=np.array([0, 2.0, -1.0, 0.5, 0]))
    every = () if together is None else (Effect("fine, film", (1, 3), 2.5, 3.0 * together, together, 0.0, 0.4),)
    checked = Checked("delete", "log_odds", True, 1.0, 0.5, (effect(e, 1, 2.0, 1), effect(e, 3, 0.01, 0)), every)
    e = replace(e, checked=checked)
    assert strengths(e).tolist() == [0, 1, -0.5, shown, 0]
    film = next(reason for reason in reasons(e, 3) if reason.text == "film")
    assert (film.colour, film.remark) == (FOR if shown else NEUTRAL, "hardly matters alone")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(0.5, 0.4, "50.0 % → 40.0 %"), (0.9981, 0.9978, "99.81 % → 99.78 %"), (0.99811, 0.99812, "99.8 % (log-odds -1)")],
)
def test_probabilities_have_the_digits_that_tell_them_apart(
    explainer: Explainer, before: float, after: float, told: str
) -> None:
    e = explainer.explain("fine film", "attcat", check=0)
    effects = (replace(effect(e, 1, 1.0, 1), probability=after),)
    checked = replace(e, checked=Checked("delete", "log_odds", True, 1.0, before, effects))
    assert next(reason.change for reason in reasons(checked, 3) if reason.text == "fine") == told


def test_little_is_a_tenth_of_log_odds_or_of_the_largest_effect() -> None:
    assert directions([0.0999, -0.0999, 0.1, -5.0], "log_odds") == [0, 0, 1, -1]
    assert directions([0.0999, -0.0999, 0.1, -0.5], "output") == [1, -1, 1, -1]
    assert directions([0.01, 0.2, -4.0], "output") == [0, 0, -1]
    assert directions([0.0, 0.0], "output") == [0, 0]


def test_an_order_is_drawn_as_an_order(explainer: Explainer) -> None:
    e = explainer.explain("not a bad film", "stepwise", steps=4)
    drawn = e.for_people()
    assert (drawn.ranks, drawn.signed) == (True, False)
    assert [word.text for word in drawn.top(9)] == [word.text for word in sorted(e.words(), key=lambda w: -w.score)]
    assert e.checked is not None
    assert [effect.score for effect in e.checked.effects] == [word.score for word in drawn.top(3)]
    assert all(e.checked.agrees(effect) is None for effect in e.checked.effects)


# Other tasks: what is left is run literally, token by token


def left_of(explainer: Explainer, e: Explanation, *texts: str, gone: tuple[int, ...]) -> tuple[Any, dict[int, int]]:
    """What the model returns without some tokens, and where each of the others stands then."""
    subject = explainer.subject
    given = subject.tokenizer(*texts, return_tensors="pt")
    kept = [place for place in range(len(e.units)) if place not in gone]
    with torch.no_grad():
        output = subject.model(**{name: tensor[:, kept] for name, tensor in given.items()})
    return output, {old: new for new, old in enumerate(kept)}


def odds(share: float) -> float:
    return float(np.log(share) - np.log1p(-share))


@pytest.mark.parametrize(("task", "kind"), token_outputs.EACH)
def test_what_is_said_at_a_token_is_checked_there(task: str, kind: str) -> None:
    explainer = token_outputs.explainer(task, kind)
    for text in token_outputs.texts(task, kind):
        e = explainer.explain(text, "input_x_gradient", **token_outputs.ASKED[task], check=2)
        assert e.checked is not None
        assert e.target.place is not None
        for one in e.checked.effects:
            output, places = left_of(explainer, e, text, gone=one.units)
            share = float(output.logits[0, places[e.target.place.token]].softmax(-1)[e.target.index])
            assert one.probability == pytest.approx(share, abs=1e-9)
            assert one.effect == pytest.approx(odds(e.checked.probability or 0) - odds(share), abs=1e-6)
            assert e.target.place.token not in one.units, "the token where it is said stays"


def test_answers_are_checked_by_the_probability_of_the_same_tokens() -> None:
    explainer = Explainer(questions.answering(), questions.tokenizer())
    e = explainer.explain(question=questions.QUESTION, context=questions.CONTEXT)
    assert e.checked is not None
    assert e.target.span is not None
    assert e.checked.probability == pytest.approx(e.prediction.probability)
    assert len(e.checked.effects) == 3
    for one in e.checked.effects:
        output, places = left_of(explainer, e, questions.QUESTION, questions.CONTEXT, gone=one.units)
        start, end = (places[token] for token in e.target.span.tokens)
        share = float(output.start_logits[0].softmax(-1)[start] * output.end_logits[0].softmax(-1)[end])
        assert one.probability == pytest.approx(share, abs=1e-9)
        assert one.effect == pytest.approx(odds(e.checked.probability or 0) - odds(share), abs=1e-6)


def test_a_score_is_checked_by_its_value() -> None:
    explainer = choosing.scorer()
    e = explainer.explain(choosing.TEXT, "attcat")
    assert e.checked is not None
    assert (e.checked.measure, e.checked.probability) == ("output", None)
    for one in e.checked.effects:
        output, _ = left_of(explainer, e, choosing.TEXT, gone=one.units)
        assert one.output == pytest.approx(float(output.logits), rel=1e-5)
        assert one.effect == pytest.approx(e.checked.output - one.output)
    assert f"{e.checked.output:.4g} → {e.checked.effects[0].output:.4g}" in str(e)
    assert "output without it" in str(e)


def test_what_all_words_do_together_is_no_measure_of_each(explainer: Explainer) -> None:
    e = explainer.explain("fine film", "attcat", check=0)
    whole = Outcome(10.0)
    alone = _effects(e, [("fine", [1]), ("film", [2])], whole, [Outcome(9.5), Outcome(9.0)])
    together = _effects(e, [("fine, film", [1, 2])], whole, [Outcome(-50.0)])
    assert [one.direction for one in alone] == [1, 1]
    assert [(one.effect, one.direction) for one in together] == [(60.0, 1)]


def test_a_choice_is_checked_by_its_own_logit() -> None:
    explainer = choosing.chooser()
    e = explainer.explain(choosing.TEXT, "attcat", choices=choosing.CHOICES)
    assert e.checked is not None
    assert (e.checked.measure, len(e.checked.effects)) == ("output", 3)
    two = explainer.explain(choosing.TEXT, "attcat", choices=choosing.CHOICES, versus="runner_up")
    assert two.checked is None, "the words of two choices stand in two rows"


def test_independent_labels_are_checked_by_their_own_odds() -> None:
    explainer = Explainer(cases.subject("bert", labels=3, problem="multi_label_classification"))
    e = explainer.explain(choosing.TEXT, "attcat", check=1)
    assert e.checked is not None
    (one,) = e.checked.effects
    output, _ = left_of(explainer, e, choosing.TEXT, gone=one.units)
    assert one.effect == pytest.approx(
        e.prediction.logits[e.target.index or 0] - float(output.logits[0, e.target.index]), abs=1e-4
    )


def test_both_sides_of_a_similarity_are_checked() -> None:
    e = Explainer(dual.subject("clip")).explain(dual.photo(), text="a photo of a cat")
    assert e.checked is not None
    regions = [one for one in e.checked.effects if e.units[one.units[0]].box is not None]
    words = [one for one in e.checked.effects if e.units[one.units[0]].box is None]
    assert len(regions) == len(words) == 3
    assert all(e.units[one.units[0]].text == one.text for one in words)


def test_a_sure_answer_has_odds_still() -> None:
    logits = torch.tensor([[80.0, 0.0, 0.0], [0.0, 90.0, 0.0]])
    assert log_odds_of(logits, torch.tensor([0, 0])).tolist() == pytest.approx([80 - np.log(2), -90])
