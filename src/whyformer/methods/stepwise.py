"""Stepwise: explain, hide the strongest units, explain what is left, and so on."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from whyformer import progress
from whyformer.errors import BadOption, UnsupportedModel
from whyformer.inputs.hiding import Hide
from whyformer.methods.default import usual_in_steps, usual_method_for
from whyformer.methods.method import USUAL, MethodSpec, Scores, method, method_named
from whyformer.perturb import Hideable, HideName, Seen, hide_named, hideable, remains
from whyformer.prediction import Prediction
from whyformer.recorder import GRADIENT, Needs
from whyformer.recorder.lrp.rule_sets import CONSERVATIVE
from whyformer.registry.options import Count, MethodName

StepScores = Literal["order", "drop"]
OF = MethodName(USUAL)
StepCount = Annotated[int, Count(1, 10_000, "a step hides at least one unit, and no text has more units")]


@method(
    family="perturbation",
    signed=False,
    class_specific=True,
    paper="-",
    passes="many",
    needs=GRADIENT.under(CONSERVATIVE),  # the book of the method that explains its steps by default
    quantity="log_odds",
)
def stepwise(
    prediction: Prediction,
    *,
    of: MethodName = OF,
    steps: StepCount = 3,
    hide: HideName = "delete",
    units: Literal["token", "word"] = "token",
    report: StepScores = "order",
) -> Scores:
    """Explain, hide the strongest units, explain what is left for the same target, and so on: the order of hiding.

    After step `j`, `j · N / steps` of the `N` units that are not special are hidden, rounded half up: those with the
    highest scores by the method `of`, a word by the sum of its tokens. A step that would hide none is skipped; within
    a step the order is that of its own explanation. `report="order"`: `(N - rank) / N` of the unit that was hidden at
    `rank`. `report="drop"`: what the explained output lost in each step, shared out as `|r_i| / Σ|r|` among the units
    hidden in it; it adds up to the output of the whole text without that of nothing left. The tokens of a word share
    its drop, and each has its place in the order. `of="auto"`: the method that wins in general on texts, or another if
    the model does not have one stack of layers, or is given images.
    """
    explaining = _explaining(_usual(prediction) if of == USUAL else of, report)
    way = hide_named(hide)
    walks = [_Walk(text, steps) for text in hideable(prediction, units, way)]
    seen = _Outputs(prediction, steps)
    signed = _walk(prediction, walks, seen, explaining, way)
    shape = tuple(prediction.padding.shape)
    values, hidden_in, signs = np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for walk in walks:
        shares = walk.order if report == "order" else walk.drops(seen.logits[walk.text.number].tolist())
        for unit, share, score, step in zip(walk.gone, shares, walk.scores, walk.step_of, strict=True):
            at = walk.text.number, walk.text.positions[list(walk.text.units[unit])]
            values[at] = share if report == "order" else share / len(at[1])
            hidden_in[at], signs[at] = step, np.sign(score)
    return Scores(
        torch.from_numpy(values).to(prediction.real),
        {"evaluations": torch.tensor([len(walk.turns) + 1 for walk in walks])},
        signed=report == "drop",
        ranks=report == "order",
        signs=torch.from_numpy(signs) if signed else None,
        seen=tuple((seen.of(number, hide, steps),) for number, steps in enumerate(hidden_in.tolist())),
    )


class _Walk:
    """The way through one text: which units are gone, in order, each with its score when it was hidden.

    `turns` are the steps that hide something, each with how many units it hides.
    """

    def __init__(self, text: Hideable, steps: int):
        counts = [(2 * step * len(text.units) + steps) // (2 * steps) for step in range(steps + 1)]
        sizes = enumerate((after - before for before, after in pairwise(counts)), 1)
        self.text = text
        self.turns = [(step, size) for step, size in sizes if size]
        self.gone: list[int] = []
        self.scores: list[float] = []

    @property
    def step_of(self) -> list[int]:
        """The step in which each unit went."""
        return [step for step, size in self.turns for _ in range(size)]

    @property
    def places(self) -> list[int]:
        """The places that are hidden so far."""
        return [place for unit in self.gone for place in self.text.units[unit]]

    @property
    def order(self) -> list[float]:
        """1 for the unit that went first, and then less and less, above 0."""
        count = len(self.gone)
        return [(count - rank) / count for rank in range(count)]

    def take(self, turn: int, scores: Sequence[float]) -> None:
        """Hide the strongest of the units that are left, given a score for each place; ties in order of position."""
        left = sorted(set(range(len(self.text.units))) - set(self.gone))
        felt = {unit: math.fsum(scores[place] for place in self.text.units[unit]) for unit in left}
        chosen = sorted(left, key=lambda unit: -felt[unit])[: self.turns[turn][1]]
        self.gone += chosen
        self.scores += [felt[unit] for unit in chosen]

    def drops(self, outputs: Sequence[float]) -> list[float]:
        """What the output lost in each step, shared out among the units that went in it."""
        at = [0, *(step for step, _ in self.turns)]
        shared: list[float] = []
        for (before, after), (_, size) in zip(pairwise(at), self.turns, strict=True):
            sizes = [abs(score) for score in self.scores[len(shared) : len(shared) + size]]
            total, lost = math.fsum(sizes), outputs[before] - outputs[after]
            shared += [lost * score / total if total else lost / size for score in sizes]
        return shared


class _Outputs:
    """What the model said of each text after every step: the explained output, and the probabilities of classes.

    A step that was skipped has NaN.
    """

    def __init__(self, prediction: Prediction, steps: int):
        self.target = prediction.target.cpu()
        self.logits = torch.full((len(prediction.padding), steps + 1), torch.nan, dtype=torch.float64)
        self.shares: Tensor | None = None
        self.put(prediction, range(len(self.logits)), [0] * len(self.logits))

    def put(self, prediction: Prediction, numbers: Sequence[int], steps: Sequence[int]) -> None:
        """Keep what a prediction says of its rows: of texts by their numbers, each after a step."""
        at, logits = (torch.tensor(numbers), torch.tensor(steps)), prediction.outputs.logits.detach()
        self.logits[at] = prediction.output.double().cpu()
        shares = prediction.task.probabilities(logits) if prediction.task.form == "classes" else None
        if shares is not None:
            if self.shares is None:
                self.shares = torch.full((*self.logits.shape, shares.shape[-1]), torch.nan, dtype=torch.float64)
            self.shares[at] = shares.cpu()

    def of(self, number: int, hide: str, hidden_in: Sequence[int]) -> Seen:
        """What the model said of one text, and in which step each position was hidden."""
        outputs = tuple(None if math.isnan(logit) else logit for logit in self.logits[number].tolist())
        if self.shares is None:
            return Seen(hide, tuple(hidden_in), outputs)
        shares = [None if math.isnan(row[0]) else tuple(row) for row in self.shares[number].tolist()]
        return Seen(hide, tuple(hidden_in), outputs, tuple(shares), int(self.target[number]))


def _usual(prediction: Prediction) -> str:
    """What explains the steps where nobody says so."""
    return usual_in_steps(usual_method_for(prediction.model, prediction.batch))


def _explaining(of: str, report: StepScores) -> MethodSpec:
    """The method that explains each step, if it can."""
    spec = MethodSpec(method_named(stepwise.__name__), {"of": of}).made_of
    assert spec is not None
    if report == "drop" and not spec.of.class_specific:
        raise BadOption(
            f"report='drop' shares out what the target loses, and {spec.of.name} does not know the target: use "
            "report='order', or an `of` that depends on the class, such as attn_lrp"
        )
    return spec


def _walk(prediction: Prediction, walks: Sequence[_Walk], seen: _Outputs, explaining: MethodSpec, hide: Hide) -> bool:
    """Take the steps, all texts side by side; the run of a step is let go before the next. Whether scores had signs."""
    current, turns = prediction, max((len(walk.turns) for walk in walks), default=0)
    signed = explaining.of.signed
    for turn in range(turns):
        going = [walk for walk in walks if turn < len(walk.turns)]
        if turn:
            current = _left(prediction, going, hide, replace(explaining.needs, low=prediction.needs.low))
        with progress.part(turn, turns + 1), _running(current, shortened=turn > 0):
            explained = explaining(current)
        scores, signed = explained.total.detach().double().cpu().numpy(), bool(explained.signed)
        if turn:
            seen.put(current, [w.text.number for w in going], [w.turns[turn - 1][0] for w in going])
        for row, walk in enumerate(going):
            by_place = np.zeros(len(walk.text.input))
            if turn:
                left = walk.text.places_left(walk.places, hide)
                by_place[left] = scores[row, : len(left)]
            else:
                by_place[:] = scores[walk.text.number, walk.text.positions]
            walk.take(turn, by_place.tolist())
    if ended := [walk for walk in walks if walk.turns]:
        del current
        last = _left(prediction, ended, hide, GRADIENT)
        with _running(last, shortened=True):
            seen.put(last, [w.text.number for w in ended], [w.turns[-1][0] for w in ended])
    progress.report(1, 1)
    return signed


def _left(prediction: Prediction, walks: Sequence[_Walk], hide: Hide, needs: Needs) -> Prediction:
    texts, gone = [walk.text for walk in walks], [walk.places for walk in walks]
    return remains(prediction, texts, gone, hide, needs=needs)


@contextmanager
def _running(prediction: Prediction, shortened: bool) -> Iterator[None]:
    """Say why a model does not run on what is left: it may look for a token that was deleted."""
    try:
        yield
    except ValueError as error:
        if not shortened:
            raise
        raise UnsupportedModel(
            f"{type(prediction.model).__name__} does not run on a text with units hidden ({error}): if it needs a "
            "special token, say which are special (special_tokens_mask), or use hide='mask'"
        ) from error
