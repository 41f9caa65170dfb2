"""Images: what a model is given for them, which pixels its units stand for, and how some of them are hidden."""

import io
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from torch import Tensor, nn

import whyformer
from tests.helpers import vision
from whyformer import BadInput, Explainer, Explanations, UnsupportedModel
from whyformer.errors import BadOption
from whyformer.images import images_of, read_again, reading
from whyformer.images.processing import Colours, processed
from whyformer.inputs.hiding import hide_named
from whyformer.inputs.images import NOWHERE, ImageInput, Patches, blurred, heat_map
from whyformer.inputs.units import Unit
from whyformer.models import load
from whyformer.models.load import PlainProcessor
from whyformer.recorder import record
from whyformer.tolerance import close

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@cache
def vit(size: tuple[int, int] = (32, 32), patch: int = 8, dtype: torch.dtype = torch.float32) -> hf.PreTrainedModel:
    torch.manual_seed(3)
    config = hf.ViTConfig(**SMALL, image_size=list(size), patch_size=patch)
    config.num_labels = 3
    model = hf.ViTForImageClassification(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.25)
    return model.to(dtype).eval()


def plain(height: int = 32, width: int = 32, **fields: Any) -> PlainProcessor:
    return PlainProcessor({"size": {"height": height, "width": width}, **fields})


def photo(height: int = 40, width: int = 56, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@cache
def explainer() -> Explainer:
    return Explainer(vit(), plain())


def encoded(image: Any = None) -> ImageInput:
    return reading.Images().encode(explainer().subject, photo() if image is None else image)


def covered_once(patches: Patches) -> bool:
    """Whether every pixel is that of exactly one patch, and the boxes say the same."""
    count = np.zeros(patches.owner.shape, dtype=int)
    for left, top, right, bottom in patches.boxes.values():
        count[top:bottom, left:right] += 1
    return bool((count == 1).all()) and set(np.unique(patches.owner)) == set(patches.grid.ravel())


# Patches


@pytest.mark.parametrize(("size", "patch"), [((32, 32), 8), ((32, 48), 8), ((40, 16), 4), ((8, 8), 8)])
def test_units_cover_the_image_row_by_row(size: tuple[int, int], patch: int) -> None:
    patches = record(vit(size, patch), {"pixel_values": vision.images(2, *size)}).patches
    rows, columns = size[0] // patch, size[1] // patch
    assert patches.units == rows * columns + 1
    assert patches.grid.tolist() == (np.arange(rows * columns) + 1).reshape(rows, columns).tolist()
    assert covered_once(patches)
    assert patches.boxes[1] == (0, 0, patch, patch)
    assert patches.boxes[columns] == (size[1] - patch, 0, size[1], patch)
    assert patches.free.tolist() == [False] + [True] * (rows * columns)


def test_pixels_beyond_the_last_whole_patch_are_no_units() -> None:
    patches = record(vit((38, 32)), {"pixel_values": vision.images(1, 38, 32)}).patches
    assert patches.grid.shape == (4, 4)
    assert (patches.owner[32:] == NOWHERE).all()
    assert (patches.owner[:32] >= 1).all()
    hidden = encoded_by(vit((38, 32)), 38, 32).hidden([1], "zero")
    assert hidden.covered is not None
    assert not hidden.covered[32:].any()


def encoded_by(model: nn.Module, height: int, width: int) -> ImageInput:
    return reading.Images().encode(Explainer(model, plain(height, width)).subject, photo())


class Shuffled(nn.Module):
    """Patches in another order than that of the image, and a special unit in the middle."""

    order = (5, 2, 0, 3, 1, 4)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cut: nn.Module = nn.Conv2d(3, 16, 4, 4)
        self.special = nn.Parameter(torch.randn(1, 1, 16))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 24, batch_first=True) for _ in range(2))
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        units = self.cut(x).flatten(2).transpose(1, 2)[:, self.order]
        states = torch.cat((units[:, :3], self.special.expand(len(x), -1, -1), units[:, 3:]), 1)
        for block in self.blocks:
            states = block(states)
        return self.head(states[:, 3])


