"""The words that a model relies on: as a table for people, as numbers for spreadsheets, and as a page."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from whyformer.escapes import visible
from whyformer.inputs.units import Unit
from whyformer.results.checked import LITTLE
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.results.explanations import KeptExample
from whyformer.results.shortcuts import (
    LOOK_PART,
    LOOK_SHARE,
    STRONGEST,
    Association,
    ExplainedText,
    ShortcutReportData,
    ShortcutWord,
    WordEffect,
)
from whyformer.show import layout
from whyformer.show.grid import NONE, Grid, Words, pipes, unmarked
from whyformer.show.grid import as_csv as grid_csv
from whyformer.show.html import PAGE, STYLE, legend_line, marked_text
from whyformer.show.layout import between
from whyformer.tasks.targets import Label, Predicted

LINES = 10  # words that are printed
MARK = "▶"
SHOWN_ROWS = 3
HEAD = ("", "word", "texts", "strongest", "share", "says", "without it", "in the data", "rows")
RULE = f"{MARK} look here: a strongest word in {{}} of a class's texts or more, with {{}} of their explanation or more"
NUMBERS = ("look", "word", "side", "texts", "strongest", "share", "lift", "reliance")
OF_LABEL = ("label", "label_share", "label_base", "label_z")
OF_EFFECT = ("checked", "before", "after", "log_odds")


def as_text(report: ShortcutReportData, lines: int = LINES) -> str:
    """The words for a terminal, the ones that the model relies on most first."""
    columns = aligned(rows_for_people(report, lines), ("texts", "strongest", "share"))
    return visible("\n".join([*title(report), "", *columns, "", *key(report)]))


def as_markdown(report: ShortcutReportData, lines: int = LINES) -> str:
    """The same as a Markdown table."""
    rows = [list(map(unmarked, row)) for row in rows_for_people(report, lines)]
    above, below = ("  \n".join(map(unmarked, of)) for of in (title(report), key(report)))
    return f"{above}\n\n{pipes(rows)}\n\n{below}\n"


def aligned(rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> list[str]:
    """Rows in columns; those whose head is one of `numbers` stand at the right."""
    from rich.cells import cell_len

    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    right = [head in numbers for head in shown[0]]
    return ["   ".join(map(_padded, row, widths, right)).rstrip() for row in shown]


def _padded(cell: str, width: int, right: bool) -> str:
    from rich.cells import cell_len, set_cell_size

    return " " * (width - cell_len(cell)) + cell if right else set_cell_size(cell, width)


def title(report: ShortcutReportData) -> list[str]:
    """What the table is of, in two lines."""
    texts = sum(report.texts.values())
    counted = f"{texts:,} {'text' if texts == 1 else 'texts'}{' of which it is wrong' if report.wrong else ''}"
    about = [str(report.provenance[name]) for name in ("model", "data") if report.provenance.get(name)]
    return [f"{report.method}: the words that the model relies on", " · ".join([*about, counted])]


def key(report: ShortcutReportData) -> list[str]:
    """What the columns mean, those that there are."""
    told = [f"strongest: in how many texts it is among the {STRONGEST} strongest words; share: of a text's explanation"]
    if any(word.effect for word in report.words):
        n = max(word.effect.texts for word in report.words if word.effect)
        told.append(
            f"without it: the probability of what the model says, and of that once the word is deleted ({n} texts)"
        )
    if any(word.label for word in report.words):
        told.append("in the data: how many texts with the word have that label, and of all texts; z: how odd that is")
    if any(word.look for word in report.words):
        told.append(RULE.format(whole_percent(LOOK_PART), whole_percent(LOOK_SHARE)))
    return told


def cells(report: ShortcutReportData, word: ShortcutWord) -> tuple[str, ...]:
    """What people read of a word, under `HEAD`."""
    rows = ", ".join(map(str, word.rows[:SHOWN_ROWS])) + (" …" if word.texts > SHOWN_ROWS else "")
    return (
        MARK if word.look else "",
        word.name,
        f"{word.texts:,}",
        f"{word.strongest:,}",
        whole_percent(word.share),
        report.name_of(word.leans_to),
        effect_text(word.effect),
        label_text(report, word.label),
        rows,
    )


def whole_percent(share: float) -> str:
    """A share, without digits that nobody needs."""
    return f"{100 * share:.0f} %"


def effect_text(effect: WordEffect | None) -> str:
    """What the model says with the word and without it; in brackets if that hardly differs."""
    if effect is None:
        return NONE
    arrow = between(effect.before, effect.after)
    return arrow if abs(effect.log_odds) >= LITTLE else f"({arrow})"


def label_text(report: ShortcutReportData, label: Association | None) -> str:
    """The label that the word goes with, how often, and how often all texts have it."""
    if label is None:
        return NONE
    share, base = whole_percent(label.share), whole_percent(label.base)
    return f"{report.name_of(label.label)} {share} (of all {base}), z {label.z:.1f}"


def rows_for_people(report: ShortcutReportData, lines: int) -> list[tuple[str, ...]]:
    """The head and the words, without the columns of which nothing is known."""
    rows = [HEAD, *(cells(report, word) for word in report.words[:lines])]
    known = [place for place, column in enumerate(zip(*rows[1:], strict=True)) if set(column) - {NONE}]
    return [tuple(row[place] for place in known) for row in rows]


def numbers(reports: Iterable[ShortcutReportData]) -> Grid:
    """Every number of every word, a row for each; of several methods one after the other."""
    several = list(reports)
    classes = sorted({index for one in several for index in one.texts})
    names = [several[0].name_of(index) for index in classes]
    of_classes = [f"{what} {name}" for name in names for what in ("texts", "strongest", "score")]
    head = ("method", *NUMBERS, *of_classes, *OF_LABEL, *OF_EFFECT, "rows")
    rows = [(Words(one.method), *_numbers(one, word, classes)) for one in several for word in one.words]
    return Grid(head, rows)


def _numbers(report: ShortcutReportData, word: ShortcutWord, classes: Sequence[int]) -> Iterable[Words]:
    plain = (word.texts, word.strongest, word.share, word.lift, word.reliance)
    yield from (Words("yes" if word.look else ""), Words(word.word), Words(word.side or ""))
    yield from map(_number, plain)
    for index in classes:
        of = word.classes.get(index)
        yield from map(_number, (of.texts, of.strongest, of.mean) if of else (0, 0, None))
    label, effect = word.label, word.effect
    yield Words(report.name_of(label.label) if label else "")
    yield from map(_number, (label.share, label.base, label.z) if label else (None,) * 3)
    yield from map(_number, (effect.texts, effect.before, effect.after, effect.log_odds) if effect else (None,) * 4)
    yield Words(" ".join(map(str, word.rows)))


def _number(value: float | None) -> Words:
    return Words("") if value is None else Words(f"{value:.3g}", number=value)


def as_csv(report: ShortcutReportData) -> str:
    """The words of one method for spreadsheets."""
    return grid_csv(numbers([report]))


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
