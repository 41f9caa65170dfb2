"""Texts that are very long, windows that are very small, words and ids that a model does not know; threads."""

import copy
import io
import random
import resource
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import whyformer.inputs.batch
from tests.helpers import families
from tests.helpers.tokenizer_kinds import PAIR, TEXTS, WINDOW, every_kind, explainer, wordpiece
from whyformer import BadInput, Explainer, Explanation, TruncationWarning, UnknownWordsWarning
from whyformer.cli import main
from whyformer.inputs.batch import encode, window_of
from whyformer.inputs.units import join_words, split_words

WORDS = " ".join([*TEXTS, *PAIR]).split()
LONG = " ".join(random.Random(1).choices(WORDS, k=4000))  # about 20,000 characters
MEGABYTES = "a line of the film, and a letter " * 320_000


def answering() -> Explainer:
    return explainer("wordpiece", hf.AutoModelForQuestionAnswering, 2)


# Long texts


@pytest.mark.parametrize(
    "text", [MEGABYTES, (MEGABYTES, "the film"), (MEGABYTES, MEGABYTES)], ids=["one", "pair", "both"]
)
@pytest.mark.parametrize("kind", ["wordpiece", "gpt2", "slow"])
def test_ten_megabytes_are_cut_before_they_are_read(kind: str, text: Any) -> None:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    encoded = encode(explainer(kind).subject, text)
    words = join_words(encoded.units, encoded.texts)
    assert time.process_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
    assert len(encoded.units) == window_of(explainer(kind).subject)
    assert encoded.dropped > 0
    assert not encoded.counted
    assert [word.text for word, _ in words[:4]] == ["a", "line", "of", "the"]
    with pytest.warns(TruncationWarning, match=r"^more than \d+ tokens, .*: at least \d+ were dropped$"):
        encoded.warn()


@pytest.mark.parametrize("text", [" " * 10**7 + "film", "x" * 10**7], ids=["blanks", "one word"])
def test_what_has_hardly_a_token_is_not_read_to_its_end(text: str) -> None:
    start = time.process_time()
    with pytest.raises(BadInput, match=r"of the text's 10,000,\d{3} characters are only \d tokens") as refused:
        encode(explainer("wordpiece").subject, text)
    assert time.process_time() - start < 2
    assert len(str(refused.value)) < 300


def test_a_long_context_is_refused_before_it_is_read() -> None:
    start = time.process_time()
    with pytest.raises(BadInput, match=r"the text is more than \d+ tokens, more than 256 windows of the model"):
        answering().explain(question="the film", context=MEGABYTES)
    assert time.process_time() - start < 5
    e = answering().explain(question="the film", context=LONG, method="rollout")
    assert 1 < e.diagnostics["window"]["count"] <= 256


