"""Explanations of many texts as a table, and as a page to sort, search and filter.

The page holds the rows as compact data, and its script draws a few at a time, so it stays usable with ten thousand. A
link may say what is shown: `#word=gorgeous&wrong`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any

import numpy as np

from whyformer.errors import listed
from whyformer.escapes import visible
from whyformer.results.checked import LITTLE
from whyformer.results.explanation import ExplanationData
from whyformer.results.explanations import (
    ExplanationsData,
    KeptExample,
    Reason,
    TableRow,
    other_output,
    reasons,
    table_rows,
)
from whyformer.show import layout
from whyformer.show.colors import FAINT, strengths, two_sided
from whyformer.show.grid import Grid, Words, as_csv, as_markdown, boxed, one_line
from whyformer.show.html import PAGE, STYLE, legend_line, page, shade_of, small_heat
from whyformer.show.layout import are_alike, between, percent

HEAD = ("prediction", "probability", "label", "right", "strongest", "effects")
FIRST = 20  # rows that a terminal or a notebook shows
LONGEST = 60  # characters of a text there
NAMED = 5  # predictions that a summary counts
NAMED_WRONG = 10  # rows that it names


def grid_of(rows: Sequence[TableRow]) -> Grid:
    """The whole table: a column for each text of a pair. If there are several methods, or outputs other than the
    predicted ones are explained, columns name them.
    """
    texts = max((len(row.texts) for row in rows), default=1)
    several, others = len({row.method for row in rows}) > 1, any(row.explained for row in rows)
    what = rows[0].what if rows else "text"
    names = [what] if texts <= 1 else [f"text_{number}" for number in range(1, texts + 1)]
    ours = ("row", *names, *(["method"] * several), *(["explained"] * others), *HEAD)
    own = list(dict.fromkeys(name for row in rows for name in row.columns))
    head = (*ours, *(f"{name} (data)" if name in ours else name for name in own))
    return Grid(head, [(*_line(row, len(names), several, others), *_own_cells(row, own)) for row in rows])


def _own_cells(row: TableRow, names: Sequence[str]) -> list[Words]:
    """The user's own columns of a row."""
    values = [row.columns.get(name, "") for name in names]
    return [Words(str(value), number=value if type(value) in (int, float) else None) for value in values]


def _line(row: TableRow, texts: int, several: bool, others: bool) -> tuple[Words, ...]:
    parts = [*row.texts, *([""] * texts)][:texts]
    right = "" if row.right is None else "yes" if row.right else "no"
    share = Words(percent(row.probability), number=row.probability)
    return (
        Words(str(row.row), number=row.row),
        *map(Words, parts),
        *([Words(row.method)] * several),
        *([Words(row.explained or row.prediction)] * others),
        *(Words(row.prediction), share, Words(row.label or ""), Words(right)),
        *(Words("; ".join(map(strongest_word, row.reasons))), Words(_effects(row))),
    )


def strongest_word(reason: Reason) -> str:
    """A word with its score."""
    return f"{one_line(reason.text)} {reason.score:+.4g}"


def effect(reason: Reason) -> str:
    """What the model says with a word and without it, if that was measured."""
    if reason.effect is None:
        return ""
    if reason.probabilities is None:
        return f"{-reason.effect:+.3g}"
    before, after = reason.probabilities
    if are_alike(before, after) and abs(reason.effect) >= LITTLE:
        return f"{percent(after)} (log-odds {-reason.effect:+.2g})"
    return between(before, after)


def _effects(row: TableRow) -> str:
    """The measured effects: of each word, and of all for the output and all against it."""
    alone = [effect(reason) + " (unlike its score)" * reason.contradicts for reason in row.reasons]
    joint = [f"{reason.text}: {effect(reason)}" for reason in row.together]
    return "; ".join(filter(None, [*alone, *joint]))


def remark(reason: Reason) -> str:
    """The remark next to an effect that is small, or is not what the score says."""
    if reason.effect is not None and abs(reason.effect) < LITTLE:
        return "hardly matters alone"
    side = "for" if (reason.effect or 0) > 0 else "against"
    return f"{side} it, unlike its score" if reason.contradicts else ""


