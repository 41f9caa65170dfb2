"""Parts shared by the cost scripts: model sizes, a tokenizer, the plain pass, timing in rounds, peak memory."""

import ctypes
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast

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
SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
}
RESAMPLES = 1000

Samples = Sequence[Sequence[float]]


def word_tokenizer(size: int, with_special_tokens: bool = True) -> PreTrainedTokenizerFast:
    """Return a tokenizer in which each word is one token: w4 has the id 4, w5 the id 5, and so on."""
    special = dict.fromkeys(SPECIAL_TOKENS.values())
    words = [*special, *(f"w{number}" for number in range(len(special), size))]
    ids = {word: number for number, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if with_special_tokens:
        ends = [("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
        backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL_TOKENS)


def plain(model: Any, inputs: Mapping[str, Tensor], **options: Any) -> Tensor:
    """Run the model forward, and backward to the embeddings or pixels; `options` go to the model's forward."""
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
    """Return the wall time of one call."""
    start = time.perf_counter()
    call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def times(
    calls: Mapping[str, Callable[[], object]], rounds: int, device: str, limit: float = math.inf
) -> dict[str, list[float]]:
    """Return the seconds of each call in each round; there are fewer rounds if another would end after `limit` seconds.

    Each round times all calls in turn, so that a slow moment of the machine affects all of them. Calls are not warmed
    up here.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    for number in range(rounds):
        taken = time.perf_counter() - start
        if number and taken * (number + 1) / number > limit:
            break
        for name, call in calls.items():
            found[name].append(seconds(call, device))
    return found


def ratio(samples: Samples) -> float:
    """Return the median of the first sample divided by the median of the second."""
    return statistics.median(samples[0]) / statistics.median(samples[1])


def interval(statistic: Callable[[Samples], float], samples: Samples, digits: int) -> str:
    """Return the 95 % interval of a statistic of several samples, by a bootstrap over rounds.

    Samples with the same number of rounds were timed in the same rounds. So the same rounds are drawn for all of them,
    and what slowed one of them down slowed the others down too.
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
    """Return the MiB allocated at the peak of the second call, above what was allocated before it."""
    call()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def peak_on_cpu(call: Callable[[], object]) -> float:
    """Return the MiB resident at the peak of one call, above what was resident before it (Linux only).

    Exact only in a process that has done nothing else.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory must not be reused unseen
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """Return the memory of this process in MiB: now (VmRSS), or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 2**10
