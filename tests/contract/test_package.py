"""The package as a whole: its names, its imports, its documentation, and what is built from it."""

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tarfile
import tomllib
import types
import zipfile
from pathlib import Path

import pytest

import whyformer

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "whyformer"
PAPERS = ROOT / "src" / "whyformer_papers"
FILES = sorted(SOURCE.rglob("*.py"))
OF_PAPERS = sorted(PAPERS.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LAYERS: list[str] = PROJECT["tool"]["whyformer"]["layers"]
HEAVY = ("matplotlib", "scipy", "sklearn", "captum", "rich", "typer", "pandas", "transformers.models")


def python(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_names_are_public_sorted_and_there() -> None:
    assert set(whyformer.__all__) <= set(dir(whyformer))
    assert callable(whyformer.Explainer)  # what is used first brings all others
    public = [n for n, v in vars(whyformer).items() if n[0] != "_" and not isinstance(v, types.ModuleType)]
    assert whyformer.__all__ == sorted(set(whyformer.__all__)) == sorted(public)
    assert all(inspect.getdoc(getattr(whyformer, name)) for name in whyformer.__all__)


@pytest.mark.long
def test_importing_the_package_does_not_import_what_it_may_not_need() -> None:
    done = python("-c", "import sys, whyformer; whyformer.Explainer; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    modules = done.stdout.split()
    assert "whyformer.methods.attcat" in modules
    assert not [m for m in modules if m.startswith(tuple(f"{name}." for name in HEAVY)) or m in HEAVY]


def test_importing_the_package_or_its_command_line_alone_imports_nothing_else() -> None:
    code = "import sys, whyformer.cli; print(*sys.modules); whyformer.nothing"
    done = python("-c", code)
    assert not {"torch", "transformers", "numpy", "rich", "typer", "whyformer.explain.explainer"} & set(
        done.stdout.split()
    )
    assert done.stderr.splitlines()[-1] == "AttributeError: module 'whyformer' has no attribute 'nothing'"


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        "from whyformer import *; list_methods, attribute; import whyformer.metrics",
        "import whyformer.methods; from whyformer import show",
        "from whyformer.methods.method import method_named; method_named('attcat')",
    ],
)
def test_methods_and_metrics_are_functions_whatever_is_imported_first(code: str) -> None:
    done = python(
        "-c",
        f"{code}; import whyformer; print('attcat' in whyformer.list_methods(), len(whyformer.list_metrics()) > 5)",
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")


def part(module: str) -> str:
    """The member of the order that a module belongs to."""
    return module.split(".")[1] if "." in module else "whyformer"


def module_of(file: Path) -> str:
    names = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imported(tree: ast.AST) -> set[str]:
    """The modules of this package that are imported, as parts of the order."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= set(submodules) if node.module == "whyformer" else {node.module or ""}
    return {part(name) for name in found if name.split(".")[0] == "whyformer"}


def upward(file: Path) -> set[str]:
    """The parts that a file imports although they are not below its own."""
    own = part(module_of(file))
    if own == "whyformer":
        return set()
    return imported(ast.parse(file.read_text())) - {*LAYERS[: LAYERS.index(own)], own}


def test_modules_import_only_from_below() -> None:
    assert {str(file): found for file in FILES if (found := upward(file))} == {}


def test_the_core_imports_nothing_of_the_papers() -> None:
    assert OF_PAPERS
    assert [str(file) for file in FILES if "whyformer_papers" in file.read_text(encoding="utf-8")] == []


def test_explaining_imports_nothing_of_the_papers() -> None:
    code = (
        "import sys; from whyformer import Explainer; Explainer.load('sentiment').explain('a gorgeous film'); "
        "print([name for name in sys.modules if name.startswith('whyformer_papers')])"
    )
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_upward_imports_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path / "whyformer")
    lowest = tmp_path / "whyformer" / LAYERS[0] / "module.py"
    lowest.parent.mkdir(parents=True)
    lowest.write_text(f"def late():\n    from whyformer.{LAYERS[-1]} import module\n")
    assert upward(lowest) == {LAYERS[-1]}


def test_every_room_has_its_layer() -> None:
    assert {part(module_of(file)) for file in FILES} == {"whyformer", *LAYERS}


def undocumented(text: str) -> list[str]:
    """The names without a docstring: the module, public classes and functions, and their public methods."""
    tree = ast.parse(text)
    module = [] if ast.get_docstring(tree) else ["module"]
    return module + [name for name, node in public(tree) if not ast.get_docstring(node)]


def test_modules_are_documented() -> None:
    assert {str(file): found for file in (*FILES, *OF_PAPERS) if (found := undocumented(file.read_text()))} == {}


def test_missing_docstrings_are_found() -> None:
    assert undocumented("class A:\n    def b(self): ...\ndef c(): ...\ndef _d(): ...") == ["module", "A", "b", "c"]


def public(
    tree: ast.Module | ast.ClassDef,
) -> list[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Public classes and functions, and the public methods of the classes; overloads are only declarations."""
    found: list[tuple[str, ast.FunctionDef | ast.ClassDef]] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list):
            continue
        found.append((node.name, node))
        if isinstance(node, ast.ClassDef):
            found += public(node)
    return found


def test_every_module_can_be_imported() -> None:
    names = [module.name for module in pkgutil.walk_packages(whyformer.__path__, "whyformer.")]
    assert "whyformer.show.html" in names
    assert {importlib.import_module(name).__name__ for name in names} == set(names)


@pytest.mark.slow
def test_everything_that_is_bundled_has_a_source_and_a_licence() -> None:
    told = (SOURCE / "bundled" / "LICENSES.md").read_text(encoding="utf-8")
    files = [file for file in (SOURCE / "bundled").rglob("*") if file.is_file() and file.name != "LICENSES.md"]
    assert len(files) > 5
    assert not [file.name for file in files if file.name not in told]
    assert "(src/whyformer/bundled/LICENSES.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_extras_are_documented_and_what_is_missing_is_part_of_one() -> None:
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "loading.md").read_text(encoding="utf-8")
    assert not [extra for extra in extras if f"\n| `{extra}` |" not in page]
    packages = {re.split("[<>=]", package)[0] for several in extras.values() for package in several}
    hints = [
        hint
        for file in (*FILES, *OF_PAPERS)
        for hint in re.findall(r"pip install '?([\w\[\]]+)", file.read_text("utf-8"))
    ]
    assert len(hints) >= 4
    assert set(hints) <= packages


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_the_package_runs_as_a_module() -> None:
    done = python("-m", "whyformer", "--version")
    assert (done.returncode, done.stdout) == (0, importlib.metadata.version("whyformer") + "\n")


