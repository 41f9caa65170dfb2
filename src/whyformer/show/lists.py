"""Explanations of many texts as a table: for a terminal, a spreadsheet, Markdown, a notebook."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import islice
from typing import Any

from whyformer.errors import listed
from whyformer.escapes import visible
from whyformer.results.checked import LITTLE
from whyformer.results.explanations import ExplanationsData, Reason, TableRow, table_rows
from whyformer.show.grid import Grid, Words, as_csv, as_markdown, boxed, one_line
from whyformer.show.html import STYLE
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