@every_kind
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("text", [LONG, (LONG, PAIR[0]), (PAIR[0], LONG)], ids=["one", "first", "second"])
def test_no_token_that_fits_is_lost(kind: str, side: str, text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = explainer(kind).subject
    monkeypatch.setattr(subject.tokenizer, "truncation_side", side)
    whole = encode(subject, text)
    monkeypatch.setattr(whyformer.inputs.batch, "COUNTED", 1000)
    cut = encode(subject, text)
    assert cut.units == whole.units
    assert cut.key == whole.key
    assert whole.counted
    assert not cut.counted
    assert 0 < cut.dropped < whole.dropped
    texts = (text,) if isinstance(text, str) else text
    for unit in cut.units:
        assert unit.special or (unit.span and texts[unit.part or 0][slice(*unit.span)] == unit.text)
    if side == "left":
        assert max(unit.span[1] for unit in cut.units if unit.span) == len(LONG)


def test_more_is_read_where_the_beginning_is_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, text = explainer("wordpiece").subject, " " * 7000 + LONG
    whole = encode(subject, text)
    monkeypatch.setattr(whyformer.inputs.batch, "COUNTED", 1000)
    assert encode(subject, text).units == whole.units


@every_kind
@pytest.mark.parametrize("lengths", [(3000, 2500), (2500, 3000), (2000, 2000), (3000, 100)])
def test_a_cut_pair_is_what_the_tokenizer_makes_of_it(kind: str, lengths: tuple[int, int]) -> None:
    subject, (first, second) = explainer(kind).subject, (LONG[: lengths[0]], LONG[::-1][: lengths[1]])
    encoded = encode(subject, (first, second))
    expected = subject.tokenizer(first, second, truncation="longest_first", max_length=window_of(subject))
    assert encoded.tensors["input_ids"].tolist() == expected["input_ids"]
    assert encoded.dropped == len(subject.tokenizer(first, second, verbose=False)["input_ids"]) - len(encoded.units)


@pytest.mark.parametrize("words", [200, 3])
def test_the_parts_of_a_slow_tokenizers_cut_pair(words: int) -> None:
    """Without offsets, the texts of a pair that was cut are told apart by the special tokens between them."""
    first, second = " ".join(["film"] * 200), " ".join(["text"] * words)
    encoded = encode(explainer("slow").subject, (first, second))
    pieces = [(unit.piece, unit.part) for unit in encoded.units if not unit.special]
    assert encoded.dropped > 0
    assert {part for piece, part in pieces if piece in ("fil", "##m")} == {0}
    assert {part for piece, part in pieces if piece in ("tex", "##t")} == {1}
    assert [unit.part for unit, _ in join_words(encoded.units, encoded.texts)].count(1) >= min(words, 30)


def test_only_what_was_read_is_split_into_words() -> None:
    encoded = encode(explainer("roberta").subject, LONG)
    end = max(unit.span[1] for unit in encoded.units if unit.span)
    words = [word.span for word, _ in join_words(encoded.units, encoded.texts)]
    assert words == [span for span in split_words(LONG) if span[0] < end]


def test_a_note_says_that_tokens_were_not_counted() -> None:
    with pytest.warns(TruncationWarning, match="at least"):
        e = explainer("wordpiece").explain(LONG * 6, "rollout")
    assert e.diagnostics["dropped_at_least"] is True
    assert f"! at least {e.diagnostics['dropped_tokens']} tokens did not fit" in str(e)


# Windows


@pytest.mark.parametrize(("window", "text"), [(1, "a film"), (2, "a film"), (1, PAIR), (3, PAIR), (4, PAIR)])
def test_a_window_without_room_for_the_text_is_refused(window: int, text: Any) -> None:
    tokenizer = wordpiece()
    tokenizer.model_max_length = window
    with pytest.raises(BadInput, match=rf"window holds {window} tokens?, too few for .*set the tokenizer's model_max"):
        Explainer(explainer("wordpiece").subject.model, tokenizer).explain(text)


@pytest.mark.parametrize("window", [-5, 0, "many", float("nan"), True, [512]], ids=str)
def test_a_window_that_is_no_number_of_tokens_is_refused(window: Any) -> None:
    tokenizer = wordpiece()
    tokenizer.model_max_length = window
    with pytest.raises(BadInput, match="model_max_length is"):
        Explainer(explainer("wordpiece").subject.model, tokenizer).explain("a film")


def test_a_window_may_have_no_limit() -> None:
    """XLNet's configuration says -1."""
    tokenizer = wordpiece()
    tokenizer.model_max_length = float("inf")
    assert window_of(Explainer(explainer("wordpiece").subject.model, tokenizer).subject) == WINDOW
    config = hf.XLNetConfig(vocab_size=len(tokenizer), d_model=16, n_layer=1, n_head=2, d_inner=16)
    xlnet = Explainer(hf.XLNetForSequenceClassification(config).eval(), tokenizer)
    assert window_of(xlnet.subject) > 10**6
    assert encode(xlnet.subject, "a film").dropped == 0


# Vocabularies


def test_ids_beyond_the_embeddings_are_named() -> None:
    config = families.CONFIGS["bert"]()
    tokenizer = wordpiece()
    config.vocab_size = tokenizer.convert_tokens_to_ids("film")
    model = hf.BertForSequenceClassification(config)
    with pytest.raises(BadInput, match=rf"gives 'film' the id {config.vocab_size}, .*ids 0 … {config.vocab_size - 1}"):
        Explainer(model, tokenizer).explain("the film")
    assert Explainer(model, tokenizer).explain("the", "rollout").scores.shape == (3,)


def test_a_padding_id_beyond_the_embeddings_is_named() -> None:
    model = copy.deepcopy(explainer("wordpiece").subject.model)
    model.config.pad_token_id = 999
    padded = Explainer(model, wordpiece())
    with pytest.raises(BadInput, match="padded with the id 999"):
        padded.explain(["a film", "a"])
    assert len(padded.explain(["a film", "a"], "rollout", batch_size=1)) == 2


def without_unknown(drops: bool) -> PreTrainedTokenizerFast:
    words = {"a": 0, "film": 1, "is": 2, "good": 3}
    model: Any = models.BPE({c: i for i, c in enumerate("aflmi")}, []) if drops else models.WordPiece(words)
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_a_vocabulary_without_a_token_for_unknown_words() -> None:
    model = explainer("wordpiece").subject.model
    with pytest.raises(BadInput, match=r"the tokenizer \(.*\) could not read 'a movie': .*\[UNK\]"):
        Explainer(model, without_unknown(drops=False)).explain("a movie")
    dropping = Explainer(model, without_unknown(drops=True))
    with pytest.warns(UnknownWordsWarning, match=r"^2 of 4 words are unknown to the tokenizer \(gurke, der\)"):
        dropping.explain("a gurke der film", "rollout")
    with pytest.raises(BadInput, match="finds no token in 'gurke'"):
        dropping.explain("gurke", "rollout")


@pytest.mark.parametrize("tokenizer", [3, without_unknown(True).backend_tokenizer], ids=["a", "b"])
def test_a_tokenizer_that_is_none(tokenizer: Any) -> None:
    with pytest.raises(BadInput, match="a tokenizer, or an image processor, is needed beside the model; found"):
        Explainer(explainer("wordpiece").subject.model, tokenizer).explain("a film")


# Unknown words

UNKNOWN = "the ЖЖ film ЩЩ is the Ы"


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "slow"])
def test_unknown_words_are_marked_and_warned_of(kind: str) -> None:
    with pytest.warns(UnknownWordsWarning, match=r"^3 of 7 words are unknown to the tokenizer \(ЖЖ, ЩЩ, Ы\)"):
        e = explainer(kind).explain(UNKNOWN, "rollout")
    assert [w.text for w in e.words() if w.unit.unknown] == ["ЖЖ", "ЩЩ", "Ы"]
    assert {u.piece for u in e.units if u.unknown} == {explainer(kind).subject.tokenizer.unk_token}
    assert all("Ж" not in u.text or u.unknown for u in e.units)


