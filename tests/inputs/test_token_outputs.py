"""Outputs that are said at a token: labels, masked words, next tokens; how people ask for them and read them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import cases, families
from tests.helpers.token_outputs import ASKED, EACH, LABELS, explainer, texts
from whyformer import BadInput, BadOption, Explainer, Explanation, UnsupportedModel
from whyformer.inputs.units import join_words
from whyformer.show.layout import pieces
from whyformer.tasks import task_of

TEXT = "the film Paris is fine, and Paris is bad"
METHOD = "cat(states=inputs)"
each = pytest.mark.parametrize(("task", "kind"), EACH)


def logits(own: Explainer, text: str) -> torch.Tensor:
    inputs = own.subject.tokenizer(text, return_tensors="pt")
    inputs = {n: t for n, t in inputs.items() if n != "token_type_ids" or own.subject.model.config.model_type == "bert"}
    with torch.no_grad():
        return own.subject.model(**inputs).logits[0]


# What is predicted, and what is read of it


@each
def test_the_prediction_is_that_of_the_model_at_the_place(task: str, kind: str) -> None:
    own = explainer(task, kind)
    for text in texts(task, kind):
        e = own.explain(text, METHOD, **ASKED[task])
        assert e.target.place is not None
        row = logits(own, text)[e.target.place.token]
        assert e.prediction.index == e.target.index == int(row.argmax())
        assert e.prediction.probability == pytest.approx(float(row.softmax(-1).max()))
        kept = e.prediction.indices or range(len(row))
        assert e.prediction.logits == pytest.approx(row[list(kept)].tolist())
        assert len(e.prediction.labels) == len(e.prediction.logits) == min(10, len(row))
        assert e.prediction.title == e.target.title
        if task == "next_token":
            assert e.target.place.token == len(e.units) - 1
        if task == "masked_word":
            assert e.units[e.target.place.token].text in ("[MASK]", "<mask>")


def test_titles_for_people() -> None:
    labels = explainer("token_labels", "bert").explain(TEXT, METHOD, word="Paris", target="B-LOC", versus="O")
    assert (labels.target.title, labels.versus and labels.versus.title) == ("Paris → B-LOC", "O")
    masked = explainer("masked_word", "bert").explain("the [MASK] is bad", METHOD, target="film", versus="fine")
    assert (masked.target.title, masked.versus and masked.versus.title) == ("[MASK] → film", "fine")
    following = explainer("next_token", "gpt2").explain("the film is", METHOD, target="fine", versus="bad")
    assert (following.target.title, following.versus and following.versus.title) == ('next token " fine"', '" bad"')
    inside = explainer("next_token", "gpt2").explain("the film is", METHOD, target=" film", position=0)
    assert inside.target.title == 'next token " film" after "the"'
    for e, said in (
        (labels, "why Paris → B-LOC rather than O?"),
        (following, 'why next token " fine" rather than " bad"?'),
    ):
        assert said in str(e)
        assert e.figure() is not None


def test_the_word_and_the_mask_are_marked(tmp_path: Path) -> None:
    e = explainer("token_labels", "bert").explain(TEXT, METHOD, word=("Paris", 2))
    assert e.target.place is not None
    assert e.target.place.characters == (28, 33)
    page = e.to_html(tmp_path / "why.html").read_text()
    assert '<span class="answer">here</span>' in page
    assert "".join(piece.text for piece in pieces(e) if piece.answer) == "Paris"
    marked = [piece.position for piece in pieces(e) if piece.answer and piece.position is not None]
    assert marked == list(range(e.target.place.token, e.target.place.token + 5))  # its tokens are letters
    end = explainer("next_token", "gpt2").explain("the film is", METHOD)
    assert ">here<" not in end.to_html(tmp_path / "end.html").read_text()


@each
def test_explanations_are_saved_and_loaded(task: str, kind: str, tmp_path: Path) -> None:
    e = explainer(task, kind).explain(texts(task, kind)[0], METHOD, **ASKED[task], versus="runner_up")
    again = Explanation.load(e.save(tmp_path / "why.json"))
    assert (again.prediction, again.target, again.versus) == (e.prediction, e.target, e.versus)
    assert str(again) == str(e)
    saved = json.loads((tmp_path / "why.json").read_text())
    saved["target"]["index"] = 10**6
    (tmp_path / "why.json").write_text(json.dumps(saved))
    with pytest.raises(BadInput, match=r"target.index"):
        Explanation.load(tmp_path / "why.json")


def test_a_place_behind_the_text_is_refused(tmp_path: Path) -> None:
    e = explainer("token_labels", "bert").explain(TEXT, METHOD, word=0)
    saved = e.to_dict()
    saved["target"]["place"]["characters"] = [0, 1000]
    with pytest.raises(BadInput, match=r"target.place.characters"):
        Explanation.from_dict(saved)


# How they are asked for


def place(e: Explanation) -> int:
    assert e.target.place is not None
    return e.target.place.token


def test_a_word_is_given_as_written_with_its_occurrence_or_by_its_index() -> None:
    own = explainer("token_labels", "bert")
    first, second, by_index = (own.explain(TEXT, METHOD, word=w) for w in ("Paris", ("Paris", 2), 2))
    units = own.explain(TEXT, METHOD, word="Paris").units
    starts = [n for n, unit in enumerate(units) if unit.span and TEXT[unit.span[0] :].startswith("Paris")]
    assert [place(first), place(second), place(by_index)] == [starts[0], starts[1], starts[0]]  # at the first piece
    assert units[starts[0]].text == "P"
    assert place(own.explain(TEXT, METHOD, position=starts[1])) == starts[1]
    assert place(own.explain("fine", METHOD)) == 1  # the only word
    assert place(own.explain(TEXT, METHOD, word="film Paris")) == 2  # the first token of several words
    both: Any = own.explain(TEXT, METHOD, word=["film", "Paris"])
    assert [place(e) for e in both] == [2, starts[0]]
    several = own.explain([TEXT, "acting"], METHOD, word=["Paris", "acting"])
    assert [place(e) for e in several] == [starts[0], 1]


def test_all_words_with_a_label_are_explained() -> None:
    own = explainer("token_labels", "bert")
    given = [TEXT, "fine", "the actors like it"]
    expected = []
    for text in given:
        scores = logits(own, text)
        units = own.explain(text, "raw_attention", word=0).units
        words = join_words(units, (text,))
        labels = [(members[0], LABELS[int(scores[members[0]].argmax())]) for _, members in words]
        expected.append([(position, label) for position, label in labels if label != "O"])
    assert len({len(one) for one in expected}) > 1  # so turns of different texts end at different times
    for text, labels in zip(given, expected, strict=True):
        every: Any = own.explain(text, METHOD, word="all")
        assert [(place(e), e.target.name) for e in every] == labels
    together = own.explain(given, METHOD, word="all")
    assert [(e.texts[0], place(e)) for e in together] == [
        (text, position) for text, labels in zip(given, expected, strict=True) for position, _ in labels
    ]
    each: list[Any] = [own.explain(text, METHOD, word="all") for text in given]
    alone = [e for explanations in each for e in explanations]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-10)


def test_a_text_without_labels_gives_nothing() -> None:
    own = Explainer(explainer("token_labels", "bert").subject)
    model = hf.BertForTokenClassification(own.subject.model.config).double().eval()
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([1.0, 0, 0, 0]))
    nothing = Explainer(model, own.subject.tokenizer)
    assert len(nothing.explain(TEXT, METHOD, word="all")) == 0
    assert len(nothing.explain([TEXT, "fine"], METHOD, word="all")) == 0


@each
def test_several_targets_of_one_text_give_a_list(task: str, kind: str) -> None:
    own, text = explainer(task, kind), texts(task, kind)[0]
    both: Any = own.explain(text, METHOD, target=[1, 2], **ASKED[task])
    assert [e.target.index for e in both] == [1, 2]
    for index, e in zip((1, 2), both, strict=True):
        alone = own.explain(text, METHOD, target=index, **ASKED[task])
        np.testing.assert_allclose(e.scores, alone.scores, atol=1e-10)
    one_each = own.explain(texts(task, kind), METHOD, target=[1, 2, 3], **ASKED[task])
    assert [e.target.index for e in one_each] == [1, 2, 3]


@each
def test_the_runner_up_is_the_most_probable_other(task: str, kind: str) -> None:
    own, text = explainer(task, kind), texts(task, kind)[0]
    best = own.explain(text, METHOD, versus="runner_up", **ASKED[task])
    row = logits(own, text)[place(best)]
    first, second = row.topk(2).indices.tolist()
    assert (best.target.index, best.versus and best.versus.index) == (first, second)
    other = own.explain(text, METHOD, target=second, versus="runner_up", **ASKED[task])
    assert other.versus is not None
    assert other.versus.index == first
    np.testing.assert_allclose(other.scores, -best.scores, atol=1e-9)
    named = own.explain(text, METHOD, target=first, versus=second, **ASKED[task])
    np.testing.assert_allclose(named.scores, best.scores, atol=1e-9)


def test_a_target_beside_ten_is_kept_with_them() -> None:
    own = explainer("next_token", "gpt2")
    least, most = (int(i) for i in logits(own, "the film is")[-1].argsort()[[0, -1]])
    e = own.explain("the film is", METHOD, target=least)
    assert e.prediction.indices is not None
    assert len(e.prediction.indices) == 11
    assert e.prediction.indices[-1] == least
    assert e.prediction.indices[0] == e.prediction.index == most
    assert sum(e.prediction.probabilities or ()) < 1


@pytest.mark.parametrize(
    ("kind", "text", "target", "piece"),
    [
        ("gpt2", "the film is", "film", "Ġfilm"),
        ("gpt2", "the film is", " film", "Ġfilm"),
        ("gpt2", "the film is ", "film", "Ġfilm"),  # no token without a space
        ("gpt2", "the film is", ",", ","),
        ("gpt2", "the film is", "a", "Ġa"),  # behind a word, a word has a space in front of it
        ("gpt2", "the film is ", "a", "a"),
        ("gpt2", "the film is", "Ġfilm", "Ġfilm"),
        ("llama", "a bad", "film", "▁film"),
        ("llama", "a bad", "ing", "ing"),
    ],
)
def test_a_token_is_given_by_its_text(kind: str, text: str, target: str, piece: str) -> None:
    own = explainer("next_token", kind)
    e = own.explain(text, METHOD, target=target)
    assert own.subject.tokenizer.convert_ids_to_tokens([e.target.index]) == [piece]


@pytest.mark.parametrize(("text", "target", "piece"), [("the <mask> is", "film", "Ġfilm"), ("<mask> is", "the", "the")])
def test_a_masked_word_has_the_space_that_its_place_asks_for(text: str, target: str, piece: str) -> None:
    own = explainer("masked_word", "roberta")
    e = own.explain(text, METHOD, target=target)
    assert own.subject.tokenizer.convert_ids_to_tokens([e.target.index]) == [piece]
    assert e.target.name == target


WRONG: dict[str, tuple[str, str, str, dict[str, Any], type[Exception], str]] = {
    "no word": ("token_labels", "bert", TEXT, {}, BadOption, "say which word with word="),
    "not there": ("token_labels", "bert", TEXT, {"word": "Rome"}, BadInput, "'Rome' does not stand in the text"),
    "third": ("token_labels", "bert", TEXT, {"word": ("Paris", 3)}, BadInput, "so often: it does 2 times"),
    "zeroth": ("token_labels", "bert", TEXT, {"word": ("film", 0)}, BadInput, "so often: it does once"),
    "index": ("token_labels", "bert", TEXT, {"word": 99}, BadOption, "the words of this text are 0 … 9"),
    "kind": ("token_labels", "bert", TEXT, {"word": 1.5}, BadOption, "give a word as it is written"),
    "both": ("token_labels", "bert", TEXT, {"word": 1, "position": 1}, BadOption, "not both"),
    "position": (
        "token_labels",
        "bert",
        "fine",
        {"position": 9},
        BadOption,
        "the tokens of this text, special ones too, are 0 … 2",
    ),
    "label": ("token_labels", "bert", "fine", {"target": "B-ORG"}, BadOption, "'B-ORG' is no label of this model"),
    "cut off": (
        *("token_labels", "bert", " ".join(["a"] * 80) + " film", {"word": "film"}, BadInput),
        "stands in a part of the text that the model does not see",
    ),
    "no mask": ("masked_word", "bert", "the film", {}, BadInput, r"has no \[MASK\]: write \[MASK\] where"),
    "two masks": ("masked_word", "bert", "[MASK] [MASK]", {}, BadOption, "2 masks: say which with position="),
    "third mask": ("masked_word", "bert", "[MASK] [MASK]", {"position": 2}, BadOption, "masks of this text are 0 … 1"),
    "a word": ("masked_word", "bert", "[MASK]", {"word": "a"}, BadOption, "means nothing to a model that fills in"),
    "several": ("next_token", "gpt2", "the", {"target": "film is fine"}, BadOption, '3 tokens of this model, " film"'),
    "nothing": ("next_token", "gpt2", "the", {"target": ""}, BadOption, "empty text"),
    "id": ("next_token", "gpt2", "the", {"target": 10**6}, BadOption, "is no output of this model"),
    "unknown": ("masked_word", "bert", "[MASK]", {"target": "é東"}, BadOption, "is not in the vocabulary"),
    "same": ("next_token", "gpt2", "the", {"target": 5, "versus": 5}, BadOption, "target and versus are the same"),
    "question": ("next_token", "gpt2", "the", {"question": "a", "context": "b"}, BadInput, "answers no questions"),
    "lists": ("next_token", "gpt2", "the", {"target": [1, 2], "versus": [3]}, BadInput, "lists of different lengths"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("ignore::whyformer.TruncationWarning")
def test_what_is_wrong_is_said(name: str) -> None:
    task, kind, text, asked, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        explainer(task, kind).explain(text, METHOD, **asked)


def test_which_text_lacks_a_word_is_said() -> None:
    with pytest.raises(BadInput, match=r"text 1 \(counted from 0\): word='film' does not stand"):
        explainer("token_labels", "bert").explain(["a film", "fine"], METHOD, word="film")


def test_one_of_several_masks_is_chosen() -> None:
    own = explainer("masked_word", "bert")
    assert [place(own.explain("[MASK] is [MASK]", METHOD, position=n)) for n in (0, 1)] == [1, 3]
    assert place(own.explain("[MASK] is [MASK]", METHOD, position=np.int64(1))) == 3
    both: Any = own.explain("[MASK] is [MASK]", METHOD, position=torch.tensor([0, 1]))
    assert [place(e) for e in both] == [1, 3]


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    model = explainer("masked_word", "bert").subject.model
    with pytest.raises(UnsupportedModel, match="its tokenizer has no mask token"):
        Explainer(model, cases.KINDS["bert_without_mask"]()).explain("a film")


@pytest.mark.parametrize("asked", [{"word": "fine"}, {"position": 1}], ids=str)
def test_a_classifier_has_no_words_and_positions(asked: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="means nothing to a model that classifies whole inputs"):
        Explainer(cases.subject()).explain("fine acting", METHOD, **asked)


# Ready tensors


@each
def test_scores_are_those_of_ready_tensors(task: str, kind: str) -> None:
    own, text = explainer(task, kind), texts(task, kind)[0]
    e = own.explain(text, "attn_lrp", target=1, **ASKED[task])
    inputs = dict(own.subject.tokenizer(text, return_tensors="pt"))
    if kind != "bert":
        inputs.pop("token_type_ids", None)
    scores = whyformer.attribute(own.subject.model, inputs, "attn_lrp", target=(1, place(e)))
    np.testing.assert_allclose(e.scores, scores[0].numpy(), atol=1e-9)


def test_a_label_by_name_in_ready_tensors() -> None:
    own = explainer("token_labels", "bert")
    inputs = own.subject.tokenizer(["the film is fine"], return_tensors="pt")
    named, numbered = (whyformer.attribute(own.subject.model, inputs, "cat", target=(t, 2)) for t in ("B-LOC", 1))
    assert torch.equal(named, numbered)


@each
def test_they_come_from_folders_and_pipelines(task: str, kind: str, tmp_path: Path) -> None:
    own, text = explainer(task, kind), texts(task, kind)[0]
    own.subject.model.save_pretrained(tmp_path)
    own.subject.tokenizer.save_pretrained(tmp_path)
    loaded = Explainer.load(tmp_path)
    assert loaded.subject.task == task
    expected, found = (x.explain(text, METHOD, **ASKED[task]) for x in (own, loaded))
    assert found.target == expected.target
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-9)


@each
def test_metrics_refuse_them_by_name(task: str, kind: str) -> None:
    own = explainer(task, kind)
    with pytest.raises(BadOption, match="aopc is for models that classify; this one"):
        own.evaluate(["a film", "fine"], "attcat", metrics="aopc")


# The task of a model


@pytest.mark.parametrize(
    ("model", "task"),
    [
        (hf.XLMWithLMHeadModel, "masked_word"),
        (hf.GPT2LMHeadModel, "next_token"),
        (hf.BertForPreTraining, None),
        (hf.ViTForImageClassification, "classes"),
        (hf.GPT2ForTokenClassification, "token_labels"),
    ],
)
def test_the_task_is_that_of_transformers_mappings(model: Any, task: str | None) -> None:
    with torch.device("meta"):
        found = task_of(model(model.config_class()))
    assert (found and found.name) == task


def test_an_answer_has_a_runner_up() -> None:
    from tests.helpers import questions

    own = Explainer(questions.answering(), questions.tokenizer())
    e = own.explain(question=questions.QUESTION, context=questions.CONTEXT, method="cat", versus="runner_up")
    assert e.target.span is not None
    assert e.versus is not None
    assert e.versus.span is not None
    (first, last), (start, end) = e.target.span.tokens, e.versus.span.tokens
    assert end < first or last < start
    inputs = own.subject.tokenizer(questions.QUESTION, questions.CONTEXT, return_tensors="pt")
    with torch.no_grad():
        output = own.subject.model(**inputs)
    starts, ends = output.start_logits[0].tolist(), output.end_logits[0].tolist()
    context = [n for n, unit in enumerate(e.units) if unit.part == 1]
    spans = [
        (starts[a] + ends[b], a, b) for a in context for b in context if a <= b < a + 30 and (b < first or last < a)
    ]
    spans += [] if first == 0 else [(starts[0] + ends[0], 0, 0)]
    assert (start, end) == max(spans)[1:]


def test_runners_up_of_ready_tensors() -> None:
    model, inputs = families.build("bert"), families.batch()
    scores = whyformer.record(model, inputs).logits
    order = scores.argsort(-1)
    found = whyformer.attribute(model, inputs, "cat", versus="runner_up")
    expected = whyformer.attribute(model, inputs, "cat", target=order[:, -1], versus=order[:, -2])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
