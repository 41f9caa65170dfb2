"""The words that a model leans on, as rows of a table: for people, and with every number for spreadsheets."""

from collections.abc import Iterable, Sequence

from whyformer.results.checked import LITTLE
from whyformer.results.shortcuts import LOOK_PART, LOOK_SHARE, STRONGEST, Association, Leaning, LeanWord, WordEffect
from whyformer.results.word_table import TokenTableData
from whyformer.show.grid import NONE, Grid, Words
from whyformer.show.grid import as_csv as grid_csv
from whyformer.show.layout import between

LOOK = "▶"
SHOWN_ROWS = 3
HEAD = ("", "word", "texts", "strongest", "share", "says", "without it", "in the data", "rows")
RULE = f"{LOOK} look here: a strongest word in {{}} of a class's texts or more, with {{}} of their explanation or more"
NUMBERS = ("look", "word", "side", "texts", "strongest", "share", "lift", "reliance")
OF_LABEL = ("label", "label_share", "label_base", "label_z")
OF_EFFECT = ("checked", "before", "after", "log_odds")


def title(table: TokenTableData, leaning: Leaning) -> list[str]:
    """What the table is of, in two lines."""
    texts = sum(leaning.texts.values())
    counted = f"{texts:,} {'text' if texts == 1 else 'texts'}{' of which it is wrong' if leaning.wrong else ''}"
    about = [str(table.provenance[name]) for name in ("model", "data") if table.provenance.get(name)]
    return [f"{table.method}: the words that the model leans on", " · ".join([*about, counted])]


def key(leaning: Leaning) -> list[str]:
    """What the columns mean, those that there are."""
    told = [f"strongest: in how many texts it is among the {STRONGEST} strongest words; share: of a text's explanation"]
    if any(word.effect for word in leaning.words):
        n = max(word.effect.texts for word in leaning.words if word.effect)
        told.append(
            f"without it: the probability of what the model says, and of that once the word is deleted ({n} texts)"
        )
    if any(word.label for word in leaning.words):
        told.append("in the data: how many texts with the word have that label, and of all texts; z: how odd that is")
    if any(word.look for word in leaning.words):
        told.append(RULE.format(whole_percent(LOOK_PART), whole_percent(LOOK_SHARE)))
    return told


def cells(table: TokenTableData, word: LeanWord) -> tuple[str, ...]:
    """What people read of a word, under `HEAD`."""
    rows = ", ".join(map(str, word.rows[:SHOWN_ROWS])) + (" …" if word.texts > SHOWN_ROWS else "")
    return (
        LOOK if word.look else "",
        word.name,
        f"{word.texts:,}",
        f"{word.strongest:,}",
        whole_percent(word.share),
        table.name_of(word.leans_to),
        effect_text(word.effect),
        label_text(table, word.label),
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


def label_text(table: TokenTableData, label: Association | None) -> str:
    """The label that the word goes with, how often, and how often all texts have it."""
    if label is None:
        return NONE
    share, base = whole_percent(label.share), whole_percent(label.base)
    return f"{table.name_of(label.label)} {share} (of all {base}), z {label.z:.1f}"


def rows_for_people(table: TokenTableData, leaning: Leaning, lines: int) -> list[tuple[str, ...]]:
    """The head and the words, without the columns of which nothing is known."""
    rows = [HEAD, *(cells(table, word) for word in leaning.words[:lines])]
    known = [place for place, column in enumerate(zip(*rows[1:], strict=True)) if set(column) - {NONE}]
    return [tuple(row[place] for place in known) for row in rows]


def numbers(tables: Iterable[TokenTableData]) -> Grid:
    """Every number of every word, a row for each; of several methods one after the other."""
    several = list(tables)
    classes = sorted({index for table in several for index in table.totals})
    names = [several[0].name_of(index) for index in classes]
    of_classes = [f"{what} {name}" for name in names for what in ("texts", "strongest", "score")]
    head = ("method", *NUMBERS, *of_classes, *OF_LABEL, *OF_EFFECT, "rows")
    rows = [
        (Words(table.method), *_numbers(table, word, classes))
        for table in several
        for word in (table.leaning.words if table.leaning else ())
    ]
    return Grid(head, rows)


def _numbers(table: TokenTableData, word: LeanWord, classes: Sequence[int]) -> Iterable[Words]:
    plain = (word.texts, word.strongest, word.share, word.lift, word.reliance)
    yield from (Words("yes" if word.look else ""), Words(word.word), Words(word.side or ""))
    yield from map(_number, plain)
    for index in classes:
        of = word.classes.get(index)
        yield from map(_number, (of.texts, of.strongest, of.mean) if of else (0, 0, None))
    label, effect = word.label, word.effect
    yield Words(table.name_of(label.label) if label else "")
    yield from map(_number, (label.share, label.base, label.z) if label else (None,) * 3)
    yield from map(_number, (effect.texts, effect.before, effect.after, effect.log_odds) if effect else (None,) * 4)
    yield Words(" ".join(map(str, word.rows)))


def _number(value: float | None) -> Words:
    return Words("") if value is None else Words(f"{value:.3g}", number=value)


def as_csv(table: TokenTableData) -> str:
    """The words of one method for spreadsheets."""
    return grid_csv(numbers([table]))
