"""Pictures: figures written to files, whole or not at all."""

from pathlib import Path
from typing import TYPE_CHECKING

from whyformer.errors import BadOption
from whyformer.storage.files import path_of, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150


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
