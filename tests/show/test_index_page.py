"""The page of explained texts: every text by every method, to sort, search and filter, and safe to open."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import cases, evaluated
from tests.helpers.commands import Run
from tests.helpers.explained_images import explained
from tests.helpers.pages import Page
from whyformer import Comparison, Explanation
from whyformer.inputs.units import Unit
from whyformer.results.explanations import KeptExample
from whyformer.show.html import shade_of
from whyformer.show.lists import index_page
from whyformer.tasks.targets import AnswerSpan, Label, Predicted

EVIL = "<script>alert(1)</script> \x1b[2J \u202eabc \x00 \"'&amp;"


def example(
    words: Sequence[str] = ("fine", "bad", "film"),
    scores: Sequence[float] = (2.0, -1.4, 0.01),
    *,
    row: int = 0,
    gold: str | None = "NEGATIVE",
    right: bool | None = False,
    label: str = "POSITIVE",
    **facts: Any,
) -> KeptExample[Comparison]:
    """A text of these words, explained."""
    text, units = " ".join(words), [Unit("[CLS]", special=True)]
    for word in words:
        start = units[-1].span[1] + 1 if units[-1].span else 0
        units.append(Unit(word, "token", (start, start + len(word)), 0))
    said = Predicted(label, 1, 0.75, (0.0, 1.0986), (0.25, 0.75), ("NEGATIVE", label))
    chosen: dict[str, Any] = {"method": "attcat", "signed": True, "texts": (text,)} | facts
    chosen = {"target": Label(1, label)} | chosen
    explanation = Explanation(tuple(units), np.array([9.0, *scores]), said, **chosen)
    return KeptExample(row, gold, right, Comparison((explanation,)))


def rows_of(source: str) -> list[list[Any]]:
    """The rows that the script of a page gets."""
    rows: list[list[Any]] = data_of(source)["rows"]
    return rows


def data_of(source: str) -> dict[str, Any]:
    stored = re.search('<script type="application/json" id="data">(.*?)</script>', source, re.DOTALL)
    assert stored is not None
    data: dict[str, Any] = json.loads(stored[1])
    return data


def units_of(row: list[Any], method: int = 0) -> list[tuple[str, int]]:
    """The pieces of a text with their levels, as the script cuts it: in units of UTF-16."""
    text, numbers = row[1].encode("utf-16-le"), row[7][method][2:]
    pieces, at = [], 0
    for length, level in zip(numbers[::2], numbers[1::2], strict=True):
        pieces.append((text[2 * at : 2 * (at + length)].decode("utf-16-le"), level))
        at += length
    assert 2 * at == len(text)
    return pieces


def test_strengths_are_classes_of_the_style_sheet() -> None:
    source = index_page([example()], {})
    (row,) = rows_of(source)
    assert row[:6] == [0, "fine bad film", 0, "75.0 %", 1, 0]
    assert row[6] == [["fine", 2.0, "", ""], ["bad", -1.4, "", ""], ["film", 0.01, "", ""]]  # no special token
    assert units_of(row) == [("fine", 10), (" ", 0), ("bad", -7), (" film", 0)]
    assert row[7][0][:2] == [0, 1]
    assert data_of(source)["names"] == ["POSITIVE", "NEGATIVE"]
    shades = dict(re.findall(r"\.why \.([fam]\d+)\{background:([^}]*)\}", source))
    assert len(shades) == 30
    for name, signed, sign in (("f", True, 1), ("a", True, -1), ("m", False, 1)):
        assert shades[f"{name}5"] == shade_of(sign * 0.5, signed)


@pytest.mark.parametrize(
    ("facts", "two_sided", "levels"),
    [
        ({"signed": False}, 0, [10, 5]),
        ({"signed": False, "signs": np.array([0, -1, 1, 1])}, 1, [-10, 5]),
    ],
)
def test_what_matters_and_what_was_found_by_hiding(facts: dict[str, Any], two_sided: int, levels: list[int]) -> None:
    (row,) = rows_of(index_page([example(scores=(2.0, 1.0, 0.01), **facts)], {}))
    assert [level for _, level in units_of(row) if level] == levels
    assert row[7][0][1] == two_sided


def test_every_strength_that_is_not_faint_is_seen() -> None:
    scores = [1.0, 0.05, 0.051, 0.14, 0.16, -0.949, 0.049]
    (row,) = rows_of(index_page([example([f"w{n}" for n in range(7)], scores)], {}))
    assert [level for _, level in units_of(row) if level] == [10, 1, 1, 1, 2, -9]


def test_answers_and_unknown_words_are_marked() -> None:
    answer = AnswerSpan((1, 1), (0, 4))
    marked = example(target=Label(None, "fine", answer), texts=("what", "fine bad film"))
    one = marked.explanations[0]
    units = [replace(unit, part=None if unit.special else 1, unknown=unit.text == "bad") for unit in one.units]
    known = KeptExample(0, None, None, Comparison((replace(one, units=tuple(units)),)))
    (row,) = rows_of(index_page([known], {}))
    assert units_of(row) == [("fine", 110), (" ", 0), ("bad", 993), (" film", 0)]
    assert "unknown to the tokenizer" in row[9]


def test_another_output_than_the_predicted_one_is_named() -> None:
    usual, other = example(row=0), example(row=1, target=Label(0, "NEGATIVE"))
    assert "explained:" not in index_page([usual], {})
    source = index_page([usual, other], {})
    assert "2 texts · the model is right on 0 of these 2 · explained: NEGATIVE" in source
    assert ["why NEGATIVE?" in row[9] for row in rows_of(source)] == [False, True]
    against = example(versus=Label(0, "NEGATIVE"))
    assert "explained: POSITIVE rather than NEGATIVE" in index_page([against], {})


def test_each_method_has_its_own_picture() -> None:
    several = Comparison((explained([[1.0, 0.0]]), explained([[0.0, 1.0]], method="another", signed=False)))
    (row,) = rows_of(index_page([KeptExample(0, None, None, several)], {}))
    assert [row[7][number][0] for number in (0, 1)] == [0, 1]
    first, second = row[10]
    assert first != second


def test_wrong_right_and_unknown_are_told_in_order_of_their_rows() -> None:
    examples = [example(row=9, gold=None, right=None), example(row=7, gold="POSITIVE", right=True), example(row=3)]
    source = index_page(examples, {"model": "mine", "data": "texts.csv"})
    assert [(row[0], row[5]) for row in rows_of(source)] == [(3, 0), (7, 1), (9, -1)]
    assert "mine · texts.csv · 3 texts · the model is right on 1 of these 2" in source


def test_nothing_in_a_text_is_taken_for_the_page() -> None:
    odd = example(EVIL.split(" "), np.arange(len(EVIL.split(" "))), gold=EVIL, label=EVIL, method=EVIL)
    refused = KeptExample(1, None, None, Comparison((), ((EVIL, EVIL),)))
    source = index_page([odd, refused], {"model": EVIL, "data": EVIL})
    page = Page(source)
    assert page.tags.count("script") == 2
    assert "alert(1)</script>" not in source
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)
    first, second = rows_of(source)
    assert first[1] == EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\x00", "\\x00")
    assert units_of(first)
    assert (second[1], len(second[8])) == ("", 1)
    assert not [value for name, value in page.attributes if name in ("href", "src")]
    assert not re.search(r"https?:|url\(|@import|javascript:|fetch\(|innerHTML", source)
    assert not {name for name, _ in page.attributes if name.startswith("on")}


def test_characters_of_two_halves_are_counted_as_scripts_do() -> None:
    (row,) = rows_of(index_page([example(["fine", "🎬🎬", "film"], (1.0, 2.0, -3.0))], {}))
    assert [unit for unit in units_of(row) if unit[1]] == [("fine", 3), ("🎬🎬", 7), ("film", -10)]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_link_says_what_is_shown(tmp_path: Path) -> None:
    examples = [
        example(("fine", "film"), (2.0, 1.0), row=0),
        example(("a", "fine", "bore"), (0.0, 1.0, -3.0), row=1, gold="POSITIVE", right=True),
        example(("finest", "film"), (2.0, 1.0), row=2),
        *(example(row=row) for row in range(3, 120)),
    ]
    page = tmp_path / "index.html"
    page.write_text(index_page(examples, {}), encoding="utf-8")
    for link, told, rows in (
        ("", "1–50 of 120", range(50)),
        ("#page=3", "101–120 of 120", range(100, 120)),
        ("#word=FINE&sort=-row&page=3", "101–119 of 119 (120 in all)", [*range(19, 2, -1), 1, 0]),
        ("#word=fine&right", "1–1 of 1 (120 in all)", [1]),
        ("#strongest=bore", "1–1 of 1 (120 in all)", [1]),
        ("#find=finest&wrong", "1–1 of 1 (120 in all)", [2]),
        ("#label=POSITIVE", "1–1 of 1 (120 in all)", [1]),
        ("#row=77", "51–100 of 120", range(50, 100)),
        ("#find=%E0%A4%A", "0 (120 in all)", []),
    ):
        drawn = dumped(f"{page.as_uri()}{link}")
        assert [int(row) for row in re.findall('id="row-([0-9]+)"', drawn)] == list(rows), link
        assert f'role="status">{told}</span>' in drawn, link
        assert ('<tr class="open">' in drawn) == link.startswith("#row"), link
    assert '<span class="f10" title="speaks for it, 10/10 of the strongest">finest</span>' in dumped(page.as_uri())


def dumped(address: str) -> str:
    """What a browser makes of a page."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout.decode()


