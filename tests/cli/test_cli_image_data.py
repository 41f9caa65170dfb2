"""Image data on the command line: evaluate, recommend, and which metrics are for images."""

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.commands import Run
from tests.helpers.image_cases import LABELS, photo, subject
from whyformer import Explanations


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vision transformer and its image processor."""
    folder = tmp_path_factory.mktemp("vit")
    subject().model.save_pretrained(folder)  # type: ignore[operator]
    fields = {"image_processor_type": "ViTImageProcessor", **subject().processor.to_dict()}
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images for each class."""
    folder = tmp_path_factory.mktemp("photos")
    for number, label in enumerate(LABELS):
        (folder / label).mkdir()
        Image.fromarray(photo(number)).save(folder / label / f"{number}.png")
    return folder


def test_a_folder_of_images_is_evaluated(run: Run, model: Path, photos: Path, tmp_path: Path) -> None:
    status, out, err = run("evaluate", "-m", model, "--data", photos, "--methods", "random,centre", "--out", tmp_path)
    assert (status, err) == (0, f"whyformer: wrote table.md, table.csv, table.tex and curves to {tmp_path}\n")
    assert "positive_perturbation" in out
    assert "negative_perturbation" in out
    assert "3 examples" in out
    assert run("report", tmp_path).out == out


def test_what_is_for_texts_is_one_line(run: Run, model: Path, photos: Path) -> None:
    status, _, err = run("evaluate", "-m", model, "--data", photos, "--methods", "random", "--metrics", "log_odds")
    assert status == 2
    assert err.startswith("whyformer: error: log_odds is for texts, and these are images: measure aopc, ")


def test_a_method_is_recommended(run: Run, model: Path, photos: Path) -> None:
    status, out, _ = run("recommend", "-m", model, "--data", photos, "--methods", "centre")
    assert status == 0
    assert "3 images, too few to rely on" in out


def test_metrics_say_what_they_are_for(run: Run) -> None:
    lines = {line.split()[0]: line for line in run("metrics").out.splitlines() if line.strip()}
    assert "mask, images" in lines["mean_iou"]
    assert " texts " in lines["log_odds"]
    assert "images" not in lines["aopc"].partition("How")[0]


def test_a_folder_of_images_is_explained_into_a_page_with_pictures_and_names(
    run: Run, model: Path, photos: Path, tmp_path: Path
) -> None:
    """Given as it is, in folders by class, without --data."""
    status, out, _ = run("explain", photos, "-m", model, "--method", "saliency", "--limit", 2, "--out", tmp_path / "o")
    assert status == 0
    assert out.startswith("Explanations of 2 images: ")
    names = ["2.png", "0.png"]  # of bird and cat
    assert all(name in out for name in names)
    table = (tmp_path / "o" / "table.csv").read_text().splitlines()
    assert table[0].startswith("row,image,prediction,")
    assert [line.split(",")[1] for line in table[1:]] == names
    page = (tmp_path / "o" / "index.html").read_text()
    assert page.count('"data:image/jpeg;base64,') == 2
    assert "<h2>Explained images</h2>" in page
    loaded = Explanations.load(tmp_path / "o")
    assert [e.image.name for e in loaded if e.image is not None] == names


def test_a_folder_of_images_is_written_where_lists_can_be(run: Run, model: Path, photos: Path, tmp_path: Path) -> None:
    status, out, err = run("explain", photos, "-m", model, "--method", "saliency", "--out", tmp_path / "all.png")
    assert (status, out) == (2, "")
    assert "Explanations cannot be written as png; known: csv, html, " in err
    page = tmp_path / "all.html"
    assert run("explain", photos, "-m", model, "--method", "saliency", "--limit", 2, "--html", page).status == 0
    assert all(f">{name}<" in page.read_text() for name in ("2.png", "0.png"))


def test_another_folder_is_no_text(run: Run, tmp_path: Path) -> None:
    status, out, err = run("explain", tmp_path)
    assert (status, out) == (2, "")
    assert "is a folder without image files: a model is given with -m" in err
