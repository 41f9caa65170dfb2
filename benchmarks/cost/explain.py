"""What an explanation costs beside the model's own forward + backward pass.

    python benchmarks/cost/explain.py                     # BERT-base size, random weights, 128 tokens, batch 1 and 16
    python benchmarks/cost/explain.py --kind llama        # the next token, 6 layers of width 256; --size smollm2
    python benchmarks/cost/explain.py --pixels 224        # ViT-B/16 size, images of 224 × 224 pixels
    python benchmarks/cost/explain.py --device cuda --dtype bfloat16 --batches 1,16,64

The unit is the stock model's own pass: as it is, with its own fused attention, its parameters frozen, forward and the
gradient of the highest logit taken to the embeddings or pixels (f+b); f is its forward pass without gradients. Of a
language model both compute the logits behind the last token alone. The model that is explained is another copy, as it
was built: with parameters that ask for gradients.

Every round times the plain passes and each method in turn, so that a slow moment of the machine falls on all of them.
Ratios are those of the medians, with a 95 % interval by a bootstrap over rounds. If the rounds would take longer than
`--seconds`, there are fewer, which is said above the table. Memory is the peak of all tensors above the model and its
inputs: live storages on a CPU, what torch allocates on a GPU. What is refused, or does not fit, is
said below; where that is f+b, the rest stands beside f.

On a GPU methods run without captured graphs. With `--capture` each has another row in which it is replayed, and so has
the stock forward pass; its memory is what its graphs hold. Another row has those graphs alone, without the Python
around them.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor

import whyformer
from benchmarks.cost.timing import (
    LLAMAS,
    build,
    build_of_images,
    build_of_next_tokens,
    interval,
    parser_of,
    plain,
    ratio,
    times_when_warm,
)
from whyformer.inputs.encoding import batch_of
from whyformer.methods.registry import Method
from whyformer.models.memory import peak_memory
from whyformer.prediction import Prediction
from whyformer.recorder.captures import SIGHTS, known_captures, release
from whyformer.registry.specs import names_of

METHODS = (
    "rollout",
    "input_x_gradient",
    "attcat",
    "gae",
    "cp_lrp",
    "attn_lrp",
    "layer_lrp",
    "alti",
    "transformer_attribution",
    "lrp",
)
TOGETHER = "all that share a trace"  # not by default: it takes as long as all others
APART = ("attention_flow", "mask_lrp", "decoded_grad_cam")  # slow by itself, or without what it needs here
FORWARD = "forward alone"
CAPTURED, ALONE = ", replayed", ": graphs alone"
GRAPHS: dict[Callable[[], object], tuple[Any, ...]] = {}  # of each method that was captured
PLAIN = "forward + backward"
BERT_LAYERS = 12
BEHIND_THE_LAST = {"logits_to_keep": 1, "use_cache": False}  # what the plain passes of a language model are told
Calls = dict[str, Callable[[], Tensor]]


def forward(model: Any, inputs: dict[str, Tensor], **options: Any) -> Tensor:
    """The stock model without gradients."""
    with torch.no_grad():
        logits: Tensor = model(**inputs, **options).logits
    return logits


def is_llama(arguments: argparse.Namespace) -> bool:
    """Whether the model tells the next token."""
    return arguments.kind == "llama" and not arguments.pixels


def layers_of(arguments: argparse.Namespace) -> int:
    """As many as were asked for, or as the model has."""
    own: int = LLAMAS[arguments.size]["num_hidden_layers"] if is_llama(arguments) else BERT_LAYERS
    return arguments.layers or own


def model_of(arguments: argparse.Namespace) -> Any:
    """A model of the size of BERT-base, of ViT-B/16, or of a Llama."""
    place, layers = (arguments.device, getattr(torch, arguments.dtype)), layers_of(arguments)
    if arguments.pixels:
        return build_of_images(*place, layers, arguments.pixels)
    if is_llama(arguments):
        return build_of_next_tokens(*place, arguments.size, layers, arguments.tokens)
    return build(*place, "sdpa", layers)


def inputs_of(arguments: argparse.Namespace, batch: int) -> dict[str, Tensor]:
    """Random tokens or pixels."""
    if arguments.pixels:
        shape = (batch, 3, arguments.pixels, arguments.pixels)
        return {"pixel_values": torch.randn(shape, device=arguments.device, dtype=getattr(torch, arguments.dtype))}
    ids = torch.randint(1000, 30000, (batch, arguments.tokens), device=arguments.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def workloads(arguments: argparse.Namespace, stock: Any, model: Any, inputs: dict[str, Tensor]) -> Calls:
    """The plain passes and every method, on the same random tokens or pixels."""
    options = BEHIND_THE_LAST if is_llama(arguments) else {}
    calls: Calls = {
        FORWARD: partial(forward, stock, inputs, **options),
        PLAIN: partial(plain, stock, inputs, **options),
    }
    if arguments.capture:
        calls[f"{FORWARD}{CAPTURED}"] = captured_forward(stock, inputs, options)
    for name in names_of(arguments.methods):
        if name == TOGETHER:
            shared = sharing(model, inputs)
            calls[f"{TOGETHER} ({len(shared)})"] = partial(together, model, inputs, shared)
        else:
            explain = partial(whyformer.attribute, model, inputs, name, memory=arguments.memory)
            calls[name] = partial(explain, capture=False)
            if arguments.capture:
                calls[f"{name}{CAPTURED}"] = explain
                calls[f"{name}{CAPTURED}{ALONE}"] = partial(replay_alone, explain)
    return calls


def replay_alone(explain: "partial[Tensor]") -> Tensor:
    """The graphs of a method, without whatever Python does before and after them; they are captured if they are not."""
    if explain not in GRAPHS:
        release()
        for _ in range(SIGHTS + 1):
            explain()
        (run,) = known_captures()[0].runs.values()
        (made,) = run.passes.values()
        GRAPHS[explain] = run, made
    run, made = GRAPHS[explain]
    run.graph.replay()
    made.graph.replay()
    scores: Tensor = made.scores.values
    return scores


def captured_forward(model: Any, inputs: dict[str, Tensor], options: Mapping[str, Any]) -> Callable[[], Tensor]:
    """The stock model without gradients, as one CUDA graph."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        forward(model, inputs, **options)
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = forward(model, inputs, **options)

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay


