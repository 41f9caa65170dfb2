"""What checking the strongest words costs beside the explanation, and beside the model's own forward + backward.

    python benchmarks/cost/checking.py                     # BERT-base size, random weights, 128 tokens, batch 1 and 16
    python benchmarks/cost/checking.py --device cuda --batches 1,16,64

Explanations are made as people make them, by `Explainer.explain` on texts: of one, or of all in a batch. Every
round times the plain pass (eager, to the embeddings, frozen parameters) and each explanation in turn, and medians are
compared.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from benchmarks.cost.timing import build, parser_of, plain, times
from whyformer import Explainer

WORDS, SPECIAL = 30_000, ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
PLAIN = "forward + backward"
CHECKS = (0, 3, 10)


def tokenizer_of(size: int = WORDS) -> PreTrainedTokenizerFast:
    """A tokenizer of made-up words, each of which is a token: w0, w1 …"""
    names = [*SPECIAL, *(f"w{number}" for number in range(size - len(SPECIAL)))]
    backend = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **named)


def workloads(arguments: argparse.Namespace, batch: int) -> dict[str, Callable[[], object]]:
    """The plain pass, and explanations with more and more words checked."""
    model: Any = build(arguments.device, getattr(torch, arguments.dtype), "eager", arguments.layers)
    model.requires_grad_(False)
    tokenizer = tokenizer_of()
    drawn = torch.randint(0, WORDS - len(SPECIAL), (batch, arguments.tokens - 2), generator=torch.manual_seed(0))
    texts = [" ".join(f"w{number}" for number in row) for row in drawn.tolist()]
    inputs = tokenizer(texts, return_tensors="pt").to(arguments.device)
    explain = partial(Explainer(model, tokenizer).explain, texts, arguments.method, batch_size=batch)
    calls: dict[str, Callable[[], object]] = {PLAIN: partial(plain, model, dict(inputs))}
    return calls | {f"{arguments.method}, check={check}": partial(explain, check=check) for check in CHECKS}


def main() -> None:
    """Print a line for each workload."""
    parser = parser_of(__doc__)
    parser.add_argument("--method", default="attn_lrp")
    arguments = parser.parse_args()
    for batch in map(int, arguments.batches.split(",")):
        rounds = times(workloads(arguments, batch), arguments.rounds, arguments.device)
        medians = {name: statistics.median(each) for name, each in rounds.items()}
        unchecked = medians[f"{arguments.method}, check=0"]
        print(f"\nbatch {batch}, {arguments.tokens} tokens, {arguments.dtype} on {arguments.device}")
        print(f"{'':<28}{'ms':>9}{'÷ f+b':>8}{'÷ check=0':>11}")
        for name, median in medians.items():
            print(
                f"{name:<28}{1000 * median:>9.1f}{median / medians[PLAIN]:>8.2f}{median / unchecked:>11.2f}", flush=True
            )


if __name__ == "__main__":
    main()
