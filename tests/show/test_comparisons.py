"""Comparisons of several models, each under its own headline; the order of methods, and how far they agree."""

import dataclasses
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from tests.helpers.cases import subject
from tests.helpers.explained_images import explained
from whyformer import BadInput, BadOption, Comparison, Explainer, Explanation
from whyformer.inputs.units import Unit
from whyformer.results.explanation import mean_agreements
from whyformer.show.layout import AGREEMENT, facts_of_rows, under_headlines
from whyformer.tasks.targets import Label, Predicted

TEXT = "the film is not bad"


def made(scores: list[float], method: str = "made", share: float = 0.75, model: str = "one/model") -> Explanation:
    text = "good bad so-so fine"
    units = [Unit("[CLS]", special=True)]
    units += [Unit(text[m.start() : m.end()], "token", m.span(), 0) for m in re.finditer(r"\S+", text)]
    said = Predicted("yes", 1, share, (0.0, 1.0), (1 - share, share), ("no", "yes"))
    about = {"texts": (text,), "provenance": {"model": model}}
    return Explanation(tuple(units), np.array([9.0, *scores]), said, Label(1, "yes"), method, True, **about)


@pytest.fixture(scope="module")
def models() -> Comparison:
    """One text as two models with tokens of their own see it."""
    both = [Explainer(subject(kind)).explain(TEXT, "rollout", target=0) for kind in ("bert", "gpt2")]
    return Comparison([dataclasses.replace(e, provenance={"model": name}) for e, name in zip(both, "ab", strict=True)])  # type: ignore[arg-type]


def test_each_model_stands_under_its_own_headline(models: Comparison, tmp_path: Path) -> None:
    assert len(models[0].units) != len(models[1].units)
    said = [f"{e.prediction.label} {100 * (e.prediction.probability or 0):.1f} %" for e in models]
    lines = str(models).splitlines()
    heads = [n for n, line in enumerate(lines) if line.startswith("why ")]
    assert [lines[n - 1].startswith(headline) for n, headline in zip(heads, said, strict=True)] == [True, True]
    assert [lines[n + 1] for n in heads] == ["a", "b"]
    assert str(models).count(TEXT) == 2
    page = models._repr_html_()
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == said
    assert page.count('class="text"') == 2
    again = Comparison.load(models.save(tmp_path / "c.json"))
    assert list(again) == list(models)


def test_each_model_has_its_own_heatmap(models: Comparison) -> None:
    figure = models.figure()
    assert [axes.get_title("left").rpartition(" · ")[2] for axes in figure.axes] == ["a", "b"]
    for axes, e in zip(figure.axes, models, strict=True):
        names = [t.get_text().split("  → ")[0] for t in axes.get_xticklabels()]
        assert names == [u.text for u in e.by_word().units]
    assert len(models.figure(scale="shared").axes) == 4, "each with its colour bar"


def test_a_table_of_two_models_is_of_words(models: Comparison) -> None:
    lines = str(models.render("csv")).splitlines()
    assert lines[0] == "unit,rollout · a,rollout · b"
    assert [line.split(",")[0] for line in lines[1:]] == TEXT.split()
    assert float(lines[2].split(",")[2]) == pytest.approx(models[1]["film"])
    other = dataclasses.replace(models[1], texts=("the film is new bad",))
    with pytest.raises(BadOption, match="these explanations have different ones: save each by itself"):
        Comparison((models[0], other)).render("csv")


def test_one_headline_stands_once() -> None:
    both = Comparison((made([3.0, 2.0, 1.0, 0.0]), made([3.0, 2.0, 0.0, 1.0], "other")))
    assert str(both).count("why yes?") == both._repr_html_().count("<h2") == len(both.figure().axes) == 1
    assert "one/model" not in str(both)
    assert both.render("csv").splitlines()[0] == "unit,made,other"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changes", [{"share": 0.5}, {"model": "another/model"}], ids=["another probability", "another model"]
)
def test_headlines_that_differ_are_told_apart(changes: dict[str, Any]) -> None:
    first, second = made([3.0, 2.0, 1.0, 0.0]), made([3.0, 2.0, 1.0, 0.0], **changes)
    assert under_headlines([first, second, first]) == [[first, first], [second]]
    assert Comparison((first, second))._repr_html_().count("<h2") == 2


def test_images_of_two_models_are_named(tmp_path: Path) -> None:
    grid = [[1.0, -2.0], [3.0, 4.0]]
    first, second = (explained(grid, provenance={"model": name}) for name in "ab")
    both = Comparison((first, dataclasses.replace(second, image=first.image)))
    titles = [axes.get_title() for axes in both.figure().axes]
    assert titles[:3] == ["input", "made\na", "made\nb"]
    assert str(both).count("cat 75.0 %") == both._repr_html_().count("<h2") == 2
    assert len(Comparison.load(both.save(tmp_path / "c.json"))) == 2


def test_a_comparison_is_made_of_explanations() -> None:
    e = made([3.0, 2.0, 1.0, 0.0])
    assert Comparison([e, e]).explanations == (e, e)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="made of explanations; found 'a fine film'"):
        Comparison((e, "a fine film"))  # type: ignore[arg-type]


# How far methods agree


ROWS = {
    "alone": [-1.0, 2.0, 0.5, 3.0],
    "random": [4.0, 3.0, 2.0, 1.0],
    "first": [4.0, 3.0, -2.0, 1.0],
    "second": [4.0, -2.0, 3.0, 1.0],
    "nothing": [1.0, 1.0, 1.0, 1.0],
}


def test_mean_agreement_by_hand() -> None:
    rows = {name: made(scores, name) for name, scores in ROWS.items()}
    sizes = {name: np.abs(scores) for name, scores in ROWS.items()}
    found = dict(zip(ROWS, mean_agreements(list(rows.values())), strict=True))
    assert found.pop("nothing") is None
    for name, mean in found.items():
        others = [m for m in ("alone", "first", "second") if m != name]
        each = [float(spearmanr(sizes[name], sizes[m]).statistic) for m in others]
        assert mean == pytest.approx(sum(each) / len(each)), name
    assert mean_agreements([rows["first"]]) == [None]


def test_those_that_agree_come_first_and_baselines_last() -> None:
    found = Comparison(tuple(made(scores, name) for name, scores in ROWS.items()), (("x", "y"),))
    ordered = found.by_agreement()
    assert [e.method for e in ordered] == ["first", "second", "alone", "nothing", "random"]
    assert ordered.refused == found.refused
    facts = dict(zip(ROWS, facts_of_rows(list(found)), strict=True))
    assert facts["random"].startswith("a baseline, agreement ")
    assert facts["nothing"] == ""
    assert f"({facts['first']})" in str(found)
    assert AGREEMENT in str(found)
    page = unescape(found._repr_html_())
    assert all(fact in page for fact in facts.values())
    assert AGREEMENT in page


def test_named_methods_stay_in_their_order_and_all_are_sorted() -> None:
    explainer = Explainer.load("sentiment")
    assert [e.method for e in explainer.compare(TEXT, ["random", "rollout", "attcat"])] == [
        "random",
        "rollout",
        "attcat",
    ]
    found = explainer.compare(TEXT)
    assert found[-1].method == "random"
    means = [mean for mean in mean_agreements(list(found))[:-1] if mean is not None]
    assert means == sorted(means, reverse=True)
