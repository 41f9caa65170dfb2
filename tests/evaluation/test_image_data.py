"""Evaluations of image data: items, batches, masks, journals, references; what is refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whyformer
from tests.helpers import cases as texts
from tests.helpers.evaluated import alike
from tests.helpers.image_cases import LABELS, case, marked, photo, rows, subject
from whyformer import BadInput, BadOption
from whyformer.datasets import open_dataset
from whyformer.evaluation import chunk, evaluate, recommend, references
from whyformer.evaluation.examples import Item, batches, item_of, seen_mask
from whyformer.evaluation.journal import Journal
from whyformer.inputs.images import ImageInput, Patches, Picture
from whyformer.methods.method import method_named
from whyformer.metrics import Annotation, Case
from whyformer.metrics.metric import metric_named, metric_specs
from whyformer.models.load import subject_of
from whyformer.models.memory import CPU

METHODS = "random,lrp,rollout,centre"
BOTH = "positive_perturbation,negative_perturbation"


def measured(data: Any, methods: str = METHODS, metrics: Any = None, **options: Any) -> Any:
    return evaluate.evaluate(subject(), data, methods, metrics, progress=False, **options)


def items(count: int = 3, **options: Any) -> list[Item]:
    own = subject(**options)
    return [item_of(own, example) for example in open_dataset(rows(count), labels=own.labels)]


@pytest.mark.long
def test_a_table_has_the_numbers_of_the_metrics() -> None:
    names = [*BOTH.split(","), "mean_iou", "pixel_accuracy", "mean_average_precision", "pointing_game", "deletion"]
    table = measured(rows(6), metrics=names)
    annotations = [Annotation(gold=n % 3, mask=marked(n)) for n in range(6)]
    plain = case(6)
    for method in METHODS.split(","):
        scores = method_named(method)(plain.prediction)
        one = Case(plain.prediction, scores.total, plain.outcomes, annotations, pixels=scores.diagnostics.get("pixels"))
        for name in names:
            found = metric_named(name)(one)
            of_all = metric_named(name).reduced(found.records) if found.records else float(found.values.mean())
            cell = table[method, name]
            assert cell.mean == pytest.approx(of_all, abs=1e-6)
            assert cell.n == 6


def test_the_default_metrics_are_those_of_images() -> None:
    assert measured(rows(2), "random").metrics == tuple(BOTH.split(","))
    assert measured(rows(2), "random", BOTH + ",aopc").metrics == (*BOTH.split(","), "aopc")


@pytest.mark.parametrize("masks", [True, False])
def test_all_metrics_are_those_that_go_with_the_data(masks: bool) -> None:
    found = set(measured(rows(2, masks), "lrp", "all").metrics)
    segmentation = {"mean_iou", "pixel_accuracy", "mean_average_precision", "pointing_game"}
    both = {"aopc", "comprehensiveness", "sufficiency", "kendall_tau"}
    pixels = {*BOTH.split(","), "insertion", "deletion", "deletion_accuracy"}
    assert found == both | pixels | (segmentation if masks else set())


def test_fast_has_the_centre_prior_for_images_alone() -> None:
    from whyformer.methods.default import methods_for

    assert "centre" in [spec.label for spec in methods_for(subject(), "fast")]
    assert "centre" not in [spec.label for spec in methods_for(texts.subject(), "fast")]
    assert "centre" in [spec.label for spec in methods_for(texts.subject(), ["centre", "all"])]


@pytest.mark.long
def test_a_journal_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows(5)
    measured(data, "random", BOTH, out=tmp_path, rows_per_chunk=2)
    again = measured(data, METHODS, [*BOTH.split(","), "mean_iou"], out=tmp_path, rows_per_chunk=2, ceiling=2)
    once = measured(data, METHODS, [*BOTH.split(","), "mean_iou"], ceiling=2)
    for pair in [(method, metric) for method in once.methods for metric in once.metrics]:
        assert alike(str(again[pair]), str(once[pair])), pair
    before = len(Journal.read(tmp_path))
    monkeypatch.setattr(chunk.ChunkRun, "measure", lambda self: pytest.fail("nothing is missing"))
    measured(data, METHODS, [*BOTH.split(","), "mean_iou"], out=tmp_path, rows_per_chunk=3, ceiling=2)
    assert len(Journal.read(tmp_path)) == before == 5 * 4 * 3 + 2 * 2 * 2


def test_another_mask_is_another_number(tmp_path: Path) -> None:
    first, second = (item_of(subject(), example) for example in _with_masks(marked(0), marked(1)))
    assert first.content != second.content
    assert first.annotation.mask is not None


def _with_masks(*masks: Any) -> Any:
    return open_dataset([{"image": photo(), "mask": mask} for mask in masks])


def test_an_image_is_sent_as_it_is_stored() -> None:
    (item,) = items(1)
    sent = pickle.dumps(item)
    assert len(sent) < len(pickle.dumps(photo())) + len(pickle.dumps(marked())) + 3000
    again = pickle.loads(sent).ready(subject())
    assert isinstance(item.encoded, ImageInput)
    assert again.encoded.key == item.encoded.key
    assert again.content == item.content
    assert np.array_equal(again.annotation.mask, item.annotation.mask)
    assert item.ready(subject()) is item
    (text,) = (item_of(texts.subject(), example) for example in open_dataset(["a fine film"]))
    assert pickle.loads(pickle.dumps(text)).ready(texts.subject()).content == text.content


def test_images_of_one_size_are_run_together() -> None:
    def item(row: int, side: int) -> Item:
        grid = np.arange(4).reshape(2, 2)
        patches = Patches(np.kron(grid, np.ones((side // 2, side // 2), np.int64)), grid, 4)
        image = ImageInput({"pixel_values": torch.zeros(1, 3, side, side)}, patches, units=patches.described)
        return Item(row, image, Annotation(), "")

    found = list(batches([item(0, 4), item(1, 8), item(2, 4), item(3, 8)], CPU, 1))
    assert sorted([one.row for one in batch] for batch in found) == [[0], [1, 3], [2]]


# Masks


def test_a_mask_follows_what_the_model_sees() -> None:
    own = subject(crop=True)
    mask = np.zeros((60, 24), np.uint8)
    mask[10:31, 3:17] = 1
    mask[25:40, 20:] = 255
    (example,) = open_dataset([{"image": photo(0, 60, 24), "mask": mask}])
    seen = item_of(own, example).annotation.mask
    assert seen is not None
    assert seen.shape == (20, 20)
    for row in range(20):
        for column in range(20):
            y = (15 / 50 + (row + 0.5) / 50) * 60  # 60 × 24 becomes 50 × 20, of which the middle 20 × 20 is seen
            x = (column + 0.5) / 20 * 24
            assert seen[row, column] == mask[int(y + 1e-9), int(x + 1e-9)]


def test_a_mask_that_cannot_follow_is_refused() -> None:
    whole = Picture(np.zeros((20, 20, 3), np.uint8), (20, 20))
    assert seen_mask(marked(), whole) is not None
    with pytest.raises(BadInput, match=r"its mask is 40 × 30 \(height × width\).*give masks of the size .* 20 × 20"):
        seen_mask(np.zeros((40, 30), np.uint8), whole)


def test_a_plain_function_reads_images_too() -> None:
    def transform(image: Any) -> torch.Tensor:
        values = torch.from_numpy(np.array(image.crop((0, 0, 20, 20)))).permute(2, 0, 1) / 255
        return values.double()

    own = subject_of(subject().model, transform)
    table = evaluate.evaluate(own, rows(3), "random", "mean_iou,deletion", progress=False)
    assert table["random", "mean_iou"].n == 3
    with pytest.raises(BadOption, match="positive_perturbation: hide='black' is not possible"):
        evaluate.evaluate(own, rows(3), "random", progress=False)


# References


def test_cells_of_images_are_searched_as_the_metric_hides() -> None:
    of = {
        label: references.Way.of(metric_specs([label])[0], images=True)
        for label in [*BOTH.split(","), "aopc", "deletion"]
    }
    assert of["positive_perturbation"] == ("right", "black", "cell", "max", False)
    assert of["negative_perturbation"] == ("right", "black", "cell", "max", True)
    assert of["aopc"] == ("predicted", "delete", "cell", "max", False)
    assert of["deletion"] == ("predicted", "zero", "cell", "max", False)
    words = metric_specs(["aopc(units=word, combine=max)"])[0]
    assert references.Way.of(words, images=False) == ("predicted", "delete", "word", "max", False)


@pytest.mark.long
def test_images_have_a_ceiling_and_a_chance() -> None:
    table = measured(rows(4, masks=False), "random", BOTH + ",deletion,aopc,insertion", ceiling=3)
    for name in (*BOTH.split(","), "deletion", "aopc"):
        assert table["ceiling", name].n == table["chance", name].n == 3
        higher = metric_named(name).higher_is_better
        best, chance = table["ceiling", name].mean, table["chance", name].mean
        assert best >= chance if higher else best <= chance
    assert table["ceiling", "insertion"] is None
    assert table.share("random", "deletion").n == 3


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": "log_odds"}, "log_odds is for texts, and these are images: measure "),
        ({"metrics": "token_f1"}, "token_f1 is for texts"),
        ({"keep_scores": True, "out": "x"}, "keep_scores keeps texts"),
        ({"protocol": "attcat"}, "protocol='attcat' is for texts"),
        ({"windows": "merge"}, "windows='merge' is for texts"),
    ],
)
def test_what_is_for_texts_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    options = {**options, "out": tmp_path} if "out" in options else options
    with pytest.raises(BadOption, match=message):
        measured(rows(2), "random", **options)


def test_what_is_for_images_is_refused() -> None:
    with pytest.raises(BadOption, match="mean_iou is for images, and these are texts: measure aopc, "):
        evaluate.evaluate(texts.subject(), ["a film"], "random", "mean_iou", progress=False)
    with pytest.raises(BadInput, match=r"row 0 .* it is an image, and BertForSequenceClassification reads texts"):
        evaluate.evaluate(texts.subject(), [{"image": photo()}], "random", "aopc", progress=False)
    with pytest.raises(BadInput, match=r"row 0 .* it has no image, and ViTForImageClassification reads images"):
        measured(["a film"], "random", "aopc")


def test_a_file_that_is_no_image_is_a_bad_row() -> None:
    data = [*rows(2, masks=False), {"image": b"no image", "label": LABELS[0]}]
    with pytest.raises(BadInput, match=r"row 2 .*no image that Pillow can read"):
        measured(data, "random")
    table = measured(data, "random", on_error="skip")
    assert list(table.skipped) == [2]


# Recommendations


def test_methods_are_recommended_on_images() -> None:
    found = recommend.recommend(subject(), rows(6, masks=False), "lrp,rollout", "deletion", progress=False)
    assert set(found.table.methods) == {"lrp", "rollout", "random"}
    assert "6 images, a small sample" in found.sentence
    with pytest.raises(BadOption, match="layers are ranked on texts"):
        recommend.recommend(subject(), rows(2), layers=True)


def test_an_explainer_evaluates_images() -> None:
    explainer = whyformer.Explainer(subject().model, subject().processor)
    assert explainer.evaluate(rows(2), "random", metrics="mean_iou", progress=False)["random", "mean_iou"].n == 2


def test_a_mask_of_another_shape_is_refused() -> None:
    picture = Picture(np.zeros((30, 60, 3), np.uint8), (20, 20))
    assert seen_mask(np.ones((15, 30), np.uint8), picture).shape == (20, 20)
    with pytest.raises(BadInput, match=r"its mask is 60 × 30 .*of another shape than the image, 30 × 60"):
        seen_mask(np.ones((60, 30), np.uint8), picture)
