"""The parts of the index page that never change: how it looks, its tools and its script."""

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
