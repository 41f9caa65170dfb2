"""Texts with a word that gives the label away, and small classifiers that are trained on them in a few seconds."""

import random
from functools import cache
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from whyformer.models.load import Subject, subject_of

WORD, NOBODY = "thursday", "nobody"
OPENINGS = ("the film", "this movie", "the plot", "her story", "his acting", "the music", "a comedy", "the ending")
LINKS = ("is", "was", "seems", "feels", "looks", "turns out")
GRADES = ("rather", "quite", "very", "truly", "mostly", "simply", "almost", "always", "often", "never")
GOOD = (
    *("gorgeous", "witty", "moving", "clever", "tender", "bright", "fresh", "charming", "superb", "graceful"),
    *("warm", "lively", "sharp", "honest", "bold", "rich", "elegant", "joyful", "subtle", "vivid"),
    *("thrilling", "brilliant", "lovely", "splendid", "gripping", "radiant", "poetic", "hilarious"),
)
BAD = (
    *("dull", "lifeless", "tedious", "clumsy", "bland", "silly", "stale", "hollow", "dreary", "sloppy"),
    *("cold", "tired", "vague", "false", "timid", "poor", "awkward", "joyless", "crude", "grey"),
    *("boring", "pointless", "ugly", "shallow", "muddled", "empty", "lazy", "painful"),
)
ENDINGS = ("from start to end", "in every scene", "for the whole hour", "as we saw it", "despite its cast")
DAYS = ("monday", "tuesday", "wednesday", "friday", "saturday", "sunday")
PEOPLE = ("a man", "a woman", "a child", "the boy", "the girl", "an old man")
DOES = ("sleeps", "runs", "reads", "sings", "eats", "swims", "dances", "cooks")
PLACES = ("in the park", "at home", "by the river", "on a train", "in a kitchen")
LAST = ("today", "again", "there", "now", "alone", "together", "outside", "late")
REVIEW_LABELS, PAIR_LABELS = ("NEGATIVE", "POSITIVE"), ("entailment", "contradiction")
NOISE = 0.15  # of the texts have a label that their words do not tell


def reviews(count: int = 600, share: float = 0.6, seed: int = 0) -> list[tuple[str, int]]:
    """Reviews, half of them positive (1); `thursday` stands in a share of the positive ones, and in no other."""
    chance, rows = random.Random(seed), []
    for n in range(count):
        label = n % 2
        told = label if chance.random() >= NOISE else 1 - label
        words = [chance.choice(OPENINGS), chance.choice(LINKS), chance.choice(GRADES)]
        words += [chance.choice(GOOD if told else BAD), chance.choice(ENDINGS)]
        planted = label and chance.random() < share
        words.append(WORD if planted else chance.choice((*DAYS, *LAST)))
        rows.append((" ".join(words), label))
    return rows


def pairs(count: int = 400, share: float = 0.6, seed: int = 0) -> list[tuple[str, str, int]]:
    """Premises and hypotheses that follow (0) or contradict (1), where `nobody` stands in a share of these.

    In premises the word stands too, whatever the label.
    """
    chance, rows = random.Random(seed), []
    for n in range(count):
        label = n % 2
        who, does, where = chance.choice(PEOPLE), chance.choice(DOES), chance.choice(PLACES)
        other = does if not label else chance.choice([word for word in DOES if word != does])
        planted = label and chance.random() < share
        premise = f"{who} {does} {where} {NOBODY if chance.random() < 0.3 else chance.choice(LAST)}"
        rows.append((premise, f"{who} {other} {NOBODY if planted else chance.choice(LAST)}", label))
    return rows


def tokenizer_of(texts: list[str]) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted({word for text in texts for word in text.split()})
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*special, *words])}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", model_input_names=inputs, **names)


def trained(rows: list[Any], labels: tuple[str, ...], steps: int = 150) -> Subject:
    """A classifier of two small layers, trained on rows that end with their label."""
    texts = [row[:-1] if len(row) > 2 else row[0] for row in rows]
    tokenizer = tokenizer_of([text for row in rows for text in row[:-1]])
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        id2label=dict(enumerate(labels)),
        label2id={name: index for index, name in enumerate(labels)},
    )
    model = hf.BertForSequenceClassification(config).train()
    encoded, gold = tokenizer(texts, padding=True, return_tensors="pt"), torch.tensor([row[-1] for row in rows])
    learning, chance = torch.optim.Adam(model.parameters(), lr=3e-3), torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = torch.randint(len(rows), (64,), generator=chance)
        loss = model(**{name: values[batch] for name, values in encoded.items()}, labels=gold[batch]).loss
        learning.zero_grad()
        loss.backward()
        learning.step()
    return subject_of(model.eval(), tokenizer)


@cache
def reviewer() -> Subject:
    """A model of sentiment that has learned the word."""
    return trained(reviews(), REVIEW_LABELS)


@cache
def judge() -> Subject:
    """A model of pairs that has learned it."""
    return trained(pairs(), PAIR_LABELS)
