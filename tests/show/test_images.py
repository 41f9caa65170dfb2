"""Explained images as people see them: heat over the picture, in figures, on pages, in terminals and in tables."""

import base64
import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import whyformer
from tests.helpers.explained_images import PATCH, explained
from tests.helpers.pages import Page
from whyformer import BadInput, BadOption, Comparison, Explanation, Trust
from whyformer.inputs.images import Picture
from whyformer.inputs.units import Unit
from whyformer.results.checked import Checked, Effect
from whyformer.show import terminal
from whyformer.show.colors import AGAINST, FOR, IMPORTANCE, largest, strengths
from whyformer.show.html import fragment, page
from whyformer.show.overlay import OPACITY, blended, cells, enlarged, heat_strengths, layer, seen_part
from whyformer.tasks.targets import Label

SCORES = [[0.1, 0.0, 0.0, -4.0], [0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]  # 3 rows, 4 columns
AT = "row 1, column 4"  # the strongest


@pytest.fixture
def signed() -> Explanation:
    return explained(SCORES)


@pytest.fixture
def unsigned() -> Explanation:
    return explained(np.abs(SCORES), signed=False, method="plain")


@pytest.fixture
def comparison(signed: Explanation, unsigned: Explanation) -> Comparison:
    return Comparison((signed, unsigned), (("other", "refused <for> a reason"),))


# heat


def test_heat_is_beside_the_largest_patch_and_special_units_have_no_share(signed: Explanation) -> None:
    heat = heat_strengths(signed)
    assert heat.shape == (3 * PATCH, 4 * PATCH)
    assert np.abs(heat).max() <= 1
    assert heat[0, -1] == pytest.approx(-1)
    assert heat[-1, 0] == pytest.approx(0.5)
    assert heat_strengths(signed, peak=8.0)[0, -1] == pytest.approx(-0.5)


def test_an_order_has_the_signs_of_what_was_seen() -> None:
    order = explained([[1.0, 0.5]], signed=False, ranks=True, signs=np.array([1, -1, 1]))
    heat = heat_strengths(order)
    assert heat[0, 0] == pytest.approx(-1)
    assert heat[0, -1] == pytest.approx(0.5)


def test_scores_of_pixels_are_the_heat(signed: Explanation) -> None:
    pixels = np.zeros((3 * PATCH, 4 * PATCH))
    pixels[5, 7] = -10.0
    fine = replace(signed, pixels=pixels)
    assert heat_strengths(fine)[5, 7] == -1
    assert np.count_nonzero(heat_strengths(fine)) == 1
    assert largest(fine) == 10
    assert largest(signed) == 4


def test_the_colour_is_the_side_and_the_opacity_the_strength() -> None:
    drawn = layer(np.array([[1.0, -0.5, 0.0, 3.0]]), signed=True)
    assert [tuple(pixel[:3]) for pixel in drawn[0, :2]] == [FOR, AGAINST]
    assert drawn[0, :, 3].tolist() == [round(255 * OPACITY), round(255 * OPACITY / 2), 0, round(255 * OPACITY)]
    assert {tuple(pixel[:3]) for pixel in layer(np.array([[1.0, 0.2]]), signed=False)[0]} == {IMPORTANCE}


def test_heat_lies_over_the_part_that_the_model_saw() -> None:
    shown = np.full((300, 600, 3), 120, dtype=np.uint8)
    seen = explained([[1.0, 0.0], [0.0, 0.0]], shown=shown, region=(0.25, 0.0, 0.75, 1.0), signed=False)
    drawn = blended(seen).astype(int)
    assert drawn.shape == shown.shape
    violet = drawn[..., 2] - drawn[..., 1]
    assert violet[5, 155] > 50  # the first patch begins where the region does
    assert violet[295, 445] == 0
    assert violet[:, :149].max() == violet[:, 451:].max() == 0
    assert drawn[295, 445, 0] > 2 * drawn[295, 50, 0]  # what lies outside is dark
    assert seen_part(seen, shown) == (150, 0, 450, 300)


@pytest.mark.parametrize(("side", "drawn"), [(1, 360), (32, 384), (160, 480), (256, 256), (700, 700)])
def test_small_pictures_are_drawn_larger(side: int, drawn: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    large = enlarged(pixels)
    assert large.shape == (drawn, drawn, 3)
    if side <= 64:  # each pixel is seen
        assert np.array_equal(large[:: drawn // side, :: drawn // side], pixels)


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1)])
def test_a_sliver_is_drawn(size: tuple[int, int]) -> None:
    thin = explained([[1.0]], size=size, region=(0.499, 0.499, 0.501, 0.501))
    assert blended(thin).ndim == 3
    assert isinstance(thin.figure(), Figure)
    assert page([thin])
    assert str(thin)


def test_cells_are_fractions_of_the_whole_picture(signed: Explanation) -> None:
    whole = replace(signed, image=replace(signed.image, region=(0.5, 0.0, 1.0, 0.75)))
    across, down, scores = cells(whole)
    assert across == pytest.approx([0.5, 0.625, 0.75, 0.875, 1.0])
    assert down == pytest.approx([0.0, 0.25, 0.5, 0.75])
    assert scores[:4] == ["+0.1", "+0", "+0", "-4"]
    assert scores[8] == "+2"


def test_an_image_and_a_text_have_each_their_own_scale(signed: Explanation) -> None:
    words = (Unit("a", span=(0, 1), part=0), Unit("cat", span=(2, 5), part=0))
    both = replace(
        signed, units=(*signed.units, *words), scores=np.array([*signed.scores, 10.0, 100.0]), texts=("a cat",)
    )
    assert np.array_equal(heat_strengths(both), heat_strengths(signed))
    assert strengths(both)[-2:].tolist() == [0.1, 1.0]
    assert largest(both) == 4
    assert Page(page([both])).texts == ["a cat"]
    assert str(both).count("a cat\n") == 1
    assert "cat,,,,,100.0" in both.render("csv")


# figures


def texts(figure: Figure) -> str:
    shown = [axes.get_title() + axes.get_ylabel() + axes.get_xlabel() for axes in figure.axes]
    return " ".join([figure.get_suptitle(), *shown])


def images(figure: Figure) -> list[Any]:
    return [axes.images[0].get_array() for axes in figure.axes if axes.images]


def test_the_picture_beside_its_heat_with_a_colour_bar(signed: Explanation, tmp_path: Path) -> None:
    drawn = signed.figure()
    assert "cat 75.0 %" in texts(drawn)
    assert "why cat?" in texts(drawn)
    first, second = images(drawn)
    assert np.array_equal(first, enlarged(signed.image.pixels))
    assert np.array_equal(second, blended(signed))
    bar = drawn.axes[-1]
    assert [label.get_text() for label in bar.get_yticklabels()] == ["-4", "0", "4"]
    with Image.open(signed.save(tmp_path / "cat.png")) as written:
        assert written.format == "PNG"
        assert min(written.size) > 400


def test_methods_stand_side_by_side_each_on_its_scale(comparison: Comparison) -> None:
    drawn = comparison.figure()
    assert len(images(drawn)) == 3
    assert "input" in texts(drawn)
    assert "plain" in texts(drawn)
    assert texts(drawn).count("up to 4") == 2
    shared = comparison.figure(scale="shared")
    assert len(shared.axes) == len(drawn.axes) + 2  # colour bars of both kinds
    assert "up to" not in texts(shared)


def test_many_methods_take_several_rows(signed: Explanation) -> None:
    many = Comparison(tuple(replace(signed, method=f"number {n}") for n in range(12)))
    wide, high = many.figure().get_size_inches()
    assert wide < 12
    assert high > 4
    assert len(images(many.figure())) == 13


def named(method: str, target: str, image: Picture | None = None) -> Explanation:
    return explained([[1.0, 2.0]], method=method, target=Label(0, target), image=image)


def test_methods_by_classes() -> None:
    drawn = whyformer.image_grid([[named(m, t) for t in ("cat", "dog")] for m in ("gae", "lrp")])
    titles = [axes.get_title() for axes in drawn.axes]
    assert titles == ["input", "cat", "dog", "", "", ""]
    assert [axes.get_ylabel() for axes in drawn.axes] == ["", "gae", "", "", "lrp", ""]
    assert len(images(drawn)) == 5  # one input for all


def test_images_by_methods() -> None:
    pictures = [Picture(np.full((40, 80, 3), shade, dtype=np.uint8), (8, 16)) for shade in (50, 150)]
    rows = [[named(m, t, picture) for m in ("gae", "lrp")] for t, picture in zip(("cat", "dog"), pictures, strict=True)]
    drawn = whyformer.image_grid(rows, scale="shared")
    assert [axes.get_title() for axes in drawn.axes[:6]] == ["input", "gae", "lrp", "", "", ""]
    assert [axes.get_ylabel() for axes in drawn.axes[:6]] == ["cat", "", "", "dog", "", ""]
    assert len(images(drawn)) == 6


def test_what_neither_row_nor_column_tells_stands_above_each() -> None:
    drawn = whyformer.image_grid([[named("a", "cat"), named("b", "cat")], [named("c", "cat"), named("d", "cat")]])
    assert [axes.get_title() for axes in drawn.axes] == ["input", "a", "b", "", "c", "d"]


def test_grids_that_cannot_be_drawn() -> None:
    with pytest.raises(BadInput, match=r"rows of the same length; found \[2, 1\]"):
        whyformer.image_grid([[named("a", "cat"), named("b", "cat")], [named("c", "cat")]])
    with pytest.raises(BadInput, match="rows of the same length"):
        whyformer.image_grid([])
    text = replace(named("a", "cat"), image=None)
    with pytest.raises(BadInput, match="this explanation is of a text"):
        whyformer.image_grid([[text]])
    with pytest.raises(BadOption, match=r"scale takes row \| shared"):
        whyformer.image_grid([[named("a", "cat")]], scale="wide")  # type: ignore[arg-type]


# pages


def attributes(source: str, name: str) -> list[str]:
    return [value or "" for key, value in Page(source).attributes if key == name]


def embedded(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition("base64,")[2])))


