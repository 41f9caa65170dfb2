"""What a person sees, and what is written to files: text, page, figure, JSON."""

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import families
from tests.helpers.pages import Page
from whyformer import Comparison, Explainer, Explanation
from whyformer.errors import BadOption
from whyformer.inputs.units import Unit
from whyformer.show.colors import AGAINST, FOR, IMPORTANCE, Colour, as_hex, hue, ink, on_white, strengths
from whyformer.show.figures import OWN_SCALES
from whyformer.show.html import SCRIPT
from whyformer.show.layout import reasons
from whyformer.show.terminal import coloured_runs
from whyformer.tasks.targets import Label, Predicted

TEXT = "a gorgeous, witty film that didn't once bore me"
HOSTILE = "<script>alert(1)</script> & \"quotes\" 'single' <b>bold</b> $5 and $6"


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer.load("sentiment")


@pytest.fixture(scope="module")
def explanations(explainer: Explainer) -> dict[str, Explanation]:
    return {
        "layers": explainer.explain(TEXT, "attcat"),
        "no layers": explainer.explain(TEXT, "rollout"),
        "words": explainer.explain(TEXT).by_word(),
        "versus": explainer.explain(TEXT, "cat", target="NEGATIVE", versus="POSITIVE", states="inputs"),
        "options": explainer.explain(TEXT, "raw_attention", layer=[0, 1]),
        "pair": explainer.explain(("it is good", "it is bad"), "input_x_gradient"),
        "hostile": explainer.explain(HOSTILE),
    }


KINDS = ("layers", "no layers", "words", "versus", "options", "pair", "hostile")


def made(scores: list[float], text: str = "good bad so-so", signed: bool = True, **more: Any) -> Explanation:
    spans = [m.span() for m in re.finditer(r"\S+", text)][: len(scores) - 1]  # the rest did not fit
    units = [Unit("[CLS]", special=True), *(Unit(text[a:b], "token", (a, b), 0) for a, b in spans)]
    said = Predicted("yes", 1, 0.75, (0.0, 1.0986), (0.25, 0.75), ("no", "yes"))
    return Explanation(tuple(units), np.array(scores), said, Label(1, "yes"), "made", signed, (text,), **more)


def test_some_have_layers(explanations: dict[str, Explanation]) -> None:
    assert {kind for kind, e in explanations.items() if e.layers is not None} >= {"layers"}
    assert explanations["no layers"].layers is None


# Terminal


def in_parts(e: Explanation) -> str:
    """The texts on lines of their own, numbered where there are several."""
    return "\n".join(f"({n}) {text}" if len(e.texts) > 1 else text for n, text in enumerate(e.texts, 1))


def test_text_says_what_was_predicted_and_why() -> None:
    e = made([9.0, 2.0, -1.0, 0.04], provenance={"model": "some/model"})
    lines = str(e).splitlines()
    assert lines[0] == "yes 75.0 %  no 25.0 %"
    assert lines[1].split() == ["why", "yes?", "+", "for", "-", "against"]
    assert lines[2] == "method made · model some/model"
    assert lines[4] == "good bad so-so"
    assert lines[6].split() == ["score"]
    assert [line.split() for line in lines[7:]] == [
        ["good", "█" * 20, "+2"],
        ["bad", "█" * 10, "-1"],
        ["so-so", "+0.04"],
    ]


def test_text_of_an_unsigned_method_has_no_signs() -> None:
    text = str(made([9.0, 2.0, 1.0, 0.5], signed=False, options={"layer": 3}))
    assert "matters" in text
    assert "against" not in text
    assert "made(layer=3)" in text
    assert not re.search(r"[+-]\d", text)


def test_text_tells_of_dropped_tokens_and_of_versus() -> None:
    text = str(made([0.0, 2.0, 1.0, 0.5], versus=Label(0, "no"), diagnostics={"dropped_tokens": 7}))
    assert "why yes rather than no?" in text
    assert "! 7 tokens did not fit" in text