def captures_held(call: Callable[[], object], calls: int = SIGHTS + 1) -> int:
    """Bytes that the graphs of a workload hold, once it is replayed."""
    release()
    for _ in range(calls):
        call()
    return sum(captures.memory for captures in known_captures())


def sharing(model: Any, inputs: dict[str, Tensor]) -> list[Method]:
    """Every method that shares a trace and does not refuse the model."""
    prediction = Prediction(model, batch_of(model, inputs), relevance=True)
    return [
        method
        for name, method in whyformer.list_methods().items()
        if method.passes == "one" and not method.images_only and name not in APART
        if not refuses(partial(method, prediction))
    ]


def together(model: Any, inputs: dict[str, Tensor], methods: list[Method]) -> Tensor:
    """Several methods on one input, which share its trace."""
    prediction = Prediction(model, batch_of(model, inputs), relevance=True)
    return torch.stack([method(prediction).total for method in methods])


def refuses(call: Callable[[], object]) -> bool:
    """Whether a workload is refused, as relevance in half precision is, or does not fit."""
    try:
        call()
    except (whyformer.UnsupportedModel, torch.OutOfMemoryError):
        return True
    return False


def table(arguments: argparse.Namespace, batch: int) -> None:
    """Time and memory of each workload beside the plain pass."""
    stock, model, inputs = model_of(arguments).requires_grad_(False), model_of(arguments), inputs_of(arguments, batch)
    asked = workloads(arguments, stock, model, inputs)
    calls = {name: call for name, call in asked.items() if not refuses(call)}
    known = [*stock.parameters(), *stock.buffers(), *model.parameters(), *model.buffers(), *inputs.values()]
    captured = {name: call for name, call in calls.items() if CAPTURED in name}
    memories = {
        name: peak_memory(call, torch.device(arguments.device), known) or 0
        for name, call in calls.items()
        if name not in captured
    }
    for name, call in captured.items():
        memories[name] = 0 if name.startswith(FORWARD) or name.endswith(ALONE) else captures_held(call)
    measured = times_when_warm(calls, arguments.rounds, arguments.device, arguments.seconds)
    print(f"\n{described(arguments, batch, len(measured[FORWARD]))}")
    print_table(measured, memories)
    if refused := [name for name in asked if name not in calls]:
        print(f"refused: {', '.join(refused)}")


