"""What the same scores cost with other libraries, each in its own environment, beside that environment's stock pass.

    python benchmarks/cost/peers.py lxt                   # AttnLRP by LXT's "efficient" rules
    python benchmarks/cost/peers.py captum                # gradients and paths of gradients
    python benchmarks/cost/peers.py inseq                 # input × gradient of the next token
    python benchmarks/cost/peers.py whyformer             # the same scores by Whyformer
    python benchmarks/cost/peers.py lxt --device cuda --dtype bfloat16 --sizes smollm2-135m --tokens 512,4096
    python benchmarks/cost/peers.py lxt --save lxt.json   # … and whyformer --save whyformer.json, and then:
    python benchmarks/cost/peers.py compare lxt.json whyformer.json

Needs torch, transformers and the peer alone, so it is run by the Python of the environment that has the peer. Models
have random weights, the same in each environment whatever its transformers draws. The stock pass (f+b) is the model as
it is, with SDPA attention, its parameters frozen, and the gradient of the highest logit taken to the embeddings.

Each workload lives in a process of its own, since some peers patch the model's classes for good. Rounds time all in
turn, so that a slow moment of the machine falls on all; medians are printed with the 95 % interval of a bootstrap over
rounds, on the clock (ms, ÷ f+b) and of the processor (CPU ÷ f+b), which other work does not lengthen.
Memory is the peak above the loaded model: resident memory on a CPU (Linux only), what torch allocates on a GPU.
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor, nn


def make_torchvision_importable() -> None:
    """Name the operators that torchvision asks for on import, where it has none; nothing here calls them.

    LXT and transformers import torchvision, whose wheel on PyPI is built for CUDA: beside a torch for CPUs it has no
    operators, and fails.
    """
    try:
        if find_spec("torchvision"):
            import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float overlap) -> Tensor")


make_torchvision_importable()  # before transformers is imported

from benchmarks.cost.timing import LLAMAS, interval, peak_on_cpu, peak_on_gpu, ratio, seconds, word_tokenizer

STOCK = "forward + backward"
SIZES: dict[str, dict[str, Any]] = {
    "llama": LLAMAS["small"],
    "smollm2-135m": LLAMAS["smollm2"],
    "bert-base": {},  # BertConfig's own
}
NEXT_TOKEN = ("llama", "smollm2-135m")
METHODS: dict[str, dict[str, tuple[str, ...]]] = {  # which scores a peer gives for which models
    "lxt": {"attn_lrp": tuple(SIZES)},
    "captum": dict.fromkeys(("input_x_gradient", "integrated_gradients", "deep_lift_shap"), ("bert-base",)),
    "inseq": {"input_x_gradient": NEXT_TOKEN},
    "whyformer": {
        "attn_lrp": tuple(SIZES),
        "input_x_gradient": tuple(SIZES),
        "integrated_gradients": ("bert-base",),
        "deep_lift_shap": ("bert-base",),
    },
}
STEPS = 50  # of integrated gradients, by Gauss-Legendre quadrature
WHYFORMER_OPTIONS: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": STEPS},
    "deep_lift_shap": {"at": "token_embeddings"},
}
PATH_TOKENS = {"cpu": 1024, "cuda": 16384}  # of all points of a path that run together: as many as Whyformer takes
PAD, LOWEST_ID, HIGHEST_ID = 0, 1000, 30000
FEWEST_ROUNDS = 5
WARMED_BELOW = 1.0  # seconds
EXACT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed goes back at once, and is not used again unseen
Call = Callable[[], Tensor]  # gives scores [batch, tokens]


@dataclass(frozen=True)
class Case:
    """One model and one input."""

    size: str
    layers: int  # 0: as many as the size has
    tokens: int
    batch: int
    device: str
    dtype: str

    def model(self) -> Any:
        """A model of the size, its parameters frozen; the classes are those that a peer may have patched."""
        options = {**SIZES[self.size], "attn_implementation": "sdpa", "max_position_embeddings": max(512, self.tokens)}
        if self.layers:
            options["num_hidden_layers"] = self.layers
        family, head = ("Bert", "SequenceClassification") if self.size == "bert-base" else ("Llama", "CausalLM")
        module = import_module(f"transformers.models.{family.lower()}.modeling_{family.lower()}")
        config = getattr(import_module("transformers"), f"{family}Config")(**options)
        model = getattr(module, f"{family}For{head}")(config)
        fill(model)
        return model.to(self.device, getattr(torch, self.dtype)).eval().requires_grad_(False)

    def ids(self) -> Tensor:
        """Random tokens, none of them special, [batch, tokens]."""
        generator = torch.Generator().manual_seed(0)
        return torch.randint(LOWEST_ID, HIGHEST_ID, (self.batch, self.tokens), generator=generator).to(self.device)

    def __str__(self) -> str:
        layers = f" of {self.layers} layers" if self.layers else ""
        return f"{self.size}{layers}, {self.tokens} tokens, batch {self.batch}, {self.dtype}"


def fill(model: nn.Module) -> None:
    """Give a model random weights that depend on the names of its parameters alone.

    Matrices keep the scale of what they multiply, so that attention, gates and activations are far from linear.
    """
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        values = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            values /= math.sqrt(parameter.shape[-1])
        else:
            values = 0.1 * values + float("norm" in name.lower() and name.endswith("weight"))
        parameter.data.copy_(values)


def logits_of(model: Any, **inputs: Tensor) -> Tensor:
    """The logits of the classes, or of the next token, [batch, outputs]."""
    options: dict[str, Any] = {"use_cache": False, "logits_to_keep": 1} if model.config.model_type == "llama" else {}
    logits: Tensor = model(**inputs, **options).logits
    return logits if logits.dim() == 2 else logits[:, -1]


def predicted(model: Any, ids: Tensor) -> Tensor:
    """The outputs that are explained, [batch]."""
    with torch.no_grad():
        highest: Tensor = logits_of(model, input_ids=ids).argmax(-1)
    return highest


def embedding_times_gradient(model: Any, ids: Tensor) -> Tensor:
    """Forward, and backward to the embeddings, summed over their width; with LXT's patches this is AttnLRP."""
    embeddings: Tensor = model.get_input_embeddings()(ids).detach().requires_grad_()
    highest = logits_of(model, inputs_embeds=embeddings).amax(-1)
    (gradient,) = torch.autograd.grad(highest.sum(), embeddings)
    return (embeddings.detach() * gradient).sum(-1)