def test_a_card_has_the_picture_its_heat_and_a_slider(signed: Explanation) -> None:
    source = page([signed])
    picture, heat = (embedded(address) for address in attributes(source, "src"))
    assert picture.size == heat.size == (4 * PATCH, 3 * PATCH)
    assert heat.mode == "RGBA"
    assert np.array_equal(np.asarray(heat), layer(heat_strengths(signed), signed=True))
    assert attributes(source, "type") == ["range"]
    described, hidden = attributes(source, "alt")
    assert "why cat?" in described
    assert AT in described
    assert hidden == ""
    assert "75.0 %" in source
    assert "seen tiny" in attributes(source, "class")  # its pixels are seen
    assert "width:440px" in attributes(source, "style")


def test_scores_are_there_for_whoever_points_at_a_patch(signed: Explanation) -> None:
    (data,) = attributes(page([signed]), "data-cells")
    grid = json.loads(data)
    assert grid["across"] == [0, 0.25, 0.5, 0.75, 1]
    assert len(grid["down"]) == 4
    assert grid["scores"][3] == "-4"
    assert page([signed]).count("addEventListener") == 1


def test_heat_lies_where_the_model_looked(signed: Explanation) -> None:
    part = replace(signed, image=replace(signed.image, region=(0.25, 0.0, 0.75, 1.0)))
    assert "left:25.000%;top:0.000%;width:50.000%;height:100.000%" in page([part])


