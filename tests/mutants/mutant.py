"""What a mutant is: one fragment of one function of the package, replaced; and how it is found, applied and loaded."""

import ast
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

TESTS = Path(__file__).parents[1]


class Stale(Exception):
    """A mutant that no longer fits the code, or whose tests are gone."""


@dataclass(frozen=True)
class Mutant:
    """A fragment that stands once in a function, another in its place, and the tests that should fail then.

    `function` is the qualified name within `module`, empty for the whole module. `tests` are those of pytest, below
    `tests/`. An `equivalent` changes nothing that a user could see; it says why.
    """

    module: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    equivalent: str = ""

    def __str__(self) -> str:
        return f"{self.module.removeprefix('whyformer.')}:{self.function}  {_line(self.old)}  ->  {_line(self.new)}"

    def path(self) -> Path:
        """The file of its module, which is not imported."""
        *packages, _ = self.module.split(".")
        parent = importlib.util.find_spec(packages[0]) if packages else importlib.util.find_spec(self.module)
        if parent is None or parent.origin is None:
            raise Stale(f"there is no module {self.module}")
        if not packages:
            return Path(parent.origin)
        below = Path(parent.origin).parent.joinpath(*self.module.split(".")[1:])
        return below / "__init__.py" if below.is_dir() else below.with_suffix(".py")

    def source(self) -> str:
        """The module's source with the fragment replaced."""
        text = self.path().read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        first, last = _lines_of(ast.parse(text), self.function) if self.function else (0, len(lines))
        own = "".join(lines[first:last])
        if (count := own.count(self.old)) != 1:
            raise Stale(f"{self}: the fragment stands {count} times in {self.function or 'the module'}, needed is once")
        changed = "".join((*lines[:first], own.replace(self.old, self.new), *lines[last:]))
        compile(changed, str(self.path()), "exec")
        return changed

    def check(self) -> None:
        """Raise if it does not fit the code, or a test of it is gone."""
        self.source()
        if not self.tests:
            raise Stale(f"{self}: no test is named")
        for test in self.tests:
            file, _, name = test.partition("::")
            if not (TESTS / file).exists():
                raise Stale(f"{self}: there is no file tests/{file}")
            if name and name.partition("[")[0] not in _tests_of(TESTS / file):
                raise Stale(f"{self}: there is no test {test}")


def _line(fragment: str) -> str:
    return " ".join(fragment.split()) or "(nothing)"


def _lines_of(tree: ast.Module, qualified: str) -> tuple[int, int]:
    """The lines of a function or class, decorators included: the first, counted from 0, and the one behind the last."""
    body: Sequence[ast.stmt] = tree.body
    found: Any = None
    for name in qualified.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((node for node in body if isinstance(node, kinds) and node.name == name), None)
        if found is None:
            raise Stale(f"there is no {qualified}")
        body = found.body
    first = min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])
    return first - 1, found.end_lineno


_NAMES: dict[Path, set[str]] = {}


def _tests_of(file: Path) -> set[str]:
    if file not in _NAMES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        _NAMES[file] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return _NAMES[file]


class Finder(MetaPathFinder):
    """Loads one module from a mutant's source, and leaves all others alone."""

    def __init__(self, mutant: Mutant):
        self.module, self.file, self.text = mutant.module, str(mutant.path()), mutant.source()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The mutated module."""
        if fullname != self.module:
            return None
        folder = [str(Path(self.file).parent)] if self.file.endswith("__init__.py") else None
        loader = _Loader(fullname, self.file, self.text)
        return importlib.util.spec_from_file_location(
            fullname, self.file, loader=loader, submodule_search_locations=folder
        )


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str):
        super().__init__(fullname, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew: the cached code is that of the real source."""
        return compile(self.text, self.path, "exec")


def install(mutant: Mutant) -> None:
    """From now on this process imports the mutated module."""
    if mutant.module in sys.modules:
        raise Stale(f"{mutant.module} was imported already")
    sys.meta_path.insert(0, Finder(mutant))
