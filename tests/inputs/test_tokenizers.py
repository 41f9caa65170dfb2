"""Real tokenizers of every kind, built offline: units, words, pairs, batches and truncation."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch
import transformers as hf

from tests.helpers.tokenizer_kinds import PAIR, TEXTS, WINDOW, WORDS, Slow, every_kind, explainer, wordpiece
from whyformer import BadOption, Explainer, Explanation, TruncationWarning
from whyformer.inputs.batch import window_of

SPECIAL = {"wordpiece": (2, 3), "gpt2": (0, 0), "roberta": (2, 4), "unigram": (2, 4), "llama": (1, 2), "slow": (2, 3)}
WITH_TYPES = ("wordpiece", "slow")  # the models that tell the two texts of a pair apart


@cache
def explained(kind: str, text: str | tuple[str, str]) -> Explanation:
    return explainer(kind).explain(text)


def text_of(kind: str, tokens: int, pair: bool = False) -> str | tuple[str, str]:
    """A text, or a pair, of that many tokens, special ones included."""
    tokenizer = explainer(kind).subject.tokenizer
    for words in range(1, 2 * tokens):
        text = " ".join(["a"] * words)
        texts = (text, "a a a") if pair else (text,)
        if len(tokenizer(*texts)["input_ids"]) == tokens:
            return texts if pair else text  # type: ignore[return-value]
    raise AssertionError(f"{kind} gives no text of {tokens} tokens")


@every_kind
@pytest.mark.parametrize("text", [*TEXTS, PAIR], ids=repr)
def test_spans_slice_back_to_the_text(kind: str, text: str | tuple[str, str]) -> None:
    e = explained(kind, text)
    texts = (text,) if isinstance(text, str) else text
    assert e.texts == texts
    tokens = [u for u in e.units if not u.special]
    assert all(u.part is not None and u.span is not None and u.text == texts[u.part][slice(*u.span)] for u in tokens)
    assert all(u.text == u.text.strip() or not u.text.strip() for u in tokens)
    for part, whole in enumerate(texts):
        covered = {i for u in tokens if u.part == part and u.span for i in range(*u.span)}
        assert {i for i, c in enumerate(whole) if not c.isspace()} <= covered
    places = [(u.part, u.span) for u in tokens]
    assert places == sorted(places)


@every_kind
@pytest.mark.parametrize("text", [TEXTS[0], PAIR], ids=["single", "pair"])
def test_the_model_sees_what_its_tokenizer_gives(kind: str, text: str | tuple[str, str]) -> None:
    e, subject = explained(kind, text), explainer(kind).subject
    texts = (text,) if isinstance(text, str) else text
    encoding = subject.tokenizer(*texts, return_tensors="pt")
    assert [u.piece for u in e.units] == subject.tokenizer.convert_ids_to_tokens(encoding["input_ids"][0].tolist())
    encoding = {k: v for k, v in encoding.items() if kind in WITH_TYPES or k != "token_type_ids"}
    with torch.no_grad():
        expected = subject.model(**encoding).logits[0]
    np.testing.assert_allclose(e.prediction.logits, expected, rtol=0, atol=1e-12)


@every_kind
def test_special_tokens_are_flagged(kind: str) -> None:
    tokenizer = explainer(kind).subject.tokenizer
    for text, count in zip((TEXTS[0], PAIR), SPECIAL[kind], strict=True):
        special = [u for u in explained(kind, text).units if u.special]
        assert len(special) == count
        assert all(u.span is None and u.part is None and u.piece in tokenizer.all_special_tokens for u in special)


@every_kind
@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_every_tokenizer_gives_the_same_words(kind: str, text: str) -> None:
    e = explained(kind, text)
    words = e.words()
    assert [w.text for w in words] == WORDS[text]
    assert all(w.unit.kind == "word" and w.unit.span and text[slice(*w.unit.span)] == w.text for w in words)
    tokens = [s for u, s in zip(e.units, e.scores, strict=True) if not u.special]
    np.testing.assert_allclose(sum(w.score for w in words), sum(tokens), rtol=1e-9, atol=1e-15)


@every_kind
@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_the_maximum_of_a_word_is_the_highest_score_of_its_tokens(kind: str, text: str) -> None:
    e = explained(kind, text)
    scores = {w.unit.span: w.score for w in e.words(combine="max")}
    tokens = [(u.span, float(s)) for u, s in zip(e.units, e.scores, strict=True) if not u.special and u.span]
    assert max(scores.values()) == max(s for _, s in tokens)
    for (start, end), score in scores.items():
        inside = [s for span, s in tokens if span[0] < end and start < span[1]]
        assert score >= max(inside)
        if "  " not in text and "\n" not in text:  # else blanks that are tokens of their own are counted too
            blank = [s for span, s in tokens if not text[slice(*span)].strip()]
            assert score in [max(inside), *blank]


@every_kind
def test_words_do_not_cross_from_one_text_into_the_other(kind: str) -> None:
    words = explained(kind, PAIR).words()
    for part, text in enumerate(PAIR):
        assert [w.text for w in words if w.unit.part == part] == text.split()
    assert [w.text for w in words] == [*PAIR[0].split(), *PAIR[1].split()]


@every_kind
def test_a_batch_gives_the_scores_of_each_text_alone(kind: str) -> None:
    together = explainer(kind).explain([*TEXTS, PAIR, "a"], batch_size=3)
    assert [e.texts for e in together] == [*((t,) for t in TEXTS), PAIR, ("a",)]
    assert len({len(e.units) for e in together}) > 3
    for e in together:
        alone = explained(kind, e.texts if len(e.texts) > 1 else e.texts[0])
        assert e.units == alone.units
        np.testing.assert_allclose(e.scores, alone.scores, rtol=0, atol=1e-10 * np.abs(alone.scores).max())
    if kind == "gpt2":
        assert explainer(kind).subject.tokenizer.pad_token_id is None
        assert explainer(kind).subject.model.config.pad_token_id is None


@every_kind
@pytest.mark.parametrize("pair", [False, True], ids=["single", "pair"])
def test_what_does_not_fit_is_dropped_and_counted(kind: str, pair: bool) -> None:
    window = window_of(explainer(kind).subject)
    fitting, long = text_of(kind, window, pair), text_of(kind, window + 5, pair)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = explainer(kind).explain(fitting)
    assert len(whole.units) == window
    assert "dropped_tokens" not in whole.diagnostics
    with pytest.warns(TruncationWarning, match=rf"^{window + 5} tokens.* {window}: 5 were dropped$"):
        cut = explainer(kind).explain(long)
    assert cut.diagnostics["dropped_tokens"] == 5
    assert [u.piece for u in cut.units] == [u.piece for u in whole.units]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("roberta", WINDOW - 2), ("unigram", WINDOW - 2), ("gpt2", WINDOW), ("llama", WINDOW), ("wordpiece", WINDOW)],
)
def test_the_window_is_what_the_position_table_holds(kind: str, expected: int) -> None:
    """RoBERTa's positions begin behind its padding index, which is 1."""
    assert window_of(explainer(kind).subject) == expected