def test_a_page_of_images_needs_nothing_else_and_has_no_names_that_clash(comparison: Comparison) -> None:
    for source in (page(comparison), page(list(comparison)), fragment(comparison) + fragment(comparison)):
        assert all(address.startswith("data:image/") for address in attributes(source, "src"))
        assert not attributes(source, "id")
        assert "http" not in re.sub(r"data:[^\"]*", "", source)


def test_a_comparison_has_one_slider_and_a_picture_for_each_method(comparison: Comparison) -> None:
    source = comparison._repr_html_()
    assert attributes(source, "type") == ["range"]
    assert len(attributes(source, "data-cells")) == 2
    assert len(attributes(source, "src")) == 1 + 2 * 2
    assert "refused &lt;for&gt; a reason" in source
    assert "each picture on its own scale" in source
    assert source.count("up to 4") == 4  # and what is written there when nobody points at it


def test_layers_are_small_pictures_on_one_scale(signed: Explanation) -> None:
    layers = np.stack([signed.scores, np.zeros_like(signed.scores)])
    source = page([replace(signed, layers=layers, pixels=np.ones((3 * PATCH, 4 * PATCH)))])
    assert len(attributes(source, "data-cells")) == 1 + 3
    assert attributes(source, "type") == ["range"]
    assert "all pictures on one scale" in source


