"""The explained texts of an evaluation on one page: several methods under each text, with a search box."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from whyformer.escapes import visible
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.results.kept import KeptExample
from whyformer.show import layout
from whyformer.show.colours import FAINT, scaled, two_sided
from whyformer.show.html import PAGE, STYLE, legend_line, marked_text, note_line, shade_of

LEVELS = 10  # of strength, each with a class of the style sheet
TITLE = "Explained texts"
KINDS = (("f", True, 1), ("a", True, -1), ("m", False, 1))  # for, against, matters: the letter, two-sided, the sign
CLASSES = {
    shade_of(sign * level / LEVELS, signed): f"{letter}{level}"
    for letter, signed, sign in KINDS
    for level in range(1, LEVELS + 1)
}
PAINTED = re.compile('<span class="u" title="[^"]*"(?: style="background:([^"]*)")?>')  # as html.py writes a unit
LOOK = """
.why.ex{max-width:none;content-visibility:auto;contain-intrinsic-size:auto 12em;scroll-margin-top:4em;
border-left:.35em solid var(--line)}
.why.wrong{border-left-color:#c33}.why.right{border-left-color:#086}.why .verdict{font-weight:600}
.why.wrong .verdict,nav .wrong{color:#c33}.why.right .verdict{color:#086}
.why h2 .soft{font-weight:normal}.why h2 .verdict{font-size:.87em;margin:0 1em}
.why.ex .rows{margin-top:.6em}.why.ex .rows th{width:11em;overflow-wrap:anywhere;font-weight:normal}
.why.ex .text span{border-radius:.25em;padding:.1em 0}
.why.tools{position:sticky;top:0;z-index:2;max-width:none;padding:.5em 1em;
display:flex;flex-wrap:wrap;gap:.4em 1em;align-items:center}
.why input,.why select{font:inherit;color:inherit;background:var(--card);
border:1px solid var(--line);border-radius:.4em;padding:.1em .5em}
.why #find{flex:1;min-width:10em}.why #row{width:6em}
.why nav{columns:5em;font-size:.85em;max-height:14em;overflow:auto}
.why nav a{display:block;color:inherit}
"""
TOOLS = """<section class="why tools">
<input id="find" type="search" placeholder="search texts and labels" aria-label="search texts and labels">
<select id="only" aria-label="which texts are shown"><option value="">all</option><option value="wrong">wrong</option>
<option value="right">right</option></select>
<input id="row" type="number" min="0" placeholder="row" aria-label="jump to a row">
<span class="soft" id="count" role="status"></span></section>"""
SCRIPT = """<script>
const cards = [...document.querySelectorAll(".ex")], of = id => document.getElementById(id);
let texts = null;
function choose() {
  texts = texts || cards.map(card => card.textContent.toLowerCase());
  const words = of("find").value.toLowerCase(), only = of("only").value;
  let shown = 0;
  cards.forEach((card, n) => {
    card.hidden = !texts[n].includes(words) || (only !== "" && !card.classList.contains(only));
    shown += !card.hidden;
  });
  of("count").textContent = shown + " of " + cards.length;
}
of("find").addEventListener("input", choose);
of("only").addEventListener("input", choose);
of("row").addEventListener("change", () => {
  const card = of("row-" + of("row").value);
  if (card) card.scrollIntoView();
});
const kinds = {f: "speaks for it", a: "speaks against it", m: "matters"};
document.addEventListener("mouseover", event => {
  const level = /^([fam])(\\d+)$/.exec(event.target.className);
  if (level) event.target.title = kinds[level[1]] + ", " + level[2] + "/10 of the strongest";
});
</script>"""

Example = KeptExample[ComparisonData[ExplanationData]]


def examples_page(examples: Iterable[KeptExample[Any]], run: Mapping[str, Any]) -> str:
    """A page that needs nothing else: no network, no other file; `run` says what was evaluated."""
    cards: list[str] = []
    links: list[str] = []
    kinds: dict[bool, ExplanationData] = {}
    verdicts: list[bool | None] = []
    for example in examples:
        cards.append(_card(example))
        links.append(f'<a class="{_verdict(example.right)}" href="#row-{example.row}">{example.row}</a>')
        verdicts.append(example.right)
        kinds |= {two_sided(e): e for e in example.explanations if two_sided(e) not in kinds}
    legend = legend_line(list(kinds.values())) if kinds else ""
    jump = f"<details><summary>jump to a row</summary><nav>{''.join(links)}</nav></details>"
    head = f'<section class="why"><h2>{TITLE}</h2><p class="soft">{_about(run, verdicts)}</p>{legend}{jump}</section>'
    body = "\n".join((f"<style>{STYLE}{LOOK}{_colours()}</style>", head, TOOLS, *cards, SCRIPT))
    return visible(PAGE.format(title=TITLE, body=body))


def _about(run: Mapping[str, Any], verdicts: list[bool | None]) -> str:
    about = run.get("about", {})
    names = [str(about[name]) for name in ("model", "data") if about.get(name)]
    known = [right for right in verdicts if right is not None]
    counted = f"{len(verdicts):,} text{'' if len(verdicts) == 1 else 's'}"
    right = [f"the model is right on {sum(known):,} of these {len(known):,}"] if known else []
    return escape(" · ".join([*names, counted, *right]))


def _colours() -> str:
    """A class for each kind and level, in place of a style for each unit."""
    return "".join(f".why .{name}{{background:{shade}}}" for shade, name in CLASSES.items())


def _card(example: Example) -> str:
    explanations, verdict = example.explanations, _verdict(example.right)
    rows = "".join(
        f'<tr><th>{escape(layout.called(e))}</th><td><div class="text">{_compact(e)}</div></td></tr>'
        for e in explanations
    )
    rows += "".join(f"<tr><th>{escape(m)}</th><td>{escape(reason)}</td></tr>" for m, reason in explanations.refused)
    headline = "".join(escape(layout.headline(e.prediction)) for e in explanations[:1])
    gold = "" if example.gold is None else f"{_mark(example.right)}gold: {escape(example.gold)}"
    note = "".join(note_line(e) for e in explanations[:1])
    heading = f'<h2>{headline}<span class="verdict">{gold}</span><span class="soft">row {example.row}</span></h2>{note}'
    table = f'<table class="rows">{rows}</table>'
    return f'<section class="why ex {verdict}" id="row-{example.row}">{heading}{table}</section>'


def _verdict(right: bool | None) -> str:
    return "" if right is None else "right" if right else "wrong"


def _mark(right: bool | None) -> str:
    return "" if right is None else "✓ " if right else "✗ "


def _compact(explanation: ExplanationData) -> str:
    """The text as pages show it, with strengths in few levels, each of which is a class."""
    shown = np.array([not unit.special for unit in explanation.units])
    strength = scaled(np.where(shown, explanation.scores, 0.0))
    levels = np.maximum(1, np.round(LEVELS * np.abs(strength)))
    few = np.where(np.abs(strength) < FAINT, 0.0, np.sign(strength) * levels)
    return PAINTED.sub(_painted, marked_text(replace(explanation, scores=few)))


def _painted(unit: re.Match[str]) -> str:
    return "<span>" if unit[1] is None else f'<span class="{CLASSES[unit[1]]}">'
