"""A run that is killed twenty times at random moments ends with the table and the records of one that never was."""

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

from tests.helpers import cases, evaluated
from whyformer.evaluation.evaluate import evaluate
from whyformer.models.load import load

KILLS = 20
ROWS, WITH_CEILING = 160, 8
METHODS, METRICS = "attcat,rollout,random", "aopc(fractions=0.2,0.5,1),log_odds(fractions=0.5)"


@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    own = cases.subject()
    own.model.save_pretrained(tmp_path / "model")
    own.tokenizer.save_pretrained(tmp_path / "model")
    evaluated.data(tmp_path, ROWS, seed=5)
    quiet = {"TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, tmp_path],
        env={**os.environ, **quiet, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    interrupted = [tmp_path / name for name in done.stdout.split()]
    whole = evaluated.files(tmp_path / "whole")
    expected = sorted(record.key for chunk in evaluated.journalled(tmp_path / "whole") for record in chunk.records)
    assert len(set(expected)) == len(expected) == 6 * ROWS + 4 * WITH_CEILING
    assert interrupted
    for folder in interrupted:
        keys = sorted(record.key for chunk in evaluated.journalled(folder) for record in chunk.records)
        assert keys == expected
        assert evaluated.alike(evaluated.files(folder), whole)


# What follows runs in a process of its own, which has everything imported and forks a child for each run.


def run(folder: Path, out: Path) -> None:
    evaluate(
        load(folder / "model"),
        folder / "texts.csv",
        METHODS,
        METRICS,
        out=out,
        rows_per_chunk=2,
        ceiling=WITH_CEILING,
        progress=False,
    )


def started(folder: Path, out: Path) -> int:
    """The process id of a child that runs the evaluation."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run(folder, out)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def finished(child: int) -> bool:
    """Wait for a child; whether it came to its end, or was killed."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError("a run failed")
    return True


def killed_over_and_over(folder: Path) -> list[str]:
    """The names of the folders whose runs were killed; a second one only if the first was done before all kills."""
    begun = time.monotonic()
    finished(started(folder, folder / "whole"))
    longest = (time.monotonic() - begun) / 8
    stream, kills = random.Random(0), 0
    outs = ["killed-0"]
    while kills < KILLS:
        child = started(folder, folder / outs[-1])
        time.sleep(stream.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        if finished(child):
            outs.append(f"killed-{len(outs)}")
        else:
            kills += 1
    finished(started(folder, folder / outs[-1]))
    return outs


if __name__ == "__main__":
    import matplotlib.figure  # noqa: F401  (once, and not in each child)
    import scipy.stats  # noqa: F401
    import torch

    torch.set_num_threads(1)
    print(*killed_over_and_over(Path(sys.argv[1])))