def test_units_in_another_order_than_that_of_the_image_are_found() -> None:
    patches = record(Shuffled().eval(), {"pixel_values": vision.images(2, 8, 12)}).patches
    places = [*range(3), *range(4, 7)]
    expected = np.empty(6, dtype=int)
    expected[list(Shuffled.order)] = places
    assert patches.grid.tolist() == expected.reshape(2, 3).tolist()
    assert patches.free.tolist() == [True] * 3 + [False] + [True] * 3
    assert covered_once(patches)


class Overlapping(Shuffled):
    """Each unit sees some pixels of its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 16, 6, 4, padding=1)


class Everywhere(Shuffled):
    """Each unit sees all pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.InstanceNorm2d(16))


@pytest.mark.parametrize("kind", [Overlapping, Everywhere])
def test_units_that_share_pixels_have_no_patches(kind: type[Shuffled]) -> None:
    with pytest.raises(UnsupportedModel, match="pixels that overlap"):
        _ = record(kind().eval(), {"pixel_values": vision.images(1, 8, 12)}).patches


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_patches_are_found_in_every_precision(dtype: torch.dtype) -> None:
    patches = record(vit(dtype=dtype), {"pixel_values": vision.images(1).to(dtype)}).patches
    assert patches.grid.tolist() == (np.arange(16) + 1).reshape(4, 4).tolist()
    assert covered_once(patches)


def test_patches_are_looked_for_once_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model = hf.ViTForImageClassification(hf.ViTConfig(**SMALL, image_size=16, patch_size=8)).eval()
    runs: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        runs.append(1)
        return record(*args, **options)

    monkeypatch.setattr(reading, "record", counted)
    subject = Explainer(model, plain(16, 16)).subject
    first, second = (reading.Images().encode(subject, photo(seed=seed)) for seed in (0, 1))
    assert len(runs) == 1
    assert first.patches is second.patches
    assert first.key != second.key


def test_sums_of_pixels_are_those_of_their_patches() -> None:
    patches = record(vit((38, 32)), {"pixel_values": vision.images(1, 38, 32)}).patches
    pixels = vision.images(2, 38, 32)[:, 0]
    sums = patches.sums(pixels)
    assert sums.shape == (2, 17)
    assert close(sums[:, 1], pixels[:, :8, :8].sum((1, 2)))
    assert close(sums.sum(1), pixels[:, :32].sum((1, 2)))
    assert (sums[:, 0] == 0).all()


def test_a_heat_map_is_the_grid_upsampled() -> None:
    patches = record(vit((32, 48)), {"pixel_values": vision.images(1, 32, 48)}).patches
    scores = np.arange(25, dtype=float)
    heat = heat_map(patches.described, scores, (32, 48))
    grid = torch.arange(1.0, 25.0, dtype=torch.float64).view(1, 1, 4, 6)
    expected = nn.functional.interpolate(grid, size=(32, 48), mode="bilinear", align_corners=False)
    assert np.allclose(heat, expected[0, 0].numpy())


# What is given


def stock_logits(values: Tensor) -> Tensor:
    with torch.no_grad():
        return vit()(pixel_values=values).logits[0]


def test_fractions_are_the_models_own_numbers_and_whole_numbers_are_pixels() -> None:
    values = vision.images(1)
    explanation = explainer().explain(values[0], "rollout")
    assert close(torch.tensor(explanation.prediction.logits).float(), stock_logits(values))
    assert torch.equal(explanation.image.values, values)
    pixels = np.asarray(photo())
    of_pixels = explainer().explain(torch.from_numpy(pixels.copy()), "rollout")
    assert close(torch.tensor(of_pixels.prediction.logits).float(), stock_logits(plain()(photo())["pixel_values"]))


def kinds(folder: Path) -> Iterator[Any]:
    path = folder / "photo.png"
    photo().save(path)
    pixels = np.asarray(photo())
    yield from (str(path), path, path.read_bytes(), photo(), pixels, torch.from_numpy(pixels.copy()))
    yield torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    yield plain()(photo())["pixel_values"][0]
    yield plain()(photo())["pixel_values"][0].numpy()
    yield plain()(photo())["pixel_values"][0].double()


