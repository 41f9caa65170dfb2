"""One page of several recipes: each table beside the published numbers, each figure, and why others are not there."""

from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import NamedTuple

from whyformer.show.grid import Grid, unmarked
from whyformer.show.html import PAGE, STYLE
from whyformer_papers.reproduce.output import agreement, markdown
from whyformer_papers.reproduce.result import Reproduced

TITLE = "The papers, done again"
LEFT_OUT = "What was not run"
LEAD = "Our numbers beside the published ones, with every departure from the paper's settings."
WIDE = """body{max-width:100em!important}.why.wide{max-width:none}
.why img{max-width:min(100%,70em);display:block;margin:.6em 0;background:#fff}
.why table{margin:.6em 0}.why thead th{border-bottom:1px solid var(--line)}.why td{border-top:1px solid var(--line)}
.why ul{font-size:.85em}.why h3{margin:1em 0 .2em;font-size:1em}
.why h2 code{font-weight:normal;color:var(--soft);font-size:.8em}"""


class RecipePage(NamedTuple):
    """A recipe that was run, and the names of its pictures."""

    reproduced: Reproduced
    pictures: tuple[str, ...]


def as_html(done: Mapping[str, RecipePage], refused: Mapping[str, str]) -> str:
    """The page for a browser; the pictures lie beside it."""
    contents = "".join(
        f"<li>{escape(paper)}<ul>"
        + "".join(f'<li><a href="#{s.reproduced.recipe.name}">{escape(s.reproduced.recipe.title)}</a></li>' for s in of)
        + "</ul></li>"
        for paper, of in _by_paper(done)
    )
    parts = [f'<section class="why wide"><h2>{TITLE}</h2><p class="soft">{LEAD}</p><ul>{contents}</ul></section>']
    parts += [_section(shown) for shown in done.values()]
    if refused:
        lines = "".join(f"<li><code>{escape(name)}</code>: {escape(reason)}</li>" for name, reason in refused.items())
        parts.append(f'<section class="why wide"><h2>{LEFT_OUT}</h2><ul>{lines}</ul></section>')
    return PAGE.format(title=TITLE, body=f"<style>{STYLE}{WIDE}</style>" + "\n".join(parts))


def _section(shown: RecipePage) -> str:
    reproduced, recipe = shown.reproduced, shown.reproduced.recipe
    parts = [
        f"<h2>{escape(recipe.title)} <code>{recipe.name}</code></h2>",
        f'<p class="soft">{escape(recipe.paper)}</p>',
    ]
    parts += [f'<img loading="lazy" alt="{escape(recipe.title)}" src="{escape(name)}">' for name in shown.pictures]
    for part in reproduced.parts:
        grids = recipe.grids(reproduced, part)
        parts += [f"<h3>{escape(part.column.label)}</h3>"] if grids else []
        parts += map(_table, grids)
    if reproduced.agreements:
        parts += ["<h3>Agreement</h3>", _table(agreement(reproduced))]
    notes = "".join(f"<li>{escape(line)}</li>" for line in reproduced.footer)
    parts.append(f"<details><summary>Departures and notes</summary><ul>{notes}</ul></details>")
    return f'<section class="why wide" id="{recipe.name}">{"".join(parts)}</section>'


def _table(grid: Grid) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in grid.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{f'<b>{escape(c.text)}</b>' if c.bold else escape(c.text)}</td>" for c in row) + "</tr>"
        for row in grid.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def as_markdown(done: Mapping[str, RecipePage], refused: Mapping[str, str]) -> str:
    """The page as Markdown; the pictures lie beside it."""
    blocks = [f"# {TITLE}", LEAD]
    for paper, of in _by_paper(done):
        lines = [f"* [{unmarked(s.reproduced.recipe.title)}](#{s.reproduced.recipe.name})" for s in of]
        blocks.append(f"{unmarked(paper)}:\n\n" + "\n".join(lines))
    for shown in done.values():
        lines = markdown(shown.reproduced, shown.pictures).rstrip("\n").split("\n")
        blocks.append("\n".join(f"#{line}" if line.startswith("#") else line for line in lines))
    if refused:
        lines = [f"* `{name}`: {unmarked(reason)}" for name, reason in refused.items()]
        blocks += [f"## {LEFT_OUT}", "\n".join(lines)]
    return "\n\n".join(blocks) + "\n"


def _by_paper(done: Mapping[str, RecipePage]) -> Iterator[tuple[str, list[RecipePage]]]:
    for paper, of in groupby(done.values(), key=lambda shown: shown.reproduced.recipe.paper):
        yield paper, list(of)
