"""Tasks beside text classification, on ready tensors: answers, next tokens, labels of tokens, images."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers import PreTrainedModel

import whyformer
from tests.helpers import families
from whyformer import BadInput, BadOption
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction
from whyformer.tolerance import close

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_TEXT = {**_SIZES, "vocab_size": families.VOCABULARY, "max_position_embeddings": 64, "pad_token_id": families.PAD}

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "answer": lambda: hf.BertForQuestionAnswering(hf.BertConfig(**_TEXT)),
    "answer by gpt2": lambda: hf.GPT2ForQuestionAnswering(families.CONFIGS["gpt2"]()),
    "next token": lambda: hf.LlamaForCausalLM(families.CONFIGS["llama"]()),
    "next token by gpt2": lambda: hf.GPT2LMHeadModel(families.CONFIGS["gpt2"]()),
    "label of a token": lambda: hf.BertForTokenClassification(hf.BertConfig(**_TEXT, num_labels=5)),  # type: ignore[call-arg]
    "image": lambda: hf.ViTForImageClassification(hf.ViTConfig(**_SIZES, image_size=16, patch_size=4, num_labels=3)),  # type: ignore[call-arg]
}
TARGETS: dict[str, Any] = {
    "answer": (1, 3),
    "answer by gpt2": (2, 2),
    "next token": 7,
    "next token by gpt2": (7, 2),
    "label of a token": (4, 1),
    "image": 2,
}
ANSWERS, NEXT = ("answer", "answer by gpt2"), ("next token", "next token by gpt2")
AT_TOKENS = ("attn_lrp", "cp_lrp", "input_x_gradient", "integrated_gradients")  # by default; an image has none
INPUTS = "cat(states=inputs)"
BELOW: dict[str, dict[str, Any]] = {  # where the two layers of most of these models begin with a norm, nothing cancels
    "cam": {"layer": 0},
    "cat": {"states": "inputs"},
    "attcat": {"states": "inputs"},
}


@cache
def build(task: str) -> PreTrainedModel:
    torch.manual_seed(7)
    model = MODELS[task]()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
        else:
            parameter.data += 0.2 * torch.randn(parameter.shape)
    return model.double().eval()


def inputs(task: str) -> dict[str, Tensor]:
    if task != "image":
        return families.batch()
    return {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)}


def options(method: str) -> dict[str, Any]:
    return BELOW.get(method, {}) | families.OPTIONS.get(method, {})


@cache
def predicted(task: str) -> Prediction:
    """The batch; methods share its forward pass."""
    return Prediction(build(task), batch_of(build(task), inputs(task)), TARGETS[task], relevance=True)


def assert_near(found: Tensor, expected: Tensor, within: float = 1e-6) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= within * expected.abs().max()


@pytest.mark.parametrize("task", MODELS)
@pytest.mark.parametrize("name", families.METHODS)
def test_every_method_explains_every_task(name: str, task: str) -> None:
    scores = whyformer.list_methods()[name](predicted(task), **options(name)).total
    padding = inputs(task).get("attention_mask", torch.ones(2, 17)) == 0
    assert scores[~padding].any()
    assert not scores[padding].any()


@pytest.mark.parametrize("task", MODELS)
def test_a_trace_holds_what_the_model_says(task: str) -> None:
    model, given = build(task), inputs(task)
    trace = whyformer.record(model, given)
    with torch.no_grad():
        output = model(**given)
    expected = torch.stack((output.start_logits, output.end_logits), 1) if task in ANSWERS else output.logits
    torch.testing.assert_close(trace.logits.detach(), expected, rtol=1e-6, atol=1e-6)
    batch, units = (2, 17) if task == "image" else (3, 9)
    assert [tuple(a.shape) for a in trace.attention] == [(batch, 4, units, units)] * 2
    assert [tuple(h.shape) for h in trace.hidden] == [(batch, units, 32)] * 3
    assert (trace.pixels is None) == (task != "image")
    assert (trace.embeddings is None) == (task == "image")


# Answers


@pytest.mark.parametrize("task", ANSWERS)
@pytest.mark.parametrize("name", families.ONE_OF_EACH)
def test_the_scores_of_an_answer_are_those_of_its_start_and_its_end(name: str, task: str) -> None:
    start, end = TARGETS[task]
    given = build(task), inputs(task), name
    parts = [whyformer.attribute(*given, target=t, **options(name)) for t in ((start, None), (None, end))]
    both = whyformer.list_methods()[name](predicted(task), **options(name)).total
    torch.testing.assert_close(both, parts[0] + parts[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("task", ANSWERS)
def test_an_answer_may_be_given_in_several_ways(task: str) -> None:
    given = build(task), inputs(task), INPUTS
    each = [(1, 3), (0, 0), (2, 4)]
    listed = whyformer.attribute(*given, target=each)
    assert close(whyformer.attribute(*given, target=torch.tensor(each)), listed)
    for row, target in enumerate(each):
        assert_near(listed[row], whyformer.attribute(*given, target=target)[row], 1e-9)
    assert close(whyformer.attribute(*given, target=[1, 3]), whyformer.attribute(*given, target=(1, 3)))
    ends = whyformer.attribute(*given, target=[(None, 3), (None, 0), (None, 4)])
    assert_near(ends[0], whyformer.attribute(*given, target=(None, 3))[0], 1e-9)


@pytest.mark.parametrize("task", ANSWERS)
def test_the_predicted_answer_is_the_best_span(task: str) -> None:
    given = inputs(task)
    trace = whyformer.record(build(task), given)
    best = []
    for row, length in enumerate((9, 5, 7)):
        starts, ends = trace.logits[row].tolist()
        spans = [(starts[s] + ends[e], s, e) for s in range(length) for e in range(s, length)]
        best.append(max(spans)[1:])
    assert trace.outputs.predicted.tolist() == [list(span) for span in best]
    scores = whyformer.attribute(build(task), given, INPUTS)
    assert close(scores, whyformer.attribute(build(task), given, INPUTS, target=best))


def test_a_predicted_answer_is_at_most_30_tokens_long() -> None:
    given = families.batch((50,))
    outputs = whyformer.record(build("answer"), given).outputs
    starts, ends = outputs.logits[0].tolist()
    spans = [(starts[s] + ends[e], s, e) for s in range(50) for e in range(s, min(50, s + 30))]
    assert outputs.predicted.tolist() == [list(max(spans)[1:])]


@pytest.mark.parametrize("task", ANSWERS)
def test_an_answer_is_read_where_it_starts_and_ends(task: str) -> None:
    trace = whyformer.record(build(task), inputs(task))
    for target, positions in (((1, None), [1]), ((None, 3), [3]), ((1, 3), [1, 3]), ((2, 2), [2])):
        expected = torch.zeros(3, 9, dtype=torch.float64)
        expected[:, positions] = 1 / len(positions)
        assert torch.equal(trace.read_for(target), expected)


@pytest.mark.parametrize("book", ["z_plus", "conservative"])
def test_relevances_of_start_and_end_add_up(book: str) -> None:
    trace = whyformer.record(build("answer"), inputs("answer"))
    both, start, end = (trace.relevance(trace.hidden[0], book, t) for t in ((1, 3), (1, None), (None, 3)))
    torch.testing.assert_close(both, start + end, rtol=1e-9, atol=1e-12)


def test_an_answer_against_another() -> None:
    given = build("answer"), inputs("answer"), "cat"
    first, second = (whyformer.attribute(*given, target=t) for t in ((1, 3), (4, 4)))
    assert_near(whyformer.attribute(*given, target=(1, 3), versus=(4, 4)), first - second, 1e-9)


@pytest.mark.parametrize("each", [[(1, 3), (0, None), (2, None)], [(1, None), (None, 0), (2, None)]], ids=str)
def test_every_example_leaves_out_the_same_part(each: list[tuple[int | None, int | None]]) -> None:
    with pytest.raises(whyformer.BadOption, match="leave out the same part"):
        whyformer.attribute(build("answer"), inputs("answer"), "cat", target=each)


# Next tokens


@pytest.mark.parametrize("task", NEXT)
def test_a_next_token_may_be_given_in_several_ways(task: str) -> None:
    given = build(task), inputs(task), INPUTS
    one = whyformer.attribute(*given, target=7)
    for same in ((7, None), [7, 7, 7], torch.tensor([7, 7, 7]), [(7, 8), (7, 4), (7, 6)], [7, (7, 4), (7, None)]):
        assert close(whyformer.attribute(*given, target=same), one)
    each = [(7, 3), (9, 1), 5]
    listed = whyformer.attribute(*given, target=each)
    for row, target in enumerate(each):
        assert_near(listed[row], whyformer.attribute(*given, target=target)[row], 1e-9)


@pytest.mark.parametrize("task", NEXT)
def test_the_default_is_the_most_likely_next_token(task: str) -> None:
    given = inputs(task)
    trace = whyformer.record(build(task), given)
    best = [[int(trace.logits[row, length - 1].argmax()), length - 1] for row, length in enumerate((9, 5, 7))]
    assert trace.outputs.predicted.tolist() == best
    scores = whyformer.attribute(build(task), given, INPUTS)
    assert close(scores, whyformer.attribute(build(task), given, INPUTS, target=[tuple(b) for b in best]))
    assert trace.read_for().argmax(-1).tolist() == [8, 4, 6]


@pytest.mark.parametrize("task", NEXT)
@pytest.mark.parametrize("name", [m for m in families.METHODS if m != "random"])
def test_what_comes_later_does_not_matter(name: str, task: str) -> None:
    """A token said at position 2 is explained by the tokens up to there, as if the text ended there."""
    given = build(task), inputs(task), name
    scores = whyformer.attribute(*given, target=(7, 2), **options(name))
    assert not scores[:, 3:].any()
    if name not in ("attcat", "legrad", "smooth_grad"):  # two average over all queries, one draws noise for the whole
        cut = {n: t[:, :3] for n, t in inputs(task).items()}
        expected = whyformer.attribute(given[0], cut, name, target=7, **options(name))
        assert_near(scores[:, :3], expected)


def padded_left(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same texts with their padding in front; the positions are counted from where a text begins."""
    turned = {name: torch.zeros_like(tensor) for name, tensor in given.items()}
    for row, length in enumerate(given["attention_mask"].sum(1).tolist()):
        for name, tensor in given.items():
            turned[name][row, tensor.shape[1] - length :] = tensor[row, :length]
    positions = (turned["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return {**turned, "position_ids": positions}


@pytest.mark.parametrize("task", NEXT)
@pytest.mark.parametrize("name", families.ONE_OF_EACH)
def test_padding_may_stand_in_front(name: str, task: str) -> None:
    given = padded_left(inputs(task))
    scores = whyformer.attribute(build(task), given, name, target=7, **options(name))
    assert not scores[given["attention_mask"] == 0].any()
    right = whyformer.attribute(build(task), inputs(task), name, target=7, **options(name))
    for row, length in enumerate((9, 5, 7)):
        assert_near(scores[row, 9 - length :], right[row, :length])


def test_a_next_token_against_another() -> None:
    given = build("next token by gpt2"), inputs("next token by gpt2"), INPUTS
    first, second = (whyformer.attribute(*given, target=t) for t in (7, 9))
    assert_near(whyformer.attribute(*given, target=7, versus=9), first - second, 1e-9)


# Labels of tokens and images


def test_the_label_of_a_token_is_read_there() -> None:
    trace = whyformer.record(build("label of a token"), inputs("label of a token"))
    for position in range(5):
        assert trace.read_for((1, position)).argmax(-1).tolist() == [position] * 3
    torch.testing.assert_close(trace.output((1, 2)), trace.logits[:, 2, 1])


def test_the_class_of_an_image() -> None:
    given = build("image"), inputs("image"), INPUTS
    best = whyformer.record(*given[:2]).logits.argmax(-1)
    assert close(whyformer.attribute(*given), whyformer.attribute(*given, target=best))
    assert close(whyformer.attribute(*given, target="LABEL_1"), whyformer.attribute(*given, target=1))
    assert whyformer.attribute(*given).shape == (2, 17)  # [CLS] and 16 patches


@pytest.mark.parametrize("name", AT_TOKENS)
def test_an_image_has_no_token_embeddings(name: str) -> None:
    with pytest.raises(BadOption, match="use at='embedding_output'"):
        whyformer.attribute(build("image"), inputs("image"), name, at="token_embeddings")
    assert whyformer.attribute(build("image"), inputs("image"), name, **options(name)).any()


@pytest.mark.parametrize("pixels", [torch.zeros(3, 16, 16), torch.zeros(1, 3, 16, 16, dtype=torch.uint8)], ids=str)
def test_what_is_wrong_with_pixels(pixels: Tensor) -> None:
    with pytest.raises(BadInput, match=r"pixel_values are fractions \[batch, channels, height, width\]"):
        whyformer.attribute(build("image"), {"pixel_values": pixels})


# Bad targets

SPAN, PLACES = r"is given as \(start, end\), in tokens", "positions are 0 … 8"
NO_ID = "is no output of this model: give an id of 0 … 59"
POSITION = r"at every position: give a target \(index, position\)"
BAD: list[tuple[str, Any, str]] = [
    ("answer", 3, SPAN),
    ("answer", "here", SPAN),
    ("answer", (None, None), SPAN),
    ("answer", (1, 2, 3), SPAN),
    ("answer", [None, None, None], SPAN),
    ("answer", (0, 9), PLACES),
    ("answer", (-2, 3), PLACES),
    ("answer", ("1", "3"), PLACES),
    ("answer", [(1, 3)], "1 targets for 3 examples"),
    ("answer", [(1, 3)] * 4, "4 targets for 3 examples"),
    ("answer", (1.5, 3), "1.5"),
    ("next token", -1, NO_ID),
    ("next token", 60, NO_ID),
    ("next token", "film", NO_ID),
    ("next token", (None, 3), NO_ID),
    ("next token", (7, 9), PLACES),
    ("next token", (7, -1), PLACES),
    ("next token", [7, 7], "2 targets for 3 examples"),
    ("next token", 1.5, "1.5"),
    ("label of a token", None, POSITION),
    ("label of a token", 1, POSITION),
    ("label of a token", [1, 2, 3], POSITION),
    ("label of a token", (5, 1), "0 … 4"),
    ("label of a token", (1, 9), PLACES),
    ("image", 3, "it has 0 = LABEL_0, 1 = LABEL_1, 2 = LABEL_2"),
    ("image", "LABEL_7", "is no label of this model; did you mean 'LABEL_2'"),
    ("image", [0], "1 targets for 2 examples"),
]


@pytest.mark.parametrize(("task", "target", "message"), BAD, ids=str)
def test_a_bad_target_is_refused(task: str, target: Any, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        whyformer.attribute(build(task), inputs(task), "attcat", target=target)
    if target is not None:
        with pytest.raises(BadOption, match=message):
            whyformer.attribute(build(task), inputs(task), "attcat", target=TARGETS[task], versus=target)
    trace = whyformer.record(build(task), inputs(task))
    with pytest.raises(BadOption, match=message):
        trace.gradient(trace.hidden, target)
    with pytest.raises(BadOption, match=message):
        trace.relevance(trace.hidden[0], "z_plus", target)
