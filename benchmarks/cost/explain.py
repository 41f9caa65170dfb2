"""The time and memory of explanations, relative to one forward and backward pass of the stock model.

    python benchmarks/cost/explain.py                     # BERT-base size, random weights, 128 tokens, batch 1 and 16
    python benchmarks/cost/explain.py --kind llama        # the next token, 6 layers of width 256; --size smollm2
    python benchmarks/cost/explain.py --pixels 224        # ViT-B/16 size, images of 224 × 224 pixels
    python benchmarks/cost/explain.py --device cuda --dtype bfloat16 --batches 1,16,64
    python benchmarks/cost/explain.py --what stepwise     # other methods: stepwise, baselines, decoded
    python benchmarks/cost/explain.py --what checking     # Explainer.explain with 0, 3 and 10 words checked
    python benchmarks/cost/explain.py --what prefixes     # GPT-2 size, with and without reuse of common prefixes

The unit is one pass of the stock model (f+b): with its own fused attention, its parameters frozen, forward and the
gradient of the highest logit with respect to the embeddings or pixels. f is the forward pass without gradients. For a
language model both compute only the logits of the last token. The explained model is a second copy, whose parameters
require gradients, as they do after loading.

Every round times the plain passes and each method in turn, so that a slow moment of the machine affects all of them.
Ratios are those of the medians, with a 95 % interval by a bootstrap over rounds. If the rounds would take longer than
`--seconds`, there are fewer, and the line above the table gives their number. Memory is the peak of all tensors above
the model and its inputs: live storages on a CPU, what torch allocates on a GPU. Calls that raise, or do not fit, are
listed below the table. If f+b does not fit, ratios are relative to f.

On a GPU methods run without CUDA graphs. `--capture` adds two rows for each method: the call when its graphs are
replayed, whose memory is what the graphs hold, and the graphs alone, without the Python around them. The stock forward
pass is captured too.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    LlamaConfig,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.utils.logging import disable_progress_bar

import whyformer
from benchmarks.cost.timing import LLAMAS, interval, plain, ratio, times, word_tokenizer
from whyformer.inputs.batch import batch_of
from whyformer.methods.logit_lens import save_head
from whyformer.methods.method import Method
from whyformer.models.memory import peak_memory
from whyformer.perturb.engine import RunCounts, Runner
from whyformer.perturb.prefixes import running_whole
from whyformer.prediction import Prediction
from whyformer.recorder.capture.captures import SIGHTS, known_captures, release
from whyformer.registry.specs import names_of
from whyformer.tolerance import distance

METHODS = {  # the default methods for each --what
    "methods": (
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
    ),
    "stepwise": ("attn_lrp", "stepwise(of=attn_lrp)", "stepwise(of=attn_lrp, steps=10)"),
    "baselines": (
        "integrated_gradients",
        "integrated_gradients(protocol=allennlp)",
        "gradient_shap",
        "deep_lift_shap",
        "occlusion",
        "lime(samples=25)",
        "kernel_shap(samples=25)",
    ),
    "decoded": ("cat", "decoded_grad_cam", "decoded_grad_cam(layers=all)"),
    "checking": ("attn_lrp",),
    "prefixes": ("occlusion(baseline=zero)",),
}
TOGETHER = "all that share a trace"  # not a default: takes as long as all the others
NOT_TOGETHER = ("attention_flow", "mask_lrp", "decoded_grad_cam")  # slow, or need more than the inputs
FORWARD, PLAIN = "forward alone", "forward + backward"
CAPTURED, ALONE = ", replayed", ": graphs alone"
CHECKS = (0, 3, 10)
LAST_LOGITS_ONLY = {"logits_to_keep": 1, "use_cache": False}
Inputs = dict[str, Tensor]
Call = Callable[[], object]
Calls = dict[str, Call]


def kind_of(arguments: argparse.Namespace) -> str:
    """Return the kind of model: bert, vit, gpt2 or llama."""
    if arguments.pixels:
        return "vit"
    return arguments.kind or ("gpt2" if arguments.what == "prefixes" else "bert")


def is_language_model(arguments: argparse.Namespace) -> bool:
    """Return True if the model predicts the next token."""
    return kind_of(arguments) in ("gpt2", "llama")


def layers_of(arguments: argparse.Namespace) -> int:
    """Return the number of layers: `--layers`, or the model's own."""
    own: int = LLAMAS[arguments.size]["num_hidden_layers"] if kind_of(arguments) == "llama" else 12
    return arguments.layers or own