def test_every_way_to_give_an_image_gives_the_same(tmp_path: Path) -> None:
    expected = explainer().explain(photo(), "att_grads", target=1)
    for value in kinds(tmp_path):
        explanation = explainer().explain(value, "att_grads", target=1)
        assert np.allclose(explanation.scores, expected.scores, atol=1e-5), type(value)
        assert explanation.units == expected.units
        assert explanation.image.size == (32, 32)


@pytest.mark.parametrize("several", [list, tuple, iter], ids=lambda kind: kind.__name__)
def test_several_images_give_several_explanations_in_order(several: Callable[[Any], Any]) -> None:
    images = [photo(seed=seed, width=40 + seed) for seed in range(3)]
    together = explainer().explain(several(images), "att_grads", target=1, batch_size=2)
    assert isinstance(together, Explanations)
    for image, one in zip(images, together, strict=True):
        assert np.allclose(one.scores, explainer().explain(image, "att_grads", target=1).scores, atol=1e-5)


@pytest.mark.parametrize("as_array", [False, True])
def test_a_stack_is_several_images(as_array: bool) -> None:
    values = vision.images(3)
    together = explainer().explain(values.numpy() if as_array else values, "rollout")
    assert [type(one.image.values) for one in together] == [Tensor] * 3
    assert all(torch.equal(one.image.values, values[n : n + 1]) for n, one in enumerate(together))


def test_images_of_several_sizes_are_refused_or_resized() -> None:
    assert len(explainer().explain([photo(20, 30), photo(64, 32)], "rollout")) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_images_are_given_in_the_precision_of_the_model(dtype: torch.dtype) -> None:
    explanation = Explainer(vit(dtype=dtype), plain()).explain(photo(), "rollout")
    assert np.isfinite(explanation.scores).all()
    assert explanation.image.values.dtype == torch.float32
    subject = Explainer(vit(dtype=dtype), plain()).subject
    assert reading.Images().encode(subject, photo()).pixels.dtype == dtype


def test_a_pipeline_for_images() -> None:
    model = vit()
    pipeline = SimpleNamespace(
        model=model, tokenizer=None, image_processor=plain(), task="image-classification", model_input_names=()
    )
    explanation = Explainer(pipeline).explain(photo(), "rollout")
    assert close(torch.tensor(explanation.prediction.logits).float(), stock_logits(plain()(photo())["pixel_values"]))
    real = hf.pipeline("image-classification", model=model, image_processor=hf.ViTImageProcessorPil(size=SIZE))
    assert np.allclose(Explainer(real).explain(photo(), "rollout").scores, explanation.scores, atol=1e-5)


SIZE = {"height": 32, "width": 32}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "nothing to explain"),
        (3, "found int 3"),
        ({"pixel_values": torch.zeros(1, 3, 32, 32)}, "found dict with pixel_values"),
        (torch.zeros(3, 32), r"\[channels, height, width\]; found the shape \(3, 32\)"),
        (torch.full((3, 32, 32), torch.nan), "NaN"),
        (torch.zeros(3, 0, 32), "found the shape"),
        (np.zeros((2, 2, 2, 2, 2)), "found the shape"),
        ("there-is-no-such-file.png", "there-is-no-such-file"),
        (b"no image", "bytes"),
    ],
)
def test_what_is_no_image_is_refused_in_one_line(value: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said) as error:
        explainer().explain(value, "rollout")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("beside", ["question", "context", "choices"])
def test_what_is_for_texts_is_refused(beside: str) -> None:
    with pytest.raises(BadInput, match=f"classifies images: leave {beside}= out"):
        explainer().explain(photo(), "rollout", **{beside: "a"})


@pytest.mark.parametrize("asked", [{"windows": "merge"}, {"window_size": 8}, {"overlap": 2}])
def test_windows_are_of_texts(asked: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="are for long texts; an image is read whole: leave them out"):
        explainer().explain(photo(), "gae", **asked)
    with pytest.raises(BadOption, match="an image is read whole"):
        explainer().compare(photo(), "gae", **asked)


