"""What an explanation costs beside the model's own forward + backward pass.

    python benchmarks/cost.py                     # BERT-base size, random weights, 128 tokens, batch 1 and 16
    python benchmarks/cost.py --device cuda --dtype bfloat16 --batches 1,16,64

Prints ratios from one run: every round times the plain pass and each method in turn, and medians are compared, so that
a slow moment of the machine falls on all of them. The plain pass is the stock model with eager attention, its
parameters frozen, and the gradient of the predicted class's logit taken to the embeddings (f+b); f is the stock model's
forward pass without gradients. Memory is the peak above
the loaded model, of a process of its own on a CPU (Linux only).
"""

import argparse
import ctypes
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import whyformer
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
MEMORY_OF = (PLAIN, "attcat", "transformer_attribution")


def build(device: str, dtype: torch.dtype, attention: str, layers: int) -> BertForSequenceClassification:
    """BERT-base with random weights, the same ones each time."""
    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=layers, attn_implementation=attention)
    model = BertForSequenceClassification(config)
    return model.to(device, dtype).eval()


def plain(model: BertForSequenceClassification, inputs: dict[str, Tensor]) -> Tensor:
    """Forward, and backward to the embeddings."""
    embeddings = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, attention_mask=inputs["attention_mask"]).logits
    return torch.autograd.grad(logits.amax(-1).sum(), embeddings)[0]


def forward(model: BertForSequenceClassification, inputs: dict[str, Tensor]) -> Tensor:
    """The stock model without gradients."""
    with torch.no_grad():
        return model(**inputs).logits


def workloads(
    device: str, dtype: torch.dtype, batch: int, tokens: int, layers: int = 12, only: str | None = None
) -> dict[str, Callable[[], Tensor]]:
    """The plain pass and every method, on the same random tokens."""
    eager = build(device, dtype, "eager", layers).requires_grad_(False) if only in (None, PLAIN) else None
    model = build(device, dtype, "sdpa", layers) if only != PLAIN else None
    ids = torch.randint(1000, 30000, (batch, tokens), device=device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    calls: dict[str, Callable[[], Tensor]] = {
        FORWARD: lambda: forward(model, inputs),
        PLAIN: lambda: plain(eager, inputs),
    }
    for name in METHODS:
        calls[name] = lambda name=name: whyformer.attribute(model, inputs, name)
    calls[TOGETHER] = lambda: together(model, inputs)
    return calls


def together(model: BertForSequenceClassification, inputs: dict[str, Tensor]) -> Tensor:
    """Every method that shares the trace, on one input."""
    prediction = Prediction(model, batch_of(model, inputs), relevance=True)
    scores = [
        m(prediction).total for name, m in whyformer.list_methods().items() if m.passes == "one" and name not in APART
    ]
    return torch.stack(scores)


def refuses(call: Callable[[], Tensor]) -> bool:
    """Whether a workload is refused, as relevance in half precision is."""
    try:
        call()
    except whyformer.UnsupportedModel:
        return True
    return False


def seconds(call: Callable[[], Tensor], device: str) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_memory(name: str, arguments: argparse.Namespace, batch: int) -> float:
    """MiB above the loaded model at the highest point of one call."""
    if arguments.device != "cpu":
        call = workloads(arguments.device, getattr(torch, arguments.dtype), batch, arguments.tokens, only=name)[name]
        call()
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    command = [
        sys.executable,
        __file__,
        "--memory-of",
        name,
        "--batches",
        str(batch),
        "--tokens",
        str(arguments.tokens),
    ]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory_of(name: str, batch: int, tokens: int) -> float:
    """The same for this process, which must have done nothing else."""
    workloads("cpu", torch.float32, 1, 8, layers=1, only=name)[name]()
    call = workloads("cpu", torch.float32, batch, tokens, only=name)[name]
    return peak_above(call)


def peak_above(call: Callable[[], object]) -> float:
    """MiB above what is resident now at the highest point of one call."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed must not be used again unseen
    Path("/proc/self/clear_refs").write_text("5")  # Linux: start the peak anew
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """Memory of this process in MiB: now (VmRSS), or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 2**10


def table(arguments: argparse.Namespace, batch: int) -> None:
    """Time and memory of each workload beside the plain pass."""
    calls = workloads(arguments.device, getattr(torch, arguments.dtype), batch, arguments.tokens)
    wanted = (FORWARD, PLAIN, *arguments.methods.split(","))
    calls = {name: call for name, call in calls.items() if name in wanted and not refuses(call)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(arguments.rounds):
        for name, call in calls.items():
            times[name].append(seconds(call, arguments.device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    del calls
    memories = {name: peak_memory(name, arguments, batch) for name in MEMORY_OF if name in times}
    tf32 = ", TF32" if arguments.tf32 else ""
    print(f"\nbatch {batch}, {arguments.tokens} tokens, {arguments.dtype}{tf32} on {arguments.device}")
    print(f"{'':<25}{'ms':>9}{'÷ f+b':>8}{'÷ f':>8}{'MiB':>8}{'÷ f+b':>8}")
    for name, median in medians.items():
        line = f"{name:<25}{1e3 * median:>9.1f}{median / medians[PLAIN]:>8.2f}{median / medians[FORWARD]:>8.2f}"
        if name in memories:
            line += f"{memories[name]:>8.0f}{memories[name] / memories[PLAIN]:>8.2f}"
        print(line)


def import_cost(rounds: int = 5) -> None:
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--methods", default=",".join((*METHODS, TOGETHER)), help="names with commas")
    parser.add_argument("--tf32", action="store_true", help="let a GPU multiply float32 matrices with 10 bits")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    batches = [int(b) for b in arguments.batches.split(",")]
    if arguments.memory_of:
        print(memory_of(arguments.memory_of, batches[0], arguments.tokens))
        return
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    if arguments.device == "cpu":
        import_cost()
    for batch in batches:
        table(arguments, batch)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
