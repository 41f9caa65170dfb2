"""The recipes of images: tables, ablations, and figures of one or two objects; and what they are given."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers import image_cases
from whyformer import BadInput, BadOption, Explainer
from whyformer.cli import main
from whyformer.cli.demo import PHOTOGRAPH
from whyformer.images.reading import pairs_of, side_by_side
from whyformer.metrics.metric import metric_named
from whyformer.models.load import PlainProcessor
from whyformer_papers.reproduce import csv, given_data, reproduction_named, run

COLUMNS = ("imagenet", "imagenet_segmentation")
METRICS = {"pixel accuracy": "pixel_accuracy", "mAP": "mean_average_precision", "mIoU": "mean_iou"}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("images")
    model, data = image_cases.save(folder / "model"), image_cases.write(folder / "pets.parquet", 6)
    return {"instead": dict.fromkeys(COLUMNS, str(model)), "data": dict.fromkeys(COLUMNS, data)}


def of(places: dict[str, Any], *columns: str) -> dict[str, Any]:
    return {name: {column: value[column] for column in columns} for name, value in places.items()}


def test_segmentation_is_what_the_metrics_give(places: dict[str, Any], tmp_path: Path) -> None:
    done = run(reproduction_named("transformer-attribution-table-2"), out=tmp_path, **of(places, COLUMNS[1]))
    (part,) = done.parts
    table = part.tables[None]
    for entry in part.entries:
        assert entry.ours is not None, entry
        metric = METRICS[entry.measure]
        assert entry.ours.mean == pytest.approx(100 * table[entry.method, metric].mean)  # type: ignore[union-attr]
        assert entry.ours.n == 6
    random = [entry for entry in part.entries if entry.row == "random"]
    assert {entry.published for entry in random} == {None}
    assert {entry.row for entry in part.entries} >= {"rollout", "theirs", "centre of the image"}


def test_the_mean_accuracy_is_the_area_over_its_range(places: dict[str, Any]) -> None:
    done = run(reproduction_named("transformer-attribution-table-1"), **of(places, COLUMNS[0]))
    entries = {(e.row, e.method, e.measure): e for e in done.parts[0].entries}
    assert metric_named("positive_perturbation").options["normalised"].default is False
    for (row, method, measure), entry in entries.items():
        if measure.endswith("mean accuracy"):
            area = entries[row, method, measure.removesuffix(", mean accuracy")]
            assert entry.ours is not None
            assert area.ours is not None
            assert entry.ours.mean == pytest.approx(area.ours.mean / 0.8)
            assert entry.published == area.published


def test_each_column_of_the_ablations_has_its_own_measures(places: dict[str, Any]) -> None:
    done = run(reproduction_named("transformer-attribution-table-3"), **places)
    measures = {part.column.folder: {entry.measure for entry in part.entries} for part in done.parts}
    assert measures == {
        "imagenet_segmentation": {"pixel accuracy", "mAP", "mIoU"},
        "imagenet": {"positive, predicted", "negative, predicted"},
    }


def test_a_figure_has_a_line_of_pictures_for_each_image(places: dict[str, Any]) -> None:
    done = run(reproduction_named("transformer-attribution-figure-2"), limit=2, **of(places, COLUMNS[0]))
    (part,) = done.parts
    labels = [row.label for row in done.recipe.rows]
    assert [[e.method for e in comparison] for comparison in part.examples] == [labels, labels]
    figure = done.recipe.column_drawing(part)
    assert figure is not None
    assert len([axes for axes in figure.axes if axes.images]) == 2 * (1 + len(labels))
    lines = csv(done).splitlines()
    assert len(lines) == 1 + 2 * len(labels) * (image_cases.GRID**2 + 1)


def test_two_objects_are_explained_for_the_class_of_either(places: dict[str, Any]) -> None:
    done = run(reproduction_named("transformer-attribution-figure-3"), limit=1, **of(places, COLUMNS[0]))
    first, second = done.parts[0].examples
    assert first[0].target.name != second[0].target.name
    assert np.array_equal(first[0].image.pixels, second[0].image.pixels)
    assert np.allclose(first[0].scores, second[0].scores)  # rollout knows no class
    assert not np.allclose(first[-1].scores, second[-1].scores)


def test_a_figure_of_images_needs_a_model_of_images(places: dict[str, Any]) -> None:
    given = {**of(places, COLUMNS[0]), "instead": {"imagenet": "sentiment"}}
    with pytest.raises(BadInput, match="sentiment takes texts, and the figure is of images"):
        run(reproduction_named("transformer-attribution-figure-2"), **given)


def test_how_data_is_written() -> None:
    assert given_data([]) is None
    assert given_data(["all"]) == {None: "all"}
    assert given_data(["all", "imagenet=a/b=c.parquet"]) == {None: "all", "imagenet": "a/b=c.parquet"}
    for wrong in ("=file", "imagenet="):
        with pytest.raises(BadOption, match="data is written as FOLDER, or as COLUMN=FILE"):
            given_data([wrong])


def test_halves_are_squeezed_side_by_side() -> None:
    left, right = Image.new("RGB", (41, 30), "red"), Image.new("RGB", (10, 99), "blue")
    both = np.asarray(side_by_side(left, right))
    assert both.shape == (30, 40, 3)
    assert (both[:, :20] == (255, 0, 0)).all()
    assert (both[:, 20:] == (0, 0, 255)).all()


def test_pairs_have_different_labels_and_stand_once() -> None:
    labels = [0, 0, 1, 2]
    pairs = pairs_of(labels, 100)
    assert {frozenset(pair) for pair in pairs} == {frozenset(p) for p in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))}
    assert len(pairs) == 5
    assert pairs_of(labels, 100) == pairs
    assert pairs_of([1, 1], 3) == []


def test_auto_is_what_wins_on_images_and_goes_to_the_pixels_without_layers() -> None:
    from transformers import SwinConfig, SwinForImageClassification

    assert Explainer(image_cases.subject()).method("auto").label == "full_grad(book=attn)"
    assert Explainer(image_cases.subject()).explain(image_cases.photo()).method == "full_grad"
    torch.manual_seed(0)
    config = SwinConfig(image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4)
    edges = {"height": 32, "width": 32}
    staged = Explainer(SwinForImageClassification(config).eval(), PlainProcessor({"size": edges}))
    explanation = staged.explain(image_cases.photo())
    assert explanation.method == "attn_lrp"
    assert explanation.pixels is not None


def test_the_demonstration_explains_a_sentence_and_a_photograph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["demo", "--html", str(tmp_path / "page.html")])
    printed, page = capsys.readouterr().out, (tmp_path / "page.html").read_text()
    for shown in (printed, page):
        assert "POSITIVE" in shown
        assert "Maine Coon 9" in shown
    assert page.count('<section class="why') == 2
    assert "gorgeous" in page
    assert 'type="range"' in page


def test_the_model_is_sure_of_the_bundled_photograph_because_of_the_face() -> None:
    e = Explainer.load("pets").explain(PHOTOGRAPH)
    assert e.prediction.label == "Maine Coon"
    assert e.checked is not None
    (together,) = e.checked.together
    assert e.checked.probability is not None
    assert together.probability is not None
    assert e.checked.probability > 0.9
    assert together.probability < 0.65
    boxes = np.array([e.units[place].box for place in together.units])
    assert (boxes >= [18, 10, 18, 10]).all()  # of 96 pixels; the face, from the ears to the chin
    assert (boxes <= [60, 52, 60, 52]).all()