def rows_csv(rows: Sequence[TableRow]) -> str:
    """The table for spreadsheets."""
    return as_csv(grid_of(rows))


def list_csv(result: ExplanationsData[Any]) -> str:
    """The table of explanations for spreadsheets."""
    return rows_csv(list(table_rows(result.examples())))


def list_markdown(result: ExplanationsData[Any]) -> str:
    """The table as Markdown."""
    return as_markdown(grid_of(list(table_rows(result.examples())))) + "\n"


def counted(number: int, what: str) -> str:
    """So many things: `1 text`, `25 images`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def summary(rows: Sequence[TableRow], left_out: int = 0) -> str:
    """How many texts or images there are, what the model predicts, how often it is right, and where it is wrong."""
    one_each = [row for row in rows if row.method == rows[0].method]
    counts = Counter(row.prediction for row in one_each).most_common()
    named = ", ".join(f"{one_line(name)} {number:,}" for name, number in counts[:NAMED])
    parts = [f"Explanations of {counted(len(one_each), rows[0].what if rows else 'text')}"]
    parts[0] += f": {named}" if named else ""
    parts[0] += ", …" if len(counts) > NAMED else ""
    wrong = [row.row for row in one_each if row.right is False]
    right = sum(row.right is True for row in one_each)
    parts += [f"right on {right:,} of {right + len(wrong):,}"] if right or wrong else []
    parts += [f"wrong on {'row' if len(wrong) == 1 else 'rows'} {listed(wrong, NAMED_WRONG)}"] if wrong else []
    labeled = [row for row in one_each if row.label is not None]
    if labeled and not right and not wrong:
        parts.append(f"no label is an output of the model: {listed(sorted({str(r.label) for r in labeled}), NAMED)}")
    parts += [f"{counted(left_out, 'row')} left out"] if left_out else []
    return visible("; ".join(parts))


def _summary_of(result: ExplanationsData[Any]) -> str:
    return summary(list(table_rows(result.examples())), len(result.skipped))


def short(result: ExplanationsData[Any], most: int) -> str:
    """The summary, and a line for each of the first texts."""
    lines = [_summary_of(result)]
    for row in table_rows(islice(result.examples(), most)):
        because = ", ".join(one_line(reason.text) for reason in row.reasons)
        lines.append(f"  {row.row}  {row.prediction} {percent(row.probability)}  {_cut(row.texts)}  ({because})")
    lines += [f"  … and {len(result) - most:,} more"] if len(result) > most else []
    return visible("\n".join(lines))


def list_text(result: ExplanationsData[Any]) -> str:
    """The summary, and the table of the first texts, for a terminal."""
    return rows_text(list(table_rows(result.examples())), len(result.skipped))


def rows_text(rows: Sequence[TableRow], left_out: int = 0) -> str:
    """The summary, and the first rows of the table, for a terminal."""
    from whyformer.show.terminal import to_text

    return f"{summary(rows, left_out)}\n\n{to_text(boxed(_first(rows))).rstrip()}{_more(rows)}"


def list_fragment(result: ExplanationsData[Any]) -> str:
    """The summary, and the table of the first texts, for a notebook."""
    rows = list(table_rows(result.examples()))
    grid, rest = _first(rows), _more(rows).strip()
    head = "".join(f"<th>{escape(name)}</th>" for name in grid.head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell.text)}</td>' for cell in row)}</tr>" for row in grid.rows)
    table = f'<div class="scroll"><table class="rows"><tr>{head}</tr>{body}</table></div>'
    more = f'<p class="soft">{escape(rest)}</p>' if rest else ""
    told = f'<section class="why"><p>{escape(summary(rows, len(result.skipped)))}</p>{table}{more}</section>'
    return visible(f"<style>{STYLE}</style>{told}")


def _first(rows: Sequence[TableRow]) -> Grid:
    """The first rows, as short as people read them; columns that say nothing are left out."""
    head = (
        "row",
        rows[0].what if rows else "text",
        "method",
        "prediction",
        "explained",
        "label",
        "strongest",
        "effects",
    )
    several, lines = len({row.method for row in rows}) > 1, []
    for row in rows[:FIRST]:
        mark = {True: "✓ ", False: "✗ ", None: ""}[row.right]
        said = f"{one_line(row.prediction)} {percent(row.probability)}".rstrip()
        because = ", ".join(map(strongest_word, row.reasons)), _effects(row)
        told = (str(row.row), _cut(row.texts), row.method if several else "", said)
        lines.append((*told, one_line(row.explained), mark + one_line(row.label or ""), *because))
    used = [place for place in range(len(head)) if place < 2 or any(line[place] for line in lines)]
    return Grid(tuple(head[n] for n in used), [tuple(Words(visible(line[n])) for n in used) for line in lines])


def _more(rows: Sequence[TableRow]) -> str:
    return "" if len(rows) <= FIRST else f"\n… and {len(rows) - FIRST:,} more"


def _cut(texts: Sequence[str]) -> str:
    whole = " ⏐ ".join(map(one_line, texts))
    return whole if len(whole) <= LONGEST else whole[: LONGEST - 1] + "…"


LOOK = """
.why.ex,.why.tools,.why.list{max-width:none}
.why.tools{position:sticky;top:0;z-index:2;padding:.5em 1em;display:flex;flex-wrap:wrap;gap:.4em .8em;align-items:center}
.why.tools input,.why.tools select,.why button{font:inherit;color:inherit;background:var(--card);
border:1px solid var(--line);border-radius:.4em;padding:.1em .5em;max-width:100%}
.why button{cursor:pointer}.why button:disabled{opacity:.4;cursor:default}
.why #find{flex:1;min-width:9em}.why #count{white-space:nowrap}
.why.list{padding:.4em .8em;overflow-x:auto}
.why.list table{width:100%;font-size:.95em}.why.list th button{border:0;padding:0;font-weight:600;background:none}
.why.list td{border-top:1px solid var(--line);vertical-align:top}.why.list tr.r{cursor:pointer;scroll-margin-top:7em}
.why.list td.t{width:55%;overflow-wrap:anywhere}.why.list .one{display:-webkit-box;-webkit-box-orient:vertical;
-webkit-line-clamp:2;line-clamp:2;overflow:hidden;line-height:1.7}
.why.list td.t span,.why.open span{border-radius:.25em}
.why.list img{display:block;border-radius:.25em}.why.list td.t:has(img){width:auto}.why.list tr.r img{max-height:6em}
.why.list .n{color:var(--soft);white-space:nowrap}.why.list .wrong{color:#c33}.why.list .right{color:#086}
.why.list .open td{border-top:0;padding-bottom:1em}.why.list .open th{font-weight:normal;vertical-align:top;width:9em;overflow-wrap:anywhere}
.why.list .open table{width:auto}.why.list .open .text{margin:0}
@media (prefers-color-scheme:dark){.why.list .wrong{color:#f77}.why.list .right{color:#4c9}}
@media (max-width:45em){.why.list tr.head{display:none}.why.list tr.r{display:block;border-top:1px solid var(--line);padding:.4em 0}
.why.list tr.r td{display:inline-block;border:0;padding:0 .6em 0 0}.why.list tr.r td.t{display:block;width:auto}
.why.list .open,.why.list .open tbody,.why.list .open tr,.why.list .open td,.why.list .open th{display:block;width:auto}}
"""
TOOLS = """<section class="why tools">
<input id="find" type="search" placeholder="search" aria-label="search">
<select id="where" aria-label="where to search"><option value="find">in the {parts}</option>
<option value="word">a whole word</option><option value="strongest">a strongest word</option></select>
<select id="prediction" aria-label="what the model says"></select><select id="label" aria-label="the label"></select>
<select id="only" aria-label="right or wrong"><option value="">right and wrong</option><option value="wrong">wrong</option>
<option value="right">right</option></select>
<button id="back" type="button" aria-label="those before these">‹</button><span class="soft" id="count" role="status"></span>
<button id="on" type="button" aria-label="the next ones">›</button></section>
<section class="why list"><table><tbody id="rows"></tbody></table><noscript>This page needs JavaScript.</noscript></section>"""
SCRIPT = """<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent), of = id => document.getElementById(id);
const [ROW, TEXT, SAID, AMOUNT, LABEL, RIGHT, REASONS, MARKS, REFUSED, NOTE, PICTURES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const HEAD = [["row", r => r[ROW]], [data.what, r => data.what === "image" ? r[TEXT] : r[TEXT].length], ["prediction", r => data.names[r[SAID]] || ""],
  ["probability", r => parseFloat(r[AMOUNT]) || 0], ["label", r => data.names[r[LABEL]] || ""],
  ["strongest", r => Math.max(0, ...r[REASONS].map(reason => Math.abs(reason[1])))]];
const KINDS = {f: "speaks for it", a: "speaks against it", m: "matters"}, SIZE = 50;
const state = {find: "", word: "", strongest: "", prediction: "", label: "", only: "", sort: "row", page: 0, row: null};
const lower = data.rows.map(r => r[TEXT].toLowerCase());
let shown = [];
function made(tag, text, name) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (name) element.className = name;
  return element;
}
function pictured(row, number) {
  const picture = made("img");
  picture.src = row[PICTURES][number];
  picture.alt = "heat over " + row[TEXT];
  return picture;
}
function painted(row, marks) {
  const box = made("div"), text = row[TEXT];
  for (let at = 0, n = 2; n < marks.length; at += marks[n], n += 2) {
    let code = marks[n + 1], piece = text.slice(at, at + marks[n]);
    const unknown = code > 500; if (unknown) code -= 1000;
    const answer = code > 50; if (answer) code -= 100;
    const letter = marks[1] ? (code < 0 ? "a" : "f") : "m", level = Math.abs(code);
    const span = made("span", piece, (level ? letter + level : "") + (answer ? " answer" : ""));
    if (level) span.title = KINDS[letter] + ", " + level + "/" + data.levels + " of the strongest";
    box.append(level || answer ? span : piece);
    if (unknown) box.append(made("sup", "\\u27e8?\\u27e9", "soft"));
  }
  if (marks.length < 3) box.append(text);
  return box;
}
function inWords(text, word) {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    const before = text.slice(0, at).match(/[\\p{L}\\p{N}_]$/u), behind = text.slice(at + word.length).match(/^[\\p{L}\\p{N}_]/u);
    if (!before && !behind) return true;
  }
  return false;
}
function wanted(row, n) {
  const find = state.find.toLowerCase(), word = state.word.toLowerCase(), strong = state.strongest.toLowerCase();
  if (find && !lower[n].includes(find)) return false;
  if (word && !inWords(lower[n], word)) return false;
  if (strong && !row[REASONS].some(reason => reason[1] !== null && reason[0].toLowerCase() === strong)) return false;
  if (state.prediction && data.names[row[SAID]] !== state.prediction) return false;
  if (state.label && data.names[row[LABEL]] !== state.label) return false;
  return state.only === "" || row[RIGHT] === (state.only === "right" ? 1 : 0);
}
function choose() {
  const down = state.sort.startsWith("-"), by = HEAD.find(head => head[0] === state.sort.replace("-", "")) || HEAD[0];
  shown = data.rows.filter(wanted).map(row => [by[1](row), row]);
  shown.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1][ROW] - b[1][ROW]) * (down ? -1 : 1));
  shown = shown.map(pair => pair[1]);
  if (state.row !== null) {
    const at = shown.findIndex(row => row[ROW] === Number(state.row));
    if (at >= 0) state.page = Math.floor(at / SIZE);
  }
  state.page = Math.max(0, Math.min(state.page, Math.ceil(shown.length / SIZE) - 1));
  draw();
}
function details(row) {
  const line = made("tr", "", "open"), cell = made("td"), table = made("table");
  cell.colSpan = HEAD.length;
  for (const [number, marks] of row[MARKS].entries()) {
    const of_method = made("tr"), text = made("td"), box = painted(row, marks);
    box.className = "text";
    text.append(row[PICTURES] ? pictured(row, number) : box);
    of_method.append(made("th", data.methods[marks[0]]), text);
    table.append(of_method);
  }
  for (const [name, reason] of row[REFUSED]) {
    const of_method = made("tr");
    of_method.append(made("th", name), made("td", reason));
    table.append(of_method);
  }
  if (row[NOTE]) cell.append(made("p", row[NOTE]));
  const words = made("table");
  for (const [word, score, without, remark] of row[REASONS]) {
    const of_word = made("tr"), sign = score > 0 && row[MARKS][0][1] ? "+" : "";
    of_word.append(made("td", word), made("td", score === null ? "" : sign + score, "n"), made("td", without, "n"), made("td", remark, "soft"));
    words.append(of_word);
  }
  cell.append(table, words);
  line.append(cell);
  return line;
}
function lineOf(row) {
  const line = made("tr", "", "r"), text = made("td", "", "t"), box = painted(row, row[MARKS][0] || []);
  line.id = "row-" + row[ROW];
  line.tabIndex = 0;
  box.className = "one";
  if (row[PICTURES]) text.append(pictured(row, 0));
  text.append(box);
  const right = row[RIGHT], mark = right === 1 ? "\\u2713\\u00a0" : right === 0 ? "\\u2717\\u00a0" : "";
  const label = made("td", row[LABEL] < 0 ? "" : mark + data.names[row[LABEL]], right === 1 ? "right" : right === 0 ? "wrong" : "");
  line.append(made("td", String(row[ROW]), "n"), text, made("td", data.names[row[SAID]] || ""), made("td", row[AMOUNT], "n"), label,
    made("td", row[REASONS].filter(reason => reason[1] !== null).map(reason => reason[0]).join(", ")));
  const open = () => {
    if (line.nextSibling && line.nextSibling.className === "open") line.nextSibling.remove();
    else line.after(details(row));
  };
  line.addEventListener("click", open);
  line.addEventListener("keydown", event => { if (event.key === "Enter") open(); });
  return line;
}
function draw() {
  const from = state.page * SIZE, head = made("tr", "", "head");
  for (const [name] of HEAD) {
    const cell = made("th"), button = made("button", name + (state.sort === name ? "\\u00a0\\u2191" : state.sort === "-" + name ? "\\u00a0\\u2193" : ""));
    button.type = "button";
    button.addEventListener("click", () => change({sort: state.sort === name ? "-" + name : name, page: 0}));
    cell.append(button);
    head.append(cell);
  }
  of("rows").replaceChildren(head, ...shown.slice(from, from + SIZE).map(lineOf));
  const last = Math.min(from + SIZE, shown.length), all = data.rows.length.toLocaleString("en");
  of("count").textContent = (shown.length ? (from + 1) + "\\u2013" + last + " of " : "") + shown.length.toLocaleString("en") +
    (shown.length < data.rows.length ? " (" + all + " in all)" : "");
  of("back").disabled = from === 0;
  of("on").disabled = last >= shown.length;
  const line = state.row === null ? null : of("row-" + state.row);
  if (line) { line.click(); line.scrollIntoView(); }
}
function link() {
  const parts = [];
  for (const name of ["find", "word", "strongest", "prediction", "label"])
    if (state[name]) parts.push(name + "=" + encodeURIComponent(state[name]));
  if (state.only) parts.push(state.only);
  if (state.sort !== "row") parts.push("sort=" + state.sort);
  if (state.page) parts.push("page=" + (state.page + 1));
  return "#" + parts.join("&");
}
function change(news) {
  Object.assign(state, {row: null}, news);
  choose();
  history.replaceState(null, "", link());
}
function linked() {
  Object.assign(state, {find: "", word: "", strongest: "", prediction: "", label: "", only: "", sort: "row", page: 0, row: null});
  for (const part of location.hash.slice(1).split("&")) {
    const [name, value = ""] = part.split("="), plain = decoded(value);
    if (name === "wrong" || name === "right") state.only = name;
    else if (name === "page") state.page = Number(plain) - 1 || 0;
    else if (name in state) state[name] = plain;
  }
  const where = ["word", "strongest"].find(name => state[name]) || "find";
  of("where").value = where;
  of("find").value = state[where];
  for (const name of ["prediction", "label", "only"]) of(name).value = state[name];
  choose();
}
function decoded(value) {
  try { return decodeURIComponent(value.replace(/\\+/g, " ")); } catch (error) { return value; }
}
function search() {
  change({find: "", word: "", strongest: "", [of("where").value]: of("find").value, page: 0});
}
for (const [id, place, all] of [["prediction", SAID, "all predictions"], ["label", LABEL, "all labels"]]) {
  const names = [...new Set(data.rows.map(row => data.names[row[place]]).filter(name => name !== undefined))].sort();
  of(id).hidden = names.length < 2 || names.length > 200;
  for (const [value, name] of [["", all], ...names.map(name => [name, name])]) {
    const option = made("option", name);
    option.value = value;
    of(id).append(option);
  }
  of(id).addEventListener("input", () => change({[id]: of(id).value, page: 0}));
}
of("only").hidden = !data.rows.some(row => row[RIGHT] >= 0);
of("only").addEventListener("input", () => change({only: of("only").value, page: 0}));
of("find").addEventListener("input", search);
of("where").addEventListener("input", search);
of("back").addEventListener("click", () => change({page: state.page - 1}));
of("on").addEventListener("click", () => change({page: state.page + 1}));
window.addEventListener("hashchange", linked);
linked();
</script>"""


LEVELS = 10  # of strength, each with a class of the style sheet
ANSWER, UNKNOWN = 100, 1000  # what is added to the level of a unit that is marked, or not known to the tokenizer
KINDS = (("f", True, 1), ("a", True, -1), ("m", False, 1))  # for, against, matters: the letter, two-sided, the sign


class Index:
    """The page of examples as they come in: what is kept of each is a line of data."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, str]] = []
        self._names: dict[str, int] = {}
        self._methods: dict[str, int] = {}
        self._kinds: dict[bool, ExplanationData] = {}
        self._verdicts = {True: 0, False: 0, None: 0}
        self._what = "text"
        self._explained: set[str] = set()  # outputs that are explained though others were predicted

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, example: KeptExample[Any]) -> None:
        """Take an example in."""
        shown = [e.for_people() for e in example.explanations]
        first = shown[0] if shown else None
        self._kinds |= {two_sided(e): e for e in shown if two_sided(e) not in self._kinds}
        self._verdicts[example.right] += 1
        self._explained |= {other_output(e) for e in shown}
        picture = None if first is None else first.image
        if picture is not None:
            self._what = "image"
        facts = [
            example.row,
            "" if first is None else _text(first),
            -1 if first is None else self._named(layout.said(first.prediction)),
            "" if first is None else layout.amount(first.prediction),
            -1 if example.gold is None else self._named(example.gold),
            {True: 1, False: 0, None: -1}[example.right],
            [] if first is None else _reasons(first),
            [self._marks(e) for e in shown],
            [[visible(name), visible(reason)] for name, reason in example.explanations.refused],
            visible("; ".join(filter(None, _notes(first))) if first else ""),
            *([] if picture is None else [[small_heat(e) for e in shown]]),
        ]
        self._rows.append((example.row, _dumped(facts)))

    def page(self, about: Mapping[str, Any]) -> str:
        """The page; `about` has the names of the model and of the data."""
        names = {"methods": list(self._methods), "names": list(self._names), "levels": LEVELS, "what": self._what}
        rows = ",\n".join(row for _, row in sorted(self._rows, key=lambda numbered: numbered[0]))
        data = f'{_dumped(names)[:-1]},"rows":[{rows}]}}'
        title = f"Explained {self._what}s"
        legend = legend_line(list(self._kinds.values())) if self._kinds else ""
        head = f'<section class="why"><h2>{title}</h2><p class="soft">{self._about(about)}</p>{legend}</section>'
        stored = f'<script type="application/json" id="data">{data}</script>'
        body = "\n".join(
            (
                f"<style>{STYLE}{LOOK}{_colours()}</style>",
                head,
                TOOLS.format(parts="names" if self._what == "image" else "texts"),
                stored,
                SCRIPT,
            )
        )
        return visible(PAGE.format(title=title, body=body))

    def _about(self, about: Mapping[str, Any]) -> str:
        names = [str(about[name]) for name in ("model", "data") if about.get(name)]
        known = self._verdicts[True] + self._verdicts[False]
        right = [f"the model is right on {self._verdicts[True]:,} of these {known:,}"] if known else []
        others = sorted(self._explained - {""})
        told = [f"explained: {', '.join(others)}" if len(others) <= 3 else "explained: see each row"] if others else []
        return escape(" · ".join([*names, counted(len(self), self._what), *right, *told]))

    def _named(self, name: str) -> int:
        return self._names.setdefault(visible(name), len(self._names))

    def _marks(self, explanation: ExplanationData) -> list[int]:
        """The method, whether there are two sides, then of each piece of the text its length and its level."""
        method = self._methods.setdefault(visible(layout.called(explanation)), len(self._methods))
        levels, lengths, codes = levels_of(explanation), [0], [0]
        for piece in layout.pieces(explanation):
            code = ANSWER * piece.answer
            if piece.position is not None:
                code += int(levels[piece.position]) + UNKNOWN * explanation.units[piece.position].unknown
            if code != codes[-1] or code not in (0, ANSWER):
                lengths.append(0)
                codes.append(code)
            lengths[-1] += len(visible(piece.text).encode("utf-16-le", "surrogatepass")) // 2  # as scripts count
        marks = [number for pair in zip(lengths, codes, strict=True) if pair[0] for number in pair]
        return [method, int(two_sided(explanation)), *marks]


