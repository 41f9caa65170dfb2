"""The words that a model relies on: counted, checked by deletion, and those that are to be looked at."""

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import cases, evaluated, planted
from tests.helpers.evaluated import in_order, own_registry, registered
from whyformer import BadInput, BadOption, Explainer, ShortcutReport
from whyformer.evaluation.shortcuts import checked_words, load_reports, save_reports, shortcuts
from whyformer.models.load import Subject
from whyformer.prediction import Prediction
from whyformer.results import shortcuts as lean
from whyformer.results.shortcuts import (
    ClassStats,
    ExplainedText,
    ScoredWord,
    ShortcutCounter,
    ShortcutWord,
    WordEffect,
    is_striking,
)
from whyformer.tolerance import ROUNDING

TEXTS = [*cases.TEXTS, "the actors are bad. bad!", "It is fine", "not a film", "a fine film, the film"]
EXACT = 1e-6  # scores are kept in float32


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [(text, n % 3) for n, text in enumerate(TEXTS)]
    return evaluated.written(tmp_path / "texts.csv", rows)


def report_of(own: Subject, data: Path, method: str = "attcat", **options: Any) -> ShortcutReport:
    return shortcuts(own, data, method, **options)[method]


# Planted shortcuts


@pytest.mark.long
def test_a_planted_word_comes_first(tmp_path: Path) -> None:
    rows = planted.reviews()
    path = evaluated.written(tmp_path / "reviews.csv", rows)
    found = report_of(planted.reviewer(), path, "attn_lrp")
    first, second = found.words[:2]
    holding = [n for n, (text, _) in enumerate(rows) if planted.WORD in text.split()]
    assert first.word == planted.WORD
    assert first.side is None
    assert first.look
    assert first.reliance > 2 * second.reliance
    assert (first.texts, first.name) == (len(holding), planted.WORD)
    assert first.strongest > 0.9 * len(holding)
    assert first.leans_to == 1
    assert len(first.rows) == 5
    assert set(first.rows) <= set(holding)
    assert all(planted.WORD in found.examples[row].texts[0] for row in first.rows)
    assert first.label is not None
    assert (first.label.label, first.label.share, first.label.base) == (1, 1.0, 0.5)
    assert first.label.z == pytest.approx(math.sqrt(len(holding)))  # 0.5 / sqrt(0.25 / texts)
    assert first.effect is not None
    assert first.effect.texts == 5
    assert first.effect.log_odds > 0.5


@pytest.mark.long
def test_a_planted_word_of_one_side_comes_first(tmp_path: Path) -> None:
    rows = planted.pairs()
    path = evaluated.written(tmp_path / "pairs.csv", rows, ["premise", "hypothesis", "label"])
    table = shortcuts(planted.judge(), path, "attn_lrp")["attn_lrp"]
    first, second = table.words[:2]
    holding = [n for n, (_, hypothesis, _) in enumerate(rows) if planted.NOBODY in hypothesis.split()]
    assert first.name == "hypothesis: nobody"
    assert first.look
    assert first.reliance > 1.5 * second.reliance
    assert first.texts == len(holding)
    assert set(first.rows) <= set(holding)
    assert first.label is not None
    assert (first.label.label, first.label.share) == (1, 1.0)
    assert not any(word.look for word in table.words if word.name == "premise: nobody")
    shown = table.to_text(lines=1).splitlines()
    assert shown[4].split()[:3] == ["▶", "hypothesis:", "nobody"]


# Counts, by hand


