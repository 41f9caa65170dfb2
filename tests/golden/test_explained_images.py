"""The authors' own numbers on an image classifier, as people ask for them: `explain` with the model's own pixels."""

from functools import cache
from typing import Any

import pytest
import torch

from tests.golden.test_images import CASE, CLASS_AGNOSTIC, CLASS_SPECIFIC, IMAGES
from tests.helpers.golden import assert_close, goldens, inputs, model
from whyformer import Explainer
from whyformer.models.load import PlainProcessor


@cache
def explainer() -> Explainer:
    return Explainer(model(CASE, "sdpa"), PlainProcessor({}))


def explained(name: str, method: str, **options: Any) -> Any:
    return explainer().explain(inputs(CASE, name)["pixel_values"][0], method, **options)


def patches(explanation: Any) -> Any:
    return torch.from_numpy(explanation.scores)[[not unit.special for unit in explanation.units]]


@pytest.mark.parametrize("golden", CLASS_AGNOSTIC)
def test_class_agnostic_methods(golden: str) -> None:
    method, options, tolerance = CLASS_AGNOSTIC[golden]
    for name in IMAGES:
        assert_close(patches(explained(name, method, **options)), goldens(CASE)[f"{name}.{golden}"], tolerance)


@pytest.mark.parametrize("golden", CLASS_SPECIFIC)
@pytest.mark.parametrize("name", IMAGES)
def test_class_specific_methods(name: str, golden: str) -> None:
    method, options, tolerance = CLASS_SPECIFIC[golden]
    for target, explanation in enumerate(explained(name, method, target=[0, 1, 2], **options)):
        expected = goldens(CASE)[f"{name}.c{target}.{golden}"].flatten()
        if expected.isnan().any():  # 0/0 in the authors' code: a map of zeros
            assert not patches(explanation).any()
        else:
            assert_close(patches(explanation), expected, tolerance)


@pytest.mark.parametrize(("book", "prefix"), [("z_plus", "chefer"), ("alpha_beta", "chefer_orig")])
@pytest.mark.parametrize("name", IMAGES)
def test_relevance_of_pixels(name: str, book: str, prefix: str) -> None:
    for target, explanation in enumerate(explained(name, "lrp", target=[0, 1, 2], book=book)):
        golden = goldens(CASE)[f"{name}.c{target}.{prefix}.full"]
        assert_close(torch.from_numpy(explanation.pixels), golden, 1e-5)
        assert_close(torch.from_numpy(explanation.heat), golden, 1e-5)
        by_patch = golden.unfold(0, 8, 8).unfold(1, 8, 8).sum((-1, -2)).flatten()
        assert_close(patches(explanation), by_patch, 1e-5)


def test_several_images_are_explained_as_each_alone() -> None:
    together = explainer().explain([inputs(CASE, name)["pixel_values"][0] for name in IMAGES], "gae", target=1)
    for name, explanation in zip(IMAGES, together, strict=True):
        assert_close(patches(explanation), goldens(CASE)[f"{name}.c1.gae.generate_relevance"].flatten(), 1e-9)
