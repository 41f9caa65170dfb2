"""Question answering: which answer is explained, what its explanation holds, and how it is shown and saved."""

import dataclasses
import io
import json
import re
import types
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

import whyformer
from tests.helpers import families
from tests.helpers.evaluated import alike
from tests.helpers.questions import CONTEXT, LONG, QUESTION, QUESTIONS, WINDOW, answering, tokenizer
from whyformer import BadInput, BadOption, Comparison, Explainer, Explanation, UnsupportedModel, WhyformerError
from whyformer.tasks.targets import AnswerSpan, Label


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer(answering(), tokenizer())


@pytest.fixture(scope="module")
def folder(explainer: Explainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "answers"
    explainer.subject.model.save_pretrained(folder)
    explainer.subject.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def explained(explainer: Explainer) -> Explanation:
    """Of an answer that is several tokens and words long."""
    return explainer.explain(question=QUESTION, context=CONTEXT, target="Denver Broncos")


def tensors(explainer: Explainer, question: str, context: str) -> dict[str, torch.Tensor]:
    return dict(explainer.subject.tokenizer(question, context, return_tensors="pt"))


def outputs(explainer: Explainer, question: str, context: str) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        said = explainer.subject.model(**tensors(explainer, question, context))
    return said.start_logits[0], said.end_logits[0]


def best_answer(e: Explanation, start: torch.Tensor, end: torch.Tensor) -> tuple[int, int]:
    """Every span of the context, one by one, and no answer."""
    inside = [i for i, unit in enumerate(e.units) if unit.part == 1]
    spans = [(first, last) for first in inside for last in inside if 0 <= last - first < 30]
    return max([(0, 0), *spans], key=lambda span: float(start[span[0]] + end[span[1]]))


# What is explained


@pytest.mark.parametrize("seed", [1, 10, 22])
def test_the_best_answer_in_the_context_is_explained_or_none(seed: int) -> None:
    explainer = Explainer(answering(seed), tokenizer())
    kinds, unrestricted = set(), set()
    for question, context in QUESTIONS:
        e = explainer.explain(question=question, context=context)
        start, end = outputs(explainer, question, context)
        first, last = best_answer(e, start, end)
        said = e.prediction
        assert said.span
        assert said.span.tokens == (first, last)
        assert (e.target.index, e.target.name, e.target.span) == (None, said.label, said.span)
        if first == 0:
            assert (said.label, said.span.characters) == ("(no answer)", None)
        else:
            spans = [u.span for u in e.units[first : last + 1] if u.span]
            assert said.span.characters == (spans[0][0], spans[-1][1])
            assert said.label == context[spans[0][0] : spans[-1][1]]
        shares = start.softmax(-1)[first], end.softmax(-1)[last]
        assert said.probabilities == pytest.approx([float(s) for s in shares], abs=1e-12)
        assert said.probability == pytest.approx(float(shares[0] * shares[1]), abs=1e-12)
        assert said.logits == pytest.approx((float(start[first]), float(end[last])), abs=1e-12)
        assert (said.index, said.labels) == (None, ("start", "end"))
        kinds.add(first == 0)
        unrestricted.add((int(start.argmax()), int(end.argmax())) == (first, last))
    assert kinds == {True, False}
    assert unrestricted == {True, False}


def test_scores_are_those_of_start_and_end(explainer: Explainer, explained: Explanation) -> None:
    assert explained.texts == (QUESTION, CONTEXT)
    assert [u.part for u in explained.units if u.special] == [None] * 3
    assert explained.target.span
    inputs = tensors(explainer, QUESTION, CONTEXT)
    scores = whyformer.attribute(explainer.subject.model, inputs, target=explained.target.span.tokens)
    np.testing.assert_allclose(explained.scores, scores[0], rtol=0, atol=1e-12)


def test_every_method_explains_an_answer(explainer: Explainer) -> None:
    found = explainer.compare(question=QUESTION, context=CONTEXT, target="Broncos", methods="all")
    of_texts = {name for name, method in whyformer.list_methods().items() if not method.images_only}
    assert {e.method for e in found} | {name for name, _ in found.refused} == of_texts
    assert {"attcat", "rollout", "transformer_attribution", "input_x_gradient"} <= {e.method for e in found}
    assert {e.target.name for e in found} == {"Broncos"}
    alone = explainer.explain(question=QUESTION, context=CONTEXT, target="Broncos", method="gae")
    np.testing.assert_allclose(alone.scores, next(e for e in found if e.method == "gae").scores, atol=1e-12)


def text_of(explainer: Explainer, target: Any, context: str = CONTEXT) -> tuple[str, tuple[int, int]]:
    e = explainer.explain(question=QUESTION, context=context, target=target, method="rollout")
    assert e.target.span
    return e.target.name, e.target.span.tokens


def test_an_answer_given_by_its_text(explainer: Explainer) -> None:
    assert text_of(explainer, "Denver Broncos") == ("Denver Broncos", (12, 15))
    assert text_of(explainer, "  denver BRONCOS ") == ("Denver Broncos", (12, 15))
    assert text_of(explainer, "Broncos") == ("Broncos", (13, 15))  # the first of two
    assert text_of(explainer, "man") == ("man", (19, 19))  # not in `humans`
    assert text_of(explainer, "uman") == ("humans", (8, 8))
    assert text_of(explainer, "man,\nthe") == ("man,\nthe", (21, 23))
    assert text_of(explainer, "(no answer)") == ("(no answer)", (0, 0))


@pytest.mark.parametrize(
    "target", [(12, 15), [12, 15], torch.tensor([12, 15]), np.array([12, 15]), "12,15", "(12, 15)"]
)
def test_an_answer_given_by_its_tokens(explainer: Explainer, target: Any) -> None:
    assert text_of(explainer, target) == ("Denver Broncos", (12, 15))


@pytest.mark.filterwarnings("ignore::whyformer.UnknownWordsWarning")
def test_numbers_that_stand_in_the_context_are_text(explainer: Explainer) -> None:
    assert text_of(explainer, "7, 8", "they won 7, 8 or 9") == ("7, 8", (9, 11))


@pytest.mark.parametrize("method", ["input_x_gradient", "attcat"])
def test_versus_explains_the_difference(explainer: Explainer, method: str) -> None:
    asked: dict[str, Any] = {"question": QUESTION, "context": CONTEXT, "method": method}
    one, other = (explainer.explain(**asked, target=target).scores for target in ("Denver Broncos", "(no answer)"))
    both = explainer.explain(**asked, target="Denver Broncos", versus="(no answer)")
    assert both.versus == Label(None, "(no answer)", AnswerSpan((0, 0), None))
    np.testing.assert_allclose(both.scores, one - other, atol=1e-10)


# Several


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_a_list_gives_what_each_question_gives_alone(explainer: Explainer, batch_size: int) -> None:
    questions, contexts = (list(texts) for texts in zip(*QUESTIONS, strict=True))
    found = explainer.explain(question=questions, context=contexts, batch_size=batch_size)
    assert [e.texts for e in found] == QUESTIONS
    for e, (question, context) in zip(found, QUESTIONS, strict=True):
        alone = explainer.explain(question=question, context=context)
        assert (e.target, e.units) == (alone.target, alone.units)
        assert e.prediction.probability == pytest.approx(alone.prediction.probability, abs=1e-10)
        np.testing.assert_allclose(e.scores, alone.scores, atol=1e-10 * np.abs(alone.scores).max())


def test_targets_of_a_list(explainer: Explainer) -> None:
    asked: dict[str, Any] = {"question": [QUESTION] * 3, "context": [CONTEXT] * 3, "method": "rollout"}
    predicted = explainer.explain(question=QUESTION, context=CONTEXT).prediction.label
    found = explainer.explain(**asked, target=["Broncos", None, (12, 15)], batch_size=2)
    assert [e.target.name for e in found] == ["Broncos", predicted, "Denver Broncos"]
    assert [e.target.name for e in explainer.explain(**asked, target=(12, 15))] == ["Denver Broncos"] * 3
    assert [e.target.name for e in explainer.explain(**asked, target="Broncos")] == ["Broncos"] * 3
    assert list(explainer.explain(question=[], context=[])) == []


def test_a_stream_is_lazy(explainer: Explainer) -> None:
    stream = explainer.stream(question=["Who won?", ""], context=[LONG, LONG], batch_size=1)
    assert next(stream).texts == ("Who won?", LONG)
    with pytest.raises(BadInput, match="the question is empty"):
        next(stream)


# Where models come from


def test_a_folder_a_pipeline_and_a_wrapped_model(explainer: Explainer, folder: Path) -> None:
    expected = explainer.explain(question=QUESTION, context=CONTEXT)
    subject = explainer.subject
    pipeline = types.SimpleNamespace(model=subject.model, tokenizer=subject.tokenizer)
    for other in (
        Explainer.load(folder),
        Explainer(pipeline),
        Explainer(nn.DataParallel(subject.model), subject.tokenizer),
    ):
        assert other.subject.task == "answer"
        found = other.explain(question=QUESTION, context=CONTEXT)
        assert found.target == expected.target
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-10)
    assert Explainer.load("sentiment").subject.task == "classes"


