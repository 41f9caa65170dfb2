"""Colour maps and colour bars of matplotlib figures."""

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from whyformer.show.colours import AGAINST, FOR, IMPORTANCE, as_hex

DIVERGING = LinearSegmentedColormap.from_list("whyformer", [as_hex(AGAINST), "#ffffff", as_hex(FOR)])
SEQUENTIAL = LinearSegmentedColormap.from_list("whyformer-importance", ["#ffffff", as_hex(IMPORTANCE)])


def colour_bar(drawn: Figure, axes: Any, signed: bool, peak: float, ticks: int = 3, **place: Any) -> None:
    """What the colours mean, in numbers: those of both sides, or of plain importance."""
    lowest, colours = (-peak, DIVERGING) if signed else (0.0, SEQUENTIAL)
    bar = drawn.colorbar(ScalarMappable(Normalize(lowest, peak), colours), ax=axes, **place)
    numbers = np.linspace(lowest, peak, ticks)
    bar.set_ticks(numbers.tolist(), labels=[f"{number:.3g}" for number in numbers])
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