def described(arguments: argparse.Namespace, batch: int, rounds: int) -> str:
    """What was measured, where and how often."""
    kind = "ViT" if arguments.pixels else f"Llama ({arguments.size})" if is_llama(arguments) else "BERT"
    each = f"{arguments.pixels} pixels" if arguments.pixels else f"{arguments.tokens} tokens"
    threads = torch.get_num_threads()
    place = f"cpu, {threads} thread{'s' * (threads > 1)}" if arguments.device == "cpu" else torch.cuda.get_device_name()
    tf32 = ", TF32" if arguments.tf32 else ""
    often = f"{rounds} rounds" if rounds == arguments.rounds else f"{rounds} of {arguments.rounds} rounds"
    count = layers_of(arguments)
    layers = f"{kind} of {count} layer{'s' * (count > 1)}"
    return f"{layers}, batch {batch}, {each}, {arguments.dtype}{tf32} on {place}, {often}"


def print_table(measured: Mapping[str, list[float]], memories: Mapping[str, int]) -> None:
    """A line for each workload; an interval of the plain pass beside itself would mean nothing."""
    unit = PLAIN if PLAIN in measured else FORWARD  # where that does not fit
    beside = "÷ f+b" if unit == PLAIN else "÷ f"
    print(f"| {'':<35} | {'ms':>8} | {beside:<18} | {'÷ f':>6} | {'MiB':>7} | {beside:>6} |")
    print("|---|---|---|---|---|---|")
    for name, taken in measured.items():
        pair = (taken, measured[unit])
        bounds = interval(ratio, pair, 2) if name != unit else ""
        method, captured, rest = name.partition(CAPTURED)
        title = name if name.startswith((FORWARD, PLAIN, TOGETHER)) else f"`{method}`{captured}{rest}"
        cells = [
            f"{title:<35}",
            f"{1e3 * statistics.median(taken):>8.1f}",
            f"{f'{ratio(pair):.2f} {bounds}':<18}",
            f"{ratio((taken, measured[FORWARD])):>6.2f}",
            f"{memories[name] / 2**20:>7.1f}",
            f"{memories[name] / memories[unit]:>6.2f}",
        ]
        print(f"| {' | '.join(cells)} |")


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
    parser.set_defaults(rounds=31, layers=0)
    parser.add_argument("--kind", choices=("bert", "llama"), default="bert")
    parser.add_argument("--size", choices=tuple(LLAMAS), default="small", help="of a Llama")
    parser.add_argument("--pixels", type=int, default=0, help="images of so many pixels a side, in place of tokens")
    parser.add_argument("--seconds", type=float, default=600, help="in which the rounds of a table are to end")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"names with commas; also: {TOGETHER}")
    parser.add_argument("--memory", choices=("usual", "low"), default="usual", help="low: layers are run again")
    parser.add_argument("--capture", action="store_true", help="on a GPU, with what is captured and replayed")
    parser.add_argument("--tf32", action="store_true", help="let a GPU multiply float32 matrices with 10 bits")
    parser.add_argument("--imports", type=int, default=5, help="how often importing is timed, on a CPU")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    if arguments.device == "cpu" and arguments.imports:
        import_cost(arguments.imports)
    for batch in map(int, arguments.batches.split(",")):
        table(arguments, batch)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