def test_a_word_means_nothing_and_texts_are_not_spoken_of() -> None:
    with pytest.raises(BadOption, match="word='cat' means nothing to a model that classifies whole inputs"):
        explainer().explain(photo(), "gae", word="cat")


def test_methods_are_compared_on_one_image() -> None:
    with pytest.raises(BadInput, match=r"^an image is needed to compare methods, found several: call compare"):
        explainer().compare([photo(), photo(seed=1)], "gae")


def test_images_are_told_from_lists_of_them() -> None:
    assert images_of("cat.jpg") == (["cat.jpg"], True)
    assert images_of(["a.jpg", "b.jpg"]) == (["a.jpg", "b.jpg"], False)
    assert images_of(torch.zeros(2, 3, 4, 4))[1] is False


def test_a_text_model_takes_no_images() -> None:
    with pytest.raises(BadInput, match="reads texts"):
        Explainer.load("sentiment").explain(photo(), "rollout")


# Processors


def same_numbers(first: Any, second: Any, image: Image.Image) -> bool:
    """Whether two processors make the same of an image."""
    one, other = (made(images=image, return_tensors="pt")["pixel_values"] for made in (first, second))
    return one.shape == other.shape and float((one - other).abs().max()) < 1e-5


@pytest.mark.parametrize("kind", sorted(load.PLAIN))
@pytest.mark.parametrize("size", [(70, 103), (300, 260), (224, 224), (1, 1)])
def test_the_plain_processor_does_what_transformers_does(kind: str, size: tuple[int, int]) -> None:
    theirs = getattr(hf, f"{kind}Pil")()
    assert same_numbers(theirs, PlainProcessor(theirs.to_dict()), photo(*size))


@pytest.mark.parametrize(
    "fields",
    [
        {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 36}},
        {"size": {"shortest_edge": 33}, "do_center_crop": False},
        {"size": {"height": 20, "width": 31}, "resample": 3, "do_normalize": False},
        {"size": {"height": 20, "width": 31}, "do_rescale": False, "image_std": [60.0, 50.0, 40.0]},
        {"do_resize": False, "do_center_crop": False},
    ],
)
def test_the_plain_processor_obeys_its_fields(fields: dict[str, Any]) -> None:
    theirs = hf.CLIPImageProcessorPil(**fields)
    assert same_numbers(theirs, PlainProcessor(theirs.to_dict()), photo(70, 103))


@pytest.mark.parametrize("kind", ["Levit", "Perceiver", "ConvNext", "MobileViT"])
def test_processors_that_do_more_are_refused(kind: str) -> None:
    described = getattr(hf, f"{kind}ImageProcessorPil")().to_dict()
    with pytest.raises(UnsupportedModel, match=f"{kind}ImageProcessor"):
        PlainProcessor(described)


def coordinates(height: int, width: int) -> Image.Image:
    """An image whose red says how far to the right a pixel is, and whose green how far down."""
    across, down = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    return Image.fromarray((np.stack((across, down, np.zeros_like(down)), -1) * 255).round().astype(np.uint8))


PROCESSORS: dict[str, Any] = {
    "exact": lambda: hf.ViTImageProcessorPil(size={"height": 64, "width": 96}),
    "cropped": lambda: hf.CLIPImageProcessorPil(size={"shortest_edge": 96}, crop_size={"height": 64, "width": 80}),
    "both": lambda: hf.DeiTImageProcessorPil(),
    "shortest": lambda: hf.BitImageProcessorPil(size={"shortest_edge": 64}, do_center_crop=False),
    "share": lambda: hf.ConvNextImageProcessorPil(size={"shortest_edge": 224}),
    "large": lambda: hf.ConvNextImageProcessorPil(size={"shortest_edge": 384}),
    "pool": lambda: hf.PoolFormerImageProcessorPil(size={"shortest_edge": 400}),
    "unknown": lambda: hf.LevitImageProcessorPil(),
    "plain": lambda: plain(64, 96),
}


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("size", [(120, 300), (300, 120), (200, 200)])
def test_the_region_is_what_the_model_sees(name: str, size: tuple[int, int]) -> None:
    processor = PROCESSORS[name]()
    values, picture = processed(processor, coordinates(*size))
    mean, std = (torch.tensor(field).view(3, 1, 1) for field in (processor.image_mean, processor.image_std))
    seen = (values[0] * std + mean).numpy() if processor.do_normalize else values[0].numpy()
    assert picture.size == values.shape[2:]
    assert (picture.pixels.shape[:2] == size) == (name != "unknown")
    left, top, right, bottom = picture.region
    shown = picture.pixels / 255
    height, width = shown.shape[:2]
    middle = shown[round(top * height) : round(bottom * height), round(left * width) : round(right * width)]
    for channel in (0, 1):  # the part that is shown begins and ends where the model's image does
        assert middle[..., channel].min() == pytest.approx(seen[channel].min(), abs=0.03)
        assert middle[..., channel].max() == pytest.approx(seen[channel].max(), abs=0.03)


