"""Curves of results as matplotlib figures, and the folder or the page that holds them beside the tables."""

import base64
import math
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from matplotlib.figure import Figure

from whyformer.errors import BadInput
from whyformer.escapes import literal
from whyformer.results.evaluation import REFERENCES, TableData
from whyformer.show.figures import NotebookFigure
from whyformer.show.html import PAGE
from whyformer.show.pictures import curve_legend, figure_bytes, ruled, write_figure
from whyformer.show.tables import ARROWS, as_csv, as_html, as_latex, as_markdown, curves_csv
from whyformer.storage.files import make_folder, regular, write

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: told apart by all
MARKERS = ("o", "s", "^", "D", "v", "P")
FAINT_STYLES = ("-", ":", "-.")
REFERENCE_STYLES = {"ceiling": (0, (6, 2)), "chance": (0, (2, 2))}
GREY = "#666666"
USUAL_LABEL = 40  # letters; beside a longer one the curves keep their width
RANDOM = "random"
TITLE = "Which explanation should I believe?"
CARD = """<section class="why">
<img alt="{alt}" style="max-width:100%" src="data:image/png;base64,{data}"></section>"""

Curve = tuple[tuple[float, ...], tuple[float, ...]]  # where it is taken, and the means there


def figure(table: TableData, metric: str) -> Figure:
    """The mean curve of every method: the best few in strong colours, the others thin, references dashed and grey."""
    curves = _curves(table, metric)
    if not curves:
        raise BadInput(f"{metric} has no curve in this table: nothing was measured at more than one point")
    strong = _best(table, metric, [method for method in curves if method not in REFERENCES])
    thin = [method for method in curves if method not in (*strong, *REFERENCES)]
    at = next(iter(curves.values()))[0]
    shares = max(at) <= 1
    wide = 8.5 + 0.075 * max(0, max(map(len, curves)) - USUAL_LABEL)
    drawn = NotebookFigure(figsize=(wide, max(4.5, 0.24 * len(curves) + 0.6)), layout="constrained")
    axes = drawn.subplots()
    look: dict[str, Any]
    for method, (places, means) in curves.items():
        if method in REFERENCES:
            look = {"color": GREY, "linestyle": REFERENCE_STYLES[method], "linewidth": 1.6, "zorder": 2}
        elif method in strong:
            place = strong.index(method)
            look = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 5, "linewidth": 2.2, "zorder": 4}
        else:
            look = {**thin_look(thin.index(method)), "linewidth": 1.1, "alpha": 0.8}
        axes.plot([100 * p for p in places] if shares else places, means, label=literal(method), **look)
    axes.set_xlabel("units, highest-ranked first (%)" if shares else "k: the highest-ranked units")
    axes.set_ylabel(literal(f"{metric.partition('(')[0]}, mean over the examples"))
    arrow = ARROWS[table.facts[metric].get("higher_is_better")]
    axes.set_title(literal(f"{metric} {arrow}"), loc="left", fontsize=11)
    ruled(axes)
    curve_legend(drawn, axes, loc="outside right upper")
    return drawn


def thin_look(place: int) -> dict[str, Any]:
    """A colour and a line style for the curve of that number: the colours are used up before the styles."""
    style = FAINT_STYLES[place // len(COLOURS) % len(FAINT_STYLES)]
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": style}


def _curves(table: TableData, metric: str) -> dict[str, Curve]:
    curves = {method: table.curve(method, metric) for method in table.methods}
    return {method: curve for method, curve in curves.items() if curve and len(curve[0]) > 1}


def _best(table: TableData, metric: str, methods: list[str]) -> list[str]:
    """As many methods as there are colours, the best first."""
    means = {method: cell.mean for method in methods if (cell := table[method, metric])}
    return table.ranked(metric, {m: mean for m, mean in means.items() if not math.isnan(mean)})[: len(COLOURS)]


def save(table: TableData, folder: str | Path) -> list[Path]:
    """Write the table in three formats, the points of all curves, and a picture of those of each metric."""
    folder = make_folder(folder)
    texts = {"md": as_markdown(table), "csv": as_csv(table), "tex": as_latex(table)}
    written = [write(regular(folder / f"table.{kind}"), text) for kind, text in texts.items()]
    if points := curves_csv(table):
        written.append(write(regular(folder / "curves.csv"), points))
    for metric in table.metrics:
        if _curves(table, metric):
            name = quote(metric.replace(", ", ","), safe="(),=", errors="backslashreplace")
            written.append(write_figure(figure(table, metric), regular(folder / f"curves-{name}.png")))
    return written


def verdicts(table: TableData) -> list[str]:
    """An answer for each metric: the best method and those that cannot be told from it, if they beat chance."""
    sentences = []
    methods = [method for method in table.methods if method not in REFERENCES]
    for metric in table.metrics:
        best = table.best(metric, methods)
        cell = None if best is None else table[best, metric]
        if best is None or cell is None:
            continue
        tied = [name for name in table.tied(metric, methods) if name != best]
        if RANDOM in (best, *tied):
            sentences.append(f"By {metric} none: nothing is reliably better than a random order.")
            continue
        beside = (
            f"; {' and '.join((', '.join(tied[:-1]), tied[-1])[len(tied) < 2 :])} cannot be told from it"
            if tied
            else ""
        )
        sentences.append(f"By {metric} believe {best} ({cell.mean:.3f}){beside}.")
    return sentences


def report_page(table: TableData) -> str:
    """The tables, and the curves as pictures, in a page that needs nothing else: no network, no other file."""
    about = table.run.get("about", {})
    names = " · ".join(escape(str(about[name])) for name in ("model", "data") if about.get(name))
    answers = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdicts(table))
    parts = [f'<section class="why"><h2>{TITLE}</h2>{answers}<p class="soft">{names}</p></section>', as_html(table)]
    for metric in table.metrics:
        if _curves(table, metric):
            alt = escape(f"{metric}: the mean of each method against the share of units")
            picture = base64.b64encode(figure_bytes(figure(table, metric), "png", dpi=120)).decode()
            parts.append(CARD.format(alt=alt, data=picture))
    return PAGE.format(title=TITLE, body="\n".join(parts))
