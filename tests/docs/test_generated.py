"""The generated parts of the docs are up to date; the pages of architectures have tests of their own."""

from pathlib import Path

import pytest

from tools import docs

PAGES = sorted(docs.DOCS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    """If this fails, run `make docs`."""
    text = page.read_text(encoding="utf-8")
    assert docs.with_parts(text) == text


def test_every_part_is_in_a_page_once() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sorted(found["name"] for found in docs.PART.finditer(text)) == sorted(docs.PARTS)


def test_a_part_is_replaced() -> None:
    page = "before\n<!-- made by make docs: options of metrics -->\nhere before\n<!-- end -->\nafter\n"
    made = docs.with_parts(page)
    start, _, table = made.partition("| metric | options |\n|---|---|\n")
    assert start == "before\n<!-- made by make docs: options of metrics -->\n\n"
    assert made.endswith("\n\n<!-- end -->\nafter\n")
    assert "| `precision_at_k` | `k`: " in table
    assert "here before" not in made
