"""Reproduced as text and files: Markdown, CSV, tables for a terminal, and the pictures beside them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whyformer.explain.explanation import Comparison
from whyformer.show.colors import Scale, largest
from whyformer.show.grid import NONE, Grid, as_markdown, boxed, one_line, plain_grid
from whyformer.show.layout import headline
from whyformer.show.pictures import write_figure
from whyformer.storage import files
from whyformer.storage.files import comma_separated, make_folder, regular
from whyformer_papers.reproduce.recipe import Reproduction
from whyformer_papers.reproduce.result import Reproduced
from whyformer_papers.reproduce.tables import optional_number
from whyformer_papers.reproduce.text_figures import TextFigure, gold_of

if TYPE_CHECKING:
    from rich.console import RenderableType


def markdown(reproduced: Reproduced, pictures: Sequence[str] = ()) -> str:
    """Ours beside the published numbers, how far they agree, and every departure, as Markdown."""
    recipe = reproduced.recipe
    blocks = [f"# {recipe.name}", f"{recipe.paper}. {recipe.title}."]
    blocks += [f"![{recipe.title}]({picture})" for picture in pictures]
    for part in reproduced.parts:
        blocks.append(f"## {part.column.label}")
        for comparison in part.examples:
            blocks += [f"### gold class: {one_line(gold)}"] if (gold := gold_of(comparison)) else []
            blocks += [f"> {one_line(' / '.join(comparison[0].texts))}", headline(comparison[0].prediction)]
            blocks.append(as_markdown(plain_grid(("row", "largest", "strongest"), _strongest(comparison))))
        blocks += [as_markdown(grid) for grid in recipe.grids(reproduced, part)]
    if reproduced.agreements:
        blocks += ["## Agreement", as_markdown(agreement(reproduced))]
    blocks += ["## Departures and notes", "\n".join(f"* {one_line(line)}" for line in reproduced.footer)]
    return "\n\n".join(blocks) + "\n"


def text(reproduced: Reproduced) -> str:
    """All that `markdown` has, for a terminal, with colours if it has some."""
    from whyformer.show.terminal import SafeText, comparison_text, terminal_width, to_text

    width = terminal_width(otherwise=200)
    recipe = reproduced.recipe
    shown: list[RenderableType] = [SafeText(f"{recipe.name} · {recipe.paper}", "bold"), SafeText(f"{recipe.title}\n")]
    for part in reproduced.parts:
        shown.append(SafeText(f"{part.column.label} · {part.model}", "bold"))
        for comparison in part.examples:
            shown += [SafeText(f"gold class: {gold}")] if (gold := gold_of(comparison)) else []
            shown.append(comparison_text(comparison, scale=_scale(recipe)).append("\n"))
        shown += [boxed(grid) for grid in recipe.grids(reproduced, part)]
    if reproduced.agreements:
        shown += [SafeText("Agreement", "bold"), boxed(agreement(reproduced))]
    shown += [SafeText(f"· {line}", "dim") for line in reproduced.footer]
    parts = [to_text(one, width) + ("\n" if isinstance(one, SafeText) else "") for one in shown]
    return "\n".join(line.rstrip() for line in "".join(parts).split("\n")).rstrip("\n")


def csv(reproduced: Reproduced) -> str:
    """One line for each number, with every digit; for a figure of texts, heads or words, one for each of these."""
    return comma_separated(list(reproduced.recipe.csv_lines(reproduced)))


def write(reproduced: Reproduced, out: str | Path) -> list[Path]:
    """Write NAME.md and NAME.csv into a folder, and pictures.

    NAME.png has the curves and bars; of a figure of heads or words there is a picture for each column, of a figure of
    texts a picture and a page for each text.
    """
    folder, recipe = make_folder(out), reproduced.recipe

    def place(file: str) -> Path:
        return regular(folder / file)

    name = recipe.name
    figure = recipe.drawing(reproduced)
    pictures = [] if figure is None else [write_figure(figure, place(f"{name}.png"))]
    pages = []
    for part in reproduced.parts:
        stem = f"{name}-{part.column.slug}"
        drawn = recipe.column_drawing(part)
        if drawn is not None:
            pictures.append(write_figure(drawn, place(f"{stem}.png")))
        for number, comparison in enumerate(part.examples):
            pictures.append(write_figure(comparison.figure(_scale(recipe)), place(f"{stem}-{number}.png")))
            pages.append(comparison.to_html(place(f"{stem}-{number}.html"), _scale(recipe)))
    texts = [
        files.write(place(f"{name}.md"), markdown(reproduced, [picture.name for picture in pictures])),
        files.write(place(f"{name}.csv"), csv(reproduced)),
    ]
    return [*texts, *pictures, *pages]


def agreement(reproduced: Reproduced) -> Grid:
    """How far our order of the methods is the published one."""
    head = ("column", "measure", "rows", "rank correlation", "our best", "published best of these")
    lines = []
    for a in reproduced.agreements:
        best = (", ".join(a.our_best), ", ".join(a.their_best))
        lines.append((a.column, a.measure, str(a.rows), optional_number(a.correlation, 2), *best))
    return plain_grid(head, lines)


def _scale(recipe: Reproduction) -> Scale:
    """Whether the rows of a figure of texts share a scale."""
    return recipe.scale if isinstance(recipe, TextFigure) else "row"


def _strongest(comparison: Comparison, count: int = 5) -> Iterator[tuple[str, str, str]]:
    """The size of the largest score of each row, and the strongest units; then the rows that were refused."""
    for explanation in comparison:
        units = explanation.top(count, by="magnitude")
        strongest = ", ".join(f"{unit.text} {unit.score:+.3g}" for unit in units)
        yield explanation.method, f"{largest(explanation):.3g}", strongest
    yield from ((label, NONE, reason) for label, reason in comparison.refused)
