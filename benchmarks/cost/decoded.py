"""What decoding a layer costs beside the model's own forward + backward pass, and how much memory it takes.

    python benchmarks/cost/decoded.py                      # BERT-base size, random weights, 128 tokens, batch 1 and 16
    python benchmarks/cost/decoded.py --device cuda
    python benchmarks/cost/decoded.py --memory --vocabulary 250000 --device cuda

The classifier and the LM head are of the size of BERT-base, with random weights. Time: every round times each workload
in turn, and medians are compared. f+b is the recorded forward pass and the one backward pass to all hidden states,
which decoding starts from; without it stands what decoding adds when that is shared, as in `evaluate`.

Memory is the peak above the loaded model and LM head: of f+b, and of decoding with f+b. One slice of the vocabulary
holds `AT_ONCE` logits. The bound is 1.5 x f+b + one slice. On a CPU (Linux only) each is measured in a process of its
own.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification
from transformers.utils import logging

import whyformer
from benchmarks.cost.timing import in_a_process, parser_of, peak_above, peak_on_gpu, times
from whyformer.inputs.encoding import batch_of
from whyformer.lm_heads import head, head_for, save_head
from whyformer.prediction import Prediction

PLAIN = "f+b"
ONE = "one layer"
ALL = "all layers"
BOUND = 1.5
OPTIONS: dict[str, dict[str, Any]] = {ONE: {}, "one layer, top=10": {"top": 10}, ALL: {"layers": "all"}}


class Case:
    """A classifier, its LM head, and a batch of random tokens."""

    def __init__(self, arguments: argparse.Namespace, batch: int, lm_head: str):
        torch.manual_seed(0)
        sizes = {"num_hidden_layers": arguments.layers, "vocab_size": arguments.vocabulary}
        model: Any = BertForSequenceClassification(BertConfig(**sizes))
        self.model = model.to(arguments.device, getattr(torch, arguments.dtype)).eval()
        ids = torch.randint(5, arguments.vocabulary, (batch, arguments.tokens), device=arguments.device)
        self.inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        self.lm_head, self.device = lm_head, arguments.device
        width = torch.zeros(1, 1, 768, device=ids.device, dtype=torch.promote_types(self.model.dtype, torch.float32))
        head_for(self.model, lm_head, width)  # it is read now

    def prediction(self) -> Prediction:
        """Run forward, and backward to all hidden states."""
        prediction = Prediction(self.model, batch_of(self.model, self.inputs))
        _ = prediction.hidden_gradients
        return prediction

    def decoded(self, name: str, prediction: Prediction | None = None) -> Tensor:
        """Decode, with a run of its own unless one is given."""
        method = whyformer.list_methods()["decoded_grad_cam"]
        return method(prediction or self.prediction(), lm_head=self.lm_head, **OPTIONS[name]).total

    def workloads(self) -> dict[str, Callable[[], object]]:
        """What is timed."""
        shared = self.prediction()
        found: dict[str, Callable[[], object]] = {PLAIN: self.prediction}
        for name in OPTIONS:
            found[name] = partial(self.decoded, name)
            found[f"{name}, without f+b"] = partial(self.decoded, name, shared)
        return found

    def workload(self, name: str) -> Callable[[], object]:
        """One of which the memory is measured."""
        return self.prediction if name == PLAIN else lambda: self.decoded(name)


def time_table(arguments: argparse.Namespace, batch: int, lm_head: str) -> None:
    """Print the time of each workload beside f+b."""
    measured = times(Case(arguments, batch, lm_head).workloads(), arguments.rounds, arguments.device)
    medians = {name: statistics.median(values) for name, values in measured.items()}
    print(f"\n{described(arguments, batch)}\n{'':<32}{'ms':>9}{'÷ f+b':>8}")
    for name, median in medians.items():
        print(f"{name:<32}{1e3 * median:>9.1f}{median / medians[PLAIN]:>8.2f}")


def memory_table(arguments: argparse.Namespace, batch: int, lm_head: str) -> None:
    """Print the peak memory of each workload beside the bound."""
    peaks = {name: peak(name, arguments, batch, lm_head) for name in (PLAIN, ONE, ALL)}
    size = torch.finfo(torch.promote_types(getattr(torch, arguments.dtype), torch.float32)).bits // 8
    one_slice = head.AT_ONCE * size / 2**20
    bound = BOUND * peaks[PLAIN] + one_slice
    whole = batch * arguments.tokens * arguments.vocabulary * size / 2**20
    print(f"\n{described(arguments, batch)}: peak above the model and the LM head")
    print(f"one slice {one_slice:.0f} MiB; all logits at once would be {whole:.0f} MiB; bound {bound:.0f} MiB")
    for name, peak in peaks.items():
        print(f"{name:<32}{peak:>9.0f} MiB{peak / peaks[PLAIN]:>8.2f}{'' if peak <= bound else '  ABOVE THE BOUND'}")


def peak(name: str, arguments: argparse.Namespace, batch: int, lm_head: str) -> float:
    """MiB above the loaded model at the highest point of one call; on a CPU of a process that does nothing else."""
    if arguments.device != "cpu":
        return peak_on_gpu(Case(arguments, batch, lm_head).workload(name))
    sizes = {size: getattr(arguments, size) for size in ("tokens", "vocabulary", "layers")}
    return in_a_process(__file__, memory_of=name, lm_head=lm_head, batches=batch, **sizes)


def peak_of_this_process(name: str, arguments: argparse.Namespace, batch: int) -> float:
    """MiB above what is resident now at the highest point of one call."""
    small = argparse.Namespace(**{**vars(arguments), "tokens": 8})
    warm = Case(small, 1, arguments.lm_head)
    warm.decoded(ALL)
    case = Case(arguments, batch, arguments.lm_head)
    del warm
    return peak_above(case.workload(name))


def described(arguments: argparse.Namespace, batch: int) -> str:
    """What is measured."""
    words = f"{arguments.vocabulary} tokens in the vocabulary"
    return f"batch {batch}, {arguments.tokens} tokens, {words}, {arguments.dtype} on {arguments.device}"


def written_head(arguments: argparse.Namespace, folder: Path) -> str:
    """An LM head with random weights, in a file."""
    torch.manual_seed(1)
    model = BertForMaskedLM(BertConfig(num_hidden_layers=1, vocab_size=arguments.vocabulary))
    model.save_pretrained(folder / "model")
    return str(save_head(folder / "model", folder / "head.safetensors"))


def main() -> None:
    """Print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--vocabulary", type=int, default=30_522)
    parser.add_argument("--memory", action="store_true", help="peak memory in place of times")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--lm-head", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    batches = [int(b) for b in arguments.batches.split(",")]
    if arguments.memory_of:
        print(peak_of_this_process(arguments.memory_of, arguments, batches[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        lm_head = written_head(arguments, Path(folder))
        for batch in batches:
            (memory_table if arguments.memory else time_table)(arguments, batch, lm_head)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
