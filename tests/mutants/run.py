"""Does some test fail for every mutant? One line for each that none does.

    python tests/mutants/run.py                   # all of them
    python tests/mutants/run.py rollout trust     # those of whose line one of these words is a part

One process imports what is slow to import, and is forked for each mutant. Before that, all tests are run on the code
as it is: a test that fails anyway kills nothing.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# It is a script: its folder, with a `catalogue` that is not the one which spaCy imports, gives way to the root.
sys.path[:] = [str(Path(__file__).parents[2]), *(path for path in sys.path if path != str(Path(__file__).parent))]

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import TESTS, Mutant, Stale, install

LIMIT = 240  # seconds for the tests of one mutant; one that runs on is caught in a loop
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
KILLED, SURVIVED, ENDLESS = "killed", "survived", "endless"
FAILED = (1, 2, 3)  # pytest's codes: tests failed, the collection failed, pytest failed
MODELS = "Albert Bert Bloom Deberta DebertaV2 DistilBert Electra GPT2 Gemma2 Llama Mistral ModernBert Roberta ViT"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, or of tests without one."""

    code: int | None  # pytest's; None: it took too long
    seconds: float
    output: str

    @property
    def word(self) -> str:
        """In one word."""
        return ENDLESS if self.code is None else KILLED if self.code in FAILED else SURVIVED


def warm_up() -> None:
    """Import what the tests need, but nothing of the package."""
    import captum.attr  # noqa: F401
    import numpy as np  # noqa: F401
    import pytest  # noqa: F401
    import rich.console  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import tokenizers  # noqa: F401
    import transformers
    import typer  # noqa: F401

    for name in MODELS.split():
        getattr(transformers, f"{name}Model")
    _ = transformers.AutoModelForSequenceClassification, transformers.AutoTokenizer


def in_children(
    jobs: Sequence[Callable[[], int]], limit: float = LIMIT, cores: int = CORES
) -> Iterator[tuple[int, Verdict]]:
    """Call each job in a forked process, as many at a time as there are cores: its number and verdict when it ends."""
    waiting, running = list(enumerate(jobs)), dict[int, tuple[int, float, Path]]()
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < cores:
                number, job = waiting.pop(0)
                output = Path(folder) / str(number)
                running[_forked(job, output)] = number, time.monotonic(), output
            for child, (number, begun, output) in list(running.items()):
                seconds = time.monotonic() - begun
                ended, status = os.waitpid(child, os.WNOHANG)
                if not ended and seconds > limit:
                    os.killpg(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                if ended or seconds > limit:
                    del running[child]
                    code = os.waitstatus_to_exitcode(status) if ended else None
                    yield number, Verdict(code, seconds, output.read_text(encoding="utf-8", errors="replace"))
            time.sleep(0.05)


def _forked(job: Callable[[], int], output: Path) -> int:
    child = os.fork()
    if child:
        return child
    os.setsid()
    with output.open("wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    code = 3
    try:
        code = job()
    finally:
        if code == 3:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def job_of(tests: Iterable[str], mutant: Mutant | None) -> Callable[[], int]:
    """A job that runs tests, on a mutant up to the first that fails, or on the code as it is."""

    def run() -> int:
        import pytest

        if mutant is not None:
            install(mutant)
        # Plugins that were imported before pytest began cannot have their assertions rewritten, and need not.
        warned = "-W ignore::pytest.PytestAssertRewriteWarning"
        without = "-p no:cacheprovider -p no:xdist -p no:cov -p no:benchmark"
        options = f"-q --tb=line {without} {warned} {'-x' if mutant else ''}".split()
        return int(pytest.main([*options, "--rootdir", str(TESTS.parent), *(str(TESTS / test) for test in tests)]))

    return run


def red(mutants: Sequence[Mutant], limit: float = LIMIT) -> list[str]:
    """What pytest says of the files in which tests fail without a mutant."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    by_file = [
        [test for test in tests if test.partition("::")[0] == file] for file in {t.partition("::")[0] for t in tests}
    ]
    jobs = [job_of([group[0]] if "::" not in group[0] else group, None) for group in by_file]
    return [verdict.output[-2000:] for _, verdict in in_children(jobs, 4 * limit) if verdict.code != 0]


def judged(mutants: Sequence[Mutant], limit: float = LIMIT) -> Iterator[tuple[Mutant, Verdict]]:
    """Each mutant with what became of it."""
    for number, verdict in in_children([job_of(mutant.tests, mutant) for mutant in mutants], limit):
        yield mutants[number], verdict


def right(mutant: Mutant, verdict: Verdict) -> bool:
    """Whether a mutant that is no equivalent was killed, and an equivalent was not."""
    return (verdict.word == SURVIVED) == bool(mutant.equivalent)


def run(mutants: Sequence[Mutant], limit: float = LIMIT) -> int:
    """Run all, print what is wrong and how many there are of each kind; the code to exit with."""
    for mutant in mutants:
        mutant.check()
    if failing := red(mutants, limit):
        print("these tests fail without any mutant:", *failing, sep="\n")
        return 1
    counts: dict[str, int] = {}
    wrong = 0
    for number, (mutant, verdict) in enumerate(judged(mutants, limit), 1):
        word = "equivalent" if mutant.equivalent and verdict.word == SURVIVED else verdict.word
        counts[word] = counts.get(word, 0) + 1
        wrong += not right(mutant, verdict)
        mark = "" if right(mutant, verdict) else "  <-- " + ("no equivalent" if mutant.equivalent else "no test saw it")
        print(f"{number:4}/{len(mutants)} {word:10} {verdict.seconds:5.0f} s  {mutant}{mark}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "no mutants")
    return int(wrong > 0)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutants in whose line one of these words stands")
    words = parser.parse_args().words
    chosen = [mutant for mutant in MUTANTS if not words or any(word in str(mutant) for word in words)]
    warm_up()
    try:
        sys.exit(run(chosen))
    except Stale as error:
        sys.exit(f"the catalogue does not fit the code: {error}")


if __name__ == "__main__":
    main()