def build(arguments: argparse.Namespace) -> Any:
    """Build a model of the size of BERT-base, ViT-B/16, GPT-2 or a Llama, with the same random weights each time."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": layers_of(arguments), "attn_implementation": "sdpa"}
    length = {"max_position_embeddings": max(512, arguments.tokens)}
    model: Any
    match kind_of(arguments):
        case "bert":
            model = BertForSequenceClassification(BertConfig(**sizes, **length))
        case "vit":
            model = ViTForImageClassification(ViTConfig(**sizes, image_size=arguments.pixels))
        case "gpt2":
            model = AutoModelForCausalLM.from_config(GPT2Config(**sizes, **length))
        case _:
            model = AutoModelForCausalLM.from_config(LlamaConfig(**{**LLAMAS[arguments.size], **length, **sizes}))
    return model.to(arguments.device, getattr(torch, arguments.dtype)).eval()


def inputs_of(arguments: argparse.Namespace, batch: int) -> Inputs:
    """Draw random tokens or pixels."""
    if arguments.pixels:
        shape = (batch, 3, arguments.pixels, arguments.pixels)
        return {"pixel_values": torch.randn(shape, device=arguments.device, dtype=getattr(torch, arguments.dtype))}
    ids = torch.randint(1000, 30000, (batch, arguments.tokens), device=arguments.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def forward(model: Any, inputs: Inputs, **options: Any) -> Tensor:
    """Run the stock model without gradients."""
    with torch.no_grad():
        logits: Tensor = model(**inputs, **options).logits
    return logits


def plain_passes(arguments: argparse.Namespace, stock: Any, inputs: Inputs) -> Calls:
    """Return the passes of the stock model."""
    options = LAST_LOGITS_ONLY if is_language_model(arguments) else {}
    calls: Calls = {
        FORWARD: partial(forward, stock, inputs, **options),
        PLAIN: partial(plain, stock, inputs, **options),
    }
    if arguments.capture:
        calls[f"{FORWARD}{CAPTURED}"] = captured_forward(stock, inputs, options)
    return calls


def explanations(arguments: argparse.Namespace, model: Any, inputs: Inputs, method: str) -> Calls:
    """Return the call of one method on ready tensors; with `--capture`, its replay too."""
    if method == TOGETHER:
        shared = methods_that_share(model, inputs)
        return {f"{TOGETHER} ({len(shared)})": partial(together, model, inputs, shared)}
    options = {"lm_head": arguments.lm_head} if method.startswith("decoded_grad_cam") else {}
    explain = partial(whyformer.attribute, model, inputs, method, memory=arguments.memory, **options)
    calls: Calls = {f"`{method}`": partial(explain, capture=False)}
    if arguments.capture:
        calls[f"`{method}`{CAPTURED}"] = explain
        calls[f"`{method}`{CAPTURED}{ALONE}"] = graphs_alone(explain)
    return calls


def checked_explanations(arguments: argparse.Namespace, model: Any, inputs: Inputs, method: str) -> Calls:
    """Return calls of `Explainer.explain` on texts, with no, 3 and 10 words checked."""
    explainer = whyformer.Explainer(model, word_tokenizer(model.config.vocab_size))
    texts = [" ".join(f"w{token}" for token in row[1:-1]) for row in inputs["input_ids"].tolist()]
    explain = partial(explainer.explain, texts, method, batch_size=len(texts), capture=arguments.capture)
    return {f"`{method}`, check={count}": partial(explain, check=count, progress=False) for count in CHECKS}


def explanations_by_prefix(arguments: argparse.Namespace, model: Any, inputs: Inputs, method: str) -> Calls:
    """Return a method's call with inputs that are run whole, and with common prefixes that are run once."""
    reusing = partial(whyformer.attribute, model, inputs, method, capture=False)

    def whole() -> Tensor:
        with running_whole(model):
            return reusing()

    (scores, tokens), (expected, all_tokens) = tokens_run(reusing), tokens_run(whole)
    share = f"{tokens / all_tokens:.2f} of the tokens are run" if all_tokens else "inputs are always run whole"
    print(f"\n`{method}`: {share}, scores differ by {distance(scores, expected):.0e} of their peak")
    return {f"`{method}`, inputs run whole": whole, f"`{method}`": reusing}


