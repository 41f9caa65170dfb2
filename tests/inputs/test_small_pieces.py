"""Padding, unknown words and apostrophes, each at its edge."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.helpers import cases
from whyformer.errors import BadInput
from whyformer.inputs.batch import Batch, _gap, collate, encode
from whyformer.inputs.input import Fillers
from whyformer.inputs.units import split_words

MASKED = torch.tensor([[False, False, True, True]])


@pytest.mark.parametrize(
    ("special", "reader", "padding"),
    [
        (None, [1, 0, 0, 0], [2, 3]),
        ([0, 0, 0, 1], [1, 0, 0, 0], [2]),  # a special token that is not attended to, as XLNet's at the end
        (None, [0, 0, 0, 1], [2]),  # the head reads there
    ],
)
def test_what_is_masked_is_padding_unless_it_is_special_or_read(
    special: list[int] | None, reader: list[int], padding: list[int]
) -> None:
    flags = None if special is None else torch.tensor([special]).bool()
    batch = Batch({"input_ids": torch.tensor([[5, 6, 7, 8]])}, MASKED, flags)
    found = batch.padding(torch.tensor([reader], dtype=torch.float32), 0)
    assert found[0].nonzero().flatten().tolist() == padding


def test_what_a_batch_of_texts_knows_is_what_its_tensors_hold() -> None:
    subject = cases.subject()
    batch = collate(subject, [encode(subject, text) for text in ("a good film", "bad")])
    read_back = replace(batch)  # which knows nothing
    assert batch.by_token.keys() == read_back.by_token.keys()
    for name, numbers in batch.by_token.items():
        np.testing.assert_array_equal(numbers, read_back.by_token[name], strict=True)
    np.testing.assert_array_equal(batch._special, read_back._special, strict=True)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    (kept,) = {
        tuple(inputs[1].special.tolist()) for inputs in (b.inputs(padding, Fillers()) for b in (batch, read_back))
    }
    assert kept == (True, False, True)


def test_padding_is_taken_out_of_rows_for_each_token_however_wide_they_are() -> None:
    numbers = torch.arange(25.0).view(1, 5, 5)  # as wide as the text is long
    kept = np.array([0, 1, 3])
    for name in ("features", "inputs_embeds"):
        batch = Batch({"inputs_embeds": torch.zeros(1, 5, 8), name: numbers}, None, None)
        alone = batch.alone(0, kept, 5, Fillers())
        assert torch.equal(torch.as_tensor(alone.tensors[name]), numbers[:, kept])
    batch = Batch({"inputs_embeds": torch.zeros(1, 5, 8), "local_mask": numbers}, None, None)
    with pytest.raises(BadInput, match=r"padding cannot be taken out of local_mask \(1, 5, 5\)"):
        batch.alone(0, kept, 5, Fillers())


def test_an_unknown_token_stands_where_nothing_else_does() -> None:
    text = "qqq film zz"
    assert _gap([None, (4, 8), None], 0, text) == (0, 3)
    assert _gap([None, (4, 8), None], 2, text) == (9, 11)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the actors' film", ["the", "actors", "'", "film"]),
        ("don't", ["don't"]),
        ("film'", ["film", "'"]),
        ("it’s 'fine'", ["it’s", "'", "fine", "'"]),
    ],
)
def test_an_apostrophe_belongs_to_a_word_that_goes_on(text: str, words: list[str]) -> None:
    assert [text[slice(*span)] for span in split_words(text)] == words
