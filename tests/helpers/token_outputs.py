"""Tiny models that label tokens, fill in masked words, or tell the next token, with tokenizers built in place."""

from functools import cache
from typing import Any

import torch
import transformers as hf

from tests.helpers import cases, families
from whyformer import Explainer

LABELS = ("O", "B-LOC", "I-LOC", "B-PER")
AUTO: dict[str, Any] = {
    "token_labels": hf.AutoModelForTokenClassification,
    "masked_word": hf.AutoModelForMaskedLM,
    "next_token": hf.AutoModelForCausalLM,
}
KINDS = {"token_labels": ("bert", "roberta"), "masked_word": ("bert", "roberta"), "next_token": ("gpt2", "llama")}
EACH = [(task, kind) for task, kinds in KINDS.items() for kind in kinds]
ASKED: dict[str, dict[str, Any]] = {"token_labels": {"word": "acting"}, "masked_word": {}, "next_token": {}}


@cache
def explainer(task: str, kind: str) -> Explainer:
    tokenizer = cases.KINDS[kind]()
    torch.manual_seed(3)
    config = families.CONFIGS[kind]()
    config.vocab_size, config.max_position_embeddings = len(tokenizer), 64
    config.pad_token_id = tokenizer.pad_token_id
    if task == "token_labels":
        config.num_labels = len(LABELS)
        config.id2label = dict(enumerate(LABELS))
        config.label2id = {label: index for index, label in enumerate(LABELS)}
    model = AUTO[task].from_config(config, attn_implementation="sdpa").double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return Explainer(model, tokenizer)


def texts(task: str, kind: str) -> list[str]:
    """Three texts of different lengths that the task can be asked about."""
    if task == "token_labels":
        return ["the acting is fine", "acting", "a bad film, but fine acting it is"]
    if task == "next_token":
        return ["the film is", "a", "the actors like it, and the film is"]
    mask = "[MASK]" if kind == "bert" else "<mask>"
    return [f"the {mask} is fine", mask, f"the actors like it, and the {mask} is not bad"]