def test_the_tokenizer_may_be_stricter_than_the_model() -> None:
    tokenizer = wordpiece()
    tokenizer.model_max_length = 7
    with pytest.warns(TruncationWarning, match=r"^12 tokens.* 7: 5 were dropped$"):
        e = Explainer(explainer("wordpiece").subject.model, tokenizer).explain(" ".join("a" * 10))
    assert len(e.units) == 7


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "slow"])
def test_an_unknown_word_keeps_its_own_score(kind: str) -> None:
    e = explainer(kind).explain("a ЖЖЖ film")
    unknown = next(i for i, u in enumerate(e.units) if u.piece in ("[UNK]", "<unk>"))
    words = e.words()
    assert [w.text for w in words] == ["a", "ЖЖЖ", "film"]
    assert kind == "unigram" or words[1].score == e.scores[unknown]


def test_a_slow_tokenizer_may_put_nothing_between_two_texts() -> None:
    e = Explainer(explainer("slow").subject.model, Slow(special_tokens_pattern="none")).explain(PAIR)
    assert [u.part for u in e.units].count(1) == len(Slow().tokenize(PAIR[1]))
    assert [w.text for w in e.words()] == [*PAIR[0].split(), *PAIR[1].split()]


@pytest.mark.parametrize("text", ["cafe\u0301 fermé", "हिन्दी फिल्म", "❤️ film"], ids=ascii)
def test_a_combining_mark_belongs_to_its_letter(text: str) -> None:
    """The accent of a decomposed letter, a vowel sign, a variation selector: none is a word of its own."""
    assert [w.text for w in explained("roberta", text).words()] == text.split()


@every_kind
@pytest.mark.parametrize("side", ["right", "left"])
def test_an_answer_stands_in_the_context_whatever_the_tokenizer(kind: str, side: str) -> None:
    asking = explainer(kind, hf.AutoModelForQuestionAnswering, 2)
    tokenizer, (question, context) = asking.subject.tokenizer, PAIR
    tokenizer.padding_side = side
    short, e = asking.explain(question=["a", question], context=["the film", context])
    tokenizer.padding_side = "right"
    encoding = tokenizer(question, context, return_tensors="pt")
    assert [u.piece for u in e.units] == tokenizer.convert_ids_to_tokens(encoding["input_ids"][0].tolist())
    assert short.texts == ("a", "the film")
    with torch.no_grad():
        said = asking.subject.model(
            **{k: v for k, v in encoding.items() if k != "token_type_ids" or kind in WITH_TYPES}
        )
    start, end = said.start_logits[0], said.end_logits[0]
    inside = [i for i, u in enumerate(e.units) if u.part == 1]
    none = [] if kind == "gpt2" else [(0, 0)]
    spans = [*none, *((a, b) for a in inside for b in inside if 0 <= b - a < 30)]
    best = max(spans, key=lambda span: float(start[span[0]] + end[span[1]]))
    assert e.prediction.span
    assert e.prediction.span.tokens == best
    for target in ("other begins", "the other"):
        named = asking.explain(question=question, context=context, target=target, method="rollout").target
        place = context.index(target)
        assert named.span
        assert (named.name, named.span.characters) == (target, (place, place + len(target)))


def test_without_special_tokens_there_is_always_an_answer() -> None:
    asking = explainer("gpt2", hf.AutoModelForQuestionAnswering, 2)
    with pytest.raises(BadOption, match=r"is no answer: .*, where the context stands$"):
        asking.explain(question=PAIR[0], context=PAIR[1], target=(0, 0))
    with pytest.raises(BadOption, match="does not stand in the context"):
        asking.explain(question=PAIR[0], context=PAIR[1], target="(no answer)")
