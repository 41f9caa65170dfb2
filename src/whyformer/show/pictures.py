"""Pictures: what the axes of several figures have in common, and figures as bytes and as files."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from whyformer.errors import BadOption
from whyformer.storage.files import path_of, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150


def ruled(axes: Any, axis: Literal["both", "y"] = "both") -> None:
    """Pale lines behind what is drawn, and no frame above and to the right."""
    axes.grid(axis=axis, color="#e3e6ea", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def tiled(axes: Any, columns: int, rows: int) -> None:
    """White lines between the cells of an image, and no frame."""
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def curve_legend(figure: Any, axes: Any, **options: Any) -> None:
    """The names of all curves outside the axes, in smaller letters where there are many."""
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, fontsize=9 if len(names) <= 12 else 8, frameon=False, **options)


def figure_bytes(figure: "Figure", kind: str, dpi: int = DPI) -> bytes:
    """A figure as a picture of that format."""
    held = io.BytesIO()
    figure.savefig(held, format=kind, dpi=dpi)
    return held.getvalue()


def write_figure(figure: "Figure", path: str | Path, dpi: int = DPI) -> Path:
    """Write a figure in the format that the ending of the file tells; PNG where there is none."""
    kind = picture_format(path)
    with replacing(path) as draft:
        figure.savefig(draft, format=kind, dpi=dpi)
    return Path(path)


def picture_format(path: str | Path) -> str:
    """The format of a picture by the ending of its file; an error that lists those that are known."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    kind = path_of(path).suffix.removeprefix(".").casefold() or "png"
    if kind not in known:
        raise BadOption(f"{str(path)!r} is no picture: known endings are {', '.join(sorted(known))}")
    return kind
