"""What every measure of cost shares: models of the size of BERT-base and ViT-B/16, the plain pass, rounds, peaks."""

import argparse
import ctypes
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification


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


def build_of_images(device: str, dtype: torch.dtype, attention: str, layers: int, size: int) -> Any:
    """ViT-B/16 with random weights, the same ones each time, for square images of a size."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": layers, "attn_implementation": attention, "image_size": size}
    model: Any = ViTForImageClassification(ViTConfig(**sizes))
    return model.to(device, dtype).eval()


def plain(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Forward, and backward to the embeddings, or to the pixels of images."""
    if "pixel_values" in inputs:
        pixels = inputs["pixel_values"].detach().requires_grad_()
        gradient: Tensor = torch.autograd.grad(model(pixel_values=pixels).logits.amax(-1).sum(), pixels)[0]
        return gradient
    others = {name: tensor for name, tensor in inputs.items() if name not in ("input_ids", "special_tokens_mask")}
    embeddings = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, **others).logits
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
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(seconds(call, device))
    return found


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