def test_hostile_labels_are_escaped() -> None:
    hostile = explained(SCORES, labels=('<img src="x">', "b"))
    assert all(address.startswith("data:image/") for address in attributes(page([hostile]), "src"))


def test_large_photos_are_jpeg_and_pages_of_texts_have_no_script(signed: Explanation) -> None:
    large = replace(signed, image=replace(signed.image, pixels=np.zeros((400, 700, 3), dtype=np.uint8)))
    first, *_ = attributes(page([large]), "src")
    assert first.startswith("data:image/jpeg")
    assert "width:700px" in page([large])
    text = whyformer.Explainer.load("sentiment").explain("a fine film", "rollout", check=0)
    assert "<script" not in page([text])
    assert ".shot" not in page([text])


def test_a_tall_picture_fits_on_the_screen(signed: Explanation) -> None:
    tall = replace(signed, image=replace(signed.image, pixels=np.zeros((700, 70, 3), dtype=np.uint8)))
    assert "width:64px" in page([tall])


# terminals


def coloured(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(terminal, "has_colours", lambda: True)
    monkeypatch.setattr(terminal, "terminal_width", lambda otherwise=0: columns)


@pytest.mark.parametrize("columns", [1, 20, 100])
def test_half_blocks_are_as_wide_as_fits(signed: Explanation, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    coloured(monkeypatch, columns)
    shown = terminal.explanation_text(signed)
    rows = [line for line in shown.plain.split("\n") if line.startswith("▀")]
    assert {len(row) for row in rows} == {min(columns, 64)}
    assert len(rows) == max(1, round(min(columns, 64) * 3 / 4 / 2))
    styles = {str(span.style) for span in shown.spans}
    assert any(re.fullmatch(r"#\w{6} on #\w{6}", style) for style in styles)


def test_a_picture_has_no_more_lines_than_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured(monkeypatch, 200)
    tall = explained(np.ones((8, 2)), size=(800, 200))
    rows = [line for line in terminal.explanation_text(tall).plain.split("\n") if line.startswith("▀")]
    assert len(rows) == 26
    assert {len(row) for row in rows} == {13}  # and keeps its shape: characters are twice as high as wide


def test_without_colours_heat_is_characters(signed: Explanation, unsigned: Explanation) -> None:
    shown = str(signed)
    assert "\x1b" not in shown
    rows = [line for line in shown.split("\n") if re.fullmatch("[·░▒▓█=%#-]{8}", line)]
    assert len(rows) == 3
    assert rows[0].endswith("#")
    assert rows[0].startswith("·")
    assert rows[-1].startswith("▓")
    assert "░▒▓█ for  -=%# against  · little" in shown
    assert re.search(rf"{AT}  █+  -4\n", shown)
    assert "against" not in str(unsigned)
    assert "matters" in str(unsigned)


def with_regions(explanation: Explanation, *places: int) -> Explanation:
    """The explanation with single patches that were checked."""
    effects = tuple(Effect("left", (place,), 1.0, 1.0, 1, 0.0, 0.5) for place in places)
    return replace(explanation, checked=Checked("delete", "log_odds", True, 1.0, 0.75, effects))


def test_regions_are_numbered_in_the_preview(signed: Explanation, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = with_regions(signed, 4, 9)  # the upper right corner, and the lower left
    assert str(checked).split("\n")[4:7] == ["······①#", "········", "②▓······"]
    part = replace(checked, image=replace(signed.image, region=(0.5, 0.0, 1.0, 0.5)))
    assert str(part).split("\n")[4:7] == str(checked).split("\n")[4:7], (
        "without colors only what the model saw is there"
    )
    coloured(monkeypatch, 16)
    rows = terminal.explanation_text(part).plain.split("\n")[4:10]
    assert [(row.find("①"), row.find("②")) for row in rows if set(row) != {"▀"}] == [(14, -1), (-1, 8)]


def test_the_stronger_of_two_regions_in_one_place_keeps_its_number(
    signed: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    coloured(monkeypatch, 1)
    shown = terminal.explanation_text(with_regions(signed, 4, 9)).plain
    assert "\n①\n" in shown
    assert "\n②\n" not in shown


def test_methods_stand_side_by_side_where_there_is_room(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.search(r"^made\s{5,}plain\s*$", str(comparison), re.MULTILINE)
    assert "░▒▓█ for, or matters  -=%# against" in str(comparison)
    assert re.search(rf"^plain  {AT} 4  ", str(comparison), re.MULTILINE)
    coloured(monkeypatch, 40)
    shown = terminal.comparison_text(comparison).plain
    assert not re.search(r"^made\s+plain\s*$", shown, re.MULTILINE)
    assert max(len(line) for line in shown.split("\n") if "▀" in line) == 30


def test_trust_of_patches_is_said_of_patches(signed: Explanation) -> None:
    object.__setattr__(signed, "trusted", Trust(0.5, (0.1, 0.2), 0.6, "cat", 12, "patch", 30))
    assert "patches" in str(signed)
    assert "patchs" not in str(signed) + page([signed]) + str(Comparison((signed,)))


# tables and files


@pytest.mark.parametrize("ending", ["csv", "md", "tex"])
def test_tables_have_the_boxes(signed: Explanation, comparison: Comparison, tmp_path: Path, ending: str) -> None:
    for result in (signed, comparison):
        written = result.save(tmp_path / f"cat.{ending}").read_text()
        assert all(
            side in written.splitlines()[0 if ending != "tex" else 2] for side in ("left", "top", "right", "bottom")
        )
    if ending == "csv":
        rows = list(csv.DictReader(io.StringIO(written)))
        assert len(rows) == 12
        assert {name: rows[3][name] for name in rows[3]} == {
            "unit": AT,
            "left": "24",
            "top": "0",
            "right": "32",
            "bottom": "8",
            "made": "-4.0",
            "plain": "4.0",
        }


def test_a_comparison_is_loaded_again_with_its_picture(comparison: Comparison, tmp_path: Path) -> None:
    path = comparison.save(tmp_path / "cat.json")
    again = Comparison.load(path)
    assert str(again) == str(comparison)
    assert page(again) == page(comparison)
    saved = json.loads(path.read_text())
    other = explained(SCORES, size=(30, 40)).to_dict()["image"]
    saved["explanations"][1]["image"] = other
    path.write_text(json.dumps(saved))
    with pytest.raises(BadInput, match="of another input than the first"):
        Comparison.load(path)


def test_an_image_has_no_words(signed: Explanation) -> None:
    with pytest.raises(BadOption, match="the units of an image are patches"):
        signed.words()


def test_each_column_of_reasons_stands_under_its_heading(signed: Explanation) -> None:
    text = page([signed])
    table = re.search(r'<table class="reasons">(.*?)</table>', text, re.DOTALL)
    assert table is not None
    heads, *rows = re.findall(r"<tr.*?</tr>", table[1], re.DOTALL)
    assert rows
    assert {row.count("<td") for row in rows} == {heads.count("<th")}
    assert "nth-child" not in text  # no column is hidden without its heading
