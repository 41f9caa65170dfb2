"""Trust in one explanation: a literal re-derivation, what it says, in files, on the screen, and where it refuses."""

import dataclasses
import io
import itertools
import json
import math
import pickle
import random
import re
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import families
from tests.helpers.cases import KINDS, PAIR, TEXTS, gpt2, subject, wordpiece
from tests.helpers.evaluated import alike
from whyformer import BadInput, Comparison, Explainer, Explanation, TruncationWarning, Trust, UnsupportedModel
from whyformer.cli import main
from whyformer.explain.trust import trust_of
from whyformer.inputs.units import Unit
from whyformer.models.load import Subject
from whyformer.perturb import ORDERS
from whyformer.progress import counting, listening, report
from whyformer.results.trust import NOTHING
from whyformer.show.layout import gauge, trust_numbers
from whyformer.tasks.targets import Label
from whyformer.testing import _differences, state

TEXT = "a gorgeous, witty film that didn't once bore me"
LONG = " ".join(["the film is a fine film and the actors like it"] * 6)
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def sentiment() -> Explainer:
    return Explainer.load("sentiment")


def tiny(kind: str = "bert", **options: Any) -> Explainer:
    return Explainer(subject(kind, **options))


# A literal re-derivation: one input at a time, tokens deleted from the tokenizer's own numbers.


