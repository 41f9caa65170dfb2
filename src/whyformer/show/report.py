"""An evaluation as one self-contained page: the tables, and the curves as pictures inside it."""

import base64
import io
from html import escape

from whyformer.results.table import TableData
from whyformer.show.html import PAGE
from whyformer.show.tables import as_html

TITLE = "Which explanation should I believe?"
CARD = """<section class="why"><h2>{title}</h2>
<img alt="{alt}" style="max-width:100%" src="data:image/png;base64,{data}"></section>"""


def report_page(table: TableData) -> str:
    """A page that needs nothing else: no network, no other file."""
    about = table.run.get("about", {})
    names = " · ".join(escape(str(about[name])) for name in ("model", "data") if about.get(name))
    head = f'<section class="why"><h2>{TITLE}</h2><p class="soft">{names}</p></section>'
    curves = [_picture(table, metric) for metric in table.metrics if _has_curve(table, metric)]
    return PAGE.format(title=TITLE, body="\n".join([head, as_html(table), *curves]))


def _has_curve(table: TableData, metric: str) -> bool:
    return any(table.curve(method, metric) for method in table.methods)


def _picture(table: TableData, metric: str) -> str:
    from whyformer.show.curves import figure

    held = io.BytesIO()
    figure(table, metric).savefig(held, format="png", dpi=120)
    told = f"{metric}: the mean of each method against the share of units"
    return CARD.format(title=escape(metric), alt=escape(told), data=base64.b64encode(held.getvalue()).decode())
