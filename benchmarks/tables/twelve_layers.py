"""Make a BERT of twelve layers for SST-2, and measure the SST-2 rows of the papers that need this depth.

    python benchmarks/tables/twelve_layers.py --models DIR --data DIR --out OUT [--device cuda] [--limit 300]

The six layers of DIR/base-mlm are each used twice, one copy after the other. The model is then fine-tuned on the
training split of DIR/sst2: `--epochs 2` takes minutes on a GPU and about an hour on two CPU cores. Model and accuracy
go to OUT/sst2-12, and a second call finds them there. The recipes of the Decoded paper, AttCAT and Mask-LRP then run on
it, and Transformer Attribution's ablation of single blocks (`block=1`, `block=11`). Their tables go to OUT/papers. All
of it resumes where it was stopped. AG News has no training rows in DIR, so its columns are not measured.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    get_linear_schedule_with_warmup,
)

from whyformer.datasets import open_dataset
from whyformer.evaluation.evaluate import evaluate
from whyformer.models.loading import load, text_config
from whyformer_papers.reproduce import reproduction_named, run, write

NAME = "sst2-12"
LABELS = {0: "NEGATIVE", 1: "POSITIVE"}
POOL = 50  # batches whose sentences are sorted by length together, so that little of a batch is padding
RECIPES = (
    "decoded-table-1",
    "decoded-tables-3-9",
    "attcat-table-1",
    "attcat-table-2",
    "mask-lrp-table-1",
    "mask-lrp-table-3",
)
WITH_HEADS = ("mask-lrp-table-1", "mask-lrp-table-3")
TREEBANK = Path("ud_en_ewt/en_ewt-ud-dev.conllu")


class Sentence(NamedTuple):
    """A sentence as token ids, with its class."""

    ids: list[int]
    label: int


def doubled(base: Path) -> Any:
    """A classifier whose layers 2n and 2n + 1 both begin as layer n of a pretrained model."""
    once = BertForSequenceClassification.from_pretrained(base, num_labels=2, id2label=LABELS, dtype=torch.float32)
    config = type(once.config).from_dict(
        once.config.to_dict() | {"num_hidden_layers": 2 * once.config.num_hidden_layers}
    )
    twice = BertForSequenceClassification(config)
    weights: dict[str, Tensor] = {}
    for name, tensor in once.state_dict().items():
        before, marker, after = name.partition("encoder.layer.")
        number, _, rest = after.partition(".")
        copies = [f"{before}{marker}{2 * int(number) + copy}.{rest}" for copy in (0, 1)] if marker else [name]
        weights |= {copy: tensor.clone() for copy in copies}
    twice.load_state_dict(weights)
    return twice


def sentences_of(tokenizer: Any, data: Path, split: str) -> list[Sentence]:
    """The sentences of a split of SST-2."""
    rows = list(open_dataset(data / "sst2", split=split))
    ids = tokenizer([row.text for row in rows], truncation=True, max_length=128)["input_ids"]
    return [Sentence(one, int(row.label)) for one, row in zip(ids, rows, strict=True) if row.label is not None]


def batches(sentences: Sequence[Sentence], size: int, generator: random.Random) -> Iterator[list[Sentence]]:
    """All sentences once, in random batches of similar length."""
    order = generator.sample(sentences, len(sentences))
    for start in range(0, len(order), POOL * size):
        pool = sorted(order[start : start + POOL * size], key=lambda sentence: len(sentence.ids))
        pooled = [pool[first : first + size] for first in range(0, len(pool), size)]
        yield from generator.sample(pooled, len(pooled))


def padded(batch: Sequence[Sentence], device: str) -> tuple[dict[str, Tensor], Tensor]:
    """A batch as the model takes it, and its classes."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(one.ids) for one in batch], batch_first=True)
    lengths = torch.tensor([len(one.ids) for one in batch])
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    labels = torch.tensor([one.label for one in batch])
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}, labels.to(device)


