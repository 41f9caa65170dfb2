"""Reproduced as files."""

from pathlib import Path

from whyformer.errors import BadInput
from whyformer.explanation import write as write_text
from whyformer.reproduce.drawn import column_drawing, drawing
from whyformer.reproduce.printed import csv, markdown
from whyformer.reproduce.reproduced import Reproduced
from whyformer.reproduce.running import slug


def write(reproduced: Reproduced, out: str | Path) -> list[Path]:
    """Write NAME.md and NAME.csv into a folder, and pictures.

    NAME.png has the curves and bars; of a figure of heads or words there is a picture for each column, of a figure of
    texts a picture and a page for each text.
    """
    out, name = Path(out), reproduced.recipe.name
    try:
        out.mkdir(parents=True, exist_ok=True)
        figure = drawing(reproduced)
        pictures = [] if figure is None else [out / f"{name}.png"]
        if figure is not None:
            figure.savefig(pictures[0], dpi=150)
        pages = []
        for part in reproduced.parts:
            own = column_drawing(reproduced, part)
            if own is not None:
                pictures.append(out / f"{name}-{slug(part.column.label)}.png")
                own.savefig(pictures[-1], dpi=150)
            for number, comparison in enumerate(part.examples):
                stem = f"{name}-{slug(part.column.label)}-{number}"
                comparison.figure().savefig(out / f"{stem}.png", dpi=150)
                pictures.append(out / f"{stem}.png")
                pages.append(comparison.to_html(out / f"{stem}.html"))
    except OSError as error:
        raise BadInput(f"could not write to {str(out)!r}: {error.strerror}") from error
    texts = [
        write_text(out / f"{name}.md", markdown(reproduced, [picture.name for picture in pictures])),
        write_text(out / f"{name}.csv", csv(reproduced)),
    ]
    return [*texts, *pictures, *pages]
