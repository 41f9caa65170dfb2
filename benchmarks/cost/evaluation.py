"""What an evaluation costs beside a loop that computes the same numbers one forward pass at a time.

    python benchmarks/cost/evaluation.py --texts DIR/sst2/validation.parquet --model DIR/sst2      # 200 sentences
    python benchmarks/cost/evaluation.py --texts … --size base --device cuda --limit 872 --skip-loop

AOPC and log-odds of ten methods. The loop explains and runs one text at a time, without padding and without
remembering anything, as ferret, interpreto and Quantus do; its numbers are compared with the evaluation's. Both
are timed in one run, in turns of a few texts, so that a slow moment of the machine affects both. `--profile` prints
for how long a GPU was busy during `evaluate`, and torch's table of kernels.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

import torch
from torch.profiler import DeviceType
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from whyformer.datasets import Example, open_dataset
from whyformer.evaluation.chunk import measured_chunk
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.plan import EvaluationPlan, EvaluationSettings
from whyformer.explain.attribute import attribute
from whyformer.inputs.batch import collate, encode
from whyformer.inputs.input import TensorInput
from whyformer.methods.method import method_named, method_specs
from whyformer.metrics.metric import metric_specs
from whyformer.models.load import Subject, load, subject_of
from whyformer.perturb import count_of, hide_named
from whyformer.prediction import Prediction
from whyformer.results.evaluation import Chunk

METHODS = [
    *("random", "raw_attention", "rollout", "grads", "att_grads"),
    *("attcat", "partial_lrp", "transformer_attribution", "cp_lrp", "attn_lrp"),
]
HIDES = {"aopc": "delete", "log_odds": "pad_attended"}
TENTHS = [step / 10 for step in range(11)]
TURN = 16  # texts
KERNELS = 20  # rows of the table that --profile prints


@dataclass
class Cost:
    """Seconds, runs of the model on inputs with units hidden, and tokens and padding among them."""

    seconds: float = 0.0
    runs: int = 0
    tokens: int = 0
    padding: int = 0
    numbers: dict[tuple[int, str, str], float] = field(default_factory=dict)


class Loop:
    """One text, one method, one metric, one fraction at a time."""

    def __init__(self, subject: Subject, cost: Cost):
        self.subject, self.cost = subject, cost

    def probability(self, row: TensorInput, index: int) -> float:
        """What the model says of one input."""
        inputs = {n: torch.tensor(a, device=self.subject.device)[None] for n, a in row.tensors.items()}
        with torch.no_grad():
            logits = self.subject.model(**inputs).logits[0]
        self.cost.runs += 1
        self.cost.tokens += len(row)
        return float(logits.double().softmax(-1)[index])

    def measure(self, example: Example) -> None:
        """All numbers of one text."""
        encoded = encode(self.subject, example.text)
        batch = collate(self.subject, [encoded])
        places = [place for place, unit in enumerate(encoded.units) if not unit.special]
        (row,) = Prediction(self.subject.model, batch).inputs
        for name in METHODS:
            prediction = Prediction(self.subject.model, batch, relevance=method_named(name).needs_for({}).sites)
            scores = method_named(name)(prediction).total[0].tolist()
            index = int(prediction.predicted[0])
            order = sorted(places, key=lambda place: -scores[place])
            for metric, hide in HIDES.items():
                counts = [count_of(share, len(order)) for share in TENTHS]
                said = [self.probability(row.without(order[:n], hide_named(hide)), index) for n in counts]
                values = torch.tensor(said, dtype=torch.float64)
                found = said[0] - values if metric == "aopc" else (values / said[0]).log()
                self.cost.numbers[example.row, name, metric] = float(found.mean())


def compare(subject: Subject, examples: list[Example], with_loop: bool) -> tuple[Cost, Cost]:
    """The cost of the evaluation and of the loop, a few texts of each in turn."""
    plan = EvaluationPlan(subject, method_specs(METHODS), metric_specs(list(HIDES)), EvaluationSettings())
    ours, naive = Cost(), Cost()
    loop = Loop(subject, naive)
    attribute(subject.model, collate(subject, [encode(subject, examples[0].text)]).tensors, "attn_lrp")  # warm up
    for start in range(0, len(examples), TURN):
        some = examples[start : start + TURN]
        begun = time.perf_counter()
        chunk: Chunk = measured_chunk(plan, plan.pending(start, start + TURN, some, {}, frozenset()))
        ours.seconds += time.perf_counter() - begun
        ours.runs += chunk.counts["run"]
        ours.tokens += chunk.counts["tokens"]
        ours.padding += chunk.counts["padding"]
        ours.numbers |= {(r.row, r.method, r.metric): float(r.value or 0) for r in chunk.records}
        begun = time.perf_counter()
        for example in some if with_loop else []:
            loop.measure(example)
        naive.seconds += time.perf_counter() - begun
    return ours, naive


def base(tokenizer: str | Path, device: str) -> Subject:
    """A classifier of BERT-base size with random weights."""
    torch.manual_seed(0)
    words = AutoTokenizer.from_pretrained(tokenizer)
    model: Any = BertForSequenceClassification(BertConfig(vocab_size=len(words), pad_token_id=words.pad_token_id))
    return subject_of(model.to(device).eval(), words)


def profile(call: Callable[[], object]) -> None:
    """Print for how long a GPU was busy during a call, and the kernels that took longest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken = time.perf_counter() - begun
    kernels = [event for event in profiler.profiler.kineto_results.events() if event.device_type() == DeviceType.CUDA]
    busy = 0.0
    last_end = 0.0
    for start, end in sorted((kernel.start_ns(), kernel.start_ns() + kernel.duration_ns()) for kernel in kernels):
        busy += max(0.0, end - max(start, last_end))
        last_end = max(last_end, end)
    print(f"the GPU was busy for {busy / 1e9:.2f} s of {taken:.2f} s")
    print(profiler.key_averages().table(sort_by="self_device_time_total", row_limit=KERNELS, max_name_column_width=80))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", default="sentiment")
    parser.add_argument("--size", choices=("own", "base"), default="own", help="base: BERT-base with random weights")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tf32", action="store_true", help="let a GPU multiply float32 matrices with 10 bits")
    parser.add_argument("--skip-loop", action="store_true", help="time `evaluate` with its journal, without the loop")
    parser.add_argument("--profile", action="store_true", help="with --skip-loop, on a GPU: print its kernels")
    chosen = parser.parse_args()
    if chosen.profile and (chosen.device == "cpu" or not chosen.skip_loop):
        parser.error("--profile needs --device cuda --skip-loop")
    torch.backends.cuda.matmul.allow_tf32 = chosen.tf32
    subject = load(chosen.model, device=chosen.device, dtype="float32")
    if chosen.size == "base":
        folder = tempfile.mkdtemp()
        subject.tokenizer.save_pretrained(folder)
        subject = base(folder, chosen.device)
    data = open_dataset(chosen.texts, limit=chosen.limit, labels=subject.labels)
    what = f"{chosen.limit} texts, {len(METHODS)} methods, AOPC and log-odds, {subject.device}"
    what += ", TF32" if chosen.tf32 else ""
    if chosen.skip_loop:
        run = partial(evaluate, subject, data, METHODS, list(HIDES), out=tempfile.mkdtemp(), progress=False)
        if chosen.profile:
            print(what)
            profile(run)
            return
        begun = time.perf_counter()
        run()
        print(f"{what}: {time.perf_counter() - begun:.1f} s with journal and tables")
        return
    ours, naive = compare(subject, list(data), with_loop=True)
    apart = max(abs(value - naive.numbers[key]) for key, value in ours.numbers.items())
    print(f"{what}; numbers agree within {apart:.1e}")
    print("|  | runs of the model | tokens run | padding | seconds |\n|---|---|---|---|---|")
    print(f"| one at a time | {naive.runs:,} | {naive.tokens:,} | 0 % | {naive.seconds:.1f} |")
    share = 100 * ours.padding / ours.tokens
    print(f"| evaluate | {ours.runs:,} | {ours.tokens:,} | {share:.1f} % | {ours.seconds:.1f} |")
    ratios = (ours.runs / naive.runs, ours.tokens / naive.tokens, ours.seconds / naive.seconds)
    print("| ratio | {:.2f} | {:.2f} |  | {:.2f} |".format(*ratios))


if __name__ == "__main__":
    main()
