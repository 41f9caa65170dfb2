"""The pictures of token tables show their numbers, whole and the same each time."""

import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from whyformer import BadInput, MissingExtra
from whyformer_papers.words import WordTable, clouds
from whyformer_papers.words.clouds import OWN, SHARED, clouds_figure
from whyformer_papers.words.curves import overlap_figure, shared_figure

TOTALS = {
    0: {"war": 90.0, "peace": 22.5, "the": 22.5, "film": 6.0, "never": -1.0},
    1: {"goal": 9.0, "team": 5.0, "the": 5.0, "war": 1.0},
    2: {"film": 4.0, "peace": 3.0, "the": 2.0, "war": 1.0},
}


def table(
    method: str = "attcat", totals: Any = TOTALS, labels: tuple[str, ...] = ("World", "Sports", "$5")
) -> WordTable:
    return WordTable(totals, labels, method, dict.fromkeys(totals, 1))


def other() -> WordTable:
    words = {f"word{n}": float(50 - n) for n in range(50)}
    return table("random(seed=$1)", {0: words, 1: {**words, "new": 99.0}, 2: {"x": 1.0}})


TABLES = {one.method: one for one in (table(), other())}


def test_curves_are_the_shares() -> None:
    (axes,) = overlap_figure(TABLES, 6).axes
    assert [line.get_label() for line in axes.lines] == ["attcat", r"random(seed=\$1)"]
    for line, one in zip(axes.lines, TABLES.values(), strict=True):
        assert list(line.get_xdata()) == [1, 2, 3, 4, 5, 6]
        assert list(line.get_ydata()) == pytest.approx([100 * one.overlap(k) for k in range(1, 7)])
    assert len({line.get_color() for line in axes.lines}) == 2
    assert axes.get_title(loc="left").endswith("(3 classes, 3 pairs)")


def test_counts_are_those_of_the_pairs() -> None:
    figure = shared_figure(TABLES, 3)
    curves, cells = figure.axes
    for line, one in zip(curves.lines, TABLES.values(), strict=True):
        assert list(line.get_ydata()) == pytest.approx([sum(one.shared_counts(k).values()) for k in (1, 2, 3)])
    assert [text.get_text() for text in cells.texts] == ["1", "2", "1", "2", "0", "0"]
    assert [text.get_text() for text in cells.get_xticklabels()] == ["World – Sports", r"World – \$5", r"Sports – \$5"]
    assert [text.get_text() for text in cells.get_yticklabels()] == ["attcat", r"random(seed=\$1)"]


def test_many_methods_look_different() -> None:
    several = {f"m{n}": table(f"m{n}") for n in range(14)}
    (axes,) = overlap_figure(several, 5).axes
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 14


def pictures(figure: Any) -> list[Any]:
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def coloured(pixels: Any, colour: str) -> int:
    """How many pixels have a colour."""
    from matplotlib.colors import to_rgb

    return int((np.abs(pixels / 255 - np.array(to_rgb(colour))).max(-1) < 0.02).sum())


def test_a_cloud_for_each_class_and_method() -> None:
    figure = clouds_figure(TABLES, 3)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        *("World · attcat", "Sports · attcat", r"\$5 · attcat"),
        *(rf"{name} · random(seed=\$1)" for name in ("World", "Sports", r"\$5")),
    ]
    world, sports, third, *_, alone = pictures(figure)
    assert coloured(world, OWN) > 0
    assert coloured(world, SHARED) > 0  # "the" and "peace"
    assert coloured(sports, OWN) > coloured(sports, SHARED) > 0
    assert coloured(third, SHARED) > coloured(third, OWN) > 0  # "peace" and "the" beside "film"
    assert coloured(alone, SHARED) == 0
    assert len(figure.axes) == len(pictures(figure)) == 6


def test_a_table_alone_and_classes_that_are_not_there() -> None:
    assert len(clouds_figure(table(), 2).axes) == 3
    fewer = {"a": table("a"), "b": table("b", {1: TOTALS[1]})}
    figure = clouds_figure(fewer, 2)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "World · a",
        "Sports · a",
        r"\$5 · a",
        "Sports · b",
        "",
        "",
    ]
    with pytest.raises(BadInput, match="no table of words"):
        clouds_figure({})