def distinct(own: Subject, method: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Of each text the predicted class, and its words with the sum of their scores."""
    for text in TEXTS:
        explanation = Explainer(own).explain(text, method)
        scores: dict[str, float] = {}
        for word in explanation.words():
            scores[word.text.lower()] = scores.get(word.text.lower(), 0.0) + word.score
        assert explanation.prediction.index is not None
        yield explanation.prediction.index, scores


def test_words_are_counted_as_they_are_by_hand(data: Path) -> None:
    own = cases.subject()
    every = list(distinct(own, "attcat"))
    sums = ShortcutCounter()
    table = ShortcutReport.of(Explainer(own).stream(TEXTS, "attcat", batch_size=3))
    found = report_of(own, data, check=0, rows_at_once=3)
    assert [word.word for word in found.words] == [word.word for word in table.words]
    assert found.texts == {i: sum(index == i for index, _ in every) for i in {index for index, _ in every}}
    for word in found.words:
        inside = [(index, scores) for index, scores in every if word.word in scores]
        shares = [abs(s[word.word]) / sum(map(abs, s.values())) for _, s in inside]
        fair = [1 / len(s) for _, s in inside]
        strong = [word.word in sorted(s, key=lambda w, s=s: -abs(s[w]))[:3] for _, s in inside]  # type: ignore[misc]
        assert (word.texts, word.strongest) == (len(inside), sum(strong))
        assert word.share == pytest.approx(sum(shares) / len(inside), abs=EXACT)
        assert word.lift == pytest.approx(sum(shares) / sum(fair), abs=1e-4)
        expected = (sum(shares) - sum(fair)) * math.log(len(TEXTS) / len(inside))
        assert word.reliance == pytest.approx(expected, abs=1e-4)
        for index, of in word.classes.items():
            own_scores = [s[word.word] for i, s in inside if i == index]
            assert of.texts == len(own_scores)
            assert of.score == pytest.approx(sum(own_scores), abs=1e-5)
            assert of.mean == pytest.approx(sum(own_scores) / len(own_scores), abs=1e-5)
        assert word.effect is None
    assert [word.reliance for word in found.words] == sorted((word.reliance for word in found.words), reverse=True)
    with pytest.raises(BadInput, match="at least one text"):
        counted(sums)


def test_labels_are_told_by_words(data: Path) -> None:
    found = report_of(cases.subject(), data, check=0)
    golds = [n % 3 for n in range(len(TEXTS))]
    assert found.golds == {label: golds.count(label) for label in range(3)}
    (film,) = (word for word in found.words if word.word == "film")
    inside = [golds[n] for n, text in enumerate(TEXTS) if "film" in text]
    expected = []
    for label in range(3):
        share, base = inside.count(label) / len(inside), golds.count(label) / len(golds)
        expected.append(((share - base) / math.sqrt(base * (1 - base) / len(inside)), share, base, label))
    z, share, base, label = max(expected, key=lambda one: (one[0], -one[3]))  # of equal ones the first
    assert film.label is not None
    assert (film.label.label, film.label.texts) == (label, len(inside))
    assert (film.label.z, film.label.share, film.label.base) == pytest.approx((z, share, base))


@pytest.mark.long
def test_effects_are_those_of_deleting_the_word(data: Path) -> None:
    own = cases.subject()
    found = report_of(own, data, check=3)
    for word in found.words:
        before, after, odds = [], [], []
        for row in word.rows[:3]:
            encoded = own.tokenizer(TEXTS[row], return_offsets_mapping=True)
            spans = [u.unit.span for u in Explainer(own).explain(TEXTS[row]).words() if u.text.lower() == word.word]
            gone = [
                place
                for place, (start, stop) in enumerate(encoded["offset_mapping"])
                if any(span and span[0] <= start < stop <= span[1] for span in spans)
            ]
            assert gone
            kept = [place for place in range(len(encoded["input_ids"])) if place not in gone]
            index, p, q = None, [], []
            for places in (range(len(encoded["input_ids"])), kept):
                inputs = {
                    name: torch.tensor([[encoded[name][place] for place in places]])
                    for name in ("input_ids", "token_type_ids", "attention_mask")
                }
                with torch.no_grad():
                    logits = own.model(**inputs).logits[0].double()
                index = int(logits.argmax()) if index is None else index
                p.append(float(logits.softmax(-1)[index]))
                q.append(math.log(p[-1] / (1 - p[-1])))
            before.append(p[0])
            after.append(p[1])
            odds.append(q[0] - q[1])
        n = len(before)
        assert word.effect is not None
        assert word.effect.texts == n
        expected = (sum(before) / n, sum(after) / n, sum(odds) / n)
        measured = (word.effect.before, word.effect.after, word.effect.log_odds)
        assert measured == pytest.approx(expected, abs=ROUNDING[torch.float32])


def test_a_word_is_deleted_on_its_side(tmp_path: Path) -> None:
    pair = ("the film is fine", "a film")
    path = evaluated.written(tmp_path / "pairs.csv", [pair], ["question1", "question2"])
    own = cases.subject()
    found = report_of(own, path)
    effects = {word.name: word.effect for word in found.words}
    for name, other in (("question1: film", ("the is fine", "a film")), ("question2: film", ("the film is fine", "a"))):
        index = Explainer(own).explain(pair).prediction.index
        assert index is not None
        without = Explainer(own).explain(other).prediction.probabilities
        effect = effects[name]
        assert without is not None
        assert effect is not None
        assert effect.after == pytest.approx(without[index], abs=ROUNDING[torch.float32])


def test_log_odds_of_labels_that_do_not_exclude_each_other(data: Path) -> None:
    own = cases.subject(problem="multi_label_classification")
    found = report_of(own, data, "rollout", check=1)
    word = found.words[0]
    (row,) = word.rows[:1]
    assert word.effect is not None
    p, q = word.effect.before, word.effect.after
    assert word.effect.log_odds == pytest.approx(math.log(p / (1 - p)) - math.log(q / (1 - q)), abs=1e-6)
    assert p == pytest.approx(max(Explainer(own).explain(TEXTS[row]).prediction.probabilities or ()), abs=1e-6)


# Wrong predictions, and labels that are no labels


def test_wrong_predictions_only(data: Path) -> None:
    own = cases.subject()
    predicted = [index for index, _ in distinct(own, "attcat")]
    wrong = [n for n, index in enumerate(predicted) if index != n % 3]
    assert 0 < len(wrong) < len(TEXTS)
    table = shortcuts(own, data, "attcat", wrong=True)["attcat"]
    assert table.wrong
    assert sum(table.texts.values()) == len(wrong)
    assert {row for word in table.words for row in word.rows} <= set(wrong)
    assert sum(table.golds.values()) == len(TEXTS)  # what the data say is of all texts
    expected = shortcuts(own, evaluated.written(data.parent / "w.csv", [[TEXTS[n]] for n in wrong], ["text"]), "attcat")
    for here, there in zip(table.words, expected["attcat"].words, strict=True):
        assert (here.word, here.texts, here.strongest) == (there.word, there.texts, there.strongest)
        assert here.share == pytest.approx(there.share, abs=EXACT)


def test_wrong_needs_labels(data: Path, tmp_path: Path) -> None:
    own = cases.subject()
    bare = evaluated.written(tmp_path / "bare.csv", [[text] for text in TEXTS], ["text"])
    with pytest.raises(BadInput, match=r"bare.csv has no column of labels .* columns=\{'label': …\} \(--label\)"):
        shortcuts(own, bare, "rollout", wrong=True)
    odd = evaluated.written(tmp_path / "odd.csv", [(text, "no such label") for text in TEXTS])
    with pytest.raises(
        BadInput, match=r"none of the 8 texts has a label of the model's \(row 0: label 'no such label'"
    ):
        shortcuts(own, odd, "rollout", wrong=True)
    labels = [own.labels[index] for index, _ in distinct(own, "rollout")]
    right = evaluated.written(tmp_path / "right.csv", list(zip(TEXTS, labels, strict=True)))
    with pytest.raises(BadInput, match="the model is right on all 8 texts that have a label"):
        shortcuts(own, right, "rollout", wrong=True)


def test_labels_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    labels = ["0", "", "LABEL_1", "seven", "-1", "2", "2", "1"]
    path = evaluated.written(tmp_path / "texts.csv", list(zip(TEXTS, labels, strict=True)))
    table = shortcuts(cases.subject(), path, "rollout", check=0, rows_at_once=3)["rollout"]
    assert table.golds == {0: 1, 1: 2, 2: 2}
    about = table.provenance
    assert (about["labelled"], about["unlabelled"]) == (5, 3)
    assert about["first_unlabelled"] == "row 1: the label is empty"
    assert sum(table.texts.values()) == len(TEXTS)
    bare = evaluated.written(tmp_path / "bare.csv", [[text] for text in TEXTS], ["text"])
    plain = shortcuts(cases.subject(), bare, "rollout", check=0)["rollout"]
    assert plain.words[0].label is None
    assert "labelled" not in plain.provenance


def test_how_many_texts_are_checked(data: Path) -> None:
    for check in (-1, 101):
        with pytest.raises(BadOption, match=f"check={check}: a word is deleted from 0"):
            shortcuts(cases.subject(), data, "rollout", check=check)
    found = report_of(cases.subject(), data, "rollout", check=7)
    (film,) = (word for word in found.words if word.word == "film")
    assert film.effect is not None
    assert film.effect.texts == len(film.rows) == film.texts == sum("film" in text for text in TEXTS)


def test_nothing_is_checked_after_an_interruption(data: Path) -> None:
    calls = []

    def stopping(prediction: Prediction) -> torch.Tensor:
        """Ctrl-C at the second batch."""
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return in_order(prediction)

    with own_registry():
        registered(stopping)
        found = report_of(cases.subject(), data, "stopping", rows_at_once=3)
    assert sum(found.texts.values()) == 3
    assert all(word.effect is None for word in found.words)


def test_an_interrupted_check_keeps_the_counts(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, calls = cases.subject(), []

    def stopping(*given: Any) -> ShortcutReport:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return checked_words(*given)

    monkeypatch.setattr("whyformer.evaluation.shortcuts.checked_words", stopping)
    found = shortcuts(own, data, "rollout,attcat")
    first, second = found.values()
    assert all(word.effect for word in first.words)
    assert not any(word.effect for word in second.words)
    assert all(table.provenance["interrupted"] for table in found.values())
    assert sum(second.texts.values()) == len(TEXTS)


# What is to be looked at


STRIKING = ShortcutWord(
    "thursday", None, 30, 25, 0.4, 6.0, 9.0, {0: ClassStats(10, 5, -1.0), 1: ClassStats(20, 20, 8.0)}, (1, 2)
)
COUNTS = {0: 200, 1: 400}


def test_what_is_to_be_looked_at() -> None:
    assert is_striking(STRIKING, COUNTS)
    classes = {0: ClassStats(10, 9, -1.0), 1: ClassStats(20, 19, 8.0)}
    assert not is_striking(replace(STRIKING, classes=classes), COUNTS)  # 4.5 % and 4.75 %
    assert is_striking(replace(STRIKING, classes=classes), {0: 180, 1: 400})
    few = {1: ClassStats(4, 4, 8.0)}
    assert not is_striking(replace(STRIKING, texts=4, classes=few), {0: 10, 1: 10})
    assert not is_striking(replace(STRIKING, share=0.19), COUNTS)
    assert not is_striking(replace(STRIKING, lift=2.9), COUNTS)
    assert is_striking(replace(STRIKING, texts=540), COUNTS)
    assert not is_striking(replace(STRIKING, texts=541), COUNTS)
    for odds, striking in ((0.1, True), (0.09, False), (-2.0, False)):
        assert is_striking(replace(STRIKING, effect=WordEffect(5, 0.9, 0.8, odds)), COUNTS) is striking


def counted(counter: ShortcutCounter, words: int = 20) -> ShortcutReport:
    return counter.report(ShortcutReport, "attcat", ("no", "yes"), words=words)


def explained(row: int, *words: tuple[str, float], index: int = 0) -> ExplainedText:
    scored = tuple(ScoredWord(word, 0, None, score) for word, score in words)
    return ExplainedText(row, (" ".join(word for word, _ in words),), scored, index, 0.75)


def test_a_word_that_is_striking_is_shown_whatever_its_place() -> None:
    sums = ShortcutCounter()
    for row in range(100):
        rare = [(f"rare{row}", 90.0)] if row >= 20 else [("often", 2.0)]
        sums.add(explained(row, *rare, ("a", 0.1), ("b", 0.1), ("c", 0.1), ("d", 0.1), ("e", 0.1)))
    (word, *_) = counted(sums, 1).words
    assert (word.word, word.look) == ("often", True)
    for row in range(100, 4000):
        sums.add(explained(row, *((f"w{n}", 1.0) for n in range(8)), (f"x{row % 5}", 5.0)))
    shown = counted(sums, 1).words
    assert len([word for word in shown if not word.look]) <= 1
    assert {word.word for word in shown if word.look} == {f"x{n}" for n in range(5)}


# Memory, and the examples


def test_examples_are_a_sample_that_does_not_depend_on_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "HELD", 20)
    texts = [explained(row, ("film", 1.0), (f"word{row}", 2.0)) for row in range(300)]
    both = []
    for given in (texts, texts[::-1]):
        sums = ShortcutCounter()
        for text in given:
            sums.add(text)
        assert len(sums._held) == len(sums._order) == 20
        found = counted(sums, 1000)
        both.append((found.words, found.examples))
    assert both[0] == both[1]
    words, examples = both[0]
    (film,) = (word for word in words if word.word == "film")
    assert len(film.rows) == 5
    assert set(film.rows) <= set(examples)
    assert max(film.rows) - min(film.rows) > 30  # not the first ones
    assert len(examples) == 20


def test_a_text_without_scores_counts_nothing_as_strong() -> None:
    sums = ShortcutCounter()
    sums.add(explained(0, ("a", 0.0), ("film", 0.0)))
    sums.add(ExplainedText(1, ("",), (), 0))
    found = counted(sums)
    assert found.texts == {0: 1}
    assert [(word.share, word.strongest) for word in found.words] == [(0.0, 0)] * 2


# Saved


def test_what_is_saved_is_loaded(data: Path, tmp_path: Path) -> None:
    table = shortcuts(cases.subject(), data, "attcat")["attcat"]
    assert ShortcutReport.load(table.save(tmp_path / "t.json")) == table
    both = shortcuts(cases.subject(), data, "attcat,rollout", check=0)
    path = save_reports(both, tmp_path / "both.json")
    assert load_reports(path) == both
    with pytest.raises(BadInput, match=r"holds 2 reports \(attcat, rollout\)"):
        ShortcutReport.load(path)


def damaged(saved: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    word, example = saved["words"][0], saved["examples"][0]
    yield r"words\[0\].texts' is 0", lambda: word.update(texts=0)
    yield (
        "has a class that is not in 'texts'",
        lambda: word["classes"].update({"7": {"texts": 1, "strongest": 0, "score": 0}}),
    )
    yield "has a word of no class", lambda: word.update(classes={})
    yield "is not a word, its part", lambda: example["words"].append(["a", 0, None])
    yield "has a word of a text that is not there", lambda: example["words"].append(["a", 1, None, 0.5])
    yield "has a word outside", lambda: example["words"].append(["a", 0, [0, 9999], 0.5])
    yield "has a class that is not in 'texts'", lambda: example.update(predicted=99)
    yield "has a class 99, and there are 3 labels", lambda: example.update(gold=99)
    yield r"words\[0\].label.z' is", lambda: word["label"].update(z="high")


def test_damaged_words_are_refused(data: Path) -> None:
    saved = json.loads(json.dumps(shortcuts(cases.subject(), data, "attcat")["attcat"].to_dict()))
    for place, (told, _) in enumerate(damaged(saved)):
        changed = copy.deepcopy(saved)
        list(damaged(changed))[place][1]()
        with pytest.raises(BadInput, match=told):
            ShortcutReport.from_dict(changed)
