"""What notebooks show of results: pictures, cards, and short lines."""

import dataclasses
import io
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from tests.helpers.explained_images import explained
from tests.helpers.token_outputs import EACH
from tests.helpers.token_outputs import explainer as token_explainer
from whyformer import Comparison, Explainer

TEXT = "a gorgeous, witty film"


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer.load("sentiment")


def figures(explainer: Explainer) -> dict[str, Any]:
    image = explained([[1.0, -2.0], [3.0, 4.0]])
    return {
        "text": explainer.explain(TEXT).figure(),
        "methods": explainer.compare(TEXT, ["attcat", "rollout"]).figure(),
        "image": image.figure(),
        "images": Comparison((image, image)).figure(),
    }


def test_figures_are_shown_without_pyplot(explainer: Explainer, tmp_path: Path) -> None:
    for name, figure in figures(explainer).items():
        assert isinstance(figure, Figure), name
        png, size = figure._repr_png_()  # type: ignore[attr-defined]
        shown = Image.open(io.BytesIO(png))
        assert shown.format == "PNG"
        assert shown.width / shown.height == pytest.approx(size["width"] / size["height"], rel=0.02)
        assert shown.width > size["width"]
        assert figure._repr_html_() is None  # shown once
        figure.savefig(tmp_path / "f.pdf")
    assert isinstance(pickle.loads(pickle.dumps(figure)), Figure)


def test_an_explainer_says_what_it_explains(explainer: Explainer) -> None:
    does = explainer.task.does
    assert repr(explainer) == f"<Explainer of sentiment: {does}; layer_lrp, cpu in float32>"
    card = explainer._repr_html_()
    facts = dict(re.findall(r"<th>(.*?)</th><td>(.*?)</td>", card))
    assert facts == {
        "model": "sentiment",
        "class": type(explainer.subject.model).__name__,
        "it": does,
        "labels": "NEGATIVE, POSITIVE",
        "by default": "layer_lrp",
        "runs on": "cpu in float32",
    }
    hostile = Explainer(dataclasses.replace(explainer.subject, name="<img>"))
    assert "<img>" not in hostile._repr_html_()
    assert "&lt;img&gt;" in hostile._repr_html_()


@pytest.mark.parametrize(("task", "kind"), EACH)
def test_explainers_of_every_task_have_a_card(task: str, kind: str) -> None:
    of = token_explainer(task, kind)
    assert of.task.does in repr(of)
    assert of.task.does in of._repr_html_()