def test_the_same_seed_gives_the_same_picture() -> None:
    first, again = (pictures(clouds_figure(other(), 12, seed=3)) for _ in range(2))
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    elsewhere = pictures(clouds_figure(other(), 12, seed=4))
    assert not np.array_equal(first[0], elsewhere[0])


class Kept:
    """A layout that notes what it was given."""

    made: list[Any]

    def __init__(self, **settings: Any) -> None:
        from wordcloud import WordCloud

        self.cloud = WordCloud(**settings)

    def generate_from_frequencies(self, words: dict[str, float]) -> None:
        self.cloud.generate_from_frequencies(words)
        Kept.made.append(self.cloud)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cloud, name)


def test_areas_grow_with_the_sums_and_no_word_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    Kept.made = []
    monkeypatch.setattr(clouds, "wordcloud_class", lambda: Kept)
    clouds_figure(table(totals={0: TOTALS[0]}), 5)
    heights = {word: height for (word, _), height, *_ in Kept.made[-1].layout_}
    assert set(heights) == {"war", "peace", "the", "film"}  # no word speaks for the class that is below zero
    assert heights["war"] / heights["peace"] == pytest.approx(2, abs=0.1)  # the square root of 90 / 22.5
    assert heights["peace"] == heights["the"]
    assert heights["the"] / heights["film"] == pytest.approx((22.5 / 6) ** 0.5, abs=0.15)
    long = {f"a-rather-long-word-that-is-number-{n:02}": 50.0 - n for n in range(50)}
    clouds_figure(table(totals={0: long}), 50)
    assert {word for (word, _), *_ in Kept.made[-1].layout_} == set(long)


def test_a_class_without_words_that_speak_for_it() -> None:
    (pixels,) = pictures(clouds_figure(table(totals={0: {"a": -1.0}})))
    assert (pixels == 255).all()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordcloud", None)
    with pytest.raises(MissingExtra, match="pip install wordcloud"):
        clouds_figure(table())
    overlap_figure(TABLES, 3)  # needs none


def test_fonts() -> None:
    with pytest.raises(BadInput, match=r"could not read the font 'none\.ttf'"):
        clouds_figure(table(), font="none.ttf")


def test_tables_that_do_not_go_together() -> None:
    mixed = {"a": table("a"), "b": table("b", {1: TOTALS[1], 2: TOTALS[2]})}
    for draw in (overlap_figure, shared_figure):
        with pytest.raises(BadInput, match=r"the same classes; found a: World, Sports, \$5; b: Sports, \$5"):
            draw(mixed)
        with pytest.raises(BadInput, match="no table of words"):
            draw({})
        with pytest.raises(BadInput, match="all 1 texts Sports"):
            draw({"a": table("a", {1: TOTALS[1]})})


@pytest.mark.parametrize("methods", [1, 14])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("draw", [overlap_figure, shared_figure])
def test_nothing_is_cut_off(draw: Any, classes: int, methods: int) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    totals = {n: {f"w{i}": float(i * n % 7) for i in range(60)} for n in range(classes)}
    names = [f"input_x_gradient(at=embedding_output, number={n})" for n in range(methods)]
    figure = draw({name: table(name, totals, ("NEGATIVE", "POSITIVE", "Business", "Sci-Tech")) for name in names})
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, whole = canvas.get_renderer(), figure.bbox
    legends = [*figure.legends, *(one for part in figure.subfigs for one in part.legends)]
    assert len(legends) == 1
    assert len(legends[0].get_texts()) == methods
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes] + [legends[0].get_window_extent(renderer)]
    for box in boxes:
        assert box.x0 >= whole.x0 - 1
        assert box.x1 <= whole.x1 + 1
        assert box.y0 >= whole.y0 - 1
        assert box.y1 <= whole.y1 + 1
    for one, other_box in combinations(boxes, 2):
        assert not one.overlaps(other_box)