# Hiding


@pytest.mark.parametrize("name", ["mean", "black", "blur", "zero", "delete"])
def test_what_is_hidden_is_seen_no_more_and_the_rest_stays(name: str) -> None:
    whole = encoded()
    hidden = whole.without([1, 6], hide_named(name))
    assert isinstance(hidden, ImageInput)
    shown, before = hidden.shown(torch.device("cpu")), whole.pixels
    expected = {
        "mean": before.mean((2, 3), keepdim=True).expand_as(before),
        "delete": before.mean((2, 3), keepdim=True).expand_as(before),
        "black": torch.full_like(before, -1.0),
        "zero": torch.zeros_like(before),
        "blur": blurred(before),
    }[name]
    where = torch.from_numpy(np.isin(whole.patches.owner, [1, 6]))
    assert torch.equal(shown, torch.where(where, expected, before))
    assert where.sum() == 2 * 64
    assert hidden.key != whole.key
    assert whole.without([], hide_named(name)) is whole
    settled = hidden.settled(torch.device("cpu"))
    assert torch.equal(settled.pixels, shown)


def test_hidden_images_of_one_size_are_run_together() -> None:
    whole = encoded()
    copies = [whole.hidden([n], "mean") for n in (1, 2, 3)]
    batch = ImageInput.joined(copies, torch.device("cpu"))
    assert batch.keys() == {"pixel_values"}
    assert batch["pixel_values"].shape == (3, 3, 32, 32)
    assert len({copy.key for copy in copies}) == 3
    assert len({copy.kind for copy in copies}) == 1


def test_black_needs_to_be_known() -> None:
    subject = Explainer(vit(), lambda image: vision.images(1)[0]).subject
    whole = reading.Images().encode(subject, photo())
    with pytest.raises(BadOption, match="what is black"):
        whole.hidden([1], "black")


def test_units_are_hidden_once_and_by_what_images_have() -> None:
    whole = encoded()
    with pytest.raises(BadOption, match="hidden already"):
        whole.hidden([1], "mean").hidden([2], "mean")
    for name in ("mask", "pad"):
        with pytest.raises(BadOption, match="for texts"):
            whole.without([1], hide_named(name))
    with pytest.raises(BadInput, match="words need texts"):
        whole.groups("word")


def test_a_blur_keeps_even_colours_and_smooths_others() -> None:
    even = torch.full((1, 3, 16, 24), 0.3)
    assert torch.allclose(blurred(even), even, atol=1e-6)
    noise = vision.images(1, 16, 24)
    assert blurred(noise).std() < noise.std() / 3


# Pictures


def test_a_saved_explanation_knows_its_picture(tmp_path: Path) -> None:
    explanation = explainer().explain(photo(), "rollout")
    explanation.save(tmp_path / "saved.json")
    loaded = whyformer.Explanation.load(tmp_path / "saved.json")
    assert np.array_equal(loaded.image.pixels, explanation.image.pixels)
    assert loaded.image.region == explanation.image.region
    assert loaded.units == explanation.units
    again = read_again(explainer().subject, loaded.image)
    assert torch.allclose(again.pixels, explanation.image.values, atol=1e-4)


