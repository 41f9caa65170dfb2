"""What it saves that a causal model runs once what inputs with hidden units begin with alike.

    python benchmarks/cost/prefixes.py                     # GPT-2 size, random weights, 128 tokens
    python benchmarks/cost/prefixes.py --kind llama --tokens 512 --layers 4
    python benchmarks/cost/prefixes.py --methods 'occlusion,occlusion(window=1),lime,stepwise' --device cuda

Each method explains the next token of one text, with reuse and with every input run whole. Both are timed in turn in
every round, and the ratios are those of the medians, with those of the fastest rounds beside them. *Tokens* is what the
engine ran, as a share of what it runs whole; methods that need gradients or relevance, as `stepwise`, run
their inputs whole in any case.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PretrainedConfig, Qwen3Config

import whyformer
from benchmarks.cost.timing import parser_of, times
from whyformer.perturb.prefixes import running_whole
from whyformer.perturb.runner import Counts, Runner
from whyformer.rounding import distance

KINDS = ("gpt2", "llama", "qwen3")


def config_of(arguments: argparse.Namespace) -> PretrainedConfig:
    """A model of one kind, with heads of 64 numbers; Llama and Qwen3 have a third as many heads for keys and values."""
    heads = max(1, arguments.width // 64)
    if arguments.kind == "gpt2":
        return GPT2Config(
            n_layer=arguments.layers,
            n_embd=arguments.width,
            n_head=heads,
            vocab_size=arguments.vocabulary,
            n_positions=arguments.tokens,
        )
    sizes: dict[str, Any] = {
        "num_hidden_layers": arguments.layers,
        "hidden_size": arguments.width,
        "intermediate_size": 4 * arguments.width,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 3 if heads % 3 == 0 else heads,
        "head_dim": 64,
        "vocab_size": arguments.vocabulary,
        "max_position_embeddings": arguments.tokens,
    }
    return LlamaConfig(**sizes) if arguments.kind == "llama" else Qwen3Config(**sizes)


def build(arguments: argparse.Namespace) -> Any:
    """A causal language model with random weights, the same ones each time."""
    torch.manual_seed(0)
    config = config_of(arguments)
    model: Any = AutoModelForCausalLM.from_config(config)
    return model.to(arguments.device, getattr(torch, arguments.dtype)).eval().requires_grad_(False)


def whole(model: Any, call: Callable[[], Tensor]) -> Tensor:
    """The same call, with every input run whole."""
    with running_whole(model):
        return call()


def counted(call: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """What a call gives, and how many tokens the engine runs in it."""
    counts: list[Counts] = []
    made = Runner.__init__

    def noted(self: Runner, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        counts.append(self.counts)

    with patch.object(Runner, "__init__", noted):
        scores = call()
    return scores, sum(each.tokens for each in counts)


def line(arguments: argparse.Namespace, model: Any, method: str) -> str:
    """The cells of one method."""
    ids = torch.randint(100, arguments.vocabulary, (1, arguments.tokens), generator=torch.manual_seed(0))
    inputs = {"input_ids": ids.to(arguments.device), "attention_mask": torch.ones_like(ids).to(arguments.device)}
    options: dict[str, Any] = {} if method.startswith("stepwise") or "baseline" in method else {"baseline": "zero"}
    reusing = partial(whyformer.attribute, model, inputs, method, target=0, **options)
    calls = {"whole": partial(whole, model, reusing), "reusing": reusing}
    (scores, tokens), (expected, all_tokens) = counted(reusing), counted(calls["whole"])
    measured = times(calls, arguments.rounds, arguments.device)
    medians = {name: statistics.median(each) for name, each in measured.items()}
    fastest = {name: min(each) for name, each in measured.items()}
    cells = [
        *(f"{1e3 * medians[name]:.0f}" for name in ("whole", "reusing")),
        *(f"{seconds['whole'] / seconds['reusing']:.2f}" for seconds in (medians, fastest)),
        f"{tokens / all_tokens:.2f}" if all_tokens else "–",
        f"{distance(scores, expected):.0e}",
    ]
    return f"| `{method}` | {' | '.join(cells)} |"


def main() -> None:
    """Print a line for each method."""
    parser = parser_of(__doc__)
    parser.set_defaults(rounds=3)
    parser.add_argument("--kind", choices=KINDS, default="gpt2")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--methods", default="occlusion")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = build(arguments)
    about = f"{arguments.kind}, {arguments.layers} layers of {arguments.width}, {arguments.tokens} tokens"
    print(f"\n{about}, {arguments.dtype} on {arguments.device}, {arguments.rounds} rounds")
    print("| | whole: ms | reusing: ms | whole ÷ reusing | fastest | tokens | apart |")
    print("|---|---|---|---|---|---|---|")
    for method in arguments.methods.split(","):
        print(line(arguments, model, method), flush=True)


if __name__ == "__main__":
    main()
