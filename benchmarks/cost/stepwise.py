"""What `stepwise` costs beside one pass of the method that explains its steps.

    python benchmarks/cost/stepwise.py                     # BERT-base size, random weights, 128 tokens, batch 1 and 16
    python benchmarks/cost/stepwise.py --device cuda --batches 1,16,64
    python benchmarks/cost/stepwise.py --of attcat --steps 3,5,10

Inputs shrink from step to step, so that n steps on texts of equal length see (n + 1) / 2 times the tokens of one pass:
2 for 3 steps, 5.5 for 10. Beside each line stands the same for the stock model: forward, and backward to the
embeddings, on inputs of the same lengths, beside one such pass on the whole input.

Every round times all workloads in turn, so that a slow moment of the machine falls on all of them. The ratios are those
of the medians, and those of the fastest rounds beside them.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor
from transformers import BertForSequenceClassification

import whyformer
from benchmarks.cost.timing import build, parser_of, plain, times

Inputs = dict[str, Tensor]


def texts(batch: int, tokens: int, device: str) -> Inputs:
    """Random tokens between two special ones."""
    ids = torch.randint(1000, 30000, (batch, tokens), generator=torch.Generator().manual_seed(0)).to(device)
    special = torch.zeros_like(ids)
    special[:, [0, -1]] = 1
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "special_tokens_mask": special}


def lengths(tokens: int, steps: int) -> list[int]:
    """How many tokens each step sees: all, and then fewer and fewer."""
    units = tokens - 2
    return [tokens - (2 * step * units + steps) // (2 * steps) for step in range(steps)]


def plain_steps(model: BertForSequenceClassification, inputs: Inputs, seen: list[int]) -> Tensor:
    """Forward and backward of the stock model on inputs of these lengths."""
    for length in seen:
        found = plain(model, {name: tensor[:, :length] for name, tensor in inputs.items()})
    return found


def workloads(arguments: argparse.Namespace, batch: int) -> dict[str, Callable[[], Tensor]]:
    """One pass, each number of steps, and the same of the stock model."""
    dtype = getattr(torch, arguments.dtype)
    eager = build(arguments.device, dtype, "eager", arguments.layers).requires_grad_(False)
    model = build(arguments.device, dtype, "sdpa", arguments.layers)
    inputs = texts(batch, arguments.tokens, arguments.device)
    stepped = partial(whyformer.attribute, model, inputs, "stepwise", of=arguments.of)
    calls: dict[str, Callable[[], Tensor]] = {
        "one pass": partial(whyformer.attribute, model, inputs, arguments.of),
        "plain one pass": partial(plain_steps, eager, inputs, [arguments.tokens]),
    }
    for steps in arguments.steps:
        calls[f"{steps} steps"] = partial(stepped, steps=steps)
        calls[f"plain {steps} steps"] = partial(plain_steps, eager, inputs, lengths(arguments.tokens, steps))
    return calls


def table(arguments: argparse.Namespace, batch: int) -> None:
    """The time of each workload beside one pass."""
    calls = workloads(arguments, batch)
    measured = times(calls, arguments.rounds, arguments.device)
    print(f"\nbatch {batch}, {arguments.tokens} tokens, {arguments.dtype} on {arguments.device}, of={arguments.of}")
    print("| | ms | ÷ one pass | fastest | plain model: ms | ÷ one pass | fastest |")
    print("|---|---|---|---|---|---|---|")
    for name in ("one pass", *(f"{steps} steps" for steps in arguments.steps)):
        cells = [name]
        for kind in ("", "plain "):
            own, one = measured[kind + name], measured[kind + "one pass"]
            median = statistics.median(own)
            cells += [f"{1e3 * median:.0f}", f"{median / statistics.median(one):.2f}", f"{min(own) / min(one):.2f}"]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--of", default="attn_lrp")
    parser.add_argument("--steps", default="3,10")
    arguments = parser.parse_args()
    arguments.steps = [int(steps) for steps in arguments.steps.split(",")]
    torch.set_num_threads(arguments.threads)
    start = time.perf_counter()
    for batch in arguments.batches.split(","):
        table(arguments, int(batch))
    print(f"\n{arguments.rounds} rounds, {arguments.threads} threads, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
