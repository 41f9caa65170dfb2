"""Every metric of images beside its definition written out with loops; pooled and single images; what is left out."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import whyformer.metrics  # noqa: F401  (registers the metrics)
from tests.helpers import cases as texts
from tests.helpers.image_cases import GRID, case, marked, photo, subject
from whyformer import BadInput, BadOption
from whyformer.methods.method import method_named
from whyformer.metrics import Annotation, Case, measure
from whyformer.metrics.metric import Measured, list_metrics, metric, metric_named
from whyformer.perturb import Outcomes, hide_named
from whyformer.tolerance import close

Floats = NDArray[np.float64]
SIDE, PATCH = 20, 4
NINE = [n / 10 for n in range(1, 10)]
TENTHS = [n / 10 for n in range(11)]
MEAN, STD = np.array([0.4, 0.5, 0.6]), np.array([0.2, 0.25, 0.3])


def said(pixels: Floats) -> Floats:
    """What the model says of an image of colours 0 … 1, [height, width, 3]."""
    return said_of_values((pixels - MEAN) / STD)


def said_of_values(values: Floats) -> Floats:
    with torch.no_grad():
        logits = subject().model(pixel_values=torch.from_numpy(values).permute(2, 0, 1)[None].double()).logits
    return np.asarray(logits.softmax(-1)[0])


def upsampled(grid: Floats) -> Floats:
    """Bilinear, by loops: each pixel lies between the middles of patches; beyond the last, the last counts."""
    whole = np.zeros((SIDE, SIDE))
    for row in range(SIDE):
        for column in range(SIDE):
            y, x = (min(max((place + 0.5) / PATCH - 0.5, 0), GRID - 1) for place in (row, column))
            top, left = min(int(y), GRID - 2), min(int(x), GRID - 2)
            down, across = y - top, x - left
            whole[row, column] = (1 - down) * ((1 - across) * grid[top, left] + across * grid[top, left + 1]) + down * (
                (1 - across) * grid[top + 1, left] + across * grid[top + 1, left + 1]
            )
    return whole


def map_of(scores: torch.Tensor) -> Floats:
    """The map of one image: without the special unit."""
    return upsampled(scores[1:].reshape(GRID, GRID).numpy())


def found(name: str, one: Case, **options: Any) -> Measured:
    return metric_named(name)(one, **options)


# Perturbation of pixels


@pytest.mark.parametrize("name", ["positive_perturbation", "negative_perturbation"])
@pytest.mark.parametrize("target", ["predicted", "gold"])
def test_pixels_are_black_in_order_of_the_map(name: str, target: Any) -> None:
    golds = [1, 2, 0, 1]
    one = case(annotations=[Annotation(gold=gold) for gold in golds])
    assert one.scores_for is not None
    explained = one.prediction.predicted if target == "predicted" else torch.tensor(golds)
    scores, maps = one.scores_for(explained), one.maps(target).numpy()
    assert isinstance(scores, torch.Tensor)
    curves = []
    for n, gold in enumerate(golds):
        assert close(maps[n], map_of(scores[n]))
        sign = -1 if name.startswith("positive") else 1
        order = np.argsort(sign * maps[n].ravel(), kind="stable")
        hits = []
        for k in range(1, 10):
            seen = photo(n).reshape(-1, 3) / 255
            seen[order[: SIDE * SIDE * k // 10]] = 0
            hits.append(float(said(seen.reshape(SIDE, SIDE, 3)).argmax() == gold))
        curves.append(hits)
    raw, scaled = (found(name, one, target=target, normalised=divided) for divided in (False, True))
    assert raw.curve is not None
    assert raw.curve.tolist() == curves
    assert raw.at == tuple(NINE)
    assert close(raw.values, torch.tensor([np.trapezoid(hits, NINE) for hits in curves]))
    assert close(scaled.values, raw.values / 0.8)


def test_without_gold_labels_accuracy_is_against_the_prediction() -> None:
    one = case()
    as_gold = [Annotation(gold=int(index)) for index in one.prediction.predicted]
    assert torch.equal(
        found("positive_perturbation", one).values, found("positive_perturbation", case(annotations=as_gold)).values
    )


def test_scores_of_pixels_order_them_without_upsampling() -> None:
    pixels = torch.rand(4, SIDE, SIDE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain = case()
    one = Case(plain.prediction, plain.scores, plain.outcomes, pixels=pixels)
    assert torch.equal(one.maps("predicted"), pixels)
    order = np.argsort(-pixels[0].numpy().ravel())
    seen = photo(0).reshape(-1, 3) / 255
    seen[order[:120]] = 0
    expected = said(seen.reshape(SIDE, SIDE, 3)).argmax() == int(one.prediction.predicted[0])
    measured = found("positive_perturbation", one, fractions=[0.3, 0.5])
    assert measured.curve is not None
    assert bool(measured.curve[0, 0]) is bool(expected)


def test_lrp_orders_pixels_also_for_the_gold_class() -> None:
    one = case()
    prediction = one.prediction
    lrp = method_named("lrp")

    def scores_for(classes: torch.Tensor) -> Any:
        return lrp(prediction.towards(classes.tolist()))

    scores = lrp(prediction)
    golds = [Annotation(gold=(int(index) + 1) % 3) for index in prediction.predicted]
    own = Case(prediction, scores.total, one.outcomes, golds, scores_for, pixels=scores.diagnostics["pixels"])
    assert close(own.maps("predicted"), scores.diagnostics["pixels"].double())
    other = scores_for(own.chosen("gold")).diagnostics["pixels"].double()
    assert close(own.maps("gold"), other)
    assert not close(other, scores.diagnostics["pixels"].double())


@pytest.mark.parametrize(("hide", "instead"), [("zero", MEAN), ("mean", None), ("delete", None)])
def test_pixels_may_be_hidden_by_other_colours(hide: str, instead: Any) -> None:
    one = case(1)
    order = np.random.default_rng(0).permutation(SIDE * SIDE)
    seen = photo(0).reshape(-1, 3) / 255
    seen[order[:200]] = seen.mean(0) if instead is None else instead
    flags = np.zeros(SIDE * SIDE, dtype=bool)
    flags[order[:200]] = True
    (shares,) = one.without_pixels([[flags.reshape(SIDE, SIDE)]], hide)
    assert close(shares[0], torch.from_numpy(said(seen.reshape(SIDE, SIDE, 3))), torch.float32)


# Deletion and insertion of patches


def patch_order(one: Case, row: int) -> list[int]:
    scores = one.scores[row, 1:].tolist()
    return sorted(range(GRID * GRID), key=lambda n: -scores[n])


def covered(places: list[int]) -> NDArray[np.bool_]:
    flags = np.zeros((SIDE, SIDE, 1), dtype=bool)
    for place in places:
        row, column = divmod(place, GRID)
        flags[row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH] = True
    return flags


@pytest.mark.parametrize("name", ["deletion", "insertion"])
def test_probabilities_while_patches_go_or_come(name: str) -> None:
    from scipy.ndimage import gaussian_filter
    from sklearn.metrics import auc

    one, expected = case(), []
    for n in range(4):
        values = (photo(n) / 255 - MEAN) / STD
        deviation = SIDE / 8
        blur = np.stack(
            [gaussian_filter(values[..., c], deviation, mode="nearest", radius=round(3 * deviation)) for c in range(3)],
            axis=-1,
        )
        order, shares = patch_order(one, n), []
        for k in TENTHS:
            count = math.floor(k * 25 + 0.5)
            hidden, instead = (order[:count], 0 * values) if name == "deletion" else (order[count:], blur)
            shares.append(said_of_values(np.where(covered(hidden), instead, values))[one.prediction.predicted[n]])
        expected.append(auc(TENTHS, shares))
    measured = found(name, one)
    assert close(measured.values, torch.tensor(expected), torch.float32)
    assert measured.at == tuple(TENTHS)


def dropped(n: int, places: list[int]) -> int:
    """What the model predicts without the units of some patches, layer by layer."""
    model: Any = subject().model
    values = torch.from_numpy((photo(n) / 255 - MEAN) / STD).permute(2, 0, 1)[None]
    left = [0, *(place + 1 for place in range(GRID * GRID) if place not in places)]
    with torch.no_grad():
        states = model.vit.embeddings(values)[:, left]
        for layer in model.vit.layers if hasattr(model.vit, "layers") else model.vit.encoder.layer:
            states = layer(states)
        return int(model.classifier(model.vit.layernorm(states)[:, 0]).argmax())


@pytest.mark.parametrize("order", ["most", "least"])
def test_deletion_accuracy_drops_units_from_the_sequence(order: Any) -> None:
    one, curves = case(), []
    for n in range(4):
        ranked, index = patch_order(one, n), int(one.prediction.predicted[n])
        counts = [int(k * 25) for k in NINE]
        if order == "most":
            curves.append([float(dropped(n, ranked[:count]) != index) for count in counts])
        else:
            curves.append([float(dropped(n, ranked[count:]) == index) for count in counts])
    measured = found("deletion_accuracy", one, order=order)
    assert measured.curve is not None
    assert measured.curve.tolist() == curves
    assert close(measured.values, torch.tensor(curves, dtype=torch.float64).mean(1))
    assert len({tuple(curve) for curve in curves}) > 1


def test_a_model_that_needs_all_units_is_refused() -> None:
    import transformers as hf

    sizes: Any = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = hf.BeitForImageClassification(
        hf.BeitConfig(**sizes, image_size=8, patch_size=4, use_relative_position_bias=True)
    ).eval()
    from whyformer.inputs.batch import batch_of
    from whyformer.prediction import Prediction

    prediction = Prediction(model, batch_of(model, {"pixel_values": torch.rand(1, 3, 8, 8)}))
    one = Case(prediction, torch.rand(prediction.padding.shape), Outcomes(model))
    with pytest.raises(BadOption, match="hide='drop' is not possible: BeitForImageClassification needs all its units"):
        found("deletion_accuracy", one)


# Segmentation


def masked(count: int = 4) -> Case:
    return case(count, [Annotation(mask=marked(n)) for n in range(count)])


def counted(one: Case) -> list[tuple[int, int, list[int], list[int]]]:
    """Of each image: right and labelled pixels, intersections and unions of background and foreground."""
    counts = []
    for n in range(len(one)):
        scores, mask = map_of(one.scores[n]), marked(n)
        right, labelled, both, either = 0, 0, [0, 0], [0, 0]
        for row in range(SIDE):
            for column in range(SIDE):
                if mask[row, column] == 255:
                    continue
                guess, truth = int(scores[row, column] > scores.mean()), int(mask[row, column])
                labelled += 1
                right += guess == truth
                for side in (0, 1):
                    both[side] += guess == truth == side
                    either[side] += side in (guess, truth)
        counts.append((right, labelled, both, either))
    return counts


def test_pixel_accuracy_and_mean_iou_are_pooled() -> None:
    one = masked()
    counts = counted(one)
    accuracy, iou = found("pixel_accuracy", one), found("mean_iou", one)
    assert metric_named("pixel_accuracy").reduced(accuracy.records) == pytest.approx(
        sum(c[0] for c in counts) / sum(c[1] for c in counts)
    )
    pooled = [sum(c[2][side] for c in counts) / sum(c[3][side] for c in counts) for side in (0, 1)]
    assert metric_named("mean_iou").reduced(iou.records) == pytest.approx(sum(pooled) / 2)
    each = [sum(c[2][side] / c[3][side] for side in (0, 1)) / 2 for c in counts]
    assert iou.values.tolist() == pytest.approx(each)
    assert sum(each) / 4 != pytest.approx(sum(pooled) / 2, abs=1e-4)
    assert accuracy.values.tolist() == pytest.approx([c[0] / c[1] for c in counts])


def test_average_precision_is_one_of_both_channels() -> None:
    from sklearn.metrics import average_precision_score

    one, expected, by_class = masked(), [], []
    for n in range(4):
        scores, mask = one.maps("predicted")[n].numpy().ravel(), marked(n).ravel()
        scaled = ((scores - scores.min()) / (scores.max() - scores.min()))[mask != 255]
        truth = mask[mask != 255]
        channels = np.stack([1 - scaled, scaled])
        one_hot = np.stack([truth == 0, truth == 1])
        expected.append(average_precision_score(one_hot.ravel(), channels.ravel()))
        by_class.append(np.mean([average_precision_score(one_hot[c], channels[c]) for c in (0, 1)]))
    values = found("mean_average_precision", one).values.tolist()
    assert values == pytest.approx(expected, abs=1e-9)
    assert values != pytest.approx(by_class, abs=1e-2)


@pytest.mark.parametrize("tolerance", [0, 3])
def test_pointing_game(tolerance: int) -> None:
    one, expected = masked(), []
    for n in range(4):
        scores, mask = map_of(one.scores[n]), marked(n)
        places = [(r, c) for r in range(SIDE) for c in range(SIDE)]
        row, column = max((p for p in places if mask[p] != 255), key=lambda p: scores[p])
        near = [p for p in places if (p[0] - row) ** 2 + (p[1] - column) ** 2 <= tolerance**2]
        expected.append(float(any(mask[p] == 1 for p in near)))
    assert found("pointing_game", one, tolerance=tolerance).values.tolist() == expected


def test_images_without_a_mask_or_foreground_are_left_out() -> None:
    nothing, background = np.full((SIDE, SIDE), 255, np.uint8), np.zeros((SIDE, SIDE), np.uint8)
    one = case(4, [Annotation(mask=mask) for mask in (marked(0), None, nothing, background)])
    for name in ("pixel_accuracy", "mean_iou"):
        measured = found(name, one)
        assert [record is None for record in measured.records] == [False, True, True, False]
        assert measured.values.isnan().tolist() == [False, True, True, False]
    assert found("mean_average_precision", one).values.isnan().tolist() == [False, True, True, False]
    assert found("pointing_game", one).values.isnan().tolist() == [False, True, True, True]


def test_a_map_of_one_score_is_all_background() -> None:
    plain = masked(1)
    one = Case(plain.prediction, torch.ones_like(plain.scores), plain.outcomes, plain.annotations)
    labelled = marked(0)[marked(0) != 255]
    assert found("pixel_accuracy", one).values.item() == pytest.approx(float((labelled == 0).mean()))
    assert found("mean_average_precision", one).values.isfinite().all()


def test_chance_is_what_theory_says() -> None:
    """Random maps of pixels: the share of the foreground, one half, and one half."""
    count = 40
    plain = masked(1)
    stream = np.random.default_rng(0)
    values: dict[str, list[float]] = {
        name: [] for name in ("pointing_game", "pixel_accuracy", "mean_average_precision")
    }
    for _ in range(count):
        pixels = torch.from_numpy(stream.random((1, SIDE, SIDE)))
        one = Case(plain.prediction, plain.scores, plain.outcomes, plain.annotations, pixels=pixels)
        for name in values:
            values[name].append(found(name, one).values.item())
    labelled = marked(0)[marked(0) != 255]
    share = float((labelled == 1).mean())
    assert abs(np.mean(values["pointing_game"]) - share) < 3 * math.sqrt(share * (1 - share) / count)
    assert np.mean(values["pixel_accuracy"]) == pytest.approx(0.5, abs=0.02)
    assert np.mean(values["mean_average_precision"]) == pytest.approx(0.5, abs=0.02)


# Which metrics are for what


@pytest.mark.parametrize("name", [m.name for m in list_metrics().values() if m.takes == "images"])
def test_metrics_of_images_refuse_texts_by_name(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} is for images, and these are texts"):
        found(name, texts.case())


@pytest.mark.parametrize("name", [m.name for m in list_metrics().values() if m.takes == "texts"])
def test_metrics_of_texts_refuse_images_by_name(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} is for texts, and these are images"):
        found(name, case())


def test_a_mask_is_needed() -> None:
    with pytest.raises(BadInput, match="mean_iou needs the mask of an image"):
        found("mean_iou", case())


@pytest.mark.parametrize("hide", ["mask", "pad", "drop"])
def test_pixels_are_not_hidden_by_tokens(hide: str) -> None:
    with pytest.raises(BadOption, match=f"hide='{hide}' does not cover pixels"):
        found("positive_perturbation", case(), hide=hide)


@pytest.mark.parametrize("name", ["aopc", "comprehensiveness", "sufficiency"])
def test_metrics_of_both_hide_patches_by_the_mean_colour(name: str) -> None:
    one = case()
    assert close(found(name, one).values, found(name, one, hide="mean").values)


def test_dropping_is_for_images() -> None:
    with pytest.raises(BadOption, match="hide='drop' is for images"):
        found("aopc", texts.case(), hide="drop")


def test_a_metric_of_images_with_a_ceiling_needs_two_options() -> None:
    with pytest.raises(BadOption, match="missing: target, hide"):

        @metric(family="own", higher_is_better=True, bounds=(0, 1), takes="images", ceiling=True, paper="–")
        def nothing(case: Case) -> torch.Tensor:
            """Nothing."""
            return torch.zeros(len(case))


# The engine


def test_many_images_with_other_pixels_hidden_are_one_batch() -> None:
    one = case(4)
    measure([(metric_named(name), one, {}) for name in ("positive_perturbation", "negative_perturbation")])
    counts = one.outcomes.counts
    assert (counts.requested, counts.batches) == (72, 1)
    assert counts.run <= 72


def test_hidden_pixels_are_held_as_bits() -> None:
    (image, *_) = case(1).images
    flags = np.random.default_rng(0).random((SIDE, SIDE)) < 0.3
    hidden = image.without_pixels(flags, "blur")
    assert hidden.covered is not None
    assert hidden.covered.nbytes == SIDE * SIDE / 8
    shown = hidden.shown(torch.device("cpu"))[0, 0].numpy()
    plain = image.pixels[0, 0].numpy()
    assert ((shown == plain) == ~flags).all()
    assert image.without_pixels(~flags, "blur").key != hidden.key != image.without_pixels(flags, "mean").key
    with pytest.raises(BadOption, match="hidden already"):
        hidden.without_pixels(flags, "mean")
    with pytest.raises(BadOption, match="hidden already"):
        image.without([1, 2], hide_named("drop")).without([3], hide_named("drop"))


# Ceiling


def test_cells_hold_each_patch_once() -> None:
    from whyformer.inputs.images import Patches

    grid = np.arange(1, 12 * 20 + 1).reshape(12, 20)
    cells = Patches(np.kron(grid, np.ones((2, 2), np.int64)), grid, 241).cells()
    assert len(cells) == 64
    assert sorted(place for cell in cells for place in cell) == list(range(1, 241))
    assert cells[0] == [1, 2, 3, 21, 22, 23]
    assert {len(cell) for cell in cells} <= {2, 3, 4, 6}


def test_the_best_order_of_cells_lowers_or_keeps_the_probability() -> None:
    one, engine = case(), Outcomes(subject().model)
    chance = [case(seed=seed).shuffled("cell", "max") for seed in range(5)]
    for name, keeping, better in (("positive_perturbation", False, -1), ("negative_perturbation", True, 1)):
        best = one.best("right", hide="black", units="cell", combine="max", keeping=keeping, engine=engine)
        assert not engine._known
        attained = float(found(name, best).values.mean())
        assert better * attained >= max(better * float(found(name, other).values.mean()) for other in chance)
    assert engine.counts.run == 2 * 4 * 25 * 26 / 2


def test_an_order_of_cells_has_hard_edges() -> None:
    one = case(1).ordered([list(range(25))], "cell", "max")
    expected = np.kron(25 - np.arange(25).reshape(GRID, GRID), np.ones((PATCH, PATCH)))
    assert one.maps("predicted")[0].tolist() == expected.tolist()


# The centre prior


def test_the_centre_prior_falls_off_evenly() -> None:
    prediction = case(2).prediction
    scores = method_named("centre")(prediction).total
    grid = scores[0, 1:].reshape(GRID, GRID)
    assert scores[0, 0] == 0
    assert torch.equal(scores[0], scores[1])
    assert close(grid, grid.T)
    assert close(grid, grid.flip(0))
    assert grid.argmax() == 12
    assert grid[2, 3].item() == pytest.approx(math.exp(-((1 / 5) ** 2) / (2 * 0.25**2)))
    wide = method_named("centre")(prediction, width=1.0).total[0, 1:]
    assert wide.min() > grid.min()
    with pytest.raises(BadOption, match="width must be above 0"):
        method_named("centre")(prediction, width=0.0)


def test_the_centre_prior_is_for_images() -> None:
    from whyformer import UnsupportedModel

    with pytest.raises(UnsupportedModel, match="centre is for images"):
        method_named("centre")(texts.case().prediction)
