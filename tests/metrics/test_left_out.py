"""What a metric leaves out, and what it counts as one: at the limits, and where words touch."""

import numpy as np
import pytest
import torch

from tests.helpers.cases import case, subject
from whyformer import BadInput
from whyformer.inputs.units import Unit
from whyformer.metrics import Annotation, RationaleWords
from whyformer.metrics.metric import metric_named
from whyformer.metrics.plausibility import _words
from whyformer_papers.words import Idf
from whyformer_papers.words.overlap import Counting, word_totals


def test_a_text_of_just_as_many_tokens_is_kept() -> None:
    one = case(["the film is bad"])
    length = len(one.inputs[0])
    for shortest, kept in ((length, True), (length + 1, False)):
        found = metric_named("aopc")(one, min_tokens=shortest).values
        assert bool(found.isfinite().all()) == kept


def test_a_text_that_is_likely_enough_is_kept() -> None:
    one = case(["the film is bad"])
    likely = float(one.probabilities([[[]]], "delete")[0].max())
    for least, kept in ((0.0, True), (likely - 0.01, True), (likely + 0.01, False)):
        found = metric_named("aopc")(one, min_probability=least).values
        assert bool(found.isfinite().all()) == kept


def test_capitals_make_no_other_word() -> None:
    units = [Unit("Film", span=(0, 4), part=0), Unit("film", span=(5, 9), part=0)]
    found = Counting().record(0, units, ("Film film",), np.array([1.0, 2.0]))
    assert found["words"] == [["film", 1.0], ["film", 2.0]]
    once = Counting(once=True).record(0, units, ("Film film",), np.array([1.0, 2.0]))
    assert once["words"] == [["film", 1.5]], "the mean over its places"


def test_tokens_keep_their_spelling_and_are_weighted_by_their_letters() -> None:
    pieces = ["[CLS]", "Act", "##ing", "ing", "ĠFilm", "film", "ĠFilm", "[SEP]"]
    letters = ["", "Act", "ing", "ing", " Film", "film", " Film", ""]
    units = [
        Unit(text, span=None if piece[0] == "[" else (0, 1), part=0, special=piece[0] == "[", piece=piece)
        for piece, text in zip(pieces, letters, strict=True)
    ]
    scores = np.array([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0])
    found = Counting("token").record(1, units, ("",), scores)
    tokens = [["Act", 1.0], ["##ing", 2.0], ["ing", 3.0], ["ĠFilm", 4.0], ["film", 5.0]]
    assert found == {"class": 1, "words": [*tokens, ["ĠFilm", 8.0]], "letters": {"##ing": "ing", "ĠFilm": "Film"}}
    once = Counting("token", once=True).record(1, units, ("",), scores)
    assert once["words"] == [*tokens[:3], ["ĠFilm", 6.0], tokens[4]]
    weights = Idf({"act": 1.0, "ing": 2.0, "film": 10.0})
    assert word_totals([found], weights) == {1: {"Act": 1.0, "##ing": 4.0, "ing": 6.0, "ĠFilm": 120.0, "film": 50.0}}


def test_words_have_no_spelling_of_a_tokenizer() -> None:
    with pytest.raises(BadInput, match=r"'film' is a word without such a spelling.*count words \(units='word'\)"):
        Counting("token").record(0, [Unit("film", "word")], ("film",), np.ones(1))


def test_words_that_touch_have_their_own_tokens() -> None:
    """A token that ends where a word begins, or begins where it ends, is not of that word."""
    one = case(["a film, bad"])
    example = one.prediction.batch.examples[0]
    spans = {unit.text: unit.span for unit in example.units if unit.span}
    assert spans["film"][1] == spans[","][0]  # type: ignore[index]
    scores = np.arange(len(example.units), dtype=np.float64)
    rising = _words(RationaleWords((spans["film"], spans[","]), frozenset({0})), example, scores)  # type: ignore[arg-type]
    falling = _words(RationaleWords((spans["film"], spans[","]), frozenset({0})), example, -scores)  # type: ignore[arg-type]
    place = next(n for n, unit in enumerate(example.units) if unit.text == "film")
    assert rising == {0: place, 1: place + 1}
    assert falling == {0: -place, 1: -place - 1}


@pytest.mark.parametrize(("explained", "there"), [(0, True), (1, False)])
def test_against_one_class_texts_of_that_class_are_left_out(explained: int, there: bool) -> None:
    one = case(["the film is bad"], annotations=[Annotation(gold=explained)])
    found = metric_named("kendall_tau")(one, target="gold", against=1)
    values = getattr(found, "values", found)
    assert bool(torch.as_tensor(values).isfinite().all()) == there
    assert subject().model.config.num_labels == 3