def test_a_thousand_texts_by_five_methods_are_a_few_megabytes() -> None:
    words, stream = [f"word{n}" for n in range(25)], np.random.default_rng(0)
    many = []
    for row in range(50):
        several = [example(words, stream.normal(size=25), method=f"m{n}").explanations[0] for n in range(5)]
        many.append(KeptExample(row, "POSITIVE", True, Comparison(tuple(several))))
    size = (len(index_page(many, {})) - len(index_page(many[:1], {}))) / 49
    assert 1000 * size < 6e6


@pytest.mark.long
def test_the_command(tmp_path: Path, run: Run) -> None:
    cases.subject().model.save_pretrained(tmp_path / "model")
    cases.subject().tokenizer.save_pretrained(tmp_path / "model")
    data, out, page = evaluated.data(tmp_path, 6), tmp_path / "out", tmp_path / "page.html"
    asked = ["evaluate", "--model", tmp_path / "model", "--data", data, "--methods", "attcat,rollout"]
    asked += ["--metrics", evaluated.FALL, "--out", out]
    assert run(*asked).status == 0
    refused = run("report", out, "--examples", "all", "--html", page)
    assert (refused.status, page.exists()) == (2, False)
    assert "run `whyformer evaluate … --keep-scores --out FOLDER`" in " ".join(refused.err.split())
    assert run(*asked, "--keep-scores").status == 0
    assert run("report", out, "--examples", "all", "--html", page).status == 0
    rows = rows_of(page.read_text(encoding="utf-8"))
    assert [row[1] for row in rows] == evaluated.texts(6)
    assert {len(row[7]) for row in rows} == {2}
    assert data_of(page.read_text(encoding="utf-8"))["methods"] == ["attcat", "rollout"]
    assert run("report", out, "--examples", 2, "--html", page).status == 0
    assert rows_of(page.read_text(encoding="utf-8")) == rows[:2]
    assert run("report", out, "--examples", "wrong", "--html", page).status == 0
    assert {row[5] for row in rows_of(page.read_text(encoding="utf-8"))} == {0}
    for flags, told in (
        (("--examples", "all"), "give --html FILE"),
        (("--examples", "x", "--html", page), "found 'x'"),
    ):
        refused = run("report", out, *flags)
        assert (refused.status, told in refused.err) == (2, True)
