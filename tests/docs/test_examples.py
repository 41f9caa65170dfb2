"""Every example in README, CONTRIBUTING and docs is run; what follows `# →` is what the statement prints."""

import ast
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

import whyformer
from tests.helpers import families
from tools import docs
from whyformer.cli import main
from whyformer.methods.method import METHODS
from whyformer.metrics.metric import METRICS
from whyformer.perturb import HIDES

ROOT = Path(__file__).parents[2]
REVIEWS = "text,label\na gorgeous and witty film,POSITIVE\na dull and lifeless mess,NEGATIVE\nnot bad at all,POSITIVE\n"
PHOTO = Path(whyformer.__file__).parent / "bundled" / "pets" / "maine_coon.jpg"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def commands() -> list[str]:
    lines = [line for page in PAGES for block in blocks(page, "bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("whyformer ")]


def prepare(folder: Path) -> None:
    """Provide the files that examples name. README's commands run in the checkout."""
    for name in ("examples", "src"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "reviews.csv").write_text(REVIEWS)
    shutil.copy(PHOTO, folder / "cat.jpg")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_python(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    monkeypatch.setattr(METHODS, "known", dict(METHODS))
    monkeypatch.setattr(METRICS, "known", dict(METRICS))
    monkeypatch.setattr(HIDES, "known", dict(HIDES))
    subject = whyformer.Explainer.load("sentiment").subject
    names = {"whyformer": whyformer, "model": subject.model, "tokenizer": subject.tokenizer}
    if page.name == "CONTRIBUTING.md":
        names |= {"model": families.build("bert"), "inputs": families.batch()}
    else:
        names["inputs"] = {k: torch.tensor(v) for k, v in subject.tokenizer(["a fine film"]).items()}
    for block in blocks(page, "python"):
        for statement in ast.parse(block).body:
            capsys.readouterr()
            exec(compile(ast.Module([statement], []), page.name, "exec"), names)
            if shown := shown_beside(statement, block):
                assert capsys.readouterr().out.strip() == shown
        for file in re.findall(r"\.(?:save|savefig|to_html)\(\"([^\"]+)\"\)", block):
            assert (tmp_path / file).stat().st_size, file


def shown_beside(statement: ast.stmt, block: str) -> str:
    """What a statement prints according to the page."""
    return block.splitlines()[(statement.end_lineno or 0) - 1].partition("# → ")[2]


@pytest.mark.parametrize("command", commands())
def test_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    if "report runs/a" in command:
        kept = "--examples" in command
        whyformer.Explainer.load("sentiment").evaluate("reviews.csv", "random", out="runs/a", keep_scores=kept)
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(command, comments=True)[1:])
    assert stop.value.code == 0
    said = capsys.readouterr()
    assert said.out.strip() or "wrote" in said.err


def test_there_are_examples() -> None:
    assert len(commands()) >= 5
    written = [block for page in PAGES for block in blocks(page, "python")]
    assert len(written) >= 6
    assert sum(bool(shown_beside(statement, block)) for block in written for statement in ast.parse(block).body) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_metric_is_documented() -> None:
    """By hand: generated parts do not count."""
    text = docs.PART.sub("", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"))
    for metric in whyformer.list_metrics().values():
        assert f"`{metric.name}`" in text, f"docs/metrics.md does not tell of {metric.name}"
        missing = [option for option in metric.options if f"`{option}" not in text]
        assert not missing, f"docs/metrics.md does not tell of the options of {metric.name}: {', '.join(missing)}"


def test_every_method_is_documented() -> None:
    text = docs.PART.sub("", (ROOT / "docs" / "methods.md").read_text(encoding="utf-8"))
    for method in whyformer.list_methods().values():
        assert f"`{method.name}`" in text, f"docs/methods.md does not tell of {method.name}"
        missing = [option for option in method.options if f"`{option}" not in text]
        assert not missing, f"docs/methods.md does not tell of the options of {method.name}: {', '.join(missing)}"
