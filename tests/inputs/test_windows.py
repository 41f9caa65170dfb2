"""Texts that are longer than a model's window: questions explained where the answer stands, documents as a whole."""

import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import whyformer
from tests.helpers import cases
from tests.helpers.commands import Run
from tests.helpers.questions import CONTEXT, QUESTION, WINDOW, answering, tokenizer
from whyformer import BadInput, BadOption, Explainer, Explanation
from whyformer.evaluation.evaluate import evaluate
from whyformer.inputs.batch import TextInput, encode
from whyformer.inputs.windows import Windows
from whyformer.metrics.metric import metric_specs
from whyformer.perturb.engine import WindowRunner
from whyformer.tasks.question_answering import Answers, best_window
from whyformer.tasks.task import ExampleOutputs, ModelOutputs

KNOWN = ["the", "game", "won", "lost", "they", "it", "humans", "man", "for", "or", "better", "were", "who"]
MANY = " ".join(random.Random(0).choices(KNOWN, k=360))
DOCUMENT = " ".join(cases.TEXTS * 8)


@pytest.fixture(scope="module")
def asking() -> Explainer:
    return Explainer(answering(), tokenizer())


@pytest.fixture(scope="module")
def classifying() -> Explainer:
    subject = cases.subject()
    return Explainer(subject.model, subject.tokenizer)


def windows_of(explainer: Explainer, text: Any, **options: Any) -> Sequence[TextInput]:
    return Windows.of(**options).parts(explainer.subject, encode(explainer.subject, text, whole=True))


def ends(explainer: Explainer, window: TextInput) -> torch.Tensor:
    tensors = {name: torch.from_numpy(values)[None] for name, values in window.tensors.items()}
    with torch.no_grad():
        output = explainer.subject.model(**tensors)
    return torch.stack((output.start_logits[0], output.end_logits[0]))


def scores_of(explainer: Explainer, window: TextInput, method: str, target: Any) -> np.ndarray:
    tensors = {name: torch.from_numpy(values)[None] for name, values in window.tensors.items()}
    return whyformer.attribute(explainer.subject.model, tensors, method, target=target)[0].double().numpy()


# How texts are cut


@pytest.mark.parametrize(("size", "overlap"), [(None, None), (40, 8), (30, 0), (25, 16)])
def test_windows_of_a_context_are_those_of_the_tokenizer(
    asking: Explainer, size: int | None, overlap: int | None
) -> None:
    windows = windows_of(asking, (QUESTION, MANY), window_size=size, overlap=overlap)
    room = (size or WINDOW) - len(asking.subject.tokenizer(QUESTION)["input_ids"]) - 1
    stride = min(128, room // 2) if overlap is None else overlap
    options = {"truncation": "only_second", "max_length": size or WINDOW, "stride": stride}
    expected = asking.subject.tokenizer(
        QUESTION, MANY, return_overflowing_tokens=True, return_offsets_mapping=True, **options
    )
    assert [window.tensors["input_ids"].tolist() for window in windows] == expected["input_ids"]
    for number, window in enumerate(windows):
        assert window.window is not None
        assert (window.window.number, window.window.count) == (number, len(windows))
        context = [
            (unit.span, offset)
            for unit, offset in zip(window.units, expected["offset_mapping"][number], strict=True)
            if unit.part == 1
        ]
        assert all(span == tuple(offset) for span, offset in context)
        assert window.texts == (QUESTION, MANY)


def test_a_text_that_fits_is_its_only_window(asking: Explainer, classifying: Explainer) -> None:
    (window,) = windows_of(asking, (QUESTION, CONTEXT))
    assert window.window is None
    assert (
        window.tensors["input_ids"].tolist()
        == encode(asking.subject, (QUESTION, CONTEXT)).tensors["input_ids"].tolist()
    )
    (text,) = windows_of(classifying, cases.TEXTS[0])
    assert text.window is None


@pytest.mark.parametrize("long", [0, 1])
def test_of_a_pair_the_longer_text_is_cut(classifying: Explainer, long: int) -> None:
    pair = (DOCUMENT, cases.TEXTS[0]) if long == 0 else (cases.TEXTS[0], DOCUMENT)
    windows = windows_of(classifying, pair, overlap=5)
    short = [[unit for unit in window.units if unit.part == 1 - long] for window in windows]
    assert len(windows) > 1
    assert all(units == short[0] for units in short)
    starts = [next(unit.span[0] for unit in window.units if unit.part == long) for window in windows]
    assert starts == sorted(set(starts))


def test_of_a_question_the_context_is_cut_though_it_is_shorter(asking: Explainer) -> None:
    question, context = " ".join(MANY.split()[:60]), " ".join(MANY.split()[60:110])
    windows = windows_of(asking, (question, context), overlap=3)
    assert [sum(unit.part == 0 for unit in window.units) for window in windows] == [60] * len(windows)
    assert len(windows) == 2


WORDS = [
    "the",
    "bröncos",
    "won",
    "👩‍👩‍👧",
    "e\u0301té",
    "日本",
    "x\r\ny",
    "don't",
    "a\u200db",
    "it",
    "lost.",
    "\U0001f1e9\U0001f1ea",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=60, max_size=120), st.integers(20, 60), st.integers(0, 9))
