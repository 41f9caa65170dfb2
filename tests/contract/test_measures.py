"""The measures of the code: what they count, and that none exceeds its limit."""

import threading
from pathlib import Path

import pytest

from tools import measures
from tools.measures import LIMITS, executed, homonyms, limited, lines_that_ask_for_the_task, members, spines

SOURCE = """
def work(much):
    if much:
        return sum(
            n for n in range(3)
        )
    return 0
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measures, "PACKAGE", tmp_path)
    return tmp_path


def test_no_measure_exceeds_its_limit() -> None:
    """Where one has fallen, its limit in `tools/measures.py` is lowered."""
    found = limited(spines("explain", "evaluate"))
    assert found.keys() == LIMITS.keys()
    assert {name: number for name, number in found.items() if number > LIMITS[name]} == {}


def test_executed_lines_are_those_of_the_second_call_in_all_threads(package: Path) -> None:
    (package / "room").mkdir()
    path = package / "room" / "file.py"
    path.write_text(SOURCE)
    names: dict[str, object] = {}
    exec(compile(SOURCE, str(path), "exec"), names)
    calls: list[bool] = []

    def call() -> None:
        calls.append(True)
        thread = threading.Thread(target=names["work"], args=(len(calls) > 1,))  # type: ignore[arg-type]
        thread.start()
        thread.join()

    found = executed(call)
    assert list(found) == [str(Path("room", "file.py"))]
    assert {3, 4} <= found["room/file.py"] <= {3, 4, 5}
    assert len(calls) == 2


def test_names_that_several_files_define_are_counted(package: Path) -> None:
    (package / "a.py").write_text("class Pair: ...\nRows = list[int]\nLIMIT = 3\nRow: type = int\n")
    (package / "b.py").write_text("class Pair:\n    class Rows: ...\nLIMIT = 4\n")
    (package / "c.py").write_text("Rows = dict[str, int]\nclass Pair: ...\n")
    assert homonyms() == {"Pair": 3, "Rows": 2}


class Parent:
    shared: int = 0

    def act(self) -> None:
        """It acts."""


class Child(Parent):
    def __init__(self) -> None:
        self.given, self._hidden = 1, 2

    @property
    def read(self) -> int:
        return self.given


def test_members_are_methods_properties_and_attributes_also_of_parents() -> None:
    assert members(Child) == ["act", "given", "read", "shared"]


def test_lines_outside_tasks_that_ask_for_the_task_are_counted(package: Path) -> None:
    asking = "if subject.task == 'classes':\n    pass\nif task.name in NAMES:\n    pass\ntask = chosen\n"
    (package / "a.py").write_text(asking)
    (package / "tasks").mkdir()
    (package / "tasks" / "b.py").write_text(asking)
    assert lines_that_ask_for_the_task() == 2
