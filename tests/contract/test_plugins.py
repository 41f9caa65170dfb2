"""What other distributions add by entry points: it is found, listed with its source, and used as what is built in."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import cases, evaluated
from whyformer import Explainer, method

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
[whyformer.tasks]
next_sentence = next_sentence:NextSentence
[whyformer.inputs]
dialogue = dialogue
[whyformer.hides]
first = first
[whyformer.formats]
bbcode = bbcode
"""
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def walk_throughs() -> dict[str, str]:
    """The modules that the diffs of CONTRIBUTING.md add, by name."""
    blocks = re.findall(r"```diff\n\+\+\+ b/(\S+)\n(.*?)```", CONTRIBUTING.read_text(encoding="utf-8"), re.DOTALL)
    return {Path(path).stem: "".join(f"{line[1:]}\n" for line in diff.splitlines()) for path, diff in blocks}


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
    distribution(tmp_path, "toy-box", ENTRY_POINTS, toys=MODULE, **walk_throughs())
    return tmp_path


@pytest.mark.long
def test_methods_and_metrics_are_used_and_listed(toys: Path) -> None:
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


WRONG = {
    "type": ("def odd(prediction, *, k=3):", "option k needs a type and a default, as in k: int = 3"),
    "default": ("def odd(prediction, *, k: int):", "option k needs a type and a default"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_option_needs_a_type_and_a_default(wrong: str) -> None:
    made: dict[str, Any] = {}
    exec(f'{WRONG[wrong][0]}\n    """Odd."""\n', made)
    with pytest.raises(ValueError, match=WRONG[wrong][1]):
        method(family="toy", signed=True, class_specific=False, paper="none")(made["odd"])


def test_what_is_returned_has_to_be_a_tensor() -> None:
    with evaluated.own_registry():
        evaluated.registered(listing)
        with pytest.raises(TypeError, match=r"listing returned list, not a tensor \[batch, units\] or Scores"):
            Explainer(cases.subject()).explain("a film", "listing", check=0)


def listing(prediction: Any) -> Any:
    """A list."""
    return [[0.0]]


@pytest.mark.long
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
from whyformer.methods.method import method_named
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


@pytest.mark.long
def test_plug_ins_are_not_imported_before_they_are_needed(toys: Path) -> None:
    done = run(
        toys,
        "from whyformer.methods.method import method_named; method_named('attcat'); print('toys' in sys.modules)\n"
        "method_named('longest'); print('toys' in sys.modules)",
    )
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")


@pytest.mark.long
def test_a_toy_task_input_hide_and_format_explain(toys: Path) -> None:
    """The four walk-throughs of CONTRIBUTING.md, as they stand there."""
    assert walk_throughs().keys() == {"next_sentence", "dialogue", "first", "bbcode"}
    done = run(
        toys,
        """
import torch, transformers, whyformer
from whyformer.methods.method import METHODS
from whyformer.perturb import HIDES

explainer = whyformer.Explainer.load("sentiment")
explained = explainer.explain("a gorgeous film", "attcat")
assert explained.render("bbcode") == "a [b]gorgeous[/b] film", explained.render("bbcode")
assert explained.save("page.bb").read_text() == "a [b]gorgeous[/b] film"
try:
    explained.save("page.foo")
except whyformer.BadOption as error:
    assert ".bb" in str(error), error

stepwise = explainer.explain("a gorgeous film", "stepwise", hide="first", steps=2)
assert stepwise.top(1)[0].text == "gorgeous"
occluded = [explainer.explain("a gorgeous film", "occlusion", baseline=way).scores for way in ("first", "mask")]
assert abs(occluded[0] - occluded[1]).max() > 1e-3 < abs(occluded[0]).max()
table = explainer.evaluate(["a gorgeous film"], "attcat", metrics="comprehensiveness(hide=first)", progress=False)
assert table["attcat", "comprehensiveness(hide=first)"].n == 1
assert HIDES.source("first") == "toy-box 1.0" and not HIDES.source("delete")

from dialogue import Dialogue
asked = Dialogue((("Ann", "was it any good?"), ("Bo", "it was gorgeous")))
of_dialogue = explainer.explain(asked, "attcat")
assert of_dialogue.texts == ("Ann: was it any good?\\nBo: it was gorgeous",)
shown = [scored.text for scored in of_dialogue.words()]
assert "gorgeous" in shown and not {"Ann", "Bo", "ann", "bo"} & set(shown), shown
assert len(explainer.explain([asked, "a text", asked], "attcat")) == 3

torch.manual_seed(0)
tokenizer = explainer.subject.tokenizer
config = transformers.BertConfig(
    vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
)
model = transformers.BertForNextSentencePrediction(config).eval()
follows = whyformer.Explainer(model, tokenizer).explain(("was it good", "it was gorgeous"), "attcat", target="follows")
assert follows.target.name == "follows" and follows.prediction.labels == ("follows", "does not follow")
model.save_pretrained("folder"), tokenizer.save_pretrained("folder")
again = whyformer.Explainer.load("folder").explain(("was it good", "it was gorgeous"), "attcat", target="follows")
assert again.scores.round(5).tolist() == follows.scores.round(5).tolist()
print("done")
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
