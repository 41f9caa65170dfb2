"""Questions, a tokenizer of their words, and tiny models that answer them."""

import re

import torch
import transformers as hf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import PreTrainedTokenizerFast

from tests.helpers import families

WINDOW = 96
QUESTION = "Who won the game?"
CONTEXT = "The humans lost. The Denver Broncos won it: man for man,\nthe Broncos were <b>better</b> & cost $5 or $6."
LONG = " ".join(["The Broncos won the game, they lost it."] * 5)
QUESTIONS = [
    (QUESTION, CONTEXT),
    ("Who lost?", "The humans lost."),
    ("Who lost the game?", CONTEXT),
    ("Who won?", LONG),
    ("who lost it", LONG),
    ("The Broncos?", "Broncos"),
    ("Were they better?", "They were better & better, or were they?"),
]


def tokenizer() -> PreTrainedTokenizerFast:
    """WordPiece: `Broncos` is three tokens."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = sorted(set(re.findall(r"\w+|[^\w\s]", " ".join(f"{q} {c}" for q, c in QUESTIONS).lower())) - {"broncos"})
    pieces = [*special, *words, "bron", "##co", "##s"]
    backend = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **names)


def answering(seed: int = 10) -> hf.PreTrainedModel:
    torch.manual_seed(seed)
    config = families.CONFIGS["bert"]()
    config.max_position_embeddings = WINDOW
    model = hf.BertForQuestionAnswering(config).double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.25)
    return model
