"""Every architecture of transformers' sequence classifiers: explained, or refused by name; and the document says so."""

import re

import pytest
import transformers

from tests.helpers import zoo
from tools import matrix

STABILISED = 1e-6  # what the stabilisers in divisions keep back of a sum of 1
PAGE = matrix.PAGE.read_text(encoding="utf-8")


def documented(name: str) -> str:
    """The verdict of an architecture in the document."""
    heading = ""
    for line in PAGE.splitlines():
        heading = line if line.startswith("## ") else heading
        if line.startswith(f"| `{name}`"):
            if heading.startswith("## Refused"):
                return "not built" if "not built" in line else "refused"
            return {"## Supported": "supported", "## By their tokens": "tokens"}[heading]
    return "not there"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", zoo.names())
def test_an_architecture_is_explained_or_refused_as_documented(name: str) -> None:
    row = matrix.look(name)
    assert row.verdict == documented(name)
    if row.built:
        return
    assert row.logits <= row.rounding
    assert row.invariance is None or row.invariance <= row.rounding
    if row.verdict == "supported":
        assert row.conservation is not None
        assert row.conservation <= max(row.rounding, STABILISED)
        assert set(row.refused) <= {"alti", "input_x_gradient", "attn_lrp", "cp_lrp", "legrad"}


def test_the_document_counts_what_it_lists() -> None:
    made_with = PAGE.partition("transformers ")[2].split()[0]
    if transformers.__version__ != made_with:
        pytest.skip(f"the document was made with transformers {made_with}, which has other architectures")
    supported, tokens, refused, not_built = (int(n) for n in re.findall(r"\*\*([0-9]+) ", PAGE))
    assert supported + tokens + refused + not_built == len(zoo.names())
    assert supported >= 96
    assert supported + tokens >= 100
    assert PAGE.count("\n| `") == len(zoo.names())


@pytest.mark.parametrize(
    ("found", "rounding", "mark"),
    [(3e-14, 1e-4, "3e-14"), (1e-5, 1e-4, "1e-05 (float32)"), (6e-4, 1e-4, "6e-04 (float32)"), (0.9, 1e-4, "9e-01")],
)
def test_a_distance_that_is_rounding_of_the_model_itself_is_marked(found: float, rounding: float, mark: str) -> None:
    line = f"| `some` | 0 | – | {mark} |"
    assert line in matrix.page([matrix.Row("some", rounding=rounding, invariance=found)])


def test_a_distance_in_a_model_of_float64_alone_is_not_marked() -> None:
    assert "| 1e-05 |" in matrix.page([matrix.Row("some", rounding=1e-9, invariance=1e-5)])


def test_bert_absorbs_nothing() -> None:
    assert matrix.look("bert").absorbed == 0