def test_text_of_a_regression_has_its_value_and_no_percentages() -> None:
    e = dataclasses.replace(made([0, 1, 2, 3]), prediction=Predicted("LABEL_0", 0, None, (2.5,), None, ("LABEL_0",)))
    assert str(e).splitlines()[0].split() == ["LABEL_0", "2.5"]
    assert "%" not in str(e)


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_plain_and_holds_the_strongest(explanations: dict[str, Explanation], kind: str) -> None:
    e = explanations[kind]
    text = str(e)
    assert "\x1b" not in text
    assert in_parts(e) in text
    for unit in e.by_word().top(6, by="magnitude"):
        assert re.search(rf"^  {re.escape(unit.text)} .*[ +-]{abs(unit.score):.4g}( |$)", text, re.MULTILINE)
    assert "[CLS]" not in text


def test_text_of_a_comparison_names_every_method_and_refusal(explainer: Explainer) -> None:
    found = explainer.compare(TEXT, ["attcat", "rollout"])
    text = str(Comparison(found.explanations, (("tricky", "cannot do it"),)))
    assert text.count(TEXT) == 2
    assert re.search(r"^attcat +a gorgeous", text, re.MULTILINE)
    assert re.search(r"^rollout +a gorgeous", text, re.MULTILINE)
    assert re.search(r"^tricky +cannot do it$", text, re.MULTILINE)


# Page


ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "section", "h2", "p", "b", "i", "div", "span"),
    *("details", "summary", "table", "tr", "th", "td", "header", "script"),
}


def assert_self_contained(source: str) -> None:
    page = Page(source)
    assert set(page.tags) <= ALLOWED
    assert not {name for name, _ in page.attributes} - {
        *("class", "style", "title", "lang", "charset", "name", "content", "open"),
        *("tabindex", "data-word", "data-without", "data-rest"),
    }
    assert source.count("<script") == source.count(SCRIPT), "no other script than that of the card"
    assert not re.search(r"https?:|//|url\(|@import|javascript:", source.replace("</", ""))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_self_contained_and_holds_the_text(
    explanations: dict[str, Explanation], tmp_path: Path, kind: str
) -> None:
    e = explanations[kind]
    path = e.to_html(tmp_path / "page.html")
    source = path.read_text(encoding="utf-8")
    assert path == tmp_path / "page.html"
    assert source.startswith("<!doctype html>")
    assert_self_contained(source)
    page = Page(source)
    assert page.texts == [in_parts(e)]
    assert ("layer 0" in page.data) == (e.layers is not None)
    for unit in e.by_word().top(10, by="magnitude"):
        assert f"{unit.score:+.4g}" in page.data if e.signed else f"{unit.score:.4g}" in page.data


def test_tokens_labels_and_reasons_are_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>"
    said = Predicted(evil, 1, 0.75, (0.0, 1.0986), (0.25, 0.75), ("no", evil))
    e = dataclasses.replace(
        made([0.0, 2.0, -1.0, 0.5], "<b> '\"> &amp; <u>dropped</u>", layers=np.ones((2, 4))),
        prediction=said,
        target=Label(1, evil),
        versus=Label(0, evil),
        options={"layer": evil},
        provenance={"model": evil, "revision": evil, "dtype": evil, "packages": {evil: evil}},
        diagnostics={"dropped_tokens": evil},
    )
    compared = Comparison((e,), ((evil, evil),))
    for source in (e._repr_html_(), compared._repr_html_()):
        assert "<img" not in source
        assert_self_contained(source)
        assert Page(source).texts == list(e.texts)


