"""What is given instead of a list is iterated where one would expect it; what cannot be is refused with advice."""

import collections
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import families
from tests.helpers.questions import CONTEXT, QUESTION, answering, tokenizer
from whyformer import BadInput, BadOption, Explainer, WhyformerError, open_dataset
from whyformer.tolerance import close

TEXTS = ["who won the game", "they lost it", "the humans"]
PAIR = ("who won", "the humans won")
PLAIN: dict[str, Any] = {"method": "input_x_gradient"}


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    torch.manual_seed(0)
    return Explainer(hf.BertForSequenceClassification(families.CONFIGS["bert"]()).double().eval(), tokenizer())


@pytest.fixture(scope="module")
def asking() -> Explainer:
    return Explainer(answering(), tokenizer())


def frame(**columns: list[Any]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def dataset(**columns: list[Any]) -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


SEVERAL: dict[str, Any] = {
    "list": lambda: TEXTS,
    "generator": lambda: (text for text in TEXTS),
    "map": lambda: map(str, TEXTS),
    "deque": lambda: collections.deque(TEXTS),
    "values": lambda: dict(enumerate(TEXTS)).values(),
    "numpy": lambda: np.array(TEXTS),
    "numpy objects": lambda: np.array(TEXTS, dtype=object),
    "series": lambda: frame(text=TEXTS)["text"],
    "frame": lambda: frame(text=TEXTS, label=[0, 1, 2]),
    "dataset": lambda: dataset(text=TEXTS, label=[0, 1, 2]),
    "column": lambda: dataset(text=TEXTS, label=[0, 1, 2])["text"],
    "streamed": lambda: dataset(text=TEXTS).to_iterable_dataset(),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_what_holds_texts_is_as_good_as_a_list(explainer: Explainer, name: str) -> None:
    found = explainer.explain(SEVERAL[name](), **PLAIN, batch_size=2)
    assert [e.texts for e in found] == [(text,) for text in TEXTS]
    assert all(type(text) is str for e in found for text in e.texts)
    assert [e.texts for e in explainer.stream(SEVERAL[name](), **PLAIN)] == [(text,) for text in TEXTS]


def test_nothing_in_nothing_out(explainer: Explainer) -> None:
    for nothing in ([], iter([]), np.array([], dtype=str), frame(text=[])):
        assert len(explainer.explain(nothing)) == 0


def test_a_tuple_of_two_texts_is_a_pair(explainer: Explainer) -> None:
    assert explainer.explain(PAIR, **PLAIN).texts == PAIR
    assert [e.texts for e in explainer.stream(PAIR, **PLAIN)] == [PAIR]
    assert [e.texts for e in explainer.stream(TEXTS[0], **PLAIN)] == [(TEXTS[0],)]
    first, *_ = explainer.explain(zip(TEXTS, TEXTS[::-1], strict=True), **PLAIN)
    assert first.texts == (TEXTS[0], TEXTS[2])


def test_an_open_data_set_is_explained(explainer: Explainer, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\nwho won,1\nthe humans,0\n")
    opened = open_dataset(tmp_path / "a.csv")
    assert [e.texts for e in explainer.explain(opened, **PLAIN)] == [("who won",), ("the humans",)]


def test_a_generator_is_read_as_it_goes(explainer: Explainer) -> None:
    read: list[int] = []

    def endless() -> Iterator[str]:
        while True:
            read.append(len(read))
            yield "the humans won"

    stream = explainer.stream(endless(), **PLAIN, batch_size=3)
    first = [next(stream) for _ in range(4)]
    assert [e.texts for e in first] == [("the humans won",)] * 4
    assert len(read) == 6


def test_targets_of_a_generator_are_matched_with_its_texts(explainer: Explainer) -> None:
    found = explainer.stream(iter(TEXTS), **PLAIN, target=[1, 0, 1], batch_size=2)
    assert [e.target.index for e in found] == [1, 0, 1]
    assert [e.target.index for e in explainer.stream(iter(TEXTS), **PLAIN, target=1)] == [1, 1, 1]
    with pytest.raises(BadInput, match="2 targets for 3 texts or more"):
        list(explainer.stream(iter(TEXTS), **PLAIN, target=[1, 0]))
    with pytest.raises(BadInput, match="4 targets for 3 texts"):
        list(explainer.stream(iter(TEXTS), **PLAIN, versus=[1, 0, 1, 0], target=[0, 1, 0, 1]))


def test_questions_may_be_columns(asking: Explainer) -> None:
    data = frame(question=[QUESTION] * 2, context=[CONTEXT, "The humans lost."])
    found = asking.explain(question=data["question"], context=data["context"], **PLAIN)
    assert [e.texts[1] for e in found] == list(data["context"])
    assert len(asking.explain(question=iter([QUESTION]), context=np.array([CONTEXT]), **PLAIN)) == 1
    with pytest.raises(BadInput, match="2 questions and 1 contexts"):
        asking.explain(question=iter([QUESTION] * 2), context=[CONTEXT])
    with pytest.raises(BadInput, match="found only one list"):
        asking.explain(question=iter([QUESTION]), context=CONTEXT)


REFUSED: dict[str, tuple[Any, str]] = {
    "three": (("a", "b", "c"), "a text or a pair .* is needed .several texts are given as a list., found"),
    "tuple of pairs": ((PAIR, PAIR), "several texts are given as a list"),
    "dict": ({"text": "a"}, "found dict with 'text': give the text in it"),
    "tensors": ({"input_ids": torch.ones(1, 2)}, "tensors are for whyformer.attribute"),
    "set": ({"a", "b"}, "a set has no order.*give a list"),
    "bytes": (b"a film", "found bytes b'a film': decode it first"),
    "number": (3, "found int 3"),
    "truth": (True, "found bool True"),
    "fraction": (1.5, "found float 1.5"),
    "none": (None, "there is nothing to explain"),
    "path": (Path("a.txt"), "found PosixPath|found WindowsPath"),
    "tensor": (torch.ones(2), "found Tensor"),
    "array of no dimension": (np.array("a"), "found ndarray"),
    "object": (object(), "found object"),
    "missing value": (["the game", None], r"text 1 \(counted from 0\): .*found None"),
    "not a number": (["the game", float("nan")], r"text 1 \(counted from 0\): .*found nan"),
    "empty": (["the game", ""], r"text 1 \(counted from 0\): the text is empty"),
    "list of lists": ([["a", "b"]], "a text or a pair"),
    "long": ([["a" * 10**6]], "a text or a pair"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_text_is_refused_with_advice(explainer: Explainer, name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(BadInput, match=message) as refused:
        explainer.explain(given)
    assert len(str(refused.value)) < 400
    with pytest.raises(BadInput, match=message):
        list(explainer.stream(given))
    with pytest.raises(BadInput):
        explainer.compare(given)


def test_a_number_is_counted_over_all_batches(explainer: Explainer) -> None:
    with pytest.raises(BadInput, match=r"text 3 \(counted from 0\): the text is empty"):
        explainer.explain([*TEXTS, ""], **PLAIN, batch_size=1)


def test_a_table_whose_columns_are_not_known_is_refused_by_their_names(explainer: Explainer) -> None:
    for table in (frame(title=TEXTS, n=[1, 2, 3], plot=TEXTS), dataset(title=TEXTS, n=[1, 2, 3], plot=TEXTS)):
        with pytest.raises(BadInput, match=r"no text column is known by its name; name it: .* found title, n, plot"):
            explainer.explain(table)
        assert len(explainer.explain(table, columns={"text": "plot"}, **PLAIN)) == len(TEXTS)
    for table in (frame(n=[1, 2]), dataset(n=[1, 2])):
        with pytest.raises(BadInput, match="has no column of texts; its columns are n"):
            explainer.explain(table)
    splits = pytest.importorskip("datasets").DatasetDict({"train": dataset(text=TEXTS)})
    with pytest.raises(BadInput, match="found DatasetDict with 'train'"):
        explainer.explain(splits)


@pytest.mark.parametrize("size", ["x", True, 0, -1, 1.5, None, [2]], ids=str)
def test_a_batch_size_that_is_none(explainer: Explainer, size: Any) -> None:
    with pytest.raises(BadOption, match="batch_size takes a whole number from 1 on"):
        explainer.explain(TEXTS, batch_size=size)


@pytest.mark.parametrize("size", [10**30, np.int64(2), 10**5000], ids=["huge", "numpy", "huger"])
def test_a_batch_size_may_be_any_whole_number(explainer: Explainer, size: Any) -> None:
    assert len(explainer.explain(TEXTS, **PLAIN, batch_size=size)) == 3


@pytest.mark.parametrize("data", [{"text": TEXTS}, None, 3, {"a"}, iter(TEXTS)], ids=lambda d: type(d).__name__)
def test_what_is_no_data(explainer: Explainer, data: Any) -> None:
    for call in (explainer.evaluate, explainer.recommend):
        with pytest.raises(BadInput, match=r"data cannot be .*; give a path or a name"):
            call(data)


def test_trust_is_of_explanations(explainer: Explainer) -> None:
    e = explainer.explain(TEXTS[0], **PLAIN)
    assert explainer.trust(e)[0].sentence == e.trust().sentence
    for given in (3, [3], None, "text", {"a": e}):
        with pytest.raises(BadInput, match="trust is measured of explanations"):
            explainer.trust(given)  # type: ignore[arg-type]


# Ready tensors


IDS = torch.tensor([[2, 5, 3]])
TENSORS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "by name, as tokenizer.* found NoneType"),
    "list": ([1, 2], "found list"),
    "tensor": (IDS, "found Tensor"),
    "text": ("a film", "found str"),
    "ids as a list": ({"input_ids": [[2, 5, 3]]}, "input_ids is list: give tensors"),
    "ids of numpy": ({"input_ids": IDS.numpy()}, "input_ids is ndarray: give tensors"),
    "no name": ({3: IDS}, "found 3 as a name"),
    "three dimensions": ({"input_ids": IDS[None]}, r"input_ids \[batch, units\] .*shape \(1, 1, 3\)"),
    "one dimension": ({"input_ids": IDS[0]}, r"shape \(3,\)"),
    "no tokens": ({"input_ids": IDS[:, :0]}, "at least one token"),
    "too long": ({"input_ids": IDS.repeat(1, 30)}, "90 tokens, but the model has positions for 64"),
    "ids": ({"input_ids": IDS + 90}, "input_ids must lie in 0 … 59; found 92 … 95"),
    "types": ({"input_ids": IDS, "token_type_ids": IDS + 7}, "token_type_ids must lie in 0 … 1; found 9 … 12"),
    "positions": ({"input_ids": IDS, "position_ids": IDS + 70}, "position_ids must lie in 0 … 63"),
    "mask too long": ({"input_ids": IDS, "attention_mask": torch.ones(1, 5)}, r"attention_mask has the shape \(1, 5\)"),
    "mask of one dimension": ({"input_ids": IDS, "attention_mask": torch.ones(3)}, r"the shape \(3,\)"),
    "mask of NaN": ({"input_ids": IDS, "attention_mask": torch.full((1, 3), torch.nan)}, "attention_mask holds NaN"),
    "special": ({"input_ids": IDS, "special_tokens_mask": torch.ones(1, 2)}, "special_tokens_mask has the shape"),
    "both": ({"input_ids": IDS, "inputs_embeds": torch.ones(1, 3, 32)}, "not both of the first two"),
    "width": ({"inputs_embeds": torch.ones(1, 3, 7)}, "inputs_embeds must be 32 wide; found 7"),
    "flat embeddings": ({"inputs_embeds": torch.ones(1, 3)}, r"\[batch, units, width\]"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_the_model_cannot_take(name: str) -> None:
    given, message = TENSORS[name]
    with pytest.raises(BadInput, match=message):
        whyformer.attribute(families.build("bert"), given, "input_x_gradient")


def test_what_the_forward_does_not_take_is_named() -> None:
    class Strict(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = families.build("bert")

        def forward(self, input_ids: torch.Tensor) -> Any:
            return self.model(input_ids=input_ids)

    with pytest.raises(BadInput, match="the forward of Strict takes no 'token_type_ids': leave it out"):
        whyformer.attribute(Strict(), {"input_ids": IDS, "token_type_ids": IDS * 0}, "input_x_gradient")


@pytest.mark.parametrize("model", [None, "bert", {}], ids=str)
def test_a_model_that_is_none(model: Any) -> None:
    with pytest.raises(BadInput, match=r"a model \(torch.nn.Module\) is needed"):
        whyformer.attribute(model, {"input_ids": IDS})


def test_positions_may_be_those_of_one_row() -> None:
    model, inputs = families.build("bert"), families.batch()
    positions = torch.arange(inputs["input_ids"].shape[1])[None]
    expected = whyformer.attribute(model, inputs, "input_x_gradient")
    one = whyformer.attribute(model, {**inputs, "position_ids": positions}, "input_x_gradient")
    torch.testing.assert_close(one, expected)


def test_padding_needs_no_positions_in_roberta() -> None:
    """Its positions count tokens that are not padding, so a padded batch may be longer than its table."""
    model = families.build("roberta")
    rows = model.config.max_position_embeddings - model.config.pad_token_id - 1
    ids = torch.full((1, rows + 5), 5)
    with pytest.raises(BadInput, match=f"{rows + 5} tokens, but the model has positions for {rows}"):
        whyformer.attribute(model, {"input_ids": ids}, "input_x_gradient")
    ids[0, rows:] = model.config.pad_token_id
    inputs = {"input_ids": ids, "attention_mask": ids.ne(model.config.pad_token_id).long()}
    assert whyformer.attribute(model, inputs, "input_x_gradient").shape == ids.shape


def test_a_mapping_of_a_tokenizer_is_taken_as_it_is(explainer: Explainer) -> None:
    subject = explainer.subject
    encoding = subject.tokenizer("who won", return_tensors="pt", return_special_tokens_mask=True)
    found = whyformer.attribute(subject.model, encoding, "input_x_gradient")
    assert found.shape == encoding["input_ids"].shape
    unmasked = whyformer.attribute(subject.model, {**encoding, "attention_mask": None}, "input_x_gradient")
    assert close(unmasked, found, torch.float32)  # two runs of a product that nearly cancels


def test_whatever_is_given_no_other_error_is_raised(explainer: Explainer) -> None:
    odd = (None, 3, 1.5, True, "", b"", [], {}, set(), object(), float("nan"), [None], 10**5000, "9" * 5000, (), ((),))
    for value in odd:
        calls = (
            lambda v=value: explainer.explain(v),
            lambda v=value: explainer.explain("a", target=v, **PLAIN),
            lambda v=value: explainer.explain("a", versus=v, **PLAIN),
            lambda v=value: explainer.explain("a", batch_size=v, **PLAIN),
            lambda v=value: explainer.compare(v),
            lambda v=value: whyformer.attribute(explainer.subject.model, v),
            lambda v=value: explainer.trust(v),
        )
        for call in calls:
            with contextlib.suppress(WhyformerError):
                call()


def test_positions_that_are_reserved_for_padding_are_no_room() -> None:
    ids = torch.full((1, 64), 5)
    with pytest.raises(BadInput, match="64 tokens, but the model has positions for 63"):
        whyformer.attribute(families.build("roberta"), {"input_ids": ids}, "input_x_gradient")
    assert whyformer.attribute(families.build("roberta"), {"input_ids": ids[:, 1:]}, "input_x_gradient").shape == (
        1,
        63,
    )