def test_a_function_may_read_images() -> None:
    def transform(image: Image.Image) -> Tensor:
        return torch.from_numpy(np.asarray(image.resize((32, 32)), dtype=np.float32)).permute(2, 0, 1) / 255

    with_function = Explainer(vit(), transform, labels=["cat", "dog", "bird"])
    explanation = with_function.explain(photo(), "rollout")
    assert explanation.prediction.labels == ("cat", "dog", "bird")
    assert close(torch.tensor(explanation.prediction.logits).float(), stock_logits(transform(photo())[None]))


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (lambda image: "no tensor", "makes str of an image"),
        (lambda image: torch.zeros(32, 32), r"makes \(32, 32\) of an image"),
        (lambda image: torch.zeros(3, 32, 32, dtype=torch.long), "needed are fractions"),
        (lambda image: torch.zeros(1, 32, 32), "cannot run on an image of 1 channels and 32 × 32 pixels"),
        (lambda image: torch.zeros(3, 40, 32), "cannot run on an image of 3 channels and 40 × 32 pixels"),
    ],
)
def test_what_a_function_makes_is_checked(transform: Any, said: str) -> None:
    with pytest.raises(whyformer.WhyformerError, match=said):
        Explainer(vit(), transform).explain(photo(), "rollout")


def test_a_function_that_fails_is_named() -> None:
    def broken(image: Image.Image) -> Tensor:
        raise RuntimeError("out of film\nin two lines")

    with pytest.raises(BadInput, match=r"cannot process an image of \(56, 40\) pixels: out of film$"):
        Explainer(vit(), broken).explain(photo(), "rollout")


def test_heat_lies_where_the_patches_lie() -> None:
    units = [
        Unit(str(n), "patch", box=(8 * (n % 3), 8 * (n // 3), 8 * (n % 3) + 8, 8 * (n // 3) + 8)) for n in range(9)
    ]
    heat = heat_map(units, np.arange(1.0, 10.0), (30, 30))
    assert heat.shape == (30, 30)
    assert not heat[24:].any()  # six rows that no patch covers
    assert not heat[:, 24:].any()
    assert heat[4, 4] < heat[12, 12] < heat[20, 20]
    assert np.isclose(heat[23, 23], 9)


def test_the_fields_that_clip_writes_as_one_number() -> None:
    fields: dict[str, Any] = {"size": 16, "crop_size": 16, "do_center_crop": True, "resample": 3}
    fields |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 24, 3), dtype=np.uint8))
    mine = PlainProcessor({**fields, "feature_extractor_type": "CLIPFeatureExtractor"})(photo)["pixel_values"]
    theirs = hf.CLIPImageProcessorPil(**fields)(images=photo, return_tensors="pt")["pixel_values"]
    assert torch.allclose(mine, theirs, atol=1e-6)
    with pytest.raises(UnsupportedModel, match="does not say its image_mean, image_std, size"):
        PlainProcessor({"feature_extractor_type": "CLIPFeatureExtractor"})


def test_black_is_known_where_a_processor_does_what_it_says() -> None:
    class Twice(PlainProcessor):
        def __call__(self, images: Image.Image, **_: Any) -> dict[str, torch.Tensor]:
            return {"pixel_values": 2 * super().__call__(images)["pixel_values"]}

    assert Colours.of(PlainProcessor({})) is not None
    assert Colours.of(Twice({})) is None


def test_names_for_another_number_of_classes_are_refused() -> None:
    model = hf.ViTForImageClassification(hf.ViTConfig(hidden_size=8, num_attention_heads=1, num_hidden_layers=1))
    with pytest.raises(BadOption, match=r"1 names for 2 outputs"):
        Explainer(model, PlainProcessor({}), labels=["cat"])


def test_a_text_beside_an_image_is_for_models_that_compare_them() -> None:
    model = hf.ViTForImageClassification(
        hf.ViTConfig(hidden_size=8, num_attention_heads=1, num_hidden_layers=1, image_size=16, patch_size=8)
    )
    explainer = Explainer(model, PlainProcessor({"size": {"height": 16, "width": 16}}))
    with pytest.raises(BadInput, match="reads no text beside one"):
        explainer.explain(torch.zeros(3, 16, 16), text="a cat")
    with pytest.raises(BadInput, match="found an open file"):
        explainer.explain(io.BytesIO(b""))
