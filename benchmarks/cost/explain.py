"""What an explanation costs beside the model's own forward + backward pass.

    python benchmarks/cost/explain.py                     # BERT-base size, random weights, 128 tokens, batch 1 and 16
    python benchmarks/cost/explain.py --device cuda --dtype bfloat16 --batches 1,16,64
    python benchmarks/cost/explain.py --pixels 224        # ViT-B/16 size, images of 224 × 224 pixels

Prints ratios from one run: every round times the plain pass and each method in turn, and medians are compared, so that
a slow moment of the machine falls on all of them. The plain pass is the stock model with eager attention, its
parameters frozen, and the gradient of the predicted class's logit taken to the embeddings (f+b); f is the stock model's
forward pass without gradients. Memory is the peak above
the loaded model, of a process of its own on a CPU (Linux only).
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor

import whyformer
from benchmarks.cost.timing import (
    build,
    build_of_images,
    in_a_process,
    parser_of,
    peak_above,
    peak_on_gpu,
    plain,
    times,
)
from whyformer.inputs.encoding import batch_of
from whyformer.prediction import Prediction

METHODS = (
    "rollout",
    "input_x_gradient",
    "attcat",
    "gae",
    "cp_lrp",
    "attn_lrp",
    "alti",
    "transformer_attribution",
    "lrp",
)
TOGETHER = "all that share a trace"
APART = ("attention_flow", "mask_lrp", "decoded_grad_cam")  # slow by itself, or without what it needs here
FORWARD = "forward alone"
PLAIN = "forward + backward"
MEMORY_OF = (PLAIN, "attcat", "attn_lrp", "transformer_attribution")
SMALL_IMAGE = 32  # pixels


def forward(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """The stock model without gradients."""
    with torch.no_grad():
        logits: Tensor = model(**inputs).logits
    return logits


def model_of(arguments: argparse.Namespace, attention: str) -> Any:
    """A model of the size of BERT-base, or of ViT-B/16."""
    kind = arguments.device, getattr(torch, arguments.dtype), attention, arguments.layers
    return build_of_images(*kind, arguments.pixels) if arguments.pixels else build(*kind)


def inputs_of(arguments: argparse.Namespace, batch: int) -> dict[str, Tensor]:
    """Random tokens or pixels."""
    if arguments.pixels:
        shape = (batch, 3, arguments.pixels, arguments.pixels)
        return {"pixel_values": torch.randn(shape, device=arguments.device, dtype=getattr(torch, arguments.dtype))}
    ids = torch.randint(1000, 30000, (batch, arguments.tokens), device=arguments.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def workloads(arguments: argparse.Namespace, batch: int, only: str | None = None) -> dict[str, Callable[[], Tensor]]:
    """The plain pass and every method, on the same random tokens or pixels."""
    eager: Any = model_of(arguments, "eager").requires_grad_(False) if only in (None, PLAIN) else None
    model: Any = model_of(arguments, "sdpa") if only != PLAIN else None
    inputs = inputs_of(arguments, batch)
    calls: dict[str, Callable[[], Tensor]] = {
        FORWARD: lambda: forward(model, inputs),
        PLAIN: lambda: plain(eager, inputs),
    }
    for name in METHODS:
        calls[name] = partial(whyformer.attribute, model, inputs, name)
    calls[TOGETHER] = lambda: together(model, inputs)
    return calls


def together(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Every method that shares the trace, on one input."""
    prediction = Prediction(model, batch_of(model, inputs), relevance=True)
    scores = [
        m(prediction).total
        for name, m in whyformer.list_methods().items()
        if m.passes == "one" and not m.images_only and name not in APART
    ]
    return torch.stack(scores)


def refuses(call: Callable[[], Tensor]) -> bool:
    """Whether a workload is refused, as relevance in half precision is."""
    try:
        call()
    except whyformer.UnsupportedModel:
        return True
    return False


def peak_memory(name: str, arguments: argparse.Namespace, batch: int) -> float:
    """MiB above the loaded model at the highest point of one call."""
    if arguments.device != "cpu":
        return peak_on_gpu(workloads(arguments, batch, only=name)[name])
    sizes = {"tokens": arguments.tokens, "layers": arguments.layers, "pixels": arguments.pixels}
    return in_a_process(__file__, memory_of=name, batches=batch, **sizes)


def memory_of(name: str, arguments: argparse.Namespace, batch: int) -> float:
    """The same for this process, which must have done nothing else."""
    small = argparse.Namespace(
        **{**vars(arguments), "tokens": 8, "layers": 1, "pixels": arguments.pixels and SMALL_IMAGE}
    )
    refuses(workloads(small, 1, only=name)[name])  # what is imported on the way is there then
    return peak_above(workloads(arguments, batch, only=name)[name])


def table(arguments: argparse.Namespace, batch: int) -> None:
    """Time and memory of each workload beside the plain pass."""
    calls = workloads(arguments, batch)
    wanted = (FORWARD, PLAIN, *arguments.methods.split(","))
    calls = {name: call for name, call in calls.items() if name in wanted and not refuses(call)}
    measured = times(calls, arguments.rounds, arguments.device)
    medians = {name: statistics.median(values) for name, values in measured.items()}
    del calls
    memories = {name: peak_memory(name, arguments, batch) for name in MEMORY_OF if name in measured}
    tf32 = ", TF32" if arguments.tf32 else ""
    each = f"{arguments.pixels} pixels" if arguments.pixels else f"{arguments.tokens} tokens"
    print(f"\nbatch {batch}, {each}, {arguments.dtype}{tf32} on {arguments.device}")
    print(f"{'':<25}{'ms':>9}{'÷ f+b':>8}{'÷ f':>8}{'MiB':>8}{'÷ f+b':>8}")
    for name, median in medians.items():
        line = f"{name:<25}{1e3 * median:>9.1f}{median / medians[PLAIN]:>8.2f}{median / medians[FORWARD]:>8.2f}"
        if name in memories:
            line += f"{memories[name]:>8.0f}{memories[name] / memories[PLAIN]:>8.2f}"
        print(line)


def import_cost(rounds: int) -> None:
    """Seconds that importing all of whyformer adds to importing torch and transformers."""
    program = (
        "import time; s = time.perf_counter(); import torch; from transformers import PreTrainedModel; "
        "m = time.perf_counter(); from whyformer import Explainer; print(m - s, time.perf_counter() - m)"
    )
    found = []
    for _ in range(rounds):
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        found.append([float(number) for number in done.stdout.split()])
    alone, added = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"import whyformer adds {added:.2f} s to the {alone:.2f} s of torch and transformers")


def main() -> None:
    """Print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--imports", type=int, default=5, help="how often importing is timed, on a CPU")
    parser.add_argument("--pixels", type=int, default=0, help="images of so many pixels a side, in place of tokens")
    parser.add_argument("--methods", default=",".join((*METHODS, TOGETHER)), help="names with commas")
    parser.add_argument("--tf32", action="store_true", help="let a GPU multiply float32 matrices with 10 bits")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    batches = [int(b) for b in arguments.batches.split(",")]
    if arguments.memory_of:
        print(memory_of(arguments.memory_of, arguments, batches[0]))
        return
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    if arguments.device == "cpu" and arguments.imports:
        import_cost(arguments.imports)
    for batch in batches:
        table(arguments, batch)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
