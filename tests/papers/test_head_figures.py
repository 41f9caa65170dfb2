"""The figures of a head mask show its numbers."""

from typing import Any

import numpy as np
import pytest

from whyformer import BadInput
from whyformer.methods.head_mask import HeadMask, HeadStatistics
from whyformer_papers.heads.figures import COLOURS, INK, KEPT, NEITHER, heads_figure, positions_figure


def mask(layers: int = 2, heads: int = 3) -> HeadMask:
    """Head (0, 0) is positional, (0, 1) finds nsubj, (1, 2) is both and finds dobj too."""
    hits = np.zeros((2, layers, heads, 4), dtype=np.int64)
    hits[0, 0, 1, 0] = hits[0, 1, 2, :2] = 20
    frequent = np.zeros((layers, heads), dtype=np.int64)
    frequent[0, 0] = frequent[1, 2] = 9
    arcs = ({-1: 10, -2: 6, 12: 4}, {1: 10, 2: 10}, {}, {})
    return HeadMask.of(HeadStatistics(-np.ones_like(frequent), frequent, 10, hits, arcs, 5))


def cells(found: HeadMask) -> dict[tuple[int, int], list[str]]:
    """The colours of each cell, from left to right, and its frame."""
    from matplotlib.colors import to_hex
    from matplotlib.patches import Rectangle

    (axes,) = heads_figure(found).axes
    colours: dict[tuple[int, int], list[str]] = {}
    for patch in axes.patches:
        assert isinstance(patch, Rectangle)
        place = round(patch.get_y() + 0.46), round(patch.get_x() + patch.get_width() / 2)
        colours.setdefault(place, []).append(
            to_hex(patch.get_facecolor() if patch.get_fill() else patch.get_edgecolor())
        )
    return colours


def test_cells_have_the_colours_of_their_kinds() -> None:
    found = cells(mask())
    assert len(found) == 6
    assert found[0, 0] == [NEITHER, COLOURS["positional"]]
    assert found[0, 1] == [NEITHER, COLOURS["nsubj"]]
    assert found[1, 2] == [NEITHER, COLOURS["positional"], COLOURS["nsubj"], COLOURS["dobj"]]
    assert [place for place, colours in found.items() if colours == [NEITHER]] == [(0, 2), (1, 0), (1, 1)]
    (axes,) = heads_figure(mask()).axes
    assert [text.get_text() for text in axes.texts] == ["−1", "−1"]


def test_the_legend_counts() -> None:
    (legend,) = heads_figure(mask()).legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said[:6] == [
        *("positional (2)", "syntactic: nsubj (2)", "syntactic: dobj (1)", "syntactic: amod (0)"),
        *("syntactic: advmod (0)", "neither (3)"),
    ]
    assert said[6].endswith("and syntactic (1)")


def test_other_masks_show_what_they_keep() -> None:
    found = cells(mask().corrupted(1.0, 0))
    assert all(colours[-1] == INK for colours in found.values())
    plain = cells(HeadMask([[1, 0], [0, 0]]))  # type: ignore[arg-type]
    assert plain[0, 0] == [NEITHER, KEPT]
    assert plain[1, 1] == [NEITHER]
    with pytest.raises(BadInput, match="knows no parse"):
        positions_figure(HeadMask([[1, 0]]))  # type: ignore[arg-type]


def test_bars_are_the_relative_positions() -> None:
    panels: Any = positions_figure(mask()).axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        *("nsubj  (20 arcs)", "dobj  (20 arcs)", "amod  (0 arcs)", "advmod  (0 arcs)")
    ]
    bars = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in panels[0].patches}
    assert {place: height for place, height in bars.items() if height} == {-1: 50, -2: 30, 9: 20}
    assert [text.get_text() for text in panels[0].texts if text.get_text()] == ["50"]


@pytest.mark.parametrize(("layers", "heads"), [(2, 3), (6, 12), (12, 12)])
def test_nothing_is_cut_off(layers: int, heads: int) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = heads_figure(mask(layers, heads))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    whole = figure.bbox
    for part in (figure.axes[0].yaxis.label, figure.axes[0].xaxis.label, figure.axes[0].title, *figure.legends):
        box = part.get_window_extent(renderer)
        assert box.x0 >= whole.x0
        assert box.x1 <= whole.x1
        assert box.y0 >= whole.y0
        assert box.y1 <= whole.y1
