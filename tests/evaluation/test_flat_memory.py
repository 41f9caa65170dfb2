"""Memory does not grow with the data: ten times the rows need the same memory."""

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from tests.helpers import cases, evaluated, families
from whyformer.evaluation.evaluate import evaluate
from whyformer.models.load import Subject, subject_of
from whyformer.prediction import Prediction

FEW, MANY = 1_000, 10_000
GROWTH = 1.1
KEPT = 16_384  # numbers of eight bytes that the leaking method keeps of each text


@pytest.mark.slow
def test_ten_times_the_rows_need_the_same_memory(tmp_path: Path) -> None:
    """The peak of each run is that of a process of its own; a method that keeps something is seen."""
    for rows in (FEW, MANY):
        stream = random.Random(rows)
        texts = (" ".join(stream.choices(evaluated.WORDS, k=stream.randint(2, 3))) for _ in range(rows))
        evaluated.written(tmp_path / f"{rows}.csv", [(text, 0) for text in texts])
    quiet = {"TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, __file__, tmp_path],
        env={**os.environ, **quiet, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    few, many, leaking = json.loads(done.stdout)
    assert [one["n"] for one in (few, many, leaking)] == [FEW, MANY, FEW]
    assert many["peak"] < GROWTH * few["peak"]
    assert leaking["peak"] > GROWTH * few["peak"]


# What follows runs in a process of its own, which forks a child for each run. A process that is started inherits the
# peak of the one that starts it, a forked one does not.


def tiny() -> Subject:
    """One layer of width 8."""
    tokenizer = cases.wordpiece()
    torch.manual_seed(0)
    config = families.CONFIGS["bert"]()
    config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size = 8, 1, 1, 8
    config.vocab_size = len(tokenizer)
    return subject_of(hf.BertForSequenceClassification(config).eval(), tokenizer)


kept: list[torch.Tensor] = []


def leaking(prediction: Prediction) -> torch.Tensor:
    """Keeps something of each text."""
    kept.extend(torch.ones(KEPT, dtype=torch.float64) for _ in prediction.padding)
    return evaluated.in_order(prediction)


def measured(folder: Path, rows: int, methods: str) -> dict[str, Any]:
    data, out = folder / f"{rows}.csv", folder / f"{rows}-{methods}"
    table = evaluate(
        tiny(), data, methods, "comprehensiveness(fractions=0.5)", out=out, rows_per_chunk=64, progress=False
    )
    cell = table["raw_attention", "comprehensiveness(fractions=0.5)"]
    return {"n": cell and cell.n, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def in_a_child(folder: Path, rows: int, methods: str) -> dict[str, Any]:
    told = folder / "told.json"
    child = os.fork()
    if not child:
        code = 1
        try:
            told.write_text(json.dumps(measured(folder, rows, methods)))
            code = 0
        finally:
            if code:
                sys.excepthook(*sys.exc_info())
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError(f"the run of {rows} rows failed")
    found: dict[str, Any] = json.loads(told.read_text())
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    evaluated.registered(leaking)
    methods = "random,raw_attention"
    runs = [(FEW, methods), (MANY, methods), (FEW, f"{methods},leaking")]
    print(json.dumps([in_a_child(Path(sys.argv[1]), *run) for run in runs]))