def train(model: Any, sentences: Sequence[Sentence], arguments: argparse.Namespace) -> None:
    """Fine-tune the model, and print the loss twenty times per epoch."""
    steps = -(-len(sentences) // arguments.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.01, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps * arguments.epochs)
    generator = random.Random(arguments.seed)
    model.train()
    for epoch in range(arguments.epochs):
        total = 0.0
        for step, batch in enumerate(batches(sentences, arguments.batch, generator), 1):
            inputs, labels = padded(batch, arguments.device)
            loss = model(**inputs, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += float(loss.detach())
            if step % max(1, steps // 20) == 0:
                print(f"epoch {epoch + 1}, step {step} of {steps}: mean loss {total / step:.3f}", flush=True)
    model.eval()


@torch.inference_mode()
def accuracy(model: Any, sentences: Sequence[Sentence], device: str) -> float:
    """The share of sentences whose class the model predicts."""
    right = 0
    for batch in batches(sentences, 64, random.Random(0)):
        inputs, labels = padded(batch, device)
        right += int((model(**inputs).logits.argmax(-1) == labels).sum())
    return right / len(sentences)


def made(arguments: argparse.Namespace) -> Path:
    """The folder of the fine-tuned model, which is trained if it is not there."""
    folder: Path = arguments.out / NAME
    if (folder / "meta.json").is_file():
        return folder
    torch.manual_seed(arguments.seed)
    begun = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(arguments.models / "base-mlm")
    model = doubled(arguments.models / "base-mlm").to(arguments.device)
    train(model, sentences_of(tokenizer, arguments.data, "train"), arguments)
    held_out = sentences_of(tokenizer, arguments.data, "validation")
    model.to("cpu").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    again = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    facts = {
        "base": "base-mlm, each layer twice",
        "epochs": arguments.epochs,
        "batch": arguments.batch,
        "rate": arguments.rate,
        "seed": arguments.seed,
        "validation_accuracy": accuracy(again, held_out, "cpu"),
        "seconds": round(time.perf_counter() - begun),
    }
    (folder / "meta.json").write_text(json.dumps(facts, indent=1) + "\n")
    return folder


def measured(folder: Path, arguments: argparse.Namespace) -> None:
    """Run the recipes on the model, and Transformer Attribution with single blocks."""
    out = arguments.out / "papers"
    for name in arguments.recipes.split(","):
        recipe = reproduction_named(name)
        decodes: dict[str, Any] = {"lm_heads": {"sst2": str(arguments.models / "base-mlm")}} if recipe.decoded else {}
        heads: dict[str, Any] = {"treebank": arguments.data / TREEBANK} if name in WITH_HEADS else {}
        found = run(
            recipe,
            out=out,
            only=("sst2",),
            data=arguments.data,
            instead={"sst2": str(folder)},
            limit=arguments.limit,
            seeds=arguments.seeds,
            device=arguments.device,
            on_error="skip",
            **decodes,
            **heads,
        )
        write(found, out)
        print(found, flush=True)
    data = open_dataset(arguments.data / "sst2", split="validation", limit=arguments.limit)
    subject = load(folder, device=arguments.device, dtype="float32")
    last = text_config(subject.model).num_hidden_layers - 1
    blocks = [f"transformer_attribution(block={block})" for block in (1, last)]
    methods = ["transformer_attribution", *blocks, "random"]
    print(evaluate(subject, data, methods, "aopc,log_odds", out=out / "blocks"))


def main() -> None:
    """Make the model, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=8e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=872, help="sentences that are measured")
    parser.add_argument("--seeds", type=int, help="runs of the random rows (by default those of the papers)")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    arguments = parser.parse_args()
    folder = made(arguments)
    print((folder / "meta.json").read_text(), flush=True)
    measured(folder, arguments)


if __name__ == "__main__":
    main()
