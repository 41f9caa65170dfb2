"""The page and the tables of the words that a model relies on."""

import csv
import re
from dataclasses import replace

from whyformer import ShortcutReport
from whyformer.results.shortcuts import Association, ClassStats, ExplainedText, ScoredWord, ShortcutWord, WordEffect
from whyformer.show.shortcuts import shortcuts_page

LABELS = ("no", "<b>yes")


def held(row: int, gold: int | None = 1) -> ExplainedText:
    words = (ScoredWord("<i>", 0, (0, 3), 2.0), ScoredWord("bad", 0, (4, 7), -1.0))
    return ExplainedText(row, ("<i> bad",), words, 1, 0.75, gold)


WORDS = (
    ShortcutWord(
        "<i>",
        None,
        40,
        30,
        0.5,
        6.0,
        9.0,
        {0: ClassStats(10, 5, -5.0), 1: ClassStats(30, 25, 45.0)},
        (7, 3, 90, 91),
        Association(1, 40, 0.9, 0.5, 5.06),
        WordEffect(4, 0.99, 0.4, 5.0),
        True,
    ),
    ShortcutWord(
        "bad", None, 1, 1, 0.25, 2.0, 1.0, {1: ClassStats(1, 1, -1.0)}, (3,), None, WordEffect(1, 0.9, 0.9, 0.01)
    ),
)


def report(words: tuple[ShortcutWord, ...] = WORDS, method: str = "attcat") -> ShortcutReport:
    about = {"model": "m&m", "data": "d"}
    counts = {0: 50, 1: 50}
    return ShortcutReport(
        method=method,
        labels=LABELS,
        words=words,
        texts=counts,
        golds=counts,
        examples={3: held(3), 7: held(7, 0)},
        provenance=about,
    )


def test_words_link_to_the_texts_that_hold_them() -> None:
    page = shortcuts_page(report())
    assert re.findall(r'href="#(row-\d+)"', page) == ["row-7", "row-3", "row-3"]
    assert re.findall(r'id="(row-\d+)"', page) == ["row-3", "row-7"]
    assert "90, 91" in page  # rows whose texts are not held
    assert page.count("✗ label: no") == page.count("✓ label: &lt;b&gt;yes") == 1


def test_nothing_is_taken_for_the_page() -> None:
    page = shortcuts_page(report())
    assert "<i>" not in page.replace('<i style="width', "")
    assert "<b>" not in page
    assert "m&amp;m" in page


def test_cells_are_sorted_by_numbers() -> None:
    page = shortcuts_page(report())
    rows = re.findall(r"<tr>(<td.*?)</tr>", page)
    values = [re.findall(r'data-v="([^"]*)"', row) for row in rows]
    assert values[0] == ["1", "&lt;i&gt;", "40", "30", "0.5", "5.0", "5.06", "-0.5", "1.5"]
    assert values[1] == ["0", "bad", "1", "1", "0.25", "0.01", "0", "0", "-1.0"]
    assert "99.0 % → 40.0 %" in rows[0]
    assert "(90.0 % → 90.0 %)" in rows[1]  # no difference to speak of
    assert "&lt;b&gt;yes 90 % (of all 50 %), z 5.1" in rows[0]
    assert "▶" in rows[0]
    assert "▶" not in rows[1]


def test_sides_have_a_column_and_methods_a_report() -> None:
    sided = tuple(replace(word, side="premise") for word in WORDS)
    page = shortcuts_page({"attcat": report(sided), "rollout": report(sided, "rollout")})
    assert page.count("<button>side</button>") == 2
    assert page.count(">premise<") == 4
    assert len(re.findall(r'id="row-3"', page)) == 1  # one card, a line for each method
    assert page.count("<th>rollout</th>") == 2


def test_the_terminal() -> None:
    lines = report().to_text(2).splitlines()
    assert lines[:2] == ["attcat: the words that the model relies on", "m&m · d · 100 texts"]
    assert re.split(r"\s{3,}", lines[3].strip()) == [
        *("word", "texts", "strongest", "share", "says", "without it", "in the data", "rows")
    ]
    assert re.split(r"\s{3,}", lines[4]) == [
        *("▶", "<i>", "40", "30", "50 %", "<b>yes", "99.0 % → 40.0 %", "<b>yes 90 % (of all 50 %), z 5.1", "7, 3, 90 …")
    ]
    assert re.split(r"\s{3,}", lines[5].strip())[-2:] == ["–", "3"]
    assert "▶ look here: a strongest word in 5 % of a class's texts or more" in "\n".join(lines)
    plain = tuple(replace(word, label=None, effect=None, look=False) for word in WORDS)
    shown = replace(report(plain), wrong=True).to_text(2)
    assert "100 texts of which it is wrong" in shown
    assert "without it" not in shown
    assert "in the data" not in shown
    assert "look here" not in shown


def test_markdown() -> None:
    marked = report().to_markdown(1).splitlines()
    assert marked[3].startswith("|  | word | texts | strongest |")
    assert marked[5].startswith(r"| ▶ | \<i\> | 40 | 30 | 50 % | \<b\>yes |")
    assert sum("attcat" in line for line in marked) == 1


def test_every_number_is_in_the_spreadsheet() -> None:
    rows = list(csv.DictReader(str(report().render("csv")).splitlines()))
    assert [row["word"] for row in rows] == ["<i>", "bad"]
    first, second = rows
    assert (first["method"], first["look"], first["side"], first["texts"]) == ("attcat", "yes", "", "40")
    assert [float(first[name]) for name in ("share", "lift", "reliance", "label_z")] == [0.5, 6.0, 9.0, 5.06]
    assert (float(first["score no"]), float(first["score <b>yes"]), first["strongest <b>yes"]) == (-0.5, 1.5, "25")
    assert (first["label"], first["checked"], float(first["log_odds"])) == ("<b>yes", "4", 5.0)
    assert first["rows"] == "7 3 90 91"
    assert (second["look"], second["label"], second["label_z"], second["texts no"], second["score no"]) == (
        *("", "", ""),
        *("0", ""),
    )
