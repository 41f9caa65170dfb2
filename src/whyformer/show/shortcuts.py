"""The words that a model relies on, as rows of a table: for people, and with every number for spreadsheets."""

from collections.abc import Iterable, Sequence

from whyformer.escapes import visible
from whyformer.results.checked import LITTLE
from whyformer.results.shortcuts import (
    LOOK_PART,
    LOOK_SHARE,
    STRONGEST,
    Association,
    ShortcutReportData,
    ShortcutWord,
    WordEffect,
)
from whyformer.show.grid import NONE, Grid, Words, pipes, unmarked
from whyformer.show.grid import as_csv as grid_csv
from whyformer.show.layout import between

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
