"""The page of explained texts: every text by every method, marked where the model is wrong, and safe to open."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import cases, evaluated
from tests.helpers.commands import Run
from tests.helpers.pages import Page
from whyformer import Comparison, Explanation
from whyformer.inputs.units import Unit
from whyformer.results.kept import KeptExample
from whyformer.show.colours import AGAINST, FOR, IMPORTANCE
from whyformer.show.examples import examples_page
from whyformer.tasks.label import Label, Predicted

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
    explanation = Explanation(tuple(units), np.array([9.0, *scores]), said, Label(1, label), **chosen)
    return KeptExample(row, gold, right, Comparison((explanation,)))


def test_strengths_are_classes_of_the_style_sheet() -> None:
    page = Page(source := examples_page([example()], {}))
    assert page.texts == ["fine bad film"]
    assert page.units == [("fine", "f10"), ("bad", "a7"), ("film", "")]  # the special token does not count
    shades = dict(re.findall(r"\.why \.([fam]\d+)\{background:(rgba\([^)]*\))\}", source))
    assert len(shades) == 30
    for name, colour in (("f10", FOR), ("a10", AGAINST), ("m10", IMPORTANCE)):
        assert shades[name] == "rgba({},{},{},0.620)".format(*colour)
    assert float(shades["f5"].split(",")[3][:-1]) == pytest.approx(0.31)
    assert "style=" not in source.split('<section class="why ex')[1]


@pytest.mark.parametrize(
    ("facts", "classes"),
    [
        ({"signed": False}, ["m10", "m5", ""]),
        ({"signed": False, "signs": np.array([0, -1, 1, 1])}, ["a10", "f5", ""]),
    ],
)
def test_what_matters_and_what_was_found_by_hiding(facts: dict[str, Any], classes: list[str]) -> None:
    page = Page(examples_page([example(scores=(2.0, 1.0, 0.01), **facts)], {}))
    assert [name for _, name in page.units] == classes


def test_every_strength_that_is_not_faint_is_seen() -> None:
    scores = [1.0, 0.05, 0.051, 0.14, 0.16, -0.949, 0.049]
    page = Page(examples_page([example([f"w{n}" for n in range(7)], scores)], {}))
    assert [name for _, name in page.units] == ["f10", "f1", "f1", "f1", "f2", "a9", ""]


def test_wrong_right_and_unknown_are_marked() -> None:
    examples = [example(row=3), example(row=7, gold="POSITIVE", right=True), example(row=9, gold=None, right=None)]
    source = examples_page(examples, {"about": {"model": "mine", "data": "texts.csv"}})
    assert [classes.split()[2:] for classes in Page(source).cards] == [["wrong"], ["right"], []]
    assert "✗ gold: NEGATIVE" in source
    assert "✓ gold: POSITIVE" in source
    assert source.count("gold:") == 2
    assert "mine · texts.csv · 3 texts · the model is right on 1 of these 2" in source
    for row in (3, 7, 9):
        assert f'id="row-{row}"' in source
        assert f'href="#row-{row}"' in source
    assert 'class="wrong" href="#row-3"' in source


def test_nothing_in_a_text_is_taken_for_the_page() -> None:
    odd = example(EVIL.split(" "), np.arange(len(EVIL.split(" "))), gold=EVIL, label=EVIL, method=EVIL)
    refused = KeptExample(1, None, None, Comparison((), ((EVIL, EVIL),)))
    source = examples_page([odd, refused], {"about": {"model": EVIL, "data": EVIL}})
    page = Page(source)
    assert page.tags.count("script") == 1
    assert "alert(1)</script>" not in source
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)
    assert page.texts == [EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\x00", "\\x00")]
    links = [value for name, value in page.attributes if name in ("href", "src")]
    assert links == ["#row-0", "#row-1"]
    assert not re.search(r"https?:|url\(|@import|javascript:|fetch\(|innerHTML", source)
    assert not {name for name, _ in page.attributes if name.startswith("on")}


def test_a_thousand_texts_by_five_methods_are_a_few_megabytes() -> None:
    words, stream = [f"word{n}" for n in range(25)], np.random.default_rng(0)
    many = []
    for row in range(50):
        several = [example(words, stream.normal(size=25), method=f"m{n}").explanations[0] for n in range(5)]
        many.append(KeptExample(row, "POSITIVE", True, Comparison(tuple(several))))
    size = (len(examples_page(many, {})) - len(examples_page(many[:1], {}))) / 49
    assert 1000 * size < 6e6


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
    whole = Page(page.read_text(encoding="utf-8"))
    assert whole.texts == [text for text in evaluated.texts(6) for _ in range(2)]
    assert run("report", out, "--examples", 2, "--html", page).status == 0
    assert Page(page.read_text(encoding="utf-8")).texts == whole.texts[:4]
    assert run("report", out, "--examples", "wrong", "--html", page).status == 0
    assert {card.split()[-1] for card in Page(page.read_text(encoding="utf-8")).cards} == {"wrong"}
    for flags, told in (
        (("--examples", "all"), "give --html FILE"),
        (("--examples", "x", "--html", page), "found 'x'"),
    ):
        refused = run("report", out, *flags)
        assert (refused.status, told in refused.err) == (2, True)