def test_notebooks_get_the_card_without_a_page_around_it(explanations: dict[str, Explanation], tmp_path: Path) -> None:
    e = explanations["layers"]
    fragment = e._repr_html_()
    assert not set(Page(fragment).tags) & {"html", "head", "body", "title"}
    assert fragment in e.to_html(tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_strongest_unit_has_the_strongest_colour() -> None:
    source = made([9.0, 2.0, -1.0, 0.04])._repr_html_()
    stripes = r"(?:repeating-linear-gradient\(135deg,)?"
    colours = dict(re.findall(rf'title="([^"]+)" style="background:{stripes}rgba\((\d+,\d+,\d+),', source))
    assert colours == {"+2": "{},{},{}".format(*FOR), "-1": "{},{},{}".format(*AGAINST)}
    shades = re.findall(r"background:[^\"]*?rgba\(\d+,\d+,\d+,([\d.]+)\)[^\"]*\">(good|bad)</span>", source)
    opacities = {text: float(opacity) for opacity, text in shades}
    assert opacities["good"] == pytest.approx(2 * opacities["bad"])
    assert '<span class="u" title="+0.04">so-so</span>' in source  # too weak for a colour


# Files


def fields_of(e: Explanation) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(e):
        value = getattr(e, field.name)
        yield field.name, (value.dtype.name, value.tolist()) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_explanation_is_the_same(explanations: dict[str, Explanation], tmp_path: Path, kind: str) -> None:
    e = explanations[kind]
    path = e.save(tmp_path / "e.json")
    assert dict(fields_of(Explanation.load(path))) == dict(fields_of(e))


def test_a_saved_explanation_is_plain_json(explanations: dict[str, Explanation], tmp_path: Path) -> None:
    e = explanations["versus"]
    data = json.loads(e.save(tmp_path / "e.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (data["schema"], data["schema_version"]) == ("whyformer/explanation", 2)
    assert [u["score"] for u in data["units"]] == e.scores.tolist()
    assert np.array(data["layers"]).sum(0) == pytest.approx(e.scores, abs=1e-6)
    assert (data["target"]["name"], data["versus"]["name"]) == ("NEGATIVE", "POSITIVE")
    assert data["options"] == {"states": "inputs"}
    assert sum(data["prediction"]["probabilities"]) == pytest.approx(1)
    assert data["provenance"]["model"] == "sentiment"
    assert set(data["provenance"]["packages"]) == {"whyformer", "torch", "transformers"}


def test_a_comparison_is_saved_shown_and_drawn(explainer: Explainer, tmp_path: Path) -> None:
    found = explainer.compare(HOSTILE, ["attcat", "rollout", "grad_cam"])
    again = Comparison.load(found.save(tmp_path / "c.json"))
    assert [dict(fields_of(e)) for e in again] == [dict(fields_of(e)) for e in found]
    source = found.to_html(tmp_path / "c.html").read_text(encoding="utf-8")
    assert_self_contained(source)
    assert Page(source).texts == [HOSTILE] * 3
    assert found._repr_html_() in source
    axes = found.figure().axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["attcat", "rollout", "grad_cam"]
    assert png(found.figure()).startswith(b"\x89PNG\r\n\x1a\n")


# Figures


def png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_has_a_row_for_each_layer(explanations: dict[str, Explanation], kind: str) -> None:
    e = explanations[kind]
    figure = e.figure(scale="row", layers=True)
    assert png(figure).startswith(b"\x89PNG\r\n\x1a\n")
    axes = figure.axes[0]
    rows = [t.get_text() for t in axes.get_yticklabels()]
    assert_units_are_named(axes, e)
    e = e.by_word()
    shown = [u for u in e.units if not u.special]
    pixels = np.asarray(axes.images[0].get_array())
    assert pixels.shape == (len(rows), len(shown), 3)
    if e.layers is None:
        assert len(rows) == 1
    else:
        assert rows == [f"layer {n}" for n in range(len(e.layers))] + ["sum"]
    scores = np.array([s for u, s in zip(e.units, e.scores, strict=True) if not u.special])
    strongest = int(np.abs(scores).argmax())
    if e.layers is not None or not e.signed:
        np.testing.assert_allclose(255 * pixels[-1, strongest], hue(scores[strongest], e.signed), atol=1)


def assert_units_are_named(axes: Any, e: Explanation) -> None:
    """By words, or by tokens if they are asked for; those that were checked with what the model says then."""
    names = [t.get_text().split("  → ")[0] for t in axes.get_xticklabels()]
    assert names == [u.text.replace("$", r"\$") for u in e.by_word().units]
    tokens = [t.get_text().split("  → ")[0] for t in e.figure(tokens=True).axes[0].get_xticklabels()]
    assert tokens == [u.text.replace("$", r"\$") for u in e.units if not u.special]


TALL, LOW = [9.0, 2.0, -1.0, 0.0], [9.0, -0.5, 0.25, 0.0]  # the first unit is special


def assert_shades(figure: Any, row: int, *expected: float) -> None:
    """The strengths of one row of a heatmap, by its colours, which come in 256 steps."""
    colours = 255 * np.asarray(figure.axes[0].images[0].get_array())[row]
    np.testing.assert_allclose(colours, [on_white(strength, signed=True) for strength in expected], atol=3)


def texts_of(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_text() != "−"]


def test_what_speaks_against_the_target_has_a_second_sign() -> None:
    e = made(TALL)
    (minus,) = [text for text in e.figure().axes[0].texts if text.get_text() == "−"]
    assert minus.get_position() == (1, 0)
    assert "repeating-linear-gradient" in e.render("html").split('class="text')[1].split("</div>")[0]
    text = coloured_runs(e)
    assert [text.plain[span.start : span.end] for span in text.spans if "italic" in str(span.style)] == ["bad"]


def test_methods_are_drawn_on_their_own_scales_and_on_one_if_asked() -> None:
    found = Comparison((made(TALL), made(LOW)))
    alone, together = found.figure(), found.figure(scale="shared")
    assert_shades(alone, 1, -1, 0.5, 0)
    assert texts_of(alone) == ["2", "0.5"], "the largest scores, beside the rows"
    assert (len(alone.axes), alone.axes[0].get_xlabel()) == (1, OWN_SCALES)
    for figure in (alone, together):
        assert_shades(figure, 0, 1, -0.5, 0)
    assert_shades(together, 1, -0.25, 0.125, 0)
    assert (texts_of(together), together.axes[0].get_xlabel()) == ([], "")
    assert [text.get_text() for text in together.axes[1].get_yticklabels()] == ["-2", "0", "2"]
    assert_shades(found.figure(scale="row"), 1, -1, 0.5, 0)


def test_a_figure_has_one_row_with_what_was_measured(explainer: Explainer) -> None:
    e = explainer.explain("a slow and dull film that is saved by its gorgeous acting")
    (axes, *_) = e.figure().axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["layer_lrp"]
    assert [text.get_text().partition("→")[0].strip() for text in axes.get_xticklabels() if "→" in text.get_text()] == [
        "dull",
        "saved",
        "gorgeous",
    ]


def test_layers_are_drawn_on_one_scale_and_on_their_own_if_asked() -> None:
    layers = np.array([LOW, TALL]) / 2
    e = made(layers.sum(0).tolist(), layers=layers)
    together, alone = e.figure(layers=True), e.figure(scale="row", layers=True)
    assert_shades(together, 0, -0.25, 0.125, 0)
    assert [text.get_text() for text in together.axes[1].get_yticklabels()] == ["-1", "0", "1"]
    assert "all rows on one scale: the strongest colour is 1<" in e.render("html")
    assert "each row on its own scale" in e.render("html", scale="row")
    assert texts_of(alone) == ["0.25", "1", "0.75"]
    assert_shades(alone, 0, -1, 0.5, 0)


def test_colours_of_both_kinds_have_a_bar_each() -> None:
    both = Comparison((made(TALL), made(LOW, signed=False)))
    _, *bars = both.figure(scale="shared").axes
    assert [[text.get_text() for text in bar.get_yticklabels()] for bar in bars] == [["0", "1", "2"], ["-2", "0", "2"]]
    nothing = Comparison((made([0.0] * 4), made([0.0] * 4)))
    assert len(nothing.figure(scale="shared").axes) == 1, "there is no number to show"


def test_pages_and_terminals_keep_to_a_scale(tmp_path: Path) -> None:
    found = Comparison((made(TALL), made(LOW)))
    alone, together = (found.render("html", scale=scale) for scale in ("row", "shared"))
    assert "each row on its own scale" in alone
    assert "up to 0.5<" in alone
    assert "all rows on one scale: the strongest colour is 2" in together
    assert [alone.count("0.620)"), together.count("0.620)")] == [4, 3], "the strongest colour; two are in the legend"
    assert found.to_html(tmp_path / "a.html").read_text() == alone
    assert found.to_html(tmp_path / "b.html", scale="shared").read_text() == together
    assert "each row on its own scale" in str(found)
    assert "the strongest colour is 2" in found.render("text", scale="shared")
    styles = [{str(span.style) for span in coloured_runs(found[1], peak).spans} for peak in (None, 2.0)]
    assert styles[0] != styles[1]
    for form in ("html", "text", "png"):
        with pytest.raises(BadOption, match=r"scale='log': known: row .*, shared"):
            found.render(form, scale="log")


# Colours


def luminance(colour: Colour) -> float:
    """Of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (c / 255 for c in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Colour, other: Colour) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


SHADES = [on_white(strength / 50, signed) for strength in range(-50, 51) for signed in (True, False)]


@pytest.mark.parametrize(
    "colours", [SHADES, [(r, g, b) for r, g, b in product(range(0, 256, 17), repeat=3)]], ids=["scale", "all"]
)
def test_ink_can_be_read_on_every_colour(colours: list[Colour]) -> None:
    best = {c: max(contrast(c, (0, 0, 0)), contrast(c, (255, 255, 255))) for c in colours}
    assert {ink(c) for c in colours} == {(0, 0, 0), (255, 255, 255)}
    assert not [c for c in colours if contrast(ink(c), c) < min(4.5, best[c])]


def test_signed_and_unsigned_scores_have_other_colours() -> None:
    assert len({hue(1, True), hue(-1, True), hue(1, False)}) == 3
    assert (hue(1, True), hue(-1, True), hue(1, False)) == (FOR, AGAINST, IMPORTANCE)
    assert on_white(0, True) == on_white(0, False) == (255, 255, 255)
    assert on_white(1, True) == FOR == on_white(7, True)
    assert luminance(on_white(0.3, True)) > luminance(on_white(0.6, True)) > luminance(FOR)
    assert as_hex((0, 15, 255)) == "#000fff"


def test_special_tokens_do_not_set_the_scale() -> None:
    assert strengths(made([9.0, 2.0, -1.0, 0.0])).tolist() == [0, 1, -0.5, 0]
    assert strengths(made([9.0, 0.0, 0.0, 0.0])).tolist() == [0, 0, 0, 0]


@pytest.mark.long
def test_everything_registered_can_be_shown(explainer: Explainer) -> None:
    found = explainer.compare("a film", "all")
    methods = [*(e.method for e in found), *(name for name, _ in found.refused)]
    assert sorted(methods) == sorted(families.METHODS)
    for e in found:
        assert e.method in str(e)
        assert_self_contained(e._repr_html_())


def test_a_word_that_stands_twice_has_its_own_effect_at_each_place(explainer: Explainer) -> None:
    e = explainer.explain("not bad, not dull", check=3).for_people()
    assert e.checked is not None
    assert [effect.text for effect in e.checked.effects].count("not") == 2
    pointed = re.findall(r'<span class="u[^>]* data-word="(\d+)" data-without="([^"]*)"', e._repr_html_())
    listed = re.findall(r'<tr tabindex="0" data-word="(\d+)" data-without="([^"]*)"', e._repr_html_())
    assert sorted(pointed) == sorted(listed)
    changes = {reason.effect.units[0]: reason.change for reason in reasons(e, 9) if reason.effect is not None}
    assert len(set(changes.values())) == 3
    assert {int(place): said.partition("POSITIVE ")[2] for place, said in pointed} == changes
