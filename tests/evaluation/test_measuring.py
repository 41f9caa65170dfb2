"""Measuring one chunk: re-derived in loops, refused, left out, beside its references, short of memory, and its keys."""

import copy
import functools
import importlib.metadata
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import scipy
import torch

import whyformer
from tests.helpers import cases, evaluated
from tests.helpers.evaluated import Literal, answering, chunk_of, examples, found, measuring, registered, values
from whyformer.datasets import Answer, Example
from whyformer.errors import BadInput, BadOption, NoAttention, UncoveredOperation, UnsupportedModel
from whyformer.evaluation.chunk import measured_chunk
from whyformer.evaluation.examples import batches, item_of
from whyformer.models.load import Subject
from whyformer.models.memory import CPU, LIMITS
from whyformer.prediction import Prediction
from whyformer.results.evaluation import CEILING, CHANCE, Chunk

TEXTS = [*cases.TEXTS, cases.PAIR, "film", "it is all fine, and the acting is not bad"]
SHORT = ["the film", "a bad film", "fine acting", "the film is fine", "film", "the bad film is it", "all is bad"]
LONG = "the film is fine, " * 20  # 100 units
EXACT = 1e-10


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with evaluated.own_registry():
        yield


# Re-derived in loops


@functools.cache
def literal(text: Any, labels: int = 3, problem: str | None = None) -> Literal:
    return Literal(cases.subject(labels=labels, problem=problem), text)


@pytest.fixture(scope="module")
def one_chunk() -> Chunk:
    of = measuring("attcat,rollout,attn_lrp,random(seed=5)", "aopc,log_odds,comprehensiveness,kendall_tau")
    return chunk_of(of, examples(TEXTS))


@pytest.mark.parametrize("name", ["attcat", "rollout", "attn_lrp"])
@pytest.mark.parametrize("metric", ["aopc", "log_odds", "comprehensiveness"])
def test_numbers_are_those_of_loops_over_single_texts(one_chunk: Chunk, name: str, metric: str) -> None:
    for row, text in enumerate(TEXTS):
        own = literal(text)
        expected = getattr(own, metric)(own.order(name))
        assert found(one_chunk)[row, name, metric].value == pytest.approx(expected, abs=EXACT), text


def test_options_of_a_method_are_used(one_chunk: Chunk) -> None:
    for row, text in enumerate(TEXTS):
        own = literal(text)
        expected = own.aopc(own.order("random", seed=5))
        assert found(one_chunk)[row, "random(seed=5)", "aopc"].value == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("name", ["attcat", "attn_lrp"])
def test_kendall_tau_is_that_of_scores_for_each_other_class(one_chunk: Chunk, name: str) -> None:
    for row, text in enumerate(TEXTS):
        own = literal(text)
        ranked = [[own.scores(name, target)[place] for place in own.rankable] for target in range(3)]
        others = [target for target in range(3) if target != own.predicted]
        said = found(one_chunk)[row, name, "kendall_tau"].value
        if len(own.rankable) == 1:
            assert said is None
        else:
            taus = [scipy.stats.kendalltau(ranked[own.predicted], ranked[other]).statistic for other in others]
            assert said == pytest.approx(sum(taus) / 2, abs=EXACT)
    assert (0, "rollout", "kendall_tau") not in found(one_chunk)


def test_a_curve_has_the_numbers_that_were_averaged(one_chunk: Chunk) -> None:
    assert one_chunk.metrics["aopc"]["at"] == [step / 10 for step in range(11)]
    own = literal(TEXTS[2])
    record = found(one_chunk)[2, "attcat", "aopc"]
    order, units = own.order("attcat"), len(own.rankable)
    whole = own.said()[own.predicted]
    for step, said in enumerate(record.curve):
        count = math.floor(step * units / 10 + 0.5)
        assert said == pytest.approx(whole - own.said(order[:count])[own.predicted], abs=EXACT)
    assert record.value == pytest.approx(sum(record.curve) / 11, abs=EXACT)


def test_what_the_model_said_is_kept(one_chunk: Chunk) -> None:
    assert [said["row"] for said in one_chunk.examples] == list(range(len(TEXTS)))
    for said, text in zip(one_chunk.examples, TEXTS, strict=True):
        own = literal(text)
        assert said["units"] == len(own.rankable)
        assert said["predicted"] == own.predicted
        assert said["probability"] == pytest.approx(own.said()[own.predicted], abs=EXACT)
        assert said["gold"] is None


