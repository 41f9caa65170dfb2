"""Real tokenizers of every kind, built offline, each with a tiny model that takes its tokens."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

from tests.helpers import families
from whyformer import Explainer

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