def by_stock(case: Case, method: str) -> Call:
    """The plain pass."""
    model, ids = case.model(), case.ids()
    return lambda: embedding_times_gradient(model, ids)


def by_lxt(case: Case, method: str) -> Call:
    """LXT's efficient AttnLRP: classes of transformers are patched, then gradients are relevance."""
    family = "bert" if case.size == "bert-base" else "llama"
    module = import_module(f"transformers.models.{family}.modeling_{family}")
    import_module("lxt.efficient").monkey_patch(module)
    return by_stock(case, method)


def by_captum(case: Case, method: str) -> Call:
    """captum's classes, called as their documentation does."""
    attr, model, ids = import_module("captum.attr"), case.model(), case.ids()
    lookup = model.get_input_embeddings()

    def input_x_gradient() -> Tensor:
        explaining = attr.InputXGradient(lambda embeddings: logits_of(model, inputs_embeds=embeddings).amax(-1))
        vectors: Tensor = explaining.attribute(lookup(ids).detach().requires_grad_())
        return vectors.sum(-1)

    def integrated_gradients() -> Tensor:
        explaining = attr.LayerIntegratedGradients(lambda given: logits_of(model, input_ids=given), lookup)
        vectors: Tensor = explaining.attribute(
            ids,
            baselines=torch.full_like(ids, PAD),
            target=predicted(model, ids),
            n_steps=STEPS,
            internal_batch_size=max(1, PATH_TOKENS[case.device] // case.tokens),
        )
        return vectors.sum(-1)

    def deep_lift_shap() -> Tensor:
        embeddings, padding = lookup(ids).detach(), lookup(torch.full_like(ids[:1], PAD)).detach()
        baselines = torch.cat((padding, torch.zeros_like(padding)))
        explaining = attr.DeepLiftShap(OfEmbeddings(model))
        vectors: Tensor = explaining.attribute(embeddings, baselines=baselines, target=predicted(model, ids))
        return vectors.detach().sum(-1)

    calls = {call.__name__: call for call in (input_x_gradient, integrated_gradients, deep_lift_shap)}
    return calls[method]


class OfEmbeddings(nn.Module):
    """The logits as a module that takes embeddings, which DeepLIFT asks for."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, embeddings: Tensor) -> Tensor:
        """The logits, [batch, outputs]."""
        return logits_of(self.model, inputs_embeds=embeddings)


def by_inseq(case: Case, method: str) -> Call:
    """inseq's attribution of one more token, which it wants as text: each token is a word here."""
    model, ids = case.model(), case.ids()
    explaining = import_module("inseq").load_model(
        model, method, tokenizer=word_tokenizer(model.config.vocab_size, with_special_tokens=False), device=case.device
    )
    texts = [" ".join(f"w{token}" for token in row) for row in ids.tolist()]

    def call() -> Tensor:
        longer = [f"{text} w{token}" for text, token in zip(texts, predicted(model, ids).tolist(), strict=True)]
        said = explaining.attribute(texts, longer, attributed_fn="logit", show_progress=False)
        return torch.stack([one.target_attributions[: case.tokens, 0].sum(-1) for one in said.sequence_attributions])

    return call


def by_whyformer(case: Case, method: str) -> Call:
    """Whyformer's scores for ready tensors."""
    whyformer, model, ids = import_module("whyformer"), case.model(), case.ids()
    options = WHYFORMER_OPTIONS.get(method, {})

    def call() -> Tensor:
        scores: Tensor = whyformer.attribute(model, {"input_ids": ids}, method, **options)
        return scores

    return call


BUILDERS = {"lxt": by_lxt, "captum": by_captum, "inseq": by_inseq, "whyformer": by_whyformer}


class Worker:
    """A process that holds one workload, and answers what its scores, its seconds or its peak of memory are."""

    def __init__(self, process: subprocess.Popen[str], complaints: IO[str]):
        self._process, self._complaints = process, complaints

    def ask(self, question: str) -> Any:
        """What the process answers; if it ends instead, what it said last."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(question + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._complaints.seek(0)
            raise DoesNotRun((self._complaints.read().strip().splitlines() or ["ended without a word"])[-1])
        return json.loads(answer)


class DoesNotRun(Exception):
    """What a process said last."""


@contextmanager
def worker(peer: str, method: str, case: Case, **variables: str) -> Iterator[Worker]:
    """A process for a workload, with these variables in its environment, until it is not needed any more."""
    given = json.dumps({"method": method, **asdict(case)})
    command = [sys.executable, __file__, peer, "--serve", given]
    with tempfile.TemporaryFile("w+") as complaints:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": complaints}
        process = subprocess.Popen(command, text=True, env={**os.environ, **variables}, **pipes)
        try:
            yield Worker(process, complaints)
        finally:
            process.communicate()  # it ends when there are no more questions


def serve(peer: str, method: str, case: Case) -> None:
    """Answer questions line by line, as the process that holds a workload; whatever else is printed is no answer."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    build = by_stock if method == STOCK else BUILDERS[peer]
    build(replace(case, layers=1, tokens=8), method)()  # what is imported on the way is there then
    call = build(case, method)
    questions: dict[str, Callable[[], Any]] = {
        "memory": lambda: peak_on_cpu(call) if case.device == "cpu" else peak_on_gpu(call),
        "seconds": lambda: timed(call, case.device),
        "scores": lambda: call().double().tolist(),
    }
    for line in sys.stdin:
        print(json.dumps(questions[line.strip()]()), file=answers)


def timed(call: Call, device: str) -> tuple[float, float]:
    """Seconds of a call on the clock and of the processor; a short one is called before, to have the machine warm."""
    start = time.process_time()
    on_clock = seconds(call, device)
    if on_clock < WARMED_BELOW:
        start = time.process_time()
        on_clock = seconds(call, device)
    return on_clock, time.process_time() - start


@dataclass(frozen=True)
class Measured:
    """What one workload costs; the processor's seconds are not lengthened by other work on the machine."""

    seconds: list[float]
    processor: list[float]
    mebibytes: float
    scores: list[list[float]]

    def add(self, seconds: float, processor: float) -> None:
        """Note one more round."""
        self.seconds.append(seconds)
        self.processor.append(processor)


def measure(peer: str, methods: Sequence[str], case: Case, rounds: int, most: float) -> dict[str, Measured | str]:
    """The cost of the stock pass and of each method; of what does not run, why.

    A call is timed in fewer rounds if it would take more than `most` seconds in all. The memory of a CPU is measured in
    processes of their own.
    """
    with ExitStack() as stack:
        found: dict[str, Measured | str] = {}
        names, alone = (STOCK, *methods), case.device == "cpu"
        running = {} if alone else {name: stack.enter_context(worker(peer, name, case)) for name in names}
        for name in names:
            try:
                with worker(peer, name, case, **EXACT_MEMORY) if alone else nullcontext(running.pop(name)) as asked:
                    found[name] = Measured([], [], asked.ask("memory"), asked.ask("scores"))
            except DoesNotRun as error:
                found[name] = str(error)
            else:
                running[name] = stack.enter_context(worker(peer, name, case)) if alone else asked
        every = {name: every_how_many(asked.ask("seconds")[0], rounds, most) for name, asked in running.items()}
        for number in range(rounds):
            for name, asked in running.items():
                cost = found[name]
                if isinstance(cost, Measured) and number % every[name] == 0:
                    cost.add(*asked.ask("seconds"))
    return found


def every_how_many(length: float, rounds: int, most: float) -> int:
    """In which rounds a call of so many seconds is timed: in every first, second, third …"""
    affordable = max(FEWEST_ROUNDS, int(most / length))
    return max(1, rounds // affordable)


def milliseconds(samples: Sequence[Sequence[float]]) -> float:
    """The median."""
    return 1e3 * statistics.median(samples[0])


def print_table(found: Mapping[str, Measured | str]) -> None:
    """Time and memory of each workload beside the stock pass."""
    stock = found[STOCK]
    columns = f"{'ms':>9} {'':<19}{'÷ f+b':>6} {'':<15}{'CPU ÷ f+b':>10} {'':<15}{'MiB':>7}{'÷ f+b':>8}{'rounds':>8}"
    print(f"{'':<22}{columns}")
    for name, cost in found.items():
        if isinstance(cost, str) or isinstance(stock, str):
            print(f"{name:<22}does not run: {cost if isinstance(cost, str) else 'nor does the stock pass'}")
        else:
            print(f"{name:<22}{row_of(cost, stock)}")
    sys.stdout.flush()


def row_of(cost: Measured, stock: Measured) -> str:
    """The numbers of a workload; intervals of the stock pass beside itself would mean nothing."""
    clock, processor = (cost.seconds, stock.seconds), (cost.processor, stock.processor)
    bounds = [interval(ratio, both, 2) if cost is not stock else "" for both in (clock, processor)]
    row = f"{milliseconds(clock):>9.1f} {interval(milliseconds, clock, 1):<19}"
    row += f"{ratio(clock):>6.2f} {bounds[0]:<15}{ratio(processor):>10.2f} {bounds[1]:<15}"
    return row + f"{cost.mebibytes:>7.1f}{cost.mebibytes / stock.mebibytes:>8.2f}{len(cost.seconds):>8}"


def versions(peer: str, device: str) -> str:
    """What this environment is made of."""
    found = [f"{name} {importlib.metadata.version(name)}" for name in (peer, "torch", "transformers")]
    threads = torch.get_num_threads()
    place = f"{threads} CPU thread{'s' * (threads > 1)}" if device == "cpu" else torch.cuda.get_device_name()
    return ", ".join([*found, f"Python {platform.python_version()}", place])


def cost_of(peer: str, arguments: argparse.Namespace) -> None:
    """Print the tables of a peer, and keep its scores if that is asked for."""
    print(versions(peer, arguments.device))
    scores: dict[str, list[list[float]]] = {}
    for size in arguments.sizes.split(","):
        methods = [name for name in arguments.methods.split(",") if size in METHODS[peer].get(name, ())]
        for tokens in arguments.tokens.split(",") if methods else ():
            case = Case(size, arguments.layers, int(tokens), arguments.batch, arguments.device, arguments.dtype)
            print(f"\n{case}, on {arguments.device}")
            found = measure(peer, methods, case, arguments.rounds, arguments.seconds)
            print_table(found)
            scores |= {f"{case}: {name}": cost.scores for name, cost in found.items() if isinstance(cost, Measured)}
    if arguments.save:
        arguments.save.write_text(json.dumps({"versions": versions(peer, arguments.device), "scores": scores}))


def compare(one: Path, other: Path) -> None:
    """Print how far the scores of two files agree: the worst text of each case that both have."""
    first, second = (json.loads(file.read_text()) for file in (one, other))
    print(f"{first['versions']}\n{second['versions']}\n")
    print(f"{'':<80}{'rank correlation':>17}{'largest difference ÷ peak':>27}")
    for case, scores in first["scores"].items():
        if case in second["scores"]:
            a, b = torch.tensor(scores), torch.tensor(second["scores"][case])
            apart = ((a - b).abs().amax(-1) / a.abs().amax(-1)).max()
            print(f"{case:<80}{float(rank_correlation(a, b).min()):>17.6f}{float(apart):>27.1e}")


def rank_correlation(one: Tensor, other: Tensor) -> Tensor:
    """Spearman's, of scores without ties, [batch]."""
    ranks = [scores.argsort(-1).argsort(-1).double() for scores in (one, other)]
    first, second = (r - r.mean(-1, keepdim=True) for r in ranks)
    return (first * second).sum(-1) / (first.square().sum(-1) * second.square().sum(-1)).sqrt()


def parser_of_commands() -> argparse.ArgumentParser:
    """A command for each peer, and one that compares two files of scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for peer, methods in METHODS.items():
        command = commands.add_parser(peer, help=f"what scores by {peer} cost")
        supported = dict.fromkeys(size for sizes in methods.values() for size in sizes)
        command.add_argument("--sizes", default=",".join(supported), help="models, with commas")
        command.add_argument("--methods", default=",".join(methods), help="names, with commas")
        command.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
        command.add_argument("--dtype", default="float32")
        command.add_argument("--tokens", default="128,512", help="lengths, with commas")
        command.add_argument("--batch", type=int, default=1)
        command.add_argument("--layers", type=int, default=0, help="0: as many as the model has")
        command.add_argument("--rounds", type=int, default=31)
        command.add_argument(
            "--seconds",
            type=float,
            default=60,
            help="a slow call is timed in fewer rounds, so that they take about as long",
        )
        command.add_argument("--save", type=Path, help="write the scores to this file")
        command.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    comparing = commands.add_parser("compare", help="how far the scores of two files agree")
    comparing.add_argument("files", type=Path, nargs=2)
    return parser


def main() -> None:
    """Run a command."""
    arguments = parser_of_commands().parse_args()
    if arguments.command == "compare":
        compare(*arguments.files)
    elif arguments.serve:
        method = arguments.serve.pop("method")
        serve(arguments.command, method, Case(**arguments.serve))
    else:
        cost_of(arguments.command, arguments)


if __name__ == "__main__":
    main()
