"""Train a part-of-speech tagger, so that label explanations can be looked at on a real model.

    python benchmarks/experiments/pos_tagger.py --model DIR/base-mlm --data DIR/ud_en_ewt --out DIR/pos-ewt

The masked language model in `--model` gets a token-classification head for the universal tags of the treebank
`en_ewt-ud-dev.conllu` in `--data`. A word is labelled, and later read, at its first piece; the other pieces have no
label. Every fifth sentence is held out for the accuracy, which is printed and kept in `pos_tagger.json` beside the
model and its tokenizer. Minutes on a GPU. For a quick trial: `--steps 3 --limit 40`.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    get_linear_schedule_with_warmup,
)

from whyformer.inputs.units import Span
from whyformer_papers.heads import Treebank

TREEBANK = "en_ewt-ud-dev.conllu"
TAG_COLUMN = 3
HELD_OUT = 5  # every fifth sentence
UNLABELLED = -100  # what torch's cross-entropy ignores
LONGEST = 256  # pieces; what follows in a longer sentence is left out


@dataclass(frozen=True)
class Tagged:
    """A sentence as the model takes it: the ids of its pieces, and for each the index of a tag, or `UNLABELLED`."""

    ids: list[int]
    labels: list[int]


def tags_of(path: Path) -> Iterator[list[str]]:
    """The universal tag of each word of each sentence in a CoNLL-U file."""
    sentence: list[str] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        columns = line.split("\t")
        if columns[0].isdigit():  # neither a comment, nor several words written as one, nor an empty node
            sentence.append(columns[TAG_COLUMN])
        elif not line.strip() and sentence:
            yield sentence
            sentence = []


def first_pieces(words: Sequence[Span], pieces: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """For each word that has one, its number and that of the first piece which begins inside it."""
    taken: set[int] = set()
    for number, (start, end) in enumerate(words):
        first = next((p for p, piece in enumerate(pieces) if start <= piece[0] < min(piece[1], end)), None)
        if first is not None and first not in taken:  # words that are written as one share their pieces
            taken.add(first)
            yield number, first


def read(path: Path, tokenizer: Any, limit: int | None) -> tuple[list[Tagged], list[str]]:
    """The sentences of a treebank, and the names of their tags."""
    parsed = list(islice(zip(Treebank(path), tags_of(path), strict=True), limit))
    names = sorted({tag for _, tags in parsed for tag in tags})
    sentences = []
    for sentence, tags in parsed:
        encoding = tokenizer(sentence.text, return_offsets_mapping=True, truncation=True, max_length=LONGEST)
        labels = [UNLABELLED] * len(encoding["input_ids"])
        for word, piece in first_pieces(sentence.words, encoding["offset_mapping"]):
            labels[piece] = names.index(tags[word])
        sentences.append(Tagged(encoding["input_ids"], labels))
    return sentences, names


def padded(sentences: Sequence[Tagged], padding: int, device: str) -> dict[str, Tensor]:
    """A batch of sentences."""
    width = max(len(sentence.ids) for sentence in sentences)
    ids = torch.full((len(sentences), width), padding)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, UNLABELLED)
    for row, sentence in enumerate(sentences):
        length = len(sentence.ids)
        ids[row, :length] = torch.tensor(sentence.ids)
        mask[row, :length] = 1
        labels[row, :length] = torch.tensor(sentence.labels)
    return {
        name: tensor.to(device) for name, tensor in (("input_ids", ids), ("attention_mask", mask), ("labels", labels))
    }


def batches(sentences: Sequence[Tagged], size: int, seed: int) -> Iterator[Sequence[Tagged]]:
    """Batches without end, in a new order each time all sentences were used."""
    generator = random.Random(seed)
    while True:
        order = generator.sample(sentences, len(sentences))
        yield from (order[start : start + size] for start in range(0, len(order), size))


def train(
    model: PreTrainedModel, sentences: Sequence[Tagged], arguments: argparse.Namespace, padding: int, device: str
) -> None:
    """Fit the model to the tags; prints the loss twenty times."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, arguments.steps // 10, arguments.steps)
    model.train()
    examples = islice(batches(sentences, arguments.batch, arguments.seed), arguments.steps)
    for step, batch in enumerate(examples, 1):
        loss = model(**padded(batch, padding, device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % max(1, arguments.steps // 20) == 0:
            print(f"step {step}/{arguments.steps}  loss {loss.item():.3f}", flush=True)
    model.eval()


@torch.no_grad()
def accuracy(model: PreTrainedModel, sentences: Sequence[Tagged], size: int, padding: int, device: str) -> float:
    """The share of words whose tag is predicted."""
    right = words = 0
    for start in range(0, len(sentences), size):
        batch = padded(sentences[start : start + size], padding, device)
        labels = batch.pop("labels")
        predicted = model(**batch).logits.argmax(-1)
        right += int((predicted == labels)[labels != UNLABELLED].sum())
        words += int((labels != UNLABELLED).sum())
    return right / words


def main() -> None:
    """Read the command line, train, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a masked language model and its tokenizer")
    parser.add_argument("--data", type=Path, required=True, help=f"folder with {TREEBANK}")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tagger")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--limit", type=int, help="sentences; all of them by default")
    parser.add_argument("--shard", default="5GB", help="the largest file of weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    begun = time.monotonic()
    torch.manual_seed(arguments.seed)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, local_files_only=True)
    sentences, names = read(arguments.data / TREEBANK, tokenizer, arguments.limit)
    held_out = sentences[HELD_OUT - 1 :: HELD_OUT]
    training = [sentence for number, sentence in enumerate(sentences, 1) if number % HELD_OUT]
    if not held_out:
        sys.exit(f"{len(sentences)} sentences, of which none can be held out: at least {HELD_OUT} are needed")
    model = AutoModelForTokenClassification.from_pretrained(
        arguments.model,
        dtype=torch.float32,
        local_files_only=True,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
    ).to(arguments.device)
    train(model, training, arguments, tokenizer.pad_token_id, arguments.device)
    result = {
        "accuracy": accuracy(model, held_out, arguments.batch, tokenizer.pad_token_id, arguments.device),
        "sentences": len(training),
        "held_out": len(held_out),
        "steps": arguments.steps,
        "seconds": round(time.monotonic() - begun, 1),
    }
    weights = {name: weight.half() for name, weight in model.cpu().state_dict().items()}  # loaded as float32 again
    model.save_pretrained(arguments.out, state_dict=weights, max_shard_size=arguments.shard)
    tokenizer.save_pretrained(arguments.out)
    (arguments.out / "pos_tagger.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"accuracy {result['accuracy']:.4f} on {len(held_out)} held-out sentences, {result['seconds']} s")


if __name__ == "__main__":
    main()
