"""The words that a model relies on as one self-contained page: a table that can be sorted, and the texts behind it."""

from collections.abc import Mapping
from html import escape

import numpy as np

from whyformer.escapes import visible
from whyformer.inputs.units import Unit
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.results.kept import KeptExample
from whyformer.results.shortcuts import ExplainedText, ShortcutReportData, ShortcutWord
from whyformer.show import layout
from whyformer.show.grid import NONE
from whyformer.show.html import PAGE, STYLE, legend_line, marked_text
from whyformer.show.shortcuts import MARK, effect_text, key, label_text, title, whole_percent
from whyformer.tasks.label import Label, Predicted

Reports = Mapping[str, ShortcutReportData]

TITLE = "The words that the model relies on"
MOST_CLASSES = 6  # that have a column
PAGE_STYLE = """
body{max-width:84em}.why.words{max-width:none}.words table{width:100%}
.words td,.words th{border-top:1px solid var(--line);white-space:nowrap}
.words th button{all:unset;cursor:pointer;font-weight:600}
.words th button:hover,.words th button:focus{text-decoration:underline}
.words th[aria-sort=ascending] button:after{content:" ▲"}.words th[aria-sort=descending] button:after{content:" ▼"}
.words .n{text-align:right;font-variant-numeric:tabular-nums}.words .look{font-weight:700}.words p{margin:.3em 0}
.words .bar{width:4em;display:inline-block;vertical-align:middle;margin-left:.5em}.words a{color:inherit}
.why.ex{max-width:none;scroll-margin-top:1em;border-left:.35em solid var(--line)}.why.ex.wrong{border-left-color:#c33}
.why.ex:target{outline:.15em solid currentColor}.why.ex th{font-weight:normal;width:11em;overflow-wrap:anywhere}
"""
SCRIPT = """<script>
document.querySelectorAll(".words th button").forEach(button => button.addEventListener("click", () => {
  const head = button.parentNode, body = head.closest("table").tBodies[0];
  const down = head.getAttribute("aria-sort") !== "descending";
  head.parentNode.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const of = row => row.cells[head.cellIndex].dataset.v, sign = down ? -1 : 1;
  [...body.rows].sort((a, b) => {
    const x = of(a), y = of(b);
    return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
  }).forEach(row => body.append(row));
}));
</script>"""


def shortcuts_page(reports: ShortcutReportData | Reports) -> str:
    """A table for each method, and under them the texts that are named there."""
    several = {reports.method: reports} if isinstance(reports, ShortcutReportData) else dict(reports)
    parts = [_table(report) for report in several.values()]
    examples = _examples(several)
    shown = {e.signed: e for example in examples for e in example.explanations}
    parts += [f'<section class="why words">{legend_line(list(shown.values()))}</section>'] if shown else []
    parts += [_card(example) for example in examples]
    style = f"<style>{STYLE}{PAGE_STYLE}</style>"
    return visible(PAGE.format(title=TITLE, body="\n".join((style, *parts, SCRIPT))))


def _table(report: ShortcutReportData) -> str:
    first, about = title(report)
    classes = sorted(report.texts)[:MOST_CLASSES]
    sides = any(word.side for word in report.words)
    titles = ["look", "word", *(["side"] if sides else []), "texts", "strongest", "share", "without it", "in the data"]
    scores = [f"score, {report.name_of(index)}" for index in classes]
    head = "".join(map(_head, titles)) + '<th scope="col">rows</th>' + "".join(map(_head, scores))
    body = "".join(_row(report, word, classes, sides) for word in report.words)
    told = "".join(f'<p class="soft">{escape(line)}</p>' for line in key(report))
    above = f'<h2>{escape(first)}</h2><p class="soft">{escape(about)}</p>'
    grid = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<section class="why words">{above}<div class="scroll">{grid}</div>{told}</section>'


def _row(report: ShortcutReportData, word: ShortcutWord, classes: list[int], sides: bool) -> str:
    bar = f'<span class="bar"><i style="width:{100 * min(1.0, word.share):.0f}%"></i></span>'
    effect, label = word.effect, word.label
    cells = [
        _cell(MARK if word.look else "", int(word.look)),
        _cell(word.word, word.word, "look" if word.look else ""),
        *([_cell(word.side or "", word.side or "")] if sides else []),
        _cell(f"{word.texts:,}", word.texts, "n"),
        _cell(f"{word.strongest:,}", word.strongest, "n"),
        _cell(whole_percent(word.share), word.share, "n", bar),
        _cell(effect_text(effect), effect.log_odds if effect else 0, "n"),
        _cell(label_text(report, label), label.z if label else 0),
    ]
    cells.append(f"<td>{', '.join(_link(row, report) for row in word.rows)}</td>")
    for index in classes:
        of = word.classes.get(index)
        cells.append(_cell(f"{of.mean:+.3g}" if of else NONE, of.mean if of else 0, "n"))
    return f"<tr>{''.join(cells)}</tr>"


def _head(title: str) -> str:
    return f'<th scope="col"><button>{escape(title)}</button></th>'


def _cell(text: str, value: float | str, kind: str = "", more: str = "") -> str:
    return f'<td class="{kind}" data-v="{escape(str(value))}">{escape(text)}{more}</td>'


def _card(example: KeptExample[ComparisonData[ExplanationData]]) -> str:
    """One text with its methods under each other; its place on the page is called by its row."""
    rows = "".join(
        f'<tr><th>{escape(layout.called(e))}</th><td><div class="text">{marked_text(e)}</div></td></tr>'
        for e in example.explanations
    )
    mark = "" if example.right is None else "✓ " if example.right else "✗ "
    gold = "" if example.gold is None else f" · {mark}label: {escape(example.gold)}"
    said = escape(layout.headline(example.explanations[0].prediction))
    heading = f'<h2>{said}<span class="soft">{gold} · row {example.row}</span></h2>'
    wrong = " wrong" if example.right is False else ""
    table = f'<table class="rows">{rows}</table>'
    return f'<section class="why ex{wrong}" id="row-{example.row}">{heading}{table}</section>'


def _link(row: int, report: ShortcutReportData) -> str:
    return f'<a href="#row-{row}">{row}</a>' if row in report.examples else str(row)


def _examples(reports: Reports) -> list[KeptExample[ComparisonData[ExplanationData]]]:
    """The texts that are named, each with what every method says of it, in order of their rows."""
    by_row: dict[int, list[tuple[ShortcutReportData, ExplainedText]]] = {}
    for report in reports.values():
        for row, text in report.examples.items():
            by_row.setdefault(row, []).append((report, text))
    examples = []
    for row, explained in sorted(by_row.items()):
        (report, text), *_ = explained
        gold = None if text.gold is None else report.name_of(text.gold)
        right = None if text.gold is None else not text.is_wrong
        shown = ComparisonData(tuple(_explanation(*one) for one in explained))
        examples.append(KeptExample(row, gold, right, shown))
    return examples


def _explanation(report: ShortcutReportData, text: ExplainedText) -> ExplanationData:
    """The words of a text with their scores, as cards are made of."""
    units = tuple(Unit(word.text, "word", word.span, word.part) for word in text.words)
    label = report.name_of(text.predicted)
    said = Predicted(label, text.predicted, text.probability, (), None, tuple(report.labels))
    scores, target = np.array([word.score for word in text.words]), Label(text.predicted, label)
    return ExplanationData(units, scores, said, target, report.method, text.signed, text.texts)
