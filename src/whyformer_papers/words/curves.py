"""What the classes of a word table share, as matplotlib figures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from whyformer.errors import BadInput, BadOption
from whyformer.escapes import literal
from whyformer.show.colors import IMPORTANCE, as_hex, ink
from whyformer.show.curves import MARKERS, thin_look
from whyformer.show.figures import NotebookFigure
from whyformer.show.pictures import curve_legend, ruled, tiled
from whyformer_papers.words.table import TOP, WordTable

TablesByMethod = Mapping[str, WordTable]

MOST = 2000  # words of a class; a curve has a point for each
LONG = 40  # characters; of longer names no two stand side by side
COUNTS = LinearSegmentedColormap.from_list("whyformer-counts", ["#ffffff", as_hex(IMPORTANCE)])


def overlap_figure(tables: TablesByMethod, k: int = TOP) -> Figure:
    """Which percentage of the top 1 … k words two classes have in common, a curve for each method (Figure 4)."""
    curves = {method: [100 * share for share in table.overlaps(_ks(k)).values()] for method, table in _any(tables)}
    width = max(8.5, 6.4 + 0.085 * max(map(len, curves)))  # of which the legend takes a part
    drawn = NotebookFigure(figsize=(width, max(4.5, 0.24 * len(curves) + 0.6)), layout="constrained")
    axes = drawn.subplots()
    _curves(axes, curves, k)
    axes.set_ylabel("shared by two classes (%)")
    axes.set_title(f"How many of their top k words classes share ({_pairs(tables)})", loc="left", fontsize=11)
    curve_legend(drawn, axes, loc="outside right upper")
    return drawn


def shared_figure(tables: TablesByMethod, k: int = TOP) -> Figure:
    """How many of the top 1 … k words two classes share, all pairs together (Figure 9), and each pair at k."""
    counts = {method: table.shared_counts(k) for method, table in _any(tables)}
    pairs = list(next(iter(counts.values())))
    wide = 0.62 * len(pairs) + 0.09 * max(map(len, counts)) + 1.2
    beside = 1 if max(map(len, counts)) > LONG else 2
    height = max(5.0, 0.34 * len(counts) + 2.8, 0.2 * len(counts) / beside + 3.6)
    drawn = NotebookFigure(figsize=(6.2 + wide, height), layout="constrained")
    halves: Any = drawn.subfigures(1, 2, width_ratios=(6.2, wide))
    axes, cells = (half.subplots() for half in halves)
    totals = {
        method: [share * len(pairs) * n for n, share in table.overlaps(_ks(k)).items()]
        for method, table in tables.items()
    }
    _curves(axes, totals, k)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("shared words, all pairs of classes")
    axes.set_title(f"Words that two classes share ({_pairs(tables)})", loc="left", fontsize=11)
    curve_legend(halves[0], axes, loc="outside lower left", ncols=beside)
    _grid(cells, [[by_pair.get(pair, 0) for pair in pairs] for by_pair in counts.values()])
    cells.set_xticks(range(len(pairs)), [literal(" – ".join(pair)) for pair in pairs], rotation=45, ha="right")
    cells.set_yticks(range(len(counts)), [literal(method) for method in counts])
    cells.set_title(f"of the top {k}, by pair", loc="left", fontsize=11)
    return drawn


def _any(tables: TablesByMethod) -> list[tuple[str, WordTable]]:
    if not tables:
        raise BadInput("there is no table of words to draw")
    if len({table.classes for table in tables.values()}) > 1:
        classes = "; ".join(f"{method}: {', '.join(table.classes)}" for method, table in tables.items())
        raise BadInput(f"methods are drawn together if their tables have the same classes; found {classes}")
    return list(tables.items())


def _ks(k: int) -> range:
    if not 1 <= k <= MOST:
        raise BadOption(f"curves are drawn for 1 to {MOST:,} words of each class; found {k}")
    return range(1, k + 1)


def _curves(axes: Any, curves: Mapping[str, list[float]], k: int) -> None:
    """Methods in the order of their names in the table, each with a colour, a marker and a style of its own."""
    for place, (method, values) in enumerate(curves.items()):
        look = {**thin_look(place), "marker": MARKERS[place % len(MARKERS)]}
        every = (3 * place % max(1, k // 5), max(1, k // 5))  # markers that stand one beside the other
        axes.plot(_ks(k), values, label=literal(method), markersize=5, markevery=every, linewidth=1.8, **look)
    axes.set_xlabel("k: the highest words of each class")
    axes.set_xlim(0, k + 1)
    axes.set_ylim(bottom=0)
    ruled(axes)


def _grid(axes: Any, rows: list[list[int]]) -> None:
    """Numbers in cells, the darker the larger."""
    numbers = np.array(rows)
    shares = numbers / max(1, numbers.max())
    axes.imshow(COUNTS(shares)[..., :3], aspect="auto", interpolation="nearest")
    for (row, column), number in np.ndenumerate(numbers):
        red, green, blue = (round(255 * channel) for channel in COUNTS(shares[row, column])[:3])
        colour = as_hex(ink((red, green, blue)))
        axes.text(column, row, str(number), ha="center", va="center", fontsize=9, color=colour)
    tiled(axes, numbers.shape[1], numbers.shape[0])


def _pairs(tables: TablesByMethod) -> str:
    classes = len(next(iter(tables.values())).classes)
    pairs = classes * (classes - 1) // 2
    return f"{classes} classes, {pairs} {'pair' if pairs == 1 else 'pairs'}"
