"""Answers: where in a context the answer to a question starts and ends."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import BadInput, BadOption, shown
from whyformer.inputs.batch import NO_ANSWER, TextInput, places
from whyformer.inputs.text import asked
from whyformer.tasks.targets import AnswerSpan, Label, Predicted, Target
from whyformer.tasks.task import Chosen, ExampleOutputs, ModelOutputs, Task, register

ANSWER_LENGTH = 30  # a predicted answer is no longer; as in transformers' own pipeline


@register
@dataclass(frozen=True)
class Answers(Task):
    """An answer, the sum of two logits. Logits are [batch, 2, units]: where it starts and where it ends.

    A target is `(start, end)`, of which either may be None; of texts also the text of the answer.
    """

    name, head, gives = "answer", "QuestionAnswering", "the start and end of an answer"
    does = "answers questions"
    form, in_parts = "answer", True

    def logits(self, output: Any) -> Tensor | None:
        """The logits of the start and the end, one above the other."""
        start, end = getattr(output, "start_logits", None), getattr(output, "end_logits", None)
        return torch.stack((start, end), 1) if isinstance(start, Tensor) and isinstance(end, Tensor) else None

    def inputs(self, text: Any, question: Any, context: Any, choices: Any) -> tuple[Iterable[Any], bool]:
        """A question with its context, or a list of each."""
        if question is None and context is None:
            raise BadInput("this model answers questions: give question= and context= (--question and --context)")
        if text is not None or choices is not None:
            raise BadInput(
                f"a question and its context stand alone: leave the {'choices' if text is None else 'text'} out"
            )
        pairs = asked(question, context)
        return (pairs, False) if isinstance(pairs, list) else ([pairs], True)

    def best(self, outputs: ModelOutputs) -> Tensor:
        """The best span that ends where it starts or later, and is no longer than `ANSWER_LENGTH`."""
        blocked = torch.finfo(outputs.logits.dtype).min
        start, end = outputs.logits.detach().masked_fill(~outputs.attended[:, None], blocked).unbind(1)
        best = _spans(start, end).flatten(1).argmax(1)
        return torch.stack((best // start.shape[1], best % start.shape[1]), 1)

    def runners_up(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor:
        """The best span that shares no token with the chosen one; of a part alone, its best other position."""
        blocked = torch.finfo(outputs.logits.dtype).min
        places = torch.arange(outputs.logits.shape[-1], device=chosen.device)
        first, last = chosen.clamp(min=-1).unbind(1)
        first, last = torch.where(first < 0, last, first), torch.where(last < 0, first, last)
        taken = (places >= first[:, None]) & (places <= last[:, None])
        if not bool((outputs.attended & ~taken).any(1).all()):
            raise BadOption("versus='runner_up': nothing is left beside the answer to set it against")
        others = ModelOutputs(outputs.logits.detach().masked_fill(taken[:, None], blocked), self, outputs.attended)
        alone = others.logits.masked_fill(~outputs.attended[:, None], blocked).argmax(-1)
        best = torch.where((chosen < 0).any(1, keepdim=True), alone, self.best(others))
        return best.masked_fill(chosen < 0, -1)

    def several(self, target: Any) -> Any:
        """Two positions in a list are one answer too."""
        pair = (
            isinstance(target, list) and len(target) == 2 and not any(isinstance(t, tuple | list | str) for t in target)
        )
        return tuple(target) if pair else target

    def parsed(self, target: Any, outputs: ModelOutputs, row: int) -> tuple[int, int]:
        """`(start, end)` in tokens, -1 for a part left out."""
        if not isinstance(target, tuple) or len(target) != 2 or all(p in (None, -1) for p in target):
            raise BadOption(f"target {shown(target)}: the answer of a question is given as (start, end), in tokens")
        start, end = (-1 if p in (None, -1) else position_in(outputs, p, target, row) for p in target)
        return start, end

    def check_alike(self, chosen: Sequence[Chosen], target: Target) -> None:
        """Raise unless every example leaves out the same part."""
        left_out = torch.tensor(chosen) < 0
        if bool(left_out.any(0).ne(left_out.all(0)).any()):
            raise BadOption(f"targets {shown(target)}: leave out the same part, start or end, of every example")

    def check_against(self, chosen: Tensor, against: Tensor) -> None:
        """Raise unless both have the same parts."""
        if not torch.equal(against < 0, chosen < 0):
            raise BadOption("target and versus: give the same parts of an answer, start, end, or both")

    def parts(self, logits: Tensor, chosen: Tensor) -> list[Tensor]:
        """The start among the first units, the end among the second."""
        units = logits.shape[-1]
        return [chosen[:, n] + n * units for n in range(2) if bool((chosen[:, n] >= 0).all())]

    def single(self, chosen: Tensor) -> list[Tensor]:
        """The start and the end."""
        if bool((chosen < 0).any()):
            return [chosen]
        return [chosen.masked_fill(torch.arange(2, device=chosen.device) != part, -1) for part in range(2)]

    def positions(self, chosen: Tensor) -> Tensor:
        """Where the answer starts and ends."""
        return chosen

    def moved(self, chosen: Tensor, places: Sequence[Mapping[int, int]]) -> Tensor:
        """Both ends, where they stand now."""
        rows = [[new[p] if p >= 0 else p for p in row] for row, new in zip(chosen.tolist(), places, strict=True)]
        return torch.tensor(rows, device=chosen.device)

    def read_by(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """The logits of the start and the end alone."""
        flat = logits.flatten(1)
        return torch.stack([flat.gather(1, part[:, None]).squeeze(1) for part in self.parts(logits, chosen)], 1)

    def odds(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor | None:
        """Of the product of two probabilities, the start's and the end's, each among all tokens."""
        logits = outputs.logits.detach().double().masked_fill(~outputs.attended[:, None], -torch.inf)
        shares = logits.log_softmax(-1).flatten(1)
        parts = [shares.gather(1, part[:, None]).squeeze(1) for part in self.parts(logits, chosen)]
        both = torch.stack(parts).sum(0).clamp(max=-torch.finfo(torch.float64).eps)  # 1 has no odds
        return both - (-both.expm1()).log()

    def best_in(self, of: ExampleOutputs) -> tuple[int, int]:
        """The best answer in the context, or none."""
        example = of.text
        if example.window is not None and example.window.answered:
            example = replace(example, no_answer=None)
        return best_answer(of.logits[:, : len(example.units)], example)

    def written(self, target: Any, of: ExampleOutputs) -> tuple[int, int]:
        """An answer by its text or by its first and last token."""
        return answer_in(of.text, target)

    def runner_up_in(self, of: ExampleOutputs, chosen: Chosen) -> tuple[int, int]:
        """The best answer that shares no token with the chosen one; no answer is one too."""
        assert isinstance(chosen, tuple)
        logits = of.logits[:, : len(of.text.units)].clone()
        logits[:, chosen[0] : chosen[1] + 1] = -torch.inf
        none = of.text.no_answer
        if not bool(logits[:, [*of.text.context, *([] if none is None else [none])]].isfinite().any()):
            raise BadOption("versus='runner_up': nothing is left beside the answer to set it against")
        return best_answer(logits, of.text)

    def label(self, of: ExampleOutputs, chosen: Chosen, beside: Chosen | None = None) -> Label:
        """The text of the answer."""
        assert isinstance(chosen, tuple)
        example, (start, end) = of.text, chosen
        characters = example.characters(start, end)
        if start == example.no_answer:
            name = NO_ANSWER
        elif characters is None:
            name = " ".join(unit.text for unit in example.units[start : end + 1])
        else:
            name = example.texts[1][slice(*characters)]
        return Label(None, name, AnswerSpan((start, end), characters))

    def predicted(self, of: ExampleOutputs, chosen: Chosen, versus: Chosen | None) -> Predicted:
        """The answer, with the two outputs behind it."""
        logits, answer = of.logits, self.best_in(of)
        label = self.label(of, answer)
        ends = torch.tensor(answer)[:, None]
        outputs = logits.gather(1, ends).squeeze(1)
        shares = logits[:, : len(of.text.units)].softmax(-1).gather(1, ends).squeeze(1)
        numbers = tuple(outputs.tolist()), tuple(shares.tolist())
        return Predicted(label.name, None, float(shares.prod()), *numbers, ("start", "end"), label.span)


def position_in(outputs: ModelOutputs, position: Any, target: Any, row: int) -> int:
    """A position of an example, if it is one that is no padding."""
    units = outputs.attended.shape[1]
    if not isinstance(position, int) or not 0 <= position < units:
        raise BadOption(f"target {shown(target)}: positions are 0 … {units - 1}")
    if not bool(outputs.attended[row, position]):
        raise BadOption(f"target {shown(target)}: position {position} of example {row} is padding")
    return position


def best_answer(logits: Tensor, example: TextInput) -> tuple[int, int]:
    """The best span in the context, at most `ANSWER_LENGTH` tokens long, or no answer where that scores higher.

    `logits` are those of the start and the end, [2, units]. The answer is given by its first and last token.
    """
    context, none = example.context, example.no_answer
    both = _spans(*logits[:, context].unsqueeze(1))[0]
    if none is not None and logits[:, none].sum() > both.max():
        return none, none
    first, last = divmod(int(both.argmax()), len(context))
    return context[first], context[last]


def best_window(logits: Sequence[Tensor], windows: Sequence[TextInput], target: Any = None) -> int:
    """The number of the window of a context that is explained; `logits` are [2, units] of each.

    By default it is where the sum of start and end is largest over all windows; or, if even the smallest score of no
    answer is larger than that, where this is smallest. A target is explained where it first stands in the context, in
    the window that gives it the larger sum.
    """
    if target is None:
        spans, nothing = [best_span(*pair) for pair in zip(logits, windows, strict=True)], null_scores(logits, windows)
        best = max(spans)
        return spans.index(best) if not nothing or min(nothing) <= best else nothing.index(min(nothing))
    if not isinstance(target, str):
        raise BadOption(
            f"target {shown(target)}: the context is read in {len(windows)} windows, so an answer is given by its text"
        )
    standing: list[tuple[int, float, int]] = []
    for number, (both, window) in enumerate(zip(logits, windows, strict=True)):
        if (tokens := _tokens_of(window, target)) is not None:
            where = window.characters(*tokens)
            standing.append((where[0] if where else 0, -float(both[0, tokens[0]] + both[1, tokens[1]]), number))
    if standing:
        return min(standing)[2]
    if target == NO_ANSWER and (nothing := null_scores(logits, windows)):
        return nothing.index(min(nothing))
    raise BadOption(f"target {shown(target)} does not stand in the context: copy the answer from there")


def best_span(logits: Tensor, window: TextInput) -> float:
    """The largest sum of start and end in the context."""
    return float(_spans(*logits[:, window.context].unsqueeze(1)).max())


def null_scores(logits: Sequence[Tensor], windows: Sequence[TextInput]) -> list[float]:
    """What each window gives to no answer; nothing where there is no place for it."""
    return [
        float(both[:, window.no_answer].sum())
        for both, window in zip(logits, windows, strict=True)
        if window.no_answer is not None
    ]


def answer_in(example: TextInput, target: Any) -> tuple[int, int]:
    """The first and the last token of an answer, given by its text or by these two positions."""
    if isinstance(target, str):
        return _answer_called(example, target)
    context, none = example.context, example.no_answer
    if not isinstance(target, tuple) or len(target) != 2 or not all(isinstance(t, int) for t in target):
        raise BadOption(f"target {shown(target)}: an answer is given by its text, or as (start, end) in tokens")
    start, end = target
    if start == end == none or (start in context and end in context and start <= end):
        return start, end
    nothing = "" if none is None else f", or ({none}, {none}) for no answer"
    raise BadOption(
        f"target {shown(target)} is no answer: give the first and the last token of one, within {context[0]} … "
        f"{context[-1]}, where the context stands{nothing}"
    )


def _answer_called(example: TextInput, text: str) -> tuple[int, int]:
    """The tokens of a text where it first stands in the context."""
    tokens = _tokens_of(example, text)
    if tokens is not None:
        return tokens
    if text == NO_ANSWER and example.no_answer is not None:
        return example.no_answer, example.no_answer
    if positions := re.fullmatch(r"\(?(\d{1,18}), ?(\d{1,18})\)?", text, re.ASCII):
        return answer_in(example, (int(positions[1]), int(positions[2])))
    where = "context" if example.window is None else "window of the context that is explained"
    raise BadOption(
        f"target {shown(text)} does not stand in the {where}: copy the answer from there, or give its first and last "
        "token as (start, end)"
    )


def _tokens_of(example: TextInput, text: str) -> tuple[int, int] | None:
    """The first and last token of a text where it first stands in the context, or in the window of it that is read."""
    spans = [(i, span) for i in example.context if (span := example.units[i].span)]
    for start, end in places(text.strip(), example.texts[1]):
        inside = [(i, span) for i, span in spans if span[0] < end and start < span[1]]
        cut = example.window is not None and inside and (start < inside[0][1][0] or inside[-1][1][1] < end)
        if inside and not cut:
            return inside[0][0], inside[-1][0]
        if example.window is None:
            return None
    return None


def _spans(start: Tensor, end: Tensor) -> Tensor:
    """The sum of the logits of every span, [batch, starts, ends]; -inf where it ends too early or is too long."""
    both = start[:, :, None] + end[:, None, :]
    places = torch.arange(start.shape[1], device=start.device)
    length = places[None, :] - places[:, None]
    return both.masked_fill((length < 0) | (length >= ANSWER_LENGTH), -torch.inf)
