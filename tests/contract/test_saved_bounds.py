"""Saved explanations whose places lie outside of what they are places in are refused."""

from typing import Any

import pytest
import torch

from tests.helpers.explained_images import explained
from whyformer import BadInput, Explanation
from whyformer.methods.logit_lens import DistinctTokens

PATCH = (0, 0, 8, 8)


def saved(**image: Any) -> dict[str, Any]:
    data = explained([[1.0, -2.0]]).to_dict()
    data["image"] |= image
    return data


@pytest.mark.parametrize("box", [(0, 0, 8, 0), (0, 8, 8, 8), (0, 0, 0, 8), (8, 0, 0, 8), (0, 0, 8, 9), (0, 0, 17, 8)])
def test_an_empty_box_or_one_outside_is_refused(box: tuple[int, ...]) -> None:
    data = saved()
    assert tuple(data["units"][1]["box"]) == PATCH
    Explanation.from_dict(data)
    data["units"][1]["box"] = list(box)
    with pytest.raises(BadInput, match="in an image of 16 × 8 pixels"):
        Explanation.from_dict(data)


@pytest.mark.parametrize("region", [(0.0, 0.5, 1.0, 0.5), (0.0, 1.0, 1.0, 0.0), (1.0, 0.0, 0.0, 1.0)])
def test_a_region_without_an_area_is_refused(region: tuple[float, ...]) -> None:
    with pytest.raises(BadInput, match="is no region"):
        Explanation.from_dict(saved(region=list(region)))


def test_the_token_0_has_a_row() -> None:
    rows = DistinctTokens(
        torch.tensor([[0, 4], [3, -1]]), torch.tensor([[0, 1], [0, -1]]), torch.ones(2, 2, dtype=torch.bool)
    )
    assert [tokens.tolist() for tokens in rows.distinct] == [[0, 4], [3]]
