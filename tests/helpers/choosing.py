"""Tiny models that choose among texts, or give a score, with tokenizers built in place."""

from functools import cache

import torch
import transformers as hf

from tests.helpers import cases, families
from whyformer import Explainer

TEXT = "the film is a fine film"
CHOICES = ("a bad film", "the acting is fine", "fine")


@cache
def chooser(kind: str = "bert") -> Explainer:
    tokenizer = cases.KINDS[kind]()
    torch.manual_seed(5)
    config = families.CONFIGS[kind]()
    config.vocab_size, config.max_position_embeddings = len(tokenizer), 64
    config.pad_token_id = tokenizer.pad_token_id
    model = hf.AutoModelForMultipleChoice.from_config(config, attn_implementation="sdpa").double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return Explainer(model, tokenizer)


def scorer(problem: str | None = None, kind: str = "bert") -> Explainer:
    return Explainer(cases.subject(kind, labels=1, problem=problem))