def test_records_come_in_order_of_row_method_and_metric(one_chunk: Chunk) -> None:
    methods = ["attcat", "rollout", "attn_lrp", "random(seed=5)"]
    metrics = ["aopc", "log_odds", "comprehensiveness", "kendall_tau"]
    expected = [
        (row, method, metric)
        for row in range(len(TEXTS))
        for method in methods
        for metric in metrics
        if metric != "kendall_tau" or method in ("attcat", "attn_lrp")
    ]
    assert list(found(one_chunk)) == expected


def test_an_example_does_not_depend_on_the_others(one_chunk: Chunk) -> None:
    of = measuring("attcat,rollout,attn_lrp,random(seed=5)", "aopc,log_odds,comprehensiveness,kendall_tau")
    alone = [chunk_of(of, examples([text], first=row)) for row, text in enumerate(TEXTS)]
    for place, value in values(alone).items():
        assert value == pytest.approx(values(one_chunk)[place], abs=EXACT), place
    assert {r.key for r in found(alone).values()} == {r.key for r in one_chunk.records}
    for row, (said,) in enumerate(chunk.examples for chunk in alone):
        assert said == pytest.approx(one_chunk.examples[row], abs=EXACT)


def test_a_small_budget_of_tokens_gives_the_same(one_chunk: Chunk) -> None:
    chunk = chunk_of(measuring("attcat", "aopc,log_odds", tokens_per_batch=16), examples(TEXTS))
    assert chunk.counts["batches"] > one_chunk.counts["batches"]
    for place, value in values(chunk).items():
        assert value == pytest.approx(values(one_chunk)[place], abs=EXACT)


def test_what_is_asked_twice_is_run_once() -> None:
    one, two = (chunk_of(measuring("attcat", "aopc"), examples(given)).counts for given in (TEXTS, TEXTS * 2))
    assert two["run"] == one["run"] < one["requested"]
    assert two["requested"] == 2 * one["requested"]


# Refused


def test_a_text_that_a_method_refuses_is_refused_alone() -> None:
    def choosy(prediction: Prediction) -> torch.Tensor:
        """Attention, of short texts only."""
        longest = int(prediction.real.sum(1).max())
        if longest > 7:
            raise BadInput(f"{longest} units are too long for this method")
        return whyformer.list_methods()["attcat"](prediction).total

    registered(choosy, class_specific=True)
    chunk = chunk_of(measuring("choosy,attcat", "aopc,kendall_tau"), examples(TEXTS))
    for row, text in enumerate(TEXTS):
        own = literal(text)
        length = own.inputs["input_ids"].shape[1]
        for metric in ("aopc", "kendall_tau"):
            said = found(chunk)[row, "choosy", metric]
            plain = found(chunk)[row, "attcat", metric]
            assert plain.refused is None
            if length > 7:
                assert (said.value, said.curve) == (None, ())
                assert said.refused == f"{length} units are too long for this method"
            else:
                assert said.refused is None
                assert said.value == pytest.approx(plain.value, abs=EXACT)
    assert {r.refused is None for r in chunk.records if r.method == "choosy"} == {True, False}