def _reasons(explanation: ExplanationData) -> list[list[Any]]:
    """The strongest words, each with its score, its effect and a remark; then words that were hidden together."""
    alone: list[list[Any]] = [[r.text, float(f"{r.score:.3g}"), effect(r), remark(r)] for r in reasons(explanation)]
    joint: list[list[Any]] = [[name, None, *told] for name, *told in layout.together_lines(explanation)]
    return [[visible(part) if isinstance(part, str) else part for part in line] for line in (*alone, *joint)]


def _notes(explanation: ExplanationData) -> tuple[str, str | None]:
    return layout.question(explanation) if other_output(explanation) else "", layout.note(explanation)


def _text(explanation: ExplanationData) -> str:
    """What a row is found by: the text, or the name of an image."""
    image = explanation.image
    if image is not None and not explanation.texts:
        return visible(image.name or "")
    return "".join(visible(piece.text) for piece in layout.pieces(explanation))


def levels_of(explanation: ExplanationData) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Strengths in few levels, below zero for what speaks against the target; 0 for what is too faint to be seen."""
    strength = strengths(explanation)
    levels = np.maximum(1, np.round(LEVELS * np.abs(strength)))
    return np.where(np.abs(strength) < FAINT, 0.0, np.sign(strength) * levels).astype(np.int64)


def index_page(examples: Iterable[KeptExample[Any]], about: Mapping[str, Any]) -> str:
    """A page that needs nothing else: no network, no other file; `about` has the names of the model and of the data."""
    index = Index()
    for example in examples:
        index.add(example)
    return index.page(about)


def list_page(result: ExplanationsData[Any]) -> str:
    """The page of a list of explanations: of texts the index, of images a card for each."""
    if any(e.image is not None for e in result):
        return page(result)
    return index_page(result.examples(), {"model": result[0].provenance.get("model")} if len(result) else {})


def _colours() -> str:
    """A class for each kind and level, in place of a style for each unit."""
    every = (
        (letter, level, shade_of(sign * level / LEVELS, signed))
        for letter, signed, sign in KINDS
        for level in range(1, LEVELS + 1)
    )
    return "".join(f".why .{letter}{level}{{background:{shade}}}" for letter, level, shade in every)


def _dumped(value: Any) -> str:
    """JSON that can stand in a script: no text ends that, whatever it holds."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
