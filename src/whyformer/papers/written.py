"""Reproduced as files."""

from pathlib import Path

from whyformer.papers.drawn import column_drawing, drawing
from whyformer.papers.printed import csv, markdown
from whyformer.papers.reproduced import Reproduced
from whyformer.papers.running import slug
from whyformer.show.pictures import write_figure
from whyformer.storage import files
from whyformer.storage.files import make_folder, regular


def write(reproduced: Reproduced, out: str | Path) -> list[Path]:
    """Write NAME.md and NAME.csv into a folder, and pictures.

    NAME.png has the curves and bars; of a figure of heads or words there is a picture for each column, of a figure of
    texts a picture and a page for each text.
    """
    out, name = make_folder(out), reproduced.recipe.name

    def place(file: str) -> Path:
        return regular(out / file)

    figure = drawing(reproduced)
    pictures = [] if figure is None else [write_figure(figure, place(f"{name}.png"))]
    pages = []
    for part in reproduced.parts:
        stem = f"{name}-{slug(part.column.label)}"
        own = column_drawing(reproduced, part)
        if own is not None:
            pictures.append(write_figure(own, place(f"{stem}.png")))
        for number, comparison in enumerate(part.examples):
            pictures.append(write_figure(comparison.figure(), place(f"{stem}-{number}.png")))
            pages.append(comparison.to_html(place(f"{stem}-{number}.html")))
    texts = [
        files.write(place(f"{name}.md"), markdown(reproduced, [picture.name for picture in pictures])),
        files.write(place(f"{name}.csv"), csv(reproduced)),
    ]
    return [*texts, *pictures, *pages]
