"""Which changes are made to the code, which tests try them, and what becomes of those that are noticed or not."""

import ast
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import mutations
from tests.mutants.mutations import ROOT, Mutant, mutants_of
from tests.mutants.run import chosen, drawn

CODE = '''"""A module: 1 < 2."""

LIMIT = 3


def work(ä: int = 4, *, scale: float = 0.5) -> str:
    """Returns 5."""
    kind: int = ä + 1
    if not kind < 2 or kind is None:
        raise ValueError("no" if kind else f"{kind + 6}")
    return f"{kind * 7}" + str(round(-scale, ndigits=2)) if True else max(kind, 8)
'''
CHANGES = {
    "ä + 1  ->  (ä - 1)",
    "1  ->  (2)",
    "not kind < 2 or kind is None  ->  (not kind < 2 and kind is None)",
    "not kind < 2  ->  (kind < 2)",
    "kind < 2  ->  (kind <= 2)",
    "2  ->  (3)",
    "kind is None  ->  (kind is not None)",
    'f"{kind * 7}" + str(round(-scale, ndigits=2)) if True else max(kind, 8)'
    "  ->  (max(kind, 8) if True else f'{kind * 7}' + str(round(-scale, ndigits=2)))",
    "round(-scale, ndigits=2)  ->  (round(-scale))",
    "-scale  ->  (scale)",
    "True  ->  (False)",
    "max(kind, 8)  ->  (max(8, kind))",
    "8  ->  (9)",
}
SMALL = '''def doubled(x):
    """Twice."""
    unused = 1
    return 2 * x


class Loop:
    def run(self):
        n = 3
        while n:
            n -= 1


def untested():
    return 1
'''
OF_IT = """import small


def test_doubled():
    assert small.doubled(3) == 6


def test_loop():
    small.Loop().run()
"""
RUNNING = """import random, sys
from pathlib import Path
sys.path[:0] = [{root!r}, {folder!r}]
import tests.mutants.mutations as mutations
import tests.mutants.run as runner
folder = Path({folder!r})
mutations.SOURCE = folder
runner.LIMIT = 3
job = runner.job_of
runner.job_of = lambda tests, mutant: job(tests, mutant, folder)
runner.in_children.__defaults__ = (8, 2)
every = ["test_small.py::test_doubled", "test_small.py::test_loop"]
wanted = ["2 * x  ->  (2 / x)", "1  ->  (2)"]
mutants = [m for m in mutations.mutants_of(folder / "small.py") if str(m).partition("  ")[2] in wanted]
tests = lambda mutant: [] if mutant.line == 15 else every
for mutant, word, _ in runner.tried(mutants, tests, random.Random(0)):
    print(f"{{mutant.line}} {{word}}")
"""


def test_every_kind_of_change_is_made_in_bodies_of_functions_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in types, defaults, messages and documentation."""
    monkeypatch.setattr(mutations, "SOURCE", tmp_path)
    (tmp_path / "room").mkdir()
    path = tmp_path / "room" / "file.py"
    path.write_text(CODE, encoding="utf-8")
    found = mutants_of(path)
    assert {str(mutant).partition("  ")[2] for mutant in found} == CHANGES
    assert {mutant.module for mutant in found} == {"room.file"}
    for mutant in found:
        assert mutant.source != CODE
        assert ast.unparse(ast.parse(mutant.source)) != ast.unparse(ast.parse(CODE))
        assert str(mutant).startswith(f"room/file.py:{mutant.line}  ")


def test_tests_of_many_functions_try_a_change() -> None:
    tests = [f"a.py::test_one[{n}]" for n in range(50)] + ["a.py::test_two", "b.py::test_three[x]"]
    few = chosen(tests, 3, random.Random(0))
    assert {test.partition("[")[0] for test in few} == {"a.py::test_one", "a.py::test_two", "b.py::test_three"}
    assert sorted(chosen(tests, 99, random.Random(0))) == sorted(tests)
    assert chosen([], 3, random.Random(0)) == []


def test_a_seed_draws_the_same_changes_from_every_place() -> None:
    places = ("metrics", "recorder/lrp/rules", "cli")
    first, again = (drawn(places, 9, random.Random(3)) for _ in range(2))
    assert first == again != drawn(places, 9, random.Random(4))
    parts = [str(mutant.path.relative_to(mutations.SOURCE / "whyformer")) for mutant in first]
    assert [sum(part.startswith(place) for part in parts) for place in places] == [3, 3, 3]


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
def test_what_is_seen_is_killed_and_what_is_not_survives(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    (tmp_path / "test_small.py").write_text(OF_IT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    source = RUNNING.format(root=str(ROOT), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=200, check=False)
    words = sorted(done.stdout.split("\n"))
    assert words == ["", "11 endless", "15 untested", "3 survived", "4 killed"], done.stderr


def test_a_module_that_is_imported_cannot_be_changed() -> None:
    path = mutations.SOURCE / "whyformer" / "__init__.py"
    with pytest.raises(RuntimeError, match="whyformer is imported already"):
        mutations.install(Mutant(path, 1, 0, 0, ""))
