"""Lists, DataFrames and Datasets are read as files are, and hashed by their content."""

import pickle
from typing import Any

import pytest

from whyformer.datasets import Answer, open_dataset
from whyformer.errors import BadInput, BadOption


def test_texts_pairs_and_dictionaries() -> None:
    assert [example.text for example in open_dataset(["fine", "bad"])] == ["fine", "bad"]
    labelled = open_dataset([("fine", 1), ("bad", "NEG"), ("", 0), 5], labels=["NEG", "POS"], on_error="skip")
    assert [(example.text, example.label) for example in labelled] == [("fine", 1), ("bad", 0)]
    assert [(bad.row, bad.reason) for bad in labelled.skipped] == [
        (2, "'text' is empty"),
        (3, "5, where a text, (text, label) or a dictionary is needed"),
    ]
    (pair,) = open_dataset([(("a", "b"), 1)])
    assert (pair.text, pair.label) == (("a", "b"), 1)
    (named,) = open_dataset([{"body": "a", "y": 1}], columns={"text": "body", "label": "y"})
    assert (named.text, named.label) == ("a", 1)
    with pytest.raises(BadInput, match=r"the list, row 1 \(counted from 0\): 'text' is empty"):
        list(open_dataset(["a", ""]))


def test_a_list_is_a_data_set_like_any_other() -> None:
    rows = [f"text {i}" for i in range(10)]
    data = open_dataset(rows, limit=7)
    assert (len(data), data.name, data.format) == (7, "list", "memory")
    assert list(data.chunks(4)) == [(0, 4), (4, 7)]
    assert [example.row for example in data.rows(4, 9)] == [4, 5, 6]
    before = data.digest
    rows[0] = "changed"
    assert next(iter(data)).text == "text 0", "the list is copied"
    assert data.digest == before != open_dataset(rows).digest
    assert open_dataset(["text 0"]).digest == open_dataset([{"text": "text 0"}]).digest
    assert pickle.loads(pickle.dumps(data)).digest == before


def test_data_frames() -> None:
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame({"text": ["fine", None], "label": [1, 0], "score": [0.5, np.nan]}, index=[7, 9])
    data = open_dataset(frame, on_error="skip")
    assert [(e.row, e.text, e.label, e.meta) for e in data] == [(0, "fine", 1, {"score": 0.5})]
    assert data.skipped[0].reason == "no value for 'text'"
    assert data.name == "DataFrame"
    answers = {"text": np.array(["Paris"], dtype=object), "answer_start": np.array([3])}
    (asked,) = open_dataset(pd.DataFrame({"question": ["Where?"], "context": ["In Paris."], "answers": [answers]}))
    assert asked.answers == (Answer("Paris", 3),)
    assert [example.text for example in open_dataset(frame["text"].head(1))] == ["fine"]
    with pytest.raises(BadInput, match="a different name for each column"):
        open_dataset(pd.DataFrame([["a", "b"]], columns=["text", "text"]))


def test_datasets() -> None:
    import datasets

    table = datasets.Dataset.from_list([{"text": f"text {i}", "label": i % 2} for i in range(5)])
    data = open_dataset(table)
    assert [(example.text, example.label) for example in data.rows(3, 5)] == [("text 3", 1), ("text 4", 0)]
    assert (len(data), data.name) == (5, "Dataset")
    assert data.digest == open_dataset(list(table)).digest
    assert len(open_dataset(table["text"])) == 5
    with pytest.raises(BadInput, match=r"data cannot be a DatasetDict; .* one split"):
        open_dataset(datasets.DatasetDict({"test": table}))


@pytest.mark.parametrize(
    "wrong", [None, 5, {"text": ["a"]}, {"a"}, b"a", iter("ab")], ids=lambda wrong: type(wrong).__name__
)
def test_what_is_no_data(wrong: Any) -> None:
    with pytest.raises(BadInput, match=r"data cannot be a .*; give a path or a name"):
        open_dataset(wrong)


def test_empty_data_and_options_that_do_not_fit() -> None:
    with pytest.raises(BadInput, match="the list holds no rows"):
        open_dataset([])
    with pytest.raises(BadInput, match="holds no rows that can be used: row 0 is an empty dictionary"):
        open_dataset([{}])
    with pytest.raises(BadOption, match="rows in memory have no splits"):
        open_dataset(["a"], split="test")
    with pytest.raises(BadOption, match="local= is for recipes; list is none"):
        open_dataset(["a"], local=".")


def test_rows_for_texts_keep_the_names_of_their_labels() -> None:
    named = open_dataset([{"text": "fine", "label": 1}, {"text": "dull", "label": None}], labels=["bad", "good"])
    texts = named.for_texts()
    assert texts.labels == named.labels
    assert [example.label for example in texts] == [1, None]