def test_spans_cut_the_exact_characters(words: list[str], size: int, overlap: int) -> None:
    explainer = Explainer(answering(), tokenizer())
    context = " ".join(words)
    whole = encode(explainer.subject, (QUESTION, context), whole=True)
    covered: set[int] = set()
    for window in Windows.of(size, overlap).parts(explainer.subject, whole):
        places = range(len(whole)) if window.window is None else window.window.places.tolist()
        assert [whole.units[place] for place in places] == list(window.units)
        covered |= set(places)
        for unit in window.units:
            if unit.part == 1 and unit.span:
                assert context[slice(*unit.span)] == unit.text
    assert covered == set(range(len(whole)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_size": 0}, "window_size=0: a number of tokens, at least 1"),
        ({"window_size": True}, "window_size takes a whole number"),
        ({"overlap": -1}, "overlap=-1: a number of tokens, at least 0"),
        ({"overlap": 200}, r"overlap=200: a window holds \d+ tokens of the text, so it must be less"),
        ({"window_size": 4000}, f"window_size=4000, but the model's window holds {WINDOW} tokens"),
        ({"windows": "glue"}, r"windows takes cut \| merge; found 'glue'"),
    ],
)
def test_what_cannot_be_a_window(asking: Explainer, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        asking.explain(question=QUESTION, context=MANY, **options)


def test_a_question_that_fills_the_window(asking: Explainer) -> None:
    with pytest.raises(BadInput, match="nothing is left of the long one"):
        asking.explain(question=MANY, context=MANY)
    with pytest.raises(BadInput, match=r"text 1 \(counted from 0\): a window holds"):
        asking.explain(question=[QUESTION, MANY], context=[CONTEXT, MANY])


# Questions


@pytest.mark.parametrize("seed", [1, 10, 22])
def test_the_best_answer_over_all_windows_is_explained(seed: int) -> None:
    explainer = Explainer(answering(seed), tokenizer())
    e = explainer.explain(question=QUESTION, context=f"{MANY} {CONTEXT}", method="attcat")
    windows = windows_of(explainer, (QUESTION, f"{MANY} {CONTEXT}"))
    logits = [ends(explainer, window) for window in windows]
    spans = []
    for number, (window, both) in enumerate(zip(windows, logits, strict=True)):
        places = window.context
        spans += [(float(both[0, a] + both[1, b]), number, (a, b)) for a in places for b in places if 0 <= b - a < 30]
    best, nothing = max(spans), min((float(both[:, 0].sum()), n) for n, both in enumerate(logits))
    number, tokens = (nothing[1], (0, 0)) if nothing[0] > best[0] else best[1:]
    assert e.diagnostics["window"] == {"number": number, "count": len(windows)}
    assert e.prediction.span is not None
    assert e.prediction.span.tokens == tokens
    assert e.units == windows[number].units
    np.testing.assert_allclose(e.scores, scores_of(explainer, windows[number], "attcat", tokens), rtol=0, atol=1e-12)
    if tokens != (0, 0):
        characters = e.prediction.span.characters
        assert characters is not None
        assert e.texts[1][slice(*characters)] == e.prediction.label


def test_no_answer_is_explained_where_its_score_is_smallest(asking: Explainer) -> None:
    windows = windows_of(asking, (QUESTION, MANY))
    nothing = [float(ends(asking, window)[:, 0].sum()) for window in windows]
    e = asking.explain(question=QUESTION, context=MANY, target="(no answer)", method="rollout")
    assert e.diagnostics["window"]["number"] == nothing.index(min(nothing))


def test_an_answer_in_one_window_is_enough(asking: Explainer) -> None:
    windows = windows_of(asking, (QUESTION, MANY))
    logits = [torch.zeros(2, len(window)) for window in windows]
    for number, both in enumerate(logits):
        both[:, 0] = 10.0 - number  # no answer: 20, 18, 16 …
    assert best_window(logits, windows) == len(windows) - 1
    logits[2][0, windows[2].context[3]] = logits[2][1, windows[2].context[5]] = 9.0  # 18, and the smallest is less
    assert best_window(logits, windows) == 2
    engine = WindowRunner(asking.subject.model, windows)
    engine._ends_of = lambda _: torch.stack([F.pad(b, (0, engine.width - b.shape[1])) for b in logits])  # type: ignore[method-assign, assignment]
    logits[2][:, 0] = 50.0  # the window's own score of no answer is not the smallest, and does not count
    chosen = engine.explained(windows)
    outputs = ModelOutputs(logits[2][None], Answers(), torch.ones(1, len(chosen), dtype=torch.bool))
    answer = Answers().best_in(ExampleOutputs(outputs, 0, chosen))
    assert answer == (windows[2].context[3], windows[2].context[5])


def test_a_target_is_explained_where_it_first_stands(asking: Explainer) -> None:
    context = f"{MANY} The Denver Broncos were better. {MANY} The Denver Broncos lost."
    windows = windows_of(asking, (QUESTION, context))
    standing = [n for n, w in enumerate(windows) if any(unit.text == "Denver" for unit in w.units)]
    first = [n for n in standing if n < standing[-1] - 2]
    for high in standing:  # a place further on may have a higher score, but is another place
        logits = [torch.full((2, len(window)), float(number == high)) for number, window in enumerate(windows)]
        expected = high if high in first else first[0]
        assert best_window(logits, windows, "Denver Broncos") == expected
    e = asking.explain(question=QUESTION, context=context, target="Denver Broncos", method="rollout")
    assert e.target.span is not None
    assert e.target.span.characters == (len(MANY) + 5, len(MANY) + 19)
    both: Any = asking.explain(question=QUESTION, context=context, target=["Denver Broncos", "lost."], method="rollout")
    assert [one.target.name for one in both] == ["Denver Broncos", "lost."]
    assert both[0].diagnostics["window"] == e.diagnostics["window"]
    with pytest.raises(BadOption, match="does not stand in the context: copy"):
        asking.explain(question=QUESTION, context=context, target="Panthers")
    with pytest.raises(BadOption, match=r"read in \d+ windows, so an answer is given by its text"):
        asking.explain(question=QUESTION, context=context, target=(12, 13))
    with pytest.raises(BadOption, match="does not stand in the window of the context that is explained"):
        asking.explain(question=QUESTION, context=f"Denver {context}", target="lost.", versus="better.")


def test_long_and_short_contexts_stand_beside_each_other(asking: Explainer) -> None:
    questions = [QUESTION, "Who lost?", QUESTION]
    contexts = [MANY, CONTEXT, f"{CONTEXT} {MANY}"]
    together = asking.explain(question=questions, context=contexts, method="attcat")
    for e, question, context in zip(together, questions, contexts, strict=True):
        alone = asking.explain(question=question, context=context, method="attcat")
        assert (e.prediction.span, e.units) == (alone.prediction.span, alone.units)
        np.testing.assert_allclose(e.scores, alone.scores, rtol=0, atol=1e-10)


def test_people_are_told_which_window_it_is(asking: Explainer) -> None:
    e = asking.explain(question=QUESTION, context=MANY, method="rollout")
    count, number = e.diagnostics["window"]["count"], e.diagnostics["window"]["number"] + 1
    told = f"the context is read in {count} windows, and number {number} is explained"
    assert told in " ".join(str(e).split())
    assert Explanation.from_dict(e.to_dict()).diagnostics["window"] == e.diagnostics["window"]


def test_answers_outside_the_window_are_missed() -> None:
    """By hand: the top 20 tokens of the explained window, and how many of the gold answer are among them."""
    asking, context = Explainer(answering(2), tokenizer()), f"{MANY} The Denver Broncos were better."
    e = asking.explain(question=QUESTION, context=context, method="attcat")
    ranked = sorted((n for n, u in enumerate(e.units) if not u.special), key=lambda place: -e.scores[place])[:20]
    (low, _), *_, (_, high) = [unit.span for unit in e.units if unit.part == 1 and unit.span]
    best = next(e.units[place].span for place in ranked if e.units[place].part == 1)
    outside = next(span for span in ((0, 11), (len(context) - 19, len(context) - 12)) if not low < span[1] <= high)
    rows = [
        {"question": QUESTION, "context": context, "answers": {"text": [context[a:b]], "answer_start": [a]}}
        for a, b in (best, outside)
    ]
    spans = [unit.span for unit in encode(asking.subject, (QUESTION, context), whole=True).units if unit.part == 1]
    lengths = [sum(bool(span and span[0] < b and a < span[1]) for span in spans) for a, b in (best, outside)]
    assert lengths[0] == 1 < lengths[1]
    for measure, expected in (("count", 1 / 2), ("ratio", 1 / sum(lengths))):
        written = f"precision_at_k(k=20, measure={measure})"
        table = evaluate(asking.subject, rows, "attcat", written, progress=False)
        cell = table["attcat", metric_specs(written)[0].label]
        assert cell is not None
        assert cell.mean == pytest.approx(expected)


def test_the_command_line(asking: Explainer, run: Run, tmp_path: Path) -> None:
    asking.subject.model.save_pretrained(tmp_path / "model")
    asking.subject.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "context.txt").write_text(MANY)
    asked = ("explain", "--question", QUESTION, "--context-file", tmp_path / "context.txt", "--method", "rollout")
    done = run(*asked, "--model", tmp_path / "model", "--overlap", 8, "--window-size", 50)
    windows = windows_of(asking, (QUESTION, MANY), overlap=8, window_size=50)
    assert done.status == 0
    assert f"the context is read in {len(windows)} windows, and number " in " ".join(done.out.split())
    refused = run(*asked, "--model", tmp_path / "model", "--windows", "merge")
    assert (refused.status, "windows='merge' is for models that give one output" in refused.err) == (2, True)


