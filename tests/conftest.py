"""Settings for all tests: no network, no choices of the user's, one thread for each worker (tiny models are small).

`make test-cpus` sets the rest by environment variables: another number of threads, another arithmetic (`arithmetics`).
A test that needs a package which is not installed is skipped, and says which; where `CI` or `WHYFORMER_STRICT` is set,
as `make test` does, it fails instead. `--sample` runs each test function with the first of its parameters.
"""

import os
import sys
import tempfile
import tomllib
from collections.abc import Generator, Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))  # for processes

import pytest
import torch

from tests.helpers import arithmetics
from tests.helpers.commands import Result, Run, status_of

sys.dont_write_bytecode = False  # rewriting the assertions of all tests takes longer than collecting them
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
arithmetics.apply(os.environ.get(arithmetics.VARIABLE, ""))


def tell_version() -> None:
    """Say which version this is where the package is not installed, and is taken from `PYTHONPATH`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = Path(tempfile.gettempdir()) / "whyformer-tests-version"
    facts = folder / f"whyformer-{project['version']}.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True, exist_ok=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: whyformer\nVersion: {project['version']}\n", encoding="utf-8")
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] += f"{os.pathsep}{folder}"


try:
    version("whyformer")
except PackageNotFoundError:
    tell_version()

NUMERIC = ("contract", "evaluation", "golden", "papers", "reference")  # folders
PACKAGES = (  # that a machine may lack; torch, transformers, numpy, scipy and rich are always there
    *("build", "captum", "datasets", "hypothesis", "matplotlib", "networkx", "pyarrow", "ray", "sentencepiece"),
    *("sklearn", "spacy", "typer", "wordcloud"),
)
STRICT = bool(os.environ.get("CI") or os.environ.get("WHYFORMER_STRICT"))
ABSENT = {package for package in PACKAGES if find_spec(package) is None}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process: its status, and what it prints to each stream."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        return Result(status_of(*arguments), *capsys.readouterr())

    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of these tests."""
    parser.addoption("--sample", action="store_true", help="each test function, with the first of its parameters")


def pytest_configure(config: pytest.Config) -> None:
    """Tests take few steps and samples, with which scores do not add up; tests of the warning ask for it."""
    config.addinivalue_line("filterwarnings", "ignore::whyformer.errors.CompletenessWarning")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that compare numbers of models; take a sample if that is asked for."""
    if config.getoption("--sample"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
        chosen = {*first.values()}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    for item in items:
        if item.path.parent.name in NUMERIC and not item.get_closest_marker("slow"):
            item.add_marker("numeric")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Modules whose imports may be absent."""
    module: pytest.Module = Module.from_parent(parent, path=module_path)
    return module


class Module(pytest.Module):
    """A module that is skipped where it imports what is absent."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Its tests."""
        try:
            return super().collect()
        except self.CollectError as error:
            skip_for_absence(error, self)
            raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Skip a test whose fixtures import what is absent."""
    return (yield from skipping_for_absence(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Skip a test that imports what is absent, itself or in the package."""
    return (yield from skipping_for_absence(item))


def skipping_for_absence(item: pytest.Item) -> Generator[None, None, None]:
    """Wait for a step of a test, and skip it if it needs what is absent."""
    try:
        return (yield)
    except BaseException as error:
        skip_for_absence(error, item)
        raise


def skip_for_absence(error: BaseException | None, test: pytest.Item | pytest.Collector) -> None:
    """Skip a test or module if its error goes back to a package that is absent, unless all must be there."""
    if STRICT:
        return
    seen: set[int] = set()  # what an exception comes from may lead back to itself
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, ModuleNotFoundError) and (package := str(error.name).split(".")[0]) in ABSENT:
            pytest.skip(f"{test.nodeid} needs {package}, which is not installed", allow_module_level=True)
        error = error.__cause__ or error.__context__
