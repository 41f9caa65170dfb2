"""Every metric beside its definition written out with loops; what the best and the worst order score; invariance."""

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import scipy
import torch

import whyformer.metrics  # noqa: F401  (registers the metrics)
from tests.helpers.cases import PAIR, TEXTS, case, predicted, subject
from whyformer import BadInput, BadOption
from whyformer.inputs.units import split_words
from whyformer.metrics import Annotation, Case, RationaleWords, answer_tokens, measure
from whyformer.metrics.metric import Measured, Metric, list_metrics, metric, metric_named
from whyformer.perturb import Outcomes
from whyformer.progress import listening
from whyformer.tolerance import close
from whyformer_papers.words import Idf
from whyformer_papers.words.overlap import word_totals

HIDING = ("aopc", "log_odds", "comprehensiveness", "sufficiency", "hiding_game", "revealing_game")
TENTHS = [n / 10 for n in range(11)]
SHORT = "the film is bad"


def said(ids: list[int], types: list[int], attended: list[int] | None = None) -> torch.Tensor:
    """What the model says of one text, run alone."""
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": attended or [1] * len(ids)}
    with torch.no_grad():
        logits = subject().model(**{name: torch.tensor([row]) for name, row in inputs.items()}).logits
    return logits.softmax(-1)[0]


def texts_of(one: Case) -> list[tuple[list[int], list[int], list[int], list[float], int]]:
    """Ids, types, places in order of their score, scores, predicted class."""
    found = []
    for row, example in enumerate(one.prediction.batch.examples):
        ids, types = (example.tensors[name].tolist() for name in ("input_ids", "token_type_ids"))
        scores = one.scores[row].tolist()
        places = [n for n, unit in enumerate(example.units) if not unit.special]
        order = sorted(places, key=lambda n: (-scores[n], n))
        found.append((ids, types, order, scores, int(one.prediction.predicted[row])))
    return found  # type: ignore[return-value]


def kept(numbers: list[int], gone: list[int]) -> list[int]:
    return [number for n, number in enumerate(numbers) if n not in gone]


def values(name: str, one: Case, **options: Any) -> list[float]:
    found: list[float] = metric_named(name)(one, **options).values.tolist()
    return found