def test_other_models_are_refused(explainer: Explainer, folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["BertForPreTraining"]}))
    with pytest.raises(
        UnsupportedModel, match=r"holds BertForPreTraining; a sequence classifier .* or a model …ForQuestionAnswering"
    ):
        Explainer.load(tmp_path)
    model = type("Tagger", (hf.BertForTokenClassification,), {})(families.CONFIGS["bert"]())
    with pytest.raises(UnsupportedModel, match="gives logits at every position, not the logits of classes"):
        Explainer(model, explainer.subject.tokenizer).explain("who won?")


# What can be wrong

Case = tuple[Callable[[Explainer], Any], type[WhyformerError], str]
GIVE_BOTH = r"give question= and context= \(--question and --context\)"
WRONG: dict[str, Case] = {
    "nothing": (lambda e: e.explain(), BadInput, GIVE_BOTH),
    "text": (lambda e: e.explain(QUESTION), BadInput, GIVE_BOTH),
    "texts": (lambda e: e.explain([QUESTION]), BadInput, GIVE_BOTH),
    "pair": (lambda e: e.explain((QUESTION, CONTEXT)), BadInput, GIVE_BOTH),
    "text to compare": (lambda e: e.compare(QUESTION), BadInput, GIVE_BOTH),
    "text as well": (lambda e: e.explain("a", question="b", context="c"), BadInput, "leave the text out"),
    "no context": (lambda e: e.explain(question=QUESTION), BadInput, "give context= too"),
    "no question": (lambda e: e.explain(context=CONTEXT), BadInput, "give question= too"),
    "no contexts": (lambda e: e.explain(question=[QUESTION]), BadInput, "give context= too"),
    "empty question": (lambda e: e.explain(question=" ", context=CONTEXT), BadInput, "the question is empty"),
    "empty context": (lambda e: e.explain(question=QUESTION, context="\n"), BadInput, "the context is empty"),
    "number": (lambda e: e.explain(question=3, context=CONTEXT), BadInput, "one question and its context"),
    "number in a list": (lambda e: e.explain(question=["a"], context=[3]), BadInput, "one question and its context"),
    "list and text": (lambda e: e.explain(question=["a"], context="b"), BadInput, "one context for each question"),
    "text and list": (lambda e: e.explain(question="a", context=["b"]), BadInput, "one question and its context"),
    "two and one": (lambda e: e.explain(question=["a", "b"], context=["c"]), BadInput, "2 questions and 1 contexts"),
    "lists to compare": (lambda e: e.compare(question=["a"], context=["b"]), BadInput, "one question and its context"),
    "half a character": (lambda e: e.explain(question="a \ud83d", context="b"), BadInput, "half a character"),
    "too long": (
        lambda e: e.explain(question=f"{LONG} {LONG}", context=CONTEXT),
        BadInput,
        rf"a window holds {WINDOW} tokens, and \d+ of them are special tokens and the other text",
    ),
}
TARGETS: dict[str, tuple[Any, str]] = {
    "not there": ("Panthers", "'Panthers' does not stand in the context: copy the answer from there, or give"),
    "only in the question": ("game", "'game' does not stand in the context"),
    "blank": (" ", "does not stand in the context"),
    "index": (3, "an answer is given by its text, or as"),
    "one half": ((12, None), "an answer is given by its text, or as"),
    "three": ((12, 13, 14), "an answer is given by its text, or as"),
    "backwards": ((15, 12), r"within 7 … 43, where the context stands, or \(0, 0\) for no answer"),
    "in the question": ((1, 2), "is no answer"),
    "from nowhere": ((0, 12), "is no answer"),
    "too far": ((12, 99), "is no answer"),
    "too far in text": ("12,99", "is no answer"),
    "negative": ((-2, 12), "is no answer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_question(explainer: Explainer, name: str) -> None:
    call, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        call(explainer)


@pytest.mark.parametrize("which", ["target", "versus"])
@pytest.mark.parametrize("name", TARGETS)
def test_what_is_wrong_with_an_answer(explainer: Explainer, name: str, which: str) -> None:
    target, message = TARGETS[name]
    for call in (explainer.explain, explainer.compare):
        with pytest.raises(BadOption, match=message):
            call(question=QUESTION, context=CONTEXT, **{which: target})


def test_too_many_answers(explainer: Explainer) -> None:
    with pytest.raises(BadInput, match="2 targets for 1 texts"):
        explainer.explain(question=[QUESTION], context=[CONTEXT], target=["Broncos", "man"])


def test_a_classifier_answers_no_questions() -> None:
    explainer = Explainer.load("sentiment")
    for call in (explainer.explain, explainer.compare):
        with pytest.raises(BadInput, match="this model answers no questions, it classifies whole inputs"):
            call(question=QUESTION, context=CONTEXT)
        with pytest.raises(BadInput, match="a text or a pair"):
            call()


# Files


def fields_of(e: Explanation) -> dict[str, Any]:
    found = {field.name: getattr(e, field.name) for field in dataclasses.fields(e)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


@pytest.mark.parametrize("target", ["Denver Broncos", "(no answer)"])
def test_a_saved_answer_is_the_same(explainer: Explainer, tmp_path: Path, target: str) -> None:
    asked = {"question": QUESTION, "context": CONTEXT, "target": target, "versus": "humans"}
    e = explainer.explain(**asked)
    path = e.save(tmp_path / "e.json")
    assert fields_of(Explanation.load(path)) == fields_of(e)
    found = explainer.compare(**asked, methods=["attcat", "rollout"])
    again = Comparison.load(found.save(tmp_path / "c.json"))
    assert [fields_of(one) for one in again] == [fields_of(one) for one in found]
    data = json.loads(path.read_text(encoding="utf-8"))
    assert (data["schema_version"], data["texts"]) == (2, [QUESTION, CONTEXT])
    assert data["target"]["index"] is None
    assert data["versus"]["span"] == {"tokens": [8, 8], "characters": [4, 10]}
    characters = data["target"]["span"]["characters"]
    assert (CONTEXT[slice(*characters)] if characters else "(no answer)") == data["target"]["name"] == target
    assert data["prediction"]["probability"] == pytest.approx(np.prod(data["prediction"]["probabilities"]))


def test_a_saved_class_has_no_span() -> None:
    data = Explainer.load("sentiment").explain("a film", target=0, versus=1).to_dict()
    assert data["target"] == {"index": 0, "name": "NEGATIVE"}
    assert set(data["prediction"]) == {"label", "index", "probability", "logits", "probabilities", "labels"}
    assert Explanation.from_dict(data).to_dict() == data


# Pictures


def test_text_of_an_answer(explained: Explanation) -> None:
    said = explained.prediction
    lines = str(explained).splitlines()
    assert re.fullmatch(r'Answer: ".*" \d+\.\d %  start \d+\.\d %  end \d+\.\d %', lines[0])
    assert f'"{" ".join(said.label.split())}" {100 * said.probability:.1f} %' in lines[0]
    assert lines[1].split() == ["why", '"Denver', 'Broncos"?', "+", "for", "-", "against", "answer"]
    assert f"\n{QUESTION}\n{CONTEXT}\n" in str(explained)


def test_text_of_no_answer(explainer: Explainer) -> None:
    text = str(explainer.explain(question=QUESTION, context=CONTEXT, target="(no answer)", versus="man,\nthe"))
    assert re.search(r'^why \(no answer\) rather than "man, the"\?   \+ for   - against *$', text, re.MULTILINE)


def test_an_answer_that_stands_several_times_is_told(explainer: Explainer) -> None:
    asked = {"question": QUESTION, "context": CONTEXT, "method": "rollout"}
    several = (
        '"Broncos" stands 2 times in the context, and tokens (13, 15) are explained: give (start, end) for another'
    )
    e = explainer.explain(**asked, target="Broncos")
    assert f"! {several}" in str(e)
    assert several in unescape(e._repr_html_())
    assert "stands" not in str(explainer.explain(**asked, target="Denver Broncos"))
    assert "stands" not in str(explainer.explain(**asked))


@pytest.mark.parametrize("words", [False, True])
def test_the_answer_is_underlined_on_a_page(explained: Explanation, tmp_path: Path, words: bool) -> None:
    e = explained.by_word() if words else explained
    source = e.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    (text,) = re.findall(r'<div class="text [a-z]*">(.*?)</div>', source, re.DOTALL)
    (marked,) = re.findall(r'<span class="answer">((?:<span.*?</span>|[^<])*)</span>', text)
    assert re.sub("<.*?>", "", marked) == "Denver Broncos"
    assert unescape(re.sub("<.*?>", "", text)) == f"{QUESTION}\n{CONTEXT}"
    assert source.count('<span class="answer">the answer</span>') == 1
    assert "<b>better" not in source
    assert f"why {'&quot;'}Denver Broncos{'&quot;'}?" in source


def test_no_answer_is_underlined_nowhere(explainer: Explainer) -> None:
    found = explainer.compare(question=QUESTION, context=CONTEXT, target=(0, 0), methods=["attcat", "rollout"])
    assert 'class="answer"' not in found._repr_html_() + found[0]._repr_html_()
    assert not found.figure().axes[0].patches
    assert "answer" not in str(found).splitlines()[1].removeprefix("why (no answer)")


def test_a_terminal_underlines_the_answer(explained: Explanation) -> None:
    from whyformer.show.terminal import coloured_runs

    text = coloured_runs(explained)
    assert text.plain == f"{QUESTION}\n{CONTEXT}"
    underlined = [span for span in text.spans if getattr(span.style, "underline", False)]
    assert "".join(text.plain[span.start : span.end] for span in underlined) == "Denver Broncos"


@pytest.mark.parametrize("words", [False, True])
def test_a_figure_boxes_the_answer_and_parts_the_texts(explained: Explanation, words: bool) -> None:
    e = explained.by_word() if words else explained
    figure = e.figure(tokens=not words)
    figure.savefig(io.BytesIO(), dpi=40)
    axes = figure.axes[0]
    shown = [u for u in e.units if not u.special]
    (box,) = axes.patches
    first, last = int(box.get_x() + 0.5), int(box.get_x() + box.get_width() - 0.5)  # type: ignore[attr-defined]
    assert (shown[first].text, shown[last].text) == ("Denver", "Broncos" if words else "s")
    (line,) = axes.lines
    place = int(line.get_xdata()[0] + 0.5)
    assert (shown[place - 1].part, shown[place].part) == (0, 1)
    assert axes.get_title(loc="left").endswith('why "Denver Broncos"?')


# The command line


def test_explain_and_compare_on_the_command_line(run: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "context").write_text(f"{CONTEXT}\n")
    asked = ("-m", folder, "--question", QUESTION, "--target", "Denver Broncos", "--versus", "8,8")
    expected = Explainer.load(folder).explain(
        question=QUESTION, context=CONTEXT, target="Denver Broncos", versus="humans"
    )
    for context in (("--context", CONTEXT), ("--context-file", tmp_path / "context")):
        status, out, err = run("explain", *asked, *context, "--html", tmp_path / "page.html")
        assert (status, out, err) == (0, f"{expected}\n", f"whyformer: wrote {tmp_path / 'page.html'}\n")
        status, out, _ = run("explain", *asked, *context, "--json")
        assert status == 0
        assert alike(json.loads(out), json.loads(json.dumps(expected.to_dict())), torch.float32)
        status, out, _ = run("compare", *asked, *context, "--methods", "attcat,rollout", "--words")
        assert status == 0
        assert out.count(CONTEXT.splitlines()[0]) == 2
        assert 'why "Denver Broncos" rather than "humans"?' in out


ON_COMMAND = {
    "text": (["some text"], "this model answers questions: give question= and context="),
    "no context": (["--question", QUESTION], r"give context= too \(--context\)"),
    "no question": (["--context", CONTEXT], "give question= too"),
    "text as well": (["text", "--question", QUESTION, "--context", CONTEXT], "stand alone: leave TEXT, --pair"),
    "twice": (["--question", "a", "--context", "b", "--context-file", "c"], "the context is given twice"),
    "no file": (["--question", "a", "--context-file", "/no/such/file"], "could not read the file '/no/such/file'"),
    "no answer": (["--question", "a", "--context", "b", "--target", "c"], "'c' does not stand in the context"),
    "empty": (["--question", "a", "--context", ""], "the context is empty"),
}


@pytest.mark.parametrize("command", ["explain", "compare"])
@pytest.mark.parametrize("name", ON_COMMAND)
def test_an_error_is_one_line(run: Any, folder: Path, name: str, command: str) -> None:
    arguments, message = ON_COMMAND[name]
    status, out, err = run(command, *arguments, "-m", folder)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("whyformer: error: ")
    assert re.search(message, err)


def test_a_classifier_is_asked_nothing_on_the_command_line(run: Any) -> None:
    status, out, err = run("explain", "--question", QUESTION, "--context", CONTEXT)
    assert (status, out) == (2, "")
    said = "this model answers no questions, it classifies whole inputs: give a text or a pair"
    assert err == f"whyformer: error: {said}\n"