def test_wheel_and_sdist_are_complete(tmp_path: Path) -> None:
    """A wheel made from the sdist explains with its bundled model, in a folder that is not this one."""
    isolation = [] if importlib.util.find_spec("hatchling") is None else ["--no-isolation"]
    done = python("-m", "build", *isolation, "--outdir", str(tmp_path), str(ROOT))
    if done.returncode and not isolation and re.search("name resolution|NewConnectionError", done.stdout + done.stderr):
        pytest.skip("needs hatchling, which is not installed, and no package index can be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "src/whyformer/py.typed", "tests/helpers/families.py"} <= held
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "unpacked")
    found = (file for package in (SOURCE, PAPERS) for file in package.rglob("*"))
    source = {str(f.relative_to(SOURCE.parent)) for f in found if f.is_file() and "__pycache__" not in str(f)}
    assert source <= names
    assert {f"whyformer/bundled/sentiment/{n}" for n in ("config.json", "model.safetensors", "tokenizer.json")} <= names
    assert not [n for n in names if not n.startswith(("whyformer/", "whyformer_papers/", "whyformer-"))]

    (tmp_path / "elsewhere").mkdir()
    code = "import sys, whyformer.cli; sys.stderr.write(whyformer.__file__); whyformer.cli.main()"
    done = python(
        *("-c", code, "explain", "a gorgeous, witty film"),
        folder=tmp_path / "elsewhere",
        PYTHONPATH=str(tmp_path / "unpacked"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == str(tmp_path / "unpacked" / "whyformer" / "__init__.py")
    assert done.stdout.startswith("POSITIVE")
    done = python(
        *("-c", code, "reproduce", "--list"),
        folder=tmp_path / "elsewhere",
        PYTHONPATH=str(tmp_path / "unpacked"),
    )
    assert done.returncode == 0, done.stderr
    assert "attcat-table-1" in done.stdout
