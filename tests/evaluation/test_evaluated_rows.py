"""Rows in memory are evaluated like files; where no row can be used, the message names the data and the reason."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import cases
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.shortcuts import shortcuts

ROWS = [("a good film", 0), ("a bore", 1), ("", 2)]
OPTIONS: dict[str, Any] = {"methods": "attcat", "metrics": "comprehensiveness", "progress": False}


def test_a_list_is_evaluated_and_taken_up_again(tmp_path: Path) -> None:
    subject = cases.subject()
    table = evaluate(subject, ROWS, **OPTIONS, on_error="skip", out=tmp_path)
    assert table.skipped == {2: "'text' is empty"}
    again = evaluate(subject, list(ROWS), **OPTIONS, on_error="skip", out=tmp_path)
    assert str(again) == str(table)
    with pytest.raises(BadOption, match="holds another run"):
        evaluate(subject, ROWS[:1], **OPTIONS, out=tmp_path)


def test_data_without_a_usable_row_is_named(tmp_path: Path) -> None:
    subject = cases.subject()
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n")
    with pytest.raises(BadInput, match=r"texts\.csv holds no rows"):
        evaluate(subject, path, **OPTIONS)
    with pytest.raises(BadInput, match=r"texts\.csv holds no rows"):
        shortcuts(subject, path, "attcat")
    path.write_text("text,label\n,1\n")
    with pytest.raises(BadInput, match=r"tabulate in .*texts\.csv: .*1 rows skipped; row 0: 'text' is empty"):
        evaluate(subject, path, **OPTIONS, on_error="skip")
    with pytest.raises(BadInput, match=r"row 0: 'text' is empty \(of .*texts\.csv\)"):
        shortcuts(subject, path, "attcat", on_error="skip")


def test_tables_of_words_tell_the_first_row_that_was_left_out() -> None:
    table = shortcuts(cases.subject(), ROWS, "attcat", on_error="skip")["attcat"]
    assert (table.provenance["skipped"], table.provenance["first_skipped"]) == (1, "row 2: 'text' is empty")
