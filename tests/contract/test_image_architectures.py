"""Image classifiers of many architectures: nothing is changed, units cover the image, methods run or refuse."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import whyformer
from tests.helpers import vision, zoo
from tools import matrix
from whyformer import Explainer, RandomnessWarning, UnsupportedModel, WhyformerError
from whyformer.models.load import PlainProcessor
from whyformer.recorder import Layers, Trace, record
from whyformer.recorder.patches import MOST_CELLS, cells_of
from whyformer.testing import state
from whyformer.tolerance import arithmetic, close

ONE_STACK = {  # how many special units each has, and which units its head reads
    "vit": (1, "first"),
    "vit_msn": (1, "first"),
    "deit": (2, "first"),
    "DeiTForImageClassificationWithTeacher": (2, "first two"),
    "beit": (1, "patches"),
    "data2vec-vision": (1, "patches"),
    "dinov2": (1, "all"),
    "dinov2_with_registers": (5, "first and patches"),
    "ijepa": (0, "all"),
    "clip": (1, "patches"),
    "metaclip_2": (1, "patches"),
    "siglip": (0, "all"),
}
STAGES = (
    "swin",
    "swinv2",
    "donut-swin",
    "pvt",
    "pvt_v2",
    "hiera",
    "segformer",
    "mobilevit",
    "levit",
    "cvt",
    "perceiver",
)
CONVOLUTIONS = ("convnext", "convnextv2", "resnet", "focalnet", "poolformer")


@cache
def model(name: str) -> hf.PreTrainedModel:
    return zoo.build_for(name, zoo.IMAGE)


@cache
def trace(name: str) -> Trace:
    return record(model(name), zoo.batch(model(name), head=zoo.IMAGE))


def read_by(how: str, special: int, units: int) -> list[int]:
    """The units that a head reads."""
    patches = list(range(special, units))
    return {
        "first": [0],
        "first two": [0, 1],
        "patches": patches,
        "all": list(range(units)),
        "first and patches": [0, *patches],
    }[how]


@pytest.mark.long
@pytest.mark.parametrize("name", [*ONE_STACK, *STAGES, *CONVOLUTIONS])
def test_recorded_logits_are_the_models_own(name: str) -> None:
    inputs, before = zoo.batch(model(name), head=zoo.IMAGE), str(state(model(name)))
    with torch.no_grad():
        expected = model(name)(**inputs).logits
    coarsest = arithmetic(lambda: model(name)(**inputs))
    assert close(trace(name).logits.detach(), expected, coarsest)
    assert str(state(model(name))) == before


@pytest.mark.parametrize("name", [*ONE_STACK, *STAGES, *CONVOLUTIONS])
def test_every_pixel_is_that_of_one_unit(name: str) -> None:
    patches = trace(name).patches
    count = np.zeros(patches.owner.shape, dtype=int)
    for left, top, right, bottom in patches.boxes.values():
        count[top:bottom, left:right] += 1
    assert (count == 1).all()
    assert trace(name).outputs.attended.shape == (3, patches.units)
    assert patches.owner.shape == trace(name).pixels.shape[2:]


@pytest.mark.parametrize("name", ONE_STACK)
def test_the_layers_and_special_units_are_found(name: str) -> None:
    special, how = ONE_STACK[name]
    layers = trace(name).layers
    assert isinstance(layers, Layers)
    units = 16 + special
    assert [tuple(a.shape) for a in trace(name).attention] == [(3, 4, units, units)] * 2
    assert np.flatnonzero(~trace(name).patches.free).tolist() == list(range(special))
    assert np.flatnonzero(trace(name).read_for()[0].numpy()).tolist() == read_by(how, special, units)


@pytest.mark.long
@pytest.mark.parametrize("name", [*STAGES, *CONVOLUTIONS])
def test_what_has_no_one_stack_is_explained_by_its_patches(name: str) -> None:
    assert isinstance(trace(name).layers, WhyformerError)
    small = {name: tensor[:1] for name, tensor in zoo.batch(model(name), head=zoo.IMAGE).items()}
    for method in ("rollout", "attcat", "transformer_attribution"):
        with pytest.raises(WhyformerError, match=type(model(name)).__name__):
            whyformer.attribute(model(name), small, method, target=1)
    scores = whyformer.attribute(model(name), small, "lime(samples=6)", target=1, baseline="zero")
    assert scores.shape == (1, trace(name).patches.units)
    assert bool(torch.isfinite(scores).all())


@pytest.mark.parametrize("name", ["vit", "dinov2_with_registers", "siglip", "swin"])
def test_images_are_explained_and_special_units_are_kept_apart(name: str) -> None:
    plain = PlainProcessor({"size": {"height": vision.SIDE, "width": vision.SIDE}})
    single = zoo.build(name, torch.float32, head=zoo.IMAGE)
    method = "occlusion" if name == "swin" else "att_grads"
    explanation = Explainer(single, plain).explain(vision.images(1)[0], method, target=1)
    special = ONE_STACK.get(name, (0, ""))[0]
    assert [unit.special for unit in explanation.units] == [n < special for n in range(len(explanation.units))]
    assert all((unit.box is None) == unit.special for unit in explanation.units)
    assert explanation.heat.shape == (vision.SIDE, vision.SIDE)


def test_an_image_is_cut_into_few_cells_where_no_unit_goes_through_the_model() -> None:
    sides = {(56, 56): (14, 14), (112, 112): (16, 16), (8, 8): (8, 8), (16, 17): (16, 9), (57, 53): (15, 14)}
    sides[1, 40] = (1, 10)
    for (rows, columns), expected in sides.items():
        assert cells_of(torch.zeros(1, 4, rows, columns)) == expected
        assert max(expected) <= MOST_CELLS


def test_swin_at_its_usual_size_has_as_many_units_as_a_vit() -> None:
    config = hf.SwinConfig(image_size=224, depths=[1, 1], num_heads=[1, 2], embed_dim=8, window_size=7)
    patches = record(hf.SwinForImageClassification(config).eval(), {"pixel_values": vision.images(1, 224, 224)}).patches
    assert patches.grid.shape == (14, 14)
    assert patches.boxes[15] == (16, 16, 32, 32)


class Pooled(nn.Module):
    """Layers, and a head that pools their units by attention, with as many queries as it is told."""

    def __init__(self, queries: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cut = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 24, batch_first=True) for _ in range(2))
        self.query = nn.Parameter(torch.randn(1, queries, 16))
        self.pool = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        states = self.cut(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            states = block(states)
        pooled, _ = self.pool(self.query.expand(len(x), -1, -1), states, states)
        return self.head(pooled.mean(1))


@pytest.mark.parametrize("depth", [0, 1])
def test_a_head_that_pools_by_attention_is_no_layer(depth: int) -> None:
    pooled: nn.Module = Pooled().eval()
    if depth:
        pooled = nn.Sequential(pooled)
    recorded = record(pooled, {"pixel_values": vision.images(2, 8, 12)})
    assert [tuple(a.shape) for a in recorded.attention] == [(2, 2, 6, 6)] * 2
    assert recorded.pooling == 1
    assert torch.allclose(recorded.read_for(), torch.full((2, 6), 1 / 6))
    with torch.no_grad():
        assert close(recorded.logits.detach(), pooled(vision.images(2, 8, 12)))


def test_attention_behind_the_layers_that_mixes_units_is_not_left_out() -> None:
    recorded = record(Pooled(queries=2).eval(), {"pixel_values": vision.images(2, 8, 12)})
    assert isinstance(recorded.layers, UnsupportedModel)


@pytest.mark.parametrize(
    "method", ["alti", "attn_lrp", "cp_lrp", "layer_lrp", "transformer_attribution", "gae", "mask_lrp"]
)
def test_a_pooling_head_is_explained_by_every_kind_of_method(method: str) -> None:
    options: dict[str, Any] = {"head_mask": "random", "rate": 0.5} if method == "mask_lrp" else {}
    pixels = {"pixel_values": vision.images(2, 8, 12).double()}
    together = whyformer.attribute(Pooled().double().eval(), pixels, method, target=1, **options)
    first = {"pixel_values": pixels["pixel_values"][:1]}
    alone = whyformer.attribute(Pooled().double().eval(), first, method, target=1, **options)
    assert together.shape == (2, 6)
    assert close(together[:1], alone)


def test_masked_autoencoders_are_refused_and_their_encoder_is_explained() -> None:
    torch.manual_seed(0)
    config = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    small: dict[str, Any] = {**config, "image_size": 32, "patch_size": 8}
    decoder = {"decoder_hidden_size": 32, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 4}
    masked = hf.ViTMAEForPreTraining(hf.ViTMAEConfig(**small, **decoder)).eval()
    plain = PlainProcessor({"size": {"height": 32, "width": 32}})
    with pytest.warns(RandomnessWarning), pytest.raises(UnsupportedModel, match="ViTMAEForPreTraining"):
        Explainer(masked, plain).explain(vision.images(1)[0], "rollout")
    classifier = hf.ViTForImageClassification(hf.ViTConfig(**small)).eval()
    encoder = {name: weight for name, weight in masked.vit.state_dict().items() if name in classifier.vit.state_dict()}
    classifier.vit.load_state_dict(encoder, strict=False)
    assert len(Explainer(classifier, plain).explain(vision.images(1)[0], "rollout").units) == 17


def test_patches_that_were_cut_before_have_no_place_in_an_image() -> None:
    siglip2 = zoo.build_for("siglip2", zoo.IMAGE)
    recorded = record(siglip2, zoo.batch(siglip2, head=zoo.IMAGE))
    assert len(recorded.attention) == 2
    with pytest.raises(UnsupportedModel, match="cut before"):
        _ = recorded.patches
    processor = hf.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    with pytest.raises(UnsupportedModel, match=r"makes \(1, 16, 192\) of an image"):
        Explainer(siglip2.float(), processor).explain(np.zeros((20, 30, 3), dtype=np.uint8), "rollout")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["vit", "siglip", "pvt"])
def test_no_method_fails_without_a_name(name: str) -> None:
    row = matrix.look(name, zoo.IMAGE)
    assert row.verdict == ("patches" if name in STAGES else "supported")
    assert not row.failed
    assert row.logits <= row.rounding
    assert row.invariance is None or row.invariance <= row.rounding


@pytest.mark.parametrize("name", ["cvt", "levit", "resnet"])
@pytest.mark.parametrize("relevance", [False, True])
def test_gradients_of_one_image_are_those_of_finite_differences(name: str, relevance: bool) -> None:
    """Models with batch norms, of which torch's own gradient is wrong for a batch of one."""
    pixels = zoo.batch(model(name), head=zoo.IMAGE)["pixel_values"][1:2]
    recorded = record(model(name), {"pixel_values": pixels}, relevance=relevance)
    step = torch.randn(pixels.shape, dtype=pixels.dtype, generator=torch.Generator().manual_seed(0)) * 1e-6
    with torch.no_grad():
        after, before = (model(name)(pixel_values=pixels + sign * step).logits[0, 1] for sign in (1, -1))
    expected = float(after - before) / 2
    assert float((recorded.gradient(recorded.pixels, 1) * step).sum()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("affine", [True, False])
def test_a_batch_norm_is_a_factor_and_a_shift(affine: bool) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4, affine=affine)
    small = nn.Sequential(nn.Conv2d(3, 4, 2, 2), norm, nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).double()
    small(vision.images(5, 4, 4).double())  # which settles its statistics
    small.eval()
    pixels = vision.images(2, 4, 4).double()
    recorded = record(small, {"pixel_values": pixels})
    with torch.no_grad():
        assert close(recorded.logits.detach(), small(pixels))
    scores = whyformer.attribute(small, {"pixel_values": pixels}, "attn_lrp", target=1)
    assert bool(torch.isfinite(scores).all())
    assert float(scores.abs().max()) > 0
