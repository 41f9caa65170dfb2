"""A model on an accelerator, where there is one."""

import copy

import pytest
import torch

import whyformer
from tests.helpers import families

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; CI has none")


@pytest.mark.parametrize("family", ["bert", "deberta_v2", "modernbert_mean", "gpt2", "mistral"])
@pytest.mark.parametrize("name", families.METHODS)
def test_scores_are_those_of_the_cpu(name: str, family: str) -> None:
    model, inputs = families.build(family), families.batch()
    options = families.options(name, family)
    options = {"book": "z_plus"} if name in ("lrp", "partial_lrp") else options  # alpha_beta can explode
    expected = whyformer.attribute(model, inputs, name, target=1, **options)
    scores = whyformer.attribute(copy.deepcopy(model).cuda(), inputs, name, target=1, **options)  # type: ignore[call-arg]
    assert scores.device.type == "cuda"
    allowed = 1e-4 if whyformer.list_methods()[name].relevance else 1e-5  # seen on an H200: 1.2e-5, and 2e-6
    assert (scores.cpu() - expected).abs().max() <= allowed * expected.abs().max()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_bundled_model(dtype: str) -> None:
    text = "a gorgeous, witty, seductive film that never once bores"
    explanation = whyformer.Explainer.load("sentiment", device="cuda", dtype=dtype).explain(text)
    assert explanation.provenance["device"].startswith("cuda")
    assert explanation.top(1)[0].text == "gorgeous"


def test_costs_are_those_of_the_device() -> None:
    table = whyformer.Explainer.load("sentiment", device="cuda").cost("attcat,rollout", tokens=[64, 512], seconds=30)
    assert {cost.basis for cost in table.costs} == {"measured", "extrapolated"}
    assert all(cost.memory and table.fits(cost) for cost in table.costs)
    assert 2**20 < (table["attcat", 64].memory or 0) < 2**28