@pytest.mark.parametrize("kind", ["gpt2", "roberta"])
def test_bytes_are_never_unknown(kind: str) -> None:
    assert not any(u.unknown for u in explainer(kind).explain(UNKNOWN, "rollout").units)


@pytest.mark.parametrize("text", ["a film ЖЖ", "the the the the the the the the the the ЖЖ ЩЩ"])
def test_few_unknown_words_are_marked_only(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        e = explainer("wordpiece").explain(text, "rollout")
    assert any(w.unit.unknown for w in e.words())


@pytest.mark.filterwarnings("ignore::whyformer.UnknownWordsWarning")
def test_unknown_words_are_shown_and_saved(tmp_path: Any) -> None:
    e = explainer("wordpiece").explain(UNKNOWN, "rollout")
    assert "the ЖЖ⟨?⟩ film ЩЩ⟨?⟩ is the Ы⟨?⟩" in str(e)
    assert "! ⟨?⟩ unknown to the tokenizer" in str(e)
    assert e.to_html(tmp_path / "page.html").read_text(encoding="utf-8").count("⟨?⟩</sup>") == 3
    again = Explanation.load(e.save(tmp_path / "why.json"))
    assert [u.unknown for u in again.units] == [u.unknown for u in e.units]
    data = e.to_dict()
    assert [unit.get("unknown") for unit in data["units"]].count(True) == 3
    before = [{name: value for name, value in unit.items() if name != "unknown"} for unit in data["units"]]
    assert all("unknown" in unit or unit == old for unit, old in zip(data["units"], before, strict=True))
    old = Explanation.from_dict({**data, "units": before})  # as it was saved before units had that
    assert old.units == e.units
    assert old.trust(explainer("wordpiece")).units == sum(not u.special for u in e.units)


def test_the_command_line_tells_of_unknown_words(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    explainer("wordpiece").subject.model.save_pretrained(tmp_path)
    explainer("wordpiece").subject.tokenizer.save_pretrained(tmp_path)
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    with warnings.catch_warnings(), pytest.raises(SystemExit) as status:
        main(["explain", UNKNOWN, "--method", "rollout", "--model", str(tmp_path)])
    assert status.value.code == 0
    assert "whyformer: warning: 3 of 7 words are unknown to the tokenizer" in stderr.getvalue()


# Threads


@pytest.mark.parametrize("kind", ["wordpiece", "gpt2", "slow"])
@pytest.mark.filterwarnings("ignore::whyformer.TruncationWarning")
def test_threads_may_share_an_explainer(kind: str) -> None:
    """One thread that cuts a text must not make a tokenizer cut another's, or fail."""
    texts: list[Any] = ["a film", LONG[:900], PAIR, "the " * 300, (LONG[:900], "a film"), "a"]
    alone = [explainer(kind).explain(text, "attcat(states=inputs)") for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: explainer(kind).explain(text, "attcat(states=inputs)"), texts * 4))
    for n, e in enumerate(found):
        assert e.units == alone[n % len(texts)].units
        np.testing.assert_allclose(e.scores, alone[n % len(texts)].scores, rtol=0, atol=1e-10)


def test_threads_may_share_a_tokenizer() -> None:
    subject, texts = explainer("wordpiece").subject, ["a film", LONG[:2000], "the", LONG[:900]]
    lengths = [len(encode(subject, text).units) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: len(encode(subject, texts[n % 4]).units), range(400)))
    assert found == lengths * 100
