"""Change the code at random, and list the changes that no test notices.

    python tests/mutants/run.py                                 # 60 changes, with a new seed that is printed
    python tests/mutants/run.py --seed 7 --count 200 metrics recorder/lrp

The tests are run once with coverage, which tells which of them execute a line (about 20 minutes; kept in `.mutants`
until a source or test changes). Then each change is tried with a few of the tests that execute its line; one that
these do not notice is tried with many. A change that survives calls for a test, or it changes nothing that a user
could see.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# It is a script: its folder gives way to the root.
sys.path[:] = [str(Path(__file__).parents[2]), *(path for path in sys.path if path != str(Path(__file__).parent))]

from tests.mutants.mutations import ROOT, SOURCE, Mutant, install, mutants_of

PACKAGE = SOURCE / "whyformer"
PLACES = ("recorder/lrp", "methods", "metrics", "results", "datasets", "cli")
DATA = ROOT / ".mutants" / "coverage"
FEW, MANY = 30, 300  # tests that try a change, first and if it survives
LIMIT = 240  # seconds for the tests of one change; one that runs on is caught in a loop
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
KILLED, SURVIVED, ENDLESS, UNTESTED, BROKEN = "killed", "survived", "endless", "untested", "not tried"
FAILED = (1, 2, 3)  # pytest's codes: tests failed, the collection failed, pytest failed
MODELS = "Albert Bert Bloom Deberta DebertaV2 DistilBert Electra GPT2 Gemma2 Llama Mistral ModernBert Roberta ViT"

Covering = dict[int, list[str]]  # of each line, the tests that execute it


@dataclass(frozen=True)
class Verdict:
    """What became of a change."""

    code: int | None  # pytest's; None: it took too long
    seconds: float
    output: str

    @property
    def word(self) -> str:
        """In one word."""
        if self.code is None:
            return ENDLESS
        if self.code in FAILED:
            return KILLED
        return BROKEN if self.code else SURVIVED  # pytest's other codes: it ran no test


# Which tests execute a line


def covered(data: Path = DATA) -> Callable[[Path], Covering]:
    """A function from a file to the tests that execute its lines; the tests are run if they have to be."""
    from coverage import CoverageData

    newest = max(path.stat().st_mtime for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*.py"))
    if not data.exists() or data.stat().st_mtime < newest:
        _run_all(data)
    found = CoverageData(str(data))
    found.read()

    def of(path: Path) -> Covering:
        lines = found.contexts_by_lineno(str(path))
        return {line: sorted({c.rpartition("|")[0] for c in contexts if "|" in c}) for line, contexts in lines.items()}

    return of


def _run_all(data: Path) -> None:
    """Run the tests, and keep which of them execute which lines."""
    print("running all tests with coverage, once: about 20 minutes", flush=True)
    data.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(CORES), "--cov", "--cov-context=test", "--cov-report="]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(data)}, check=False)
    if done.returncode:
        data.unlink(missing_ok=True)
        sys.exit("a test fails without any change: mend that first")


def chosen(tests: Sequence[str], count: int, draw: random.Random) -> list[str]:
    """So many tests of different functions, as far as there are."""
    by_function: defaultdict[str, list[str]] = defaultdict(list)
    for test in draw.sample(list(tests), len(tests)):
        by_function[test.partition("[")[0]].append(test)
    several = list(by_function.values())
    rounds = max(map(len, several), default=0)
    return [group[turn] for turn in range(rounds) for group in several if turn < len(group)][:count]


# Running them


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


def job_of(tests: Sequence[str], mutant: Mutant, root: Path = ROOT) -> Callable[[], int]:
    """A job that runs tests on a change, up to the first that fails."""

    def run() -> int:
        import pytest

        install(mutant)
        # Plugins that were imported before pytest began cannot have their assertions rewritten, and need not.
        warned = "-W ignore::pytest.PytestAssertRewriteWarning"
        without = "-p no:cacheprovider -p no:xdist -p no:cov -p no:benchmark"
        options = f"-q -x --tb=line {without} {warned} --rootdir {root}".split()
        return int(pytest.main([*options, *(f"{root}/{test}" for test in tests)]))

    return run


def tried(
    mutants: Sequence[Mutant], tests_of: Callable[[Mutant], list[str]], draw: random.Random
) -> Iterator[tuple[Mutant, str, float]]:
    """Each change with what became of it, and how long that took."""
    tests = {mutant: tests_of(mutant) for mutant in mutants}
    yield from ((mutant, UNTESTED, 0.0) for mutant in mutants if not tests[mutant])
    left = [mutant for mutant in mutants if tests[mutant]]
    for count, is_last in ((FEW, False), (MANY, True)):
        survivors = []
        for number, verdict in in_children([job_of(chosen(tests[one], count, draw), one) for one in left]):
            if verdict.word == SURVIVED and not is_last and len(tests[left[number]]) > count:
                survivors.append(left[number])
            else:
                yield left[number], verdict.word, verdict.seconds
        left = survivors


def drawn(places: Sequence[str], count: int, draw: random.Random) -> list[Mutant]:
    """Changes in files below these places of the package, a place as likely as another."""
    by_place = []
    for place in places:
        folder = PACKAGE / place
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
        every = [mutant for file in files for mutant in mutants_of(file)]
        by_place.append(draw.sample(every, min(len(every), -(-count // len(places)))))
    return [mutant for several in by_place for mutant in several][:count]


def main() -> None:
    """Read the command line, and print a line for each change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "places", nargs="*", default=PLACES, help=f"folders or files of the package: {', '.join(PLACES)}"
    )
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    draw, tests = random.Random(asked.seed), covered()
    mutants = drawn(asked.places, asked.count, draw)
    files = {path: tests(path) for path in {mutant.path for mutant in mutants}}
    warm_up()
    counts: Counter[str] = Counter()
    for number, (mutant, word, seconds) in enumerate(
        tried(mutants, lambda one: files[one.path].get(one.line, []), draw), 1
    ):
        counts[word] += 1
        print(f"{number:4}/{len(mutants)} {word:9} {seconds:5.0f} s  {mutant}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "no changes")


if __name__ == "__main__":
    main()
