"""Images on the command line: explain --image, compare --image."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import dual
from tests.helpers.commands import Result, status_of
from tests.helpers.explained_images import photo, vit_folder
from whyformer import Comparison, Explainer, Explanation
from whyformer.cli.app import Loading
from whyformer.cli.flags import images_in

METHOD = ("--method", "rollout")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vit_folder(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    return [photo(folder / "one.png"), photo(folder / "two.jpg", (300, 500), seed=1)]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def ran(*arguments: object) -> Result:
        status = status_of(*arguments)
        said = capsys.readouterr()
        return Result(status, said.out, said.err)

    return ran


def test_an_image_is_explained(run: Any, model: Path, files: list[Path]) -> None:
    result = run("explain", "--image", files[0], "-m", model, *METHOD)
    assert result.status == 0, result.err
    expected = Explainer.load(model).explain(str(files[0]), "rollout")
    assert result.out.rstrip() == str(expected).rstrip()
    assert re.search("^[·░▒▓█①②③]{8}$", result.out, re.MULTILINE)


def test_several_images_as_json_and_as_a_page(run: Any, model: Path, files: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    result = run(
        "explain",
        "--image",
        files[0],
        "--image",
        files[1],
        "-m",
        model,
        *METHOD,
        "--json",
        "--html",
        page,
        "--target",
        "owl",
    )
    explained = [Explanation.from_dict(json.loads(line)) for line in result.out.splitlines()]
    assert [e.target.name for e in explained] == ["owl", "owl"]
    assert [e.image.pixels.shape for e in explained if e.image] == [(40, 60, 3), (500, 300, 3)]
    assert page.read_text().count('type="range"') == 2


@pytest.mark.parametrize("ending", ["png", "csv", "json"])
def test_one_is_written_in_any_format(run: Any, model: Path, files: list[Path], tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"why.{ending}"
    result = run("explain", "--image", files[0], "-m", model, *METHOD, "--versus", "runner_up", "--out", out)
    assert f"wrote {out}" in result.err
    assert out.stat().st_size


def test_compare(run: Any, model: Path, files: list[Path], tmp_path: Path) -> None:
    page, out = tmp_path / "why.html", tmp_path / "why.json"
    command = ("compare", "--image", files[0], "-m", model, "--methods", "rollout,gae")
    result = run(*command, "--html", page, "--out", out)
    assert result.status == 0, result.err
    assert re.search(r"^rollout\s+gae\s*$", result.out, re.MULTILINE)
    assert page.read_text().count('type="range"') == 1
    assert [e.method for e in Comparison.load(out)] == ["rollout", "gae"]


def test_out_is_for_texts_too(run: Any, tmp_path: Path) -> None:
    assert run("explain", "a fine film", *METHOD, "--out", tmp_path / "why.md").status == 0
    assert "| unit | rollout |" in (tmp_path / "why.md").read_text()
    (tmp_path / "texts.txt").write_text("a fine film\na dull film\n")
    several = ("explain", "-m", "sentiment", "--file", tmp_path / "texts.txt", *METHOD, "--out")
    assert run(*several, tmp_path / "why.csv").status == 0
    assert (tmp_path / "why.csv").read_text().splitlines()[1].startswith("0,a fine film,POSITIVE,")
    result = run(*several, tmp_path / "why.png")
    assert (result.status, result.out) == (2, "")
    assert "Explanations cannot be written as png; known: csv, html, json" in result.err


@pytest.mark.parametrize(
    ("beside", "refused"),
    [
        (["--file", "texts.txt"], "--file"),
        (["--text", "review"], "--text"),
        (["--pair", "b"], "--pair"),
        (["--question", "who?"], "--question"),
        (["--context", "here"], "--context"),
        (["--context-file", "here"], "--context-file"),
        (["--choice", "a"], "--choice"),
        (["--word", "a"], "--word"),
        (["--position", "0"], "--position"),
        (["--words"], "--words"),
        (["--windows", "merge"], "--windows"),
        (["--window-size", "8"], "--window-size"),
        (["--overlap", "0"], "--overlap"),
        (["--words", "--pair", "b"], "--pair, --words"),
    ],
)
def test_what_is_of_texts_is_refused_by_name(run: Any, files: list[Path], beside: list[str], refused: str) -> None:
    result = run("explain", "--image", files[0], *beside)
    assert result.status == 2
    assert result.err == f"whyformer: error: --image stands alone, and this is of texts: leave {refused} out\n"


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["explain", "--image", "missing.png", "-m", "MODEL"], "there is no file 'missing.png'"),
        (["explain", "--image", "MODEL/config.json", "-m", "MODEL"], "is no image"),
        (
            ["explain", "--image", "PHOTO", "--image", "missing.png", "-m", "MODEL"],
            r"image 1 \(counted from 0\): there is no",
        ),
        (["explain", "--image", "PHOTO", "-m", "sentiment"], "reads texts: --image needs a model that takes images"),
        (
            ["explain", "a text", "-m", "MODEL"],
            "and there is no file or folder 'a text': give an image file",
        ),
        (["compare", "--image", "PHOTO", "--image", "PHOTO", "-m", "MODEL"], "give --image once; found 2"),
        (["compare", "--image", "PHOTO", "--words"], "leave --words out"),
        (["explain", "a text", "--image", "PHOTO", "-m", "MODEL"], "takes images alone: leave TEXT out"),
        (["compare", "a text", "--image", "PHOTO", "-m", "MODEL"], "takes images alone: leave TEXT out"),
        (
            ["explain", "--image", "PHOTO", "--out", "why.xyz", "-m", "sentiment"],
            "why.xyz' has the ending of no output format",
        ),
        (["explain", "--image", "PHOTO", "--out", "nowhere/why.png"], "nowhere"),
        (["explain", "--image", "PHOTO", "-m", "MODEL", "--target", "horse"], "horse"),
    ],
)
def test_an_error_is_one_line(run: Any, model: Path, files: list[Path], arguments: list[str], pattern: str) -> None:
    said = [a.replace("MODEL", str(model)).replace("PHOTO", str(files[0])) for a in arguments]
    result = run(*said)
    assert result.status == 2
    assert result.err.count("\n") == 1
    assert re.search(pattern, result.err), result.err


@pytest.mark.parametrize(("images", "name"), [(True, "pets"), (False, "sentiment")])
def test_without_a_model_that_of_the_kind_is_loaded(monkeypatch: pytest.MonkeyPatch, images: bool, name: str) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Explainer, "load", lambda name, **_: asked.append(name))
    Loading().explainer(images=images)
    Loading(model="mine").explainer(images=images)
    assert asked == [name, "mine"]


def test_a_text_beside_an_image_is_for_models_that_compare_them(
    run: Any, files: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Loading, "explainer", lambda *_, **__: Explainer(dual.subject("clip")))
    page = tmp_path / "why.html"
    result = run("explain", "a red cat", "--image", files[0], "--image", files[1], *METHOD, "--html", page)
    assert result.status == 0, result.err
    assert result.out.count("why a red cat?") == 2
    assert re.search("^[·░▒▓█]{8}$", result.out, re.MULTILINE)
    assert re.search("^a red cat$", result.out, re.MULTILINE)
    assert page.read_text().count('<div class="text short">') == 2
    alone = run("explain", "--image", files[0])
    assert alone.err == "whyformer: error: CLIPModel compares images with texts: give a TEXT too\n"
    assert "takes images: give an image file as --image, and a TEXT" in run("explain", "a red cat").err


def test_rows_left_out_are_those_of_folders_and_files(run: Any, model: Path, files: list[Path]) -> None:
    status, _, error = run("explain", "--image", files[0], "-m", model, "--on-error", "skip")
    assert status == 2
    assert "--on-error skip is for folders and data files: give the folder without --image" in error


def test_other_files_of_a_folder_are_no_images(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("b.PNG", "a.png"):
        (folder / name).write_bytes(files[0].read_bytes())
    (folder / "notes.txt").write_text("not an image")
    assert [path.name for path in images_in(folder)] == ["a.png", "b.PNG"]