# Documents


@pytest.mark.parametrize("method", ["attcat", "attn_lrp", "rollout", "input_x_gradient"])
def test_each_token_of_a_document_is_the_mean_over_its_windows(classifying: Explainer, method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        e = classifying.explain(DOCUMENT, method, windows="merge", overlap=7, batch_size=2)
    windows = windows_of(classifying, DOCUMENT, overlap=7)
    assert e.diagnostics == {"windows": len(windows)}
    assert len(windows) > 2
    logits = []
    for window in windows:
        with torch.no_grad():
            tensors = {name: torch.from_numpy(values)[None] for name, values in window.tensors.items()}
            logits.append(classifying.subject.model(**tensors).logits[0].double())
    mean = torch.stack(logits).mean(0)
    assert e.prediction.index == int(mean.argmax())
    np.testing.assert_allclose(e.prediction.logits, mean, rtol=0, atol=1e-6)
    sums, counts = np.zeros(len(e.units)), np.zeros(len(e.units))
    for window in windows:
        assert window.window is not None
        sums[window.window.places] += scores_of(classifying, window, method, e.prediction.index)
        counts[window.window.places] += 1
    assert counts.max() > 1
    np.testing.assert_allclose(e.scores, sums / counts, rtol=0, atol=1e-6 * np.abs(e.scores).max())
    other = (e.prediction.index + 1) % len(mean)
    against = classifying.explain(DOCUMENT, method, windows="merge", overlap=7, target=other)
    last = windows[-1].window
    assert last is not None
    alone = last.places[np.isin(last.places, windows[-2].window.places, invert=True)]  # in no other window
    expected = scores_of(classifying, windows[-1], method, other)[np.isin(last.places, alone)]
    np.testing.assert_allclose(against.scores[alone], expected, rtol=0, atol=1e-6 * np.abs(against.scores).max())
    assert "".join(unit.text for unit in e.units if not unit.special) == DOCUMENT.replace(" ", "")


def test_one_window_is_the_plain_explanation(classifying: Explainer) -> None:
    plain = classifying.explain(cases.TEXTS[0], "attcat", versus="runner_up")
    merged = classifying.explain(cases.TEXTS[0], "attcat", versus="runner_up", windows="merge")
    assert (merged.units, merged.target, merged.versus) == (plain.units, plain.target, plain.versus)
    np.testing.assert_allclose(merged.scores, plain.scores, rtol=0, atol=1e-12)
    np.testing.assert_allclose(merged.layers, plain.layers, rtol=0, atol=1e-12)
    np.testing.assert_allclose(merged.prediction.logits, plain.prediction.logits, rtol=0, atol=1e-12)


def test_documents_in_lists_by_target_and_compared(classifying: Explainer) -> None:
    both = classifying.explain([DOCUMENT, cases.TEXTS[0]], "attcat", windows="merge", target=[0, 1])
    assert [e.target.index for e in both] == [0, 1]
    alone: Any = classifying.explain(DOCUMENT, "attcat", windows="merge", target=[0, 1])
    np.testing.assert_allclose(alone[0].scores, both[0].scores, rtol=0, atol=1e-10)
    compared = classifying.compare(DOCUMENT, ["attcat", "rollout"], windows="merge", target=0)
    np.testing.assert_allclose(compared[0].scores, both[0].scores, rtol=0, atol=1e-10)
    assert "the mean over" in str(both[0])


def test_what_merging_refuses(classifying: Explainer, asking: Explainer) -> None:
    with pytest.raises(BadOption, match=r"takes means of scores, and stepwise.* ranks the units of one window"):
        classifying.explain(DOCUMENT, "stepwise", windows="merge")
    with pytest.raises(
        BadOption, match="windows='merge' is for models that give one output for a text; this one answers"
    ):
        asking.explain(question=QUESTION, context=MANY, windows="merge")
    with pytest.raises(BadOption, match="window_size and overlap are for the contexts of questions"):
        classifying.explain(DOCUMENT, window_size=20)
    with pytest.raises(BadOption, match="window_size and overlap are for the contexts of questions"):
        evaluate(classifying.subject, [{"text": "a", "label": 0}], overlap=20)
    e = classifying.explain(DOCUMENT, "attcat", windows="merge")
    with pytest.raises(BadInput, match="the mean over several"):
        classifying.trust([e])
