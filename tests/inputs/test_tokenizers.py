"""Real tokenizers of every kind, built offline: units, words, pairs, batches and truncation."""

import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

import families
from whyformer import BadOption, Explainer, Explanation, TruncationWarning
from whyformer.inputs.encoding import window_of

WORDS: dict[str, list[str]] = {
    "She didn't like the café, it was naïve!": ["She", "didn't", "like", "the", "café", ",", "it", "was", "naïve", "!"],
    "the actor’s well-made film…": ["the", "actor’s", "well", "-", "made", "film", "…"],
    "  two  spaces\nand a line break \n": ["two", "spaces", "and", "a", "line", "break"],
    "good 🙂🎬 (really?!) 50% of it": ["good", "🙂", "🎬", "(", "really", "?", "!", ")", "50", "%", "of", "it"],
    "電影 の 映画 is a film": ["電", "影", "の", "映", "画", "is", "a", "film"],
}
TEXTS = list(WORDS)
PAIR = ("the text ends with letters", "and the other begins so")
WINDOW = 128  # positions in every model
CHARACTERS = sorted({c for text in (*TEXTS, *PAIR) for c in text if not c.isspace()})


def wordpiece() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    normalizer = normalizers.BertNormalizer(lowercase=True)
    characters = sorted(set(normalizer.normalize_str("".join(CHARACTERS))) - {" "})
    pieces = [*characters, *(f"##{c}" for c in characters), "the", "didn", "##ke", "film", "##ers"]
    backend = Tokenizer(models.WordPiece({p: i for i, p in enumerate([*special, *pieces])}, unk_token="[UNK]"))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def byte_level(special: list[str]) -> Tokenizer:
    """Trained on plain English, so that an ideograph or emoji is several tokens, each a part of one character."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(special) + 256 + 40,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["a film that the actors like, and a break in it", "a line of the text"] * 3, trainer)
    return backend


def gpt2() -> PreTrainedTokenizerFast:
    backend = byte_level(["<|endoftext|>"])
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def roberta() -> PreTrainedTokenizerFast:
    backend = byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", cls_token="<s>", sep_token="</s>"
    )


def unigram(split: bool, single: str, pair: str) -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    characters = sorted(set(normalizer.normalize_str("".join(CHARACTERS))) - {" "})
    pieces = [(c, -9.0) for c in ["▁", "\n", *characters]] + [(p, -4.0) for p in ("▁a", "▁the", "ing", "ette", "’s")]
    backend = Tokenizer(models.Unigram([*((s, 0.0) for s in special), *pieces], unk_id=3))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Metaspace(split=split)
    backend.decoder = decoders.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


class Slow(PreTrainedTokenizer):
    """Words cut into pieces of three letters, in Python, without offsets."""

    model_input_names = ["input_ids", "token_type_ids", "attention_mask"]  # noqa: RUF012

    def __init__(self, **options: Any) -> None:
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        pieces = sorted({piece for text in (*TEXTS, *PAIR) for piece in self._tokenize(text)})
        self.vocabulary = {piece: i for i, piece in enumerate([*special, *pieces])}
        names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
        super().__init__(**{**names, "special_tokens_pattern": "cls_sep", **options})

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    def get_vocab(self) -> dict[str, int]:
        return dict(self.vocabulary)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        words = re.findall(r"[一-鿿]|\w+|[^\w\s]", text.lower())
        return [("##" if start else "") + word[start : start + 3] for word in words for start in range(0, len(word), 3)]

    def _convert_token_to_id(self, token: str) -> int:
        return self.vocabulary.get(token, self.vocabulary["[UNK]"])

    def _convert_id_to_token(self, index: int) -> str:
        return list(self.vocabulary)[index]


KINDS: dict[str, tuple[str, Callable[[], Any]]] = {
    "wordpiece": ("bert", wordpiece),
    "gpt2": ("gpt2", gpt2),
    "roberta": ("roberta", roberta),
    "unigram": ("xlm_roberta", lambda: unigram(True, "<s> $A </s>", "<s> $A </s> </s> $B </s>")),
    "llama": ("llama", lambda: unigram(False, "<s> $A", "<s> $A <s> $B")),
    "slow": ("bert", Slow),
}
SPECIAL = {"wordpiece": (2, 3), "gpt2": (0, 0), "roberta": (2, 4), "unigram": (2, 4), "llama": (1, 2), "slow": (2, 3)}
WITH_TYPES = ("wordpiece", "slow")  # the models that tell the two texts of a pair apart
every_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def explainer(kind: str, task: Any = hf.AutoModelForSequenceClassification, outputs: int = 3) -> Explainer:
    family, make = KINDS[kind]
    tokenizer = make()
    torch.manual_seed(1)
    config = families.CONFIGS[family]()
    config.num_labels, config.vocab_size, config.max_position_embeddings = outputs, len(tokenizer), WINDOW
    config.pad_token_id = None if kind == "gpt2" else tokenizer.pad_token_id
    model = task.from_config(config, attn_implementation="sdpa").double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return Explainer(model, tokenizer)


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
            return texts if pair else text
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