def tokens_run(call: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """Return the scores that a call returns, and the number of tokens it runs with units hidden."""
    counts: list[RunCounts] = []
    initialize = Runner.__init__

    def remember(self: Runner, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        counts.append(self.counts)

    with patch.object(Runner, "__init__", remember):
        scores = call()
    return scores, sum(each.tokens for each in counts)


def methods_that_share(model: Any, inputs: Inputs) -> list[Method]:
    """Return every method that needs one trace only and accepts the model."""
    prediction = Prediction(model, batch_of(model, inputs), relevance=True)
    return [
        method
        for name, method in whyformer.list_methods().items()
        if method.passes == "one" and not method.images_only and name not in NOT_TOGETHER
        if not raises(partial(method, prediction))
    ]


def together(model: Any, inputs: Inputs, methods: list[Method]) -> Tensor:
    """Explain one input by several methods that share its trace."""
    prediction = Prediction(model, batch_of(model, inputs), relevance=True)
    return torch.stack([method(prediction).total for method in methods])


def captured_forward(model: Any, inputs: Inputs, options: Mapping[str, Any]) -> Call:
    """Capture the stock model's forward pass without gradients as one CUDA graph; return its replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        forward(model, inputs, **options)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward(model, inputs, **options)
    return graph.replay


def graphs_alone(explain: Call) -> Call:
    """Return a call that replays the graphs of a method without the Python around them; it captures them first."""

    @cache
    def graphs() -> tuple[Any, Any]:
        capture_anew(explain)
        (run,) = known_captures()[0].runs.values()
        (passes,) = run.passes.values()
        return run, passes  # both are kept, since they hold the memory of their graphs

    def replay() -> None:
        for captured in graphs():
            captured.graph.replay()

    return replay


def capture_anew(call: Call) -> int:
    """Capture a call as CUDA graphs; return the bytes that they hold."""
    release()
    for _ in range(SIGHTS + 1):
        call()
    return sum(captures.memory for captures in known_captures())


def raises(call: Call) -> bool:
    """Return True if a model is not supported (as relevance in half precision), or memory does not suffice."""
    try:
        call()
    except (whyformer.UnsupportedModel, torch.OutOfMemoryError):
        return True
    return False


def table(arguments: argparse.Namespace, batch: int) -> None:
    """Measure and print the time and memory of each call."""
    stock, model, inputs = build(arguments).requires_grad_(False), build(arguments), inputs_of(arguments, batch)
    calls_of = {"checking": checked_explanations, "prefixes": explanations_by_prefix}.get(arguments.what, explanations)
    asked = plain_passes(arguments, stock, inputs)
    for method in names_of(arguments.methods):
        asked |= calls_of(arguments, model, inputs, method)
    calls = {name: call for name, call in asked.items() if not raises(call)}
    known = [*stock.parameters(), *stock.buffers(), *model.parameters(), *model.buffers(), *inputs.values()]
    memory = {name: memory_of(name, call, arguments.device, known) for name, call in calls.items()}
    measured = times(calls, arguments.rounds, arguments.device, arguments.seconds)
    print(f"\n{described(arguments, batch, len(measured[FORWARD]))}")
    print_table(measured, memory)
    if refused := [name.replace("`", "") for name in asked if name not in calls]:
        print(f"refused: {', '.join(refused)}")


def memory_of(name: str, call: Call, device: str, known: list[Tensor]) -> int:
    """Return the peak of one call in bytes; for a replayed method, what its graphs hold."""
    if CAPTURED not in name:
        return peak_memory(call, torch.device(device), known) or 0
    return 0 if name.startswith(FORWARD) or name.endswith(ALONE) else capture_anew(call)


def described(arguments: argparse.Namespace, batch: int, rounds: int) -> str:
    """Return a line with the model, its inputs, the device and the number of rounds."""
    names = {"bert": "BERT", "vit": "ViT", "gpt2": "GPT-2", "llama": f"Llama ({arguments.size})"}
    count, threads = layers_of(arguments), torch.get_num_threads()
    layers = f"{names[kind_of(arguments)]} of {count} layer{'s' * (count > 1)}"
    units = f"{arguments.pixels} pixels" if arguments.pixels else f"{arguments.tokens} tokens"
    device = (
        f"cpu, {threads} thread{'s' * (threads > 1)}" if arguments.device == "cpu" else torch.cuda.get_device_name()
    )
    tf32 = ", TF32" if arguments.tf32 else ""
    done = f"{rounds} rounds" if rounds == arguments.rounds else f"{rounds} of {arguments.rounds} rounds"
    return f"{layers}, batch {batch}, {units}, {arguments.dtype}{tf32} on {device}, {done}"


def print_table(measured: Mapping[str, list[float]], memory: Mapping[str, int]) -> None:
    """Print a row for each call; the unit has no interval."""
    unit = PLAIN if PLAIN in measured else FORWARD
    relative = "÷ f+b" if unit == PLAIN else "÷ f"
    print(f"| {'':<35} | {'ms':>8} | {relative:<18} | {'÷ f':>6} | {'MiB':>7} | {relative:>6} |")
    print("|---|---|---|---|---|---|")
    for name, taken in measured.items():
        pair = (taken, measured[unit])
        bounds = interval(ratio, pair, 2) if name != unit else ""
        cells = [
            f"{name:<35}",
            f"{1e3 * statistics.median(taken):>8.1f}",
            f"{f'{ratio(pair):.2f} {bounds}':<18}",
            f"{ratio((taken, measured[FORWARD])):>6.2f}",
            f"{memory[name] / 2**20:>7.1f}",
            f"{memory[name] / memory[unit]:>6.2f}",
        ]
        print(f"| {' | '.join(cells)} |")


def import_cost(rounds: int) -> None:
    """Print the seconds that importing whyformer adds to importing torch and transformers."""
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


def write_lm_head(folder: Path) -> str:
    """Write an LM head of BERT-base's size with random weights; return its file."""
    disable_progress_bar()
    BertForMaskedLM(BertConfig(num_hidden_layers=1)).save_pretrained(folder / "model")
    return str(save_head(folder / "model", folder / "head.safetensors"))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--what", choices=tuple(METHODS), default="methods", help="what is measured")
    made.add_argument("--methods", help=f"names separated by commas, also with options; or: {TOGETHER}")
    made.add_argument("--kind", choices=("bert", "gpt2", "llama"), help="bert by default; for prefixes gpt2")
    made.add_argument("--size", choices=tuple(LLAMAS), default="small", help="of a Llama")
    made.add_argument("--pixels", type=int, default=0, help="a vision model, and square images of this size")
    made.add_argument("--device", default="cpu")
    made.add_argument("--dtype", default="float32")
    made.add_argument("--tf32", action="store_true", help="let a GPU multiply float32 matrices with 10 bits")
    made.add_argument("--batches", default="1,16", help="batch sizes separated by commas")
    made.add_argument("--tokens", type=int, default=128)
    made.add_argument("--layers", type=int, default=0, help="0: the model's own number")
    made.add_argument("--rounds", type=int, default=31)
    made.add_argument("--seconds", type=float, default=600, help="time limit for the rounds of a table")
    made.add_argument("--memory", choices=("usual", "low"), default="usual", help="low: layers are run again")
    made.add_argument("--capture", action="store_true", help="on a GPU: measure CUDA graphs too")
    made.add_argument("--imports", type=int, default=5, help="how often importing is timed, on a CPU")
    return made


def main() -> None:
    """Print the tables."""
    made = parser()
    arguments = made.parse_args()
    arguments.methods = arguments.methods or ",".join(METHODS[arguments.what])
    if arguments.what in ("checking", "decoded") and kind_of(arguments) != "bert":
        made.error(f"--what {arguments.what} is measured with --kind bert only")
    if arguments.what == "prefixes" and not is_language_model(arguments):
        made.error("--what prefixes is measured with --kind gpt2 or llama")
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    if arguments.device == "cpu" and arguments.imports and arguments.what == "methods":
        import_cost(arguments.imports)
    with tempfile.TemporaryDirectory() as folder:
        arguments.lm_head = write_lm_head(Path(folder)) if arguments.what == "decoded" else None
        for batch in map(int, arguments.batches.split(",")):
            table(arguments, batch)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
