"""Whether explaining many texts leaks memory.

    python benchmarks/cost/leaks.py                        # 20,000 texts, a tiny BERT, five methods in turn
    python benchmarks/cost/leaks.py --device cuda
    python benchmarks/cost/leaks.py --texts 1000 --methods gae

Texts have random words and random lengths, and each is explained by itself, as people do it; on a GPU most are replayed
from captured graphs. At twenty moments this prints the memory that the process holds when garbage is collected and what
is free is given back to the system (Linux only), and what tensors take on a GPU. A line is fitted through the second
half of them, when caches are full: its slope is what an explanation leaves behind, with a 95 % interval by Student's t.
If a slope is above the bound, this ends with code 1.
"""

import argparse
import ctypes
import gc
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.cost.timing import resident, word_tokenizer
from whyformer import Explainer
from whyformer.registry.specs import names_of

METHODS = ("attn_lrp", "layer_lrp", "transformer_attribution", "gae", "input_x_gradient")
MOMENTS = 20
STUDENT = 2.306  # the 97.5 % point of Student's t for a line through half of the moments
BOUND = 100.0  # bytes an explanation: a tensor that is kept takes more, even an empty one
WORDS, LONGEST = 1000, 60
Readings = dict[str, float]  # bytes that are held, by where


def explainer_of(device: str) -> Explainer:
    """A tiny BERT with random weights."""
    torch.manual_seed(0)
    tokenizer = word_tokenizer(WORDS)
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model: Any = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), intermediate_size=64, **sizes))
    return Explainer(model.to(device).eval(), tokenizer)


def texts() -> Iterator[str]:
    """Random words without end."""
    generator = random.Random(0)
    while True:
        yield " ".join(f"w{generator.randrange(4, WORDS // 2)}" for _ in range(generator.randint(1, LONGEST)))


def held(device: str) -> Readings:
    """Bytes that are in use after all that is not has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    found = {"process": resident("VmRSS") * 2**20}
    if device != "cpu":
        torch.cuda.synchronize()
        found["GPU"] = float(torch.cuda.memory_allocated())
    return found


def slope(done: Sequence[int], readings: Sequence[float]) -> tuple[float, float]:
    """The slope of the line through readings, and half of its 95 % interval."""
    x, y = np.asarray(done, dtype=float), np.asarray(readings)
    x, y = x - x.mean(), y - y.mean()
    steepness = float((x * y).sum() / (x * x).sum())
    left = y - steepness * x
    return steepness, STUDENT * math.sqrt(float((left * left).sum()) / (len(x) - 2) / float((x * x).sum()))


@contextmanager
def sparing_what_is_there() -> Iterator[None]:
    """Garbage is looked for among what is made from here on, which is a small part of a process with torch in it."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def explained(arguments: argparse.Namespace) -> Iterator[tuple[int, Readings]]:
    """Explain the texts; at each moment, how many are done and what is held then."""
    explainer = explainer_of(arguments.device)
    each = zip(texts(), cycle(names_of(arguments.methods)), strict=False)
    between = max(1, arguments.texts // MOMENTS)
    with sparing_what_is_there():
        for moment in range(1, MOMENTS + 1):
            for text, method in islice(each, between):
                explanation = explainer.explain(text, method, check=0)
                if arguments.device != "cpu":
                    arguments.replayed += explanation.diagnostics.get("capture") == "replayed"
            yield moment * between, held(arguments.device)


def verdict(done: Sequence[int], readings: Sequence[float], where: str, bound: float) -> bool:
    """Say what an explanation leaves behind, by the second half of the moments; whether that is within the bound."""
    half = MOMENTS // 2
    found, margin = slope(done[half:], readings[half:])
    print(f"{where}: {found:+.1f} [{found - margin:+.1f}, {found + margin:+.1f}] bytes an explanation", end="")
    print(f", {'within' if found <= bound else 'ABOVE'} the bound of {bound:g}")
    return found <= bound


def main() -> None:
    """Print what is held at each moment, and the slopes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20_000, help=f"how many are explained, at least {MOMENTS}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", default=",".join(METHODS), help="names with commas, which take turns")
    parser.add_argument("--bound", type=float, default=BOUND, help="bytes an explanation")
    arguments = parser.parse_args()
    arguments.replayed = 0
    start = time.perf_counter()
    done: list[int] = []
    readings: dict[str, list[float]] = {}
    for count, now in explained(arguments):
        done.append(count)
        for where, reading in now.items():
            readings.setdefault(where, []).append(reading)
        memory = ", ".join(f"{where} {reading / 2**20:.2f} MiB" for where, reading in now.items())
        print(f"{count:>9,} explanations: {memory}", flush=True)
    if arguments.device != "cpu":
        print(f"{arguments.replayed:,} of {done[-1]:,} were replayed")
    print(f"{done[-1]:,} explanations by {arguments.methods} in {time.perf_counter() - start:.0f} s")
    within = [verdict(done, each, where, arguments.bound) for where, each in readings.items()]
    if not all(within):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