def test_aopc() -> None:
    one, expected = case([*TEXTS, PAIR]), []
    for ids, types, order, _, index in texts_of(one):
        drops = []
        for share in range(0, 101, 10):
            gone = order[: (2 * share * len(order) + 100) // 200]
            drops.append(float(said(ids, types)[index] - said(kept(ids, gone), kept(types, gone))[index]))
        expected.append(sum(drops) / 11)
    assert values("aopc", one) == pytest.approx(expected, abs=1e-9)
    found = metric_named("aopc")(one)
    assert found.curve is not None
    assert found.curve.shape == (5, 11)
    assert found.at == tuple(TENTHS)
    assert found.curve[:, 0].tolist() == [0.0] * 5


def test_log_odds() -> None:
    one, expected = case(), []
    for ids, types, order, _, index in texts_of(one):
        changes = []
        for share in range(0, 101, 10):
            gone = order[: (2 * share * len(order) + 100) // 200]
            padded = [0 if n in gone else token for n, token in enumerate(ids)]
            changes.append(math.log(said(padded, types)[index] / said(ids, types)[index]))
        expected.append(sum(changes) / 11)
    assert values("log_odds", one) == pytest.approx(expected, abs=1e-9)
    assert values("log_odds", one, hide="pad") != pytest.approx(expected, abs=1e-3)


def test_comprehensiveness_and_sufficiency_as_eraser_defines_them() -> None:
    one, without, only = case(), [], []
    for ids, types, order, _, index in texts_of(one):
        whole = float(said(ids, types)[index])
        drops: list[tuple[float, float]] = []
        for percent in (1, 5, 10, 20, 50):
            top = order[: -(-percent * len(order) // 100)]
            rest = [n for n in order if n not in top]
            pair = [float(said(kept(ids, gone), kept(types, gone))[index]) for gone in (top, rest)]
            drops.append((whole - pair[0], whole - pair[1]))
        without.append(sum(d[0] for d in drops) / 5)
        only.append(sum(d[1] for d in drops) / 5)
    assert values("comprehensiveness", one) == pytest.approx(without, abs=1e-9)
    assert values("sufficiency", one) == pytest.approx(only, abs=1e-9)


@pytest.mark.parametrize("gold", [None, 1])
def test_games(gold: int | None) -> None:
    from sklearn.metrics import auc

    one = case(annotations=[Annotation(gold=gold)] * len(TEXTS))
    mask = subject().tokenizer.mask_token_id
    for name in ("hiding_game", "revealing_game"):
        expected = []
        for ids, types, order, _, index in texts_of(one):
            hits = []
            for share in range(0, 101, 10):
                count = (2 * share * len(order) + 100) // 200
                gone = order[:count] if name == "hiding_game" else order[count:]
                masked = [mask if n in gone else token for n, token in enumerate(ids)]
                attended = [int(n not in gone) for n in range(len(ids))]
                right = index if gold is None else gold
                hits.append(float(int(said(masked, types, attended).argmax()) == right))
            expected.append(auc(TENTHS, hits))
        assert values(name, one) == pytest.approx(expected, abs=1e-9)


def test_an_area_is_divided_by_its_range() -> None:
    from sklearn.metrics import auc

    found = metric_named("hiding_game")(case(), fractions=[0.2, 0.3, 0.8])
    assert found.curve is not None
    expected = [auc([0.2, 0.3, 0.8], row) / 0.6 for row in found.curve.numpy()]
    assert found.values.tolist() == pytest.approx(expected)


def test_kendall_tau() -> None:
    one = case()
    assert one.scores_for is not None
    expected = []
    for row, (_, _, order, _, index) in enumerate(texts_of(one)):
        places = sorted(order)
        by_class = [one.scores_for(torch.full((len(TEXTS),), c))[row, places].numpy() for c in range(3)]
        taus = [
            scipy.stats.kendalltau(by_class[index], by_class[other]).statistic for other in range(3) if other != index
        ]
        expected.append(sum(taus) / 2)
    assert values("kendall_tau", one) == pytest.approx(expected)


def test_kendall_tau_where_there_is_no_order() -> None:
    prediction = predicted(TEXTS)
    flat = torch.zeros(prediction.padding.shape)
    one = Case(prediction, flat, Outcomes(prediction.model), scores_for=lambda c: flat)
    assert all(math.isnan(value) for value in values("kendall_tau", one))


def test_precision_at_k_counts_the_answer_among_the_top() -> None:
    one = case([PAIR, PAIR, PAIR])
    example = one.prediction.batch.examples[0]
    span = answer_tokens(example, (2, 10))
    assert span is not None
    assert [example.units[n].text for n in range(span[0], span[1] + 1)] == ["bad", "film"]
    assert answer_tokens(example, (50, 60)) is None
    said_of = [Annotation(answer=span), Annotation(), Annotation(answer=span)]
    annotated = case([PAIR, PAIR, PAIR], annotations=said_of)
    order = texts_of(annotated)[0][2]
    found = metric_named("precision_at_k")(annotated, k=[1, 3, 20])
    counts = [len({*order[:k]} & {span[0], span[1]}) for k in (1, 3, 20)]
    assert found.curve is not None
    assert found.curve[0].tolist() == counts == found.curve[2].tolist()
    assert counts[-1] == 2
    assert found.values[1].isnan()
    assert found.records[1] is None
    assert metric_named("precision_at_k").reduced(found.records, k=[1, 3, 20]) == pytest.approx(sum(counts) / 3)
    ratio = metric_named("precision_at_k").reduced(found.records, k=[1, 3, 20], measure="ratio")
    assert ratio == pytest.approx(sum(counts) / 6)


def test_token_f1_as_eraser_defines_it() -> None:
    text = TEXTS[2]
    words = tuple(split_words(text))
    beyond = (*words, (500, 504))
    evidence = frozenset({1, 2, 9, len(words)})
    from sklearn.metrics import f1_score

    rationale = RationaleWords(beyond, evidence)
    one = case([text], annotations=[Annotation(gold=1, rationale=rationale)])
    assert one.scores_for is not None
    scores = one.scores_for(torch.tensor([1]))[0]
    units = one.prediction.batch.examples[0].units
    best = []
    for start, end in words:
        mine = [float(scores[n]) for n, u in enumerate(units) if u.span and u.span[0] < end and start < u.span[1]]
        best.append(max(mine))
    order = sorted(range(len(words)), key=lambda n: -best[n])
    for window, count in (("whole", len(beyond)), ("inside", len(words))):
        expected = [
            f1_score([n in evidence for n in range(count)], [n in order[:k] for n in range(count)]) for k in (2, 5, 80)
        ]
        found = metric_named("token_f1")(one, k=[2, 5, 80], window=window)
        assert found.curve is not None
        assert found.curve[0].tolist() == pytest.approx(expected)
        assert float(found.values) == pytest.approx(sum(expected) / 3)
        assert float(found.diagnostics["beyond_window"]) == 0.25
    whole, inside = (metric_named("token_f1")(one, **options) for options in ({}, {"window": "inside"}))
    assert float(whole.values) < float(inside.values)
    assert whole.at == tuple(range(10, 81, 10))


def test_evidence_that_the_model_never_saw_is_missed() -> None:
    rationale = RationaleWords((*split_words(SHORT), (500, 504)), frozenset({4}))
    one = case([SHORT], annotations=[Annotation(gold=1, rationale=rationale)])
    whole = metric_named("token_f1")(one)
    assert float(whole.values) == 0, "nothing that could be ranked is right"
    assert float(whole.diagnostics["beyond_window"]) == 1
    inside = metric_named("token_f1")(one, window="inside")
    assert bool(inside.values.isnan().all()), "there is nothing to find"
    nothing = RationaleWords(tuple(split_words(SHORT)), frozenset())
    without = case([SHORT], annotations=[Annotation(gold=1, rationale=nothing)])
    assert bool(metric_named("token_f1")(without).values.isnan().all())


def test_token_overlap() -> None:
    one, idf = case(), Idf.bundled()
    totals: dict[int, dict[str, float]] = {}
    for row, example in enumerate(one.prediction.batch.examples):
        own = totals.setdefault(int(one.prediction.predicted[row]), {})
        text = example.texts[0]
        for start, end in split_words(text):
            inside = [n for n, u in enumerate(example.units) if u.span and u.span[0] < end and start < u.span[1]]
            word = text[start:end].lower()
            own[word] = own.get(word, 0.0) + float(one.scores[row, inside].sum()) * idf[word]
    found = metric_named("token_overlap")(one)
    assert found.values.isnan().all()
    for index, words in word_totals(found.records, idf).items():
        assert words == pytest.approx(totals[index])
    assert metric_named("token_overlap")(one, units="word", once=False).records == found.records
    overlap = metric_named("token_overlap").reduced
    # rare words, of equal weight
    first = {"class": 0, "words": [["aq", 3.0], ["bq", 2.0], ["cq", 1.0]]}
    second = {"class": 1, "words": [["bq", 9.0], ["aq", -1.0], ["cq", 1.0]]}
    third = {"class": 2, "words": [["bq", 2.0], ["dq", 1.0]]}
    assert overlap([first, second], k=2) == 0.5  # a, b and b, c
    assert overlap([first, second, third], k=2) == (1 + 1 + 1) / (3 * 2)
    assert math.isnan(overlap([first], k=2))
    everywhere = {"class": 1, "words": [["the", 9.0], ["zebra", 4.0]]}
    weights = Idf.bundled()
    assert 9 * weights["the"] < 4 * weights["zebra"]
    assert overlap([{"class": 0, "words": [["zebra", 1.0]]}, everywhere], k=1) == 1  # the weights decide


def test_token_overlap_as_the_paper_counts() -> None:
    """Distinct tokens as the tokenizer spells them, once a text."""
    text = "the film, the acting: the film is fine"
    one = case([text, "bad acting"])
    found = metric_named("token_overlap")(one, units="token", once=True, k=3)
    tokenizer = subject().tokenizer
    assert tokenizer is not None
    for row, own in enumerate((text, "bad acting")):
        pieces = tokenizer.tokenize(own)
        assert "##ing" in pieces
        expected: dict[str, float] = {}
        for piece in dict.fromkeys(pieces):
            places = [n for n, other in enumerate(pieces, 1) if other == piece]  # the first is special
            letters = piece.removeprefix("##")
            expected[piece] = sum(float(one.scores[row, n]) for n in places) / len(places)
            if piece != letters:
                assert found.records[row]["letters"][piece] == letters
        assert dict(found.records[row]["words"]) == pytest.approx(expected)
        assert len(found.records[row]["words"]) == len(expected)
    assert Idf.bundled()["ing"] != Idf.bundled()["##ing"]
    weighted = word_totals(found.records[:1], Idf.bundled())
    (sums,) = weighted.values()
    assert sums["##ing"] == pytest.approx(dict(found.records[0]["words"])["##ing"] * Idf.bundled()["ing"])
    classes = [{**record, "class": row} for row, record in enumerate(found.records)]
    shared = set(dict(found.records[0]["words"])) & set(dict(found.records[1]["words"]))
    assert shared == {"act", "##ing"}
    assert metric_named("token_overlap").reduced(classes, k=50, units="token", once=True) == 2 / 50


def test_idf() -> None:
    idf = Idf.of(["A film", "a play", "a film"])
    assert idf["a"] == 0
    assert idf["film"] == pytest.approx(math.log(3 / 2))
    assert idf["never seen"] == idf["play"] == pytest.approx(math.log(3))


def with_order(one: Case, order: tuple[int, ...]) -> Case:
    scores = torch.zeros_like(one.scores)
    scores[0, list(order)] = torch.arange(len(order), 0, -1, dtype=scores.dtype)
    return Case(one.prediction, scores, one.outcomes)


def test_the_best_of_all_orders_scores_best() -> None:
    """All orders of a short text, beside their scores written out; no beam finds a better one."""
    one = case([SHORT])
    places = one.rankable[0]
    assert len(places) == 4
    found = {order: values("aopc", with_order(one, order))[0] for order in permutations(places)}
    best = max(found, key=lambda order: found[order])
    steps = list(permutations(places))
    literal = {}
    (ids, types, _, _, index) = texts_of(one)[0]
    for order in steps:
        drops = []
        for share in TENTHS:
            gone = list(order[: math.floor(share * 4 + 0.5)])
            drops.append(float(said(ids, types)[index] - said(kept(ids, gone), kept(types, gone))[index]))
        literal[order] = float(np.mean(drops))
    assert best == max(literal, key=lambda order: literal[order])
    assert found[best] >= max(found.values())
    wide = values("aopc", one.best(beam=24))[0]
    narrow = values("aopc", one.best())[0]
    assert narrow <= wide + 1e-12 <= found[best] + 2e-12


def test_the_reverse_of_the_best_order_is_the_worst_where_tokens_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    one = case([SHORT])
    worth = dict(zip(one.inputs[0].tensors["input_ids"].tolist(), [0.0, 0.3, 0.05, 0.2, 0.1, 0.0], strict=True))

    def additive(inputs: list[Any]) -> torch.Tensor:
        total = torch.tensor([sum(worth[t] for t in row.tensors["input_ids"].tolist()) for row in inputs])
        left = torch.stack([(1 - total) / 2] * 2, 1)
        return torch.cat((left, total[:, None]), 1).double().roll(int(one.prediction.predicted) - 2, 1)

    monkeypatch.setattr(Outcomes, "_outputs", lambda self, batch: additive(batch.inputs).clamp_min(1e-300).log())
    found = {order: values("aopc", with_order(one, order))[0] for order in permutations(one.rankable[0])}
    best = max(found, key=lambda order: found[order])
    assert best == (1, 3, 4, 2)
    assert min(found, key=lambda order: found[order]) == best[::-1]
    assert values("aopc", one.best())[0] == pytest.approx(found[best])


def test_the_ceiling_is_above_other_orders() -> None:
    cases = [case(seed=seed) for seed in range(5)]
    ceiling = sum(values("aopc", cases[0].best()))
    assert all(sum(values("aopc", one)) <= ceiling for one in cases)
    words = cases[0].best(units="word")
    assert sum(values("aopc", words, units="word")) >= sum(values("aopc", cases[1], units="word"))


def test_long_texts_are_not_searched() -> None:
    with pytest.raises(BadInput, match=r"a text of 70 units is too long to be searched: at most 64"):
        case([" ".join(["film"] * 70)]).best()
    with pytest.raises(BadOption, match="beam must be at least 1"):
        case().best(beam=0)


@pytest.mark.parametrize("name", [*HIDING, "kendall_tau"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "llama"])
def test_an_example_measures_the_same_alone_as_in_a_chunk(name: str, kind: str) -> None:
    together = values(name, case(TEXTS, kind))
    alone = [values(name, case([text], kind))[0] for text in TEXTS]
    assert together == pytest.approx(alone, abs=1e-9)


def test_words_are_hidden_together() -> None:
    one = case(["the actors"], target=0)
    groups = one.ranked("explained", "word")[0]
    assert sorted(map(tuple, groups)) == [(1,), (2, 3)]
    curve = metric_named("aopc")(one, units="word", fractions=[0.5], target="explained").curve
    (ids, types, _, scores, _) = texts_of(one)[0]
    gone = [1] if scores[1] >= scores[2] + scores[3] else [2, 3]
    expected = said(ids, types)[0] - said(kept(ids, gone), kept(types, gone))[0]
    assert curve is not None
    assert float(curve) == pytest.approx(float(expected), abs=1e-9)


def test_absolute_and_gold() -> None:
    one = case(annotations=[Annotation(gold=2)] * len(TEXTS))
    signed, absolute = (metric_named("aopc")(one, target="gold", absolute=flag) for flag in (False, True))
    assert signed.curve is not None
    assert close(signed.curve.abs(), absolute.curve)
    assert one.scores_for is not None
    by_gold = Case(one.prediction.towards(2), one.scores_for(torch.full((4,), 2)), one.outcomes)
    assert values("aopc", by_gold, target="explained") == signed.values.tolist()


def test_everything_of_a_chunk_is_run_at_once() -> None:
    batches: list[int] = []
    outcomes = Outcomes(subject().model)
    cases = [case(seed=seed, outcomes=outcomes) for seed in (0, 1)]
    with listening(lambda done, of: batches.append(of)):
        found = measure([(metric_named(name), one, {}) for name in (*HIDING, "kendall_tau") for one in cases])
    assert set(batches) == {outcomes.counts.run}
    for n, name in enumerate((*HIDING, "kendall_tau")):
        for m, one in enumerate((case(seed=0), case(seed=1))):
            assert found[2 * n + m].values.tolist() == pytest.approx(values(name, one), abs=1e-9)


def test_facts() -> None:
    expected = {*HIDING, "kendall_tau", "precision_at_k", "token_overlap", "token_f1"}
    assert expected <= set(list_metrics())
    for name in expected:
        found = metric_named(name)
        assert found.summary
        assert found.paper
        assert found.bounds[0] < found.bounds[1]
    assert {m.name for m in list_metrics().values() if m.level == "corpus"} >= {"precision_at_k", "token_overlap"}


NEEDED = {
    "precision_at_k": "precision_at_k needs the gold answer of each question, which is not given",
    "token_f1": "token_f1 needs a human rationale for each example, which is not given",
    "kendall_tau": "kendall_tau needs a method whose scores depend on the class, which is not given",
}


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_needed_is_named(name: str) -> None:
    one = case()
    with pytest.raises(BadInput, match=NEEDED[name]):
        metric_named(name)(Case(one.prediction, one.scores, one.outcomes))


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("aopc", {"fractions": [0.5, 1.5]}, "fractions lie between 0 and 1; found 1.5"),
    ("aopc", {"protocol": "attcat", "fractions": [0.5]}, "protocol='attcat' fixes fractions"),
    ("aopc", {"protocol": "attcat", "units": "word"}, "protocol='attcat' fixes units"),
    ("aopc", {"hide": "smear"}, "option hide takes delete | mask"),
    ("aopc", {"hidden": "mask"}, "aopc has no option 'hidden'; did you mean 'hide'"),
    ("hiding_game", {"fractions": [0.5]}, "at least two fractions in rising order"),
    ("kendall_tau", {"against": 7}, "is no class of this model"),
    ("precision_at_k", {"k": 0}, "k must be at least 1"),
]


@pytest.mark.parametrize(("name", "options", "message"), WRONG)
def test_wrong_options_are_named(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption) as raised:
        metric_named(name)(case(annotations=[Annotation(answer=(1, 2))] * len(TEXTS)), **options)
    assert message in str(raised.value)


def test_labels_and_annotations_are_checked() -> None:
    with pytest.raises(BadInput, match="target='gold' needs the gold label"):
        metric_named("aopc")(case(), target="gold")
    with pytest.raises(BadInput, match="gold label 5 is no class"):
        metric_named("aopc")(case(annotations=[Annotation(gold=5)] * 4), target="gold")
    with pytest.raises(BadInput, match="1 annotations for 4 examples"):
        case(annotations=[Annotation(gold=0)])
    with pytest.raises(BadOption, match="there is no metric 'aocp'; did you mean 'aopc'"):
        metric_named("aocp")
    with pytest.raises(BadOption, match="aopc has a number for each example"):
        metric_named("aopc").reduced([])


def test_a_metric_of_ones_own() -> None:
    facts: dict[str, Any] = {"family": "own", "higher_is_better": True, "bounds": (0, 1), "paper": "-"}

    def longest(case: Case, *, times: int = 1) -> torch.Tensor:
        """How many units are ranked."""
        return torch.tensor([times * len(places) for places in case.rankable])

    own = Metric("longest", longest, *facts.values())
    found = own(case(), times=2)
    assert isinstance(found, Measured)
    assert found.values.tolist() == [2 * len(places) for places in case().rankable]
    with pytest.raises(ValueError, match="there is a metric 'aopc' already"):
        metric(**facts)(metric_named("aopc").function)
    with pytest.raises(ValueError, match="no data set can be asked for 'magic'"):
        metric(**facts, needs={"magic"})
    with pytest.raises(ValueError, match="how its records are reduced"):
        metric(**facts, level="corpus")
    with pytest.raises(TypeError, match=r"returned values of shape \(2,\)"):
        Metric("two", lambda case: torch.zeros(2), *facts.values())(case())
