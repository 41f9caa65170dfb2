"""What other distributions add by entry points: it is found, listed with its source, and used as what is built in."""

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = '''"""A toy of each kind."""

import torch

from whyformer import method, metric


@method(family="toy", signed=False, class_specific=False, paper="none")
def longest(prediction):
    """The length of each token."""
    lengths = [[len(unit.text) for unit in example.units] for example in prediction.batch.examples]
    width = prediction.padding.shape[1]
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in lengths], dtype=torch.float32)


@metric(family="toy", higher_is_better=True, bounds=(0, 1000), paper="none")
def units(case):
    """How many units there are."""
    return torch.tensor([float(len(scores)) for scores in case.scores])
'''
ENTRY_POINTS = """[whyformer.methods]
longest = toys
[whyformer.metrics]
units = toys
"""


def distribution(folder: Path, name: str, entry_points: str, **modules: str) -> None:
    """Install a distribution into a folder, as an installer would."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code)


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.append({str(folder)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    distribution(tmp_path, "toy-box", ENTRY_POINTS, toys=MODULE)
    return tmp_path


def test_a_toy_of_each_kind_is_used_and_listed(toys: Path) -> None:
    done = run(
        toys,
        """
import whyformer
from whyformer.cli import main
explained = whyformer.Explainer.load("sentiment").explain("a gorgeous film", method="longest")
print(explained.top(1)[0].text)
print(sorted({"longest", "units", "attcat"} & {*whyformer.list_methods(), *whyformer.list_metrics()}))
for command in (["methods"], ["methods", "longest"], ["metrics", "units"]):
    sys.argv = ["whyformer", *command]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code
""",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["gorgeous", "['attcat', 'longest', 'units']"]
    (listed,) = [line for line in lines if line.startswith("longest ")]
    assert listed.endswith("toy-box 1.0")
    assert [line.split()[-1] for line in lines if line.startswith("method ")] == ["plug-in"]
    assert len([line for line in lines if "Family: toy. Plug-in: toy-box 1.0." in line]) == 2


def test_a_broken_plug_in_is_named_and_the_rest_goes_on(toys: Path) -> None:
    again = "from whyformer import method\n" + MODULE.replace("def longest(", "def fresh(")
    again += MODULE[MODULE.index("@method") : MODULE.index("@metric")].replace("def longest(", "def attcat(")
    distribution(toys, "fragile", "[whyformer.methods]\nbroken = fragile\n", fragile="import nothing_such")
    distribution(toys, "greedy", "[whyformer.methods]\ngreedy = greedy:fresh\n", greedy=again)
    done = run(
        toys,
        """
import whyformer
print(sorted({"longest", "fresh"} & whyformer.list_methods().keys()), len(whyformer.list_methods()) > 10)
from whyformer.methods.registry import method_named
try:
    method_named("broken")
except whyformer.BadOption as error:
    print(error)
""",
    )
    assert done.returncode == 0, done.stderr
    first, error = done.stdout.splitlines()
    assert first == "['longest'] True"
    assert "PluginWarning: plug-in 'broken' of fragile 1.0 (fragile) is left out: No module named" in done.stderr
    assert (
        "plug-in 'greedy' of greedy 1.0 (greedy:fresh) is left out: there is a method 'attcat' already" in done.stderr
    )
    assert error.startswith("there is no method 'broken'; plug-in 'broken' of fragile 1.0 (fragile) is left out")


def test_plug_ins_are_not_imported_before_they_are_needed(toys: Path) -> None:
    done = run(
        toys,
        "from whyformer.methods.registry import method_named; method_named('attcat'); print('toys' in sys.modules)\n"
        "method_named('longest'); print('toys' in sys.modules)",
    )
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")
