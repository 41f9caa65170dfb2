"""The tests of numbers as other machines would compute them: with other instructions, threads, addresses and orders.

    python tests/cpus.py                                          # every setting, with all tests marked `numeric`
    python tests/cpus.py --only shifted,rounded tests/golden -x   # some settings; what follows goes to pytest

One line for each setting; a red one does not stop the others. What pytest said of it is kept in `test-cpus/`.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # it is a script

from tests.helpers.arithmetics import VARIABLE

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "test-cpus"
SETTINGS = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "two threads": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},  # threads that spin starve each other
    "torch default": {"ATEN_CPU_CAPABILITY": "default"},
    "torch avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "onednn sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "onednn avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "mkl compatible": {"MKL_CBWR": "COMPATIBLE"},
    "shifted": {VARIABLE: "shifted"},
    "rounded": {VARIABLE: "rounded"},
}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SETTINGS), help="settings, separated by commas")
    parser.add_argument("--processes", default="2", help="how many tests run at a time")
    arguments, more = parser.parse_known_args()
    names = [name.strip() for name in arguments.only.split(",")]
    if unknown := set(names) - set(SETTINGS):
        parser.error(f"there is no setting {', '.join(sorted(unknown))}; there are: {', '.join(SETTINGS)}")
    LOGS.mkdir(exist_ok=True)
    red = [name for name in names if not green(name, ["--numprocesses", arguments.processes, *more])]
    sys.exit(f"red: {', '.join(red)} (see {LOGS.name}/)" if red else 0)


def green(name: str, arguments: list[str]) -> bool:
    """Run the tests under one setting and print its line."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "numeric", "--dist", "worksteal", *arguments]
    log, begun = LOGS / f"{name.replace(' ', '-')}.txt", time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        environment = {**os.environ, **SETTINGS[name]}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False)
    counts = {outcome: count for count, outcome in re.findall(r"(\d+) (passed|failed|error|skipped)", last_line(log))}
    said = ", ".join(f"{counts.get(outcome, 0)} {outcome}" for outcome in ("passed", "failed", "error", "skipped"))
    ended = "" if counts else f" (pytest ended with {done.returncode}, see {log.relative_to(ROOT)})"
    print(f"{name:15} {said}, {time.monotonic() - begun:.0f} s{ended}", flush=True)
    return done.returncode == 0


def last_line(log: Path) -> str:
    """Where pytest says how many passed."""
    lines = log.read_text(encoding="utf-8").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "")


if __name__ == "__main__":
    main()
