"""Trust in answers, labels of words, masked words and next tokens: a literal re-derivation, and where it refuses."""

import dataclasses
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whyformer
from tests.helpers import questions
from tests.helpers.cases import subject
from tests.helpers.token_outputs import ASKED, EACH, explainer, texts
from whyformer import BadInput, Explainer, Explanation, Trust, UnsupportedModel
from whyformer.inputs.units import join_words


@cache
def answering(seed: int = 10) -> Explainer:
    return Explainer(questions.answering(seed), questions.tokenizer())


def answer(method: str = "rollout", **options: Any) -> Explanation:
    """Of a context in which the answer stands in the middle."""
    return answering().explain(question=questions.QUESTION, context=questions.CONTEXT, method=method, **options)


class Literal:
    """The probability of an output, from the tokenizer's own numbers, one input at a time."""

    def __init__(self, of: Explainer, e: Explanation, chosen: tuple[int, ...]) -> None:
        self.model, self.chosen = of.subject.model, chosen
        self.inputs = dict(of.subject.tokenizer(*e.texts, return_tensors="pt"))
        if "token_type_ids" in self.inputs and "bert" not in type(self.model).__name__.lower():
            del self.inputs["token_type_ids"]

    def probability(self, deleted: Sequence[int]) -> float:
        kept = [place for place in range(self.inputs["input_ids"].shape[1]) if place not in deleted]
        with torch.no_grad():
            output = self.model(**{name: tensor[:, kept] for name, tensor in self.inputs.items()})
        if hasattr(output, "start_logits"):
            ends = [kept.index(place) for place in self.chosen]
            both = [output.start_logits[0].softmax(-1), output.end_logits[0].softmax(-1)]
            return math.prod(float(shares[place]) for shares, place in zip(both, ends, strict=True))
        index, place = self.chosen
        return float(output.logits[0, kept.index(place)].softmax(-1)[index])

    def aopc(self, order: Sequence[Sequence[int]]) -> float:
        drops = []
        for tenth in range(11):
            count = math.floor(tenth * len(order) / 10 + 0.5)
            drops.append(self.probability([]) - self.probability([p for unit in order[:count] for p in unit]))
        return sum(drops) / 11

    def check(self, found: Trust, units: Sequence[Sequence[int]], scores: Sequence[float]) -> None:
        def ranked(of_each: Sequence[float]) -> list[Sequence[int]]:
            return [units[n] for n in sorted(range(len(units)), key=lambda n: -of_each[n])]

        assert found.units == len(units)
        assert found.aopc == pytest.approx(self.aopc(ranked(scores)), abs=1e-9)
        for seed in (0, 7):
            at_random = whyformer.attribute(self.model, self.inputs, "random", target=self.chosen, seed=seed)[
                0
            ].tolist()
            expected = self.aopc(ranked([at_random[unit[0]] for unit in units]))
            assert found.random[seed] == pytest.approx(expected, abs=1e-9)
        assert (len(found.random), found.ceiling, found.share) == (20, None, None)


@pytest.mark.parametrize("target", [None, "Denver Broncos"])
def test_answers_by_hand(target: str | None) -> None:
    e = answer(target=target)
    assert e.target.span is not None
    start, end = e.target.span.tokens
    literal = Literal(answering(), e, (start, end))
    places = [p for p, u in enumerate(e.units) if not u.special and not start <= p <= end]
    found = e.trust()
    literal.check(found, [[p] for p in places], [e.scores[p] for p in places])
    assert found.output == "answer"
    assert f'the probability of "{e.target.name}"' in found.sentence.replace("\n", " ")
    assert "the best order is searched for classes alone" in found.sentence


def test_all_of_an_answer_stays() -> None:
    e = answer(target="Denver Broncos")
    assert e.target.span is not None
    start, end = e.target.span.tokens
    assert end - start > 1, "there is something between its ends"
    assert e.trust().units == sum(not u.special for u in e.units) - (end - start + 1)


def test_words_are_deleted_together() -> None:
    e = answer(target="Denver Broncos")
    assert e.target.span is not None
    start, end = e.target.span.tokens
    words = [(n, places) for n, (_, places) in enumerate(join_words(e.units, e.texts))]
    words = [(n, places) for n, places in words if not set(places) & set(range(start, end + 1))]
    merged = e.by_word()
    found = merged.trust()
    Literal(answering(), e, (start, end)).check(found, [p for _, p in words], [merged.scores[n] for n, _ in words])
    assert found.kind == "word"


@pytest.mark.parametrize(("task", "kind"), EACH)
def test_outputs_at_a_token_by_hand(task: str, kind: str) -> None:
    of = explainer(task, kind)
    e = of.explain(texts(task, kind)[2], "random", seed=5, **ASKED[task])
    assert e.target.place is not None
    said_at = e.target.place.token
    literal = Literal(of, e, (e.target.index or 0, said_at))
    places = [p for p, u in enumerate(e.units) if not u.special and p != said_at]
    found = e.trust()
    literal.check(found, [[p] for p in places], [e.scores[p] for p in places])
    assert (found.output, found.target) == ("token", e.target.title)


def test_explanations_of_one_answer_share_the_random_orders() -> None:
    found = answering().compare(
        question=questions.QUESTION, context=questions.CONTEXT, methods=["rollout", "raw_attention"]
    )
    first, second = answering().trust(found)
    assert first.random == second.random
    assert first.aopc != second.aopc
    assert first.evaluations == second.evaluations
    other = answer(target="Broncos").trust()
    assert other.random != first.random or found[0].target.name == "Broncos"


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    e = answer()
    found = e.trust()
    again = Explanation.load(e.save(tmp_path / "e.json"))
    assert again.trust() == found
    assert again.to_dict()["trust"]["output"] == "answer"
    older = {**e.to_dict(), "trust": {n: v for n, v in e.to_dict()["trust"].items() if n != "output"}}
    assert Explanation.from_dict(older).trust().output == "class"
    again = Explanation.from_dict({n: v for n, v in e.to_dict().items() if n != "trust"})
    assert again.trust(answering()).aopc == pytest.approx(found.aopc, abs=1e-9)


def test_refusals() -> None:
    e = answer()
    sure = dataclasses.replace(e, prediction=dataclasses.replace(e.prediction, probability=0.99))
    with pytest.raises(BadInput, match="not the model that was explained"):
        sure.trust()
    with pytest.raises(UnsupportedModel, match="of an answer; BertForSequenceClassification gives none"):
        dataclasses.replace(e).trust(Explainer(subject()))
    with pytest.raises(BadInput, match=r"explain .* without versus"):
        answer(versus="runner_up").trust()
    with pytest.raises(BadInput, match=r"found shape .*, \d+ not finite"):
        dataclasses.replace(e, scores=e.scores * np.nan).trust()
    long = answering().explain(question="Who won?", context=questions.LONG * 4, method="rollout")
    assert "window" in long.diagnostics
    with pytest.raises(BadInput, match="is of one window of a long one"):
        long.trust()
    of = explainer("next_token", "gpt2")
    with pytest.raises(BadInput, match="there is nothing beside it"):
        of.explain("a", "rollout").trust()
