"""The catalogue fits the code, and the runner tells a mutant that is seen from one that is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import TESTS, Mutant, Stale

CODE = '''def doubled(x):
    """Twice."""
    unused = 1
    return 2 * x


class Loop:
    def run(self):
        n = 3
        while n:
            n -= 1
'''
OF_IT = """import small


def test_doubled():
    assert small.doubled(3) == 6


def test_loop():
    small.Loop().run()
"""
RUNNING = """import sys
sys.path[:0] = [{root!r}, {folder!r}]
from pathlib import Path
import tests.mutants.run as runner
from tests.mutants.mutant import Mutant
runner.TESTS = Path({folder!r})
own = ("test_small.py",)
changes = [("doubled", "2 * x", "3 * x"), ("doubled", "unused = 1", "unused = 2")]
found = [*runner.judged([Mutant("small", *change, own) for change in changes])]
found += runner.judged([Mutant("small", "Loop.run", "n -= 1", "n += 0", own)], limit=3)
print(sorted((mutant.new, verdict.word) for mutant, verdict in found))
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.py").write_text(CODE)
    (tmp_path / "test_small.py").write_text(OF_IT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_every_mutant_fits_the_code_and_names_tests_that_there_are() -> None:
    for mutant in MUTANTS:
        mutant.check()


def test_there_are_no_two_alike_and_equivalents_have_a_reason() -> None:
    assert len({(m.module, m.function, m.old, m.new) for m in MUTANTS}) == len(MUTANTS) >= 130
    assert all(m.old != m.new for m in MUTANTS)
    assert 0 < sum(bool(m.equivalent) for m in MUTANTS) < len(MUTANTS) / 10


@pytest.mark.parametrize(
    ("mutant", "said"),
    [
        (Mutant("small", "doubled", "4 * x", "3 * x"), "the fragment stands 0 times in doubled"),
        (Mutant("small", "", "n", "m"), "times in the module, needed is once"),
        (Mutant("small", "tripled", "2 * x", "3 * x"), "there is no tripled"),
        (Mutant("small", "doubled", "2 * x", "3 * x"), "no test is named"),
        (Mutant("small", "doubled", "2 * x", "3 * x", ("test_none.py",)), "there is no file tests/test_none.py"),
        (Mutant("small", "doubled", "2 * x", "3 * x", ("helpers/families.py::test_none",)), "there is no test"),
        (Mutant("nowhere", "doubled", "2 * x", "3 * x"), "there is no module nowhere"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.usefixtures("small")
def test_a_mutant_that_no_longer_fits_is_named(mutant: Mutant, said: str) -> None:
    with pytest.raises(Stale, match=said):
        mutant.check()


@pytest.mark.usefixtures("small")
def test_a_fragment_is_replaced_within_its_function_alone() -> None:
    changed = Mutant("small", "Loop", "n -= 1", "n -= 2").source()
    assert changed == CODE.replace("n -= 1", "n -= 2")


def test_what_is_seen_is_killed_and_what_is_not_survives(small: Path) -> None:
    """In a process of its own, which is forked."""
    code = RUNNING.format(root=str(TESTS.parent), folder=str(small))
    done = subprocess.run([sys.executable, "-c", code], cwd=small, capture_output=True, text=True, check=True)
    words = {"3 * x": "killed", "unused = 2": "survived", "n += 0": "endless"}
    assert done.stdout.splitlines()[-1] == str(sorted(words.items()))
