"""What every measure of cost shares: models of known sizes, the plain pass, rounds and their intervals, peaks."""

import argparse
import ctypes
import gc
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    ViTConfig,
    ViTForImageClassification,
)

LLAMAS: dict[str, dict[str, Any]] = {
    "small": {
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
    },
    "smollm2": {  # SmolLM2-135M
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "rope_theta": 100000.0,
    },
}
RESAMPLES = 1000  # of rounds, for an interval


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The options that the scripts share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=9)
    return parser


def build(device: str, dtype: torch.dtype, attention: str, layers: int) -> BertForSequenceClassification:
    """BERT-base with random weights, the same ones each time."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": layers, "attn_implementation": attention}
    model: Any = BertForSequenceClassification(BertConfig(**sizes))
    built: BertForSequenceClassification = model.to(device, dtype).eval()
    return built


def build_of_images(device: str, dtype: torch.dtype, layers: int, size: int) -> Any:
    """ViT-B/16 with random weights, the same ones each time, for square images of a size."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": layers, "attn_implementation": "sdpa", "image_size": size}
    model: Any = ViTForImageClassification(ViTConfig(**sizes))
    return model.to(device, dtype).eval()


def build_of_next_tokens(device: str, dtype: torch.dtype, size: str, layers: int, tokens: int) -> Any:
    """A language model of one of the sizes `LLAMAS`, with random weights, the same ones each time."""
    torch.manual_seed(0)
    sizes = {**LLAMAS[size], "max_position_embeddings": max(512, tokens), "attn_implementation": "sdpa"}
    model: Any = AutoModelForCausalLM.from_config(LlamaConfig(**{**sizes, "num_hidden_layers": layers}))
    return model.to(device, dtype).eval()


def plain(model: Any, inputs: Mapping[str, Tensor], **options: Any) -> Tensor:
    """Forward, and backward to the embeddings, or to the pixels of images; `options` are for the model's forward."""
    if "pixel_values" in inputs:
        pixels = inputs["pixel_values"].detach().requires_grad_()
        gradient: Tensor = torch.autograd.grad(model(pixel_values=pixels).logits.amax(-1).sum(), pixels)[0]
        return gradient
    others = {name: tensor for name, tensor in inputs.items() if name not in ("input_ids", "special_tokens_mask")}
    embeddings = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, **others, **options).logits
    (gradient,) = torch.autograd.grad(logits.amax(-1).sum(), embeddings)
    return gradient


def seconds(call: Callable[[], object], device: str) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def times(calls: Mapping[str, Callable[[], object]], rounds: int, device: str) -> dict[str, list[float]]:
    """Seconds of each call in each round, in turn: a slow moment of the machine falls on all. All are called before."""
    for call in calls.values():
        call()
    return times_when_warm(calls, rounds, device)


def times_when_warm(
    calls: Mapping[str, Callable[[], object]], rounds: int, device: str, most: float = math.inf
) -> dict[str, list[float]]:
    """The same of what was called before, in fewer rounds if another one would end after `most` seconds."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    for number in range(rounds):
        taken = time.perf_counter() - start
        if number and taken * (number + 1) / number > most:
            break
        for name, call in calls.items():
            found[name].append(seconds(call, device))
    return found


def ratio(samples: Sequence[Sequence[float]]) -> float:
    """The median of one sample in units of that of another."""
    return statistics.median(samples[0]) / statistics.median(samples[1])


def interval(
    statistic: Callable[[Sequence[Sequence[float]]], float], samples: Sequence[Sequence[float]], digits: int
) -> str:
    """The 95 % interval of a statistic of several samples, by a bootstrap over rounds.

    Samples of equally many rounds were timed in the same ones, so these are drawn for all of them at once: a slow
    moment of the machine stays with all that it fell on.
    """
    generator = random.Random(0)
    drawn = []
    for _ in range(RESAMPLES):
        rounds = {count: generator.choices(range(count), k=count) for count in dict.fromkeys(map(len, samples))}
        drawn.append(statistic([[sample[number] for number in rounds[len(sample)]] for sample in samples]))
    drawn.sort()
    low, high = drawn[round(0.025 * RESAMPLES)], drawn[round(0.975 * RESAMPLES) - 1]
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def peak_on_gpu(call: Callable[[], object]) -> float:
    """MiB above what is allocated before, at the highest point of the second call."""
    call()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def peak_above(call: Callable[[], object]) -> float:
    """MiB above what is resident now at the highest point of one call, in a process that did nothing else."""
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


def in_a_process(script: str, **options: object) -> float:
    """The number that a script prints, run in a process of its own with these options."""
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return float(subprocess.run([sys.executable, script, *flags], check=True, capture_output=True, text=True).stdout)
