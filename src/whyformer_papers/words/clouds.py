"""Word clouds: the highest words of each class, the larger the higher their sums."""

from collections.abc import Mapping
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyformer.errors import BadInput, MissingExtra
from whyformer.escapes import literal
from whyformer.show.colors import IMPORTANCE, as_hex
from whyformer_papers.words.table import TOP, WordTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OWN, SHARED = as_hex(IMPORTANCE), "#d55e00"  # blue and vermilion: told apart by all
WIDTH, HEIGHT, SCALE = 600, 414, 1.5  # pixels of the plan of one cloud, and how much larger it is drawn
PANEL = 4.6, 3.4  # inches of one cloud with its title
LARGEST, SMALLEST = 96, 12  # pixels of letters; where not all words fit, the largest get smaller
SHRINK, AS_ASKED = 0.85, 0.9  # a word that is drawn smaller than that was squeezed into a gap
MARGIN = 8  # pixels around a word
FRAME = "#d5d9de"


def clouds_figure(
    tables: WordTable | Mapping[str, WordTable],
    k: int = TOP,
    *,
    seed: int = 0,
    font: str | Path | None = None,
) -> "Figure":
    """A cloud for each class, with a row for each method (Figures 7 and 8).

    The area of a word grows with its sum, score × idf; words with sums below zero are left out. Words that are among
    the top k of another class too are vermilion. The same seed gives the same picture. `font` is a font file for texts
    in letters that DejaVu Sans does not have.
    """
    from matplotlib.lines import Line2D

    from whyformer.show.figures import NotebookFigure

    several = {tables.method: tables} if isinstance(tables, WordTable) else dict(tables)
    if not several:
        raise BadInput("there is no table of words to draw")
    cloud = wordcloud_class()
    columns = max(len(table.classes) for table in several.values())
    width, height = PANEL
    drawn = NotebookFigure(figsize=(width * columns, height * len(several) + 0.5), layout="constrained")
    panels = drawn.subplots(len(several), columns, squeeze=False)
    for axes in panels.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(FRAME)
    for row, (method, table) in zip(panels, several.items(), strict=True):
        for axes, index, name in zip_longest(row, sorted(table.totals), table.classes):
            if index is None:
                axes.set_axis_off()
                continue
            words = {word: score for word, score in table.top(k, index) if score > 0}
            axes.imshow(_pixels(cloud, words, _shared(table, index, k), seed, font), interpolation="bilinear")
            axes.set_title(literal(f"{name} · {method}"), loc="left", fontsize=11)
    keys = {f"among the top {k} of this class alone": OWN, "of another class too": SHARED}
    handles = [Line2D([], [], marker="s", linestyle="", color=colour, label=label) for label, colour in keys.items()]
    drawn.legend(handles=handles, loc="outside lower left", ncols=2, fontsize=9, frameon=False)
    return drawn


def wordcloud_class() -> Any:
    """The class that lays out clouds, or `MissingExtra` with the line that installs it."""
    try:
        return import_module("wordcloud").WordCloud
    except ImportError as error:
        raise MissingExtra("word clouds need wordcloud: pip install wordcloud") from error


def _shared(table: WordTable, index: int, k: int) -> set[str]:
    others = [other for other in table.totals if other != index]
    return {word for other in others for word in table.shared(index, other, k)}


def _pixels(cloud: Any, words: Mapping[str, float], shared: set[str], seed: int, font: str | Path | None) -> Any:
    """The picture of one cloud, with all words in it: as large as they fit."""
    import numpy as np

    if not words:
        return np.full((HEIGHT, WIDTH, 3), 255, dtype=np.uint8)
    heights = {word: score**0.5 for word, score in words.items()}  # so that the area grows with the sum
    tallest = max(heights.values())
    settings: dict[str, Any] = {
        "width": WIDTH,
        "height": HEIGHT,
        "scale": SCALE,
        "background_color": "white",
        "font_path": _font(font),
        "min_font_size": 1,
        "relative_scaling": 1,
        "prefer_horizontal": 1,
        "margin": MARGIN,
        "max_words": len(words),
        "random_state": seed,
        "color_func": lambda word, **_: SHARED if word in shared else OWN,
    }
    size = float(LARGEST)
    while True:
        asked = {word: max(size * height / tallest, min(SMALLEST, size)) for word, height in heights.items()}
        made = cloud(max_font_size=round(size), **settings)
        try:
            made.generate_from_frequencies(asked)
        except OSError as error:
            raise BadInput(f"could not read the font {str(font)!r}: {error}") from error
        drawn = {word: height for (word, _), height, *_ in made.layout_}
        if all(drawn.get(word, 0) >= AS_ASKED * height - 1 for word, height in asked.items()) or size < SMALLEST:
            return made.to_array()
        size *= SHRINK


def _font(font: str | Path | None) -> str:
    from matplotlib.font_manager import findfont

    return findfont("DejaVu Sans") if font is None else str(font)
