"""Texts: what counts as one text, a pair, or several of them, whatever they are given in."""

from collections.abc import Iterable, Mapping, Set
from itertools import islice
from typing import Any

from torch import Tensor

from whyformer.errors import BadInput, listed, shown

Text = str | tuple[str, str]

TEXTS = "a text, a pair (text, text) or a list of them is"
QUESTIONS = "one question and its context, or a list of each, are"


def texts_of(texts: Any, needed: str = TEXTS) -> Iterable[Any] | None:
    """The texts of a list, a generator, a column, or a table with one column of texts; None for one text or pair."""
    if isinstance(texts, str | tuple):
        return None
    if isinstance(texts, list):
        return texts
    if isinstance(texts, Mapping):
        keys = ", ".join(shown(key, 30) for key in islice(texts, 8))
        raise BadInput(
            f"{needed} needed; found {type(texts).__name__} with {keys}: give the text in it; tensors are for "
            "whyformer.attribute"
        )
    if isinstance(texts, Set):
        raise BadInput("a set has no order, so nobody could tell which explanation is whose: give a list")
    names = _columns(texts)
    if names:
        return _column_of_texts(texts, names)
    single = getattr(texts, "ndim", 1) == 0 or isinstance(texts, bytes | bytearray | memoryview | Tensor)
    if single or not isinstance(texts, Iterable):
        advice = ": decode it first" if isinstance(texts, bytes | bytearray) else ""
        raise BadInput(f"{needed} needed; found {type(texts).__name__} {shown(texts, 40)}{advice}")
    return texts


def _columns(table: Any) -> list[Any]:
    """The names of a table's columns (of pandas, polars, pyarrow or datasets); of anything else none."""
    names = getattr(table, "column_names", None)
    names = getattr(table, "columns", None) if names is None else names
    named = isinstance(names, Iterable) and hasattr(table, "__getitem__")
    return list(names) if named and names is not None else []


def _column_of_texts(table: Any, names: list[Any]) -> Iterable[Any]:
    texts = [name for name in names if any(isinstance(value, str) for value in islice(table[name], 100))]
    if len(texts) == 1:
        return table[texts[0]]  # type: ignore[no-any-return]
    if not texts and not len(table):
        return []
    if not texts:
        columns = listed([str(name) for name in names])
        raise BadInput(f"this {type(table).__name__} has no column of texts; its columns are {columns}")
    first, second = (f"data[{shown(name)}]" for name in texts[:2])
    raise BadInput(
        f"this {type(table).__name__} has several columns of texts ({listed([str(name) for name in texts])}): give one "
        f"of them, as {first}, or pairs, as list(zip({first}, {second}))"
    )


def asked(question: Any, context: Any) -> Text | list[Text]:
    """A question with its context as a pair, or a list of them."""
    if question is None or context is None:
        missing = "context" if context is None else "question"
        raise BadInput(f"a question and its context are needed: give {missing}= too (--{missing})")
    questions, contexts = texts_of(question, QUESTIONS), texts_of(context, QUESTIONS)
    if questions is None and contexts is None:
        return question, context
    if questions is None or contexts is None:
        raise BadInput(f"{QUESTIONS} needed, one context for each question; found only one list")
    questions, contexts = list(questions), list(contexts)
    if len(questions) != len(contexts):
        raise BadInput(f"{len(questions)} questions and {len(contexts)} contexts: give one context for each question")
    return list(zip(questions, contexts, strict=True))