class Literal:
    """What a model says of a text without some of its tokens."""

    def __init__(self, own: Subject, text: Any, target: int) -> None:
        self.own, self.target = own, target
        self.known: dict[frozenset[int], float] = {}
        texts = (text,) if isinstance(text, str) else text
        self.inputs = own.tokenizer(*texts, return_tensors="pt", return_special_tokens_mask=True)
        self.special = self.inputs.pop("special_tokens_mask")[0].tolist()
        if "bert" not in type(own.model).__name__.lower():
            self.inputs.pop("token_type_ids", None)
        self.offsets = own.tokenizer(*texts, return_offsets_mapping=True)["offset_mapping"]

    @property
    def rankable(self) -> list[int]:
        return [p for p, special in enumerate(self.special) if not special]

    def probability(self, deleted: Sequence[int]) -> float:
        if frozenset(deleted) not in self.known:
            self.known[frozenset(deleted)] = self.run(deleted)
        return self.known[frozenset(deleted)]

    def run(self, deleted: Sequence[int]) -> float:
        kept = [p for p in range(len(self.special)) if p not in deleted]
        inputs = {name: tensor[:, kept] for name, tensor in self.inputs.items()}
        if not kept:
            inputs = {
                "input_ids": torch.tensor([[self.own.tokenizer.bos_token_id]]),
                "attention_mask": torch.ones(1, 1),
            }
        with torch.no_grad():
            logits = self.own.model(**inputs).logits[0].double()
        return float((logits - logits.max()).exp()[self.target] / (logits - logits.max()).exp().sum())

    def aopc(self, order: Sequence[Sequence[int]]) -> float:
        """Of units in the order of their deletion, each given by the positions of its tokens."""
        drops = []
        for tenth in range(11):
            count = math.floor(tenth * len(order) / 10 + 0.5)
            gone = [position for unit in order[:count] for position in unit]
            drops.append(self.probability([]) - self.probability(gone))
        return sum(drops) / 11

    def greedy(self, units: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        left, order = list(units), []
        while left:
            gone = [position for unit in order for position in unit]
            found = [self.probability([*gone, *unit]) for unit in left]
            order.append(left.pop(found.index(min(found))))
        return order

    def at_random(self, seed: int) -> list[float]:
        return whyformer.attribute(self.own.model, dict(self.inputs), "random", seed=seed)[0].tolist()

    def trust(self, units: Sequence[Sequence[int]], scores: Sequence[float]) -> tuple[float, list[float], float]:
        """The AOPC by these scores, by 20 random ones, and of the greedy order."""
        by_chance = []
        for seed in range(20):
            at_random = self.at_random(seed)
            by_chance.append(self.aopc(self.ranked(units, [at_random[unit[0]] for unit in units])))
        return self.aopc(self.ranked(units, scores)), by_chance, self.aopc(self.greedy(units))

    @staticmethod
    def ranked(units: Sequence[Sequence[int]], scores: Sequence[float]) -> list[Sequence[int]]:
        left, order = list(range(len(units))), []
        while left:
            best = max(left, key=lambda n: (scores[n], -n))
            order.append(units[best])
            left.remove(best)
        return order


def assert_same(found: Trust, expected: tuple[float, list[float], float | None], within: float) -> None:
    assert found.aopc == pytest.approx(expected[0], abs=within)
    assert list(found.random) == pytest.approx(expected[1], abs=within)
    assert found.ceiling == pytest.approx(expected[2], abs=within)


def measured(e: Explanation) -> tuple[float, list[float], float | None]:
    return e.trust().aopc, list(e.trust().random), e.trust().ceiling


def tokens_of(e: Explanation, literal: Literal) -> tuple[list[list[int]], list[float]]:
    return [[p] for p in literal.rankable], [e.scores[p] for p in literal.rankable]


@every_kind
@pytest.mark.parametrize("text", [TEXTS[0], PAIR], ids=["text", "pair"])
def test_trust_is_what_loops_find(kind: str, text: Any) -> None:
    target = 2 if kind == "bert" else 0
    e = tiny(kind).explain(text, "attcat", target=target, states="inputs")
    literal = Literal(subject(kind), text, target)
    assert_same(e.trust(), literal.trust(*tokens_of(e, literal)), 1e-9)
    assert (e.trust().units, e.trust().kind) == (len(literal.rankable), "token")


@pytest.mark.long
def test_trust_of_the_bundled_model_is_what_loops_find(sentiment: Explainer) -> None:
    e = sentiment.explain("it is not a bad film", "rollout", target="NEGATIVE")
    literal = Literal(sentiment.subject, "it is not a bad film", 0)
    assert_same(e.trust(), literal.trust(*tokens_of(e, literal)), 1e-5)


@pytest.mark.parametrize("combine", ["sum", "max"])
def test_words_are_ranked_and_deleted_whole(combine: Any) -> None:
    text = "the actors acting in it, and the film"
    e = tiny().explain(text, "input_x_gradient", target=1).by_word(combine)
    literal = Literal(subject(), text, 1)
    spans = [match.span() for match in re.finditer(r"\w+|,", text)]
    units = [[p for p in literal.rankable if a <= literal.offsets[p][0] < b] for a, b in spans]
    assert [len(unit) for unit in units if len(unit) > 1]
    reduce = sum if combine == "sum" else max
    tokens = tiny().explain(text, "input_x_gradient", target=1).scores
    assert_same(e.trust(), literal.trust(units, [reduce(tokens[p] for p in unit) for unit in units]), 1e-9)
    assert (e.trust().units, e.trust().kind) == (len(spans), "word")


def test_multi_label_models_are_followed_by_their_own_probability() -> None:
    own = subject("bert", 3, "multi_label_classification")
    e = Explainer(own).explain(TEXTS[1], "attcat", target=2)
    literal = Literal(own, TEXTS[1], 2)
    literal.run = lambda gone: float(  # type: ignore[assignment, method-assign]
        own.model(**{k: t[:, [p for p in range(t.shape[1]) if p not in gone]] for k, t in literal.inputs.items()})
        .logits[0, 2]
        .sigmoid()
        .detach()
    )
    assert_same(e.trust(), literal.trust(*tokens_of(e, literal)), 1e-9)


# What it ranks by


def test_own_scores_ties_and_special_tokens() -> None:
    e = tiny().explain(TEXTS[0], "attcat")
    special = np.array([unit.special for unit in e.units])
    louder = dataclasses.replace(e, scores=np.where(special, 1e9, e.scores))
    assert alike(louder.trust(), e.trust())
    ranks = np.argsort(np.argsort(e.scores))
    assert alike(dataclasses.replace(e, scores=ranks.astype(float)).trust(), e.trust())
    flat = dataclasses.replace(e, scores=np.zeros(len(e.units)))
    falling = dataclasses.replace(e, scores=-np.arange(len(e.units), dtype=float))
    assert alike(flat.trust(), falling.trust())
    assert not alike(flat.trust(), e.trust())


def test_the_best_order_of_all_beats_chance_and_its_reverse_is_worse() -> None:
    e = tiny().explain("a bad film", "attcat")
    literal = Literal(subject(), "a bad film", e.target.index or 0)
    found = {}
    for order in itertools.permutations(literal.rankable):
        scores = np.zeros(len(e.units))
        for rank, position in enumerate(order):
            scores[position] = -rank
        found[order] = dataclasses.replace(e, scores=scores).trust()
        assert found[order].aopc == pytest.approx(literal.aopc([[p] for p in order]), abs=1e-9)
    best = max(found, key=lambda order: found[order].aopc)
    worst = min(found, key=lambda order: found[order].aopc)
    assert found[best].aopc >= (found[best].ceiling or 0) - 1e-12
    assert found[best].percentile > 50 > found[worst].percentile


def test_a_text_of_one_unit_leaves_nothing_to_find() -> None:
    found = tiny().explain("film").trust()
    assert set(found.random) == {found.aopc} == {found.ceiling}
    assert (found.percentile, found.share) == (50, None)


# Together, alone, again


@pytest.mark.long
def test_it_is_the_same_again_alone_and_beside_others() -> None:
    explainer = tiny()
    texts = [*TEXTS[:2], PAIR, LONG]
    made = [explainer.explain(t, m, target=c) for t in texts for m, c in (("attcat", 0), ("rollout", 0), ("attcat", 2))]
    made += [e.by_word() for e in made]  # type: ignore[attr-defined]
    alone = [dataclasses.replace(e).trust() for e in made]  # type: ignore[attr-defined]
    assert alike(alone[::9], [dataclasses.replace(e).trust() for e in made[::9]])  # type: ignore[attr-defined]
    random.Random(3).shuffle(made_in_any_order := list(enumerate(made)))
    found = trust_of([e for _, e in made_in_any_order])
    for (number, e), together in zip(made_in_any_order, found, strict=True):
        assert e.trusted is together  # type: ignore[attr-defined]
        assert together.aopc == pytest.approx(alone[number].aopc, abs=1e-9)
        assert together.random == pytest.approx(alone[number].random, abs=1e-9)
        assert together.ceiling == pytest.approx(alone[number].ceiling, abs=1e-9)
        assert together.sentence == alone[number].sentence
    assert {t.ceiling is None for t in found} == {True, False}


@pytest.mark.long
def test_explanations_of_one_input_share_the_random_orders_and_the_search(sentiment: Explainer) -> None:
    found = sentiment.compare("it is not a bad film", ["attcat", "rollout", "saliency"])
    alone = [dataclasses.replace(e).trust() for e in found]
    together = sentiment.trust(found)
    assert [e.trusted for e in found] == together
    assert len({(t.random, t.ceiling) for t in together}) == 1
    assert len({t.aopc for t in together}) == 3
    (cost,) = {t.evaluations for t in together}
    assert cost <= max(t.evaluations for t in alone) + 2 * 10
    assert cost < sum(t.evaluations for t in alone) / 2


def test_equal_inputs_are_run_once(sentiment: Explainer) -> None:
    rows: list[tuple[int, ...]] = []
    model = sentiment.subject.model

    def note(module: Any, arguments: Any, given: dict[str, Any]) -> None:
        mask = given["attention_mask"].bool()
        rows.extend(tuple(ids[kept].tolist()) for ids, kept in zip(given["input_ids"], mask, strict=True))

    e = sentiment.explain("a good film, a good film")
    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        found = e.trust()
        assert e.trust() is found
    finally:
        hook.remove()
    whole = max(rows, key=len)
    assert rows.count(whole) == 2  # once to know how the model is built
    assert len(rows) - 1 == len(set(rows)) == found.evaluations


@pytest.mark.parametrize("train", [False, True])
def test_the_model_is_given_back(train: bool) -> None:
    model = families._build.__wrapped__("bert", torch.float64, "sdpa")
    tokenizer = wordpiece()
    model.resize_token_embeddings(len(tokenizer))
    explainer = Explainer(model.train(train), tokenizer)
    e = explainer.explain(TEXTS[0])
    before = state(model)
    e.trust()
    with pytest.raises(BadInput):
        dataclasses.replace(e, scores=e.scores * np.nan).trust()
    assert not list(_differences(before, state(model)))
    assert model.training is train


# Two numbers and a sentence


def made(aopc: float, chance: Sequence[float], ceiling: float | None = 0.8, **more: Any) -> Trust:
    return Trust(aopc, tuple(chance), ceiling, **{"target": "POSITIVE", "units": 9, **more})


def test_percentile_and_share_by_hand() -> None:
    found = made(0.5, [0.1, 0.2, 0.5, 0.6], 0.85)
    assert found.chance == pytest.approx(0.35)
    assert found.percentile == 100 * (2 + 0.5) / 4
    assert found.share == pytest.approx(0.3)
    assert made(0.1, [0.3] * 20, 0.5).share == pytest.approx(-1)
    assert made(0.9, [0.3] * 20, 0.5).share == pytest.approx(3)
    assert (made(0.1, [0.3] * 20).percentile, made(0.9, [0.3] * 20).percentile) == (0, 100)
    assert made(0.5, [0.25] * 20, 0.25 + NOTHING + 1e-9).share is not None
    assert made(0.5, [0.25] * 20, 0.25 + NOTHING - 1e-9).share is None
    assert made(0.5, [0.25] * 20, None).share is None


TWENTY = [n / 100 for n in range(20)]
LOWERS = "Deleting the highest-ranked tokens first lowers the probability of POSITIVE "
RISES = "Deleting the highest-ranked tokens first does not lower the probability of POSITIVE on average, "
NO_ROOM = "this text leaves nothing to find, as even the best order found does hardly better than a random one."
UNKNOWN = (
    "; how much more could be reached is not known, because only texts of at most 64 tokens are searched for the best "
    "order, and this one has 131."
)
WAY = "of the way from the average random order to the best order found."


@pytest.mark.parametrize(
    ("trust", "sentence"),
    [
        (made(0.6, [0.1] * 20, 0.8), f"{LOWERS}faster than all 20 random orders, and gets 71 % {WAY}"),
        (made(0.165, TWENTY, 0.295), f"{LOWERS}faster than 17 of 20 random orders, and gets 35 % {WAY}"),
        (made(0.8, [0.1] * 20, 0.8), f"{LOWERS}faster than all 20 random orders, and does as well as the best order "
         "that a search found."),
        (made(0.9, [0.1] * 20, 0.8), f"{LOWERS}faster than all 20 random orders, and does better than the best order "
         "that a search found."),
        (made(0.05, [0.1] * 20), f"{LOWERS}more slowly than all 20 random orders: this ranking is worse than chance."),
        (made(0.045, TWENTY), f"{LOWERS}more slowly than 15 of 20 random orders: this ranking is no better "
         "than chance."),
        (made(0.1, [0.05] * 11 + [0.9] * 9, 0.95), f"{LOWERS}faster than 11 of 20 random orders, yet does worse than "
         "their average."),
        (made(0.1, [0.0] * 9 + [0.11] * 11), f"{LOWERS}more slowly than 11 of 20 random orders, yet gets 5 % {WAY}"),
        (made(0.1, [0.1] * 20), f"{LOWERS}as fast as the middle random order, and gets 0 % {WAY}"),
        (made(0.3, [0.1] * 20, None, units=131), f"{LOWERS}faster than all 20 random orders{UNKNOWN}"),
        (made(0.02, [0.1] * 20, None, units=131), f"{LOWERS}more slowly than all 20 random orders{UNKNOWN}"),
        (made(0.11, [0.1] * 20, 0.11), f"{LOWERS}faster than all 20 random orders, but {NO_ROOM}"),
        (made(0.02, [0.1] * 20, 0.11), f"{LOWERS}more slowly than all 20 random orders; {NO_ROOM}"),
        (made(0.1, [0.1] * 20, 0.1), f"{LOWERS}as fast as the middle random order; {NO_ROOM}"),
        (made(-0.1, [-0.3] * 20, 0.1), f"{RISES}but leaves it lower than all 20 random orders do, and gets 50 % {WAY}"),
        (made(-0.1, [0.3] * 20), f"{RISES}and leaves it higher than all 20 random orders do: this ranking is worse "
         "than chance."),
        (made(0.0, [0.0] * 20, 0.0), f"{RISES}and neither does the middle random order; {NO_ROOM}"),
    ],
)  # fmt: skip
def test_the_sentence(trust: Trust, sentence: str) -> None:
    assert trust.sentence == sentence
    words = dataclasses.replace(trust, kind="word", target="NEGATIVE").sentence
    assert words == sentence.replace("tokens", "words").replace("POSITIVE", "NEGATIVE")


@pytest.mark.parametrize(("units", "orders"), [(1, 20), (3, 20), (4, 20), (5, 20), (5, 200), (300, 20)])
def test_a_text_is_too_short_if_the_best_order_is_likely_among_the_random_ones(units: int, orders: int) -> None:
    best = 1 / math.prod(range(1, min(units, 30) + 1))
    likely = 1 - math.prod(1 - best for _ in range(orders)) > 0.5
    assert made(0.5, [0.1] * orders, units=units).too_short == likely
    assert likely == ((units, orders) not in [(5, 20), (300, 20)])


def test_a_short_text_is_not_judged(sentiment: Explainer) -> None:
    e = sentiment.explain("a gorgeous film")
    found = e.trust()
    sentence = (
        "A text of 3 tokens is too short to judge: there are only 6 orders to delete them in, and 20 random ones are "
        "likely to have the best among them."
    )
    assert (found.too_short, found.sentence, found.to_dict()["too_short"]) == (True, sentence, True)
    assert "  too short to judge" in str(e)
    assert "beats" not in str(e)
    assert "too short to judge" in e._repr_html_()
    assert made(0.5, [0.1] * 20, units=1).sentence.startswith("A text of 1 token is too short to judge: there is only ")
    assert made(0.5, [0.1] * 20, units=2, kind="patch").sentence.startswith("An image of 2 patches is too short")
    assert not sentiment.explain(TEXT).trust().too_short


@pytest.mark.parametrize(
    ("trust", "numbers"),
    [
        (made(0.6, [0.1] * 20, 0.8), "beats 20 of 20 random orders · 71 % of the way to the best order found"),
        (made(0.165, TWENTY, 0.295), "beats 17 of 20 random orders · 35 % of the way to the best order found"),
        (made(0.0, [0.1] * 20, 0.8), "beats 0 of 20 random orders · below their average"),
        (made(0.1, [0.1] * 20, 0.1), "beats 0 of 20 random orders · nothing to find"),
        (made(0.3, [0.1] * 20, None, units=131), "beats 20 of 20 random orders · too long to be searched"),
        (made(0.3, [0.1] * 20, None, output="answer"), "beats 20 of 20 random orders · best order not searched"),
    ],
)
def test_the_numbers(trust: Trust, numbers: str) -> None:
    assert trust_numbers(trust) == numbers


def test_trust_shows_itself(sentiment: Explainer, tmp_path: Path) -> None:
    found = sentiment.explain(TEXT).trust()
    assert repr(found) == f"<Trust: {found.sentence}>"
    assert found.sentence in flat(str(found))
    assert "◆ this order" in str(found)
    shown = found._repr_html_()
    assert found.sentence in unescape(shown)
    assert shown.count('role="img"') == 1
    assert found.save(tmp_path / "t.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(str(found.render("json")))["share"] == found.share
    hostile = made(0.5, [0.0, 0.4], 1.0, target='<img src="x">')
    assert "<img" not in hostile._repr_html_()


@pytest.mark.long
def test_a_long_text_has_no_ceiling(sentiment: Explainer) -> None:
    e = sentiment.explain(LONG)
    found = e.trust()
    assert (found.ceiling, found.share) == (None, None)
    assert found.units == sum(not unit.special for unit in e.units) > 64
    assert len(found.random) == ORDERS == 20
    assert f"this one has {found.units}." in found.sentence
    assert "too long to be searched" in str(e)


def test_a_text_that_was_cut_warns_once() -> None:
    with pytest.warns(TruncationWarning):
        e = tiny().explain(f"{LONG} {LONG}", "attcat")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert e.trust().units == sum(not unit.special for unit in e.units)


# Files, copies


def test_it_is_saved_and_loaded(sentiment: Explainer, tmp_path: Path) -> None:
    e = sentiment.explain(TEXT)
    assert "trust" not in e.to_dict()
    assert Explanation.load(e.save(tmp_path / "before.json")).trusted is None
    found = e.trust()
    data = json.loads(e.save(tmp_path / "after.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)["trust"]
    assert (data["percentile"], data["share"], data["sentence"]) == (found.percentile, found.share, found.sentence)
    again = Explanation.load(tmp_path / "after.json")
    assert again.trust() == found
    assert again.trust().evaluations == found.evaluations
    assert again.to_dict() == e.to_dict()
    del data["random"]
    with pytest.raises(BadInput, match="damaged"):
        Explanation.from_dict({**e.to_dict(), "trust": data})


def test_a_comparison_keeps_the_trust_of_each(sentiment: Explainer, tmp_path: Path) -> None:
    found = sentiment.compare(TEXT, ["attcat", "rollout"])
    sentiment.trust(found)
    again = Comparison.load(found.save(tmp_path / "c.json"))
    assert [e.trust() for e in again] == [e.trust() for e in found]


def test_a_loaded_explanation_needs_the_explainer(sentiment: Explainer, tmp_path: Path) -> None:
    e = sentiment.explain("not a bad film")
    loaded = Explanation.load(e.save(tmp_path / "e.json"))
    with pytest.raises(BadInput, match=r"call e\.trust\(explainer\) with the Explainer of the model"):
        loaded.trust()
    assert_same(loaded.trust(sentiment), measured(e), 1e-5)
    by_word = Explanation.load(tmp_path / "e.json").by_word()
    assert_same(by_word.trust(sentiment.subject), measured(e.by_word()), 1e-5)
    with pytest.raises(BadInput, match="needs an Explainer or its subject; found 'sentiment'"):
        Explanation.load(tmp_path / "e.json").trust("sentiment")


def test_copies_and_pickles(sentiment: Explainer) -> None:
    e = sentiment.explain(TEXT)
    bare = len(pickle.dumps(e))
    assert bare < 20_000
    e.trust()
    for copied in (dataclasses.replace(e), e.by_word()):
        assert vars(copied)["subject"] is sentiment.subject
        assert copied.trusted is None
    unpickled = pickle.loads(pickle.dumps(e))
    assert len(pickle.dumps(e)) < bare + 2_000
    assert unpickled.trust() == e.trust()
    with pytest.raises(BadInput, match="unpickled"):
        dataclasses.replace(unpickled).trust()
    assert "subject" not in {f.name for f in dataclasses.fields(e)} | set(dataclasses.asdict(e)) | set(e.to_dict())
    assert "Subject" not in repr(e)


# Refusals


@cache
def regression() -> Explainer:
    return tiny(labels=1)


def changed(**changes: Callable[[Explanation], Any]) -> Callable[[], Explanation]:
    def change() -> Explanation:
        e = tiny().explain(TEXTS[0], "attcat")
        return dataclasses.replace(e, **{name: make(e) for name, make in changes.items()})

    return change


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: regression().explain(TEXTS[0]), UnsupportedModel, "a regression model gives none"),
        (lambda: tiny().explain(TEXTS[0], target=0, versus=1), BadInput,
         "why LABEL_0 rather than LABEL_1: explain LABEL_0 without versus"),
        (changed(texts=lambda e: ()), BadInput, "has neither"),
        (changed(scores=lambda e: e.scores[1:]), BadInput, r"one finite score for each of \d+; found shape \(\d+,\)"),
        (changed(scores=lambda e: np.full(len(e.units), np.inf)), BadInput, r"found shape .*, \d+ not finite"),
        (changed(units=lambda e: (*e.units[:-1], Unit("other"))), BadInput, "does not cut the text into the 8 units"),
        (changed(texts=lambda e: ("the bad film",)), BadInput, "does not cut the text into the 8 units"),
    ],
)  # fmt: skip
def test_refusals(make: Callable[[], Explanation], error: type[Exception], message: str) -> None:
    e = make()
    with pytest.raises(error, match=message):
        e.trust()
    assert e.trusted is None


def test_another_model_is_refused() -> None:
    e = tiny().explain(TEXTS[0], target=1)
    other = hf.BertForSequenceClassification(subject().model.config).double().eval()
    with pytest.raises(BadInput, match="not the model that was explained"):
        e.trust(Explainer(other, subject().tokenizer))
    with pytest.raises(BadInput, match="not the model that was explained"):
        e.trust(tiny(labels=2))
    with pytest.raises(BadInput, match="does not cut the text"):
        e.trust(tiny("gpt2"))


def test_a_language_model_is_refused() -> None:
    tokenizer = gpt2()
    config = families.CONFIGS["gpt2"]()
    config.vocab_size = len(tokenizer)
    explainer = Explainer(hf.GPT2LMHeadModel(config).double().eval(), tokenizer)
    with pytest.raises(UnsupportedModel, match="GPT2LMHeadModel gives none"):
        tiny("gpt2").explain(TEXTS[0], target=1).trust(explainer)


@pytest.mark.long
def test_a_class_that_was_not_predicted_may_be_explained(sentiment: Explainer) -> None:
    found = sentiment.explain(TEXT, target="NEGATIVE").trust()
    assert "the probability of NEGATIVE" in found.sentence
    assert found != sentiment.explain(TEXT, target="POSITIVE").trust()


# On the screen


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_terminal_and_the_page_say_it(sentiment: Explainer) -> None:
    e = sentiment.explain(TEXT, check=0)
    assert "trust:" not in str(e)
    assert "gauge" not in e._repr_html_().split("</style>")[1]
    found = e.trust()
    assert found.sentence in flat(str(e))
    way = f"{100 * (found.share or 0):.0f} % of the way to the best order found"
    assert f"beats {found.beaten} of 20 random orders · {way}" in str(e)
    page = e._repr_html_()
    assert found.sentence in unescape(page)
    (label,) = re.findall(r'role="img" aria-label="([^"]+)"', page)
    numbers = [f"{min(found.random):.2f}", f"{max(found.random):.2f}", f"{found.chance:.2f}", f"{found.aopc:.2f}"]
    assert all(number in label for number in [*numbers, f"{found.ceiling:.2f}"])
    assert not re.search(r"https?:|url\(|<script|<img", page)


def test_marks_stand_in_their_order_on_the_gauge() -> None:
    explanation = dataclasses.replace(tiny().explain(TEXTS[1], "attcat"))
    object.__setattr__(explanation, "trusted", made(0.5, [0.0, 0.4], 1.0))
    lines = str(explanation).splitlines()
    (line,) = [line.split("  beats")[0].strip() for line in lines if "beats" in line]
    assert line == 8 * "░" + "▓" + 8 * "░" + "───◆" + 18 * "─" + "┃"


def test_the_gauge_has_one_scale_for_all() -> None:
    one, other = made(-0.2, [0.0, 0.2], 0.3), made(0.8, [0.0, 0.2], None)
    assert gauge(one, [one, other]) == ((pytest.approx(0.2), pytest.approx(0.4)), pytest.approx(0.3), 0.5, 0)
    assert gauge(other, [one, other]) == ((pytest.approx(0.2), pytest.approx(0.4)), pytest.approx(0.3), None, 1)
    still = made(0.0, [0.0, 0.0], 0.0)
    assert gauge(still, [still]) == ((0, 0), 0, 0, 0)


def test_labels_are_escaped() -> None:
    e = dataclasses.replace(tiny().explain(TEXTS[1], "attcat"), target=Label(0, '<img src="x">'))
    object.__setattr__(e, "trusted", made(0.5, [0.0, 0.4], 1.0, target='<img src="x">'))
    for page in (e._repr_html_(), Comparison((e, e))._repr_html_()):
        assert "<img" not in page
        assert "of &lt;img src=&quot;x&quot;&gt; falls" in page


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return stopped.value.code, *capsys.readouterr()


@pytest.mark.long
def test_the_command_line(sentiment: Explainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = sentiment.explain(TEXT).trust()
    status, out, _ = run(capsys, "explain", TEXT, "--trust")
    assert status == 0
    assert expected.sentence in flat(out)
    status, out, _ = run(capsys, "explain", TEXT, "--trust", "--words", "--json", "--html", str(tmp_path / "e.html"))
    assert status == 0
    assert json.loads(out)["trust"]["kind"] == "word"
    assert json.loads(out)["trust"]["sentence"] in unescape((tmp_path / "e.html").read_text(encoding="utf-8"))


@pytest.mark.long
def test_the_command_line_with_a_file(sentiment: Explainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["a dull mess", "fine", LONG, "it is not bad"]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    given = ("-m", "sentiment", "--file", str(tmp_path / "texts.txt"), "--batch-size", "3", "--trust", "--json")
    status, out, _ = run(capsys, "explain", *given)
    assert status == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [e["texts"] for e in found] == [[text] for text in texts]
    for data, text in zip(found, texts, strict=True):
        assert data["trust"]["aopc"] == pytest.approx(sentiment.explain(text).trust().aopc, abs=1e-5)
    assert found[2]["trust"]["ceiling"] is None


@pytest.mark.long
def test_the_command_line_compares(sentiment: Explainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "c.html"
    status, out, _ = run(capsys, "compare", TEXT, "--methods", "attcat,rollout", "--trust", "--html", str(page))
    assert status == 0
    assert out.count("beats") == 2
    assert "◆ each method" in out
    assert page.read_text(encoding="utf-8").count('role="img"') == 2
    status, out, _ = run(capsys, "compare", TEXT, "--methods", "attcat,rollout", "--trust", "--json")
    first, second = (json.loads(line)["trust"] for line in out.splitlines())
    assert (first["random"], first["ceiling"]) == (second["random"], second["ceiling"])
    status, out, err = run(capsys, "explain", TEXT, "--trust", "--versus", "NEGATIVE")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "without versus" in err


# Progress


def test_progress_is_told_and_never_goes_back(sentiment: Explainer) -> None:
    told: list[tuple[int, int]] = []
    explanation = sentiment.explain(TEXT)
    with listening(lambda done, total: told.append((done, total))):
        found = trust_of([explanation])
    done = [d for d, _ in told]
    assert done == sorted(done)
    assert done[-1] == found[0].evaluations <= told[-1][1]
    assert len({total for _, total in told}) == 1


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "shown"), [(0.001, False), (0.1, True)])
def test_a_bar_for_slow_jobs_only(seconds: float, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, now = Screen(), itertools.count(0, seconds)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("whyformer.progress.time", SimpleNamespace(monotonic=lambda: next(now)))
    with counting("trust"):
        for done in range(1, 101):
            report(done, 100)
    assert ("trust" in screen.getvalue()) is shown