@pytest.mark.parametrize("kind", [NoAttention, UncoveredOperation, UnsupportedModel])
def test_a_model_that_a_method_refuses_is_refused_for_every_text(
    kind: type[UnsupportedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each text is tried alone, so that what a batch looks like decides nothing."""
    calls = []

    def unable(prediction: Prediction) -> torch.Tensor:
        """No model is good enough."""
        calls.append(len(prediction.padding))
        raise kind("this model has no soul")

    registered(unable)
    monkeypatch.setitem(LIMITS, "cpu", replace(CPU, traced_call=10**6))  # all in one batch
    chunk = chunk_of(measuring("unable,rollout", "aopc,log_odds"), examples(TEXTS))
    refused = [record for record in chunk.records if record.method == "unable"]
    assert [record.refused for record in refused] == ["this model has no soul"] * 2 * len(TEXTS)
    assert {record.value for record in refused} == {None}
    assert calls == [len(TEXTS), *([1] * len(TEXTS))]
    assert all(record.refused is None for record in chunk.records if record.method == "rollout")


def test_a_class_that_a_method_refuses_is_refused_for_the_metrics_that_ask_for_it() -> None:
    def narrow(prediction: Prediction) -> torch.Tensor:
        """As attcat, but never of class 2."""
        if 2 in prediction.target.tolist():
            raise UnsupportedModel("class 2 is beyond me")
        return whyformer.list_methods()["attcat"](prediction).total

    registered(narrow, class_specific=True)
    golds = [row % 3 for row in range(len(TEXTS))]
    metrics = ("aopc", "aopc(target=gold)", "kendall_tau")
    chunk = chunk_of(measuring("narrow,attcat", ",".join(metrics)), examples(TEXTS, golds))
    for row, text in enumerate(TEXTS):
        needed = {"aopc": {literal(text).predicted}, "kendall_tau": {0, 1, 2}}
        needed["aopc(target=gold)"] = {literal(text).predicted, golds[row]}
        for metric in metrics:
            said, plain = (found(chunk)[row, name, metric] for name in ("narrow", "attcat"))
            if 2 in needed[metric]:
                assert (said.value, said.refused) == (None, "class 2 is beyond me")
            else:
                assert said.refused is None
                assert said.value == pytest.approx(plain.value, abs=EXACT)
    said = [found(chunk)[row, "narrow", "aopc(target=gold)"].refused for row in range(len(TEXTS))]  # type: ignore[assignment]
    assert None in said
    assert any(said)


# Ceiling and chance


@functools.cache
def referenced() -> Chunk:
    """Four short texts, a long one, and a short one again beyond the ceiling."""
    of = measuring("attcat,rollout,random", "aopc,log_odds,sufficiency", ceiling=5)
    return chunk_of(of, examples([*SHORT[:4], LONG, SHORT[5]]))


def test_rows_beyond_the_ceiling_have_none() -> None:
    rows = {
        way: {row for row, method, _ in found(referenced()) if method == way} for way in (CEILING, CHANCE, "attcat")
    }
    assert rows == {CEILING: set(range(5)), CHANCE: set(range(5)), "attcat": set(range(6))}


def test_long_texts_have_a_record_without_a_number() -> None:
    for way in (CEILING, CHANCE):
        for metric in ("aopc", "log_odds"):
            record = found(referenced())[4, way, metric]
            assert (record.value, record.curve, record.refused) == (None, (), None)
    assert found(referenced())[4, "attcat", "aopc"].value is not None
    assert literal(LONG).rankable[64:]  # so that this is the reason


def test_only_metrics_that_have_a_ceiling_get_one() -> None:
    metrics = {metric for _, method, metric in found(referenced()) if method in (CEILING, CHANCE)}
    assert metrics == {"aopc", "log_odds"}
    assert (0, "attcat", "sufficiency") in found(referenced())


@pytest.mark.parametrize("metric", ["aopc", "log_odds"])
def test_chance_is_the_mean_of_twenty_random_orders(metric: str) -> None:
    for row, text in enumerate(SHORT[:4]):
        own = literal(text)
        each = [getattr(own, metric)(own.order("random", seed=seed)) for seed in range(20)]
        assert found(referenced())[row, CHANCE, metric].value == pytest.approx(sum(each) / 20, abs=EXACT)
        curve = found(referenced())[row, CHANCE, metric].curve
        assert sum(curve) / 11 == pytest.approx(sum(each) / 20, abs=EXACT)


def test_the_ceiling_is_the_greedy_order_scored() -> None:
    for row, text in enumerate(SHORT[:4]):
        own = literal(text)
        assert found(referenced())[row, CEILING, "aopc"].value == pytest.approx(own.aopc(own.greedy()), abs=EXACT)


def test_no_order_is_better_than_a_wide_search_and_greedy_is_at_most_that() -> None:
    """Every order of up to five units; all counts weigh the same in the AOPC of 1, 2 and 5 units, as in the search."""
    rows = examples([*SHORT, "is is bad actors"])  # the last is one where greed does not pay
    of = measuring("attcat", "aopc", ceiling=100)
    greedy = found(chunk_of(of, rows))
    wide = found(chunk_of(replace(of, settings=replace(of.settings, beam=120)), rows))
    sizes = set()
    for row, example in enumerate(rows):
        own = literal(example.text)
        units = len(own.rankable)
        if units > 5:
            continue
        sizes.add(units)
        best = max(own.aopc(order) for order in itertools.permutations(own.rankable))
        place = (row, CEILING, "aopc")
        assert greedy[place].value <= best + EXACT
        assert wide[place].value <= best + EXACT
        if units in (1, 2, 5):
            assert wide[place].value == pytest.approx(best, abs=EXACT)
        if units <= 2:
            assert greedy[place].value == pytest.approx(best, abs=EXACT)
        assert greedy[place].key != wide[place].key
    assert {1, 2, 5} <= sizes
    assert greedy[len(SHORT), CEILING, "aopc"].value < wide[len(SHORT), CEILING, "aopc"].value - 0.01


def test_the_ceiling_is_seldom_below_a_method() -> None:
    names = ["attcat", "rollout", "attn_lrp", "random", "input_x_gradient"]
    rows = examples(evaluated.texts(12, seed=3, longest=6))
    said = values(chunk_of(measuring(",".join(names), "aopc", ceiling=100), rows))
    below = [
        (row, name)
        for row in range(12)
        for name in names
        if said[row, CEILING, "aopc"] < said[row, name, "aopc"] - EXACT
    ]
    assert len(below) <= 6  # of 60
    means = {name: sum(said[row, name, "aopc"] for row in range(12)) for name in (*names, CEILING, CHANCE)}
    assert means[CEILING] == max(means.values())
    assert means[CHANCE] < means[CEILING]


# What people said


def test_the_gold_class_is_explained_where_that_is_asked_for() -> None:
    golds = [(literal(text).predicted + 1) % 3 for text in SHORT]
    chunk = chunk_of(measuring("attcat", "aopc(target=gold),aopc"), examples(SHORT, golds))
    for row, (text, gold) in enumerate(zip(SHORT, golds, strict=True)):
        own = literal(text)
        said = found(chunk)[row, "attcat", "aopc(target=gold)"].value
        assert said == pytest.approx(own.aopc(own.order("attcat", gold), gold), abs=EXACT)
        assert found(chunk)[row, "attcat", "aopc"].value == pytest.approx(own.aopc(own.order("attcat")), abs=EXACT)
        assert chunk.examples[row]["gold"] == gold


def test_a_missing_label_is_a_bad_row_where_the_gold_class_is_needed() -> None:
    rows = examples(SHORT[:3], [0, None, 2])
    with pytest.raises(BadInput, match=r"row 1 \(counted from 0\): aopc needs the gold label.*on_error='skip'"):
        chunk_of(measuring("attcat", "aopc(target=gold)"), rows)
    chunk = chunk_of(measuring("attcat", "aopc(target=gold)", skip_bad_rows=True), rows)
    assert chunk.skipped == {1: "aopc needs the gold label, and there is none"}
    assert {row for row, _, _ in found(chunk)} == {0, 2}
    assert len(chunk_of(measuring("attcat", "aopc"), rows).records) == 3


def test_a_label_outside_the_models_is_a_bad_row() -> None:
    rows = examples(SHORT[:3], [0, 3, "LABEL_2"])
    with pytest.raises(BadInput, match=r"row 1 \(counted from 0\): label 3 is outside 0 … 2"):
        chunk_of(measuring("attcat", "aopc"), rows)
    chunk = chunk_of(measuring("attcat", "aopc", skip_bad_rows=True), rows)
    assert list(chunk.skipped) == [1]
    assert [said["gold"] for said in chunk.examples] == [0, 2]


def test_short_texts_are_left_out() -> None:
    chunk = chunk_of(measuring("rollout", "aopc", min_tokens=6), examples(SHORT))
    lengths = [literal(text).inputs["input_ids"].shape[1] for text in SHORT]
    left_out = {row: "fewer than 6 tokens" for row, length in enumerate(lengths) if length < 6}
    assert chunk.skipped == left_out
    assert {row for row, _, _ in found(chunk)} == set(range(len(SHORT))) - set(left_out) != set()
    assert 5 in lengths  # special tokens are counted
    assert 6 in lengths


def test_unlikely_texts_are_left_out() -> None:
    shares = [max(literal(text).said()) for text in SHORT]
    limit = sorted(shares)[3]
    chunk = chunk_of(measuring("rollout", "aopc", min_probability=limit - EXACT), examples(SHORT))
    below = {row for row, share in enumerate(shares) if share < limit - EXACT}
    assert len(below) == 3
    assert set(chunk.skipped) == below
    assert {row for row, _, _ in found(chunk)} == set(range(len(SHORT))) - below
    assert "less probable than" in chunk.skipped[min(below)]


def test_multi_label_models_have_a_probability_for_each_label() -> None:
    own = cases.subject(problem="multi_label_classification")
    chunk = chunk_of(measuring("attcat", "aopc,log_odds", own), examples(SHORT))
    for row, text in enumerate(SHORT):
        by_hand = literal(text, problem="multi_label_classification")
        order = by_hand.order("attcat")
        assert sum(by_hand.said()) != pytest.approx(1)
        assert found(chunk)[row, "attcat", "aopc"].value == pytest.approx(by_hand.aopc(order), abs=EXACT)
        assert found(chunk)[row, "attcat", "log_odds"].value == pytest.approx(by_hand.log_odds(order), abs=EXACT)
        assert chunk.examples[row]["probability"] == pytest.approx(max(by_hand.said()), abs=EXACT)


def test_texts_that_are_cut_say_so() -> None:
    text = "the film is fine, " * 40
    chunk = chunk_of(measuring("rollout", "aopc"), examples(["a bad film", text]))
    assert "dropped" not in chunk.examples[0]
    count = len(cases.subject().tokenizer(text, verbose=False)["input_ids"])
    assert chunk.examples[1]["dropped"] == count - 128


# Words of a corpus, answers to questions


def test_token_overlap_keeps_the_words_of_every_text() -> None:
    chunk = chunk_of(measuring("attcat", "token_overlap(k=2)"), examples(SHORT))
    for row, text in enumerate(SHORT):
        record = found(chunk)[row, "attcat", "token_overlap(k=2)"]
        assert record.value is None
        own = literal(text)
        assert record.detail["class"] == own.predicted
        words = text.split()
        assert [word for word, _ in record.detail["words"]] == words
        scores = own.scores("attcat")
        total = sum(scores[place] for place in own.rankable)
        assert sum(score for _, score in record.detail["words"]) == pytest.approx(total, abs=EXACT)


QUESTION = "is the film bad"
CONTEXT = "the actors like it. the film is fine."


def question(row: int, *answers: str, context: str = CONTEXT) -> Example:
    return Example(row, (QUESTION, context), answers=tuple(Answer(a, context.index(a)) for a in answers))


def test_answers_to_questions_are_looked_for_among_the_highest_tokens() -> None:
    longer = f"a bad film, not it. {CONTEXT}"
    rows = [question(0, "the actors", "actors"), question(1), question(2, "fine", context=longer)]
    chunk = chunk_of(measuring("attcat,random", "precision_at_k(k=3,8)", answering()), rows)
    lengths = {0: 3, 2: 1}  # `actors` is two tokens
    explainer = whyformer.Explainer(answering())
    for row, example in enumerate(rows):
        for name in ("attcat", "random"):
            record = found(chunk)[row, name, "precision_at_k(k=3,8)"]
            if row == 1:  # no answer: left out
                assert (record.value, record.detail, record.refused) == (None, None, None)
                continue
            explained = explainer.explain(question=QUESTION, context=example.context, method=name)
            units = [n for n, unit in enumerate(explained.units) if not unit.special]
            ranked = sorted(units, key=lambda n: -explained.scores[n])
            start, end = example.answers[0].span
            inside = [n for n in units if (u := explained.units[n]).part == 1 and start < u.span[1] and u.span[0] < end]
            counts = [len([n for n in ranked[:k] if n in inside]) for k in (3, 8)]
            assert len(inside) == lengths[row]
            assert record.detail == {"counts": counts, "length": lengths[row]}
            assert record.value == pytest.approx(sum(counts) / 2)
    assert any(sum(record.detail["counts"]) for record in chunk.records if record.detail)
    assert "predicted" not in chunk.examples[0]


def test_questions_without_an_answer_need_none_beside_them() -> None:
    chunk = chunk_of(measuring("random", "precision_at_k", answering()), [question(0), question(1)])
    assert values(chunk) == {(0, "random", "precision_at_k"): None, (1, "random", "precision_at_k"): None}


@pytest.mark.parametrize(
    ("of", "methods", "metrics", "message"),
    [
        (cases.subject, "attcat", "precision_at_k", "for models that answer questions; this one classifies"),
        (answering, "attcat", "aopc", "for models that classify; this one answers questions"),
        (cases.subject, "rollout,random", "aopc,kendall_tau", "needs a method whose scores depend on the class"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_run(
    of: Callable[[], Subject], methods: str, metrics: str, message: str
) -> None:
    with pytest.raises(BadOption, match=message):
        measuring(methods, metrics, of())


# Short of memory


@pytest.fixture
def small_memory(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    """The tiny model fails for more than two texts at once, while it is recorded, or while it is only run."""
    failed: list[int] = []
    recording = request.param == "explaining"

    def check(_module: Any, _args: Any, given: dict[str, Any]) -> None:
        size = len(given["input_ids"])
        if torch.is_grad_enabled() is recording and size > 2:
            failed.append(size)
            raise torch.OutOfMemoryError("out of memory, says the test")

    handle = cases.subject().model.register_forward_pre_hook(check, with_kwargs=True)
    yield failed
    handle.remove()


@pytest.mark.parametrize("small_memory", ["explaining", "running"], indirect=True)
def test_a_batch_that_does_not_fit_is_halved(small_memory: list[int], one_chunk: Chunk) -> None:
    of = measuring("attcat,rollout,attn_lrp,random(seed=5)", "aopc,log_odds,comprehensiveness,kendall_tau")
    chunk = chunk_of(of, examples(TEXTS))
    assert small_memory
    assert max(small_memory) > 4
    assert [record.key for record in chunk.records] == [record.key for record in one_chunk.records]
    for place, value in values(chunk).items():
        assert value == pytest.approx(values(one_chunk)[place], abs=EXACT)
    assert chunk.metrics == one_chunk.metrics
    assert [said["row"] for said in chunk.examples] == list(range(len(TEXTS)))


@pytest.mark.parametrize("when", ["explaining the prediction", "explaining another class"])
def test_a_method_that_needs_too_much_memory_gets_halves(when: str, one_chunk: Chunk) -> None:
    """What the methods and metrics before it noted of the whole batch counts once."""
    failed = []

    def greedy(prediction: Prediction) -> torch.Tensor:
        """As attcat, of one text at a time."""
        other = not torch.equal(prediction.target, prediction.predicted)
        if len(prediction.padding) > 1 and other is (when == "explaining another class"):
            failed.append(len(prediction.padding))
            raise torch.OutOfMemoryError("out of memory, says the test")
        return whyformer.list_methods()["attcat"](prediction).total

    registered(greedy, class_specific=True)
    of = measuring("attcat,greedy,random(seed=5)", "aopc,log_odds,kendall_tau", ceiling=2)
    chunk = chunk_of(of, examples(TEXTS))
    assert failed
    names = {"greedy": "attcat"}
    for (row, name, metric), value in values(chunk).items():
        if name not in (CEILING, CHANCE):
            expected = values(one_chunk)[row, names.get(name, name), metric]
            assert value == pytest.approx(expected, abs=EXACT), (row, name, metric)
    plain = values(chunk_of(measuring("rollout", "aopc,log_odds", ceiling=2), examples(TEXTS)))
    for place in plain:
        if place[1] in (CEILING, CHANCE):
            assert values(chunk)[place] == pytest.approx(plain[place], abs=EXACT)


def test_one_text_that_does_not_fit_is_an_error() -> None:
    def vast(prediction: Prediction) -> torch.Tensor:
        """Nothing fits."""
        raise torch.OutOfMemoryError("out of memory, says the test")

    registered(vast)
    with pytest.raises(torch.OutOfMemoryError, match="says the test"):
        chunk_of(measuring("vast", "aopc"), examples(TEXTS))


# Batches


def test_batches_hold_texts_of_nearly_the_same_length_and_one_kind() -> None:
    own = cases.subject()
    given = [*evaluated.texts(40, seed=1), LONG, LONG]
    items = [item_of(own, example) for example in examples(given)]
    found = list(batches(items, CPU, ceiling=30))
    assert sorted(item.row for batch in found for item in batch) == list(range(42))
    for batch in found:
        assert len(batch) <= 16
        lengths = [len(item.encoded.units) for item in batch]
        assert lengths == sorted(lengths, reverse=True)
        assert len(batch) == 1 or len(batch) * max(lengths) <= 2048
        assert len({item.row < 30 and item.units <= 64 for item in batch}) == 1
    assert any([item.row for item in batch][:2] == [40, 41] for batch in found)


# Keys


def of_rows(of: Any, rows: list[Example]) -> dict[tuple[int, str, str], str]:
    return {place: record.key for place, record in found(chunk_of(of, rows)).items()}


def test_a_key_does_not_depend_on_what_else_is_measured() -> None:
    rows = examples(SHORT, [0] * len(SHORT))
    base = of_rows(measuring("attcat", "aopc"), rows)
    more = of_rows(measuring("rollout,attcat,random", "log_odds,aopc,kendall_tau", ceiling=100), rows)
    assert {place: more[place] for place in base} == base
    assert len(set(more.values())) == len(more)
    beam = of_rows(measuring("attcat", "aopc", ceiling=100, beam=2, tokens_per_batch=64), rows)
    assert {place: beam[place] for place in base} == base
    assert beam[0, CHANCE, "aopc"] == more[0, CHANCE, "aopc"]
    assert beam[0, CEILING, "aopc"] != more[0, CEILING, "aopc"]
    parts = [of_rows(measuring("attcat", "aopc"), part) for part in (rows[:2], rows[2:3], rows[3:])]
    assert functools.reduce(dict.__or__, parts) == base
    again = of_rows(measuring("attcat", "aopc", replace(cases.subject(), name="another name")), rows)
    assert again == base


def moved(own: Subject) -> Subject:
    """The model with one weight changed, by little."""
    model = copy.deepcopy(own.model)
    with torch.no_grad():
        next(model.parameters())[3, 1] += 1e-9
    return replace(own, model=model)


def test_a_key_depends_on_everything_that_determines_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    own = cases.subject()

    def key(text: Any = "a bad film", label: Any = 1, row: int = 3, **options: Any) -> str:
        chosen = {"methods": "random", "metrics": "aopc", "of": own} | options
        of = measuring(**chosen)
        (pair, found), *_ = of.keys(item_of(of.subject, Example(row, text, label))).items()
        assert len(found) == 32
        assert pair[0].startswith(("random", "rollout"))
        return found

    base = key()
    assert key() == base
    others = {
        "text": key("a bad, film"),
        "capitals": key("A bad film"),
        "pair": key(("a", "bad film")),
        "another pair": key(("a bad", "film")),
        "label": key(label=2),
        "no label": key(label=None),
        "row": key(row=4),
        "method": key(methods="rollout"),
        "option": key(methods="random(seed=1)"),
        "metric": key(metrics="log_odds"),
        "option of the metric": key(metrics="aopc(hide=mask)"),
        "weights": key(of=moved(own)),
        "labels": key(of=cases.subject(labels=2)),
        "words": key(metrics="token_overlap"),
        "tokens": key(metrics="token_overlap(units=token)"),
    }
    version = importlib.metadata.version
    for package in ("whyformer", "torch", "transformers"):
        with monkeypatch.context() as patched:
            patched.setattr(importlib.metadata, "version", lambda name, p=package: version(name) + ".1" * (name == p))
            others[package] = key()
    assert len({base, *others.values()}) == 1 + len(others)
    assert key(label="LABEL_1") == base  # the same class
    assert key(metrics="aopc(hide=none)") == base  # the default
    assert key() == base


def test_only_missing_keys_are_measured() -> None:
    of = measuring("rollout,random", "aopc,log_odds")
    rows = examples(SHORT)
    whole = chunk_of(of, rows)
    known = {r.key for r in whole.records if r.method == "rollout" or r.row < 2}
    part = chunk_of(of, rows, known)
    assert {record.key for record in part.records} == {r.key for r in whole.records} - known
    assert {said["row"] for said in part.examples} == set(range(2, len(SHORT)))
    assert values(part) == pytest.approx({place: values(whole)[place] for place in values(part)}, abs=EXACT)
    pending = of.pending(0, len(SHORT), rows, {}, {record.key for record in whole.records})
    assert not any(pending.missing.values())
    assert not measured_chunk(of, pending).records
